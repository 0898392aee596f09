"""Shared by the tests of users' tables: a few small tables, and the verbs that remove data."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from lakebed.catalog.schema import lake_clock
from lakebed.lake import Lake
from lakebed.lifecycle.check import Finding, Level, Severity
from lakebed.lifecycle.sweep import LeaseObserver, Sweeper, SweepResult
from lakebed.model.partition import Partition
from lakebed.tables.table import Table

HOUR_US = 3600 * 1_000_000
NOON = "2026-03-02T12:00:00Z"

BY_TIME = {
    "device": {"type": "string", "unique": True},
    "time": {"type": "datetime", "unit": "us", "unique": True},
    "value": "int",
    "note": "string",
}
"""Every version of a row is in the same bucket."""

BY_ID = {
    "id": {"type": "int", "unique": True},
    "time": {"type": "datetime", "unit": "us"},
    "value": "int",
    "note": "string",
}
"""A row may move from bucket to bucket."""

LOOSE = {"time": {"type": "datetime", "unit": "us"}, "value": "int", "note": "string"}
"""Without a key."""

_names = itertools.count(1)


def make(lake: Lake, schema: Any = None, bucket: str = "day", **options: Any) -> Table:
    """A new table in the database ``d``."""
    if "d" not in lake.tables.list_databases():
        lake.tables.create_database("d")
    name = f"t{next(_names)}"
    return lake.tables.create_table(
        "d", name, BY_ID if schema is None else schema, bucket, **options
    )


def rows_of(table: Table, where: str = "true", **options: Any) -> list[dict[str, Any]]:
    """The rows for which a condition is true, in no particular order."""
    sql = f"SELECT * FROM {table.name} WHERE {where}"
    result: list[dict[str, Any]] = table.query(sql, **options).to_arrow().to_pylist()
    return result


def values_of(table: Table, where: str = "true", **options: Any) -> list[int]:
    """The column ``value`` of those rows, sorted."""
    return sorted(row["value"] for row in rows_of(table, where, **options))


def retire(lake: Lake, partition: Partition, *, hold: bool = False) -> None:
    """Take one partition out of sight by its identity."""
    lake.retirement.retire_partition_by_metadata(
        partition.view_set,
        partition.instance,
        partition.insert_range.begin,
        partition.insert_range.end,
        partition.schema_hash,
        hold=hold,
        confirmed=[partition.view_set],
    )


def partitions_of(lake: Lake, table: Table) -> list[Partition]:
    """Every partition of a table, retired ones too, by insert time; always in the same order."""
    name = table.definition.stored_as
    partitions = lake.partitions.list_partitions(include_retired=True)
    own_partitions = [partition for partition in partitions if partition.view_set == name]
    return sorted(
        own_partitions,
        key=lambda partition: (
            partition.insert_range.begin,
            partition.published_at,
            partition.instance,
        ),
    )


def jump(lake: Lake, by_us: int) -> None:
    """Let the lake's clock go forward."""
    with lake.catalog.write() as transaction:
        transaction.connection.execute(sa.update(lake_clock).values(now=lake_clock.c.now + by_us))


def sweep(lake: Lake, *, leases_die: bool = False) -> SweepResult:
    """Delete what may be deleted; every process may be taken for dead before."""
    seconds = 0.0
    sweeper = Sweeper(lake.catalog, lake.store, observer=LeaseObserver(lambda: seconds))
    sweeper.plan()
    if leases_die:
        seconds = 1e9
    else:
        lake.leases.beat()  # lets go of what nobody reads any more
    return sweeper.run()


def sweep_all(lake: Lake) -> None:
    """Delete everything that is condemned, its grace period over."""
    jump(lake, 1000 * HOUR_US)
    sweep(lake)


def damage(lake: Lake) -> list[Finding]:
    """Return the damage that `check` finds, down to the last page."""
    return [
        finding
        for finding in lake.checker.run(Level.PAGES).findings
        if finding.severity is not Severity.NOTE and finding.kind != "overdue file"
    ]


def meanwhile(owner: Any, name: str, happens: Callable[[], object], *, after: bool = True) -> None:
    """Let something happen, once, right after (or before) the next call of a method."""
    original = getattr(owner, name)
    done = False

    def call(*args: Any, **options: Any) -> Any:
        nonlocal done
        if not after and not done:
            done = True
            happens()
        result = original(*args, **options)
        if after and not done:
            done = True
            happens()
        return result

    setattr(owner, name, call)
