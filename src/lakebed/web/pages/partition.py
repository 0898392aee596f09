"""One partition: its facts, its footer, its source blocks, and its entries in the journal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.catalog.catalog import Connection
from lakebed.catalog.lookups import overview
from lakebed.catalog.records import blocks, partitions, tables
from lakebed.catalog.records import footers as stored_footers
from lakebed.errors import Damage, UnknownPartition, UnknownTable
from lakebed.lake import Lake
from lakebed.model.partition import Partition
from lakebed.model.source import SqlSource
from lakebed.model.tables.table import is_table, table_id_of
from lakebed.model.time import format_instant
from lakebed.reading import footers
from lakebed.views.active import list_view_sets
from lakebed.views.dependencies import find_sources

if TYPE_CHECKING:
    import pyarrow.parquet as pq

_MOST_BLOCKS = 200
_MOST_ENTRIES = 200
_MOST_TEXT = 80


@dataclass(frozen=True, slots=True)
class ColumnShare:
    """One column of a row group."""

    name: str
    type: str
    compressed_bytes: int
    nulls: int | None
    least: str | None
    greatest: str | None


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A part of a file that is read or skipped as a whole."""

    rows: int
    bytes: int
    columns: Sequence[ColumnShare]


@dataclass(frozen=True, slots=True)
class SourceBlock:
    """A landed block that the rows come from."""

    block_id: str
    insert_time: str
    encoding: str
    records: int
    bytes: int


@dataclass(frozen=True, slots=True)
class JournalRow:
    """A line of the journal."""

    tick: str
    operation: str
    actor: str
    reason: str | None


@dataclass(frozen=True, slots=True)
class PartitionPage:
    """The data of the page."""

    partition_id: str
    name: str
    is_table: bool
    """True if it is part of a table of records, from which rows are deleted, not partitions."""
    instance: str
    begin: str
    end: str
    schema_hash: str
    is_active: bool
    published_at: str
    retired_at: str | None
    held: bool
    earliest: str | None
    latest: str | None
    rows: int
    bytes: int
    file_path: str | None
    sort_order: Sequence[str]
    footer_bytes: int
    created_by: str | None
    row_groups: Sequence[RowGroup]
    footer_problem: str | None
    reads: Sequence[str]
    source_blocks: Sequence[SourceBlock]
    source_block_count: int
    journal: Sequence[JournalRow]


@dataclass(frozen=True, slots=True)
class _Owner:
    """The view set or table that a partition belongs to."""

    name: str
    schemas: frozenset[bytes]
    reads: tuple[str, ...] = ()
    encodings: tuple[str, ...] | None = ()


def read_partition(lake: Lake, partition_id: str) -> PartitionPage:
    """Return one partition, live or retired, from one snapshot; `UnknownPartition` if it does not
    exist."""
    with lake.catalog.read() as connection:
        matching = partitions.list_by_id(connection, [partition_id])
        if not matching:
            raise UnknownPartition(
                f"no partition has the id {partition_id!r}", hint="it may have been swept since"
            )
        partition = matching[0]
        owner = _find_owner(connection, partition)
        stored = None
        if partition.file_path is not None:
            stored = stored_footers.get(connection, partition.file_path)
        landed = []
        if owner.encodings is None or owner.encodings:
            landed = blocks.list_blocks(connection, partition.insert_range, owner.encodings)
        entries = overview.list_told(connection, partition_id, _MOST_ENTRIES)
    problem, groups, created_by = None, [], None
    if stored is not None:
        try:
            metadata = footers.parse(stored, partition.num_rows)
        except Damage as error:
            problem = str(error)
        else:
            groups = [_read_group(metadata, number) for number in range(metadata.num_row_groups)]
            created_by = metadata.created_by
    events = partition.events
    return PartitionPage(
        partition_id,
        owner.name,
        is_table(partition.view_set),
        partition.instance,
        format_instant(partition.insert_range.begin),
        format_instant(partition.insert_range.end),
        partition.schema_hash.hex(),
        partition.schema_hash in owner.schemas,
        format_instant(partition.published_at),
        None if partition.retired_at is None else format_instant(partition.retired_at),
        partition.held,
        None if events is None else format_instant(events.earliest),
        None if events is None else format_instant(events.latest),
        partition.num_rows,
        partition.file_size,
        partition.file_path,
        partition.sort_order,
        0 if stored is None else len(stored.metadata),
        created_by,
        groups,
        problem,
        owner.reads,
        [
            SourceBlock(
                block.block_id,
                format_instant(block.insert_time),
                block.encoding,
                block.nb_objects,
                block.payload_size,
            )
            for block in landed[:_MOST_BLOCKS]
        ],
        len(landed),
        [
            JournalRow(format_instant(tick), operation, actor, reason)
            for tick, operation, actor, reason in entries
        ],
    )


def _find_owner(connection: Connection, partition: Partition) -> _Owner:
    name = partition.view_set
    if is_table(name):
        try:
            table = tables.get_by_id(connection, table_id_of(name))
        except UnknownTable:
            return _Owner(name, frozenset())
        return _Owner(table.full_name, frozenset(table.stored))
    active = {entry.view_set.name: entry.view_set for entry in list_view_sets(connection)}
    if name not in active:
        return _Owner(name, frozenset())
    view_set = active[name]
    sources = find_sources(view_set, active)
    reads = tuple(view_set.source.names) if isinstance(view_set.source, SqlSource) else ()
    encodings = None if sources.every else sources.encodings
    return _Owner(name, frozenset([view_set.schema_hash]), reads, encodings)


def _read_group(metadata: pq.FileMetaData, number: int) -> RowGroup:
    group = metadata.row_group(number)
    columns = []
    for index in range(group.num_columns):
        column = group.column(index)
        statistics = column.statistics if column.is_stats_set else None
        bounds = statistics if statistics is not None and statistics.has_min_max else None
        columns.append(
            ColumnShare(
                column.path_in_schema,
                column.physical_type,
                column.total_compressed_size,
                statistics.null_count if statistics and statistics.has_null_count else None,
                None if bounds is None else _show(bounds.min),
                None if bounds is None else _show(bounds.max),
            )
        )
    return RowGroup(group.num_rows, group.total_byte_size, columns)


def _show(value: Any) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= _MOST_TEXT else f"{text[:_MOST_TEXT]}…"
