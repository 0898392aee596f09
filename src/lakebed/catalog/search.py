"""Finding the files that a statement may need, for all its tables in two queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from lakebed.catalog.partitions import read_partition
from lakebed.catalog.schema import partitions as table
from lakebed.catalog.schema import series
from lakebed.model.partition import Partition
from lakebed.model.time import TimeRange


@dataclass(frozen=True, slots=True)
class Wanted:
    """The files of one view set in one schema, with events in any of some ranges; None for all."""

    view_set: str
    schema_hash: bytes
    events: Sequence[TimeRange] | None = None


def find_files(
    connection: sa.Connection, wanted: Sequence[Wanted], as_of: int | None = None
) -> dict[str, list[Partition]]:
    """The partitions with files that match, now or at a past tick, by view set and insert time."""
    found: dict[str, list[Partition]] = defaultdict(list)
    if wanted:
        chosen = _past(wanted, as_of) if as_of is not None else _present(connection, wanted)
        query = (
            sa.select(table)
            .where(table.c.file_path.is_not(None), chosen)
            .order_by(table.c.view_set_name, table.c.begin_insert_time, table.c.view_instance_id)
        )
        for row in connection.execute(query):
            partition = read_partition(row)
            found[partition.view_set].append(partition)
    return found


def count_partitions(
    connection: sa.Connection, wanted: Sequence[Wanted], as_of: int | None = None
) -> dict[str, tuple[int, int]]:
    """How many partitions each view set has in this schema, and how many of them are empty."""
    if not wanted:
        return {}
    rows = connection.execute(
        sa.select(
            table.c.view_set_name,
            sa.func.count(),
            sa.func.count(table.c.file_path),
        )
        .where(sa.or_(*(sa.and_(*_of(each)) for each in wanted)), *_at(as_of))
        .group_by(table.c.view_set_name)
    )
    return {name: (count, count - files) for name, count, files in rows}


def _of(wanted: Wanted) -> list[sa.ColumnElement[bool]]:
    return [
        table.c.view_set_name == wanted.view_set,
        table.c.file_schema_hash == wanted.schema_hash,
    ]


def _at(as_of: int | None) -> list[sa.ColumnElement[bool]]:
    if as_of is None:
        return [table.c.retired_at.is_(None)]
    return [
        table.c.published_at <= as_of,
        sa.or_(table.c.retired_at.is_(None), table.c.retired_at > as_of),
    ]


def _past(wanted: Sequence[Wanted], as_of: int) -> sa.ColumnElement[bool]:
    return sa.and_(
        *_at(as_of),
        sa.or_(
            *(
                sa.and_(
                    *_of(each),
                    sa.true()
                    if each.events is None
                    else sa.or_(sa.false(), *(_overlaps(events) for events in each.events)),
                )
                for each in wanted
            )
        ),
    )


def _overlaps(events: TimeRange) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.min_event_time < events.end, table.c.max_event_time >= events.begin)


def _present(connection: sa.Connection, wanted: Sequence[Wanted]) -> sa.ColumnElement[bool]:
    """Of the partitions with one span, those that overlap a range begin in a range bounded on both
    sides, which the index on events answers: one branch for each span that occurs."""
    spans = _list_spans(connection, [each for each in wanted if each.events is not None])
    branches = []
    for each in wanted:
        base = sa.select(table.c.partition_id).where(*_at(None), *_of(each))
        if each.events is None:
            branches.append(base)
            continue
        branches += [
            base.where(
                table.c.event_span == span,
                table.c.min_event_time > events.begin - span,
                table.c.min_event_time < events.end,
                table.c.max_event_time >= events.begin,
            )
            for span in spans[each.view_set]
            for events in each.events
        ]
    return table.c.partition_id.in_(sa.union_all(*branches)) if branches else sa.false()


def _list_spans(connection: sa.Connection, wanted: Sequence[Wanted]) -> dict[str, list[int]]:
    """The few event spans that occur in each view set, found by skipping from one to the next."""
    found: dict[str, list[int]] = defaultdict(list)
    if not wanted:
        return found
    live = table.c.retired_at.is_(None)
    smallest = (
        sa.select(sa.func.min(table.c.event_span))
        .where(
            live,
            table.c.view_set_name == series.c.view_set_name,
            table.c.file_schema_hash == series.c.file_schema_hash,
        )
        .correlate(series)
        .scalar_subquery()
    )
    asked = sa.or_(
        *(
            sa.and_(
                series.c.view_set_name == each.view_set,
                series.c.file_schema_hash == each.schema_hash,
            )
            for each in wanted
        )
    )
    spans = (
        sa.select(
            series.c.view_set_name.label("name"),
            series.c.file_schema_hash.label("hash"),
            smallest.label("span"),
        )
        .where(asked)
        .group_by(series.c.view_set_name, series.c.file_schema_hash)
        .cte("spans", recursive=True)
    )
    following = (
        sa.select(sa.func.min(table.c.event_span))
        .where(
            live,
            table.c.view_set_name == spans.c.name,
            table.c.file_schema_hash == spans.c.hash,
            table.c.event_span > spans.c.span,
        )
        .correlate(spans)
        .scalar_subquery()
    )
    spans = spans.union_all(
        sa.select(spans.c.name, spans.c.hash, following).where(spans.c.span.is_not(None))
    )
    query = sa.select(spans.c.name, spans.c.span).where(spans.c.span.is_not(None))
    for name, span in connection.execute(query):
        found[name].append(span)
    return found
