"""Verification of a Parquet file's pages by their checksums, without decoding them.

A page's checksum covers its body. The header in front of it has none, so each of its fields is
compared with what the footer says of the column chunk. Only footers whose bytes were verified may
be used here. Files that Lakebed did not write may lack checksums; they cannot be verified.

Parquet checksums: https://parquet.apache.org/docs/file-format/data-pages/checksumming/
"""

from __future__ import annotations

import io
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

from lakebed.errors import DamagedFile, DamagedFooter
from lakebed.storage import thrift
from lakebed.storage.thrift import BINARY, I32, I64, LIST, STRUCT, Kind, Shape, Span, ThriftError

Read = Callable[[int, int], bytes]
"""Reads a number of bytes from an offset of a file, fewer at its end."""

_WINDOW_BYTES = 8 << 20
_HEADER_BYTES = 64 << 10
"""Larger than any page header that Lakebed writes, which has no statistics."""
_DATA, _DICTIONARY = 0, 2
_DESCRIPTIONS = {_DATA: 5, _DICTIONARY: 7}
"""The field of a page header that describes a page of each type. We write no other types."""
_RLE = 3

_ENCODING_STATS = Shape(
    "PageEncodingStats", {number: Kind(I32) for number in (1, 2, 3)}, {1, 2, 3}, watched=(1, 2, 3)
)
_COLUMN_META = Shape(
    "ColumnMetaData",
    {5: Kind(I64), 6: Kind(I64), 7: Kind(I64), 9: Kind(I64), 11: Kind(I64)}
    | {3: Kind(LIST, element=Kind(BINARY))}
    | {13: Kind(LIST, element=Kind(STRUCT, _ENCODING_STATS))},
    {3, 5, 6, 7, 9},
    watched=(3, 5, 6, 7, 9, 11),
)
_COLUMN_CHUNK = Shape("ColumnChunk", {3: Kind(STRUCT, _COLUMN_META)}, {3})
_ROW_GROUP = Shape("RowGroup", {1: Kind(LIST, element=Kind(STRUCT, _COLUMN_CHUNK))}, {1})
_FILE = Shape("FileMetaData", {4: Kind(LIST, element=Kind(STRUCT, _ROW_GROUP))}, {4})

_DATA_HEADER = Shape(
    "DataPageHeader", {number: Kind(I32) for number in (1, 2, 3, 4)}, {1, 2, 3, 4}, (1, 2, 3, 4)
)
_DICTIONARY_HEADER = Shape("DictionaryPageHeader", {1: Kind(I32), 2: Kind(I32)}, {1, 2}, (1, 2))
_HEADER = Shape(
    "PageHeader",
    {number: Kind(I32) for number in (1, 2, 3, 4)}
    | {5: Kind(STRUCT, _DATA_HEADER), 7: Kind(STRUCT, _DICTIONARY_HEADER)},
    {1, 2, 3},
    watched=(1, 2, 3, 4, 5, 7),
)


@dataclass(frozen=True, slots=True)
class Chunk:
    """A column's pages in one row group, as the footer describes them."""

    column: str
    """The name of the top-level column."""
    begin: int
    end: int
    num_values: int
    uncompressed_bytes: int
    pages: Counter[tuple[int, int]]
    """The number of pages of each type and encoding."""


def list_chunks(footer: bytes, *, path: str) -> list[Chunk]:
    """Return the column chunks of a verified footer, in the order in which it lists them."""
    chunks: list[Chunk] = []
    pages: Counter[tuple[int, int]] = Counter()

    def visit(shape: Shape, spans: list[Span]) -> None:
        nonlocal pages
        if shape is _ENCODING_STATS:
            page_type, encoding, count = (thrift.read_integer(footer, span) for span in spans)
            pages[page_type, encoding] += count
            return
        (names, *spans) = spans
        values = {span.field_id: thrift.read_integer(footer, span) for span in spans}
        begin = values.get(11, values[9])
        column = thrift.read_strings(footer, names)[0].decode()
        chunks.append(Chunk(column, begin, begin + values[7], values[5], values[6], pages))
        pages = Counter()

    try:
        thrift.walk(footer, _FILE, visit)
    except (ThriftError, ValueError, IndexError) as error:
        raise DamagedFooter(f"damaged footer of {path} ({len(footer)} bytes): {error}") from error
    return chunks


def verify_chunks(
    read: Read, chunks: Sequence[Chunk], *, path: str, proceed: Callable[[], None] = lambda: None
) -> None:
    """Raise `DamagedFile` unless every page of the chunks is as it was written.

    ``proceed`` is called before each piece that is read, and may raise to stop the verification.
    Adjacent chunks are read together, in pieces of a few MiB.
    """
    ordered = sorted(chunks, key=lambda chunk: chunk.begin)
    for begin, end in _join(ordered):
        window = _Window(read, begin, end, proceed)
        for chunk in ordered:
            if begin <= chunk.begin < end:
                _verify_chunk(window, chunk, path)


def _join(chunks: Sequence[Chunk]) -> list[tuple[int, int]]:
    """Return the ranges of a file that some chunks fill."""
    ranges: list[tuple[int, int]] = []
    for chunk in chunks:
        if ranges and ranges[-1][1] == chunk.begin:
            ranges[-1] = (ranges[-1][0], chunk.end)
        else:
            ranges.append((chunk.begin, chunk.end))
    return ranges


