"""FlightSQL as a gRPC service whose status codes, limits and keys are ours."""
