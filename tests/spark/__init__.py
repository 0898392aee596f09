"""Spark: the session, DataFrames in and out, executors elsewhere."""
