"""A table with a key has each key once, after any inserts, moves, deletes, folds, retirements and
restores; and every condition is answered as if all rows were in one list.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest

from lakebed.catalog import clock
from lakebed.lake import Lake
from lakebed.opening import open_lake
from lakebed.query.queries import Queries, QuerySettings
from lakebed.query.snapshot import user_tables
from lakebed.tables.table import Table
from tests.conftest import CAMPAIGN, SQLITE_FIRST
from tests.tables.model import Model, Question, count_rows, make_question, spell
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
    values_of,
)

FIRST = datetime(2026, 3, 2, tzinfo=UTC)


def test_tables_are_read_however_little_of_the_tail_may_be(lake: Lake) -> None:
    """A bucket too large for memory is read from its files, without a fold before."""
    table = make(lake, BY_ID)
    for value in range(3):
        table.insert({"id": value % 2, "time": NOON, "value": value})
    few = Queries(lake.catalog, lake.store, lake.leases, QuerySettings(tail_bytes=1))
    result = few.query(f"SELECT value FROM d.{table.name} ORDER BY 1").to_arrow()
    assert result["value"].to_pylist() == [1, 2]
    few.close()


@pytest.mark.parametrize("dialect", SQLITE_FIRST)
def test_what_hides_rows_is_held_and_not_the_rows(lake: Lake) -> None:
    """A table may be larger than the memory for statements, if the newer keys are not."""
    table = make(lake, BY_TIME)
    count, newer = 120_000, 90_000
    rows = pa.table(
        {
            "device": [f"ring-{number % 7}" for number in range(count)],
            "time": pa.array(range(count), pa.timestamp("us", "UTC")),
            "value": range(count),
            "note": [f"{number:0300}" for number in range(count)],
        }
    )
    table.insert(rows)
    zeros = rows.set_column(2, "value", pa.array([0] * count)).slice(0, newer)
    for part in (zeros.slice(0, newer // 2), zeros.slice(newer // 2)):
        table.insert(part)
    settings = QuerySettings(memory_bytes=16 << 20)
    little = Queries(lake.catalog, lake.store, lake.leases, settings)
    with little.query(f"SELECT * FROM d.{table.name}") as result:
        values = Counter(value for batch in result for value in batch["value"].to_pylist())
    assert values.pop(0) == newer
    assert values == Counter(range(newer, count))
    little.close()


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_columns_may_have_any_name(lake: Lake) -> None:
    """Also one that a query could give to something of its own."""
    names = ["hiding_0", "hiding_1", "stored", "hiding", "rows", "made", "Select"]
    columns = {name: {"type": "int", "unique": True} for name in names}
    table = make(lake, {"time": {"type": "datetime", "unit": "us"}, "value": "int"} | columns)
    for value in range(3):
        table.insert(dict.fromkeys(names, 1) | {"time": NOON, "value": value})
    assert values_of(table) == [2]


def test_the_last_insert_wins(lake: Lake) -> None:
    table = make(lake)
    for value in range(3):
        table.insert({"id": 1, "time": NOON, "value": value})
    table.insert([{"id": 2, "time": NOON, "value": 7}, {"id": 1, "time": NOON, "value": 8}])
    assert {row["id"]: row["value"] for row in rows_of(table)} == {1: 8, 2: 7}
    table.fold()
    assert {row["id"]: row["value"] for row in rows_of(table)} == {1: 8, 2: 7}


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_of_one_batch_the_last_row_of_a_key_wins(lake: Lake) -> None:
    for schema in (BY_ID, BY_TIME):
        check_of_one_batch_the_last_row_of_a_key_wins(lake, schema)


def check_of_one_batch_the_last_row_of_a_key_wins(lake: Lake, schema: Any) -> None:
    table = make(lake, schema)
    batch = [{"id": 1, "device": "a", "time": NOON, "value": value} for value in range(5)]
    done = table.insert([{n: v for n, v in row.items() if n in schema} for row in batch])
    assert done.rows == 1
    assert values_of(table) == [4]


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_of_one_batch_the_last_row_wins_also_in_another_bucket(lake: Lake) -> None:
    table = make(lake)
    days = [f"2026-03-0{day}T12:00:00Z" for day in (5, 3, 4)]
    table.insert([{"id": 1, "time": day, "value": index} for index, day in enumerate(days)])
    assert [row["partition_date"] for row in rows_of(table)] == ["2026-03-04"]
    assert len(table.partitions()) == 1


def test_a_key_that_moves_stays_one_row(lake: Lake) -> None:
    for bucket in ("hour", "day", "week", "month"):
        check_a_key_that_moves_stays_one_row(lake, bucket)


def check_a_key_that_moves_stays_one_row(lake: Lake, bucket: str) -> None:
    """Also for those who ask only for the bucket, or the part of it, where it was."""
    table = make(lake, BY_ID, bucket)
    times = ["2026-03-02T05:10:00Z", "2026-03-02T05:50:00Z", "2026-04-20T05:30:00Z", NOON]
    for value, time in enumerate(times):
        table.insert([{"id": 1, "time": time, "value": value}, {"id": 2 + value, "time": time}])
        table.insert({"id": 100, "time": "2026-03-02T05:20:00Z", "value": 100 + value})
    for _ in range(2):
        assert [row["value"] for row in rows_of(table, "id = 1")] == [3]
        for time, value in zip(times, (None, None, None, 3), strict=True):
            begin = datetime.fromisoformat(time)
            name = table.definition.bucket.name_of(int(begin.timestamp()) * 1_000_000)
            result = rows_of(table, f"id = 1 AND partition_date = '{name}'")
            same = name == table.definition.bucket.name_of(1_772_452_800_000_000)
            assert [row["value"] for row in result] == ([3] if same else []), time
            assert [r["value"] for r in rows_of(table, f"id = 1 AND time = '{time}'")] == (
                [] if value is None else [value]
            )
            within = {"begin": begin - timedelta(minutes=1), "end": begin + timedelta(minutes=1)}
            result = rows_of(table, **within)
            assert [row["value"] for row in result if row["id"] == 1] == (
                [] if value is None else [value]
            )
        table.fold()


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_a_key_that_moves_within_its_bucket_is_not_found_where_it_was(lake: Lake) -> None:
    table = make(lake)
    table.insert({"id": 1, "time": "2026-03-02T05:00:00Z", "value": 1})
    table.insert({"id": 1, "time": "2026-03-02T20:00:00Z", "value": 2})
    assert values_of(table, "time < '2026-03-02T12:00:00Z'") == []
    table.delete_rows("id = 1")
    assert values_of(table, "time < '2026-03-02T12:00:00Z'") == []


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_a_value_that_was_replaced_is_not_found(lake: Lake) -> None:
    """By columns that are not the key, no version can be left out."""
    for schema in (BY_ID, BY_TIME):
        table = make(lake, schema)
        for value in (1, 2):
            whole = {"id": 1, "device": "a", "time": NOON, "value": value, "note": f"n{value}"}
            table.insert({n: v for n, v in whole.items() if n in schema})
        assert values_of(table, "value = 1") == []
        assert values_of(table, "note = 'n1'") == []
        assert values_of(table, "value < 2 OR note < 'n2'") == []
        assert values_of(table, "value = 2") == [2]


def test_ignoring_minds_what_comes_meanwhile(lake: Lake) -> None:
    """Between the look at the keys and the commit; also what is restored."""
    table = make(lake)
    table.insert({"id": 1, "time": NOON, "value": 1})
    gone = table.partitions()[0]
    retire(lake, gone)
    happenings: list[Callable[[], object]] = [
        lambda: table.insert({"id": 2, "time": NOON, "value": 2}),
        lambda: lake.retirement.restore(gone.partition_id),
    ]
    publisher: Any = lake.tables.inserter._publisher
    for number, happens in enumerate(happenings):
        meanwhile(publisher, "insert", happens, after=False)
        new = [
            {"id": number_, "time": NOON, "value": 10 + number_} for number_ in (1, 2, 3 + number)
        ]
        assert table.insert(new[1 - number :], if_exists="ignore").rows == 1
    assert values_of(table) == [1, 2, 13, 14]


def test_ignoring_when_no_row_is_left_to_look_for(lake: Lake) -> None:
    """Nothing came, all was refused, or it was judged by a schema that has changed since."""
    table = make(lake)
    table.insert({"id": 1, "time": NOON, "value": 1})
    assert table.insert([], if_exists="ignore").rows == 0
    done = table.insert([{"id": 2}], if_exists="ignore", on_error="keep")
    assert (done.rows, done.rejected) == (0, 1)
    with open_lake(lake.catalog.url) as other:
        other.tables.alter_table("d", table.name, add={"more": "int"})
    record = {"id": 3, "time": NOON, "value": 3, "more": 1}
    done = table.insert(record, if_exists="ignore", on_error="keep")
    assert (done.rows, done.rejected) == (1, 0)


def test_ignoring_takes_only_keys_that_the_whole_table_lacks(lake: Lake) -> None:
    table = make(lake)
    table.insert([{"id": i, "time": f"2026-0{i}-01T00:00:00Z", "value": i} for i in range(1, 6)])
    new = [{"id": i, "time": NOON, "value": 10 * i} for i in (3, 5, 6, 7, 7)]
    new[-1]["value"] = 71
    done = table.insert(new, if_exists="ignore")
    assert done.rows == 2
    assert values_of(table) == [1, 2, 3, 4, 5, 60, 71]
    table.delete_rows("id = 3")
    assert table.insert(new, if_exists="ignore").rows == 1
    assert values_of(table) == [1, 2, 4, 5, 30, 60, 71]
    assert table.insert(new, if_exists="ignore").rows == 0


# ---- any history, any condition -----------------------------------------------------------------

KINDS: dict[str, Any] = {
    "by id": BY_ID,
    "by time": BY_TIME,
    "by id and device": {"device": BY_TIME["device"], **BY_ID},
    "loose": LOOSE,
}
WAYS = {"files", "small", "key_files", "small_keys"}
HISTORIES, MOST_HISTORIES, STEPS = (100, 200, 40) if CAMPAIGN else (1, 20, 15)


class Driver:
    """Does the same to a table and to its model."""

    def __init__(self, lake: Lake, kind: str, rng: random.Random) -> None:
        self.lake, self.rng = lake, rng
        bucket = rng.choice(["hour", "day", "week"])
        self.schema = KINDS[kind]
        self.table: Table = make(lake, self.schema, bucket)
        definition = self.table.definition
        self.model = Model(definition.key, "time", definition.bucket)
        self.names = [*definition.schema.names]
        self.times = [FIRST + timedelta(minutes=37 * i) for i in range(0, 4000, 90)]
        self.past: list[tuple[int, Counter[Any]]] = []

    def row(self) -> dict[str, Any]:
        rng = self.rng
        row = {
            "id": rng.randrange(8),
            "device": rng.choice(["a", "b", "é", "z" * 70]),
            "time": rng.choice(self.times),
            "value": rng.choice([None, *range(6)]),
            "note": rng.choice([None, "x", "y"]),
        }
        if "id" not in self.schema:  # so that some come twice
            row["time"] = rng.choice(self.times[:12])
        return {name: row[name] for name in self.names}

    def question(self) -> Question:
        values = {
            "id": range(-1, 9),
            "device": ["a", "b", "c", "é", "z" * 70],
            "time": [*self.times[:14], *(time + timedelta(seconds=1) for time in self.times[:14])],
            "value": range(6),
            "note": ["x", "y"],
            "partition_date": sorted({self.model.bucket_of({"time": t}) for t in self.times}),
        }
        return make_question(
            self.rng, {n: values[n] for n in (*self.names, "time", "partition_date")}
        )

    def narrow_question(self) -> Question:
        """One for a part of a bucket or a whole one, as most are."""
        rest, time = self.question(), self.rng.choice(self.times[:14])
        bucket = self.model.bucket_of({"time": time})
        if self.rng.random() < 0.5:
            return Question(
                f"partition_date = '{bucket}' AND ({rest.sql})",
                lambda row: row["partition_date"] == bucket and rest.ask(row),
            )
        return Question(
            f"time <= {spell(time)} AND ({rest.sql})",
            lambda row: row["time"] <= time and rest.ask(row),
        )

    def now(self) -> int:
        with self.lake.catalog.read() as connection:
            return clock.now(connection)

    def step(self) -> str:
        verbs = [self.insert, self.delete, self.fold, self.retire, self.restore]
        verb = self.rng.choices(verbs, [12, 3, 1.5, 1.5, 3])[0]
        verb()
        self.past.append((self.now(), self.expected(None)))
        return verb.__name__

    def insert(self) -> None:
        rows = [self.row() for _ in range(self.rng.choice([1, 1, 2, 9]))]
        if self.rng.random() < 0.3:
            done = self.table.insert(rows, if_exists="ignore")
            assert self.model.ignore(done.tick, rows) == done.rows
        else:
            self.model.insert(self.table.insert(rows).tick, rows)
        self.model.fold(self.table.partitions())

    def delete(self) -> None:
        question, seen_tick = self.question(), self.now()
        count = self.table.delete_rows(question.sql)
        at = max((e.insert_range.begin for e in self.table.partitions()), default=0)
        assert self.model.delete(seen_tick, at, self.shown(question)) == count

    def fold(self) -> None:
        self.table.fold()
        self.model.fold(self.table.partitions())

    def retire(self) -> None:
        live = self.table.partitions()
        if live:
            choice = self.rng.choice(live)
            unit = self.model.find(choice)
            retire(self.lake, choice)
            unit.retired = unit.restorable = True

    def restore(self) -> None:
        gone = [
            partition
            for partition in partitions_of(self.lake, self.table)
            if not partition.is_live and not partition.replaced
        ]
        units = [unit for unit in self.model.gone if self.rng.random() < 0.5]
        for unit in units:
            rows = [
                e for e in gone if (e.instance, e.insert_range.begin) == (unit.instance, unit.begin)
            ]
            self.lake.retirement.restore(max(rows, key=lambda row: row.published_at).partition_id)
            unit.retired = False

    def shown(self, question: Question) -> Any:
        def ask(row: Any) -> bool | None:
            return question.ask({**row, "partition_date": self.model.bucket_of(row)})

        return ask

    def expected(self, question: Question | None) -> Counter[Any]:
        ask = (lambda _row: True) if question is None else self.shown(question)
        return count_rows([row for row in self.model.visible() if ask(row)], self.names)

    def answer(self, question: Question | None, as_of: int | None = None) -> Counter[Any]:
        where = "true" if question is None else question.sql
        return count_rows(rows_of(self.table, where, as_of=as_of), self.names)


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
@pytest.mark.parametrize("kind", KINDS)
def test_every_condition_is_answered_as_if_rows_were_in_one_list(
    new_lake: Any, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables are read from files, into memory, or only for their keys, with equal results."""
    ways = watch_ways(monkeypatch)
    seed = int(os.environ.get("LAKEBED_SEED", int.from_bytes(os.urandom(4), "big")))
    sys.stdout.write(f"seed {seed}; replay with LAKEBED_SEED={seed}\n")
    rng = random.Random(f"{seed} {kind}")
    lake = new_lake()
    expected_ways = {"loose": {"files"}, "by time": {"files", "small", "key_files"}}.get(kind, WAYS)
    for number in range(MOST_HISTORIES):
        run_history(lake, kind, rng, monkeypatch)
        if number + 1 >= HISTORIES and expected_ways <= set(+ways):
            break
    sys.stdout.write(f"{dict(ways)}\n")
    assert expected_ways <= set(+ways)
    assert damage(lake) == []


def run_history(lake: Lake, kind: str, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = Driver(lake, kind, rng)
    steps = []
    for _ in range(STEPS):
        steps.append(driver.step())
        if len(steps) % 3 and not CAMPAIGN:
            continue
        for question in (None, driver.question(), driver.narrow_question()):
            sizes = [partition.file_size for partition in driver.table.partitions()]
            small = rng.choice([0, rng.choice([0, *sizes]), 4 << 20])
            monkeypatch.setattr(user_tables, "_SMALL_BYTES", small)
            result, expected = driver.answer(question), driver.expected(question)
            assert result == expected, (steps, question, small)
    for tick, expected in rng.sample(driver.past, 2):
        assert driver.answer(None, as_of=tick) == expected, steps


def watch_ways(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Counts how statements read tables: which parts their views have."""
    ways: Counter[str] = Counter()
    original = user_tables.choose

    def choose(*args: Any) -> Any:
        view = original(*args)
        for name in WAYS:
            ways[name] += bool(getattr(view, name))
        return view

    monkeypatch.setattr(user_tables, "choose", choose)
    return ways
