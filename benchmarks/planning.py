"""What a statement costs before it reads anything: planning an hour in a lake of 200,000
partitions, and a statement that meets only empty ones.
"""

from __future__ import annotations

import random

from benchmarks import bulk_load
from benchmarks.harness import (
    CATALOG_NAMES,
    CATALOGS,
    EPOCH,
    MINUTE,
    READINGS,
    Places,
    Result,
    median_ms,
    percentile_ms,
    stopwatch,
)
from lakebed.lake import Lake
from lakebed.model.time import format_instant
from lakebed.query.embedded.engine import Engine, Resources

TITLE = "Planning an hour among 200,000 partitions, and reading only empty ones"
_HOUR = 60 * MINUTE
_MOST_PLAN_MS, _MOST_EMPTY_MS = 50, 5


def run(places: Places) -> list[Result]:
    partitions, times = (5000, 5) if places.quick else (200_000, 200)
    results = []
    for catalog in CATALOGS:
        with places.new_lake(catalog) as lake:
            lake.views.register(READINGS)
            bulk_load.load(lake.catalog, partitions)
            results.append(_plan(lake, CATALOG_NAMES[catalog], partitions, times))
        with places.new_lake(catalog) as lake:
            results.append(_empty(lake, CATALOG_NAMES[catalog], times))
    return results


def _plan(lake: Lake, name: str, partitions: int, times: int) -> Result:
    """From the text to the list of files: everything but opening them, which do not exist."""
    engine = Engine(lake.store, Resources(1 << 30, 1 << 30))
    taker = lake.queries._taker
    rng = random.Random(7)
    found = []

    def plan() -> None:
        begin = EPOCH + rng.randrange(partitions - 60) * MINUTE
        sql = (
            "SELECT device, avg(celsius) FROM readings "
            f"WHERE time >= '{format_instant(begin)}' AND time < '{format_instant(begin + _HOUR)}' "
            "GROUP BY device"
        )
        with taker.begin() as beginning:
            analysis = engine.analyse(sql, beginning.list_tables(sql))
            snapshot = beginning.take(analysis.scans)
        found.append(len(snapshot.tables["readings"].files))
        snapshot.close()

    first = stopwatch(plan)
    seconds = [stopwatch(plan) for _ in range(times)]
    median = median_ms(seconds)
    return Result(
        f"plan, {name}",
        {
            "partitions": partitions,
            "found": sum(found) / len(found),
            "first ms": first * 1000,
            "median ms": median,
            "p95 ms": percentile_ms(seconds, 95),
        },
        {f"median ≤ {_MOST_PLAN_MS} ms": median <= _MOST_PLAN_MS},
    )


def _empty(lake: Lake, name: str, times: int) -> Result:
    lake.views.register(READINGS)
    for number in range(50):
        begin = EPOCH + number * MINUTE
        lake.partitions.publish_completed_empty("readings", begin, begin + MINUTE)
    sql = "SELECT count(*) AS n FROM readings WHERE time > '2020-01-01'"
    lake.query(sql).to_arrow()
    seconds = [stopwatch(lambda: lake.query(sql).to_arrow()) for _ in range(times)]
    median = median_ms(seconds)
    return Result(
        f"only empty ones, {name}",
        {"partitions": 50, "found": 0, "median ms": median, "p95 ms": percentile_ms(seconds, 95)},
        {f"median ≤ {_MOST_EMPTY_MS} ms": median <= _MOST_EMPTY_MS},
    )
