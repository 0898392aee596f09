"""Frames of pandas that were filtered, sorted or put together have row numbers: no data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from lakebed.errors import BadRecords
from lakebed.lake import Lake
from lakebed.tables.insert.pandas_index import list_row_numbers
from tests.conftest import SQLITE_FIRST

SCHEMA = {"time": "datetime", "id": "int"}
WHOLE = pd.DataFrame({"time": pd.to_datetime(["2026-01-01", "2026-01-02"], utc=True), "id": [1, 2]})
FRAMES = {
    "whole": WHOLE,
    "filtered": WHOLE[WHOLE.id > 1],
    "sorted": WHOLE.sort_values("id", ascending=False),
    "put together": pd.concat([WHOLE, WHOLE]),
}


@pytest.fixture
def table(lake: Lake) -> Any:
    lake.tables.create_database("d")
    return lake.tables.create_table("d", "t", SCHEMA)


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
@pytest.mark.parametrize("kind", FRAMES)
def test_frames_are_inserted_without_them(table: Any, kind: str) -> None:
    frame = FRAMES[kind]
    table.insert(frame)
    result = table.query("SELECT id FROM t ORDER BY id").to_arrow()["id"].to_pylist()
    assert result == sorted(frame["id"])


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_files_of_such_frames_are_imported(lake: Lake, table: Any, tmp_path: Path) -> None:
    file = tmp_path / "sorted.parquet"
    FRAMES["sorted"].to_parquet(file)
    plan = lake.tables.plan_import(file, "d", "t")
    assert lake.tables.carry_out_import(plan).rows_inserted == 2


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_an_index_with_a_name_is_a_column(table: Any) -> None:
    table.insert(WHOLE.set_index("time"))
    assert table.count() == 2
    with pytest.raises(BadRecords, match="row"):
        table.insert(FRAMES["filtered"].rename_axis("row"))


def test_only_what_pandas_notes_is_one() -> None:
    field = pa.field("__index_level_0__", pa.int64())
    assert list_row_numbers(pa.schema([field])) == []
    for noted in (b"{", b"[]", b"\xff", b'{"index_columns": ["id"]}'):
        assert list_row_numbers(pa.schema([field], metadata={b"pandas": noted})) == []
    noted = b'{"index_columns": ["__index_level_0__"]}'
    assert list_row_numbers(pa.schema([field], metadata={b"pandas": noted})) == [field.name]
