"""Lists of partitions for people, and the state of a range, read without decoding every row,
because there may be hundreds of thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import sqlalchemy as sa

from lakebed.catalog import clock
from lakebed.catalog.lookups.partition_search import is_live
from lakebed.catalog.schema import blocks
from lakebed.catalog.schema import partitions as table
from lakebed.model.partition import NO_SOURCE
from lakebed.model.time import TimeRange
from lakebed.model.view_set import GLOBAL

_LISTED = (
    table.c.view_set_name,
    table.c.view_instance_id,
    table.c.begin_insert_time,
    table.c.end_insert_time,
    table.c.min_event_time,
    table.c.max_event_time,
    table.c.published_at,
    table.c.file_path,
    table.c.file_size,
    table.c.file_schema_hash,
    table.c.source_data_hash,
    table.c.num_rows,
    table.c.partition_format_version,
    table.c.sort_order,
    table.c.partition_id,
)


def list_columns(
    connection: sa.Connection, view_sets: Sequence[str] | None = None, as_of: int | None = None
) -> list[Sequence[Any]]:
    """Live partitions of these view sets or of all, now or at a past tick, by identity, column by
    column: as `list_partitions()` of SQL has them."""
    query = sa.select(*_LISTED).where(is_live(as_of))
    if view_sets is not None:
        query = query.where(table.c.view_set_name.in_(list(view_sets)))
    query = query.order_by(
        table.c.view_set_name,
        table.c.view_instance_id,
        table.c.begin_insert_time,
        table.c.end_insert_time,
        table.c.file_schema_hash,
    )
    columns: list[Sequence[Any]] = list(zip(*connection.execute(query).all(), strict=True))
    if not columns:
        return [()] * len(_LISTED)
    sort_order_index = _LISTED.index(table.c.sort_order)
    sort_orders = {text: msgspec.json.decode(text) for text in set(columns[sort_order_index])}
    columns[sort_order_index] = [sort_orders[text] for text in columns[sort_order_index]]
    return columns


@dataclass(frozen=True, slots=True)
class Stretch:
    """Insert times that one partition covers, or several live ones which follow each other and
    are all empty or all not; its id is that of the first. Of a user's table, the times of its rows.
    """

    within: TimeRange
    schema_hash: bytes
    num_rows: int
    partition_id: str
    retired_at: int | None = None
    held: bool = False
    is_frozen: bool = False
    """True if its rows cannot be built again: the blocks are gone, or it was not built from blocks.
    """
    replaced: bool = False
    """True if other partitions replaced it, or its rows were deleted."""

    @property
    def is_empty(self) -> bool:
        return self.num_rows == 0


def list_stretches(
    connection: sa.Connection, view_set: str, within: TimeRange, tick: int
) -> tuple[list[Stretch], list[Stretch]]:
    """Return what a view set's global instance had in a range at a tick: what was live, and what
    was retired and not swept yet."""
    query = (
        sa.select(
            table.c.begin_insert_time,
            table.c.end_insert_time,
            table.c.file_schema_hash,
            table.c.num_rows,
            table.c.partition_id,
            table.c.retired_at,
            table.c.held,
            _is_frozen(clock.blocks_from(connection)),
        )
        .where(
            table.c.view_set_name == view_set,
            table.c.view_instance_id == GLOBAL,
            table.c.begin_insert_time < within.end,
            table.c.end_insert_time > within.begin,
            table.c.published_at <= tick,
        )
        .order_by(table.c.file_schema_hash, table.c.begin_insert_time)
    )
    live: list[Stretch] = []
    gone = []
    for row in connection.execute(query):
        begin, end, schema_hash, num_rows, partition_id, retired_at, held, is_frozen = row
        stretch = Stretch(
            TimeRange(begin, end),
            bytes(schema_hash),
            num_rows,
            partition_id,
            is_frozen=bool(is_frozen),
        )
        if retired_at is not None and retired_at <= tick:
            gone.append(replace(stretch, retired_at=retired_at, held=bool(held)))
        elif live and _continues(live[-1], stretch):
            last = live[-1]
            live[-1] = replace(
                last,
                within=TimeRange(last.within.begin, end),
                num_rows=last.num_rows + num_rows,
            )
        else:
            live.append(stretch)
    return live, gone


def _continues(last: Stretch, stretch: Stretch) -> bool:
    same = (last.schema_hash, last.is_empty, last.is_frozen)
    return last.within.end == stretch.within.begin and same == (
        stretch.schema_hash,
        stretch.is_empty,
        stretch.is_frozen,
    )


def list_table_stretches(
    connection: sa.Connection, stored_as: str, within: TimeRange, tick: int
) -> tuple[list[Stretch], list[Stretch]]:
    """Return the times of a table's rows in a range at a tick: of live partitions, and of those
    that were retired and not swept yet."""
    query = (
        sa.select(
            table.c.min_event_time,
            table.c.max_event_time,
            table.c.file_schema_hash,
            table.c.num_rows,
            table.c.partition_id,
            table.c.retired_at,
            table.c.held,
            table.c.replaced,
        )
        .where(
            table.c.view_set_name == stored_as,
            table.c.min_event_time < within.end,
            table.c.max_event_time >= within.begin,
            table.c.published_at <= tick,
        )
        .order_by(table.c.min_event_time, table.c.partition_id)
    )
    live, gone = [], []
    for (
        first,
        last,
        schema_hash,
        num_rows,
        partition_id,
        retired_at,
        held,
        replaced,
    ) in connection.execute(query):
        stretch = Stretch(
            TimeRange(first, last + 1), bytes(schema_hash), num_rows, partition_id, is_frozen=True
        )
        if retired_at is None or retired_at > tick:
            live.append(stretch)
        else:
            gone.append(
                replace(stretch, retired_at=retired_at, held=bool(held), replaced=bool(replaced))
            )
    return live, gone


def list_frozen(
    connection: sa.Connection, view_set: str, schema_hash: bytes, as_of: int | None = None
) -> list[TimeRange]:
    """Return the insert ranges of partitions of other schemas that have rows and cannot be built
    again."""
    query = (
        sa.select(table.c.begin_insert_time, table.c.end_insert_time)
        .where(
            is_live(as_of),
            table.c.view_set_name == view_set,
            table.c.view_instance_id == GLOBAL,
            table.c.file_schema_hash != schema_hash,
            table.c.num_rows > 0,
            _is_frozen(clock.blocks_from(connection)),
        )
        .order_by(table.c.begin_insert_time)
    )
    return [TimeRange(begin, end) for begin, end in connection.execute(query)]


def _is_frozen(blocks_from: int) -> sa.ColumnElement[bool]:
    """Return the condition on partitions that `blocks.list_rebuildable` leaves out."""
    is_frozen = sa.or_(
        table.c.begin_insert_time < blocks_from,
        table.c.source_data_hash == NO_SOURCE,
        sa.not_(sa.exists(sa.select(blocks.c.block_id))),
    )
    return sa.and_(table.c.num_rows > 0, is_frozen)
