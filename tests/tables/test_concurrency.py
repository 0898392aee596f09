"""Many at one table: threads, processes that insert while others read, operations that meet in the
middle of each other. Nothing is lost, doubled, half seen, or refused without need.
"""

from __future__ import annotations

import os
import random
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from lakebed.lake import Lake
from lakebed.opening import open_lake
from tests.conftest import CAMPAIGN, NewLake
from tests.parts.processes import PROCESSES
from tests.proof.killing import Places
from tests.tables import crowd
from tests.tables.interleaving import KINDS, OPERATIONS, Stage
from tests.tables.parts import BY_ID, LOOSE, NOON, damage, make, meanwhile, rows_of, values_of

BY_WRITER = {
    "writer": {"type": "int", "unique": True},
    "number": {"type": "int", "unique": True},
    "part": {"type": "int", "unique": False},
    "time": {"type": "datetime", "unique": True},
}


# ---- threads -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "schema", [LOOSE, pytest.param(BY_ID, marks=pytest.mark.campaign)], ids=["loose", "by id"]
)
def test_ten_threads_with_fifty_inserts_each_give_five_hundred_rows(
    lake: Lake, schema: Any
) -> None:
    table = make(lake, schema)
    inserts = 50

    def insert(number: int) -> None:
        for count in range(inserts):
            value = inserts * number + count
            record = {"id": value, "time": NOON, "value": value}
            table.insert({n: v for n, v in record.items() if n in schema})

    with ThreadPoolExecutor(10) as threads:
        list(threads.map(insert, range(10)))
    assert values_of(table) == list(range(10 * inserts))
    assert len(table.partitions()) < 100
    assert damage(lake) == []


def test_ten_updates_of_one_key_at_once_leave_one_row(lake: Lake) -> None:
    """Each with another time; some move the row into another bucket."""
    table = make(lake)
    start = threading.Barrier(10)
    with ExitStack() as lakes:
        handles = [lake, lakes.enter_context(open_lake(lake.catalog.url))]

        def update(number: int) -> int:
            own = handles[number % 2].tables.get("d", table.name)
            start.wait()
            day = f"2026-03-0{1 + number % 3}T00:00:00Z"
            return own.insert({"id": 1, "time": day, "value": number}).tick

        with ThreadPoolExecutor(10) as threads:
            ticks = list(threads.map(update, range(10)))
    assert values_of(table) == [ticks.index(max(ticks))]
    for number in range(3):
        result = rows_of(table, f"partition_date = '2026-03-0{1 + number}'")
        assert len(result) == (ticks.index(max(ticks)) % 3 == number)
    table.fold()
    assert table.count() == 1


