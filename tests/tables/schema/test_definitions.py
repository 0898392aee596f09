"""Databases and tables as such: made once, altered while others insert, deleted, brought back with
all that they had, copied, and kept out of what is not theirs.
"""

from __future__ import annotations

import random
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lakebed.errors import (
    BadInput,
    BadRecords,
    BadSchema,
    Conflict,
    LakebedError,
    NotFound,
    UnknownDatabase,
    UnknownTable,
    UnknownViewSet,
)
from lakebed.lake import Lake
from lakebed.model.tables.schema import FIRST_INSTANT
from lakebed.opening import copy_lake, open_lake
from lakebed.tables.table import Table
from tests.conftest import SQLITE_FIRST, NewLake
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
    retire,
    rows_of,
    sweep_all,
    values_of,
)

DAYS = [f"2026-03-0{day}T12:00:00Z" for day in range(1, 6)]


def fill(table: Table, values: range, day: str = NOON) -> None:
    for value in values:
        whole = {"id": value, "device": f"d{value}", "time": day, "value": value}
        table.insert({n: v for n, v in whole.items() if n in table.schema.names})


# ---- making --------------------------------------------------------------------------------------


def test_of_many_who_make_a_table_or_database_one_does(lake: Lake) -> None:
    lake.tables.create_database("d")
    start = threading.Barrier(6)

    def attempt(number: int) -> bool:
        verbs: list[Callable[[], object]] = [
            lambda: lake.tables.create_table("d", "same", LOOSE),
            lambda: lake.tables.create_database("same"),
        ]
        start.wait()
        try:
            verbs[number % 2]()
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(6) as threads:
        results = list(threads.map(attempt, range(6)))
    assert (results[0::2].count(True), results[1::2].count(True)) == (1, 1)
    assert [definition.name for definition in lake.tables.list_tables()] == ["same"]
    assert lake.tables.list_databases() == ["d", "same"]


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_names_that_sql_has_for_itself_are_refused(lake: Lake) -> None:
    lake.tables.create_database("d")
    for name in ("table", "lateral", "unnest", "select", "values"):
        with pytest.raises(BadInput, match=f"a table cannot be called {name}"):
            lake.tables.create_table("d", name, LOOSE)
        with pytest.raises(BadInput, match=f"a database cannot be called {name}"):
            lake.tables.create_database(name)
    for name in ("order", "user", "left", "group"):
        table = lake.tables.create_table("d", name, LOOSE)
        fill(table, range(2))
        assert (table.count(), table.delete_rows("value = 1")) == (2, 1)


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_a_traceback_says_what_to_do(lake: Lake) -> None:
    with pytest.raises(BadInput) as refused:
        lake.tables.create_database("A")
    assert "".join(traceback.format_exception(refused.value)).endswith(
        "'A' is not the name of a database\nhint: use lowercase letters, digits and _, at most 48, "
        "beginning with a letter\n"
    )


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_names_of_a_wrong_type_are_refused(lake: Lake) -> None:
    table = make(lake)
    for name in (5, None, [table.name]):
        with pytest.raises(BadInput, match="must be str, not"):
            lake.tables.insert("d", name, [])  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="must be str, not"):
            lake.tables.insert(name, table.name, [])  # type: ignore[arg-type]
        with pytest.raises(BadInput, match="must be str, not"):
            lake.tables.get("d", name)  # type: ignore[arg-type]


