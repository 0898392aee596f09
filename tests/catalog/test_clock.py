"""The one clock: ticks are unique, in commit order, and no snapshot gains something in its past."""

from __future__ import annotations

import uuid
from typing import Any

import sqlalchemy as sa

from lakebed.catalog import clock
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.schema import lake_clock
from tests.parts.processes import PROCESSES

WRITERS = 6
TICKS_EACH = 60


def test_ticks_rise_even_when_the_databases_clock_stands_behind(catalog: Catalog) -> None:
    tomorrow = 0
    with catalog.write() as transaction:
        tomorrow = transaction.tick + 86_400_000_000
        transaction.connection.execute(sa.update(lake_clock).values(now=tomorrow))
    seen = []
    for _ in range(3):
        with catalog.write() as transaction:
            seen.append(transaction.tick)
    assert seen == [tomorrow + 1, tomorrow + 2, tomorrow + 3]


def test_ticks_follow_the_databases_clock(catalog: Catalog) -> None:
    with catalog.write() as transaction:
        first = transaction.tick
    with catalog.read() as connection:
        assert clock.now(connection) == first
        assert clock.upcoming(connection) > first


def test_many_ticks_are_given_out_at_once(catalog: Catalog) -> None:
    with catalog.write() as transaction:
        before = transaction.tick
        transaction.connection.execute(sa.update(lake_clock).values(now=before + 10**12))
    with catalog.write(ticks=50) as transaction:
        assert transaction.tick == before + 10**12 + 50


def test_a_failed_transaction_gives_its_tick_back(catalog: Catalog) -> None:
    with catalog.read() as connection:
        before = clock.now(connection)
    try:
        with catalog.write():
            raise RuntimeError
    except RuntimeError:
        pass
    with catalog.read() as connection:
        assert clock.now(connection) == before


def _land(url: str, writer: int, start: Any) -> None:
    """Insert rows stamped with their ticks, as fast as possible."""
    catalog = Catalog(url, actor=f"writer {writer}")
    start.wait()
    for _ in range(TICKS_EACH):
        with catalog.write() as transaction:
            transaction.connection.execute(
                sa.text("INSERT INTO processes VALUES (:id, '{}', :tick)"),
                {"id": str(uuid.uuid4()), "tick": transaction.tick},
            )
    catalog.close()


def _watch(url: str, start: Any, stop: Any, result: Any) -> None:
    """Take snapshots in a loop; in the end, the past of each must be what it showed."""
    catalog = Catalog(url, actor="watcher")
    problems, snapshots = [], []
    start.wait()
    while not stop.is_set():
        with catalog.read() as connection:
            now = clock.now(connection)
            ticks = connection.scalars(sa.text("SELECT insert_time FROM processes")).all()
        if any(tick > now for tick in ticks):
            problems.append(f"a snapshot at {now} shows a later tick")
        snapshots.append((now, len(ticks)))
    with catalog.read() as connection:
        final = sorted(connection.scalars(sa.text("SELECT insert_time FROM processes")))
    for now, count in snapshots:
        at_the_end = sum(tick <= now for tick in final)
        if at_the_end != count:
            problems.append(
                f"the snapshot at {now} had {count} rows, its past now has {at_the_end}"
            )
    result.put((len(snapshots), problems[:5]))
    catalog.close()


def test_no_snapshot_gains_something_in_its_past_with_many_processes(catalog: Catalog) -> None:
    start, stop, result = PROCESSES.Event(), PROCESSES.Event(), PROCESSES.Queue()
    watchers = [
        PROCESSES.Process(target=_watch, args=(catalog.url, start, stop, result)) for _ in range(2)
    ]
    writers = [
        PROCESSES.Process(target=_land, args=(catalog.url, number, start))
        for number in range(WRITERS)
    ]
    for process in watchers + writers:
        process.start()
    start.set()
    for process in writers:
        process.join()
    stop.set()
    reports = [result.get(timeout=300) for _ in watchers]
    for process in watchers:
        process.join()
    assert all(process.exitcode == 0 for process in writers + watchers)
    assert [problems for _, problems in reports] == [[], []]
    assert all(count > 1 for count, _ in reports), "the watchers hardly looked"
    with catalog.read() as connection:
        ticks = connection.scalars(sa.text("SELECT insert_time FROM processes")).all()
    assert len(set(ticks)) == WRITERS * TICKS_EACH
