"""Search for partitions: by a filter, or for the files that a statement reads."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import sqlalchemy as sa

from lakebed.catalog.connections.dialects import BINARY
from lakebed.catalog.records.footers import StoredFooter
from lakebed.catalog.records.partitions import read_partition
from lakebed.catalog.schema import partition_metadata, series
from lakebed.catalog.schema import partitions as table
from lakebed.model.partition import Partition
from lakebed.model.time import TimeRange

_PAGE_ROWS = 10_000
_BY_IDENTITY = (
    table.c.view_set_name,
    table.c.view_instance_id,
    table.c.begin_insert_time,
    table.c.end_insert_time,
    table.c.file_schema_hash,
    table.c.published_at,
)


@dataclass(frozen=True, slots=True)
class PartitionFilter:
    """Conditions on partitions. ``view_sets`` pairs a name with the schema hashes that the caller
    can read. None means any. ``as_of`` sees the past instead of the present."""

    view_sets: Sequence[tuple[str, Sequence[bytes] | None]] | None = None
    instance: str | None = None
    inserted: TimeRange | None = None
    events: TimeRange | None = None
    as_of: int | None = None
    include_retired: bool = False


@dataclass(frozen=True, slots=True)
class FileScan:
    """A scan of the files of one view set in one schema, with events in any of some ranges. None
    means all events."""

    view_set: str
    schema_hash: bytes
    events: Sequence[TimeRange] | None = None


Spans = dict[tuple[str, bytes], Sequence[int]]
"""The event spans that occur in a view set's schema."""


def is_live(as_of: int | None) -> sa.ColumnElement[bool]:
    """Return the condition on partitions that are live now, or were at a past tick."""
    live: sa.ColumnElement[bool] = table.c.retired_at.is_(None)
    if as_of is None:
        return live
    return sa.and_(table.c.published_at <= as_of, sa.or_(live, table.c.retired_at > as_of))


def search(connection: sa.Connection, conditions: PartitionFilter) -> list[Partition]:
    """Return the partitions that match, ordered by identity."""
    query = _filter(connection, conditions, sa.select(table))
    return [read_partition(row) for row in connection.execute(query)]


def search_with_footers(
    connection: sa.Connection, conditions: PartitionFilter
) -> list[tuple[Partition, StoredFooter | None]]:
    """Return the partitions that match, each with its footer, in one query."""
    joined = sa.select(
        table,
        partition_metadata.c.metadata.label("footer"),
        partition_metadata.c.partition_format_version.label("footer_format"),
        partition_metadata.c.digest.label("footer_digest"),
        partition_metadata.c.file_size.label("footer_file_size"),
    ).join_from(
        table, partition_metadata, table.c.file_path == partition_metadata.c.file_path, isouter=True
    )
    pairs = []
    query = _filter(connection, conditions, joined).execution_options(**{BINARY: True})
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
        pairs.append((read_partition(row), footer))
    return pairs


def list_pages(connection: sa.Connection) -> Iterator[list[Partition]]:
    """Yield every partition, live and retired, in pages; for `check`, which reads them all."""
    result = connection.execution_options(yield_per=_PAGE_ROWS).execute(
        sa.select(table).order_by(table.c.partition_id)
    )
    for page in result.partitions(_PAGE_ROWS):
        yield [read_partition(row) for row in page]


def find_files(
    connection: sa.Connection,
    scans: Sequence[FileScan],
    spans: Spans,
    as_of: int | None = None,
) -> dict[str, list[Partition]]:
    """Return the partitions with files that match, now or at a past tick, by view set and insert
    time. ``spans`` is what `list_spans` returns for the scans with event times."""
    rows: Iterable[sa.Row[Any]] = []
    if as_of is None:
        values, whole, ranges = _bind(scans, spans)
        if whole or ranges:
            rows = connection.execute(_select_files(whole, ranges), values)
    elif scans:
        past = sa.or_(*map(_matches, scans))
        rows = connection.execute(_order_files(sa.and_(is_live(as_of), past)))
    files: dict[str, list[Partition]] = defaultdict(list)
    for row in rows:
        partition = read_partition(row)
        files[partition.view_set].append(partition)
    return files


def count_partitions(
    connection: sa.Connection, scans: Sequence[FileScan], as_of: int | None = None
) -> dict[str, tuple[int, int]]:
    """Return the number of partitions of each view set in this schema, and of those empty."""
    if not scans:
        return {}
    in_schema = sa.or_(*(_is_of(scan.view_set, scan.schema_hash) for scan in scans))
    rows = connection.execute(
        sa.select(table.c.view_set_name, sa.func.count(), sa.func.count(table.c.file_path))
        .where(in_schema, is_live(as_of))
        .group_by(table.c.view_set_name)
    )
    return {name: (count, count - files) for name, count, files in rows}


def list_spans(connection: sa.Connection, scans: Sequence[FileScan]) -> Spans:
    """Return the few event spans that occur in each view set's schema. The query skips from one
    span to the next in the index."""
    spans_of: dict[tuple[str, bytes], list[int]] = {
        (scan.view_set, scan.schema_hash): [] for scan in scans
    }
    if not scans:
        return dict(spans_of)
    smallest = (
        sa.select(sa.func.min(table.c.event_span))
        .where(is_live(None), _is_of(series.c.view_set_name, series.c.file_schema_hash))
        .correlate(series)
        .scalar_subquery()
    )
    in_schema = sa.or_(
        *(
            sa.and_(series.c.view_set_name == name, series.c.file_schema_hash == schema_hash)
            for name, schema_hash in spans_of
        )
    )
    spans = (
        sa.select(
            series.c.view_set_name.label("name"),
            series.c.file_schema_hash.label("hash"),
            smallest.label("span"),
        )
        .where(in_schema)
        .group_by(series.c.view_set_name, series.c.file_schema_hash)
        .cte("spans", recursive=True)
    )
    following = (
        sa.select(sa.func.min(table.c.event_span))
        .where(is_live(None), _is_of(spans.c.name, spans.c.hash), table.c.event_span > spans.c.span)
        .correlate(spans)
        .scalar_subquery()
    )
    spans = spans.union_all(
        sa.select(spans.c.name, spans.c.hash, following).where(spans.c.span.is_not(None))
    )
    query = sa.select(spans.c.name, spans.c.hash, spans.c.span).where(spans.c.span.is_not(None))
    for name, schema_hash, span in connection.execute(query):
        spans_of[name, bytes(schema_hash)].append(span)
    return dict(spans_of)


