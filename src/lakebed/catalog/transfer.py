"""Copy a catalog's rows into another catalog, of the same or another kind of database."""

from __future__ import annotations

from collections.abc import Iterator

import sqlalchemy as sa

from lakebed.catalog.expressions import one_of
from lakebed.catalog.schema import (
    api_keys,
    blocks,
    build_failures,
    databases,
    journal,
    lake_clock,
    partition_metadata,
    partitions,
    processes,
    segments,
    series,
    streams,
    table_inserts,
    table_versions,
    tables,
    temporary_files,
    view_sets,
)
from lakebed.model.partition import FileState

_PAGE_ROWS = 2_000
_WHOLE = (
    *(processes, streams, segments, blocks, view_sets, series, build_failures, journal),
    *(databases, tables, table_versions, table_inserts, api_keys),
)
_NUMBERED = ((series, "series_id"), (journal, "entry_id"))


def is_blank(connection: sa.Connection) -> bool:
    """Return True if a catalog holds no rows."""
    return not any(
        connection.scalar(sa.select(sa.literal(1)).select_from(table).limit(1))
        for table in (*_WHOLE, partitions)
    )


def copy_rows(source: sa.Connection, target: sa.Connection, horizon: int) -> list[tuple[str, int]]:
    """Copy all rows of the lake in the source's snapshot. Return its files as (path, size).
    Reservations, leases and partitions that a sweep may take meanwhile (retired at or before the
    horizon) are not copied."""
    kept_states = (FileState.RETIRED.value, FileState.QUARANTINED.value)
    still_there = sa.or_(partitions.c.retired_at > horizon, partitions.c.held)
    retired = sa.select(partitions.c.file_path).where(still_there)
    temporary = sa.select(temporary_files).where(
        temporary_files.c.state.in_(kept_states),
        sa.or_(
            temporary_files.c.state == FileState.QUARANTINED.value,
            temporary_files.c.file_path.in_(retired),
        ),
    )
    live = sa.select(partitions.c.file_path, partitions.c.file_size).where(
        partitions.c.retired_at.is_(None), partitions.c.file_path.is_not(None)
    )
    paths = {row.file_path: row.file_size for row in source.execute(live)}
    paths |= {row.file_path: row.file_size for row in source.execute(temporary)}
    names = list(paths)
    kept_partitions = sa.select(partitions).where(
        sa.or_(
            partitions.c.retired_at.is_(None),
            sa.and_(partitions.c.file_path.is_(None), still_there),
            one_of(partitions.c.file_path, names),
        )
    )
    kept_footers = sa.select(partition_metadata).where(
        one_of(partition_metadata.c.file_path, names)
    )
    for table in _WHOLE:
        _copy(source, target, table, sa.select(table))
    _copy(source, target, partition_metadata, kept_footers)
    _copy(source, target, partitions, kept_partitions)
    _copy(source, target, temporary_files, temporary)
    clock = source.execute(sa.select(lake_clock)).one()
    target.execute(
        sa.update(lake_clock).values(
            now=clock.now,
            sweep_horizon=max(clock.sweep_horizon, horizon),
            blocks_from=clock.blocks_from,
            blocks_horizon=clock.blocks_horizon,
        )
    )
    _renumber(target)
    landed = source.execute(sa.select(segments.c.segment_path, segments.c.file_size))
    return [*paths.items(), *((row.segment_path, row.file_size) for row in landed)]


def _copy(
    source: sa.Connection,
    target: sa.Connection,
    table: sa.Table,
    query: sa.Select[tuple[object, ...]],
) -> None:
    for page in _pages(source, query):
        target.execute(sa.insert(table), page)


def _pages(
    connection: sa.Connection, query: sa.Select[tuple[object, ...]]
) -> Iterator[list[dict[str, object]]]:
    result = connection.execution_options(yield_per=_PAGE_ROWS).execute(query)
    for page in result.mappings().partitions(_PAGE_ROWS):
        yield [dict(row) for row in page]


def _renumber(connection: sa.Connection) -> None:
    """Advance the sequences of a PostgreSQL catalog past the copied numbers."""
    if connection.dialect.name != "postgresql":
        return
    for table, column in _NUMBERED:
        connection.exec_driver_sql(
            f"SELECT setval(pg_get_serial_sequence('{table.name}', '{column}'), "
            f"greatest(1, (SELECT max({column}) FROM {table.name})))"
        )
