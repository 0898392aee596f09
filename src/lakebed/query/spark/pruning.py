"""The conditions of a statement for Spark on its tables, found by the embedded engine's planner.

The planner resolves names, folds constants and moves predicates to the tables: for statements that
both engines read alike, what it demands of a table's rows, Spark demands too, and partitions that
cannot hold such rows need not be read. But the engines do not read everything alike: ``5 / 2`` is 2
or 2.5, ``'a\\tb'`` has a backslash in it or a tab, ``code = 5`` compares texts or numbers. A
condition is therefore used only where no such reading can be behind it:

* every constant of the statement is one that is written down: a number, a text without backslashes
  that stands alone, a date or time of at most microseconds, an instant counted from 1970
  (``timestamp_micros(…)``), NULL, TRUE, FALSE, or the clock or a time with an interval added or
  taken. Anything that has to be computed drops all conditions;
* there is no operator in it whose operands they find differently: ``a IS DISTINCT FROM b OR c``;
* bounds of numbers and texts stand in the statement as such: a number or date that is compared with
  a text column was converted on the way, and Spark converts the other side;
* time bounds that depend on the clock hold from an hour before, and have no end: Spark looks at its
  own clock, later, and maybe on another machine;
* with HAVING or QUALIFY, columns whose name the statement gives to something else are left out: the
  engines disagree about what the name means there.

Tables that the planner left out (``WHERE false``) are read whole: Spark has to agree first. What
the caller's own time range demands does not depend on the reading, and is always used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from lakebed.model.time import SECOND, TimeRange
from lakebed.model.view_set import ViewSet
from lakebed.query.planning.conditions import Interval, Scan, combine
from lakebed.query.planning.content import choose_bounds, keeps_times
from lakebed.query.spark.statement import Statement
from lakebed.query.spark.text import Edit, spell

if TYPE_CHECKING:
    from sqlglot.tokenizer_core import Token

_CLOCK = frozenset({"now", "current_timestamp"})
"""Functions that return the instant at which a statement is planned."""
_SLACK = 3600 * SECOND
_TOO_FINE = re.compile(r"\.\d{7}")
_LIKE_A_DATE = re.compile(r"\s*[+-]?\d{4,}-")
_SPECIAL = re.compile(r"\s*(?:now|today|tomorrow|yesterday|epoch)\b|\s*\d{1,2}:", re.IGNORECASE)

_COUNTED = re.compile(
    r"(?<![\w.])(?=timestamp_(?:seconds\s*\(\s*-?\d{1,11}|millis\s*\(\s*-?\d{1,14}"
    r"|micros\s*\(\s*-?\d{1,17})\s*\))",
    re.IGNORECASE,
)
"""Functions that count instants from 1970, none of them beyond the range of timestamps."""
_COUNTS = frozenset({"timestamp_seconds", "timestamp_millis", "timestamp_micros"})


def plan_text(statement: Statement) -> str | None:
    """Return the statement as the embedded engine's planner can read it, with its names for counted
    instants; None if a constant may mean something else to it."""
    if not _is_plain(statement):
        return None
    offsets = [
        token.start for token in statement.tokens if _COUNTED.match(statement.text, token.start)
    ]
    return spell(statement.text, [Edit(offset, offset, "to_") for offset in offsets]).given


def find_scans(
    statement: Statement,
    view_sets: Mapping[str, ViewSet],
    within: TimeRange | None,
    planned: Sequence[Scan],
) -> list[Scan]:
    """Return at least one scan for each table of a statement. ``planned`` are the scans that the
    embedded engine would do, as far as it can read the text."""
    scans = []
    for name in statement.tables:
        in_range = _from_range(view_sets[name], within)
        for scan in [scan for scan in planned if scan.table == name] or [Scan(name)]:
            conditions = _keep_safe_conditions(statement, view_sets[name], scan)
            scans.append(Scan(name, combine(conditions, in_range)))
    return scans


def _from_range(view_set: ViewSet, within: TimeRange | None) -> dict[str, Sequence[Interval]]:
    """Return the conditions of the caller's range on a table's rows before partial results are
    added up."""
    if within is None or not keeps_times(view_set):  # rows that sum up need all their parts
        return {}
    begin, end = choose_bounds(view_set, within)
    return {view_set.time_column: [(begin, None if end is None else end - 1)]}


def _keep_safe_conditions(
    statement: Statement, view_set: ViewSet, scan: Scan
) -> dict[str, Sequence[Interval]]:
    import pyarrow as pa

    shadowed = _list_aliases(statement)
    numbers, texts = _list_constants(statement)
    by_clock = _uses_clock(statement)
    usable: dict[str, Sequence[Interval]] = {}
    for column, intervals in scan.columns.items():
        if column in shadowed or column not in view_set.schema.names:
            continue
        if pa.types.is_timestamp(view_set.schema.field(column).type):
            usable[column] = (
                [_loosen(interval) for interval in intervals] if by_clock else intervals
            )
        elif all(_stands_in(bound, numbers, texts) for interval in intervals for bound in interval):
            usable[column] = intervals
    return usable


def _loosen(interval: Interval) -> Interval:
    low, _ = interval
    return (None if low is None else int(low) - _SLACK, None)


def _stands_in(bound: Any, numbers: frozenset[int], texts: frozenset[str]) -> bool:
    if bound is None:
        return True
    if isinstance(bound, str):
        return bound in texts
    return not numbers.isdisjoint((bound - 1, bound, bound + 1))  # < 5 is up to 4


def _list_constants(statement: Statement) -> tuple[frozenset[int], frozenset[str]]:
    from sqlglot import exp

    numbers: set[int] = set()
    for literal in statement.tree.find_all(exp.Literal):
        if not literal.is_string and literal.name.isdigit():
            value = int(literal.name)
            numbers.update((value, -value))
    dates = any(cast.is_type(*exp.DataType.TEMPORAL_TYPES) for cast in _casts(statement))
    texts = [text.replace("''", "'") for text in _list_texts(statement)]
    return frozenset(numbers), frozenset(
        text for text in texts if not (dates and _LIKE_A_DATE.match(text))
    )


def _list_texts(statement: Statement) -> list[str]:
    """Return the texts in a statement as they are written between their quotes."""
    texts = (
        statement.text[token.start : token.end] for token in statement.tokens if _is_text(token)
    )
    return [text.partition("'")[2] for text in texts]


def _is_text(token: Token) -> bool:
    return token.token_type.name.endswith("STRING")


def _casts(statement: Statement) -> Iterator[Any]:
    from sqlglot import exp

    return statement.tree.find_all(exp.Cast)


def _list_aliases(statement: Statement) -> frozenset[str]:
    """Return the names of columns that mean something else after the SELECT, where that can
    matter."""
    from sqlglot import exp

    if statement.tree.find(exp.Having, exp.Qualify) is None:
        return frozenset()
    return frozenset(
        alias.alias.lower()
        for alias in statement.tree.find_all(exp.Alias)
        if not (
            isinstance(alias.this, exp.Column) and alias.this.name.lower() == alias.alias.lower()
        )
    )


def _uses_clock(statement: Statement) -> bool:
    return any(_is_clock(node) for node in statement.tree.walk())


def _is_clock(node: Any) -> bool:
    from sqlglot import exp

    if isinstance(node, exp.CurrentTimestamp):
        return True
    return isinstance(node, exp.Anonymous) and str(node.name).lower() in _CLOCK


def _is_plain(statement: Statement) -> bool:
    """Return True if every constant is written down as it is meant."""
    tokens = statement.tokens
    if any(_is_text(one) and _is_text(other) for one, other in pairwise(tokens)):
        return False  # Spark joins texts that stand beside each other
    if any(
        "\\" in text or _TOO_FINE.search(text) or _SPECIAL.match(text)
        for text in _list_texts(statement)
    ):
        return False
    return statement.tree.find(*_bound_differently()) is None and all(
        _is_read_alike(node) for node in statement.tree.walk()
    )


def _bound_differently() -> tuple[Any, ...]:
    """Return the operators whose operands extend further in one engine than in the other."""
    from sqlglot import exp

    return (
        exp.NullSafeEQ,
        exp.NullSafeNEQ,
        exp.BitwiseAnd,
        exp.BitwiseOr,
        exp.BitwiseXor,
        exp.BitwiseNot,
        exp.Xor,
        exp.AtTimeZone,
        exp.Collate,
    )


def _is_read_alike(node: Any) -> bool:
    """Return True unless a part of the statement is a constant that the engines read
    differently."""
    from sqlglot import exp

    computed = (exp.Binary, exp.Unary, exp.Func, exp.Between, exp.In)
    if not isinstance(node, computed) or isinstance(node, exp.Paren | exp.AggFunc | exp.Dot):
        return True
    if isinstance(node.parent, exp.Window | exp.WithinGroup | exp.IgnoreNulls):
        return True
    if node.find(exp.Column, exp.Star, exp.Query) is not None:
        return True
    return _is_constant(node)


def _is_constant(node: Any) -> bool:
    from sqlglot import exp

    match node:
        case exp.Literal() | exp.Null() | exp.Boolean():
            return True
        case exp.Neg() | exp.Paren():
            return isinstance(node.this, exp.Literal) or (
                isinstance(node, exp.Paren) and _is_constant(node.this)
            )
        case exp.Interval():
            return True
        case exp.Cast():
            return isinstance(node.this, exp.Literal) and bool(
                node.is_type(*exp.DataType.TEMPORAL_TYPES)
            )
        case exp.EQ():  # 1 = 1
            return isinstance(node.this, exp.Literal) and node.this == node.expression
        case exp.Add() | exp.Sub():
            return isinstance(node.expression, exp.Interval) and _is_constant(node.this)
        case exp.Anonymous() if str(node.name).lower() in _COUNTS:
            return _COUNTED.match(node.sql()) is not None
    return _is_clock(node)
