"""Pages are verified without decoding them: every bit of a body, and every field of a header."""

from __future__ import annotations

import contextlib
import io
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import Damage, DamagedFile, DamagedFooter
from lakebed.storage import checksums, footer
from lakebed.storage.checksums import Chunk

PATH = "partitions/readings/global/2026-01/file.parquet"
_ROWS = 3_000


def _table() -> pa.Table:
    rng = random.Random(5)
    numbers = range(_ROWS)
    return pa.table(
        {
            "number": pa.array(numbers, pa.int64()),
            "level": [rng.choice(["info", "warn"]) for _ in numbers],
            "text": [rng.randbytes(8).hex() if rng.random() > 0.1 else None for _ in numbers],
            "lists": [[{"key": str(number % 7)}] * (number % 3) for number in numbers],
        }
    )


def _file(**options: Any) -> bytes:
    """A file with several row groups, and several pages for most columns, some of them in two
    encodings, as the dictionary of ``text`` becomes too large."""
    sink = io.BytesIO()
    settings: dict[str, Any] = {
        "compression": "zstd",
        "row_group_size": 2_000,
        "data_page_size": 4_096,
        "write_batch_size": 64,
        "dictionary_pagesize_limit": 8_192,
        "write_page_index": True,
        "write_page_checksum": True,
    }
    pq.write_table(_table(), sink, **(settings | options))
    return sink.getvalue()


def _chunks(data: bytes) -> list[Chunk]:
    return checksums.list_chunks(
        footer.split_footer(data, path=PATH, file_size=len(data)), path=PATH
    )


def _verify(data: bytes, chunks: list[Chunk]) -> None:
    checksums.verify_chunks(
        lambda offset, length: data[offset : offset + length], chunks, path=PATH
    )


def _header_bytes(data: bytes) -> list[int]:
    """The offsets of all bytes of all page headers."""
    offsets: list[int] = []
    for chunk in _chunks(data):
        offset = chunk.begin
        while offset < chunk.end:
            window = checksums._Window(lambda at, count: data[at : at + count], offset, chunk.end)
            header, size = checksums._read_header(window, offset)
            offsets += range(offset, offset + size)
            offset += size + header.body_bytes
    return offsets


@pytest.mark.parametrize(
    "options",
    [{}, {"compression": "none"}, {"use_dictionary": False}],
    ids=["zstd", "uncompressed", "no dictionary"],
)
def test_chunks_of_sound_files_are_verified(options: dict[str, Any]) -> None:
    data = _file(**options)
    chunks = _chunks(data)
    assert {chunk.column for chunk in chunks} == set(_table().column_names)
    assert max(sum(chunk.pages.values()) for chunk in chunks) > 2
    _verify(data, chunks)


def test_a_flipped_bit_of_a_page_header_is_damage_or_harmless() -> None:
    data = _file()
    chunks, rows = _chunks(data), _table()
    metadata = pq.read_metadata(io.BytesIO(data))
    harmless = 0
    for offset in _header_bytes(data):
        for bit in range(8):
            changed = bytearray(data)
            changed[offset] ^= 1 << bit
            try:
                _verify(bytes(changed), chunks)
            except DamagedFile as error:
                assert PATH in str(error)
                continue
            harmless += 1
            file = pq.ParquetFile(io.BytesIO(bytes(changed)), metadata=metadata)
            with contextlib.suppress(OSError, pa.ArrowException):  # the reader notices it
                assert file.read().equals(rows)
    assert harmless < len(_header_bytes(data))


def test_a_flipped_bit_of_a_page_body_is_damage() -> None:
    data = _file()
    chunks = _chunks(data)
    bodies = sorted(set(range(chunks[0].begin, chunks[-1].end)) - set(_header_bytes(data)))
    for offset in random.Random(3).sample(bodies, 300):
        changed = bytearray(data)
        changed[offset] ^= 16
        with pytest.raises(DamagedFile, match="does not match its checksum"):
            _verify(bytes(changed), chunks)


def test_only_the_columns_that_are_named_are_read() -> None:
    data = _file()
    chunks = _chunks(data)
    (first, *_) = [chunk for chunk in chunks if chunk.column == "level"]
    changed = bytearray(data)
    changed[first.end - 1] ^= 1
    _verify(bytes(changed), [chunk for chunk in chunks if chunk.column != "level"])
    with pytest.raises(DamagedFile, match="column level"):
        _verify(bytes(changed), [chunk for chunk in chunks if chunk.column == "level"])


def test_pages_larger_than_a_window_and_a_file_that_ends_early() -> None:
    table = pa.table({"text": [random.Random(1).randbytes(6 << 20).hex()]})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="none", write_page_checksum=True, use_dictionary=False)
    data = sink.getvalue()
    chunks = _chunks(data)
    _verify(data, chunks)
    with pytest.raises(DamagedFile, match="ends inside a page"):
        _verify(data[: 10 << 20], chunks)


def test_pages_without_checksums_are_damage() -> None:
    data = _file(write_page_checksum=False)
    with pytest.raises(DamagedFile, match="has no checksum"):
        _verify(data, _chunks(data))


def test_a_footer_that_is_none_is_damage() -> None:
    for data in (b"", b"\x00", b"\xff" * 40):
        with pytest.raises(DamagedFooter, match="readings"):
            checksums.list_chunks(data, path=PATH)


def test_a_whole_file_is_verified_with_what_is_between_and_behind_its_pages() -> None:
    data = _file()
    summed = checksums.SummedSink(io.BytesIO())
    summed.write(data[:100])
    summed.write(data[100:])
    assert summed.tell() == summed.size == len(data)
    own = footer.split_footer(data, path=PATH, file_size=len(data))

    def verify(changed: bytes) -> None:
        checksums.verify_file(
            lambda offset, length: changed[offset : offset + length],
            own,
            path=PATH,
            size=len(data),
            checksum=summed.checksum,
        )

    verify(data)
    behind = max(chunk.end for chunk in _chunks(data))
    for offset in (0, 5, behind, behind + 9, len(data) - 1):
        changed = bytearray(data)
        changed[offset] ^= 2
        with pytest.raises(Damage, match=PATH):
            verify(bytes(changed))
