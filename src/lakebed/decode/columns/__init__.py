"""Protobuf messages to Arrow columns, many blocks at once."""
