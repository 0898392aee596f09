"""Parquet footers as the catalog keeps them: plain bytes, parsed without touching any file.

A footer enters the journey at publish (cut from the end of the file just written) or at adoption
(upgraded from a micromegas catalog), and is parsed by every reader that plans a scan. Format 2 is
the serialized ``FileMetaData`` exactly as in the file, without the length and magic behind it.

Parquet metadata: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from lakebed.errors import BadInput, DamagedFooter
from lakebed.storage import thrift
from lakebed.storage.thrift import (
    BINARY,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Edit,
    Kind,
    Shape,
    Span,
    ThriftError,
)

if TYPE_CHECKING:
    from pyarrow.parquet import FileMetaData

FOOTER_FORMAT = 2
LEGACY_FORMAT = 1

TRAILER_BYTES = 8
MAX_SCHEMA_DEPTH = 100  # pyarrow's own default; deeper trees once overflowed its stack

_MAGIC = b"PAR1"
_ENCRYPTED_MAGIC = b"PARE"
_MAX_I64 = 2**63 - 1
_INDEX_POINTERS = frozenset({4, 5, 6, 7})  # offset_index and column_index, offset and length
_CODECS = range(8)
_REPETITIONS = _REQUIRED, _OPTIONAL, _REPEATED = range(3)
_BYTE_ARRAY, _FIXED_LEN_BYTE_ARRAY = 6, 7
# The fewest bytes a value of each physical type needs; groups have no type.
_TYPE_BYTES = {None: 0, 0: 1, 1: 4, 2: 8, 3: 12, 4: 4, 5: 8, 6: 0, 7: 0}

_Default = TypeVar("_Default", int, None)


def _fields(wire: int, *field_ids: int) -> dict[int, Kind]:
    return {field_id: Kind(wire) for field_id in field_ids}


def _list(wire: int, shape: Shape | None = None) -> Kind:
    return Kind(LIST, element=Kind(wire, shape))


# pyarrow must not see what breaks these shapes: its generated reader allocates what a list claims
# before it looks at the elements, and reads them without regard to the type the list declares.
_KEY_VALUE = Shape("KeyValue", _fields(BINARY, 1, 2), {1})
_SCHEMA_ELEMENT = Shape(
    "SchemaElement",
    _fields(I32, 1, 2, 3, 5, 6, 7, 8, 9) | {4: Kind(BINARY), 10: Kind(STRUCT)},
    {4},
    watched=(1, 2, 3, 5),
)
_STATISTICS = Shape(
    "Statistics", _fields(BINARY, 1, 2, 5, 6) | _fields(I64, 3, 4), watched=(1, 2, 5, 6)
)
_SIZES = Shape("SizeStatistics", {1: Kind(I64), 2: _list(I64), 3: _list(I64)}, watched=(1, 2, 3))
_COLUMN_META = Shape(
    "ColumnMetaData",
    _fields(I32, 1, 4, 15)
    | _fields(I64, 5, 6, 7, 9, 10, 11, 14)
    | {2: _list(I32), 3: _list(BINARY), 8: _list(STRUCT, _KEY_VALUE), 13: _list(STRUCT)}
    | {12: Kind(STRUCT, _STATISTICS), 16: Kind(STRUCT, _SIZES), 17: Kind(STRUCT)},
    {1, 2, 3, 4, 5, 6, 7, 9},
    watched=(1, 4),
)
_COLUMN_CHUNK = Shape(
    "ColumnChunk",
    _fields(BINARY, 1, 9)
    | _fields(I64, 2, 4, 6)
    | _fields(I32, 5, 7)
    | {3: Kind(STRUCT, _COLUMN_META), 8: Kind(STRUCT)},
    {2, 3},
    watched=thrift.EVERY_FIELD,
)
_ROW_GROUP = Shape(
    "RowGroup",
    _fields(I64, 2, 3, 5, 6) | {1: _list(STRUCT, _COLUMN_CHUNK), 4: _list(STRUCT), 7: Kind(I16)},
    {1, 2, 3},
    watched=(3,),
)
_FILE = Shape(
    "FileMetaData",
    {1: Kind(I32), 3: Kind(I64), 8: Kind(STRUCT)}
    | _fields(BINARY, 6, 9)
    | {2: _list(STRUCT, _SCHEMA_ELEMENT), 4: _list(STRUCT, _ROW_GROUP)}
    | {5: _list(STRUCT, _KEY_VALUE), 7: _list(STRUCT)},
    {1, 2, 4},  # num_rows, field 3, is what a legacy footer may lack
    watched=thrift.EVERY_FIELD,
)


def footer_length(trailer: bytes, *, path: str, file_size: int) -> int:
    """Return the footer's length in bytes from a file's last 8 bytes.

    Raises ``DamagedFooter`` when they do not end a Parquet file, when the file's footer is
    encrypted, or when the footer would not fit into the file.
    """
    if len(trailer) != TRAILER_BYTES or file_size < TRAILER_BYTES + len(_MAGIC):
        raise _damaged(path, file_size, "too short for a Parquet file", what="file")
    magic = bytes(trailer[4:])
    if magic == _ENCRYPTED_MAGIC:
        raise _damaged(path, file_size, "its footer is encrypted (PARE)", what="file")
    if magic != _MAGIC:
        raise _damaged(path, file_size, f"it ends with {magic!r} instead of PAR1", what="file")
    length = int.from_bytes(trailer[:4], "little")
    if not 0 < length <= file_size - TRAILER_BYTES - len(_MAGIC):
        raise _damaged(path, file_size, f"a footer of {length} bytes does not fit", what="file")
    return length


def split_footer(tail: bytes, *, path: str, file_size: int) -> bytes:
    """Return the footer from a file's last bytes, which must reach back to the footer's start.

    Raises ``DamagedFooter`` as ``footer_length`` does, and ``BadInput`` when ``tail`` is too short.
    """
    length = footer_length(tail[-TRAILER_BYTES:], path=path, file_size=file_size)
    needed = length + TRAILER_BYTES
    if len(tail) < needed:
        raise BadInput(f"the footer of {path} needs the last {needed} bytes, got {len(tail)}")
    return bytes(tail[-needed:-TRAILER_BYTES])


def digest(footer: bytes) -> bytes:
    """Return the SHA-256 that the catalog keeps next to a footer."""
    return hashlib.sha256(footer).digest()


def parse(footer: bytes, *, path: str, trusted: bool = False) -> FileMetaData:
    """Return pyarrow's view of a format 2 footer; no file is opened.

    The structural walk costs far more than pyarrow's own parsing. ``trusted`` skips it: only for
    bytes that a writer has just written, or that passed once and whose digest was verified since.
    pyarrow aborts the whole process when asked for columns or statistics that do not fit the
    schema. Raises ``DamagedFooter`` for anything but one complete footer that pyarrow accepts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if len(footer) >= 2**32:
        raise _damaged(path, len(footer), "longer than a Parquet file can state")
    if not trusted:
        survey, end = _survey(footer, path=path)
        if end != len(footer):
            raise _trailing(footer, end, path=path)
        if survey.num_rows is None:
            raise _damaged(path, len(footer), "FileMetaData lacks field 3, num_rows")
    file = b"".join((_MAGIC, footer, len(footer).to_bytes(4, "little"), _MAGIC))
    try:
        return pq.read_metadata(pa.BufferReader(file))
    except (pa.ArrowException, OSError, MemoryError, ValueError) as error:
        raise _damaged(path, len(footer), f"pyarrow cannot parse it: {error}") from error


