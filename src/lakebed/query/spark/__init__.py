"""The Spark engine: the same statements over the same snapshots, on Spark's own Parquet reader.
Nothing else in ``lakebed.query`` imports pyspark."""
