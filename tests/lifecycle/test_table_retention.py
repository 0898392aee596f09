"""Retention of tables: old buckets go, and nothing that was replaced or deleted returns."""

from __future__ import annotations

from typing import Any

import pytest

from lakebed.lake import Lake
from lakebed.lifecycle.retire import RetirementPlan
from lakebed.tables.table import Table

OLD, NEW = "2020-01-01T05:00:00Z", "2100-01-01T05:00:00Z"


@pytest.fixture
def home(lake: Lake) -> Lake:
    lake.tables.create_database("home")
    return lake


def _make(lake: Lake, *key: str) -> Table:
    schema: dict[str, Any] = {"time": {"type": "datetime"}, "device": {"type": "string"}}
    schema["bpm"] = {"type": "int"}
    for name in key:
        schema[name]["unique"] = True
    return lake.tables.create_table("home", "pulse", schema, retention="30d")


def _row(time: str, bpm: int, device: str = "a") -> dict[str, Any]:
    return {"time": time, "device": device, "bpm": bpm}


def _beats(table: Table) -> list[int]:
    found = table.query("SELECT bpm FROM pulse ORDER BY bpm").to_arrow()
    return [int(each) for each in found["bpm"].to_pylist()]


def _expire(lake: Lake) -> RetirementPlan:
    plan = lake.retirement.plan_by_table_retention("home", "pulse")
    lake.retirement.carry_out(plan, confirmed=plan.confirm)
    return plan


@pytest.mark.parametrize("key", [(), ("device",), ("device", "time")])
def test_old_buckets_go(home: Lake, key: tuple[str, ...]) -> None:
    table = _make(home, *key)
    table.insert([_row(OLD, 1, "a"), _row(OLD, 2, "b")])
    table.insert([_row(NEW, 3, "c")])
    plan = _expire(home)
    assert (len(plan.partitions), plan.warnings) == (1, ())
    assert _beats(table) == [3]


def test_a_row_that_was_replaced_does_not_return(home: Lake) -> None:
    table = _make(home, "device")
    table.insert([_row(NEW, 1)])
    table.insert([_row(OLD, 2)])
    plan = _expire(home)
    assert plan.partitions == ()
    assert "would be seen again" in plan.warnings[0]
    assert _beats(table) == [2]


def test_a_row_that_was_deleted_does_not_return(home: Lake) -> None:
    table = _make(home, "device")
    table.insert([_row(NEW, 1)])
    table.insert([_row(OLD, 2)])
    table.delete_rows("true")
    _expire(home)
    assert _beats(table) == []


def test_what_stays_keeps_what_it_needs(home: Lake) -> None:
    """A partition that stays, because it hides a row that does, may be hidden in part itself."""
    table = _make(home, "device")
    table.insert([_row(NEW, 1, "a")])
    table.insert([_row(OLD, 2, "a"), _row(OLD, 3, "b")])
    table.insert([_row("2020-02-01T05:00:00Z", 4, "b")])
    assert _beats(table) == [2, 4]
    assert _expire(home).partitions == ()
    assert _beats(table) == [2, 4]


def test_keys_that_others_do_not_have_hold_nothing_back(home: Lake) -> None:
    table = _make(home, "device")
    table.insert([_row(NEW, 1, "z")])
    table.insert([_row(OLD, 2, "a")])
    assert len(_expire(home).partitions) == 1
    assert _beats(table) == [1]


def test_what_moved_on_to_a_new_bucket_holds_nothing_back(home: Lake) -> None:
    table = _make(home, "device")
    table.insert([_row(OLD, 1)])
    table.insert([_row(NEW, 2)])
    assert len(_expire(home).partitions) == 1
    assert _beats(table) == [2]
