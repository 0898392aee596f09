"""Protobuf bytes to Arrow arrays, whole batches at once: `ptars` the fast way, `upb` the slow one.

Both give the same arrays. `ptars` reads by OpenTelemetry's descriptors made flat: what nests
without end (arrays and key-value lists inside a value) and what is read in a step of its own (the
records of a scope, all attributes) is ``bytes``; texts are ``bytes`` too, so that bad UTF-8 is seen
by us and not by the parser; unsigned 64-bit numbers are signed, so that what does not fit comes out
negative. Each is the same on the wire. Fields that no column shows are left out. A nested array or
list is repeated, although there may be only one: `ptars` keeps the last of several and all members
of a oneof, so what came twice must show, to be left to `upb`, which merges it as protobuf says.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.decode.descriptors import relaxed_files, relaxed_pool
from lakebed.model.signal import SPECS, Signal

_KEY_VALUE = "opentelemetry.proto.common.v1.KeyValue"
_NESTING = {"AnyValue.array_value", "AnyValue.kvlist_value"}
_RECORDS = {f"Scope{spec.group.capitalize()}.{spec.records}" for spec in SPECS.values()}
_UNUSED = {"AnyValue.string_value_strindex", "KeyValue.key_strindex", "Resource.entity_refs"}

UNGUARDED_BYTES = 16 * 1024
"""Messages up to this size go to `ptars` unchecked. It follows nested groups by recursion, at 80
bytes of stack and one byte of message a level, and dies of a stack overflow, not of an error;
longer messages must pass `upb`, which refuses more than 100 levels."""


class ReadMode(enum.Enum):
    """The two ways of reading messages."""

    FAST = "all at once"
    SLOW = "one by one"


class CannotRead(ValueError):
    """The bytes are not a message of this kind, or the fast mode cannot read them."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of one kind of message."""

    message: Any
    """The `upb` class of the whole message."""
    flat: Any
    """The `upb` class of the flat message."""
    schema: pa.Schema
    handler: Any | None
    """The `ptars` handler; None where there is no wheel of it."""

    def read(self, payloads: pa.Array) -> pa.RecordBatch:
        """One row for each message, the fast way; raises `CannotRead` if any is not readable."""
        if self.handler is None:
            raise CannotRead("there is no ptars here")
        long = pc.greater(pc.binary_length(payloads), UNGUARDED_BYTES)
        for payload in payloads.filter(long).to_pylist() if pc.any(long).as_py() else ():
            parse(self.flat, payload)
        try:
            return self.handler.array_to_record_batch(payloads)
        except ValueError as error:
            raise CannotRead(str(error)) from error
        except BaseException as error:
            # A panic is not an Exception, so that handlers cannot hide it; here it only means that
            # a length prefix was absurd.
            if type(error).__name__ != "PanicException":
                raise
            raise CannotRead(f"ptars gave up: {error}") from error

    def read_slowly(self, payloads: Sequence[bytes]) -> pa.RecordBatch:
        """The same as `read`, message by message."""
        rows = [_plain(parse(self.message, payload), self.schema) for payload in payloads]
        columns = [pa.array([row[field.name] for row in rows], field.type) for field in self.schema]
        return pa.record_batch(columns, schema=self.schema)


def read(reader: Reader, messages: pa.Array, mode: ReadMode) -> pa.RecordBatch:
    """One row for each message; raises `CannotRead` if one is not readable this way."""
    return (
        reader.read(messages) if mode is ReadMode.FAST else reader.read_slowly(messages.to_pylist())
    )


@cache
def envelope_reader(signal: Signal) -> Reader:
    """Reads requests down to their scopes; records stay bytes."""
    return _reader(signal.spec.request_message, whole=False)


@cache
def record_reader(signal: Signal) -> Reader:
    """Reads log records, metrics or spans."""
    return _reader(signal.spec.record_message, whole=True)


@cache
def attribute_reader() -> Reader:
    """Reads attributes: key and value."""
    return _reader(_KEY_VALUE, whole=True)