class _Window:
    """A range of a file that is read in order, a few MiB at a time."""

    def __init__(
        self, read: Read, begin: int, end: int, proceed: Callable[[], None] = lambda: None
    ) -> None:
        self._read = read
        self._next = begin
        self._end = end
        self._proceed = proceed
        self._begin = begin
        self.data = b""

    def locate(self, offset: int, length: int) -> int:
        """Return where in ``data`` an offset is, with so many bytes behind it if the range has
        them."""
        needed = min(offset + length, self._end)
        if needed > self._next:
            self._proceed()
            size = min(max(needed - self._next, _WINDOW_BYTES), self._end - self._next)
            remainder = self.data[offset - self._begin :]
            piece = self._read(self._next, size)
            self.data = remainder + piece if remainder else piece
            self._begin = offset
            self._next += len(piece)
        return offset - self._begin


@dataclass(slots=True)
class _Header:
    """A page header, field by field."""

    page_type: int = -1
    uncompressed_bytes: int = 0
    body_bytes: int = 0
    checksum: int | None = None
    num_values: int = 0
    encoding: int = -1
    has_unknown_levels: bool = False
    descriptions: list[int] = field(default_factory=list)


def _verify_chunk(window: _Window, chunk: Chunk, path: str) -> None:
    offset, values, uncompressed = chunk.begin, 0, 0
    pages: Counter[tuple[int, int]] = Counter()
    try:
        while offset < chunk.end:
            header, size = _read_header(window, offset)
            if offset + size + header.body_bytes > chunk.end:
                raise ThriftError(f"a page at offset {offset} does not fit its column chunk")
            start = window.locate(offset + size, header.body_bytes)
            body = memoryview(window.data)[start : start + header.body_bytes]
            if len(body) < header.body_bytes:
                raise ThriftError("the file ends inside a page")
            if header.checksum is None:
                raise ThriftError(f"the page at offset {offset} has no checksum")
            if zlib.crc32(body) != header.checksum & 0xFFFFFFFF:
                raise ThriftError(f"the page at offset {offset} does not match its checksum")
            if header.page_type != _DICTIONARY:
                values += header.num_values
            uncompressed += size + header.uncompressed_bytes
            pages[header.page_type, header.encoding] += 1
            offset += size + header.body_bytes
        if (values, uncompressed, pages) != (
            chunk.num_values,
            chunk.uncompressed_bytes,
            chunk.pages,
        ):
            raise ThriftError("the page headers do not match the footer")
    except ThriftError as error:
        raise DamagedFile(f"{path}, column {chunk.column}: {error}") from error


def _read_header(window: _Window, offset: int) -> tuple[_Header, int]:
    """Return the page header at an offset, and its size."""
    header = _Header()
    start = window.locate(offset, _HEADER_BYTES)
    data = window.data

    def visit(shape: Shape, spans: list[Span]) -> None:
        if shape is not _HEADER:
            numbers = [thrift.read_integer(data, span) for span in spans]
            header.num_values, header.encoding = numbers[0], numbers[1]
            header.has_unknown_levels = any(number != _RLE for number in numbers[2:])
            return
        for span in spans:
            if span.wire == STRUCT:
                header.descriptions.append(span.field_id)
                continue
            value = thrift.read_integer(data, span)
            if span.field_id == 1:
                header.page_type = value
            elif span.field_id == 2:
                header.uncompressed_bytes = value
            elif span.field_id == 3:
                header.body_bytes = value
            else:
                header.checksum = value

    try:
        end = thrift.walk(data, _HEADER, visit, start)
    except ThriftError as error:
        raise ThriftError(f"the page header at offset {offset} is malformed: {error}") from error
    if (
        header.descriptions != [_DESCRIPTIONS.get(header.page_type)]
        or min(header.body_bytes, header.uncompressed_bytes, header.num_values) < 0
        or header.has_unknown_levels
    ):
        raise ThriftError(f"the page header at offset {offset} is malformed")
    return header, end - start


class SummedSink(io.RawIOBase):
    """A file that passes on what is written, and keeps its size and CRC-32."""

    def __init__(self, sink: BinaryIO) -> None:
        self._sink = sink
        self.size = 0
        self.checksum = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.size += memoryview(data).nbytes
        self.checksum = zlib.crc32(data, self.checksum)
        return self._sink.write(data)

    def tell(self) -> int:
        return self.size


def verify_file(read: Read, footer: bytes, *, path: str, size: int, checksum: int) -> None:
    """Raise `Damage` unless a file of ours has this CRC-32 and its pages match theirs."""
    summed = _SummedReader(read)
    verify_chunks(summed.read, list_chunks(footer, path=path), path=path)
    summed.skip_to(size)
    if summed.checksum != checksum:
        raise DamagedFile(f"{path} does not have the checksum of the bytes that were written")


class _SummedReader:
    """Reads a file from its begin to its end, and keeps its CRC-32."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._offset = 0
        self.checksum = 0

    def read(self, offset: int, length: int) -> bytes:
        self.skip_to(offset)
        piece = self._read(offset, length)
        self.checksum = zlib.crc32(piece, self.checksum)
        self._offset += len(piece)
        return piece

    def skip_to(self, offset: int) -> None:
        """Read up to an offset."""
        while self._offset < offset:
            if not self.read(self._offset, min(offset - self._offset, _WINDOW_BYTES)):
                return


def select_columns(chunks: Sequence[Chunk], columns: Collection[str] | None) -> Iterator[Chunk]:
    """Return the chunks of some top-level columns; of all columns if none are named."""
    return (chunk for chunk in chunks if columns is None or chunk.column in columns)
