"""The data for a map of the whole lake, read without decoding every column: pieces of insert time
with their state, the landed blocks, and the journal entries of one partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from lakebed.catalog import journal as entries
from lakebed.catalog.expressions import one_of
from lakebed.catalog.schema import blocks, journal
from lakebed.catalog.schema import partitions as table
from lakebed.model.time import TimeRange


class Piece(NamedTuple):
    """One partition, live or retired."""

    view_set: str
    begin: int
    end: int
    schema_hash: bytes
    num_rows: int
    file_size: int
    partition_id: str
    published_at: int
    retired_at: int | None
    replaced: bool


def list_pieces(connection: sa.Connection, within: TimeRange | None = None) -> list[Piece]:
    """Return the live and retired partitions that touch a range of insert time, or all."""
    query = sa.select(
        table.c.view_set_name,
        table.c.begin_insert_time,
        table.c.end_insert_time,
        table.c.file_schema_hash,
        table.c.num_rows,
        table.c.file_size,
        table.c.partition_id,
        table.c.published_at,
        table.c.retired_at,
        table.c.replaced,
    ).order_by(table.c.view_set_name, table.c.begin_insert_time, table.c.published_at)
    if within is not None:
        query = query.where(
            table.c.begin_insert_time < within.end, table.c.end_insert_time > within.begin
        )
    return [
        Piece(row[0], row[1], row[2], bytes(row[3]), *row[4:9], bool(row[9]))
        for row in connection.execute(query)
    ]


def list_merges(connection: sa.Connection) -> set[tuple[str, int]]:
    """Return the view sets and ticks at which partitions were published in place of others."""
    query = (
        sa.select(journal.c.view_set_name, journal.c.tick)
        .where(journal.c.operation.in_(["replace", entries.FOLDED]))
        .distinct()
    )
    return {(row[0], row[1]) for row in connection.execute(query)}


def list_landed(connection: sa.Connection, within: TimeRange) -> list[tuple[int, str]]:
    """Return the insert times and encodings of the blocks of a range, in order."""
    query = (
        sa.select(blocks.c.insert_time, blocks.c.encoding)
        .where(blocks.c.insert_time >= within.begin, blocks.c.insert_time < within.end)
        .order_by(blocks.c.insert_time)
    )
    return [(row[0], row[1]) for row in connection.execute(query)]


def name_blocks(
    connection: sa.Connection, insert_times: Sequence[int]
) -> dict[int, tuple[str, str]]:
    """Return the ids and encodings of the blocks that landed at these instants."""
    query = sa.select(blocks.c.insert_time, blocks.c.block_id, blocks.c.encoding).where(
        one_of(blocks.c.insert_time, insert_times)
    )
    return {row[0]: (row[1], row[2]) for row in connection.execute(query)}


def find_extent(connection: sa.Connection) -> TimeRange | None:
    """Return the range from the first to the last insert time of all blocks and partitions."""
    lows, highs = [], []
    for low, high in (
        (table.c.begin_insert_time, table.c.end_insert_time),
        (blocks.c.insert_time, blocks.c.insert_time + 1),
    ):
        row = connection.execute(sa.select(sa.func.min(low), sa.func.max(high))).one()
        if row[0] is not None:
            lows.append(int(row[0]))
            highs.append(int(row[1]))
    return TimeRange(min(lows), max(highs)) if lows else None


def list_told(
    connection: sa.Connection, partition_id: str, limit: int
) -> Sequence[tuple[int, str, str, str | None]]:
    """Return the journal entries of one partition, newest first: tick, operation, actor, reason."""
    query = (
        sa.select(journal.c.tick, journal.c.operation, journal.c.actor, journal.c.reason)
        .where(journal.c.partition_id == partition_id)
        .order_by(journal.c.entry_id.desc())
        .limit(limit)
    )
    return [(row[0], row[1], row[2], row[3]) for row in connection.execute(query)]
