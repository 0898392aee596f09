"""An insert is all or nothing: over any number of buckets, with its rejects, once for its key, and
with any failure on the way.
"""

from __future__ import annotations

import errno
import json
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from itertools import product
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from lakebed.errors import (
    BadInput,
    BadRecords,
    Conflict,
    LakebedError,
    Refused,
    Unavailable,
    UnknownTable,
)
from lakebed.lake import Lake
from lakebed.model.tables.schema import FIRST_INSTANT, LAST_INSTANT
from lakebed.model.time import format_instant
from lakebed.opening import open_lake
from lakebed.storage.local import LocalStore
from lakebed.tables.table import Table
from tests.conftest import SQLITE_FIRST
from tests.parts.faults import FailingDisk, break_commit
from tests.tables.parts import (
    BY_ID,
    BY_TIME,
    LOOSE,
    NOON,
    damage,
    jump,
    make,
    meanwhile,
    partitions_of,
    rows_of,
    sweep,
    sweep_all,
    values_of,
)

FAILURES = [
    ("create", errno.ENOSPC),
    ("write", errno.ENOSPC),
    ("sync", errno.EIO),
    ("write", errno.EDQUOT),
]
FOUR = [
    "2026-02-28T23:10:00Z",
    "2026-03-01T00:10:00Z",
    "2026-03-02T09:00:00Z",
    "2026-03-02T09:30:00Z",
]


def row(value: Any, time: str = NOON, **more: Any) -> dict[str, Any]:
    return {"time": time, "value": value, **more}


def rejects_of(lake: Lake, table: Table) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = (
        lake.query(f"SELECT * FROM d.{table.name}_rejects ORDER BY time, position")
        .to_arrow()
        .to_pylist()
    )
    return result


# ---- buckets -------------------------------------------------------------------------------------


COUNTS = {
    "hour": {"2026-02-28T23": 1, "2026-03-01T00": 1, "2026-03-02T09": 2},
    "day": {"2026-02-28": 1, "2026-03-01": 1, "2026-03-02": 2},
    "week": {"2026-02-23": 2, "2026-03-02": 2},
    "month": {"2026-02": 1, "2026-03": 3},
}


def test_four_rows_over_three_days_are_in_their_buckets(lake: Lake) -> None:
    for bucket, schema in product(COUNTS, (LOOSE, BY_ID)):
        check_buckets(lake, bucket, COUNTS[bucket], schema)


def check_buckets(lake: Lake, bucket: str, counts: dict[str, int], schema: Any) -> None:
    table = make(lake, schema, bucket)
    numbered = [
        row(1, time) | ({"id": index} if "id" in schema else {}) for index, time in enumerate(FOUR)
    ]
    done = table.insert(numbered)
    assert Counter(row["partition_date"] for row in rows_of(table)) == counts
    assert set(done.buckets) == set(counts)
    for name, count in counts.items():
        assert len(rows_of(table, f"partition_date = '{name}'")) == count
    assert table.count() == 4


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_every_year_of_a_datetime_has_its_bucket(lake: Lake) -> None:
    for bucket in COUNTS:
        check_every_year_of_a_datetime_has_its_bucket(lake, bucket)


def check_every_year_of_a_datetime_has_its_bucket(lake: Lake, bucket: str) -> None:
    table = make(lake, LOOSE, bucket)
    edges = ["1600-02-29T12:00:00Z", "1969-12-31T23:59:59Z", "2262-04-12T00:00:00Z"]
    times = [format_instant(FIRST_INSTANT), *edges, format_instant(LAST_INSTANT)]
    table.insert([row(index, time) for index, time in enumerate(times)])
    table.insert(row(9, times[1]))
    name_of = table.definition.bucket.name_of
    for stored in rows_of(table):
        since = stored["time"] - datetime.fromisoformat("1970-01-01T00:00:00+00:00")
        instant = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        assert stored["partition_date"] == name_of(instant)
        result = values_of(table, f"partition_date = '{stored['partition_date']}'")
        assert stored["value"] in result
    table.fold()
    assert values_of(table) == [0, 1, 2, 3, 4, 9]