def _reader(name: str, *, whole: bool) -> Reader:
    from google.protobuf import message_factory  # type: ignore[import-untyped]

    descriptor = _flat_pool(whole).FindMessageTypeByName(name)
    try:
        from ptars import HandlerPool
    except ImportError:  # no wheel for this platform
        handler = None
    else:
        handler = HandlerPool([descriptor.file]).get_for_message(descriptor)
    schema = pa.schema(_fields(descriptor))
    flat = message_factory.GetMessageClass(descriptor)
    message = message_factory.GetMessageClass(relaxed_pool().FindMessageTypeByName(name))
    return Reader(message, flat, schema, handler)


@cache
def _flat_pool(whole: bool) -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool

    pool = descriptor_pool.DescriptorPool()
    for file in relaxed_files():
        copy = descriptor_pb2.FileDescriptorProto.FromString(file.SerializeToString())
        for message in copy.message_type:
            _flatten(message, as_bytes=_NESTING if whole else _NESTING | _RECORDS)
        pool.Add(copy)
    return pool


def _flatten(message: Any, *, as_bytes: set[str]) -> None:
    for index in reversed(range(len(message.field))):
        field = message.field[index]
        name = f"{message.name}.{field.name}"
        if name in _UNUSED:
            del message.field[index]
            continue
        twins = {
            field.TYPE_FIXED64: field.TYPE_SFIXED64,
            field.TYPE_UINT64: field.TYPE_INT64,
            field.TYPE_ENUM: field.TYPE_INT32,
        }
        if name in as_bytes or field.type_name == f".{_KEY_VALUE}":
            field.type = field.TYPE_BYTES
        if name in _NESTING:
            field.label = field.LABEL_REPEATED
            field.ClearField("oneof_index")
        field.type = twins.get(field.type, field.type)
        if field.type != field.TYPE_MESSAGE:
            field.ClearField("type_name")
    for nested in message.nested_type:
        _flatten(nested, as_bytes=as_bytes)


def _fields(descriptor: Any) -> list[pa.Field]:
    return [_field(field) for field in sorted(descriptor.fields, key=lambda field: field.number)]


def _field(field: Any) -> pa.Field:
    types = {
        field.TYPE_BYTES: pa.binary(),
        field.TYPE_BOOL: pa.bool_(),
        field.TYPE_DOUBLE: pa.float64(),
        field.TYPE_INT32: pa.int32(),
        field.TYPE_SINT32: pa.int32(),
        field.TYPE_UINT32: pa.uint32(),
        field.TYPE_FIXED32: pa.uint32(),
        field.TYPE_INT64: pa.int64(),
        field.TYPE_SFIXED64: pa.int64(),
    }
    if field.type == field.TYPE_MESSAGE:
        kind = pa.struct(_fields(field.message_type))
    else:
        kind = types[field.type]
    if field.is_repeated:
        return pa.field(field.name, pa.list_(pa.field("item", kind, nullable=False)), False)
    return pa.field(field.name, kind, nullable=field.has_presence)


def parse(message: Any, payload: bytes) -> Any:
    """The message of a `upb` class; raises `CannotRead`."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return message.FromString(payload)
    except DecodeError as error:
        if "MaxDepth" in str(error):
            raise CannotRead("messages are nested more than 100 deep") from error
        reason = str(error).rpartition(": ")[2].lower()
        raise CannotRead(f"not a {message.DESCRIPTOR.name} in protobuf: {reason}") from error


def _plain(message: Any, fields: Iterable[pa.Field]) -> dict[str, Any]:
    """The whole message as the flat one's fields, in the values that pyarrow takes."""
    row: dict[str, Any] = {}
    for field in fields:
        declared = message.DESCRIPTOR.fields_by_name[field.name]
        value = getattr(message, field.name)
        if declared.is_repeated:
            row[field.name] = [_convert(item, field.type.value_type) for item in value]
        elif declared.has_presence and not message.HasField(field.name):
            row[field.name] = [] if pa.types.is_list(field.type) else None
        elif pa.types.is_list(field.type):
            row[field.name] = [_convert(value, field.type.value_type)]
        else:
            row[field.name] = _convert(value, field.type)
    return row


def _convert(value: Any, kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return _plain(value, kind)
    if kind == pa.binary() and not isinstance(value, bytes):
        return value.SerializeToString()
    if kind == pa.int64() and value >> 63 > 0:
        return value - (1 << 64)
    return value
