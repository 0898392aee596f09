"""One table of a user's: its schema, its figures, its rows page by page, a column of them over
time, and the records that it refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lakebed.catalog.lookups import overview
from lakebed.lake import Lake
from lakebed.model.tables.schema import Column
from lakebed.model.tables.table import REJECTS
from lakebed.model.time import SECOND, TimeRange, format_instant, parse_moment, to_instant
from lakebed.query.output.plain import to_values
from lakebed.tables.table import Table
from lakebed.web.charting.lines import Line, by_size, make_line
from lakebed.web.pages.tables import TableRow, describe
from lakebed.web.statements import (
    PLOTTED,
    SPLIT,
    Condition,
    check_plot,
    plan_condition,
    plan_plot,
    plan_rows,
)
from lakebed.web.times import Bins, plan_bins, read_number

PARAMETERS = ("where", "op", "value", "begin", "end", "rows", "page", "until", "plot", "way", "by")
"""The parameters of its address."""
_ROWS = 50
_MOST_ROWS = 1_000
_MOST_SKIPPED = 1_000_000
_REJECTS = 20
_BINS = 60
_MOST_LINES = 6
_SOME = 6
_EXAMPLES: Mapping[str, Any] = {
    "int": 1,
    "float": 1.5,
    "string": "text",
    "bool": True,
    "datetime": "2026-11-16T05:00:00Z",
    "json": {},
}


@dataclass(frozen=True, slots=True)
class Plot:
    """One column over time."""

    column: str
    way: str
    by: str | None
    bins: Sequence[str]
    """The begin of each bin."""
    bin_seconds: float
    lines: Sequence[Line]
    lines_left_out: int
    begin: str
    end: str
    sql: str
    """The statement for its numbers, in this range."""


@dataclass(frozen=True, slots=True)
class Rows:
    """One page of rows, the newest first."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    page: int
    is_last: bool
    until: str | None
    """The newest row of the first page; later pages leave out newer rows."""
    sql: str
    """The statement for them."""


@dataclass(frozen=True, slots=True)
class TablePage:
    """The data of the page."""

    asked: Mapping[str, str]
    table: TableRow
    schema: Sequence[Mapping[str, Any]]
    out_of_range: str
    figures: Mapping[str, int | None]
    earliest: str | None
    latest: str | None
    can_be_plotted: Sequence[str]
    can_be_split_by: Sequence[str]
    plot: Plot | None
    found: Rows
    example: Mapping[str, Any]
    """A record that the table accepts."""
    rejects: Sequence[Sequence[Any]]
    """Time, place, reasons and record of the last refusals."""


def read_table(
    lake: Lake,
    database: str,
    name: str,
    query: Mapping[str, str],
    now: int,
    seconds: float | None,
) -> TablePage:
    """Return one table; `UnknownTable` if it does not exist. Its figures are about all its
    times."""
    fields = {parameter: query[parameter] for parameter in PARAMETERS if query.get(parameter)}
    table = lake.tables.get(database, name)
    definition = table.definition
    condition = plan_condition(definition.schema, fields, now)
    check_plot(definition.schema, fields)
    rows = _read_rows(table, fields, condition, now, seconds)
    with lake.catalog.read() as connection:
        pieces = [
            piece
            for piece in overview.list_pieces(connection)
            if piece.view_set == definition.stored_as and piece.retired_at is None
        ]
    figures = asdict(table.stats())
    earliest, latest = figures.pop("earliest"), figures.pop("latest")
    plot = None
    if fields.get("plot") and earliest is not None:
        within = _choose_range(fields, now, earliest, latest)
        plot = _read_plot(table, fields, condition, within, seconds)
    columns = definition.schema.columns
    return TablePage(
        fields,
        describe(definition, pieces),
        [asdict(column) for column in columns],
        definition.schema.out_of_range,
        figures,
        None if earliest is None else format_instant(earliest),
        None if latest is None else format_instant(latest),
        [column.name for column in columns if column.type in PLOTTED],
        [column.name for column in columns if column.type in SPLIT],
        plot,
        rows,
        make_example(columns),
        _read_rejects(table, seconds) if figures["rejected"] else [],
    )


