"""The rows of the newest buckets, where some buckets have nothing to show."""

from __future__ import annotations

from typing import Any

import pytest

from lakebed.errors import BadInput
from lakebed.lake import Lake
from lakebed.tables.table import Table
from tests.conftest import SQLITE_FIRST


@pytest.fixture(params=[True, False], ids=["key", "no key"])
def pulse(lake: Lake, request: pytest.FixtureRequest) -> Table:
    lake.tables.create_database("home")
    device = {"type": "string", "unique": request.param}
    table = lake.tables.create_table("home", "pulse", {"time": "datetime", "device": device})
    table.insert([_row(day, f"d{day}") for day in (1, 2, 3, 4, 5)])
    return table


def _row(day: int, device: str) -> dict[str, Any]:
    return {"time": f"2026-11-{day:02}T00:00:00Z", "device": device}


def _days(table: Table, buckets: int) -> list[str]:
    return sorted(table.latest(buckets).to_arrow()["partition_date"].to_pylist())


def test_the_newest_buckets_are_given(pulse: Table) -> None:
    assert _days(pulse, 1) == ["2026-11-05"]
    assert _days(pulse, 2) == ["2026-11-04", "2026-11-05"]
    assert len(_days(pulse, 99)) == 5
    assert _days(pulse, 0) == _days(pulse, -1) == []


def test_buckets_whose_rows_were_deleted_do_not_count(pulse: Table) -> None:
    pulse.delete_rows("device IN ('d5', 'd4', 'd2')")
    assert _days(pulse, 1) == ["2026-11-03"]
    assert _days(pulse, 2) == ["2026-11-01", "2026-11-03"]
    assert _days(pulse, 3) == ["2026-11-01", "2026-11-03"]
    pulse.delete_rows("true")
    assert _days(pulse, 1) == []


def test_buckets_whose_rows_moved_elsewhere_do_not_count(pulse: Table) -> None:
    if not pulse.definition.key:
        pytest.skip("rows are never replaced")
    pulse.insert([_row(1, "d5"), _row(1, "d4")])
    assert _days(pulse, 1) == ["2026-11-03"]
    assert _days(pulse, 2) == ["2026-11-02", "2026-11-03"]


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
@pytest.mark.parametrize("buckets", ["1", None, 2.5])
def test_buckets_are_counted_in_whole_numbers(pulse: Table, buckets: Any) -> None:
    with pytest.raises(BadInput, match="must be int, not"):
        pulse.latest(buckets)


def test_an_empty_table_has_no_latest_rows(pulse: Table, lake: Lake) -> None:
    empty = lake.tables.create_table("home", "empty", {"time": "datetime"})
    assert _days(empty, 1) == []
