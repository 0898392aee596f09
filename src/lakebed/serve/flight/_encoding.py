"""Arrow as Flight sends it: the header and the body of each IPC message in a message of its own.
String views are converted here, because older clients do not know them; batches stay below the
limits of clients.
"""

from __future__ import annotations

import io
import struct
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from lakebed.errors import BadPayload, UnsupportedContent

_MOST_BATCH_BYTES = 4 << 20
_HEADER_TAG, _METADATA_TAG, _BODY_TAG = b"\x12", b"\x1a", b"\xc2\x3e"


def encode_schema(schema: pa.Schema) -> bytes:
    """Return a schema as descriptions carry it: an encapsulated IPC message."""
    return bytes(schema.serialize())


def encode_stream_schema(schema: pa.Schema) -> bytes:
    """Return a schema as a stream of IPC without batches, which prepared statements carry."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema):
        pass
    return bytes(sink.getvalue())


def encode_stream(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    *,
    keep_dictionaries: bool,
    note: bytes = b"",
) -> Iterator[bytes]:
    """FlightData messages: the schema always, then a note without rows if there is one, then every
    batch."""
    client_schema = show(schema, keep_dictionaries=keep_dictionaries)
    yield encode_data(bytes(pa.ipc.read_message(client_schema.serialize()).metadata))
    if note:
        yield encode_data(b"", metadata=note)
    rows = (
        piece if piece.schema.equals(client_schema) else piece.cast(client_schema)
        for batch in batches
        for piece in _pieces(batch)
    )
    if any(_has_dictionary(field.type) for field in client_schema):
        yield from _encode_with_dictionaries(client_schema, rows)
    else:
        yield from map(_encode_batch, rows)


def _encode_batch(rows: pa.RecordBatch) -> bytes:
    """Encode rows without dictionaries as one message, which needs no writer and one copy less."""
    message = pa.ipc.read_message(rows.serialize())
    return encode_data(bytes(message.metadata), memoryview(message.body))


def _encode_with_dictionaries(
    schema: pa.Schema, batches: Iterable[pa.RecordBatch]
) -> Iterator[bytes]:
    """Encode rows with dictionaries by a writer, which knows the dictionaries that have to go
    before each row."""
    sink = _Sink()
    options = pa.ipc.IpcWriteOptions(emit_dictionary_deltas=False, unify_dictionaries=False)
    with pa.ipc.new_stream(sink, schema, options=options) as writer:
        for rows in batches:
            writer.write_batch(rows)
            yield from _messages(sink.take())


def _has_dictionary(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        return True
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    return any(_has_dictionary(kind.field(index).type) for index in range(kind.num_fields))


def show(schema: pa.Schema, *, keep_dictionaries: bool = False) -> pa.Schema:
    """Return a schema as clients get it."""
    return pa.schema([field.with_type(_plain(field.type, keep_dictionaries)) for field in schema])


def _plain(kind: pa.DataType, keep_dictionaries: bool) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return kind if keep_dictionaries else kind.value_type
    if pa.types.is_string_view(kind):
        return pa.string()
    return pa.binary() if pa.types.is_binary_view(kind) else kind


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    count = max(1, -(-batch.nbytes // _MOST_BATCH_BYTES))
    rows = max(1, -(-batch.num_rows // count))
    for begin in range(0, max(batch.num_rows, 1), rows):
        yield batch.slice(begin, rows)


class _Sink(io.RawIOBase):
    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        return len(part)

    def take(self) -> pa.Buffer:
        parts, self._parts = self._parts, []
        return pa.py_buffer(b"".join(parts))


def _messages(data: pa.Buffer) -> Iterator[bytes]:
    """Yield the messages that a writer wrote. Encoded by hand: protobuf would copy each body once
    more."""
    reader = pa.ipc.MessageReader.open_stream(pa.BufferReader(data))
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        if message.type != "schema":  # the schema went first, also if no rows follow
            yield encode_data(bytes(message.metadata), memoryview(message.body))


def encode_data(header: bytes, body: Any = b"", metadata: bytes = b"") -> bytes:
    """One FlightData message."""
    parts: list[Any] = [_HEADER_TAG, _varint(len(header)), header] if header else []
    if metadata:
        parts += [_METADATA_TAG, _varint(len(metadata)), metadata]
    if len(body):
        parts += [_BODY_TAG, _varint(len(body)), body]
    return b"".join(parts)


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 127:
        parts.append(number & 127 | 128)
        number >>= 7
    parts.append(number)
    return bytes(parts)


def decode_stream(messages: Iterable[tuple[bytes, bytes]]) -> pa.Table:
    """Return the rows of FlightData headers and bodies that a client put, validated fully;
    `BadPayload` if they are not Arrow, or would be far larger in memory than they are here."""
    source = _Source(_as_ipc(messages))
    try:
        with pa.ipc.open_stream(source) as reader:
            table = reader.read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        reason = str(error).partition("\n")[0]
        raise BadPayload("the rows are not understood as Arrow", hint=reason) from None
    if table.num_rows > source.size:
        raise BadPayload("there are more rows than bytes", hint="put rows that hold something")
    if any(pa.types.is_run_end_encoded(field.type) for field in table.schema):
        raise UnsupportedContent("run-end encoded columns are not taken", hint="put them plain")
    return table


def _as_ipc(messages: Iterable[tuple[bytes, bytes]]) -> Iterator[bytes]:
    for header, body in messages:
        if header:
            if is_compressed(header):
                raise UnsupportedContent("compressed rows are not taken", hint="put them plain")
            yield b"\xff\xff\xff\xff" + len(header).to_bytes(4, "little") + header
            yield body
    yield b"\xff\xff\xff\xff\x00\x00\x00\x00"


class _Source(io.RawIOBase):
    """Pieces as a file, each released when it was read, instead of all of them joined."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._piece, self._at = b"", 0
        self.size = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return that many bytes, or fewer at the end. Arrow reads bodies whole."""
        parts: list[bytes] = []
        remaining = sys.maxsize if size < 0 else size
        while remaining:
            if self._at == len(self._piece):
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self.size += len(piece)
                self._piece, self._at = piece, 0
            part = self._piece[self._at : self._at + remaining]  # no copy if it is all of it
            self._at += len(part)
            remaining -= len(part)
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


_DICTIONARY, _ROWS = 2, 3  # kinds of messages


def is_compressed(header: bytes) -> bool:
    """Return True if the body of an IPC message is compressed, which pyarrow does not reveal before
    it allocates memory for all of it. Read from the flatbuffer itself; `BadPayload` if it is
    none."""
    try:
        message = _follow(header, 0)
        kind = _find_field(header, message, 1)
        body = _find_field(header, message, 2)
        if not kind or not body or header[kind] not in (_DICTIONARY, _ROWS):
            return False
        batch = _follow(header, body)
        if header[kind] == _DICTIONARY:
            batch = _follow(header, _find_field(header, batch, 1))
        return _find_field(header, batch, 3) != 0
    except (struct.error, IndexError):
        raise BadPayload("the rows are not understood as Arrow") from None


def _follow(data: bytes, position: int) -> int:
    """Return the position of the table that an offset points to."""
    return position + int(struct.unpack_from("<I", data, position)[0])


def _find_field(data: bytes, table: int, number: int) -> int:
    """Return the position of a table's field; 0 if the table lacks it."""
    fields = table - struct.unpack_from("<i", data, table)[0]
    if fields < 0:
        raise struct.error
    entry = 4 + 2 * number
    if entry >= struct.unpack_from("<H", data, fields)[0]:
        return 0
    offset = struct.unpack_from("<H", data, fields + entry)[0]
    return table + offset if offset else 0
