"""Footers survive the way from a file, or from an adopted catalog, to pyarrow byte for byte."""

from __future__ import annotations

import io
import struct
from collections.abc import Container
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import BadInput, DamagedFooter
from lakebed.storage import footer

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)
INDEX_POINTERS = (4, 5, 6, 7)
PATH = "views/log_entries/part.parquet"

# ---- an independent decoder and encoder: {id: (type, value)}, (type, [values]), (types, pairs)


def decode(data: bytes) -> tuple[dict[int, Any], int]:
    return _decode_struct(data, 0)


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[pos] & 0x7F) << shift
        shift += 7
        pos += 1
        if data[pos - 1] < 0x80:
            return value, pos


def _zigzag(data: bytes, pos: int) -> tuple[int, int]:
    value, pos = _varint(data, pos)
    return (value >> 1) ^ -(value & 1), pos


def _decode_struct(data: bytes, pos: int) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    number = 0
    while data[pos]:
        delta, wire = data[pos] >> 4, data[pos] & 15
        number, pos = (number + delta, pos + 1) if delta else _zigzag(data, pos + 1)
        assert number not in fields
        if wire in (TRUE, FALSE):
            fields[number] = (TRUE, wire == TRUE)
        else:
            value, pos = _decode_value(data, pos, wire)
            fields[number] = (wire, value)
    return fields, pos + 1


def _decode_value(data: bytes, pos: int, wire: int) -> tuple[Any, int]:
    if wire in (TRUE, FALSE, BYTE):
        return data[pos], pos + 1
    if wire in (I16, I32, I64):
        return _zigzag(data, pos)
    if wire in (DOUBLE, UUID):
        size = 8 if wire == DOUBLE else 16
        return data[pos : pos + size], pos + size
    if wire == BINARY:
        length, pos = _varint(data, pos)
        return data[pos : pos + length], pos + length
    if wire == STRUCT:
        return _decode_struct(data, pos)
    if wire == MAP:
        count, pos = _varint(data, pos)
        if not count:
            return ((), []), pos
        types, pos = (data[pos] >> 4, data[pos] & 15), pos + 1
        pairs = []
        for _ in range(count):
            key, pos = _decode_value(data, pos, types[0])
            value, pos = _decode_value(data, pos, types[1])
            pairs.append((key, value))
        return (types, pairs), pos
    assert wire in (LIST, SET)
    count, element, pos = data[pos] >> 4, data[pos] & 15, pos + 1
    if count == 15:
        count, pos = _varint(data, pos)
    values = []
    for _ in range(count):
        value, pos = _decode_value(data, pos, element)
        values.append(value)
    return (element, values), pos


def varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def zigzag(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def encode(fields: dict[int, Any], *, long_ids: Container[int] = ()) -> bytes:
    """Fields in ``long_ids`` get the header form that spells the id out."""
    out = bytearray()
    last = 0
    for number, (wire, value) in fields.items():
        kind = wire if wire not in (TRUE, FALSE) else (TRUE if value else FALSE)
        if 0 < number - last <= 15 and number not in long_ids:
            out.append((number - last) << 4 | kind)
        else:
            out += bytes((kind,)) + zigzag(number)
        if wire not in (TRUE, FALSE):
            out += encode_value(wire, value, long_ids)
        last = number
    out.append(0)
    return bytes(out)


def encode_value(wire: int, value: Any, long_ids: Container[int] = ()) -> bytes:
    if wire in (TRUE, FALSE, BYTE):
        return bytes((value,))
    if wire in (I16, I32, I64):
        return zigzag(value)
    if wire in (DOUBLE, UUID):
        return bytes(value)
    if wire == BINARY:
        return varint(len(value)) + value
    if wire == STRUCT:
        return encode(value, long_ids=long_ids)
    if wire == MAP:
        types, pairs = value
        body = [
            encode_value(types[0], key, long_ids) + encode_value(types[1], each, long_ids)
            for key, each in pairs
        ]
        return (
            varint(len(body)) + bytes([types[0] << 4 | types[1]] if body else []) + b"".join(body)
        )
    element, values = value
    if len(values) < 15:
        head = bytes((len(values) << 4 | element,))
    else:
        head = bytes((0xF0 | element,)) + varint(len(values))
    return head + b"".join([encode_value(element, each, long_ids) for each in values])


# ---- real files, and the footers an adopted catalog may hold for them


@dataclass(frozen=True)
class Written:
    """A Parquet file with page indexes, in memory."""

    table: pa.Table
    data: bytes
    footer: bytes
    metadata: pq.FileMetaData


def write(table: pa.Table, *, padding: int = 0, **options: Any) -> Written:
    sink = io.BytesIO()
    rows = options.pop("row_group_size", None)
    with pq.ParquetWriter(sink, table.schema, write_page_index=True, **options) as writer:
        writer.write_table(table, row_group_size=rows)
        if padding:
            writer.add_key_value_metadata({"padding": "x" * padding})
    data = sink.getvalue()
    return Written(
        table,
        data,
        footer.split_footer(data, path=PATH, file_size=len(data)),
        pq.read_metadata(io.BytesIO(data)),
    )


@cache
def sample() -> Written:
    """Every kind of column a view has, in two row groups."""
    table = pa.table(
        {
            "time": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
            "level": pa.array([4, None, 6], pa.int32()),
            "target": pa.array(["a", "b", None]),
            "properties": pa.array([[("k", "v")], [], None], pa.map_(pa.string(), pa.string())),
            "id": pa.array([bytes(16)] * 3, pa.binary(16)),
            "value": [1.5, 2.5, None],
            "ok": [True, None, False],
        }
    )
    return write(table, row_group_size=2, sorting_columns=[pq.SortingColumn(0)])


def of_size(size: int) -> Written:
    """A file whose footer is exactly this long."""
    table = pa.table({"n": list(range(10)), "s": list("abcdefghij")})
    padding = size - len(write(table, row_group_size=2).footer)
    while True:
        written = write(table, row_group_size=2, padding=padding)
        if len(written.footer) == size:
            return written
        padding -= len(written.footer) - size


def many_columns() -> Written:
    return write(pa.table({f"column_{n}": [n, n + 1] for n in range(10_000)}))


def many_row_groups() -> Written:
    return write(pa.table({"n": list(range(10_000))}), row_group_size=1)


def trailer(body: bytes) -> bytes:
    return struct.pack("<I", len(body)) + b"PAR1"


def tree(written: Written) -> dict[int, Any]:
    fields, end = decode(written.footer)
    assert end == len(written.footer)
    return fields


def with_rows(fields: dict[int, Any], rows: int | None) -> dict[int, Any]:
    """FileMetaData as a legacy catalog may hold it: the count of rows zero, or not there."""
    if rows is None:
        return {number: each for number, each in fields.items() if number != 3}
    return fields | {3: (I64, rows)}


def chunks(fields: dict[int, Any]) -> list[dict[int, Any]]:
    return [chunk for group in fields[4][1][1] for chunk in group[1][1][1]]


def stripped(fields: dict[int, Any]) -> dict[int, Any]:
    """What an upgrade must leave of FileMetaData, in order."""

    def strip(chunk: dict[int, Any]) -> dict[int, Any]:
        return {number: each for number, each in chunk.items() if number not in INDEX_POINTERS}

    groups = [
        {
            number: (LIST, (STRUCT, [strip(each) for each in value[1]]))
            if number == 1
            else (wire, value)
            for number, (wire, value) in group.items()
        }
        for group in fields[4][1][1]
    ]
    return {n: (LIST, (STRUCT, groups)) if n == 4 else each for n, each in fields.items()}


def facts(metadata: pq.FileMetaData) -> dict[str, Any]:
    """All that pyarrow tells of a file, but for the footer's own size."""
    told = metadata.to_dict()
    del told["serialized_size"]
    return told | {"key values": metadata.metadata, "schema": metadata.schema.to_arrow_schema()}


def has_index(metadata: pq.FileMetaData) -> set[bool]:
    columns = [
        metadata.row_group(group).column(column)
        for group in range(metadata.num_row_groups)
        for column in range(metadata.num_columns)
    ]
    return {each.has_offset_index or each.has_column_index for each in columns}


# ---- upgrade and parse


def check_upgrade(written: Written, stored: bytes, expected: bytes, *, trusted: bool) -> None:
    rows = written.table.num_rows
    upgraded = footer.upgrade(stored, num_rows=rows, path=PATH)
    assert upgraded == expected
    assert footer.upgrade(upgraded, num_rows=rows, path=PATH) == upgraded
    parsed = footer.parse(upgraded, path=PATH, trusted=trusted)
    assert has_index(written.metadata) == {True}
    assert has_index(parsed) == {False}
    assert facts(parsed) == facts(written.metadata)
    assert parsed.schema.equals(written.metadata.schema)


@pytest.mark.parametrize("size", [8_191, 8_192, 8_193, 64 << 10, 1 << 20, 16 << 20])
def test_footers_of_every_size_upgrade_and_parse_like_the_file(size: int) -> None:
    written = of_size(size)
    assert len(written.footer) == size
    fields = tree(written)
    for rows in (None, 0, written.table.num_rows):
        legacy = encode(with_rows(fields, rows))
        for stored in (legacy, legacy + trailer(legacy)):
            check_upgrade(written, stored, encode(stripped(fields)), trusted=False)


@pytest.mark.parametrize("build", [many_columns, many_row_groups])
def test_wide_and_long_files_upgrade_and_parse_like_the_file(build: Any) -> None:
    written = build()
    fields = tree(written)
    legacy = encode(with_rows(fields, None))
    check_upgrade(written, legacy + trailer(legacy), encode(stripped(fields)), trusted=True)


def test_a_footer_as_in_the_file_parses_like_the_file_with_its_page_index() -> None:
    parsed = footer.parse(sample().footer, path="no/such/file.parquet")
    assert facts(parsed) == facts(sample().metadata)
    assert has_index(parsed) == {True}
    trusted = footer.parse(sample().footer, path="no/such/file.parquet", trusted=True)
    assert facts(trusted) == facts(parsed)


def test_the_oracle_reads_and_writes_what_pyarrow_wrote() -> None:
    assert encode(tree(sample())) == sample().footer


def test_a_file_is_read_through_its_upgraded_footer(tmp_path: Path) -> None:
    written = sample()
    file = tmp_path / "part.parquet"
    file.write_bytes(written.data)
    legacy = encode(with_rows(tree(written), 0))
    upgraded = footer.upgrade(legacy, num_rows=3, path=str(file))
    with pq.ParquetFile(file, metadata=footer.parse(upgraded, path=str(file))) as opened:
        assert opened.read().equals(written.table)


def test_a_footer_without_index_pointers_is_left_as_it_is() -> None:
    plain = encode(stripped(tree(sample())))
    assert footer.upgrade(plain, num_rows=3, path=PATH) == plain


def test_an_empty_file_upgrades_with_no_rows() -> None:
    written = write(pa.table({"n": pa.array([], pa.int64())}))
    legacy = encode(with_rows(tree(written), None))
    upgraded = footer.upgrade(legacy, num_rows=0, path=PATH)
    assert facts(footer.parse(upgraded, path=PATH)) == facts(written.metadata)


# ---- unknown fields


UNKNOWN = {
    "file": (
        STRUCT,
        {1: (BINARY, b"new"), 9: (TRUE, False), 700: (MAP, ((BINARY, I64), [(b"k", 1)]))},
    ),
    "group": (LIST, (UUID, [bytes(range(16))] * 20)),
    "chunk": (SET, (STRUCT, [{2: (BYTE, 255), 3: (I16, -7)}] * 3)),
}


def add_unknown(fields: dict[int, Any], number: int, unknown: Any, *, before: int | None) -> None:
    """Put a field in front of ``before``, or last."""
    items = list(fields.items())
    at = [each for each, _ in items].index(before) if before is not None else len(items)
    fields.clear()
    fields.update([*items[:at], (number, unknown), *items[at:]])


@pytest.mark.parametrize("long_ids", [(), range(-(2**15), 2**15)], ids=["short", "long"])
@pytest.mark.parametrize("number", [0, -3, 10, 18, 19, 22, 300, 32_767])
@pytest.mark.parametrize("place", ["first", "amid", "last"])
def test_unknown_fields_survive_at_every_level(
    place: str, number: int, long_ids: Container[int]
) -> None:
    fields = tree(sample())
    for group in fields[4][1][1]:
        for chunk in group[1][1][1]:
            spot = {"first": next(iter(chunk)), "amid": 6, "last": None}[place]
            add_unknown(chunk, number, UNKNOWN["chunk"], before=spot)
        spot = {"first": 1, "amid": 3, "last": None}[place]
        add_unknown(group, number, UNKNOWN["group"], before=spot)
    spot = {"first": 1, "amid": 3, "last": None}[place]
    add_unknown(fields, number, UNKNOWN["file"], before=spot)
    expected = stripped(fields)

    zero = footer.upgrade(encode(with_rows(fields, 0), long_ids=long_ids), num_rows=3, path=PATH)
    assert zero == encode(expected, long_ids=long_ids)
    missing = encode(with_rows(fields, None), long_ids=long_ids)
    injected = footer.upgrade(missing, num_rows=3, path=PATH)
    assert decode(injected) == (expected, len(injected))
    assert list(without_rows(decode(injected)[0])) == list(without_rows(expected))
    assert footer.upgrade(injected, num_rows=3, path=PATH) == injected
    assert facts(footer.parse(injected, path=PATH)) == facts(sample().metadata)


def without_rows(fields: dict[int, Any]) -> dict[int, Any]:
    return with_rows(fields, None)


# ---- refusals


def refusal(stored: bytes, *, num_rows: int = 3) -> str:
    with pytest.raises(DamagedFooter) as caught:
        footer.upgrade(stored, num_rows=num_rows, path=PATH)
    assert f"{PATH} ({len(stored)} bytes): " in str(caught.value)
    return str(caught.value)


def test_rows_that_the_footer_and_the_catalog_count_differently_are_refused() -> None:
    assert "it counts 3 rows where the catalog counts 4" in refusal(sample().footer, num_rows=4)
    none = encode(with_rows(tree(sample()), None))
    assert "row groups hold 3 rows where the catalog counts 4" in refusal(none, num_rows=4)
    assert "the catalog counts -1 rows" in refusal(sample().footer, num_rows=-1)
    assert "the catalog counts" in refusal(sample().footer, num_rows=2**63)


def test_bytes_behind_the_footer_are_refused_unless_they_are_its_trailer() -> None:
    body = sample().footer
    for tail in (b"\0", b"PAR1", trailer(body)[:7], trailer(body + b"\0"), trailer(body) + b"\0"):
        assert f"{len(tail)} bytes follow its end at offset {len(body)}" in refusal(body + tail)
    with pytest.raises(DamagedFooter, match="8 bytes follow its end"):
        footer.parse(body + trailer(body), path=PATH)


def test_a_footer_cut_anywhere_is_refused() -> None:
    for length in range(0, len(sample().footer), 5):
        refusal(sample().footer[:length])
        with pytest.raises(DamagedFooter):
            footer.parse(sample().footer[:length], path=PATH)


def test_a_footer_without_rows_parses_only_once_upgraded() -> None:
    with pytest.raises(DamagedFooter, match="lacks field 3, num_rows"):
        footer.parse(encode(with_rows(tree(sample()), None)), path=PATH)


@pytest.mark.parametrize("garbage", [b"", b"\0", b"garbage", bytes(100), b"\xff" * 100])
def test_what_pyarrow_refuses_is_a_damaged_footer_even_when_trusted(garbage: bytes) -> None:
    with pytest.raises(
        DamagedFooter, match=rf"part.parquet \({len(garbage)} bytes\): pyarrow cannot"
    ):
        footer.parse(garbage, path=PATH, trusted=True)


def test_the_digest_is_the_sha_256_of_the_bytes() -> None:
    assert footer.digest(b"") == bytes.fromhex(
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    )


# ---- a file's end


def test_the_footer_is_found_at_the_end_of_a_file() -> None:
    data, body = sample().data, sample().footer
    assert footer.footer_length(data[-8:], path=PATH, file_size=len(data)) == len(body)
    exact = len(body) + 8
    assert footer.split_footer(data[-exact:], path=PATH, file_size=len(data)) == body
    with pytest.raises(BadInput, match=f"needs the last {exact} bytes, got {exact - 1}"):
        footer.split_footer(data[1 - exact :], path=PATH, file_size=len(data))


@pytest.mark.parametrize(
    ("tail", "file_size", "cause"),
    [
        (struct.pack("<I", 88) + b"PAR1", 99, "a footer of 88 bytes does not fit"),
        (struct.pack("<I", 2**32 - 1) + b"PAR1", 2**31, "a footer of 4294967295 bytes does not"),
        (bytes(4) + b"PAR1", 100, "a footer of 0 bytes does not fit"),
        (struct.pack("<I", 4) + b"PARE", 100, "encrypted"),
        (struct.pack("<I", 4) + b"PAR2", 100, "it ends with b'PAR2' instead of PAR1"),
        (b"PAR1", 4, "too short"),
        (struct.pack("<I", 1) + b"PAR1", 11, "too short"),
    ],
)
def test_a_file_that_does_not_end_in_a_footer_is_damaged(
    tail: bytes, file_size: int, cause: str
) -> None:
    with pytest.raises(DamagedFooter, match=rf"{PATH} \({file_size} bytes\): .*{cause}"):
        footer.footer_length(tail, path=PATH, file_size=file_size)
    assert footer.footer_length(struct.pack("<I", 88) + b"PAR1", path=PATH, file_size=100) == 88