def test_samples_of_the_same_second_all_survive(lake: Lake) -> None:
    table = make(lake, LOOSE)
    table.insert([row(1), row(2), row(2), row(None)])
    table.insert([row(2)])
    table.fold()
    assert Counter(row["value"] for row in rows_of(table)) == {1: 1, 2: 3, None: 1}


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_fractions_of_a_second_are_times_of_their_own_in_a_key(lake: Lake) -> None:
    table = make(lake, BY_TIME)
    fractions = ["", ".000001", ".000002", ".1", ".100001", ".999999"]
    times = [NOON.replace("Z", f"{fraction}Z") for fraction in fractions]
    table.insert([row(index, time, device="d") for index, time in enumerate(times)])
    assert values_of(table) == list(range(6))
    table.insert(row(7, times[1], device="d"))
    table.insert(row(8, NOON.replace("Z", ".0000019Z"), device="d"))  # the same microsecond
    for _ in range(2):
        assert values_of(table) == [0, 2, 3, 4, 5, 8]
        assert values_of(table, f"time = '{times[4]}'") == [4]
        table.fold()
    assert len(table.partitions()) == 1
    assert [row["time"].microsecond for row in rows_of(table, "value IN (4, 8) ORDER BY 1")] == [
        1,
        100_001,
    ]


def test_whole_numbers_fractions_and_nothing_share_a_column(lake: Lake) -> None:
    table = make(lake, LOOSE | {"value": "float"})
    for value in (1, 1.5, None):
        table.insert(row(value))
    assert [row["value"] for row in rows_of(table, "value IS NOT NULL ORDER BY value")] == [
        1,
        1.5,
    ]
    widened = make(lake, LOOSE)
    widened.insert(row(1))
    with pytest.raises(BadRecords):
        widened.insert(row(1.5))
    widened.alter(widen=["value"])
    widened.insert(row(1.5))
    widened.insert({"time": NOON})
    for checked_table in (table, widened):
        for _ in range(2):
            assert Counter(str(result["value"]) for result in rows_of(checked_table)) == {
                "1.0": 1,
                "1.5": 1,
                "None": 1,
            }
            assert len(rows_of(checked_table, "value > 1")) == 1
            checked_table.fold()


# ---- refusing ------------------------------------------------------------------------------------


def test_one_bad_record_refuses_all(lake: Lake) -> None:
    table = make(lake, LOOSE)
    with pytest.raises(BadRecords, match="1 of 3 records are bad"):
        table.insert([row(1), row("x"), row(2)])
    assert partitions_of(lake, table) == []
    assert rejects_of(lake, table) == []


def test_rejects_are_kept_in_the_same_transaction(lake: Lake) -> None:
    table = make(lake, LOOSE)
    done = table.insert(
        [row(1), row("x"), row(2, FOUR[0]), {"time": NOON, "other": 3}], on_error="keep"
    )
    assert (done.rows, done.rejected) == (2, 2)
    rejects = rejects_of(lake, table)
    assert [reject["position"] for reject in rejects] == [1, 3]
    assert "value: expected int" in rejects[0]["reasons"]
    ticks = {
        partition.published_at
        for partition in lake.partitions.list_partitions()
        if "table_" in partition.view_set
    }
    assert ticks == {done.tick}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_commit_that_breaks_takes_all_or_nothing(lake: Lake, after: bool) -> None:
    table = make(lake, LOOSE)
    table.insert(row(0))
    batch = [row(1, FOUR[0]), row(2, FOUR[2]), row("x")]
    broken = break_commit(lake, after=after)
    if after:
        assert table.insert(batch, on_error="keep", key="k").rows == 2
    else:
        with pytest.raises(Unavailable):
            table.insert(batch, on_error="keep", key="k")
    assert broken() == 1
    assert values_of(table) == ([0, 1, 2] if after else [0])
    assert len(rejects_of(lake, table)) == int(after)
    again = table.insert(batch, on_error="keep", key="k")
    assert (again.rows, again.rejected, again.repeated) == (2, 1, after)
    assert values_of(table) == [0, 1, 2]
    assert len(rejects_of(lake, table)) == 1


def test_nobody_inserts_into_rejects(lake: Lake) -> None:
    table = make(lake, LOOSE)
    rejects = lake.tables.get(table.database, f"{table.name}_rejects")
    with pytest.raises(Refused, match="and nothing else"):
        rejects.insert([{"time": NOON, "position": 0}])
    assert rejects.count() == 0