@pytest.mark.parametrize("odd", ["t\udce9", "t\x00"])
def test_a_name_that_no_catalog_can_be_asked_for_is_no_name(lake: Lake, odd: str) -> None:
    """Such as an argument of a shell in Latin-1."""
    table, tables = make(lake, LOOSE), lake.tables
    asks: list[Callable[[str, str], Any]] = [
        tables.get,
        tables.delete_table,
        tables.restore_table,
        lambda database, name: tables.create_table(database, name, LOOSE),
        lambda database, name: tables.insert(database, name, []),
        lambda database, name: tables.alter_table(database, name, add={"more": "int"}),
        lambda database, name: tables.set_retention(database, name, None),
        lambda database, name: tables.delete_rows(database, name, "true"),
    ]
    for ask in asks:
        for database, name in (("d", odd), (odd, table.name)):
            with pytest.raises(BadInput, match=r"is not (a|the) name"):
                ask(database, name)
    for find in (tables.list_tables, tables.delete_database, tables.restore_database):
        with pytest.raises(BadInput, match="is not a name"):
            find(odd)
    with pytest.raises((BadInput, UnknownViewSet)):
        lake.partitions.list_partitions(odd)


# ---- altering ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_rows_of_every_version_are_read_together(lake: Lake) -> None:
    """Old rows stay readable after any alterations, folded or not."""
    for schema in (LOOSE, BY_ID, BY_TIME):
        rng = random.Random(7)
        table = make(lake, {**schema, "value": {"type": "int", "required": True}})
        expected: list[dict[str, Any]] = []
        added: list[str] = []
        for step in range(9):
            whole = {"id": step, "device": f"d{step}", "time": DAYS[step % 3], "value": step}
            record = {n: v for n, v in whole.items() if n in table.schema.names}
            for name in added:
                if rng.random() < 0.5:
                    record[name] = step
            if table.schema.column("value").type == "float":
                record["value"] = step + 0.5
            table.insert(record)
            expected.append(record)
            if step % 3 == 1:
                added.append(f"c{step}")
                table.alter(add={added[-1]: rng.choice(["int", "float"])})
            elif step == 6:
                table.alter(widen=["value"], relax=["value"])
            elif step % 4 == 3:
                table.fold()
            names = ["value", *added]
            counts = Counter(tuple(row[n] for n in names) for row in rows_of(table))
            assert counts == Counter(tuple(row.get(n) for n in names) for row in expected)
            for name in added[-1:]:
                null_count = sum(row.get(name) is None for row in expected)
                assert len(rows_of(table, f"{name} IS NULL")) == null_count
        assert table.definition.version == 5
    assert damage(lake) == []


def test_any_other_alteration_is_refused_with_the_reason(lake: Lake) -> None:
    table = make(lake)
    for wish in ({"drop": ["note"]}, {"rename": {"note": "text"}, "add": {"more": "int"}}):
        name = next(iter(wish))
        with pytest.raises(BadSchema, match=f"{name}: only add, widen and relax"):
            table.alter(**wish)  # type: ignore[arg-type]
        with pytest.raises(BadSchema, match="would make stored rows wrong"):
            lake.tables.alter_table("d", table.name, **wish)  # type: ignore[arg-type]
    assert table.definition.version == 1


def test_nobody_who_inserts_notices_an_alteration(lake: Lake) -> None:
    """Four threads insert while the table is altered, in this process and by others."""
    table = make(lake, BY_ID)
    stop = threading.Event()

    def insert(number: int) -> int:
        with open_lake(lake.catalog.url) as own:
            own_table = (own if number % 2 else lake).tables.get("d", table.name)
            count = 0
            while not stop.is_set() or not count:
                own_table.insert({"id": 10_000 * number + count, "time": NOON, "value": count})
                count += 1
            return count

    with ThreadPoolExecutor(4) as threads:
        running = [threads.submit(insert, number) for number in range(4)]
        try:
            for number in range(6):
                table.alter(add={f"c{number}": "int"})
            table.alter(widen=["value"])
        finally:
            stop.set()
        counts = [future.result() for future in running]
    assert Counter(row["id"] // 10_000 for row in rows_of(table)) == Counter(
        dict(enumerate(counts))
    )
    assert table.definition.version == 8


def test_whoever_knows_an_older_schema_learns_the_new_one(lake: Lake) -> None:
    table = make(lake, LOOSE)
    with open_lake(lake.catalog.url) as other:
        twin = other.tables.get("d", table.name)
        twin.insert({"time": NOON, "value": 1})
        table.alter(add={"more": "int"}, widen=["value"])
        twin.insert({"time": NOON, "value": 1.5, "more": 2})
        with pytest.raises(BadRecords):
            twin.insert({"time": NOON, "less": 2})
    assert Counter(row["more"] for row in rows_of(table)) == {None: 1, 2: 1}


