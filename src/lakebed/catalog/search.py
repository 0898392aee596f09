"""Finding the files that a statement may need, for all its tables in two queries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

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


Spans = dict[tuple[str, bytes], Sequence[int]]
"""The event spans that occur in a view set's schema."""


def find_files(
    connection: sa.Connection,
    wanted: Sequence[Wanted],
    spans: Spans,
    as_of: int | None = None,
) -> dict[str, list[Partition]]:
    """The partitions with files that match, now or at a past tick, by view set and insert time.
    ``spans`` has what `list_spans` found of those that are asked for by event time."""
    found: dict[str, list[Partition]] = defaultdict(list)
    if as_of is None:
        rows = _find_present(connection, wanted, spans)
    else:
        rows = connection.execute(_files(_past(wanted, as_of))) if wanted else []
    for row in rows:
        partition = read_partition(row)
        found[partition.view_set].append(partition)
    return found


def _files(chosen: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return (
        sa.select(table)
        .where(table.c.file_path.is_not(None), chosen)
        .order_by(table.c.view_set_name, table.c.begin_insert_time, table.c.view_instance_id)
    )


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


def _find_present(
    connection: sa.Connection, wanted: Sequence[Wanted], spans: Spans
) -> Iterable[sa.Row[Any]]:
    """Of the partitions with one span, those that overlap a range begin in a range bounded on both
    sides, which the index on events answers: one branch for each span that occurs."""
    values: dict[str, object] = {}
    by_time = 0
    whole = 0
    for each in wanted:
        if each.events is None:
            values |= {f"whole_name{whole}": each.view_set, f"whole_hash{whole}": each.schema_hash}
            whole += 1
            continue
        for span in spans.get((each.view_set, each.schema_hash), ()):
            for events in each.events:
                values |= {
                    f"name{by_time}": each.view_set,
                    f"hash{by_time}": each.schema_hash,
                    f"span{by_time}": span,
                    f"after{by_time}": events.begin - span,
                    f"begin{by_time}": events.begin,
                    f"end{by_time}": events.end,
                }
                by_time += 1
    if not whole and not by_time:
        return []
    return connection.execute(_branches(whole, by_time), values)


@lru_cache(maxsize=64)
def _branches(whole: int, by_time: int) -> sa.Select[Any]:
    """The query with so many branches of each kind; making it takes longer than running it."""

    def base(prefix: str, place: int) -> sa.Select[Any]:
        return sa.select(table.c.partition_id).where(
            *_at(None),
            table.c.view_set_name == sa.bindparam(f"{prefix}name{place}"),
            table.c.file_schema_hash == sa.bindparam(f"{prefix}hash{place}"),
        )

    branches = [base("whole_", place) for place in range(whole)]
    branches += [
        base("", place).where(
            table.c.event_span == _number(f"span{place}"),
            table.c.min_event_time > _number(f"after{place}"),
            table.c.min_event_time < _number(f"end{place}"),
            table.c.max_event_time >= _number(f"begin{place}"),
        )
        for place in range(by_time)
    ]
    return _files(table.c.partition_id.in_(sa.union_all(*branches)))


def _number(name: str) -> sa.BindParameter[int]:
    return sa.bindparam(name, type_=sa.BigInteger)


def list_spans(connection: sa.Connection, wanted: Sequence[Wanted]) -> Spans:
    """The few event spans that occur in each view set, found by skipping from one to the next."""
    found: dict[tuple[str, bytes], list[int]] = {
        (each.view_set, each.schema_hash): [] for each in wanted
    }
    if not wanted:
        return dict(found)
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
    query = sa.select(spans.c.name, spans.c.hash, spans.c.span).where(spans.c.span.is_not(None))
    for name, schema_hash, span in connection.execute(query):
        found[name, bytes(schema_hash)].append(span)
    return dict(found)
