"""Import trees of Parquet files into tables."""
