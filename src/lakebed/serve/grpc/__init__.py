"""gRPC: its ports, its calls, and OTLP over it."""
