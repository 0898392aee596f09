"""Reading the engine's own optimized plan: which tables it scans, and what rows must satisfy there.
The engine has resolved names, folded constants and moved predicates to where they apply, so nothing
is guessed from SQL text. What is not understood restricts nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from datafusion import LogicalPlan
from datafusion import expr as expressions

from lakebed.query.conditions import Interval, Scan, Value, choose_either, combine

Known = dict[str, Sequence[Interval]]

_MOST_ALTERNATIVES = 8
_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


_SHOWN_SCAN = re.compile(r"^ *TableScan: (?:\S+\.)?\"?(\w+(?:\(\))?)\"?(?: |$)", re.MULTILINE)


def find_scans(plan: LogicalPlan) -> list[Scan]:
    """Every scan of a table in an optimized plan. Some are shown only: those of subqueries that
    stand where a value could, which nothing leads to. They restrict nothing."""
    met = list(_walk(plan, [{}]))
    missed = Counter(_SHOWN_SCAN.findall(plan.display_indent()))
    missed.subtract(Counter(alternatives[0].table for alternatives in met))
    unmet = [Scan(table) for table, count in missed.items() if count > 0]
    return [scan for alternatives in met for scan in alternatives] + unmet


def _walk(plan: LogicalPlan, above: Sequence[Known]) -> Iterator[list[Scan]]:
    """The alternatives of each scan below a node; ``above`` is what the filters just over it
    demand of their rows: one of several things."""
    node = plan.to_variant()
    if isinstance(node, expressions.TableScan):
        name = str(node.table_name()).rpartition(".")[2].strip('"')
        for each in node.filters():
            above = _both(above, _alternatives(each))
        yield [Scan(name, known) for known in above]
        return
    below: Sequence[Known] = [{}]
    if isinstance(node, expressions.Filter):
        below = _both(above, _alternatives(node.predicate()))
    elif isinstance(node, expressions.Projection) and _only_picks(node):
        below = above
    for each in plan.inputs():
        yield from _walk(each, below)


def _only_picks(node: Any) -> bool:
    """Whether a projection gives columns as they are: then their names mean the same below it."""
    return all(isinstance(_look(each), expressions.Column) for each in node.projections())


def _look(expression: Any) -> Any:
    """The expression as one of the kinds that Python can see into, else None: not all can be."""
    try:
        return expression.to_variant()
    except Exception:  # noqa: BLE001  (the engine raises plain exceptions)
        return None


def _both(ours: Sequence[Known], theirs: Sequence[Known]) -> list[Known]:
    """Alternatives of rows that satisfy one of each; when they become many, only what the first
    say."""
    if len(ours) * len(theirs) > _MOST_ALTERNATIVES:
        return list(ours)
    return [combine(one, other) for one in ours for other in theirs]


def _alternatives(predicate: Any) -> list[Known]:
    """What a predicate says, as alternatives where it speaks of different columns: a process or
    a stream."""
    node = _look(predicate)
    if isinstance(node, expressions.BinaryExpr) and node.op() in ("AND", "OR"):
        left, right = _alternatives(node.left()), _alternatives(node.right())
        if node.op() == "AND":
            return _both(left, right)
        if all(each.keys() == left[0].keys() and len(each) == 1 for each in (*left, *right)):
            return [_understand(predicate)]
        if len(left) + len(right) <= _MOST_ALTERNATIVES:
            return [*left, *right]
    return [_understand(predicate)]


def _understand(predicate: Any) -> Known:
    """What a predicate says about single columns; nothing where it says something else."""
    node = _look(predicate)
    if isinstance(node, expressions.BinaryExpr):
        operator = node.op()
        if operator == "AND":
            return combine(_understand(node.left()), _understand(node.right()))
        if operator == "OR":
            return choose_either(_understand(node.left()), _understand(node.right()))
        return _compare(node.left(), operator, node.right())
    if isinstance(node, expressions.InList) and not node.negated():
        either: Known | None = None
        for each in node.list():
            one = _compare(node.expr(), "=", each)
            either = one if either is None else choose_either(either, one)
        return either or {}
    return {}


def _compare(left: Any, operator: str, right: Any) -> Known:
    if operator not in _FLIPPED:
        return {}
    one, other = _look(left), _look(right)
    if isinstance(one, expressions.Literal) and isinstance(other, expressions.Column):
        left, right, operator = right, left, _FLIPPED[operator]
        one, other = other, one
    if not isinstance(one, expressions.Column) or not isinstance(other, expressions.Literal):
        return {}
    scalar = right.python_value()
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
    return {one.name(): [ranges[operator]]}


def _read_value(scalar: Any) -> tuple[Value, Value] | None:
    """The value of a literal as statistics have it, rounded down and up; None if they do not."""
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