def make_example(columns: Sequence[Column]) -> dict[str, Any]:
    """Return a record that fits: all required columns, and some optional ones."""
    example = {}
    for index, column in enumerate(columns):
        if column.required or index < _SOME:
            limits = (limit for limit in (column.min, column.max) if limit is not None)
            value = next(limits, _EXAMPLES[column.item_type])
            example[column.name] = [value] if column.is_array else value
    return example


def _read_rows(
    table: Table, query: Mapping[str, str], condition: Condition, now: int, seconds: float | None
) -> Rows:
    limit = read_number(query, "rows", _ROWS, _MOST_ROWS)
    page = read_number(query, "page", 1, _MOST_SKIPPED // limit)
    begin, end = (
        parse_moment(query[bound], now) if query.get(bound) else None for bound in ("begin", "end")
    )
    until = to_instant(query["until"]) if query.get("until") else None
    if until is not None:
        end = until + 1 if end is None else min(end, until + 1)
    definition = table.definition
    skipped = (page - 1) * limit
    statement = plan_rows(definition, condition, limit + 1, skipped)
    result = table.query(
        statement.text,
        begin,
        end,
        parameters=statement.parameters,
        timeout=seconds,
        admin=False,
    ).to_arrow()
    rows = _list_rows(result.slice(0, limit))
    if until is None and page == 1 and rows:
        until = to_instant(rows[0][result.column_names.index(definition.time_column)])
    return Rows(
        result.column_names,
        rows,
        page,
        result.num_rows <= limit,
        None if until is None else format_instant(until),
        plan_rows(definition, condition, limit, skipped).spell(),
    )


def _choose_range(query: Mapping[str, str], now: int, earliest: int, latest: int) -> TimeRange:
    """Return all of a table's time, or the part of it that an address names."""
    begin = parse_moment(query["begin"], now) if query.get("begin") else None
    end = parse_moment(query["end"], now) if query.get("end") else None
    if begin is None:
        begin = earliest if end is None else min(earliest, end - 1)
    return TimeRange(begin, max(latest, begin) + 1 if end is None else end)


def _read_plot(
    table: Table,
    query: Mapping[str, str],
    condition: Condition,
    within: TimeRange,
    seconds: float | None,
) -> Plot:
    bins = plan_bins(within, _BINS)
    statement = plan_plot(table.definition, query, condition, bins, _MOST_LINES)
    result = table.query(
        statement.text,
        within.begin,
        within.end,
        parameters=statement.parameters,
        timeout=seconds,
        admin=False,
    ).to_arrow()
    rows = _list_rows(result)
    if not query.get("by"):
        rows = [[time, query["plot"], value, 1] for time, value in rows]
    aggregation = query.get("way") or "mean"
    lines = _make_lines(rows, bins, 0.0 if aggregation == "count" else None)
    return Plot(
        query["plot"],
        aggregation,
        query.get("by"),
        [format_instant(bins.begin_of(number)) for number in range(bins.count)],
        bins.width / SECOND,
        lines,
        rows[0][3] - len(lines) if rows else 0,
        format_instant(within.begin),
        format_instant(within.end),
        statement.spell(),
    )


def _make_lines(rows: Sequence[Sequence[Any]], bins: Bins, otherwise: float | None) -> list[Line]:
    by_label: dict[str | None, list[float | None]] = {}
    for time, label, value, _ in rows:
        line = by_label.setdefault(label, [otherwise] * bins.count)
        if isinstance(value, int | float):
            line[bins.find(to_instant(time))] = value
    return sorted(
        (
            make_line("none" if label is None else label, values)
            for label, values in by_label.items()
        ),
        key=by_size,
    )


def _read_rejects(table: Table, seconds: float | None) -> list[list[Any]]:
    return _list_rows(
        table.query(
            f"SELECT time, position, reasons, record FROM {table.name}{REJECTS} ORDER BY time DESC",
            limit=_REJECTS,
            timeout=seconds,
            admin=False,
        ).to_arrow()
    )


def _list_rows(table: Any) -> list[list[Any]]:
    columns = [
        [value for chunk in column.chunks for value in to_values(chunk)] for column in table.columns
    ]
    return [list(row) for row in zip(*columns, strict=True)]
