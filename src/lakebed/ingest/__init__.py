"""The doors in: telemetry lands as blocks, acknowledged when durable."""
