"""Spark sessions: how they start, what their executors get, and the end of their JVM."""
