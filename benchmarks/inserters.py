"""Four processes that insert batches of 100 records into one table, as fast as they can, and other
systems that do the same. DuckDB lets one process in: there it is four threads.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from threading import Barrier

from benchmarks.harness import CATALOGS, Places, Result, median_ms, percentile_ms, stopwatch
from benchmarks.record_systems import (
    DeltaRecords,
    DuckRecords,
    LakebedRecords,
    Records,
    SqliteRecords,
    System,
    records,
)

TITLE = "Four processes, each inserting 100 records at a time into the same table"
_WRITERS = 4
_TARGETS = {"Lakebed on SQLite": 250, "Lakebed on PostgreSQL": 150}
Open = Callable[[], System]


@dataclass(frozen=True, slots=True)
class Work:
    """What one writer did."""

    begin: float
    end: float
    seconds: list[float]
    repeats: int


def run(places: Places) -> list[Result]:
    inserts = 20 if places.quick else 500
    results = []
    for catalog in CATALOGS:
        lake = LakebedRecords.make(places, catalog)
        opened = partial(LakebedRecords.open, lake.lake.catalog.url)
        results.append(_measure(lake, opened, inserts))
    folders = [places.new_folder() for _ in range(4)]
    appended, merged = DeltaRecords(folders[0]), DeltaRecords(folders[1])
    for each, name in ((appended, "append, no keys"), (merged, "merge")):
        each.name = f"deltalake ({name})"
        each.append([])  # four that make the table at once would be in each other's way
    results.append(_measure(appended, partial(DeltaRecords, folders[0]), inserts, keyed=False))
    # Each merge takes it longer than many inserts take the others.
    results.append(_measure(merged, partial(DeltaRecords, folders[1]), inserts // 10))
    results.append(_measure(SqliteRecords(folders[2]), partial(SqliteRecords, folders[2]), inserts))
    duck = DuckRecords(folders[3])
    duck.name = "DuckDB (one process, four threads)"
    results.append(_measure(duck, partial(DuckRecords, folders[3]), inserts, threads=True))
    return results


def _measure(
    system: System, opened: Open, inserts: int, *, keyed: bool = True, threads: bool = False
) -> Result:
    works = _work_at_once(opened, inserts, keyed=keyed, threads=threads)
    stored = system.read_day(0)
    system.close()
    seconds = [each for work in works for each in work.seconds]
    rate = len(seconds) / (max(work.end for work in works) - min(work.begin for work in works))
    sent = [
        (each["device"], each["time"])
        for writer in range(_WRITERS)
        for batch in _batches(writer, inserts)
        for each in batch
    ]
    targets = {"no row lost": stored == (len(set(sent)) if keyed else len(sent))}
    least = _TARGETS.get(system.name)
    if least is not None:
        targets[f"≥ {least}/s"] = rate >= least
    return Result(
        system.name,
        {
            "inserts": len(seconds),
            "inserts/s": rate,
            "median ms": median_ms(seconds),
            "p99 ms": percentile_ms(seconds, 99),
            "repeats": sum(work.repeats for work in works),
            "rows": stored,
        },
        targets,
    )


def _work_at_once(opened: Open, inserts: int, *, keyed: bool, threads: bool) -> list[Work]:
    def collect(pool: Executor, barrier: Barrier) -> list[Work]:
        futures = [
            pool.submit(_insert, opened, number, inserts, keyed, barrier)
            for number in range(_WRITERS)
        ]
        return [future.result() for future in futures]

    if threads:
        with ThreadPoolExecutor(_WRITERS) as pool:
            return collect(pool, Barrier(_WRITERS))
    context = multiprocessing.get_context("spawn")
    with (
        context.Manager() as manager,
        ProcessPoolExecutor(_WRITERS, mp_context=context) as processes,
    ):
        return collect(processes, manager.Barrier(_WRITERS))


def _insert(opened: Open, writer: int, inserts: int, keyed: bool, barrier: Barrier) -> Work:
    system = opened()
    insert = system.upsert if keyed else system.append
    batches = _batches(writer, inserts)
    repeats = 0

    def until_done(batch: Records) -> None:
        nonlocal repeats
        while True:
            try:
                return insert(batch)
            except system.conflicts:
                repeats += 1

    barrier.wait(120)
    begin = time.monotonic()
    seconds = [stopwatch(partial(until_done, batch)) for batch in batches]
    end = time.monotonic()
    system.close()
    return Work(begin, end, seconds, repeats)


def _batches(writer: int, inserts: int) -> list[Records]:
    return [records(100, 1, 10_000 * writer + number) for number in range(inserts)]