def test_rejects_go_to_the_table_that_is_there_now(lake: Lake) -> None:
    """Tables are remembered by name; so are those of their rejects."""
    table = make(lake, LOOSE)
    table.insert([row("x")], on_error="keep")
    lake.tables.delete_table("d", table.name)
    lake.tables.create_table("d", table.name, LOOSE)
    assert table.insert([row("y")], on_error="keep").rejected == 1
    assert len(rejects_of(lake, table)) == 1
    lake.tables.alter_table("d", f"{table.name}_rejects", add={"seen": "bool"})
    assert table.insert([row("z")], on_error="keep").rejected == 1


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_what_is_no_json_is_refused_with_a_reason_and_kept_as_text(lake: Lake) -> None:
    table = make(lake, LOOSE)
    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    odd = [row("\ud800"), row(deep), row(loop), row({1}), {None: 1}, {"\ud800": 1}, row(10**5000)]
    for number, record in enumerate([*odd, None, 5, "x"]):
        with pytest.raises(BadRecords):
            table.insert([record], key=str(number))
        assert table.insert([record], on_error="keep", key=str(number)).rejected == 1
        assert table.insert([record], on_error="keep", key=str(number)).repeated
    assert len(rejects_of(lake, table)) == len(odd) + 3
    for key in ("", "x" * 257, "\ud800", "a\x00"):
        with pytest.raises(BadInput, match="1 to 256 characters"):
            table.insert([row(1)], key=key)
    with pytest.raises(BadInput, match="argument 'key' must be str or None, not int"):
        table.insert([row(1)], key=5)  # type: ignore[arg-type]


def test_rejects_lose_nothing_that_came(lake: Lake) -> None:
    table = make(lake, LOOSE)
    long = "a" * 70 + "\ud800" + "the end"
    came = {"time": NOON, "value": long, "note": [float("nan"), float("-inf"), 1 << 70]}
    table.insert([came], on_error="keep")
    (rejects,) = rejects_of(lake, table)
    assert json.loads(rejects["record"]) == {
        "time": NOON,
        "value": "a" * 70 + "\\ud800the end",
        "note": ["nan", "-inf", str(1 << 70)],
    }


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_a_value_that_cannot_be_kept_takes_no_other_with_it(lake: Lake) -> None:
    """Times of pandas are kept as texts that can be sent again."""
    table = make(lake, LOOSE)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    times = pd.to_datetime(["2026-01-01T01:02:03.123456789Z"])
    for came in (
        {"time": NOON, "value": 10**5000, "note": "x"},
        {"time": NOON, "value": deep, "note": "x"},
        pd.DataFrame({"time": times, "value": [0.5], "note": ["x"]}),
    ):
        assert table.insert(came, on_error="keep").rejected == 1
    rejects = [json.loads(row["record"]) for row in rejects_of(lake, table)]
    assert [reject["note"] for reject in rejects] == ["x"] * 3
    assert [reject["time"] for reject in rejects] == [
        NOON,
        NOON,
        "2026-01-01T01:02:03.123456789+00:00",
    ]
    assert [reject["value"] for reject in rejects] == [
        hex(10**5000),
        "a value too deep to show",
        0.5,
    ]


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_json_that_no_column_holds_is_one_bad_record_among_good_ones(lake: Lake) -> None:
    table = make(lake, LOOSE | {"reading": "float"})
    huge = "9" * 5000
    text = f"""[
      {{"time": "{NOON}", "value": 1}},
      {{"time": "{NOON}", "reading": 1e400, "value": {huge}, "note": "\\ud800"}},
      {{"time": "{NOON}", "value": 2}}
    ]"""
    with pytest.raises(BadRecords) as caught:
        table.insert(text)
    (bad,) = caught.value.bad
    assert bad.index == 1
    assert {problem.column for problem in bad.problems} == {"reading", "value", "note"}
    done = table.insert(text, on_error="keep", key="k")
    assert (done.rows, done.rejected) == (2, 1)
    assert table.insert(text, on_error="keep", key="k").repeated
    (rejects,) = rejects_of(lake, table)
    came = {"time": NOON, "reading": "1e400", "value": huge, "note": "\\ud800"}
    assert json.loads(rejects["record"]) == came


# ---- once ----------------------------------------------------------------------------------------


