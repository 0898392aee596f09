"""How long sweeping 1,000 retired files takes, and how much of that the catalog is busy, because
nothing else can commit meanwhile.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass

from benchmarks.harness import (
    CATALOG_NAMES,
    CATALOGS,
    EPOCH,
    MINUTE,
    READINGS,
    Places,
    Result,
    readings,
    stopwatch,
)
from lakebed.lake import Lake
from lakebed.lifecycle.sweep import SweepResult
from lakebed.writing.publish import NewPartition

TITLE = "Sweeping 1,000 retired files"
_MOST_MS = 200


@dataclass(frozen=True, slots=True)
class Sweep:
    """What one sweep did and how long it took altogether."""

    result: SweepResult
    seconds: float


def run(places: Places) -> list[Result]:
    count, rounds = (50, 2) if places.quick else (1000, 7)
    lakes = {catalog: places.new_lake(catalog, grace="0s") for catalog in CATALOGS}
    sweeps: dict[str, list[Sweep]] = defaultdict(list)
    try:
        for lake in lakes.values():
            lake.views.register(READINGS)
        for _ in range(rounds):  # catalogs take turns, so that noise hits both alike
            for catalog, lake in lakes.items():
                _retire(lake, count)
                sweeps[catalog].append(_sweep(lake))
    finally:
        for lake in lakes.values():
            lake.close()
    return [_result(catalog, sweeps[catalog]) for catalog in CATALOGS]


def _retire(lake: Lake, count: int) -> None:
    rows = readings(0, rows=100)
    begins = [EPOCH + minute * MINUTE for minute in range(count)]
    lake.partitions.publish_many(
        [NewPartition.of_rows(READINGS, begin, begin + MINUTE, rows) for begin in begins]
    )
    lake.retirement.retire_partitions(
        READINGS.name, begins[0], begins[-1] + MINUTE, confirmed=[READINGS.name]
    )


def _sweep(lake: Lake) -> Sweep:
    results: list[SweepResult] = []
    seconds = stopwatch(lambda: results.append(lake.sweeper.run()))
    return Sweep(results[0], seconds)


def _result(catalog: str, sweeps: list[Sweep]) -> Result:
    busy = [each.result.catalog_seconds * 1000 for each in sweeps]
    figures = {
        "sweeps": len(sweeps),
        "files each": round(statistics.mean(each.result.files for each in sweeps)),
        "catalog ms": statistics.median(busy),
        "slowest": max(busy),
        "total ms": statistics.median(each.seconds * 1000 for each in sweeps),
    }
    met = figures["catalog ms"] <= _MOST_MS
    return Result(CATALOG_NAMES[catalog], figures, {f"catalog at most {_MOST_MS} ms": met})
