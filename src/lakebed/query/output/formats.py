"""Rows in formats that other programs read: each writer takes record batches as they come and holds
as little of them as possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from lakebed.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa

_GROUP_ROWS = 122_880
_GROUP_BYTES = 64 << 20
_PIECE_ROWS = 8_192


class Sink(Protocol):
    """A destination of bytes."""

    def write(self, data: bytes, /) -> object: ...


class Writer(Protocol):
    """Rows in one format; `end` comes after the last of them, and not if anything failed."""

    def write(self, batch: pa.RecordBatch) -> None: ...

    def end(self) -> None: ...


class NdjsonWriter:
    """Writes one JSON object a line."""

    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        import msgspec

        from lakebed.query.output.plain import name_columns

        self._sink = sink
        self._names = name_columns(schema)
        self._encode_lines = msgspec.json.Encoder().encode_lines

    def write(self, batch: pa.RecordBatch) -> None:
        """Write its rows, a line each."""
        from lakebed.query.output.plain import to_objects

        for piece in _pieces(batch):
            self._sink.write(self._encode_lines(to_objects(piece, self._names)))

    def end(self) -> None:
        """Do nothing: the format has no end mark."""


class JsonWriter:
    """Writes one array of objects. Without its last bracket it is invalid JSON: half a result
    cannot be taken for a whole one."""

    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        import msgspec

        from lakebed.query.output.plain import name_columns

        self._sink = sink
        self._names = name_columns(schema)
        self._encode = msgspec.json.Encoder().encode
        self._before = b"[\n"

    def write(self, batch: pa.RecordBatch) -> None:
        """Write its rows as members of the array."""
        from lakebed.query.output.plain import to_objects

        for piece in _pieces(batch):
            rows = [self._encode(row) for row in to_objects(piece, self._names)]
            self._sink.write(self._before + b",\n".join(rows))
            self._before = b",\n"

    def end(self) -> None:
        """Write the last bracket."""
        self._sink.write(b"[]\n" if self._before.startswith(b"[") else b"\n]\n")


class CsvWriter:
    """Writes a header and a line for each row. NULL is empty, the empty string is two quotes;
    nested values are JSON."""

    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        self._sink = sink
        self._names = schema.names
        self._header: bytes | None = b",".join(_quoted(name) for name in schema.names) + b"\n"

    def write(self, batch: pa.RecordBatch) -> None:
        """Write its rows, a line each."""
        import pyarrow as pa
        import pyarrow.csv

        self._begin()
        options = pa.csv.WriteOptions(include_header=False)
        for piece in _pieces(batch):
            columns = [_to_csv(column) for column in piece.columns]
            buffer = pa.BufferOutputStream()
            names = [str(index) for index in range(len(columns))]
            pa.csv.write_csv(pa.record_batch(columns, names), buffer, options)
            self._sink.write(buffer.getvalue().to_pybytes())

    def _begin(self) -> None:
        header, self._header = self._header, None
        if header is not None:
            self._sink.write(header)

    def end(self) -> None:
        """Write the header, if there was no row before."""
        self._begin()


def _quoted(text: str) -> bytes:
    return b'"' + text.replace('"', '""').encode() + b'"'


def _to_csv(column: pa.Array) -> pa.Array:
    """Return the column in a type that CSV can hold."""
    import msgspec
    import pyarrow as pa

    from lakebed.query.output.plain import to_values

    kind = column.type
    plain = pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_string(kind)
    if plain or pa.types.is_float64(kind) or pa.types.is_float32(kind) or pa.types.is_null(kind):
        return column
    values = to_values(column)
    if any(isinstance(value, list | dict) for value in values):
        encode = msgspec.json.Encoder().encode
        values = [None if value is None else encode(value).decode() for value in values]
    return pa.array(values, pa.string())


class ParquetWriter:
    """Writes one file, in groups of rows that are large enough for readers."""

    def __init__(self, sink: Sink, schema: pa.Schema) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from lakebed.query.output.plain import name_columns

        fields = zip(schema, name_columns(schema), strict=True)
        self._schema = pa.schema([field.with_name(name) for field, name in fields])
        self._gathered: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._file = pa.PythonFile(_Counted(sink), mode="w")
        try:
            self._writer = pq.ParquetWriter(
                self._file, self._schema, compression="zstd", write_page_checksum=True
            )
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
            raise BadInput(
                f"Parquet cannot hold this result: {str(error).splitlines()[0]}",
                hint="cast the column to another type, or choose another format",
            ) from error

    def write(self, batch: pa.RecordBatch) -> None:
        """Gather its rows; write them when there are enough for a group."""
        self._gathered.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._write_group()

    def _write_group(self) -> None:
        import pyarrow as pa

        batches = [batch.rename_columns(self._schema.names) for batch in self._gathered]
        table = pa.Table.from_batches(batches, self._schema)
        self._gathered, self._rows, self._bytes = [], 0, 0
        self._writer.write_table(table, row_group_size=max(table.num_rows, 1))

    def end(self) -> None:
        """Write the last rows and the footer."""
        if self._gathered:
            self._write_group()
        self._writer.close()


class _Counted:
    """A sink that knows its position, which a pipe does not."""

    closed = False

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._position = 0

    def write(self, data: bytes) -> int:
        self._sink.write(data)
        self._position += len(data)
        return len(data)

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        """Do nothing: the owner of the sink flushes it."""

    def close(self) -> None:
        """Do nothing: the owner of the sink closes it."""


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for begin in range(0, batch.num_rows, _PIECE_ROWS):
        yield batch.slice(begin, _PIECE_ROWS)
