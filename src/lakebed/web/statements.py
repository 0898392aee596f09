"""The statements behind a table's page: some of its rows, and a column over time. Pure. Names of
columns come from the table's schema, values are parameters; nothing in an address is read as SQL.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakebed.errors import BadInput
from lakebed.model.tables.schema import Column, TableSchema
from lakebed.model.tables.table import UserTable
from lakebed.model.time import format_instant, parse_moment
from lakebed.query.request.parameters import prepare
from lakebed.web.times import Bins

COMPARISONS = {
    "eq": ("=", '"{}" = {}'),
    "ne": ("≠", '"{}" <> {}'),
    "lt": ("<", '"{}" < {}'),
    "le": ("≤", '"{}" <= {}'),
    "gt": (">", '"{}" > {}'),
    "ge": ("≥", '"{}" >= {}'),
    "contains": ("contains", 'strpos(lower("{}"), lower({})) > 0'),
    "missing": ("is missing", '"{}" IS NULL'),
    "present": ("is there", '"{}" IS NOT NULL'),
}
"""Comparisons of a column, as people read them and in SQL."""
_ALONE = ("missing", "present")
_ORDERED = ("eq", "ne", "lt", "le", "gt", "ge", *_ALONE)
_FITTING = {
    "int": _ORDERED,
    "float": _ORDERED,
    "datetime": _ORDERED,
    "string": (*_ORDERED, "contains"),
    "json": ("contains", *_ALONE),
    "bool": ("eq", "ne", *_ALONE),
}
PLOTTED = ("int", "float", "bool")
SPLIT = ("string", "int", "bool")
WAYS = {
    "mean": "avg({0})",
    "min": "min({0})",
    "max": "max({0})",
    "count": "CAST(count({0}) AS DOUBLE)",
    "last": "last_value({0} ORDER BY {1}, {0})",
}
"""Aggregations of the values in each bin. Of booleans, the mean is the share that is true."""
_INT64 = 1 << 63


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with the values of its parameters."""

    text: str
    parameters: Sequence[Any]

    def spell(self) -> str:
        """Return the same with its values written out, for other programs to run."""
        return prepare(self.text).bind(self.parameters).sql


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on rows, as SQL with its parameters; TRUE if all are wanted."""

    text: str = "TRUE"
    parameters: tuple[Any, ...] = ()


def plan_condition(schema: TableSchema, query: Mapping[str, str], now: int) -> Condition:
    """Return the condition that ``where``, ``op`` and ``value`` of an address mean; `BadInput` if
    that is nothing."""
    if not query.get("where"):
        if query.get("value"):
            raise BadInput(
                f"nothing says what is compared with {query['value']!r}",
                hint=f"choose a column with where: {', '.join(schema.names)}",
            )
        return Condition()
    column = schema.column(query["where"])
    comparisons = _ALONE if column.is_array else _FITTING[column.type]
    name = query.get("op") or comparisons[0]
    if name not in comparisons:
        raise BadInput(
            f"{column.name} cannot be compared by {name!r}: it is {column.type}",
            hint=f"use one of {', '.join(comparisons)}",
        )
    _, form = COMPARISONS[name]
    if name in _ALONE:
        return Condition(form.format(column.name))
    if not query.get("value"):
        raise BadInput(
            f"nothing says what {column.name} is compared with", hint="give a value, or missing"
        )
    if name == "contains":
        return Condition(form.format(column.name, "?"), (query["value"],))
    placeholder = """arrow_cast(?, 'Timestamp(Microsecond, Some("UTC"))')"""
    placeholder = placeholder if column.type == "datetime" else "?"
    return Condition(
        form.format(column.name, placeholder), (_read_value(column, query["value"], now),)
    )


def _read_value(column: Column, text: str, now: int) -> Any:
    match column.type:
        case "int":
            number = _read_number(column, text, int)
            if not -_INT64 <= number < _INT64:
                raise BadInput(f"{text} is beyond what {column.name} can hold")
            return int(number)
        case "float":
            return _read_number(column, text, float)
        case "bool":
            if text not in ("true", "false"):
                raise BadInput(f"{column.name} is true or false, not {text!r}")
            return text == "true"
        case "datetime":
            return format_instant(parse_moment(text, now))
    return text


def _read_number(column: Column, text: str, kind: type[int] | type[float]) -> int | float:
    """Return a number for SQL. SQL has no numbers beyond some digits; longer ones are refused."""
    try:
        number = kind(text) if len(text) < 400 else math.nan
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise BadInput(
            f"{column.name} is compared with a number, not {text[:80]!r}",
            hint="write it like 60" if kind is int else "write it like 36.6",
        )
    return number


def plan_rows(table: UserTable, condition: Condition, limit: int, skipped: int) -> Statement:
    """Return the statement for rows by time, the newest first. Rows of one instant are ordered by
    the key or, without one, by all columns, so that a page begins where the one before ended."""
    tie_breakers = [name for name in table.key or table.schema.names if name != table.time_column]
    order = ", ".join([f'"{table.time_column}" DESC', *(f'"{name}"' for name in tie_breakers)])
    where = "" if condition == Condition() else f"\nWHERE {condition.text}"
    offset = f" OFFSET {skipped}" if skipped else ""
    return Statement(
        f'SELECT * FROM "{table.database}"."{table.name}"{where}\n'
        f"ORDER BY {order}\nLIMIT {limit}{offset}",
        condition.parameters,
    )


def check_plot(schema: TableSchema, query: Mapping[str, str]) -> None:
    """Raise `BadInput` if ``plot``, ``by`` or ``way`` of an address cannot be drawn."""
    for name, types, purpose in (("plot", PLOTTED, "drawn"), ("by", SPLIT, "split by")):
        if query.get(name) and schema.column(query[name]).type not in types:
            names = [column.name for column in schema.columns if column.type in types]
            raise BadInput(
                f"{query[name]} is {schema.column(query[name]).type} and cannot be {purpose}",
                hint=f"choose one of {', '.join(names) or 'none: the table has no such column'}",
            )
    if query.get("way") and query["way"] not in WAYS:
        raise BadInput(f"{query['way']!r} is no way to draw it", hint=f"use {', '.join(WAYS)}")


def plan_plot(
    table: UserTable, query: Mapping[str, str], condition: Condition, bins: Bins, most_lines: int
) -> Statement:
    """Return the statement for a time and a number for each bin. Split: a time, a label and a
    number for each bin of the largest lines, and how many lines there are."""
    time, column = f'"{table.time_column}"', query["plot"]
    aggregate = WAYS[query.get("way") or "mean"].format(f'CAST("{column}" AS DOUBLE)', time)
    begin, width = bins.first, bins.width
    bin_begin = (
        f"to_timestamp_micros((CAST({time} AS BIGINT) - {begin}) / {width} * {width} + {begin})"
    )
    condition_sql = "" if condition == Condition() else f" AND {condition.text}"
    rows = f'''FROM "{table.database}"."{table.name}"
WHERE "{column}" IS NOT NULL{condition_sql}'''
    if not query.get("by"):
        text = f'''SELECT {bin_begin} AS {time},
  {aggregate} AS "{column}"
{rows}
GROUP BY 1
ORDER BY 1'''
        return Statement(text, condition.parameters)
    return Statement(
        f"""SELECT time, label, value, labels FROM (
  SELECT *, max(place) OVER () AS labels FROM (
    SELECT *, dense_rank() OVER (ORDER BY size DESC, label) AS place FROM (
      SELECT *, sum(abs(value)) OVER (PARTITION BY label) AS size FROM (
SELECT {bin_begin} AS time,
  CAST("{query["by"]}" AS VARCHAR) AS label, {aggregate} AS value
{rows}
GROUP BY 1, 2
      )
    )
  )
) WHERE place <= {most_lines}
ORDER BY time, place""",
        condition.parameters,
    )
