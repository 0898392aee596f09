"""The catalog as Arrow tables: the rows of `list_partitions()`, `list_view_sets()`,
`list_columns()` and `explain_empty()`, and those that `lakebed.admin` returns. The first columns
have micromegas' names and order, so that its programs find them; ours come after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakebed.catalog.catalog import Connection
from lakebed.catalog.lookups import listing
from lakebed.catalog.records import blocks, failures, view_sets
from lakebed.catalog.records.view_sets import ActiveViewSet
from lakebed.model.source import SqlSource, describe_source
from lakebed.model.tables.table import UserTable
from lakebed.model.time import SECOND, TimeRange
from lakebed.model.view_set import ViewSet
from lakebed.query.snapshot import emptiness
from lakebed.query.snapshot.emptiness import EmptyRange
from lakebed.views.builtin import COLUMNS
from lakebed.views.dependencies import find_sources

PARTITIONS, VIEW_SETS, VIEW_COLUMNS = "list_partitions", "list_view_sets", "list_columns"
EMPTY = "explain_empty"

_TIME = pa.timestamp("us", "UTC")
_TEXT = pa.string()

PARTITIONS_SCHEMA = pa.schema(
    [
        ("view_set_name", _TEXT),
        ("view_instance_id", _TEXT),
        ("begin_insert_time", _TIME),
        ("end_insert_time", _TIME),
        ("min_event_time", _TIME),
        ("max_event_time", _TIME),
        ("updated", _TIME),
        ("file_path", _TEXT),
        ("file_size", pa.int64()),
        ("file_schema_hash", pa.binary()),
        ("source_data_hash", pa.binary()),
        ("num_rows", pa.int64()),
        ("partition_format_version", pa.int32()),
        ("sort_order", pa.list_(_TEXT)),
        ("partition_id", _TEXT),
    ]
)
VIEW_SETS_SCHEMA = pa.schema(
    [
        ("view_set_name", _TEXT),
        ("current_schema_hash", pa.binary()),
        ("schema", _TEXT),
        ("has_view_maker", pa.bool_()),
        ("global_instance_available", pa.bool_()),
        ("version", pa.int32()),
        ("source", _TEXT),
        ("description", _TEXT),
        ("time_column", _TEXT),
        ("sort_order", pa.list_(_TEXT)),
        ("retention_seconds", pa.float64()),
        ("retained_from", _TIME),
        ("activated", _TIME),
    ]
)
COLUMNS_SCHEMA = pa.schema(
    [
        ("view_set_name", _TEXT),
        ("column_name", _TEXT),
        ("data_type", _TEXT),
        ("is_nullable", pa.bool_()),
        ("comment", _TEXT),
    ]
)
EMPTY_SCHEMA = pa.schema(
    [("begin", _TIME), ("end", _TIME), ("reason", _TEXT), ("detail", _TEXT), ("hint", _TEXT)]
)

INCOMPATIBLE_SCHEMA = pa.schema(
    [
        ("view_set_name", _TEXT),
        ("view_instance_id", _TEXT),
        ("begin_insert_time", _TIME),
        ("end_insert_time", _TIME),
        ("incompatible_schema_hash", pa.binary()),
        ("current_schema_hash", pa.binary()),
        ("file_path", _TEXT),
        ("file_size", pa.int64()),
        ("num_rows", pa.int64()),
        ("can_be_rebuilt", pa.bool_()),
        ("partition_id", _TEXT),
    ]
)
FINDINGS_SCHEMA = pa.schema(
    [("severity", _TEXT), ("kind", _TEXT), ("subject", _TEXT), ("message", _TEXT)]
)
RETIRED_SCHEMA = pa.schema(
    [
        ("view_set_name", _TEXT),
        ("view_instance_id", _TEXT),
        ("partitions_retired", pa.int64()),
        ("partitions_failed", pa.int64()),
        ("storage_freed_bytes", pa.int64()),
        ("retirement_messages", pa.list_(_TEXT)),
    ]
)

SCHEMAS = {
    PARTITIONS: PARTITIONS_SCHEMA,
    VIEW_SETS: VIEW_SETS_SCHEMA,
    VIEW_COLUMNS: COLUMNS_SCHEMA,
}

INSTANCE_COLUMNS = ("process_id", "stream_id")
"""The columns in which the id of an instance is searched."""


@dataclass(frozen=True, slots=True)
class CatalogRequest:
    """The listings and explanations that a statement needs of the catalog, beside tables."""

    listings: frozenset[str] = frozenset()
    partitions_of: frozenset[str] | None = None
    """The view sets whose partitions are listed; None for all."""
    empty: Sequence[tuple[str, TimeRange]] = ()
    """View sets and insert-time ranges whose empty parts are to be explained."""


@dataclass(frozen=True, slots=True)
class CatalogAnswer:
    """The answers, by listing and in the order of the questions."""

    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    empty: Sequence[pa.Table] = ()

    @property
    def is_empty(self) -> bool:
        """Return True if the request asks for nothing."""
        return not (self.tables or self.empty)


def find_instance_columns(view_set: ViewSet) -> list[str]:
    """Return the columns that identify the process or stream of a view set's rows."""
    return [name for name in INSTANCE_COLUMNS if name in view_set.schema.names]


