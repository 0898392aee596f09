"""DataFrames over the files of partitions, and the types of their columns."""
