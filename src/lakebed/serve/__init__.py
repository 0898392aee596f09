"""The lake as a service: OTLP and records in over HTTP, SQL out, keys, health and metrics."""
