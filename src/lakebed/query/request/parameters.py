"""Parameters of statements: their positions in the text, and the text with values in their places.
Values are written as literals by us, so that nothing in them is read as SQL; errors report the
position in the text that the caller wrote.
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
from lakebed.model.time import to_datetime
from lakebed.query.request.statement_limits import TEXT, check_length

_TOKENS = re.compile(
    TEXT + r'|"(?:[^"]|"")*"'  # texts and names
    r"|--[^\n]*|(?P<comment>/\*.*?\*/)"
    r"|\$(?P<number>\d+)|(?P<mark>\?)",
    re.DOTALL,
)


_MOST_DIGITS = 76
_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


@dataclass(frozen=True, slots=True)
class Bound:
    """A statement with its values."""

    sql: str
    written: str
    """The statement as the caller wrote it."""
    places: tuple[tuple[int, int, int, int], ...] = ()
    """The begin and end of each value, and of its parameter."""

    @contextmanager
    def placed(self) -> Iterator[None]:
        """Give errors inside their position in the statement as it was written."""
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
        offset = sum(len(row) + 1 for row in lines[: line - 1]) + column - 1
        shift = 0
        for begin, end, written_begin, written_end in self.places:
            if begin <= offset < end:
                offset, shift = written_begin, 0
                break
            if offset >= end:
                shift = written_end - end
        before = self.written[: offset + shift]
        return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


@dataclass(frozen=True, slots=True)
class Prepared:
    """A statement with places for values."""

    sql: str
    count: int

    @property
    def parameter_schema(self) -> pa.Schema:
        """Return the schema of the parameters that clients get: their number; any type will do."""
        return pa.schema([(f"${number + 1}", pa.null()) for number in range(self.count)])

    def bind(self, values: Sequence[Any]) -> Bound:
        """Return the statement with these values."""
        if len(values) != self.count:
            raise BadSql(f"the statement has {self.count} parameters, {len(values)} were given")
        parts, places = [], []
        size = read = used = 0
        for match in _TOKENS.finditer(self.sql):
            number, mark = match["number"], match["mark"]
            if number is None and mark is None:
                continue
            used += mark is not None
            literal = _spell(values[(used if number is None else int(number)) - 1])
            parts += [self.sql[read : match.start()], literal]
            begin = size + match.start() - read
            size, read = begin + len(literal), match.end()
            places.append((begin, size, match.start(), match.end()))
        return Bound("".join([*parts, self.sql[read:]]), self.sql, tuple(places))

    def bind_nothing(self) -> Bound:
        """Return the statement with NULL for every parameter, to find its columns."""
        return self.bind([None] * self.count)


def prepare(sql: str) -> Prepared:
    """Find the parameters of a statement: ``?`` each, or ``$1``, ``$2``, …; not both."""
    check_length(sql)
    tokens = list(_TOKENS.finditer(sql))
    if any("/*" in match["comment"][2:] for match in tokens if match["comment"]):
        raise BadSql("there is a comment in a comment", hint="write two")
    markers = [match for match in tokens if match["number"] or match["mark"]]
    numbered = [int(match["number"]) for match in markers if match["number"]]
    if numbered and len(numbered) < len(markers):
        raise BadSql("the statement mixes ? and $1", hint="use one kind")
    if any(number < 1 or number > 1000 for number in numbered):
        raise BadSql("parameters are numbered from $1")
    return Prepared(sql, max(numbered) if numbered else len(markers))


def _spell(value: Any) -> str:
    """Return a value as an SQL literal."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            if not -(1 << 63) <= value < 1 << 64:
                return _spell_decimal(Decimal(value))
            return str(value) if value >= 0 else f"({value})"
        case float():
            return f"arrow_cast({_quote(repr(value))}, 'Float64')"
        case Decimal():
            if not value.is_finite():
                return _spell(float(value))
            return _spell_decimal(value)
        case str():
            return _quote(value)
        case bytes():
            return f"X'{value.hex()}'"
        case pa.TimestampScalar() if (
            value.is_valid
        ):  # one with nanoseconds, which a datetime cannot hold
            instant, nanoseconds = divmod(_count_nanoseconds(value), 1000)
            text = to_datetime(instant).replace(tzinfo=None).isoformat(timespec="microseconds")
            return f"CAST({_quote(f'{text}{nanoseconds:03}')} AS TIMESTAMP)"
        case datetime():
            return f"CAST({_quote(value.isoformat())} AS TIMESTAMP)"
        case date():
            return f"CAST({_quote(value.isoformat())} AS DATE)"
        case timedelta():
            sign, length = ("-", -value) if value < timedelta(0) else ("", value)
            seconds = length.days * 86_400 + length.seconds
            return f"INTERVAL '{sign}{seconds}.{length.microseconds:06} seconds'"
    raise BadSql(f"a parameter cannot be {type(value).__name__}")


def _count_nanoseconds(value: pa.TimestampScalar) -> int:
    return int(value.value) * _NANOSECONDS[value.type.unit]


def _spell_decimal(value: Decimal) -> str:
    """Return a decimal as a literal, exact while the engine has a type for it."""
    _, digits, exponent = value.as_tuple()
    scale = max(0, -int(exponent))
    precision = max(len(digits) + max(0, int(exponent)), scale)
    if precision > _MOST_DIGITS:
        raise BadSql(f"a parameter has {precision} digits", hint=f"at most {_MOST_DIGITS}")
    kind = f"Decimal{'128' if precision <= 38 else '256'}({precision}, {scale})"
    return f"arrow_cast({_quote(format(value, 'f'))}, '{kind}')"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
