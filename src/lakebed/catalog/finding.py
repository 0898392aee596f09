"""Finding partitions by what they are of: view set, instance, insert and event time, past tick."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from lakebed.catalog.dialects import BINARY
from lakebed.catalog.footers import StoredFooter
from lakebed.catalog.partitions import read_partition
from lakebed.catalog.schema import partition_metadata
from lakebed.catalog.schema import partitions as table
from lakebed.model.partition import Partition
from lakebed.model.time import TimeRange

_PAGE_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Search:
    """Which partitions are wanted. ``view_sets`` pairs a name with the schema hashes that the
    caller can read; None means any. ``as_of`` sees the past instead of the present."""

    view_sets: Sequence[tuple[str, Sequence[bytes] | None]] | None = None
    instance: str | None = None
    inserted: TimeRange | None = None
    events: TimeRange | None = None
    as_of: int | None = None
    include_retired: bool = False


def search(connection: sa.Connection, wanted: Search) -> list[Partition]:
    """The partitions that match, by identity."""
    query = _search_query(connection, wanted, sa.select(table))
    return [read_partition(row) for row in connection.execute(query)]


def search_with_footers(
    connection: sa.Connection, wanted: Search
) -> list[tuple[Partition, StoredFooter | None]]:
    """The partitions that match, each with its footer, in one query."""
    joined = sa.select(
        table,
        partition_metadata.c.metadata.label("footer"),
        partition_metadata.c.partition_format_version.label("footer_format"),
        partition_metadata.c.digest.label("footer_digest"),
        partition_metadata.c.file_size.label("footer_file_size"),
    ).join_from(
        table, partition_metadata, table.c.file_path == partition_metadata.c.file_path, isouter=True
    )
    found = []
    query = _search_query(connection, wanted, joined).execution_options(**{BINARY: True})
    for row in connection.execute(query):
        footer = None
        if row.footer is not None:
            footer = StoredFooter(
                row.file_path,
                row.footer_file_size,
                bytes(row.footer),
                row.footer_format,
                bytes(row.footer_digest),
            )
        found.append((read_partition(row), footer))
    return found


def list_pages(connection: sa.Connection) -> Iterator[list[Partition]]:
    """Every row, live and retired, in pages; for `check`, which reads them all."""
    result = connection.execution_options(yield_per=_PAGE_ROWS).execute(
        sa.select(table).order_by(table.c.partition_id)
    )
    for page in result.partitions(_PAGE_ROWS):
        yield [read_partition(row) for row in page]


def _search_query(
    connection: sa.Connection, wanted: Search, base: sa.Select[tuple[object, ...]]
) -> sa.Select[tuple[object, ...]]:
    query = base
    by_events = wanted.events is not None and wanted.as_of is None and not wanted.include_retired
    hashed = [(name, hashes) for name, hashes in wanted.view_sets or () if hashes is not None]
    if by_events and wanted.events is not None and wanted.view_sets is not None:
        if len(hashed) != len(wanted.view_sets):
            by_events = False
        else:
            query = query.where(_with_events(connection, hashed, wanted.events))
    if wanted.view_sets is not None and not by_events:
        query = query.where(
            sa.or_(
                sa.false(),
                *(
                    table.c.view_set_name == name
                    if hashes is None
                    else sa.and_(
                        table.c.view_set_name == name, table.c.file_schema_hash.in_(hashes)
                    )
                    for name, hashes in wanted.view_sets
                ),
            )
        )
    if wanted.instance is not None:
        query = query.where(table.c.view_instance_id == wanted.instance)
    if wanted.inserted is not None:
        query = query.where(
            table.c.begin_insert_time < wanted.inserted.end,
            table.c.end_insert_time > wanted.inserted.begin,
        )
    if wanted.events is not None and not by_events:
        query = query.where(
            table.c.min_event_time < wanted.events.end,
            table.c.max_event_time >= wanted.events.begin,
        )
    if wanted.as_of is not None:
        query = query.where(
            table.c.published_at <= wanted.as_of,
            sa.or_(table.c.retired_at.is_(None), table.c.retired_at > wanted.as_of),
        )
    elif not wanted.include_retired and not by_events:
        query = query.where(table.c.retired_at.is_(None))
    return query.order_by(
        table.c.view_set_name,
        table.c.view_instance_id,
        table.c.begin_insert_time,
        table.c.end_insert_time,
        table.c.file_schema_hash,
        table.c.published_at,
    )


_LIVE_OF_SCHEMA = (
    table.c.retired_at.is_(None),
    table.c.view_set_name == sa.bindparam("view_set"),
    table.c.file_schema_hash == sa.bindparam("schema_hash"),
)


def _spans_query() -> sa.Select[int]:
    """The few event spans that occur, found by skipping from one to the next in the index."""
    smallest = sa.select(sa.func.min(table.c.event_span).label("span")).where(*_LIVE_OF_SCHEMA)
    spans = smallest.cte("spans", recursive=True)
    following = (
        sa.select(sa.func.min(table.c.event_span))
        .where(*_LIVE_OF_SCHEMA, table.c.event_span > spans.c.span)
        .correlate(spans)
        .scalar_subquery()
    )
    spans = spans.union_all(sa.select(following).where(spans.c.span.is_not(None)))
    return sa.select(spans.c.span).where(spans.c.span.is_not(None))


_SPANS = _spans_query()


def _with_events(
    connection: sa.Connection, view_sets: Sequence[tuple[str, Sequence[bytes]]], events: TimeRange
) -> sa.ColumnElement[bool]:
    """Which live partitions have events in a range.

    Of the partitions with one span, those that overlap begin in a range bounded on both sides,
    which the index on (…, event_span, min_event_time) answers directly: one branch for each span
    that occurs. One very long partition costs one more branch, not a scan.
    """
    branches = [
        sa.select(table.c.partition_id).where(
            table.c.retired_at.is_(None),
            table.c.view_set_name == name,
            table.c.file_schema_hash == schema_hash,
            table.c.event_span == span,
            table.c.min_event_time > events.begin - span,
            table.c.min_event_time < events.end,
            table.c.max_event_time >= events.begin,
        )
        for name, hashes in view_sets
        for schema_hash in hashes
        for span in connection.scalars(_SPANS, {"view_set": name, "schema_hash": schema_hash})
    ]
    return table.c.partition_id.in_(sa.union_all(*branches)) if branches else sa.false()