def upgrade(stored: bytes, *, num_rows: int, path: str) -> bytes:
    """Return format 1 bytes as format 2: rows counted, page index pointers and trailer cut.

    ``num_rows`` comes from the adopted catalog and is injected where the footer counts none. Every
    byte that need not change stays. Raises ``DamagedFooter`` for malformed bytes and when footer
    and catalog disagree on the rows.
    """
    data = bytes(stored)
    if not 0 <= num_rows <= _MAX_I64:
        raise _damaged(path, len(data), f"the catalog counts {num_rows} rows")
    survey, end = _survey(data, path=path)
    if end != len(data) and data[end:] != end.to_bytes(8, "little")[:4] + _MAGIC:
        raise _trailing(data, end, path=path)
    if survey.num_rows and survey.num_rows != num_rows:
        cause = f"it counts {survey.num_rows} rows where the catalog counts {num_rows}"
        raise _damaged(path, len(data), cause)
    if survey.group_rows != num_rows:
        cause = f"its row groups hold {survey.group_rows} rows where the catalog counts {num_rows}"
        raise _damaged(path, len(data), cause)
    edits = survey.edits
    if survey.num_rows != num_rows:
        edits.append(_inject_rows(data, survey.fields, end, num_rows))
    return thrift.apply_edits(data[:end], edits)


