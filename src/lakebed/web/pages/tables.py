"""Users' tables: what there is, and of one of them its schema, its figures, its newest rows and
what it refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lakebed.catalog import overview, tables
from lakebed.lake import Lake
from lakebed.model.time import format_duration, format_instant
from lakebed.model.user_table import REJECTS, UserTable
from lakebed.query.plain import to_values
from lakebed.web.times import read_number

_ROWS = 50
_MOST_ROWS = 1_000
_REJECTS = 20


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
    """Rows in partitions; of a row that was replaced, every version that is still there."""
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
    """What the list shows."""

    databases: Sequence[str]
    tables: Sequence[TableRow]
    deleted: Sequence[DeletedRow]


@dataclass(frozen=True, slots=True)
class TablePage:
    """What the page of one table shows."""

    asked: Mapping[str, str]
    table: TableRow
    schema: Sequence[Mapping[str, Any]]
    out_of_range: str
    figures: Mapping[str, int | None]
    earliest: str | None
    latest: str | None
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    """The newest rows, by their time."""
    rejects: Sequence[Sequence[Any]]
    """Time, place, reasons and record of what was refused last."""


def read_tables(lake: Lake) -> TablesPage:
    """Every table, from one look at the catalog."""
    with lake.catalog.read() as connection:
        known = tables.list_tables(connection)
        gone = tables.list_deleted(connection)
        databases = [each.name for each in tables.list_databases(connection)]
        pieces = overview.list_pieces(connection)
    live: dict[str, list[overview.Piece]] = {}
    for piece in pieces:
        if piece.retired_at is None:
            live.setdefault(piece.view_set, []).append(piece)
    return TablesPage(
        sorted(databases),
        [_describe(each, live.get(each.stored_as, [])) for each in known],
        [
            DeletedRow(each.full_name, format_instant(each.deleted_at or 0))
            for each in gone
            if each.rejects_of is None  # those come back with the tables that refused them
        ],
    )


def _describe(table: UserTable, pieces: Sequence[overview.Piece]) -> TableRow:
    kept = table.retention_us
    return TableRow(
        table.database,
        table.name,
        len(table.schema.columns),
        table.key,
        table.time_column,
        str(table.bucket),
        None if kept is None else format_duration(kept),
        table.version,
        len(pieces),
        sum(each.num_rows for each in pieces),
        sum(each.file_size for each in pieces),
        table.name.endswith(REJECTS),
        format_instant(table.changed_at or table.created_at),
    )


def read_table(
    lake: Lake, database: str, name: str, asked: Mapping[str, str], seconds: float | None
) -> TablePage:
    """One table; `UnknownTable` if there is none. For its figures all its times are read."""
    wanted = {each: asked[each] for each in ("rows",) if asked.get(each)}
    limit = read_number(wanted, "rows", _ROWS, _MOST_ROWS)
    table = lake.tables.get(database, name)
    definition = table.definition
    with lake.catalog.read() as connection:
        pieces = [
            each
            for each in overview.list_pieces(connection)
            if each.view_set == definition.stored_as and each.retired_at is None
        ]
    figures = asdict(table.stats())
    earliest, latest = figures.pop("earliest"), figures.pop("latest")
    order = f'"{definition.time_column}"'
    newest = table.query(
        f'SELECT * FROM "{name}" ORDER BY {order} DESC', limit=limit, timeout=seconds, admin=False
    ).to_arrow()
    rejects: list[list[Any]] = []
    if figures["rejected"]:
        rejects = _read_rows(
            table.query(
                f"SELECT time, position, reasons, record FROM {name}{REJECTS} ORDER BY time DESC",
                limit=_REJECTS,
                timeout=seconds,
                admin=False,
            ).to_arrow()
        )
    return TablePage(
        wanted,
        _describe(definition, pieces),
        [asdict(each) for each in definition.schema.columns],
        definition.schema.out_of_range,
        figures,
        None if earliest is None else format_instant(earliest),
        None if latest is None else format_instant(latest),
        newest.column_names,
        _read_rows(newest),
        rejects,
    )


def _read_rows(table: Any) -> list[list[Any]]:
    columns = [
        [value for chunk in column.chunks for value in to_values(chunk)] for column in table.columns
    ]
    return [list(row) for row in zip(*columns, strict=True)]
