"""A small view set and its rows: unique numbers, so that multisets can be compared."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable

import pyarrow as pa
import sqlalchemy as sa

from lakebed.lake import Lake
from lakebed.model.partition import Partition, hash_sources
from lakebed.model.time import to_instant
from lakebed.model.view_set import ViewSet

HOUR = 3600 * 1_000_000
T0 = to_instant("2026-01-01T00:00:00Z")
"""A past midnight: insert-time ranges of tests are hours from here."""

_numbers = itertools.count(1)


def readings(version: int = 1, name: str = "readings", retention_us: int | None = None) -> ViewSet:
    """The view set; every version has one column more than the one before."""
    fields = [pa.field("time", pa.timestamp("us", "UTC"), nullable=False), ("number", pa.int64())]
    fields += [(f"extra_{i}", pa.float64()) for i in range(2, version + 1)]
    return ViewSet(name, version, pa.schema(fields), "time", ("number",), retention_us)


def rows(
    count: int, hour: int = 0, version: int = 1, numbers: Iterable[int] | None = None
) -> pa.Table:
    """Rows of one hour whose numbers occur nowhere else."""
    values = list(itertools.islice(_numbers, count) if numbers is None else numbers)
    schema = readings(version).schema
    columns = {name: [0.5] * len(values) for name in schema.names if name not in ("time", "number")}
    columns["number"] = values
    columns["time"] = [T0 + hour * HOUR + i for i in range(len(values))]
    return pa.table({name: columns[name] for name in schema.names}, schema=schema)


def publish_hour(
    lake: Lake, hour: int, count: int = 3, version: int = 1, **options: object
) -> Partition:
    """One hour with some rows, or (count 0) stated as empty."""
    begin, end = T0 + hour * HOUR, T0 + (hour + 1) * HOUR
    if count == 0:
        return lake.partitions.publish_completed_empty("readings", begin, end, **options)  # type: ignore[arg-type]
    return lake.partitions.publish("readings", begin, end, rows(count, hour, version), **options)  # type: ignore[arg-type]


def publish_rebuildable_hour(lake: Lake, hour: int, count: int = 3, version: int = 1) -> Partition:
    """Publish one hour of rows beside a block that they could be built from again."""
    with lake.catalog.write() as transaction:
        transaction.connection.execute(
            sa.text(
                "INSERT INTO blocks VALUES (:id, 's', 'p', :time, NULL, NULL, 2, 'otlp', "
                ":digest, 'segment', 0, 0) ON CONFLICT DO NOTHING"
            ),
            {"id": f"block of hour {hour}", "time": T0 + hour * HOUR, "digest": b"d"},
        )
    return publish_hour(lake, hour, count, version, source_hash=hash_sources([f"hour {hour}"]))


def numbers_in(lake: Lake, name: str = "readings", as_of: int | None = None) -> Counter[int]:
    """Every number that a snapshot reads, with how often."""
    with lake.partitions.snapshot(name, as_of=as_of) as snapshot:
        return Counter(snapshot.read_all(name)["number"].to_pylist())


def stored_files(lake: Lake) -> set[str]:
    """Every file in the store but its mark."""
    return {
        found.path
        for found in lake.store.list()
        if not found.empty_folder and found.path != "lake.json"
    }
