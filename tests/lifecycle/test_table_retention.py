"""Retention of tables: old buckets go, and nothing that was replaced or deleted returns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lakebed.lake import Lake
from lakebed.lifecycle.planning import RetirementPlan
from lakebed.lifecycle.selection import find_hiding
from lakebed.model.partition import Identity, Partition
from lakebed.model.time import TimeRange
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


def _partition(
    name: str, begin: int, end: int, keys: tuple[str, str] | None = ("m", "m")
) -> Partition:
    """Return a partition; its range of keys is unknown if ``keys`` is None."""
    statistics = {} if keys is None else {"device": keys}
    identity = Identity("table_id", "bucket", TimeRange(begin, end), b"schema")
    return Partition(name, identity, None, name, 1, 1, b"", (), 1, statistics, published_at=end)


def _list_hiding(home: Lake, old: list[Partition], *staying: Partition) -> list[str]:
    table = home.tables.definitions.get("home", "pulse")
    hiding = find_hiding(table, old, [*staying, *old])
    return [partition.partition_id for partition in hiding]


@pytest.mark.parametrize(
    ("begin", "is_hiding"),
    [(9, True), (19, True), (20, False), (21, False)],
    ids=["older", "last tick of the old one", "right after it", "later"],
)
def test_only_partitions_that_begin_before_the_end_of_an_old_one_hold_it_back(
    home: Lake, begin: int, is_hiding: bool
) -> None:
    _make(home, "device")
    staying = _partition("staying", begin, begin + 1)
    old = _partition("old", 10, 20)
    assert _list_hiding(home, [old], staying) == (["old"] if is_hiding else [])


@pytest.mark.parametrize(
    ("keys", "is_hiding"),
    [
        (("a", "b"), False),
        (("a", "c"), True),
        (("d", "e"), True),
        (("f", "g"), True),
        (("g", "h"), False),
        (("a", "z"), True),
        (None, True),
    ],
)
def test_only_partitions_whose_keys_may_be_the_same_hold_an_old_one_back(
    home: Lake, keys: tuple[str, str] | None, is_hiding: bool
) -> None:
    _make(home, "device")
    known, other = _partition("known", 10, 20, ("c", "f")), _partition("other", 10, 20, keys)
    assert _list_hiding(home, [known], other) == (["known"] if is_hiding else [])
    assert _list_hiding(home, [other], known) == (["other"] if is_hiding else [])


def test_empty_partitions_neither_hide_nor_hold_back(home: Lake) -> None:
    _make(home, "device")
    filled = _partition("filled", 10, 20)
    empty = replace(_partition("empty", 10, 20), file_path=None)
    assert _list_hiding(home, [filled], empty) == []
    assert _list_hiding(home, [empty], filled) == []


def test_old_partitions_of_tables_without_a_key_or_with_time_in_it_hide_nothing(
    home: Lake,
) -> None:
    for key in ((), ("device", "time")):
        _make(home, *key)
        pair = [_partition("old", 10, 20), _partition("staying", 10, 20)]
        assert _list_hiding(home, pair[:1], pair[1]) == []
        home.tables.delete_table("home", "pulse")
