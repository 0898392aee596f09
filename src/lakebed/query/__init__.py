"""SQL → Arrow: engines over a snapshot of the lake's partitions."""
