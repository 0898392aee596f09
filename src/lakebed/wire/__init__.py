"""The protocol between server and client: FlightSQL messages, and errors as gRPC details."""
