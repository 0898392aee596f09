"""Ingest: telemetry lands as blocks and is acknowledged when durable."""
