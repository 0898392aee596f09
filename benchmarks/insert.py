"""How many records a second one process inserts in batches of 10,000 dicts, validated and durable,
into one bucket and over thirty.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from functools import partial

from benchmarks.harness import Places, Result, stopwatch
from benchmarks.record_systems import (
    DeltaRecords,
    DuckRecords,
    LakebedRecords,
    SqliteRecords,
    System,
    records,
)

TITLE = "Inserting batches of 10,000 records of six columns"
_TARGETS = {1: 300_000, 30: 100_000}


def run(places: Places) -> list[Result]:
    size, batches = (1000, 3) if places.quick else (10_000, 30)
    results = []
    for days, least in _TARGETS.items():
        makers: list[Callable[[], System]] = [
            lambda: LakebedRecords.make(places, "sqlite"),
            lambda: LakebedRecords.make(places, "postgresql"),
            lambda: DeltaRecords(places.new_folder()),
            lambda: DuckRecords(places.new_folder()),
            lambda: SqliteRecords(places.new_folder()),
        ]
        systems = [make() for make in makers]
        seconds: dict[str, list[float]] = {each.name: [] for each in systems}
        for number in range(batches + 1):  # in turns; the first batch warms up
            batch = records(size, days, seed=1000 * days + number)
            for system in systems[number % len(systems) :] + systems[: number % len(systems)]:
                os.sync()
                took = stopwatch(partial(system.append, batch))
                if number:
                    seconds[system.name].append(took)
        for system in systems:
            system.close()
        results += [_result(name, days, size, each, least) for name, each in seconds.items()]
    return results


def _result(name: str, days: int, size: int, seconds: list[float], least: int) -> Result:
    rate = size / statistics.median(seconds)
    figures = {
        "buckets": days,
        "records/s (median)": rate,
        "records/s (all)": size * len(seconds) / sum(seconds),
        "median ms": statistics.median(seconds) * 1000,
        "slowest ms": max(seconds) * 1000,
    }
    if not name.startswith("Lakebed"):
        return Result(name, figures)
    return Result(name, figures, {f"≥ {least:,}/s": rate >= least})