def _filter(
    connection: sa.Connection, conditions: PartitionFilter, query: sa.Select[Any]
) -> sa.Select[Any]:
    if conditions.instance is not None:
        query = query.where(table.c.view_instance_id == conditions.instance)
    if conditions.inserted is not None:
        query = query.where(
            table.c.begin_insert_time < conditions.inserted.end,
            table.c.end_insert_time > conditions.inserted.begin,
        )
    scans = _list_scans(conditions)
    if scans is not None:
        values, whole, ranges = _bind(scans, list_spans(connection, scans))
        if not ranges:
            return query.where(sa.false())
        matching = _select_ids(whole, ranges).params(values)
        return query.where(table.c.partition_id.in_(matching)).order_by(*_BY_IDENTITY)
    if conditions.view_sets is not None:
        any_view_set = (_is_any_of(*pair) for pair in conditions.view_sets)
        query = query.where(sa.or_(sa.false(), *any_view_set))
    if conditions.events is not None:
        query = query.where(_overlaps(conditions.events))
    if conditions.as_of is not None or not conditions.include_retired:
        query = query.where(is_live(conditions.as_of))
    return query.order_by(*_BY_IDENTITY)


def _list_scans(conditions: PartitionFilter) -> list[FileScan] | None:
    """Return the scans that the index on events answers: of known schemas, in the present."""
    is_past = conditions.as_of is not None or conditions.include_retired
    if conditions.events is None or conditions.view_sets is None or is_past:
        return None
    scans = []
    for name, hashes in conditions.view_sets:
        if hashes is None:
            return None
        scans += [FileScan(name, schema_hash, [conditions.events]) for schema_hash in hashes]
    return scans


def _is_any_of(view_set: str, hashes: Sequence[bytes] | None) -> sa.ColumnElement[bool]:
    is_of = table.c.view_set_name == view_set
    return is_of if hashes is None else sa.and_(is_of, table.c.file_schema_hash.in_(hashes))


def _is_of(view_set: Any, schema_hash: Any) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.view_set_name == view_set, table.c.file_schema_hash == schema_hash)


def _overlaps(events: TimeRange) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.min_event_time < events.end, table.c.max_event_time >= events.begin)


def _matches(scan: FileScan) -> sa.ColumnElement[bool]:
    is_of = _is_of(scan.view_set, scan.schema_hash)
    if scan.events is None:
        return is_of
    return sa.and_(is_of, sa.or_(sa.false(), *map(_overlaps, scan.events)))


def _bind(scans: Sequence[FileScan], spans: Spans) -> tuple[dict[str, object], int, int]:
    """Return the values for `_select_ids`, and its numbers of branches."""
    values: dict[str, object] = {}
    whole = ranges = 0
    for scan in scans:
        if scan.events is None:
            values |= {f"whole_name{whole}": scan.view_set, f"whole_hash{whole}": scan.schema_hash}
            whole += 1
            continue
        for span in spans.get((scan.view_set, scan.schema_hash), ()):
            for events in scan.events:
                values |= {
                    f"name{ranges}": scan.view_set,
                    f"hash{ranges}": scan.schema_hash,
                    f"span{ranges}": span,
                    f"after{ranges}": events.begin - span,
                    f"begin{ranges}": events.begin,
                    f"end{ranges}": events.end,
                }
                ranges += 1
    return values, whole, ranges


def _select_ids(whole: int, ranges: int) -> sa.CompoundSelect[Any]:
    """Return a query of the ids of live partitions, with a branch for each whole schema and for
    each span and range. Of the partitions with one span, those that overlap a range begin in a
    range bounded on both sides, which the index on events answers. One very long partition costs
    one more branch, not a scan."""

    def select_schema(prefix: str, number: int) -> sa.Select[Any]:
        schema = _is_of(
            sa.bindparam(f"{prefix}name{number}"), sa.bindparam(f"{prefix}hash{number}")
        )
        return sa.select(table.c.partition_id).where(is_live(None), schema)

    def bind_number(name: str) -> sa.BindParameter[int]:
        return sa.bindparam(name, type_=sa.BigInteger)

    branches = [select_schema("whole_", number) for number in range(whole)]
    branches += [
        select_schema("", number).where(
            table.c.event_span == bind_number(f"span{number}"),
            table.c.min_event_time > bind_number(f"after{number}"),
            table.c.min_event_time < bind_number(f"end{number}"),
            table.c.max_event_time >= bind_number(f"begin{number}"),
        )
        for number in range(ranges)
    ]
    return sa.union_all(*branches)


@lru_cache(maxsize=64)
def _select_files(whole: int, ranges: int) -> sa.Select[Any]:
    """Return the query of files for `_select_ids`. To build it takes longer than to run it."""
    return _order_files(table.c.partition_id.in_(_select_ids(whole, ranges)))


def _order_files(condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return (
        sa.select(table)
        .where(table.c.file_path.is_not(None), condition)
        .order_by(table.c.view_set_name, table.c.begin_insert_time, table.c.view_instance_id)
    )
