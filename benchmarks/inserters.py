"""Four processes that insert batches of 100 records into one table, as fast as they can."""

from __future__ import annotations

import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from threading import Barrier

from benchmarks.harness import (
    CATALOG_NAMES,
    CATALOGS,
    Places,
    Result,
    median_ms,
    percentile_ms,
    stopwatch,
)
from benchmarks.record_systems import SCHEMA, records
from lakebed.lake import open_lake

TITLE = "Four processes, each inserting 100 records at a time into the same table"
_PROCESSES = 4
_TARGETS = {"sqlite": 250, "postgresql": 150}


def run(places: Places) -> list[Result]:
    inserts = 20 if places.quick else 500
    return [_measure(places, catalog, inserts) for catalog in CATALOGS]


def _measure(places: Places, catalog: str, inserts: int) -> Result:
    with places.new_lake(catalog) as lake:
        lake.tables.create_database("bench")
        table = lake.tables.create_table("bench", "records", SCHEMA)
        context = multiprocessing.get_context("spawn")
        with context.Manager() as manager:
            barrier = manager.Barrier(_PROCESSES)
            with ProcessPoolExecutor(_PROCESSES, mp_context=context) as pool:
                futures = [
                    pool.submit(_insert, lake.catalog.url, number, inserts, barrier)
                    for number in range(_PROCESSES)
                ]
                works = [future.result() for future in futures]
        stored = table.count()
    begin = min(work[0] for work in works)
    end = max(work[1] for work in works)
    seconds = [each for work in works for each in work[2]]
    rate = len(seconds) / (end - begin)
    expected = len(
        {
            (each["device"], each["time"])
            for process in range(_PROCESSES)
            for number in range(inserts)
            for each in records(100, 1, _seed(process, number))
        }
    )
    least = _TARGETS[catalog]
    return Result(
        f"Lakebed on {CATALOG_NAMES[catalog]}",
        {
            "inserts": len(seconds),
            "inserts/s": rate,
            "median ms": median_ms(seconds),
            "p99 ms": percentile_ms(seconds, 99),
            "rows": stored,
        },
        {f"≥ {least}/s": rate >= least, "no row lost": stored == expected},
    )


def _insert(
    url: str, process: int, inserts: int, barrier: Barrier
) -> tuple[float, float, list[float]]:
    with open_lake(url) as lake:
        table = lake.tables.get("bench", "records")
        batches = [records(100, 1, _seed(process, number)) for number in range(inserts)]
        barrier.wait(120)
        begin = time.monotonic()
        seconds = [stopwatch(partial(table.insert, batch)) for batch in batches]
        return begin, time.monotonic(), seconds


def _seed(process: int, number: int) -> int:
    return 10_000 * process + number
