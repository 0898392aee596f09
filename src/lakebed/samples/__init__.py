"""Realistic OTLP requests of any size from a seed, for the demo, the tests and the benchmarks.

The same seed gives the same bytes in every process. Only OpenTelemetry's own messages are used
here, so that what is generated does not depend on how Lakebed reads it.
"""
