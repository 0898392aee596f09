"""The OTLP request messages that Lakebed parses with: OpenTelemetry's own descriptors, relaxed.

Every ``string`` field is ``bytes`` here. The wire format is the same, but a payload with bad UTF-8
parses, so that one wrong byte in a log line does not cost the whole request; whoever shows a text
decides what becomes of it. The messages live in a pool of their own, beside the generated ones.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from lakebed.model.signal import Signal

REQUEST_NAMES = {
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.ExportLogsServiceRequest",
    Signal.METRICS: "opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceRequest",
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.ExportTraceServiceRequest",
}
"""The full name of each signal's request message, the same in both pools."""


def request_class(signal: Signal) -> Any:
    """The relaxed class of a signal's Export…ServiceRequest; its texts are bytes."""
    return _request_classes()[signal]


@cache
def relaxed_files() -> tuple[Any, ...]:
    """The relaxed FileDescriptorProtos of all signals, each after what it imports."""
    files: dict[str, Any] = {}
    for module in (logs_service_pb2, metrics_service_pb2, trace_service_pb2):
        _collect(module.DESCRIPTOR, files)
    return tuple(files.values())


@cache
def relaxed_pool() -> Any:
    """The private pool that holds the relaxed messages."""
    pool = descriptor_pool.DescriptorPool()
    for file in relaxed_files():
        pool.Add(file)
    return pool


@cache
def _request_classes() -> dict[Signal, Any]:
    pool = relaxed_pool()
    return {
        signal: message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
        for signal, name in REQUEST_NAMES.items()
    }


def _collect(file: Any, into: dict[str, Any]) -> None:
    for dependency in file.dependencies:
        _collect(dependency, into)
    if file.name not in into:
        copy = descriptor_pb2.FileDescriptorProto()
        file.CopyToProto(copy)
        for message in copy.message_type:
            _relax(message)
        into[file.name] = copy


def _relax(message: Any) -> None:
    for field in message.field:
        if field.type == field.TYPE_STRING:
            field.type = field.TYPE_BYTES
    for nested in message.nested_type:
        _relax(nested)
