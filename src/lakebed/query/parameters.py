"""Parameters of statements: where they stand in the text, and the text with values in their
places. Values are written as literals by us, so that nothing in them is read as SQL; errors name
the place in the text that the caller wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from lakebed.errors import BadSql

_TOKENS = re.compile(
    r"'(?:[^']|'')*'|\$\$.*?\$\$"  # texts
    r'|"(?:[^"]|"")*"'  # names
    r"|--[^\n]*|/\*.*?\*/"  # comments
    r"|\$(\d+)|(\?)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Bound:
    """A statement with its values."""

    sql: str
    written: str
    """As it was before."""
    places: tuple[tuple[int, int, int, int], ...] = ()
    """Where each value begins and ends, and where its parameter did."""

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Errors inside name their place in the statement as it was written."""
        try:
            yield
        except BadSql as error:
            if error.line is None or error.column is None or not self.places:
                raise
            line, column = self._locate(error.line, error.column)
            message = str(error).removesuffix(f" (line {error.line}, column {error.column})")
            raise BadSql(message, line=line, column=column, hint=error.hint) from error

    def _locate(self, line: int, column: int) -> tuple[int, int]:
        lines = self.sql.split("\n")
        at = sum(len(each) + 1 for each in lines[: line - 1]) + column - 1
        shift = 0
        for begin, end, written_begin, written_end in self.places:
            if begin <= at < end:
                at, shift = written_begin, 0
                break
            if at >= end:
                shift = written_end - end
        before = self.written[: at + shift]
        return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement with places for values."""

    sql: str
    count: int

    @property
    def parameter_schema(self) -> pa.Schema:
        """What clients are told of the parameters: how many; any type will do."""
        return pa.schema([(f"${number + 1}", pa.null()) for number in range(self.count)])

    def bind(self, values: Sequence[Any]) -> Bound:
        """The statement with these values."""
        if len(values) != self.count:
            raise BadSql(f"the statement has {self.count} parameters, {len(values)} were given")
        parts, places = [], []
        size = read = used = 0
        for match in _TOKENS.finditer(self.sql):
            if match[1] is None and match[2] is None:
                continue
            used += match[2] is not None
            spelled = _spell(values[(used if match[1] is None else int(match[1])) - 1])
            parts += [self.sql[read : match.start()], spelled]
            begin = size + match.start() - read
            size, read = begin + len(spelled), match.end()
            places.append((begin, size, match.start(), match.end()))
        return Bound("".join([*parts, self.sql[read:]]), self.sql, tuple(places))

    def bind_nothing(self) -> Bound:
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
