"""SQL: a statement with its first rows, a chart of them, the files read for it, and the tables and
columns that exist. Statements of this page change nothing, even for administrators: an address can
be sent around.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lakebed.errors import Denied
from lakebed.lake import Lake
from lakebed.model.time import SECOND, format_instant, to_instant
from lakebed.query.output.plain import name_columns, to_values
from lakebed.query.output.result import Result
from lakebed.query.snapshot import listings
from lakebed.query.snapshot.listings import CatalogRequest
from lakebed.web.times import read_number

EXAMPLE = """SELECT date_trunc('minute', time) AS minute, severity_text, count(*) AS n
FROM log_entries
GROUP BY 1, 2
ORDER BY 1"""
_ROWS = 500
_CELLS = 6_000
"""The default number of values shown: fewer rows of wide results."""
_MOST_ROWS = 10_000
_MOST_SERIES = 6
_MOST_BARS = 60
_MOST_NAMES = 2
"""The number of columns that name a line or a bar."""
_DAY = 86_400 * SECOND


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a result or of a table."""

    name: str
    type: str
    comment: str | None = None


@dataclass(frozen=True, slots=True)
class TableShown:
    """A table that a statement can name, with its columns."""

    name: str
    columns: Sequence[Column]


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one line."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Chart:
    """The part of a result that is drawn."""

    kind: str
    """``lines`` over time, or ``bars``, one for each row."""
    labels: Sequence[str]
    positions: Sequence[float]
    series: Sequence[Series]
    is_cut: bool
    """True if there is more than is drawn."""
    title: str
    """The columns that are drawn."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The rows of a statement, and where they come from."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    is_cut: bool
    chart: Chart | None
    snapshot: str
    tables: Sequence[Mapping[str, Any]]
    """For each table the numbers of partitions considered, pruned and read."""
    explained: Sequence[str]
    why_empty: Mapping[str, str]
    """If there are no rows: for each view set the statement that explains why."""
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True)
class SqlPage:
    """The data of the page."""

    asked: Mapping[str, str]
    answer: Answer | None
    schema: Sequence[TableShown]
    problem: str | None = None
    hint: str | None = None


def read_sql(lake: Lake, query: Mapping[str, str], seconds: float | None) -> SqlPage:
    """Return the page of a statement, or, without one, of all tables and columns."""
    fields = _read_asked(query)
    if not fields.get("sql", "").strip():
        return SqlPage(fields, None, read_schema(lake))
    limit = read_number(fields, "rows", _ROWS, _MOST_ROWS)
    with run(lake, query, seconds, limit=limit + 1) as result:
        table = result.to_arrow()
        explanation = result.explanation
    if "rows" not in fields:
        limit = min(limit, _CELLS // max(1, table.num_columns))
    page_rows = table.slice(0, limit)
    plain_explanation = explanation.as_dict()
    answer = Answer(
        [Column(field.name, str(field.type)) for field in table.schema],
        _read_rows(page_rows),
        table.num_rows > limit,
        plan_chart(page_rows),
        plain_explanation["snapshot"],
        plain_explanation["tables"],
        explanation.lines(),
        {}
        if table.num_rows
        else _explain_empty(lake, plain_explanation["tables"], explanation.tick),
        explanation.warnings,
    )
    return SqlPage(fields, answer, read_schema(lake))


def read_failed(lake: Lake, query: Mapping[str, str], problem: str, hint: str | None) -> SqlPage:
    """Return the page of a statement that cannot be run."""
    return SqlPage(_read_asked(query), None, read_schema(lake), problem, hint)


def run(
    lake: Lake, query: Mapping[str, str], seconds: float | None, *, limit: int | None = None
) -> Result:
    """Return the rows of the statement that an address holds. `Denied` if it would change the
    lake."""
    try:
        return lake.query(
            query.get("sql", ""),
            query.get("begin") or None,
            query.get("end") or None,
            limit=limit,
            timeout=seconds,
            explained=True,
            admin=False,
        )
    except Denied as error:
        raise Denied(
            "the statement calls a function that changes the lake, and this page only reads",
            hint="administrators change it on the page Admin, or with lakebed query",
        ) from error


def _read_asked(query: Mapping[str, str]) -> dict[str, str]:
    return {name: query[name] for name in ("sql", "begin", "end", "rows") if query.get(name)}


def read_schema(lake: Lake) -> list[TableShown]:
    """Return view sets with comments of their columns, then users' tables and those of their
    rejects."""
    listed_columns = lake.queries.look_up(CatalogRequest(frozenset([listings.VIEW_COLUMNS])))
    by_name: dict[str, list[Column]] = {}
    for row in listed_columns.tables[listings.VIEW_COLUMNS].to_pylist():
        column = Column(row["column_name"], row["data_type"], row["comment"])
        by_name.setdefault(row["view_set_name"], []).append(column)
    for name, definition in lake.queries.list_tables().items():
        if name not in by_name:
            by_name[name] = [Column(field.name, str(field.type)) for field in definition.schema]
    return [TableShown(name, columns) for name, columns in by_name.items()]


def _explain_empty(lake: Lake, tables: Sequence[Mapping[str, Any]], tick: int) -> dict[str, str]:
    """Return statements about the day of insert time before a snapshot."""
    users = {table.full_name for table in lake.tables.list_tables()}
    begin, end = format_instant(tick - _DAY), format_instant(tick + 1)
    return {
        table["table"]: f"SELECT * FROM explain_empty('{table['table']}', '{begin}', '{end}')"
        for table in tables
        if table["table"] not in users
    }


def _read_rows(table: pa.Table) -> list[list[Any]]:
    if not table.num_columns:
        return [[] for _ in range(table.num_rows)]
    columns = [
        [value for chunk in column.chunks for value in to_values(chunk)] for column in table.columns
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def plan_chart(table: pa.Table) -> Chart | None:
    """Return lines for numbers over time (of the last one, a line for each text or level beside
    them), bars for the last number with its names, otherwise None: counts and measures come after
    the columns they are grouped by. Rows of which several would be one point, or that hardly ever
    share a line, are not drawn as lines."""
    names = name_columns(table.schema)
    kinds = {name: field.type for name, field in zip(names, table.schema, strict=True)}
    times = [name for name in names if pa.types.is_timestamp(kinds[name])]
    texts = [name for name in names if _is_text(kinds[name])]
    numbers = [name for name in names if _is_number(kinds[name])]
    if table.num_rows < 2 or not numbers:
        return None
    columns = dict(zip(names, zip(*_read_rows(table), strict=True), strict=True))
    if times:
        if not texts and len(numbers) == 2 and numbers[0] in ("level", "status", "kind"):
            texts, numbers = [numbers[0]], [numbers[1]]
        rows = range(table.num_rows)
        timed_rows = [row for row in rows if columns[times[0]][row] is not None]
        labels = sorted({columns[times[0]][row] for row in timed_rows})
        if len(labels) < 2:
            return None
        drawn_columns = numbers[-1:] if texts else numbers
        series: dict[str, dict[str, float | None]] = {}
        for row in timed_rows:
            for name in drawn_columns:
                value = columns[name][row]
                line = series.setdefault(_join(columns, texts, row) or name, {})
                if columns[times[0]][row] in line:
                    return None
                is_number = isinstance(value, int | float)
                line[columns[times[0]][row]] = float(value) if is_number else None
        if len(timed_rows) * len(drawn_columns) < 2 * len(series):
            return None
        ranked = sorted(
            series, key=lambda name: -sum(abs(number or 0) for number in series[name].values())
        )
        return Chart(
            "lines",
            labels,
            [float(to_instant(label)) for label in labels],
            [
                Series(name, [series[name].get(label) for label in labels])
                for name in ranked[:_MOST_SERIES]
            ],
            len(ranked) > _MOST_SERIES,
            f"{', '.join(drawn_columns)} over {times[0]}",
        )
    value_column = numbers[-1]
    label_columns = (texts or numbers[:-1])[:_MOST_NAMES]
    if not label_columns:
        return None
    labels = [_join(columns, label_columns, row) for row in range(min(table.num_rows, _MOST_BARS))]
    values = [
        float(number) if isinstance(number, int | float) else None
        for number in columns[value_column][:_MOST_BARS]
    ]
    return Chart(
        "bars",
        labels,
        [float(index) for index in range(len(labels))],
        [Series(value_column, values)],
        table.num_rows > _MOST_BARS,
        value_column,
    )


def _join(columns: Mapping[str, Sequence[Any]], names: Sequence[str], row: int) -> str:
    return " · ".join(str(columns[name][row]) for name in names)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_text(kind: pa.DataType) -> bool:
    is_plain = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    return bool(is_plain or pa.types.is_string_view(kind) or pa.types.is_dictionary(kind))
