"""Parameters of prepared statements: where they stand in the text, and the text with values in
their places. Values are written as literals by us, so that nothing in them is read as SQL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakebed.errors import BadSql

_TOKENS = re.compile(
    r"'(?:[^']|'')*'"  # texts
    r'|"(?:[^"]|"")*"'  # names
    r"|--[^\n]*|/\*.*?\*/"  # comments
    r"|\$(\d+)|(\?)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement with places for values."""

    sql: str
    count: int

    @property
    def parameter_schema(self) -> pa.Schema:
        """What clients are told of the parameters: how many; any type will do."""
        return pa.schema([(f"${number + 1}", pa.null()) for number in range(self.count)])

    def bind(self, values: list[Any]) -> str:
        """The statement with these values."""
        if len(values) != self.count:
            raise BadSql(f"the statement has {self.count} parameters, {len(values)} were given")
        used = 0

        def fill(match: re.Match[str]) -> str:
            nonlocal used
            if match[1] is not None:
                return _spell(values[int(match[1]) - 1])
            if match[2] is not None:
                used += 1
                return _spell(values[used - 1])
            return match[0]

        return _TOKENS.sub(fill, self.sql)

    def bind_nothing(self) -> str:
        """The statement with NULL for every parameter, to learn what columns it gives."""
        return self.bind([None] * self.count)


def prepare(sql: str) -> Prepared:
    """Find the parameters of a statement: ``?`` each, or ``$1``, ``$2``, …; not both."""
    found = [match for match in _TOKENS.finditer(sql) if match[1] or match[2]]
    numbered = [int(match[1]) for match in found if match[1]]
    if numbered and len(numbered) < len(found):
        raise BadSql("the statement mixes ? and $1", hint="use one kind")
    if any(number < 1 or number > 1000 for number in numbered):
        raise BadSql("parameters are numbered from $1")
    return Prepared(sql, max(numbered) if numbered else len(found))


def _spell(value: Any) -> str:
    """A value as an SQL literal."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return str(value) if value >= 0 else f"({value})"
        case float():
            return f"arrow_cast({_quote(repr(value))}, 'Float64')"
        case Decimal():
            return f"({value})"
        case str():
            return _quote(value)
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            return f"CAST({_quote(value.isoformat())} AS TIMESTAMP)"
        case date():
            return f"CAST({_quote(value.isoformat())} AS DATE)"
        case timedelta():
            return f"INTERVAL '{value.total_seconds()} seconds'"
    raise BadSql(f"a parameter cannot be {type(value).__name__}")


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