def _cut_pointers(data: bytes, spans: list[Span]) -> Edit | None:
    """Cut the index pointers of a column chunk and fix the header of the field behind each."""
    remaining = bytearray()
    start = before = after = 0  # before, after: the id a delta counts from, as stored and as kept
    for span in spans:
        if span.field_id in _INDEX_POINTERS:
            start = start or span.start
        else:
            if start:
                remaining += thrift.moved_header(data, span, before=before, after=after)
                remaining += data[span.value : span.end]
            after = span.field_id
        before = span.field_id
    return Edit(start, spans[-1].end, bytes(remaining)) if start else None


def _inject_rows(data: bytes, spans: list[Span], end: int, num_rows: int) -> Edit:
    """Set FileMetaData.num_rows, in its place when the footer has it, else in order of ids."""
    value = thrift.encode_integer(num_rows)
    before = 0
    for span in spans:
        if span.field_id == 3:
            return Edit(span.value, span.end, value)
    for span in spans:
        if span.field_id > 3:
            header = thrift.encode_header(3, I64, after=before)
            moved = thrift.moved_header(data, span, before=before, after=3)
            return Edit(span.start, span.value, header + value + moved)
        before = span.field_id
    return Edit(end - 1, end - 1, thrift.encode_header(3, I64, after=before) + value)


class _Element(NamedTuple):
    """One node of the schema, as stored."""

    physical_type: int | None
    type_length: int
    repetition: int
    children: int


class _Column(NamedTuple):
    """A leaf of the schema, as every row group must repeat it."""

    physical_type: int
    value_bytes: int
    repetition_level: int
    definition_level: int


@dataclass(slots=True)
class _Group:
    """A node of the schema whose children are being read."""

    missing: int
    repetition_level: int
    definition_level: int


@dataclass(slots=True)
class _Survey:
    """The facts collected by one walk over a footer, and the checks that need several structs."""

    data: bytes
    fields: list[Span] = field(default_factory=list)  # of FileMetaData
    num_rows: int | None = None
    group_rows: int = 0
    edits: list[Edit] = field(default_factory=list)  # that cut the index pointers
    _schema: list[_Element] = field(default_factory=list)
    _columns: list[_Column] | None = None  # once the schema is complete
    _chunk: int = 0  # of the row group being walked
    _bounds: list[Span] = field(default_factory=list)  # of the chunk being walked
    _sizes: list[Span] = field(default_factory=list)

    def visit(self, shape: Shape, spans: list[Span]) -> None:
        """Take in a struct; the structs inside it came before, the schema before row groups."""
        if shape is _STATISTICS:
            self._bounds = spans
        elif shape is _SIZES:
            self._sizes = spans
        elif shape is _COLUMN_META:
            self._check_chunk(spans)
        elif shape is _COLUMN_CHUNK:
            self._refuse_encryption(spans)
            if edit := _cut_pointers(self.data, spans):
                self.edits.append(edit)
        elif shape is _ROW_GROUP:
            self._end_row_group(spans)
        elif shape is _SCHEMA_ELEMENT:
            physical_type = self._integer(spans, 1, None)
            length, repetition, children = (self._integer(spans, n, 0) for n in (2, 3, 5))
            self._schema.append(_Element(physical_type, length, repetition, children))
        else:
            self._refuse_encryption(spans)
            self.fields = spans
            self.num_rows = self._integer(spans, 3, None)
            self.columns()

    def columns(self) -> list[_Column]:
        if not self._schema:
            raise ThriftError("it has no schema in front of its row groups")
        if self._columns is None:
            self._columns = _leaves(self._schema)
        return self._columns

    def _end_row_group(self, spans: list[Span]) -> None:
        if self._chunk != len(self.columns()):
            raise ThriftError(
                f"a row group has {self._chunk} columns, the schema {len(self.columns())}"
            )
        self._chunk = 0
        self.group_rows += self._integer(spans, 3, 0)

    def _check_chunk(self, spans: list[Span]) -> None:
        """Refuse column chunks whose reading would make pyarrow abort the process."""
        if self._chunk >= len(self.columns()):
            raise ThriftError("a row group has more columns than the schema")
        column = self.columns()[self._chunk]
        sizes = {
            span.field_id: thrift.read_length(self.data, span)
            for span in self._sizes
            if span.wire == LIST
        }
        lengths = (thrift.read_length(self.data, span) for span in self._bounds)
        if self._integer(spans, 1, None) != column.physical_type:
            cause = "another type than in the schema"
        elif self._integer(spans, 4, -1) not in _CODECS:
            cause = "an unknown codec"
        elif min(lengths, default=column.value_bytes) < column.value_bytes:
            cause = "statistics shorter than a value"
        elif (
            sizes.get(2, 0) not in (0, column.repetition_level + 1)
            or sizes.get(3, 0) not in (0, column.definition_level + 1)
            or (len(sizes) < len(self._sizes) and column.physical_type != _BYTE_ARRAY)
        ):
            cause = "size statistics that do not fit the schema"
        else:
            self._chunk += 1
            self._bounds = self._sizes = []
            return
        raise ThriftError(f"column {self._chunk} of a row group has {cause}")

    def _refuse_encryption(self, spans: list[Span]) -> None:
        """Refuse field 8, which means encryption in both ColumnChunk and FileMetaData."""
        if any(span.field_id == 8 for span in spans):
            raise ThriftError("it belongs to an encrypted file")

    def _integer(self, spans: list[Span], field_id: int, default: _Default) -> int | _Default:
        for span in spans:
            if span.field_id == field_id:
                return thrift.read_integer(self.data, span)
        return default