def test_of_many_who_insert_what_is_not_there_one_does(lake: Lake) -> None:
    """Of each key the row of exactly one, over the whole table; nobody starves."""
    table = make(lake)
    start = threading.Barrier(8)
    rounds = 20 if CAMPAIGN else 4
    with ExitStack() as lakes:
        handles = [lake, lakes.enter_context(open_lake(lake.catalog.url))]

        def insert(number: int) -> list[int]:
            own, won = handles[number % 2].tables.get("d", table.name), []
            day = f"2026-03-0{1 + number % 4}T00:00:00Z"
            for round_ in range(rounds):
                start.wait()
                rows = [
                    {"id": 10 * round_ + number_, "time": day, "value": number}
                    for number_ in range(3)
                ]
                won.append(own.insert(rows, if_exists="ignore").rows)
            return won

        with ThreadPoolExecutor(8) as threads:
            won = list(threads.map(insert, range(8)))
    for round_ in range(rounds):
        assert sorted(results[round_] for results in won) == [0] * 7 + [3]
    result = rows_of(table)
    assert len(result) == 3 * rounds
    assert all(len({r["value"] for r in result if r["id"] // 10 == n}) == 1 for n in range(rounds))


def test_whoever_ignores_is_not_starved_by_those_who_insert(lake: Lake) -> None:
    """Others insert without a pause; those who must look first get their turn."""
    table = make(lake)
    stop = threading.Event()

    def insert(number: int) -> int:
        count = 0
        while not stop.is_set():
            table.insert({"id": 1_000_000 * number + count, "time": NOON})
            count += 1
        return count

    with ThreadPoolExecutor(3) as threads:
        running = [threads.submit(insert, number) for number in (1, 2, 3)]
        try:
            for number in range(40 if CAMPAIGN else 8):
                table.insert({"id": -number % 5, "time": NOON, "value": 1}, if_exists="ignore")
        finally:
            stop.set()
        counts = [future.result() for future in running]
    assert table.count() == sum(counts) + 5


# ---- processes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [LOOSE, BY_WRITER], ids=["loose", "keyed"])
def test_eight_processes_insert_while_others_read(
    new_lake: NewLake, dialect: str, schema: Any
) -> None:
    """Every read is a committed state: nothing acknowledged is missing, no insert is half there."""
    if not CAMPAIGN and (dialect == "sqlite") != (schema is LOOSE):
        pytest.skip("each kind of table on one catalog; the campaign leaves nothing out")
    count = 200 if CAMPAIGN else 25 if dialect == "sqlite" else 10
    lake = new_lake()
    lake.tables.create_database("d")
    columns = (
        {**BY_WRITER}
        if schema is BY_WRITER
        else {name: "datetime" if name == "time" else "int" for name in BY_WRITER}
    )
    table = lake.tables.create_table("d", "t", columns)
    acknowledged, ready = PROCESSES.Array("q", 8), PROCESSES.Semaphore(0)
    start, stop = PROCESSES.Event(), PROCESSES.Event()
    written, read = PROCESSES.Queue(), PROCESSES.Queue()
    url = lake.catalog.url
    processes = [
        PROCESSES.Process(
            target=crowd.write, args=(url, n, count, acknowledged, ready, start, written)
        )
        for n in range(8)
    ]
    processes += [
        PROCESSES.Process(target=crowd.read, args=(url, acknowledged, ready, start, stop, read))
        for _ in range(2)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        assert ready.acquire(timeout=300)
    start.set()
    failures = [written.get(timeout=600) for _ in range(8)]
    stop.set()
    reports = [read.get(timeout=300) for _ in range(2)]
    for process in processes:
        process.join()
    assert failures == [None] * 8
    assert [problems for _, problems in reports] == [[], []]
    assert all(reads > 0 for reads, _ in reports)
    assert list(acknowledged) == [count] * 8
    result = Counter((row["writer"], row["number"], row["part"]) for row in rows_of(table))
    keyed = schema is BY_WRITER
    assert sum(result.values()) == 8 * count * 2 + keyed
    assert set(result.values()) == {1}
    sys.stdout.write(f"{8 * count} inserts; reads {[reads for reads, _ in reports]}\n")
    assert damage(lake) == []


# ---- operations that meet ------------------------------------------------------------------------


@pytest.fixture
def places(dialect: str, quick_folder: Path, request: pytest.FixtureRequest) -> Places:
    """Return the folders that lakes are copied to and from."""
    server = request.getfixturevalue("postgres_url") if dialect == "postgresql" else ""
    return Places(dialect, server, quick_folder)


@pytest.mark.parametrize("kind", KINDS)
def test_operations_that_meet_do_as_if_one_were_first(
    places: Places, dialect: str, kind: str
) -> None:
    """At moments of the first at which it holds no lock, chosen anew each time."""
    if not CAMPAIGN and dialect == "postgresql" and kind != "by id":
        pytest.skip("one kind of table on PostgreSQL; the campaign leaves nothing out")
    seed = int(os.environ.get("LAKEBED_SEED", int.from_bytes(os.urandom(4), "big")))
    sys.stdout.write(f"seed {seed}; replay with LAKEBED_SEED={seed}\n")
    rng = random.Random(seed)
    stage = Stage(places, kind)
    pairs = [
        (first, second)
        for first in OPERATIONS
        for second in OPERATIONS
        if kind != "loose" or "ignore" not in (first, second)
    ]
    choice = pairs if CAMPAIGN else [rng.choice(pairs)]
    trials = 0
    for first, second in choice:
        moments = stage.count_moments(first)
        limit = (8 if dialect == "sqlite" else 3) if CAMPAIGN else 1
        for at in rng.sample(range(1, moments + 1), min(moments, limit)):
            wrong = stage.judge(first, second, at)
            assert wrong is None, f"{second} at moment {at} of {first}: {wrong}"
            trials += 1
    sys.stdout.write(f"{trials} trials of {len(choice)} pairs\n")


def test_a_reader_keeps_its_snapshot_through_everything(new_lake: NewLake) -> None:
    """It began to read before everything was changed, folded, deleted and swept."""
    lake = new_lake(grace="0s")
    for schema in (LOOSE, BY_ID):
        table = make(lake, schema)
        for value in range(4):
            record = {"id": value, "time": NOON, "value": value}
            table.insert({n: v for n, v in record.items() if n in schema})
        with open_lake(lake.catalog.url) as other:
            twin = other.tables.get("d", table.name)
            result = twin.query(f"SELECT value FROM {table.name}")
            table.insert(
                {n: v for n, v in {"id": 9, "time": NOON, "value": 9}.items() if n in schema}
            )
            table.fold()
            table.delete_rows("value = 1")
            table.forget(value=2)
            lake.sweeper.run()
            assert sorted(result.to_arrow()["value"].to_pylist()) == [0, 1, 2, 3]
        assert values_of(table) == [0, 3, 9]


def test_folding_loses_no_insert_that_comes_meanwhile(lake: Lake) -> None:
    """Between reading and publishing; and the other way round."""
    for schema in (LOOSE, BY_ID):
        table = make(lake, schema)

        def insert(values: range, table: Any = table, schema: Any = schema) -> None:
            for value in values:
                record = {"id": value, "time": NOON, "value": value}
                table.insert({n: v for n, v in record.items() if n in schema})

        insert(range(4))
        publisher: Any = lake.tables.folder._publisher
        meanwhile(publisher, "replace_all", lambda t=insert: t(range(2, 6)), after=False)
        table.fold()
        meanwhile(publisher, "insert", table.fold, after=False)
        insert(range(7, 8))
        expected = [0, 1, 2, 3, 4, 5, 7] if schema is BY_ID else [0, 1, 2, 2, 3, 3, 4, 5, 7]
        assert values_of(table) == expected
        table.fold()
        assert values_of(table) == expected