def test_what_would_not_fit_older_rows_is_refused(lake: Lake) -> None:
    table = make(lake, BY_ID)
    refused: list[dict[str, Any]] = [
        {"add": {"more": {"type": "int", "required": True}}},
        {"add": {"more": {"type": "int", "unique": True}}},
        {"add": {"value": "int"}},
        {"widen": ["id"]},
        {"widen": ["note"]},
        {"relax": ["time"]},
    ]
    for alteration in refused:
        with pytest.raises(BadSchema):
            table.alter(**alteration)
    assert table.definition.version == 1


# ---- deleting and restoring ----------------------------------------------------------------------


def test_a_table_comes_back_with_everything_it_had(lake: Lake) -> None:
    """Rows, marks, rejects, keys of inserts, and what was retired before and still is."""
    for schema in (LOOSE, BY_ID, BY_TIME):
        table = make(lake, schema)
        fill(table, range(4))
        fill(table, range(4, 6), DAYS[0])
        table.insert([{"time": NOON, "value": "x"}], on_error="keep", key="k")
        table.delete_rows("value = 1")
        table.alter(add={"more": "int"})
        retired = table.partitions()[0]
        retire(lake, retired)
        before = values_of(table)
        lake.tables.delete_table("d", table.name)
        with pytest.raises((NotFound, BadInput)):
            values_of(table)
        for verb in (lambda t=table: fill(t, range(1)), lambda t=table: t.delete_rows("true")):
            with pytest.raises(UnknownTable):
                verb()
        with pytest.raises(Conflict, match="was deleted"):
            lake.retirement.restore(retired.partition_id)
        assert table.name not in [definition.name for definition in lake.tables.list_tables("d")]
        lake.tables.restore_table("d", table.name)
        assert values_of(table) == before
        assert lake.tables.get("d", f"{table.name}_rejects").count() == 1
        assert table.insert([{"time": NOON, "value": "x"}], on_error="keep", key="k").repeated
        lake.retirement.restore(retired.partition_id)
        assert values_of(table) == [0, 2, 3, 4, 5]
        table.fold()
        assert values_of(table) == [0, 2, 3, 4, 5]
    sweep_all(lake)
    assert damage(lake) == []


def test_a_name_belongs_to_one_table_at_a_time(lake: Lake) -> None:
    table = make(lake, LOOSE)
    fill(table, range(2))
    lake.tables.delete_table("d", table.name)
    second = lake.tables.create_table("d", table.name, LOOSE)
    fill(second, range(10, 12))
    with pytest.raises(Conflict, match="there is a table"):
        lake.tables.restore_table("d", table.name)
    lake.tables.delete_table("d", table.name)
    lake.tables.restore_table("d", table.name)
    assert values_of(second) == [10, 11]
    with pytest.raises(Conflict):
        lake.tables.create_table("d", table.name, LOOSE)
    with pytest.raises(LakebedError, match="goes with the table"):
        lake.tables.delete_table("d", f"{table.name}_rejects")


def test_a_database_comes_back_with_the_tables_that_went_with_it(lake: Lake) -> None:
    first, second = make(lake, LOOSE), make(lake, BY_ID)
    fill(first, range(2))
    fill(second, range(3))
    lake.tables.delete_table("d", first.name)
    lake.tables.delete_database("d")
    assert lake.tables.list_databases() == []
    for verb in (lambda: fill(second, range(1)), lambda: lake.tables.list_tables("d")):
        with pytest.raises(UnknownDatabase):
            verb()
    assert lake.tables.restore_database("d") == [second.definition.full_name]
    assert values_of(second) == [0, 1, 2]
    lake.tables.restore_table("d", first.name)
    assert values_of(first) == [0, 1]
    with pytest.raises(UnknownDatabase):
        lake.tables.restore_database("other")
    assert damage(lake) == []


