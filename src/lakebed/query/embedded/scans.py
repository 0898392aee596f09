"""Scans of an optimized plan of the engine, and the conditions on their rows. The engine has
resolved names, folded constants and moved predicates to where they apply, so nothing is guessed
from SQL text. Expressions that the reader does not understand restrict nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
from datafusion import LogicalPlan
from datafusion import expr as expressions

from lakebed.query.embedded.tables import SCHEMA
from lakebed.query.planning.conditions import Interval, Scan, Value, choose_either, combine

Demands = dict[str, Sequence[Interval]]

_MOST_ALTERNATIVES = 8
_MOST_INTERVALS = 200
_MOST_LOOKS = 100
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


_SHOWN_SCAN = re.compile(
    r"^ *TableScan: (?:\S+\.)??(?:\"?(\w+)\"?\.)?\"?(\w+(?:\(\))?)\"?(?: |$)", re.MULTILINE
)


def find_scans(plan: LogicalPlan) -> list[Scan]:
    """Return every scan of a table in an optimized plan. Some only appear in its text: those of
    scalar subqueries, which no input leads to. They restrict nothing."""
    reached_scans = list(_walk(plan, [{}]))
    counts = Counter(_spell(*names) for names in _SHOWN_SCAN.findall(plan.display_indent()))
    counts.subtract(Counter(alternatives[0].table for alternatives in reached_scans))
    unreached_scans = [Scan(table) for table, count in counts.items() if count > 0]
    return [scan for alternatives in reached_scans for scan in alternatives] + unreached_scans


def _spell(schema: str | None, table: str) -> str:
    """Return a table's name as statements spell it: with its database, if it has one."""
    return table if schema in (None, "", SCHEMA) else f"{schema}.{table}"


def _walk(plan: LogicalPlan, demands_above: Sequence[Demands]) -> Iterator[list[Scan]]:
    """Yield the alternatives of each scan below a node; ``above`` has the alternative conditions of
    the filters just over it."""
    node = plan.to_variant()
    if isinstance(node, expressions.TableScan):
        name = _spell(*node.fqn()[1:])
        for predicate in node.filters():
            demands_above = _combine_both(demands_above, _alternatives(predicate))
        projection = node.projection()
        names = None if projection is None else frozenset(name for _, name in projection)
        yield [Scan(name, alternative, names) for alternative in demands_above]
        return
    demands_below: Sequence[Demands] = [{}]
    if isinstance(node, expressions.Filter):
        demands_below = _combine_both(demands_above, _alternatives(node.predicate()))
    elif isinstance(node, expressions.Projection) and _only_picks(node):
        demands_below = demands_above
    for child in plan.inputs():
        yield from _walk(child, demands_below)


def _only_picks(node: Any) -> bool:
    """Return True if a projection returns columns as they are: then their names mean the same below
    it."""
    return all(
        isinstance(_inspect(expression), expressions.Column) for expression in node.projections()
    )


def _inspect(expression: Any) -> Any:
    """Return the expression as one of the kinds that Python can inspect, else None."""
    try:
        return expression.to_variant()
    except Exception:  # noqa: BLE001  (the engine raises plain exceptions)
        return None


def _combine_both(first: Sequence[Demands], second: Sequence[Demands]) -> list[Demands]:
    """Return alternatives of rows that satisfy one of each; of too many, only those of the
    first."""
    if len(first) * len(second) > _MOST_ALTERNATIVES:
        return list(first)
    return [
        combine(left_demands, right_demands) for left_demands in first for right_demands in second
    ]


def _combine_either(alternatives: Sequence[Demands]) -> list[Demands]:
    """Return the same alternatives, those of one column as one; of too many, the conditions that
    all share."""
    columns = {tuple(alternative) for alternative in alternatives}
    if len(columns) == 1 and len(next(iter(columns))) == 1:
        name = next(iter(columns))[0]
        return [
            {name: _join([range_ for alternative in alternatives for range_ in alternative[name]])}
        ]
    if len(alternatives) <= _MOST_ALTERNATIVES:
        return list(alternatives)
    return [reduce(choose_either, alternatives)]


