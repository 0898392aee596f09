"""Stores of objects, the layout of their paths, and durable Parquet files."""