def test_a_repeated_insert_counts_once(lake: Lake) -> None:
    table = make(lake, LOOSE)
    batch = [row(1), row(2, FOUR[0]), row("x")]
    first = table.insert(batch, key="k", on_error="keep")
    table.insert(row(3))
    table.alter(add={"more": "int"})
    table.fold()
    with open_lake(lake.catalog.url) as other:
        for target in (table, other.tables.get("d", table.name)):
            again = target.insert(batch, key="k", on_error="keep")
            assert again.repeated
            assert (again.tick, again.rows, again.rejected) == (first.tick, 2, 1)
    assert values_of(table) == [1, 2, 3]
    assert len(rejects_of(lake, table)) == 1
    other_table = make(lake, LOOSE)
    assert not other_table.insert([row(1)], key="k").repeated


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
@pytest.mark.parametrize(
    ("first", "other"),
    [
        ({"reading": float("nan")}, {"reading": float("inf")}),
        ({"reading": float("nan")}, {"reading": None}),
        ({"note": "x" * 100 + "a", 1: 2}, {"note": "x" * 100 + "b", 1: 2}),
        ({"note": "x" * 100 + "a\ud800"}, {"note": "x" * 100 + "b\ud800"}),
    ],
)
def test_records_that_only_look_alike_are_others(
    lake: Lake, first: dict[Any, Any], other: dict[Any, Any]
) -> None:
    table = make(lake, LOOSE | {"reading": "float"})
    table.insert([{"time": NOON, **first}], key="k", on_error="keep")
    assert table.insert([{"time": NOON, **first}], key="k", on_error="keep").repeated
    with pytest.raises(Conflict, match="other records"):
        table.insert([{"time": NOON, **other}], key="k", on_error="keep")


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_rows_in_other_pieces_are_the_same(lake: Lake) -> None:
    table = make(lake, LOOSE)
    texts = pa.array(["x", None, "y"]).dictionary_encode()
    rows = pa.table({"time": [NOON] * 3, "value": [1, None, 3], "note": texts})
    table.insert(rows, key="k")
    pieces = pa.concat_tables([rows.slice(0, 1), rows.slice(1)])
    for equal_rows in (pieces, pa.concat_tables([rows, rows]).slice(3), rows.slice(0)):
        assert table.insert(equal_rows, key="k").repeated
    assert table.count() == 3


def test_a_key_is_for_one_content(lake: Lake) -> None:
    table = make(lake, LOOSE)
    table.insert([row(1)], key="k")
    with pytest.raises(Conflict, match="an insert of other records"):
        table.insert([row(2)], key="k")
    assert values_of(table) == [1]


def test_a_key_is_for_one_content_also_if_both_come_at_once(lake: Lake) -> None:
    """The other insert commits when this one has looked and found nothing."""
    table = make(lake, LOOSE)
    with open_lake(lake.catalog.url) as other:
        twin = other.tables.get("d", table.name)
        inserter = lake.tables.inserter
        meanwhile(inserter, "_find_repeated", lambda: twin.insert([row(2)], key="k"))
        with pytest.raises(Conflict, match="an insert of other records"):
            table.insert([row(1)], key="k")
        meanwhile(inserter, "_find_repeated", lambda: twin.insert([row(3)], key="l"))
        assert table.insert([row(3)], key="l").repeated
    assert values_of(table) == [2, 3]


def test_of_many_who_repeat_an_insert_one_inserts(lake: Lake) -> None:
    table = make(lake, LOOSE)
    start = threading.Barrier(8)

    def repeat(_number: int) -> bool:
        start.wait()
        return table.insert([row(1), row(2, FOUR[0])], key="k").repeated

    with ThreadPoolExecutor(8) as threads:
        repeated = list(threads.map(repeat, range(8)))
    assert sorted(repeated) == [False] + 7 * [True]
    assert values_of(table) == [1, 2]


def test_an_insert_of_nothing_is_remembered_too(lake: Lake) -> None:
    table = make(lake)
    table.insert([row(1, id=1)])
    done = table.insert([row(2, id=1)], if_exists="ignore", key="k")
    assert (done.rows, done.repeated) == (0, False)
    table.delete_rows("true")
    assert table.insert([row(2, id=1)], if_exists="ignore", key="k").repeated
    assert values_of(table) == []
    broken = break_commit(lake, after=False)
    with pytest.raises(Unavailable):
        table.insert([], key="empty")
    assert broken() == 1
    assert not table.insert([], key="empty").repeated


