"""Analysis of a SELECT's text: does it keep rows apart that differ in one of its columns?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp


def keeps_apart(
    query: exp.Expr, column: str, subqueries: Mapping[str, exp.Expr] | None = None
) -> bool:
    """Return True if a column of a query is one of the rows that it reads, or a key by which they
    are grouped; False where that is unknown. ``subqueries`` are the queries that have names."""
    from sqlglot import exp

    if isinstance(query, exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select):
        return False
    named_queries = {**(subqueries or {}), **{cte.alias.lower(): cte.this for cte in query.ctes}}
    expression = _find_expression(query, column)
    if expression is None or expression.find(exp.AggFunc, exp.Window) or query.args.get("joins"):
        return False
    if query.args.get("group") is not None and not any(
        _is_same_key(key, expression, column) for key in _list_keys(query)
    ):
        return False
    begin = query.args.get("from_") or query.args.get("from")
    source = begin.this if begin is not None else None
    if isinstance(source, exp.Table):
        source = named_queries.get(source.name.lower())
        if source is None:  # partial results themselves
            return True
    if source is None:
        return False
    return all(
        keeps_apart(source, reference.name, named_queries)
        for reference in expression.find_all(exp.Column)
    )


def keeps_as_it_is(query: exp.Expr, column: str) -> bool:
    """Return True if a column of a query is the one of that name in all rows that were put
    together; False where that is unknown. Computed keys keep rows apart, but are another value."""
    return keeps_apart(query, column) and _find_origin(query, column, {}) == column.lower()


def _find_origin(query: exp.Expr, column: str, subqueries: Mapping[str, exp.Expr]) -> str | None:
    """Return the name of the source column that a column of a query is, unchanged; None if it is
    computed."""
    from sqlglot import exp

    if isinstance(query, exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select):
        return None
    named_queries = {**subqueries, **{cte.alias.lower(): cte.this for cte in query.ctes}}
    expression = _find_expression(query, column)
    begin = query.args.get("from_") or query.args.get("from")
    if not isinstance(expression, exp.Column) or begin is None:
        return None
    source = begin.this
    if isinstance(source, exp.Table):
        source = named_queries.get(source.name.lower())
        if source is None:
            return expression.name.lower()
    return _find_origin(source, expression.name, named_queries)


def _find_expression(select: exp.Select, column: str) -> exp.Expr | None:
    """Return the expression that a column of a query is made of, or None."""
    from sqlglot import exp

    for selected in select.expressions:
        if selected.alias_or_name.lower() == column.lower():
            expression: exp.Expr = selected.unalias()
            return expression
    has_star = any(selected.is_star for selected in select.expressions)
    return exp.column(column) if has_star else None


def _list_keys(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield the expressions by which a query groups; numbers stand for its columns, and ALL for
    those that can."""
    from sqlglot import exp

    group = select.args["group"]
    plain = [selected.unalias() for selected in select.expressions]
    if group.args.get("all"):
        yield from (expression for expression in plain if not expression.find(exp.AggFunc))
    for key in group.expressions:
        number = int(key.name) if isinstance(key, exp.Literal) and key.is_int else 0
        yield plain[number - 1] if 0 < number <= len(plain) else key


def _is_same_key(key: exp.Expr, expression: exp.Expr, column: str) -> bool:
    from sqlglot import exp

    if isinstance(key, exp.Column) and key.name.lower() == column.lower():
        return True
    return key.sql().lower() == expression.sql().lower()