@pytest.mark.parametrize("verb", ["insert", "delete", "fold", "forget", "alter"])
def test_what_meets_the_deletion_of_its_table_is_told_so(lake: Lake, verb: str) -> None:
    """Right before its transaction; and the table comes back as it was."""
    table = make(lake, BY_ID)
    fill(table, range(3))
    tables: Any = lake.tables
    verbs: dict[str, tuple[Any, str, Callable[[], object]]] = {
        "insert": (tables.inserter._publisher, "insert", lambda: fill(table, range(3, 4))),
        "delete": (tables.deleter._publisher, "insert", lambda: table.delete_rows("true")),
        "fold": (tables.folder._publisher, "replace_all", table.fold),
        "forget": (tables.eraser, "_find_traces", lambda: table.forget(id=1)),
        "alter": (tables.definitions, "get", lambda: fill(table, range(3, 4))),
    }
    owner, name, act = verbs[verb]
    if verb == "alter":
        lake.tables.delete_table("d", table.name)
        with pytest.raises(UnknownTable):
            table.alter(add={"more": "int"})
    else:
        meanwhile(owner, name, lambda: lake.tables.delete_table("d", table.name), after=False)
        with pytest.raises(UnknownTable):
            act()
    lake.tables.restore_table("d", table.name)
    assert values_of(table) == [0, 1, 2]
    sweep_all(lake)
    assert damage(lake) == []


# ---- the past ------------------------------------------------------------------------------------


def test_the_past_is_read_through_everything_that_happened_since(lake: Lake) -> None:
    for schema in (LOOSE, BY_ID):
        table = make(lake, schema)
        observations: list[tuple[int, list[int]]] = []

        def note(
            tick: int = 0, table: Table = table, observations: list[Any] = observations
        ) -> None:
            result = table.query(f"SELECT value FROM {table.name}")
            values = sorted(result.to_arrow()["value"].to_pylist())
            observations.append((result.explanation.tick, values))

        fill(table, range(3))
        note()
        fill(table, range(2, 5), DAYS[0])
        note()
        table.delete_rows("value = 2")
        note()
        table.fold()
        note()
        gone = table.partitions()[0]
        retire(lake, gone)
        note()
        lake.retirement.restore(gone.partition_id)
        table.alter(add={"more": "int"})
        note()
        table.forget(value=3)
        lake.tables.delete_table("d", table.name)
        lake.tables.restore_table("d", table.name)
        note()
        for tick, values in observations:
            assert values_of(table, as_of=tick) == values
        assert len({str(values) for _, values in observations}) >= 4


# ---- retention -----------------------------------------------------------------------------------


def test_retention_takes_the_buckets_that_are_over(lake: Lake) -> None:
    """The last instant of a bucket must be older, not only some of its rows."""
    table = make(lake, BY_TIME, retention="10d")
    now = datetime.now(UTC)
    for age in (0, 9, 10, 11, 12, 30):
        fill(table, range(age, age + 1), (now - timedelta(days=age)).isoformat())
        fill(table, range(100 + age, 101 + age), (now - timedelta(days=age)).isoformat())
    table.delete_rows("value = 130")
    plan = lake.retirement.plan_by_table_retention("d", table.name)
    assert {partition.instance for partition in plan.partitions} == {
        f"{now - timedelta(days=age):%Y-%m-%d}" for age in (11, 12, 30)
    }
    assert len(plan.partitions) == 7
    lake.retirement.carry_out(plan, confirmed=plan.confirm)
    assert values_of(table) == [0, 9, 10, 100, 109, 110]
    assert lake.retirement.plan_by_table_retention("d", table.name).partitions == ()
    lake.retirement.restore_many([partition.partition_id for partition in plan.partitions])
    assert len(values_of(table)) == 11
    lake.tables.set_retention("d", table.name, None)
    with pytest.raises(BadInput, match="for ever"):
        lake.retirement.plan_by_table_retention("d", table.name)