def test_nothing_is_repeated_into_a_table_that_was_deleted(lake: Lake) -> None:
    table = make(lake, LOOSE)
    with open_lake(lake.catalog.url) as other:
        twin = other.tables.get("d", table.name)
        table.insert([row(1)], key="k")
        assert twin.insert([row(1)], key="k").repeated
        lake.tables.delete_table("d", table.name)
        for target in (table, twin):
            with pytest.raises(UnknownTable):
                target.insert([row(1)], key="k")


def test_an_insert_of_nothing_needs_a_table_too(lake: Lake) -> None:
    table = make(lake, LOOSE)
    table.insert([row(1)])
    lake.tables.delete_table("d", table.name)
    with pytest.raises(UnknownTable):
        table.insert([])


def test_a_key_of_a_deleted_table_is_new_to_the_next_of_its_name(lake: Lake) -> None:
    """A process that has cached the old table must not take its inserts for those of the new one:
    acknowledged rows would be lost."""
    table = make(lake, LOOSE)
    with open_lake(lake.catalog.url) as other:
        twin = other.tables.get("d", table.name)
        for key in ("same", "other"):
            table.insert([row(1)], key=key)
            assert twin.insert([row(1)], key=key).repeated
        for target, key, value in ((table, "same", 1), (twin, "same", 1), (table, "other", 2)):
            lake.tables.delete_table("d", table.name)
            lake.tables.create_table("d", table.name, LOOSE)
            done = target.insert([row(value)], key=key)
            assert (done.rows, done.repeated) == (1, False)
            assert values_of(target) == [value]


def test_a_key_comes_back_with_its_table(lake: Lake) -> None:
    table = make(lake, LOOSE)
    table.insert([row(1)], key="k")
    lake.tables.delete_table("d", table.name)
    lake.tables.restore_table("d", table.name)
    assert table.insert([row(1)], key="k").repeated
    assert values_of(table) == [1]


# ---- starving ------------------------------------------------------------------------------------


def test_a_full_or_failing_disk_leaves_nothing(lake: Lake) -> None:
    for operation, code in FAILURES:
        check_a_full_or_failing_disk_leaves_nothing(lake, operation, code)


def check_a_full_or_failing_disk_leaves_nothing(lake: Lake, operation: str, code: int) -> None:
    table = make(lake)
    table.insert([row(1, id=1)])
    assert isinstance(lake.store, LocalStore)
    calm, lake.store.disk = lake.store.disk, FailingDisk(operation, code)
    verbs: list[Callable[[], object]] = [
        lambda: table.insert(
            [row(2, FOUR[0], id=2), row(3, FOUR[2], id=1), row("x", id=5)], on_error="keep"
        ),
        lambda: table.delete_rows("id = 1"),
    ]
    for verb in verbs:
        with pytest.raises((LakebedError, OSError)) as failed:
            verb()
        assert isinstance(failed.value, LakebedError), failed.value
    lake.store.disk = calm
    assert values_of(table) == [1]
    assert rejects_of(lake, table) == []
    for verb in verbs:
        verb()
    assert values_of(table) == [2]
    sweep_all(lake)
    assert damage(lake) == []


def test_whoever_was_taken_for_dead_goes_on(lake: Lake) -> None:
    """Names were reserved under a lease that is gone: the next insert takes others."""
    table = make(lake)
    verbs: list[Callable[[], object]] = [
        lambda: table.insert([row(1, id=1), row(2, FOUR[0], id=2)]),
        lambda: table.insert([row(3, id=3), row("x", id=4)], on_error="keep"),
        lambda: table.insert([row(5, id=5)], if_exists="ignore"),
        lambda: table.delete_rows("id = 2"),
        lambda: table.fold(),
        lambda: table.forget(id=3),
    ]
    for verb in verbs:
        verb()
        table.insert([row(9, id=9)])  # leaves reserved names behind
        sweep(lake, leases_die=True)
    jump(lake, 1)
    assert values_of(table) == [1, 5, 9]
    sweep_all(lake)
    assert damage(lake) == []
