"""Users' tables: existing and deleted ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.catalog.lookups import overview
from lakebed.catalog.records import tables
from lakebed.lake import Lake
from lakebed.model.tables.table import REJECTS, UserTable
from lakebed.model.time import format_duration, format_instant


@dataclass(frozen=True, slots=True)
class TableRow:
    """One table of the list."""

    database: str
    name: str
    columns: int
    key: Sequence[str]
    time_column: str
    bucket: str
    retention: str | None
    versions: int
    partitions: int
    stored_rows: int
    """Rows in partitions; every version of a row that was replaced counts until it is folded."""
    bytes: int
    is_rejects: bool
    changed: str


@dataclass(frozen=True, slots=True)
class DeletedRow:
    """A table that can be restored."""

    full_name: str
    deleted: str


@dataclass(frozen=True, slots=True)
class TablesPage:
    """The data of the list."""

    databases: Sequence[str]
    tables: Sequence[TableRow]
    deleted: Sequence[DeletedRow]


def read_tables(lake: Lake) -> TablesPage:
    """Return every table, from one snapshot of the catalog."""
    with lake.catalog.read() as connection:
        user_tables = tables.list_tables(connection)
        deleted = tables.list_deleted(connection)
        databases = [database.name for database in tables.list_databases(connection)]
        pieces = overview.list_pieces(connection)
    live: dict[str, list[overview.Piece]] = {}
    for piece in pieces:
        if piece.retired_at is None:
            live.setdefault(piece.view_set, []).append(piece)
    return TablesPage(
        sorted(databases),
        [describe(table, live.get(table.stored_as, [])) for table in user_tables],
        [
            DeletedRow(table.full_name, format_instant(table.deleted_at or 0))
            for table in deleted
            if table.rejects_of is None  # those are restored with the tables that refused them
        ],
    )


def describe(table: UserTable, pieces: Sequence[overview.Piece]) -> TableRow:
    """Return a table with its live partitions."""
    retention_us = table.retention_us
    return TableRow(
        table.database,
        table.name,
        len(table.schema.columns),
        table.key,
        table.time_column,
        str(table.bucket),
        None if retention_us is None else format_duration(retention_us),
        table.version,
        len(pieces),
        sum(piece.num_rows for piece in pieces),
        sum(piece.file_size for piece in pieces),
        table.name.endswith(REJECTS),
        format_instant(table.changed_at or table.created_at),
    )
