"""The OTLP request messages that Lakebed parses with: OpenTelemetry's own descriptors, relaxed.

Every ``string`` field is ``bytes`` here. The wire format is the same, but a payload with bad UTF-8
parses, so that one wrong byte in a log line does not cost the whole request; the code that converts
a field to text decides how to mark bad bytes. The messages live in a pool of their own, beside the
generated ones.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

from lakebed.model.signal import Signal


@cache
def request_class(signal: Signal) -> Any:
    """Return the relaxed class of a signal's Export…ServiceRequest; its texts are bytes."""
    message = relaxed_pool().FindMessageTypeByName(signal.spec.request_message)
    return message_factory.GetMessageClass(message)


@cache
def relaxed_files() -> tuple[Any, ...]:
    """Return the relaxed FileDescriptorProtos of all signals, each after what it imports."""
    files: dict[str, Any] = {}
    for signal in Signal:
        _collect(importlib.import_module(signal.spec.service_module).DESCRIPTOR, files)
    return tuple(files.values())


@cache
def relaxed_pool() -> Any:
    """Return the private pool that holds the relaxed messages."""
    pool = descriptor_pool.DescriptorPool()
    for file in relaxed_files():
        pool.Add(file)
    return pool


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