def _join(intervals: Sequence[Interval]) -> Sequence[Interval]:
    """Return the intervals; of too many, one that contains them all."""
    if len(intervals) <= _MOST_INTERVALS:
        return intervals
    lows, highs = zip(*intervals, strict=True)
    if None in lows or None in highs or len({type(bound) for bound in lows + highs}) > 1:
        return [(None, None)]
    return [(min(lows), max(highs))]


def _alternatives(predicate: Any) -> list[Demands]:
    """Return the conditions of a predicate on its rows, as alternatives where they concern
    different columns. Of a very long one only a part is read: each look costs as much as the rest
    is long."""
    return _Reader(_MOST_LOOKS).read(predicate)


class _Reader:
    """Reads a predicate up to a number of looks; the rest of it restricts nothing."""

    def __init__(self, looks: int) -> None:
        self._looks = looks

    def read(self, predicate: Any) -> list[Demands]:
        self._looks -= 1
        if self._looks < 0:
            return [{}]
        node = _inspect(predicate)
        if isinstance(node, expressions.BinaryExpr):
            operator = node.op()
            if operator not in ("AND", "OR"):
                return [_compare(node.left(), operator, node.right())]
            right_side = self.read(node.right())  # long chains lean to the left
            left_side = self.read(node.left())
            return (
                _combine_both(left_side, right_side)
                if operator == "AND"
                else _combine_either([*left_side, *right_side])
            )
        if isinstance(node, expressions.InList) and not node.negated():
            return [_among(node.expr(), node.list())]
        return [{}]


def _among(column: Any, values: Sequence[Any]) -> Demands:
    """Return the conditions of a column that is one of some literals."""
    collected: list[Interval] = []
    name = None
    for value in values:
        demands = _compare(column, "=", value)
        if not demands:
            return {}
        ((name, intervals),) = demands.items()
        collected += intervals
    return {} if name is None else {name: _join(collected)}


def _compare(left_side: Any, operator: str, right_side: Any) -> Demands:
    if operator not in _FLIPPED:
        return {}
    first_operand, second_operand = _inspect(left_side), _inspect(right_side)
    if isinstance(first_operand, expressions.Literal) and isinstance(
        second_operand, expressions.Column
    ):
        left_side, right_side, operator = right_side, left_side, _FLIPPED[operator]
        first_operand, second_operand = second_operand, first_operand
    if not isinstance(first_operand, expressions.Column) or not isinstance(
        second_operand, expressions.Literal
    ):
        return {}
    scalar = right_side.python_value()
    bounds = _read_value(scalar)
    if bounds is None:
        return {}
    low, high = bounds
    ranges: Mapping[str, Interval] = {
        "=": (low, high),
        "<": (None, high - 1 if isinstance(high, int) else high),
        "<=": (None, low),
        ">": (low + 1 if isinstance(low, int) else low, None),
        ">=": (high, None),
    }
    return {first_operand.name(): [ranges[operator]]}


def _read_value(scalar: Any) -> tuple[Value, Value] | None:
    """Return the value of a literal as statistics have it, rounded down and up; None if they do
    not."""
    if not isinstance(scalar, pa.Scalar) or not scalar.is_valid:
        return None
    kind = scalar.type
    if pa.types.is_dictionary(kind):
        return _read_value(pa.scalar(scalar.as_py(), kind.value_type))
    if pa.types.is_timestamp(kind):
        count = int(scalar.value)
        if kind.unit == "ns":
            return count // 1000, -(-count // 1000)
        scaled = count * {"s": 1_000_000, "ms": 1_000, "us": 1}[kind.unit]
        return scaled, scaled
    if pa.types.is_integer(kind) or (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    ):
        value = scalar.as_py()
        return value, value
    return None
