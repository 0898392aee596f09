"""The lake as a service: OTLP and records in over HTTP, SQL out, keys, health and metrics."""

import os

# Spark's JVM is started by a fork that runs another program at once. gRPC needs to do nothing for
# that, and would say so on stderr each time.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# Errors there are raised and logged by us; gRPC would log them a second time.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
