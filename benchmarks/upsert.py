"""Replacing 1,000 records of a million, 50 times, and then reading a day: in one bucket, and over
thirty. Folding is part of it. Three rounds: of the reads right after so many upserts the median
counts, and the first is shown, in which the process also gets the memory for them.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from functools import partial

from benchmarks.harness import Places, Result, median_ms, percentile_ms, stopwatch
from benchmarks.record_systems import (
    DAY_MS,
    FIRST_DAY,
    DeltaRecords,
    DuckRecords,
    LakebedRecords,
    Records,
    SqliteRecords,
    System,
    changes,
    records,
)

TITLE = "Replacing 1,000 of 1,000,000 records, 50 times, then reading one day"
_TARGETS = {1: (25, 200), 30: (150, 500)}
_LOAD = 100_000
_ROUNDS = 3


def run(places: Places) -> list[Result]:
    rows, size, times = (20_000, 100, 5) if places.quick else (1_000_000, 1000, 50)
    results = []
    for days, targets in _TARGETS.items():
        known = list({(e["device"], e["time"]): e for e in records(rows, days, seed=days)}.values())
        makers: list[Callable[[], System]] = [
            lambda: LakebedRecords.make(places, "sqlite"),
            lambda: LakebedRecords.make(places, "postgresql"),
            lambda: DeltaRecords(places.new_folder()),
            lambda: DuckRecords(places.new_folder()),
            lambda: SqliteRecords(places.new_folder()),
        ]
        for make in makers:
            system = make()
            results.append(_measure(system, known, days, size, times, targets))
            system.close()
    return results


def _measure(
    system: System, known: Records, days: int, size: int, times: int, targets: tuple[int, int]
) -> Result:
    for begin in range(0, len(known), _LOAD):
        system.append(known[begin : begin + _LOAD])
    if isinstance(system, DeltaRecords):  # each takes it longer than all of them take the others
        times = min(times, 10)
    expected = sum(each["time"] < FIRST_DAY + DAY_MS for each in known)

    def read() -> None:
        found = system.read_day(0)
        if found != expected:
            raise AssertionError(f"{system.name} read {found} rows of {expected}")

    read()
    os.sync()
    upserts, reads, again = [], [], []
    for round_ in range(_ROUNDS):
        for number in range(times):
            batch = changes(known, size, seed=round_ * times + number)
            upserts.append(stopwatch(partial(system.upsert, batch)))
        reads.append(stopwatch(read))
        again += [stopwatch(read) for _ in range(3)]
    few = max(1, times // 10)
    first = upserts[:times]
    figures = {
        "buckets": days,
        "upsert median ms": median_ms(upserts),
        "mean ms": statistics.mean(upserts) * 1000,
        "p99 ms": percentile_ms(upserts, 99),
        "last / first": statistics.median(first[-few:]) / statistics.median(first[:few]),
        "read after ms": median_ms(reads),
        "the first ms": reads[0] * 1000,
        "read again ms": median_ms(again),
        "rows read": expected,
    }
    if not system.name.startswith("Lakebed"):
        return Result(system.name, figures)
    return Result(
        system.name,
        figures,
        {
            f"upsert ≤ {targets[0]} ms": figures["mean ms"] <= targets[0],
            f"read ≤ {targets[1]} ms": figures["read after ms"] <= targets[1],
        },
    )
