"""How long it takes to get the footers of 1,000 partitions: one snapshot, which brings all of them
out of the catalog without touching a file.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from benchmarks.harness import (
    CATALOG_NAMES,
    CATALOGS,
    EPOCH,
    MINUTE,
    Places,
    Result,
    median_ms,
    percentile_ms,
    stopwatch,
)
from lakebed.lake import Lake
from lakebed.model.view_set import ViewSet
from lakebed.writing.publish import NewPartition

TITLE = "The footers of 1,000 partitions with 25 columns, in one snapshot"
_MOST_MS = 100

WIDE = ViewSet(
    "wide",
    1,
    pa.schema(
        [
            ("time", pa.timestamp("us", "UTC")),
            *((f"measurement_calibrated_sensor_value_{i:02}", pa.float64()) for i in range(12)),
            *((f"resource_attributes_service_{i:02}", pa.string()) for i in range(12)),
        ]
    ),
    "time",
)


def wide_rows(minute: int, rows: int = 100) -> pa.Table:
    """Rows whose attributes are URLs: the footer holds the smallest and largest of each."""
    times = [EPOCH + minute * MINUTE + i * (MINUTE // rows) for i in range(rows)]
    columns: list[Sequence[object]] = [times]
    for field in list(WIDE.schema)[1:]:
        if field.type == pa.float64():
            columns.append([float(minute + i) / 7 for i in range(rows)])
        else:
            urls = (
                f"https://host-{(minute + i) % 50:03}.eu-central-1.example" for i in range(rows)
            )
            columns.append([f"{url}/services/{field.name}/instances/current" for url in urls])
    return pa.table(columns, schema=WIDE.schema)


def run(places: Places) -> list[Result]:
    count, times = (50, 5) if places.quick else (1000, 100)
    lakes = {catalog: places.new_lake(catalog) for catalog in CATALOGS}
    seconds: dict[str, list[float]] = defaultdict(list)
    footer_bytes: dict[str, list[int]] = {}
    try:
        for lake in lakes.values():
            _publish(lake, count)
        for _ in range(times):  # catalogs take turns, so that noise hits both alike
            for catalog, lake in lakes.items():
                seconds[catalog].append(stopwatch(partial(_snapshot, lake)))
        footer_bytes = {catalog: _snapshot(lake) for catalog, lake in lakes.items()}
    finally:
        for lake in lakes.values():
            lake.close()
    return [_result(each, seconds[each], footer_bytes[each]) for each in CATALOGS]


def _publish(lake: Lake, count: int) -> None:
    lake.views.register(WIDE)
    begins = [EPOCH + minute * MINUTE for minute in range(count)]
    lake.partitions.publish_many(
        [
            NewPartition.of_rows(WIDE, begin, begin + MINUTE, wide_rows(minute))
            for minute, begin in enumerate(begins)
        ]
    )


def _snapshot(lake: Lake) -> list[int]:
    with lake.partitions.snapshot(WIDE.name) as snapshot:
        stored = [snapshot.stored_footer(partition) for partition in snapshot.partitions]
    return [len(footer.metadata) for footer in stored if footer is not None]


def _result(catalog: str, seconds: list[float], footer_bytes: list[int]) -> Result:
    figures = {
        "snapshots": len(seconds),
        "footers": len(footer_bytes),
        "bytes each": sum(footer_bytes) // len(footer_bytes),
        "first ms": seconds[0] * 1000,
        "median ms": median_ms(seconds),
        "p95 ms": percentile_ms(seconds, 95),
    }
    met = figures["median ms"] <= _MOST_MS
    return Result(CATALOG_NAMES[catalog], figures, {f"median at most {_MOST_MS} ms": met})