def look_up(
    connection: Connection,
    request: CatalogRequest,
    active: Mapping[str, ActiveViewSet],
    users: Mapping[str, UserTable],
    tick: int,
    as_of: int | None = None,
    *,
    with_tail: bool = True,
) -> CatalogAnswer:
    """Return the answers, in the caller's snapshot: one query for partitions, three for each range
    to explain. ``users`` has the users' tables among them."""
    tables = {}
    if PARTITIONS in request.listings:
        names = request.partitions_of
        view_set_names = None if names is None else sorted(names)
        tables[PARTITIONS] = make_partitions(
            listing.list_columns(connection, view_set_names, as_of)
        )
    if VIEW_SETS in request.listings:
        tables[VIEW_SETS] = make_view_sets(list(active.values()))
    if VIEW_COLUMNS in request.listings:
        tables[VIEW_COLUMNS] = make_columns(list(active.values()))
    empty = []
    for name, within in request.empty:
        if name in users:
            empty.append(make_empty(_explain_empty_table(connection, users[name], within, tick)))
            continue
        if name not in active:
            view_sets.get(connection, name)
        empty_ranges = _explain_empty(connection, active, name, within, tick, with_tail=with_tail)
        empty.append(make_empty(empty_ranges))
    return CatalogAnswer(tables, empty)


def _explain_empty(
    connection: Connection,
    active: Mapping[str, ActiveViewSet],
    name: str,
    within: TimeRange,
    tick: int,
    *,
    with_tail: bool,
) -> list[EmptyRange]:
    live, retired = listing.list_stretches(connection, name, within, tick)
    definitions = {entry.view_set.name: entry.view_set for entry in active.values()}
    made_of = _with_sources(name, definitions)
    facts = emptiness.RangeFacts(
        active[name],
        tick,
        live,
        retired,
        [
            failure
            for failure in failures.list_failures(connection)
            if failure.view_set in made_of
            and failure.schema_hash == active[failure.view_set].schema_hash
        ],
        with_tail,
    )
    gaps = emptiness.find_unexplained(facts, within)
    landed: list[int] = []
    if gaps:
        sources = find_sources(definitions[name], definitions)
        hull = TimeRange(gaps[0].begin, gaps[-1].end)
        encodings = None if sources.every else sources.encodings
        landed = [block.insert_time for block in blocks.list_blocks(connection, hull, encodings)]
    return emptiness.explain(facts, within, landed)


def _explain_empty_table(
    connection: Connection, user_table: UserTable, within: TimeRange, tick: int
) -> list[EmptyRange]:
    live, retired = listing.list_table_stretches(connection, user_table.stored_as, within, tick)
    return emptiness.explain_table(user_table, live, retired, within, tick)


