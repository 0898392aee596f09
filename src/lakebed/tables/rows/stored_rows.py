"""Rows of users' tables as they are stored: with the system columns, and by bucket. Spark executors
use this module too, so it must not need a catalog.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.model.tables.table import DELETED, VERSION, UserTable
from lakebed.storage import parquet

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TableRows:
    """Rows for one table, as it stores them, of any number of buckets; or none."""

    table: UserTable
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one bucket, in the table's types and order."""

    table: UserTable
    instance: str
    rows: pa.Table


def as_stored(rows: pa.Table, table: UserTable) -> pa.Table:
    """Return validated rows with the system columns; NULL versions mean that of the insert."""
    import pyarrow as pa

    for name in (VERSION, DELETED):
        if name in table.view_set.schema.names:
            kind = table.view_set.schema.field(name).type
            rows = rows.append_column(pa.field(name, kind), pa.nulls(rows.num_rows, kind))
    return rows


def split_rows(table_rows: TableRows) -> Iterator[Part]:
    """Yield the rows of each bucket."""
    import pyarrow.compute as pc

    table = table_rows.table
    if not table_rows.rows.num_rows:
        return
    rows = parquet.conform(table_rows.rows, table.view_set)
    times = rows[table.time_column]
    bounds = pc.min_max(times.cast("int64")).as_py()
    first, last = (table.bucket.name_of(bounds[edge]) for edge in ("min", "max"))
    if first == last:
        yield Part(table, first, rows)
        return
    names = table.bucket.name_all(times)
    order = pc.sort_indices(names)
    runs = pc.run_end_encode(names.take(order))
    rows = rows.take(order)
    begin = 0
    for name, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
        yield Part(table, name, rows.slice(begin, end - begin))
        begin = end
