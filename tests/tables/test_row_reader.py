"""The cache of table rows is bounded, also for many small tables."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from lakebed.tables.rows.row_reader import RowReader


def test_many_small_tables_take_no_more_memory_than_they_may() -> None:
    """Of a few rows, most of the memory is what stands around the values."""
    nowhere: Any = None
    reader = RowReader(nowhere, cache_bytes=1 << 20)
    for number in range(5000):
        rows = pa.table({"time": [number], "ring": ["left"], "bpm": [61]})
        reader.keep(f"file {number}", rows, file_size=1000)
    assert 100 < len(reader._cached) < 300
    assert "file 4999" in reader._cached
    assert 0 < reader._size <= 1 << 20


def test_what_is_large_is_not_kept() -> None:
    """Neither by its file, nor if it would leave little room for others."""
    nowhere: Any = None
    reader = RowReader(nowhere, cache_bytes=8 << 20)
    rows = pa.table({"time": range(100_000)})
    reader.keep("small", rows, file_size=4 << 20)
    reader.keep("large file", rows, file_size=(4 << 20) + 1)
    reader.keep("large rows", pa.concat_tables([rows, rows]), file_size=1000)
    assert list(reader._cached) == ["small"]
