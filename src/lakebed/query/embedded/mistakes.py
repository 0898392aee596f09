"""Errors of the engine, and how answers are protected from them: the statement is refused, or the
engine is not asked to do it.

DataFusion 55 pushes a condition above a RIGHT JOIN, such as ``a.time IS NULL``, down to the files
of the wrong side if they have a column of that name, and loses rows. The same query as a LEFT JOIN
is right for every condition.

``x IN (SELECT …)`` is false in the engine where it should be unknown, because x or one of the rows
is NULL, if it is part of a larger condition: right as long as that has only AND and OR. EXCEPT ALL
and INTERSECT ALL keep the wrong number of repeated rows.

Other errors come from statistics of whole files, so the engine gets none; the catalog chooses files
better. With statistics, it merges files whose rows are in order up to a LIMIT, but reads them in
any order, or in part, and returns rows that are not the first. If a column is the same in a whole
file, it ignores a condition on it that has IS NULL and a list.
"""

from __future__ import annotations

import re
from itertools import dropwhile
from typing import TYPE_CHECKING

from datafusion import LogicalPlan
from datafusion import expr as expressions

from lakebed.errors import BadSql

if TYPE_CHECKING:
    from sqlglot import exp

_ASKS = re.compile(r"\bin\b.*\bselect\b", re.IGNORECASE | re.DOTALL)
_MOST_PARSED = 1 << 16
"""The number of characters of a statement that are parsed: sqlglot needs seconds for more."""
_KEEPS_ALL = re.compile(r"\b(?:except|intersect)\b.*\ball\b", re.IGNORECASE | re.DOTALL)


def require_sound(sql: str, plan: LogicalPlan) -> None:
    """Raise `BadSql` for what would be answered wrongly: a statement and its optimized plan."""
    if _has_filtered_right_join(plan, filtered=False):
        raise BadSql(
            "the engine cannot apply this condition to what a RIGHT JOIN gives",
            hint="write it as a LEFT JOIN: FROM b LEFT JOIN a instead of FROM a RIGHT JOIN b",
        )
    may_keep_all = _KEEPS_ALL.search(sql) is not None
    may_not_know = _ASKS.search(sql) is not None
    if not may_keep_all and not may_not_know:
        return
    tree = _parse(sql)
    if may_keep_all and (tree is None or _keeps_all(tree)):
        raise BadSql(
            "the engine counts the rows of EXCEPT ALL and INTERSECT ALL wrongly",
            hint="leave ALL out, or number the rows: row_number() OVER (PARTITION BY …)",
        )
    lost = (
        _has_mark_join(plan) if tree is None else any(map(_loses_unknowns, _find_subqueries(tree)))
    )
    if lost and may_not_know:
        raise BadSql(
            "the engine takes x IN (SELECT …) for false where NULLs make it unknown, which matters "
            "in this condition",
            hint="write x = ANY (SELECT …), and NOT (x = ANY (SELECT …)) for NOT IN",
        )


def _has_filtered_right_join(plan: LogicalPlan, *, filtered: bool) -> bool:
    node = plan.to_variant()
    if filtered and isinstance(node, expressions.Join) and str(node.join_type()) == "Right":
        return True
    is_filtered_below = filtered or isinstance(node, expressions.Filter)
    return any(
        _has_filtered_right_join(child, filtered=is_filtered_below) for child in plan.inputs()
    )


def _has_mark_join(plan: LogicalPlan) -> bool:
    """Return True if a subquery became a column that is true or false."""
    node = plan.to_variant()
    if isinstance(node, expressions.Join) and str(node.join_type()).endswith("Mark"):
        return True
    return any(map(_has_mark_join, plan.inputs()))


def _parse(sql: str) -> exp.Expr | None:
    if len(sql) > _MOST_PARSED:
        return None
    import sqlglot
    from sqlglot.errors import SqlglotError

    try:
        return sqlglot.parse_one(sql, dialect="postgres")
    except (SqlglotError, RecursionError):  # the engine knows more syntax; then this is unknown
        return None


def _keeps_all(tree: exp.Expr) -> bool:
    from sqlglot import exp

    set_operations = tree.find_all(exp.Except, exp.Intersect)
    return any(operation.args.get("distinct") is False for operation in set_operations)


def _find_subqueries(tree: exp.Expr) -> list[exp.In]:
    from sqlglot import exp

    return [
        predicate for predicate in tree.find_all(exp.In) if predicate.args.get("query") is not None
    ]


def _loses_unknowns(subquery: exp.In) -> bool:
    """Return True if it matters that something is unknown: False, if all above it are AND and OR,
    or if the condition is nothing but this, or its negation, besides others that must be true as
    well."""
    from sqlglot import exp

    ancestors: list[type] = []
    node = subquery.parent
    while node is not None and not isinstance(node, exp.Where | exp.Having | exp.Select | exp.Join):
        ancestors.append(type(node))
        node = node.parent
    if not isinstance(node, exp.Where | exp.Having):
        return True
    if all(kind in (exp.Paren, exp.And, exp.Or) for kind in ancestors):
        return False
    outer_ancestors = dropwhile(lambda kind: kind in (exp.Paren, exp.Not), ancestors)
    return any(kind not in (exp.Paren, exp.And) for kind in outer_ancestors)
