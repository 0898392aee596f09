"""Deleted rows stay deleted through folds, retirements and restores; rows inserted meanwhile stay;
and erased rows leave no trace in any file.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import permutations, product
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakebed.errors import BadInput, Conflict, DamagedFile, LakebedError, Unavailable
from lakebed.lake import Lake
from lakebed.lifecycle.sweep import SweepResult
from lakebed.model.time import to_instant
from lakebed.opening import open_lake
from lakebed.storage.local import LocalStore
from lakebed.tables.table import Table
from tests.conftest import CAMPAIGN, SQLITE_FIRST, NewLake
from tests.parts.faults import break_commit
from tests.tables.parts import (
    BY_ID,
    BY_TIME,
    LOOSE,
    NOON,
    damage,
    make,
    meanwhile,
    partitions_of,
    retire,
    rows_of,
    sweep,
    sweep_all,
    values_of,
)

DAYS = [f"2026-03-0{day}T12:00:00Z" for day in range(1, 6)]
KINDS = (LOOSE, BY_ID, BY_TIME)
OLD, ORDERS = (100, 24) if CAMPAIGN else (3, 2)
FIRST_VALUES = (1_000_000, 2_000_000)


def fill(table: Table, values: range, time: str = NOON, **options: Any) -> None:
    """One insert for each value."""
    names = table.schema.names
    for value in values:
        whole = {"id": value, "device": f"d{value}", "time": time, "value": value, "note": "n"}
        table.insert({n: v for n, v in whole.items() if n in names}, **options)


# ---- deleting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_rows_are_deleted_by_any_condition(lake: Lake) -> None:
    for schema in KINDS:
        check_rows_are_deleted_by_any_condition(lake, schema)


def check_rows_are_deleted_by_any_condition(lake: Lake, schema: Any) -> None:
    table = make(lake, schema)
    for day in range(5):
        fill(table, range(4 * day, 4 * day + 4), DAYS[day])
    assert table.delete_rows("value IN (1, 2) OR partition_date = '2026-03-02'") == 6
    assert table.delete_rows(f"time > '{DAYS[3]}' -- all of the last day") == 4
    assert table.delete_rows("value > 100") == 0
    assert values_of(table) == [0, 3, *range(8, 16)]
    table.fold()
    assert values_of(table) == [0, 3, *range(8, 16)]
    assert table.delete_rows("true") == 10
    assert rows_of(table) == []
    fill(table, range(2))
    assert values_of(table) == [0, 1]
    assert table.delete_rows("json_get(note, 'x') = 'y'") == 0
    for bad in ("", "   ", "nonsense", "value ="):
        with pytest.raises(BadInput):
            table.delete_rows(bad)
    assert values_of(table) == [0, 1]


def test_marks_are_no_rows_in_the_figures_of_a_table(lake: Lake) -> None:
    table = make(lake, BY_ID)
    table.insert({"id": 1, "time": "2019-01-01T00:00:00Z", "value": 1})
    table.insert({"id": 2, "time": "2100-01-01T00:00:00Z", "value": 2})
    table.insert({"id": 1, "time": NOON, "value": 3})
    before = table.stats()
    assert table.delete_rows("true") == 2
    after = table.stats()
    assert (before.rows, after.rows, after.partitions) == (2, 0, before.partitions + 2)
    assert (after.late, after.future) == (before.late, before.future)
    assert (after.earliest, after.latest) == (None, None)


def test_the_first_and_last_times_of_a_table_are_those_of_its_rows(lake: Lake) -> None:
    table = make(lake, BY_ID)
    table.insert({"id": 1, "time": "2019-01-01T00:00:00Z", "value": 1})
    table.insert({"id": 2, "time": NOON, "value": 2})
    table.insert({"id": 1, "time": NOON, "value": 3})  # from another bucket
    stats = table.stats()
    assert stats.rows == 2
    assert stats.earliest == stats.latest == to_instant(NOON)


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_conditions_about_the_whole_table_need_a_key(lake: Lake) -> None:
    """Without one, partitions are looked at one by one, of which each has a largest value."""
    keyed, loose = make(lake, BY_ID), make(lake, LOOSE)
    for table in (keyed, loose):
        fill(table, range(4))
    assert keyed.delete_rows(f"value = (SELECT max(value) FROM {keyed.name})") == 1
    assert values_of(keyed) == [0, 1, 2]
    for name in (loose.name, f"d.{loose.name}"):
        for value in ("max(value)", "-1"):  # whatever it finds
            with pytest.raises(BadInput, match="has no key, and this condition has a SELECT"):
                loose.delete_rows(f"value = (SELECT {value} FROM {name})")
    assert loose.delete_rows(f"{loose.name}.value = 3") == 1
    assert values_of(loose) == [0, 1, 2]


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
@pytest.mark.parametrize(
    "text",
    [
        "false) UNION ALL SELECT id, time FROM {} WHERE (true",
        "true) ORDER BY id LIMIT (1",
        "value = 1) OR (true",
    ],
)
def test_a_text_that_is_no_condition_deletes_nothing(lake: Lake, text: str) -> None:
    for schema in (BY_ID, LOOSE):
        table = make(lake, schema)
        fill(table, range(4))
        with pytest.raises(BadInput, match="did not open"):
            table.delete_rows(text.format(f"d.{table.name}"))
        assert values_of(table) == [0, 1, 2, 3]
        assert table.delete_rows("(value = 1) OR (value IN (2) AND ')' <> '(')") == 2


def test_what_is_inserted_meanwhile_stays(lake: Lake) -> None:
    for schema in KINDS:
        check_what_is_inserted_meanwhile_stays(lake, schema)


def check_what_is_inserted_meanwhile_stays(lake: Lake, schema: Any) -> None:
    """Between the look at the rows and the deletion."""
    table = make(lake, schema)
    fill(table, range(4))
    deleter = lake.tables.deleter
    meanwhile(deleter, "_ask", lambda: fill(table, range(2, 6)))
    assert table.delete_rows("true") == 4
    assert values_of(table) == [2, 3, 4, 5]
    table.fold()
    assert values_of(table) == [2, 3, 4, 5]


def test_what_is_folded_or_altered_meanwhile_is_deleted(lake: Lake) -> None:
    for schema, moment in product(KINDS, ("_ask", "_publisher")):
        check_what_is_folded_or_altered_meanwhile_is_deleted(lake, schema, moment)


def check_what_is_folded_or_altered_meanwhile_is_deleted(
    lake: Lake, schema: Any, moment: str
) -> None:
    table = make(lake, schema)
    for verb in (table.fold, lambda: table.alter(add={"more": "int"})):
        fill(table, range(4))
        deleter: Any = lake.tables.deleter
        if moment == "_ask":
            meanwhile(deleter, "_ask", verb)
        else:
            name = "insert" if table.definition.key else "replace_all"
            meanwhile(deleter._publisher, name, verb, after=False)
        assert table.delete_rows("value IN (1, 3)") == 2
        assert values_of(table) == [0, 2]
        table.delete_rows("true")


def test_delete_rows_deletes_what_is_restored_meanwhile(lake: Lake) -> None:
    """Older rows appear in a bucket that had none to delete: the plan is stale."""
    table = make(lake, LOOSE)
    fill(table, range(2), DAYS[0])
    fill(table, range(2, 4), DAYS[1])
    retired = [p for p in partitions_of(lake, table) if "03-02" in p.instance]
    assert len(retired) == 2
    for partition in retired:
        retire(lake, partition)

    def restore() -> None:
        for partition in retired:
            lake.retirement.restore(partition.partition_id)

    meanwhile(lake.tables.deleter, "_ask", restore)
    assert table.delete_rows("true") == 4
    assert values_of(table) == []


def test_deleting_goes_on_while_many_insert(lake: Lake) -> None:
    """Everybody inserts into one bucket, which is folded all the time; nothing old survives, and
    nothing new is lost."""
    for schema in (LOOSE, BY_ID):
        table = make(lake, schema)
        fill(table, range(OLD))
        stop = threading.Event()

        def insert(number: int, table: Table = table, stop: threading.Event = stop) -> int:
            count = 0
            while not stop.is_set():
                fill(table, range(number + count, number + count + 1))
                count += 1
            return count

        with ThreadPoolExecutor(3) as threads:
            running = [threads.submit(insert, number) for number in FIRST_VALUES]
            for value in range(OLD):
                assert table.delete_rows(f"value = {value}") == 1
            stop.set()
            counts = [future.result() for future in running]
        ranges = [
            range(first, first + count) for first, count in zip(FIRST_VALUES, counts, strict=True)
        ]
        expected = [value for values in ranges for value in values]
        assert values_of(table) == expected
    assert damage(lake) == []


# ---- staying deleted -----------------------------------------------------------------------------


def test_a_deleted_row_stays_deleted_through_any_order(lake: Lake) -> None:
    for schema in (BY_ID, BY_TIME):
        check_a_deleted_row_stays_deleted_through_any_order(lake, schema)


def check_a_deleted_row_stays_deleted_through_any_order(lake: Lake, schema: Any) -> None:
    """One older version of the row is retired; it may come back before, between or after."""
    steps: dict[str, Callable[[Table, list[str]], object]] = {
        "fold": lambda table, _gone: table.fold(),
        "restore": lambda _table, gone: lake.retirement.restore(gone.pop(0)),
        "insert": lambda table, _gone: fill(table, range(8, 9)),
        "fold again": lambda table, _gone: table.fold(),
    }
    for order in random.sample(list(permutations(steps)), ORDERS):
        table = make(lake, schema)
        fill(table, range(7, 8))
        fill(table, range(1))
        fill(table, range(7, 8))
        middle = table.partitions()[1]
        retire(lake, table.partitions()[0])
        retire(lake, middle)
        assert table.delete_rows("value = 7") == 1
        gone = [
            partition.partition_id
            for partition in partitions_of(lake, table)
            if not partition.is_live
        ]
        for step in order:
            steps[step](table, gone)
            assert 7 not in values_of(table), (order, step)
            assert 7 not in values_of(table, f"time = '{NOON}'"), (order, step)
        lake.retirement.restore(gone.pop(0))
        table.fold()
        assert values_of(table) == [0, 8], order


def test_marks_go_when_nothing_older_can_come_back(lake: Lake) -> None:
    for moves in (False, True):
        check_marks_go_when_nothing_older_can_come_back(lake, moves)


def check_marks_go_when_nothing_older_can_come_back(lake: Lake, moves: bool) -> None:
    table = make(lake, BY_ID if moves else BY_TIME)
    fill(table, range(3))
    fill(table, range(1, 2))
    fill(table, range(3, 4), DAYS[0])  # inserted last, and older than no mark's rows
    older = table.partitions()[2]
    retire(lake, older)
    table.delete_rows("value >= 1")
    table.fold()
    assert values_of(table) == [0]
    assert _count_stored(lake, table) > 1, "an older version of a row may still come back"
    sweep_all(lake)  # and now it is gone
    fill(table, range(9, 10))
    table.fold()
    assert values_of(table) == [0, 9]
    assert _count_stored(lake, table) == 2


def _count_stored(lake: Lake, table: Table) -> int:
    """Rows in the files of a table, marks among them."""
    return sum(pq.read_table(path).num_rows for path in _files(lake, table))


def _files(lake: Lake, table: Table) -> list[Any]:
    assert isinstance(lake.store, LocalStore)
    live = [partition.file_path for partition in table.partitions() if partition.file_path]
    return [lake.store.root / path for path in live]


def test_a_mark_that_is_retired_lets_its_rows_be_seen(lake: Lake) -> None:
    """Retiring takes what a partition says away, and that is what this one says."""
    table = make(lake)
    fill(table, range(2))
    table.delete_rows("value = 1")
    mark = table.partitions()[-1]
    retire(lake, mark)
    assert values_of(table) == [0, 1]
    gone = [partition for partition in partitions_of(lake, table) if not partition.is_live]
    lake.retirement.restore(gone[0].partition_id)
    assert values_of(table) == [0]


def test_what_was_replaced_cannot_be_restored(lake: Lake) -> None:
    for schema in (LOOSE, BY_ID):
        table = make(lake, schema)
        fill(table, range(3))
        table.fold()
        if schema is LOOSE:
            table.delete_rows("value = 1")
        table.forget(value=2)
        old = [partition for partition in partitions_of(lake, table) if not partition.is_live]
        assert len(old) >= 4
        for partition in old:
            with pytest.raises(Conflict, match="lives on in what replaced it"):
                lake.retirement.restore(partition.partition_id)
    assert damage(lake) == []


# ---- forgetting ----------------------------------------------------------------------------------

SECRET = "ring-7f3a-of-somebody"
PERSONAL = {"device": {"type": "string", "unique": True}, **LOOSE}


def hold_of(lake: Lake, secret: str) -> list[str]:
    """Every file in the store that has a text in it, compressed or not."""
    assert isinstance(lake.store, LocalStore)
    file_names = []
    for path in sorted(path for path in lake.store.root.rglob("*") if path.is_file()):
        data = path.read_bytes()
        if path.suffix == ".parquet":
            data += repr(pq.read_table(path).to_pylist()).encode()
        if secret.encode() in data:
            file_names.append(path.name)
    return file_names


def test_nothing_is_left_of_what_is_forgotten(lake: Lake) -> None:
    """In live, superseded, retired, held, restored, quarantined and folded partitions, and among
    the rejects."""
    table = make(lake, PERSONAL)
    for device in (SECRET, "other"):
        for day in DAYS:
            table.insert({"device": device, "time": day, "value": 1, "note": device})
    first, second, third, fourth, *_ = table.partitions()
    retire(lake, first)
    retire(lake, second, hold=True)
    retire(lake, third)
    lake.retirement.restore(third.partition_id)
    lake.checker.quarantine(fourth.file_path or "")
    table.insert({"device": "third", "time": NOON, "note": f"seen with {SECRET}"})
    table.insert({"device": "fourth", "time": NOON, "note": SECRET})
    table.insert({"device": "fourth", "time": NOON, "note": "harmless"})
    table.delete_rows(f"device = '{SECRET}'")
    table.insert(
        [{"device": SECRET, "time": NOON, "value": "x"}, {"device": SECRET}], on_error="keep"
    )
    table.insert({"device": SECRET, "time": "2026-03-09T00:00:00Z"})
    assert len(hold_of(lake, SECRET)) > 8
    planned = table.plan_forget(device=SECRET)
    done = table.forget(device=SECRET)
    assert [(e.partition.partition_id, e.rows) for e in done] == [
        (e.partition.partition_id, e.rows) for e in planned
    ]
    assert [row["device"] for row in rows_of(table, f"device = '{SECRET}'")] == []
    sweep_all(lake)
    holders = hold_of(lake, SECRET)
    assert len(holders) == 2, "the notes of others are theirs"
    table.forget(note=SECRET)
    table.forget(note=f"seen with {SECRET}")
    sweep_all(lake)
    assert hold_of(lake, SECRET) == []
    assert rows_of(table) == [] or all(SECRET not in str(row) for row in rows_of(table))
    assert table.forget(device=SECRET) == []
    assert damage(lake) == []


def test_forgetting_takes_all_versions_of_whoever_is_meant(lake: Lake) -> None:
    """Also those that do not have the value any more, or not yet."""
    table = make(lake)
    for note in ("before", "secret", "after"):
        table.insert(
            [{"id": 1, "time": NOON, "note": note}, {"id": 2, "time": NOON, "note": note[:1]}]
        )
    table.forget(note="secret")
    assert [(row["id"], row["note"]) for row in rows_of(table)] == [(2, "a")]
    loose = make(lake, LOOSE)
    loose.insert([{"time": NOON, "value": 1, "note": "x"}, {"time": NOON, "value": 1, "note": "y"}])
    loose.forget(value=1, note="x")
    assert [row["note"] for row in rows_of(loose)] == ["y"]


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_forgetting_asks_for_values_that_can_be(lake: Lake) -> None:
    table = make(lake, LOOSE | {"tags": "string[]"})
    table.insert({"time": NOON, "value": 1, "tags": ["a"]})
    for where in ({}, {"nobody": 1}, {"value": "x"}, {"tags": ["a"]}, {"value": 2**70}):
        with pytest.raises(BadInput):
            table.forget(**where)
    assert len(table.forget(time=NOON)) == 1
    assert rows_of(table) == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_forgetting_only_what_is_retired_is_not_claimed_if_the_commit_breaks(
    lake: Lake, after: bool
) -> None:
    table = make(lake)
    fill(table, range(1))
    retire(lake, table.partitions()[0], hold=True)
    broken = break_commit(lake, after=after)
    if after:
        assert len(table.forget(id=0)) == 1
    else:
        with pytest.raises(Unavailable):
            table.forget(id=0)
    assert broken() == 1
    (old,) = partitions_of(lake, table)
    assert old.replaced == after
    assert old.held != after


def test_forgetting_sees_what_comes_meanwhile(lake: Lake) -> None:
    """A restored partition or a mark that arrives between look and commit; an insert is new."""
    with open_lake(lake.catalog.url) as other:
        for verb in ("insert", "restore", "delete", "fold", "alter"):
            table = make(lake, PERSONAL)
            twin = other.tables.get("d", table.name)
            for day in DAYS[:2]:
                table.insert({"device": SECRET, "time": day, "note": verb})
            gone = table.partitions()[0]
            retire(lake, gone)
            verbs: dict[str, Callable[[], object]] = {
                "insert": lambda t=twin: t.insert({"device": SECRET, "time": NOON}),
                "restore": lambda g=gone: other.retirement.restore(g.partition_id),
                "delete": lambda t=twin: t.delete_rows("true"),
                "fold": lambda t=twin: t.fold(),
                "alter": lambda t=twin: t.alter(add={"more": "int"}),
            }
            meanwhile(lake.tables.eraser, "_find_traces", verbs[verb])
            assert table.forget(device=SECRET)
            assert len(rows_of(table)) == (verb == "insert"), verb
            if verb == "insert":
                table.forget(device=SECRET)
            other.leases.beat()
            sweep_all(lake)
            assert hold_of(lake, SECRET) == [], verb


def test_a_mark_is_not_made_of_what_was_forgotten_meanwhile(lake: Lake) -> None:
    table = make(lake, PERSONAL)
    for day in DAYS[:2]:
        table.insert({"device": SECRET, "time": day})
    with open_lake(lake.catalog.url) as other:
        twin = other.tables.get("d", table.name)
        meanwhile(lake.tables.deleter, "_ask", lambda: twin.forget(device=SECRET))
        table.delete_rows("true")
    sweep_all(lake)
    assert hold_of(lake, SECRET) == []


def test_forgetting_does_not_pass_over_what_it_cannot_read(lake: Lake) -> None:
    table = make(lake, PERSONAL)
    for device in (SECRET, "other"):
        table.insert({"device": device, "time": NOON})
    assert isinstance(lake.store, LocalStore)
    path = lake.store.root / (table.partitions()[1].file_path or "")
    data = path.read_bytes()
    path.write_bytes(data[:40] + b"rot" + data[43:])
    with open_lake(lake.catalog.url) as other:
        twin = other.tables.get("d", table.name)
        with pytest.raises(DamagedFile, match=path.name):
            twin.forget(device=SECRET)
        path.write_bytes(data)
        assert len(twin.forget(device=SECRET)) == 1


def test_forgetting_ends_while_many_insert(lake: Lake) -> None:
    table = make(lake, PERSONAL)
    stop = threading.Event()

    def insert(number: int) -> int:
        count = 0
        while not stop.is_set():
            table.insert({"device": f"{number}-{count}", "time": NOON})
            count += 1
        return count

    for person in range(3):
        table.insert({"device": f"{SECRET}{person}", "time": NOON})
    with ThreadPoolExecutor(2) as threads:
        running = [threads.submit(insert, number) for number in range(2)]
        try:
            for person in range(3):
                assert table.forget(device=f"{SECRET}{person}")
        except LakebedError as error:
            pytest.fail(f"starved: {error}")
        finally:
            stop.set()
        counts = [future.result() for future in running]
    assert table.count() == sum(counts)


def test_forgetting_goes_on_while_a_sweep_deletes(new_lake: NewLake) -> None:
    """Nothing protects what is retired and past its grace period; a sweep that was killed in the
    middle leaves it without its file."""
    lake = new_lake(grace="0s")
    for claimed in (False, True):
        table = make(lake, PERSONAL)
        for day in DAYS[:2]:
            table.insert({"device": SECRET, "time": day})
        retire(lake, table.partitions()[0])
        lake.leases.beat()
        sweeper: Any = lake.sweeper
        with open_lake(lake.catalog.url) as other:  # remembers nothing of the file
            twin = other.tables.get("d", table.name)
            if claimed:
                claim, _ = sweeper._claim(SweepResult())
                lake.store.delete([partition.file_path for partition in claim])
            else:
                reader: Any = other.tables.reader
                meanwhile(reader, "read", lambda: sweep(lake), after=False)
            assert len(twin.plan_forget(device=SECRET)) == 1
            assert len(twin.forget(device=SECRET)) == 1
        sweep_all(lake)
        assert hold_of(lake, SECRET) == []
    assert damage(lake) == []


@pytest.mark.parametrize("dialect", ["sqlite"], indirect=True)
@pytest.mark.parametrize("where", ["", "  \n"])
def test_delete_rows_without_a_condition_is_refused(lake: Lake, where: Any) -> None:
    for schema in (LOOSE, BY_ID):
        with pytest.raises(BadInput, match="delete_rows needs a condition"):
            make(lake, schema).delete_rows(where)


@pytest.mark.parametrize("schema", [BY_ID, BY_TIME, LOOSE], ids=["id", "time", "no key"])
def test_stats_count_late_and_future_rows_but_no_delete_marks(
    lake: Lake, schema: dict[str, Any]
) -> None:
    table = make(lake, schema)
    row = {"id": 1, "device": "a", "value": 1}
    rows = [row | {"time": NOON}, row | {"id": 2, "time": "2100-03-02T12:00:00Z"}]
    table.insert([{name: each[name] for name in each if name in schema} for each in rows])
    stats = table.stats()
    assert (stats.rows, stats.late, stats.future, stats.buckets) == (2, 1, 1, 2)
    if schema is not LOOSE:
        table.delete_rows(f"time = '{NOON}'")
        stats = table.stats()
        assert (stats.rows, stats.late, stats.future) == (1, 1, 1)
