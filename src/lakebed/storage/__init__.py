"""Bytes at a location: objects, the layout that spells every path, durable Parquet files."""
