"""Partitions as rows for people: what is listed, and what is known of a range, read without making
a value of every row, because there may be hundreds of thousands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import sqlalchemy as sa

from lakebed.catalog.schema import partitions as table
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
    query = sa.select(*_LISTED).where(*_live_at(as_of))
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
    place = _LISTED.index(table.c.sort_order)
    known = {text: msgspec.json.decode(text) for text in set(columns[place])}
    columns[place] = [known[text] for text in columns[place]]
    return columns


@dataclass(frozen=True, slots=True)
class Stretch:
    """Insert times that one partition covers, or several live ones which follow each other and
    are all empty or all not; its id is that of the first."""

    within: TimeRange
    schema_hash: bytes
    num_rows: int
    partition_id: str
    retired_at: int | None = None
    held: bool = False

    @property
    def is_empty(self) -> bool:
        return self.num_rows == 0


def list_stretches(
    connection: sa.Connection, view_set: str, within: TimeRange, tick: int
) -> tuple[list[Stretch], list[Stretch]]:
    """What a view set's global instance had in a range at a tick: what was live, and what was
    retired and not swept yet."""
    rows = connection.execute(
        sa.select(
            table.c.begin_insert_time,
            table.c.end_insert_time,
            table.c.file_schema_hash,
            table.c.num_rows,
            table.c.partition_id,
            table.c.retired_at,
            table.c.held,
        )
        .where(
            table.c.view_set_name == view_set,
            table.c.view_instance_id == GLOBAL,
            table.c.begin_insert_time < within.end,
            table.c.end_insert_time > within.begin,
            table.c.published_at <= tick,
        )
        .order_by(table.c.file_schema_hash, table.c.begin_insert_time)
    ).all()
    live: list[Stretch] = []
    gone = []
    kind: tuple[bytes, bool] | None = None
    first, begun, reached, total = "", 0, 0, 0
    for begin, end, schema_hash, num_rows, partition_id, retired_at, held in rows:
        if retired_at is not None and retired_at <= tick:
            covered = TimeRange(begin, end)
            old = (bytes(schema_hash), num_rows, partition_id, retired_at, bool(held))
            gone.append(Stretch(covered, *old))
            continue
        this = (schema_hash, num_rows == 0)
        if this != kind or reached != begin:
            if kind is not None:
                live.append(Stretch(TimeRange(begun, reached), bytes(kind[0]), total, first))
            kind, first, begun, total = this, partition_id, begin, 0
        reached = end
        total += num_rows
    if kind is not None:
        live.append(Stretch(TimeRange(begun, reached), bytes(kind[0]), total, first))
    return live, gone


def _live_at(as_of: int | None) -> list[sa.ColumnElement[bool]]:
    if as_of is None:
        return [table.c.retired_at.is_(None)]
    return [
        table.c.published_at <= as_of,
        sa.or_(table.c.retired_at.is_(None), table.c.retired_at > as_of),
    ]
