"""The insert times that are built: runs of adjacent partitions, found in the index alone. Queries
decode the times that no run covers themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from lakebed.catalog.journal import QUIET
from lakebed.catalog.lookups.partition_search import is_live
from lakebed.catalog.schema import build_failures, journal, lake_clock, leases, series
from lakebed.catalog.schema import partitions as table
from lakebed.model.time import TimeRange
from lakebed.model.view_set import GLOBAL


@dataclass(frozen=True, slots=True)
class Run:
    """Partitions of one series without a gap between them. Held ones are invisible, but their range
    counts as covered."""

    view_set: str
    schema_hash: bytes
    covered: TimeRange
    held: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """The state of a lake, read in one statement."""

    since: int
    tick: int
    last: int
    """The last entry of its journal."""
    changed: bool
    """True if view sets changed after the entry ``since``: partitions were added or removed."""
    leased: bool
    """True if the lease exists."""
    has_failures: bool
    """True if any block could not be built."""


_LOOK = sa.select(
    sa.select(lake_clock.c.now).scalar_subquery(),
    sa.exists(sa.select(leases.c.lease_id).where(leases.c.lease_id == sa.bindparam("lease_id"))),
    sa.select(sa.func.min(journal.c.entry_id)).scalar_subquery(),
    sa.select(sa.func.max(journal.c.entry_id)).scalar_subquery(),
    sa.exists(
        sa.select(journal.c.entry_id).where(
            journal.c.entry_id > sa.bindparam("since", type_=sa.BigInteger),
            journal.c.operation.not_in(QUIET),
        )
    ),
    sa.exists(sa.select(build_failures.c.block_id)),
)


def look(connection: sa.Connection, since: int, lease_id: str | None = None) -> Look:
    """Return the state of the lake, compared with tick `since` of the journal."""
    parameters = {"since": since, "lease_id": lease_id or ""}
    tick, leased, first, last, changed, failed = connection.execute(_LOOK, parameters).one()
    if since == 0 or first is None or first > since:
        changed = True
    return Look(since, tick or 0, last or 0, bool(changed), bool(leased), bool(failed))


def list_runs(
    connection: sa.Connection, view_sets: Sequence[str], as_of: int | None = None
) -> list[Run]:
    """The runs of these view sets, of any schema, now or at a past tick."""
    in_view_sets = sa.and_(
        series.c.view_set_name.in_(list(view_sets)), series.c.view_instance_id == GLOBAL
    )
    before = sa.func.lag(table.c.end_insert_time).over(
        partition_by=table.c.series_id, order_by=table.c.begin_insert_time
    )
    behind = sa.func.lead(table.c.begin_insert_time).over(
        partition_by=table.c.series_id, order_by=table.c.begin_insert_time
    )
    neighbours = (
        sa.select(
            table.c.series_id,
            table.c.begin_insert_time.label("begin"),
            table.c.end_insert_time.label("end"),
            before.label("before"),
            behind.label("behind"),
        )
        .where(
            is_live(as_of), table.c.series_id.in_(sa.select(series.c.series_id).where(in_view_sets))
        )
        .subquery()
    )
    begins = neighbours.c.before.is_(None) | (neighbours.c.before != neighbours.c.begin)
    ends = neighbours.c.behind.is_(None) | (neighbours.c.behind != neighbours.c.end)
    edges = (
        sa.select(
            series.c.view_set_name,
            series.c.file_schema_hash,
            neighbours.c.series_id,
            neighbours.c.begin,
            neighbours.c.end,
            begins.label("begins"),
            ends.label("ends"),
        )
        .join(series, series.c.series_id == neighbours.c.series_id)
        .where(begins | ends)
        .order_by(neighbours.c.series_id, neighbours.c.begin)
    )
    runs = []
    begin = 0
    for row in connection.execute(edges):
        if row.begins:
            begin = row.begin
        if row.ends:
            runs.append(
                Run(row.view_set_name, bytes(row.file_schema_hash), TimeRange(begin, row.end))
            )
    held = sa.select(
        table.c.view_set_name,
        table.c.file_schema_hash,
        table.c.begin_insert_time,
        table.c.end_insert_time,
    ).where(
        table.c.held, table.c.view_set_name.in_(list(view_sets)), table.c.view_instance_id == GLOBAL
    )
    for name, schema_hash, low, high in connection.execute(held):
        runs.append(Run(name, bytes(schema_hash), TimeRange(low, high), held=True))
    return runs
