"""How long the catalog takes to find the partitions with events in some hour, when it holds a
million of them. A few span a month, so that no bound on a partition's length helps.
"""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass

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
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.lookups import partition_search
from lakebed.catalog.lookups.partition_search import PartitionFilter
from lakebed.model.time import TimeRange

TITLE = "Finding the partitions of a random hour of events among 1,000,000"
_HOUR = 60 * MINUTE
_MOST_MS = 10
_LONGEST_SECONDS = 120
"""A catalog that takes longer for its queries answers fewer of them."""


@dataclass(slots=True)
class Case:
    """One loaded catalog and what its queries took."""

    name: str
    catalog: Catalog
    partitions: int
    seconds: list[float]
    found: list[int]

    def query(self, rng: random.Random) -> None:
        begin = EPOCH + rng.randrange(max(1, self.partitions - 60)) * MINUTE
        wanted = PartitionFilter(
            view_sets=[(READINGS.name, [READINGS.schema_hash])],
            events=TimeRange(begin, begin + _HOUR),
        )
        self.seconds.append(stopwatch(lambda: self._search(wanted)))

    def _search(self, wanted: PartitionFilter) -> None:
        with self.catalog.read() as connection:
            self.found.append(len(partition_search.search(connection, wanted)))


def run(places: Places) -> list[Result]:
    count, queries = (20_000, 50) if places.quick else (1_000_000, 1000)
    cases = [_load(places, catalog, count) for catalog in CATALOGS]
    rng = random.Random(count)
    for _ in range(queries):  # catalogs take turns, so that noise hits both alike
        for case in cases:
            if sum(case.seconds) < _LONGEST_SECONDS:
                case.query(rng)
    for case in cases:
        case.catalog.close()
    return [_result(case) for case in cases]


def _load(places: Places, catalog: str, count: int) -> Case:
    lake = places.new_lake(catalog)
    lake.views.register(READINGS)
    bulk_load.load(lake.catalog, count)
    return Case(CATALOG_NAMES[catalog], lake.catalog, count, [], [])


def _result(case: Case) -> Result:
    p99 = percentile_ms(case.seconds, 99)
    figures = {
        "partitions": case.partitions,
        "queries": len(case.seconds),
        "found": round(statistics.median(case.found)),
        "median ms": median_ms(case.seconds),
        "p95 ms": percentile_ms(case.seconds, 95),
        "p99 ms": p99,
    }
    return Result(case.name, figures, {f"p99 at most {_MOST_MS} ms": p99 <= _MOST_MS})
