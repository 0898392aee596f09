"""Blocks to partitions on Spark: the session, the plan (pure), and the steps that carry it out."""