def test_retention_does_not_bring_older_versions_back(lake: Lake) -> None:
    """A row that moved into an old bucket, or was deleted there, has versions in newer ones."""
    table = make(lake, BY_ID, retention="10d")
    now = datetime.now(UTC)
    old = (now - timedelta(days=30)).isoformat()
    fill(table, range(3), now.isoformat())
    table.insert([{"id": 1, "time": old, "value": 11}, {"id": 2, "time": old, "value": 12}])
    table.delete_rows("id = 2")
    for _ in range(2):
        plan = lake.retirement.plan_by_table_retention("d", table.name)
        lake.retirement.carry_out(plan, confirmed=plan.confirm)
        assert 1 not in values_of(table)
        assert 2 not in values_of(table)
        table.fold()


# ---- beside everything else ----------------------------------------------------------------------


def test_tables_are_no_view_sets_and_never_incompatible(lake: Lake) -> None:
    for schema in (LOOSE, BY_ID):
        table = make(lake, schema)
        fill(table, range(2))
        table.alter(add={"more": "int"})
        fill(table, range(2, 4))
        name = table.definition.stored_as
        assert lake.retirement.list_incompatible_partitions() == []
        assert lake.retirement.retire_incompatible_partitions(allow_loss=True) == []
        assert name not in {view_set.view_set.name for view_set in lake.views.list_view_sets()}
        listed = lake.query("SELECT view_set_name FROM list_view_sets()").to_arrow()
        assert not [row for row in listed["view_set_name"].to_pylist() if "table" in row]
        assert values_of(table) == [0, 1, 2, 3]


def test_a_copy_of_a_lake_has_its_tables(lake: Lake, new_lake: NewLake, tmp_path: Any) -> None:
    """With rejects, marks, every version, what is deleted and what can be restored."""
    table, deleted = make(lake, BY_ID), make(lake, LOOSE)
    fill(table, range(4))
    table.insert([{"time": NOON, "value": "x"}], on_error="keep", key="k")
    table.alter(add={"more": "int"})
    table.delete_rows("value = 1")
    retired = table.partitions()[0]
    retire(lake, retired)
    fill(deleted, range(2))
    lake.tables.delete_table("d", deleted.name)
    copy_lake(lake, tmp_path / "copy")
    fill(table, range(8, 9))
    with open_lake(tmp_path / "copy") as copy:
        twin = copy.tables.get("d", table.name)
        assert values_of(twin) == [2, 3]
        assert copy.tables.get("d", f"{table.name}_rejects").count() == 1
        assert twin.insert([{"time": NOON, "value": "x"}], on_error="keep", key="k").repeated
        copy.retirement.restore(retired.partition_id)
        fill(twin, range(7, 8))
        twin.fold()
        assert values_of(twin) == [0, 2, 3, 7]
        copy.tables.restore_table("d", deleted.name)
        assert values_of(copy.tables.get("d", deleted.name)) == [0, 1]
        assert damage(copy) == []
    assert damage(lake) == []


def test_a_clock_that_jumps_changes_no_order(lake: Lake) -> None:
    table = make(lake, BY_ID)
    for value, by in enumerate((0, 10**9, 1, 10**12, 5)):
        table.insert({"id": 1, "time": NOON, "value": value})
        jump(lake, by)
        if value == 2:
            table.delete_rows("true")
    assert values_of(table) == [4]
    assert all(
        partition.insert_range.begin > FIRST_INSTANT for partition in partitions_of(lake, table)
    )


def test_deleted_databases_are_listed_until_the_name_is_used_again(lake: Lake) -> None:
    definitions = lake.tables.definitions
    for name in ("one", "two"):
        lake.tables.create_database(name)
        lake.tables.delete_database(name)
    assert definitions.list_deleted_databases() == ["two", "one"]
    lake.tables.create_database("one")
    assert definitions.list_deleted_databases() == ["two"]
