"""OTLP/JSON requests: their conversion to protobuf, and what can be read of damaged ones."""