def _with_sources(name: str, definitions: Mapping[str, ViewSet]) -> set[str]:
    """Return a view set and everything that its SQL reads, directly or not."""
    names = {name}
    source = definitions[name].source if name in definitions else None
    if isinstance(source, SqlSource):
        for source_name in source.names:
            names |= _with_sources(source_name, definitions)
    return names


def make_partitions(columns: Sequence[Sequence[Any]]) -> pa.Table:
    """Return partitions as rows, from the catalog's columns."""
    arrays = [
        pa.array(values, field.type)
        for values, field in zip(columns, PARTITIONS_SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=PARTITIONS_SCHEMA)


def make_incompatible(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return rows of incompatible partitions, as `IncompatiblePartition.as_row` has them."""
    return pa.Table.from_pylist(list(rows), INCOMPATIBLE_SCHEMA)


def make_retired(rows: Iterable[Mapping[str, Any]]) -> pa.Table:
    """Return what retiring incompatible partitions did, for each view set and instance."""
    return pa.Table.from_pylist(list(rows), RETIRED_SCHEMA)


def make_findings(findings: Iterable[Any]) -> pa.Table:
    """Return findings of checks as rows."""
    names = FINDINGS_SCHEMA.names
    rows = [{name: str(getattr(finding, name)) for name in names} for finding in findings]
    return pa.Table.from_pylist(rows, FINDINGS_SCHEMA)


def make_view_sets(active: Sequence[ActiveViewSet]) -> pa.Table:
    """Return view sets as rows; those that were never built have no time of activation."""
    rows = [
        {
            "view_set_name": entry.view_set.name,
            "current_schema_hash": entry.schema_hash,
            "schema": _describe_schema(entry.view_set.schema),
            "has_view_maker": bool(find_instance_columns(entry.view_set)),
            "global_instance_available": True,
            "version": entry.view_set.version,
            "source": describe_source(entry.view_set.source),
            "description": entry.view_set.description or None,
            "time_column": entry.view_set.time_column,
            "sort_order": list(entry.view_set.sort_order),
            "retention_seconds": None
            if entry.view_set.retention_us is None
            else entry.view_set.retention_us / SECOND,
            "retained_from": entry.retained_from or None,
            "activated": entry.activated_at or None,
        }
        for entry in sorted(active, key=lambda entry: entry.view_set.name)
    ]
    return pa.Table.from_pylist(rows, VIEW_SETS_SCHEMA)


def make_columns(active: Sequence[ActiveViewSet]) -> pa.Table:
    """Return the columns of view sets as rows, in their order, with the comments of documented
    ones."""
    rows = [
        {
            "view_set_name": entry.view_set.name,
            "column_name": column.name,
            "data_type": str(column.type),
            "is_nullable": column.nullable,
            "comment": COLUMNS.get(entry.view_set.name, {}).get(column.name),
        }
        for entry in sorted(active, key=lambda entry: entry.view_set.name)
        for column in entry.view_set.schema
    ]
    return pa.Table.from_pylist(rows, COLUMNS_SCHEMA)


def make_empty(ranges: Sequence[EmptyRange]) -> pa.Table:
    """Return ranges without rows as rows."""
    columns: dict[str, list[Any]] = {
        "begin": [empty_range.within.begin for empty_range in ranges],
        "end": [empty_range.within.end for empty_range in ranges],
        "reason": [str(empty_range.reason) for empty_range in ranges],
        "detail": [empty_range.detail for empty_range in ranges],
        "hint": [empty_range.hint for empty_range in ranges],
    }
    return pa.table(columns, EMPTY_SCHEMA)


def _describe_schema(schema: pa.Schema) -> str:
    return ", ".join(
        f"{column.name}: {column.type}" + ("" if column.nullable else " not null")
        for column in schema
    )