def _survey(data: bytes, *, path: str) -> tuple[_Survey, int]:
    """Walk a footer once; return what it holds and the offset behind it."""
    survey = _Survey(data)
    try:
        end = thrift.walk(data, _FILE, survey.visit)
    except ThriftError as error:
        raise _damaged(path, len(data), str(error)) from error
    return survey, end


def _leaves(schema: list[_Element]) -> list[_Column]:
    """Return the columns of a schema stored in preorder, once it is known to be one tree."""
    columns: list[_Column] = []
    open_groups = [_Group(1, 0, 0)]
    for index, element in enumerate(schema):
        while open_groups and not open_groups[-1].missing:
            open_groups.pop()
        if not open_groups:
            raise ThriftError(f"the schema's tree ends before element {index}")
        group = open_groups[-1]
        group.missing -= 1
        physical_type, type_length, repetition, children = element
        if physical_type not in _TYPE_BYTES or repetition not in _REPETITIONS or children < 0:
            raise ThriftError(f"schema element {index} is malformed: {tuple(element)}")
        repetition_level = group.repetition_level + (index > 0 and repetition == _REPEATED)
        definition_level = group.definition_level + (index > 0 and repetition != _REQUIRED)
        if children:
            open_groups.append(_Group(children, repetition_level, definition_level))
            if len(open_groups) > MAX_SCHEMA_DEPTH:
                raise ThriftError(f"the schema nests deeper than {MAX_SCHEMA_DEPTH}")
        elif physical_type is not None and index:  # the root is a group, whatever it says
            fixed = physical_type == _FIXED_LEN_BYTE_ARRAY
            value_bytes = type_length if fixed else _TYPE_BYTES[physical_type]
            columns.append(_Column(physical_type, value_bytes, repetition_level, definition_level))
    if any(group.missing for group in open_groups):
        raise ThriftError(f"the schema's tree needs more than {len(schema)} elements")
    return columns


def _trailing(data: bytes, end: int, *, path: str) -> DamagedFooter:
    return _damaged(path, len(data), f"{len(data) - end} bytes follow its end at offset {end}")


def _damaged(path: str, size: int, cause: str, *, what: str = "footer of") -> DamagedFooter:
    return DamagedFooter(f"damaged {what} {path} ({size} bytes): {cause}")
