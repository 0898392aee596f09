"""Whether a SELECT keeps rows apart that differ in one of its columns: read off its text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sqlglot import exp


def keeps_apart(query: exp.Expr, column: str, known: Mapping[str, exp.Expr] | None = None) -> bool:
    """Whether a column of a query is one of the rows that it reads, or a key by which they are put
    together; False where that cannot be told. ``known`` are the queries that have names."""
    from sqlglot import exp

    if isinstance(query, exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select):
        return False
    named = {**(known or {}), **{each.alias.lower(): each.this for each in query.ctes}}
    given = _find(query, column)
    if given is None or given.find(exp.AggFunc, exp.Window) or query.args.get("joins"):
        return False
    if query.args.get("group") is not None and not any(
        _same(each, given, column) for each in _list_keys(query)
    ):
        return False
    begin = query.args.get("from_") or query.args.get("from")
    source = begin.this if begin is not None else None
    if isinstance(source, exp.Table):
        source = named.get(source.name.lower())
        if source is None:  # partial results themselves
            return True
    if source is None:
        return False
    return all(keeps_apart(source, each.name, named) for each in given.find_all(exp.Column))


def keeps_as_it_is(query: exp.Expr, column: str) -> bool:
    """Whether a column of a query is the one of that name in all rows that were put together; False
    where that cannot be told. Keys that are computed keep apart, but are something else."""
    return keeps_apart(query, column) and _find_origin(query, column, {}) == column.lower()


def _find_origin(query: exp.Expr, column: str, known: Mapping[str, exp.Expr]) -> str | None:
    """Which column of the rows that are read a column of a query is, unchanged."""
    from sqlglot import exp

    if isinstance(query, exp.Subquery):
        query = query.this
    if not isinstance(query, exp.Select):
        return None
    named = {**known, **{each.alias.lower(): each.this for each in query.ctes}}
    given = _find(query, column)
    begin = query.args.get("from_") or query.args.get("from")
    if not isinstance(given, exp.Column) or begin is None:
        return None
    source = begin.this
    if isinstance(source, exp.Table):
        source = named.get(source.name.lower())
        if source is None:
            return given.name.lower()
    return _find_origin(source, given.name, named)


def _find(select: exp.Select, column: str) -> exp.Expr | None:
    """What a column of a query is made of."""
    from sqlglot import exp

    for each in select.expressions:
        if each.alias_or_name.lower() == column.lower():
            found: exp.Expr = each.unalias()
            return found
    has_star = any(each.is_star for each in select.expressions)
    return exp.column(column) if has_star else None


def _list_keys(select: exp.Select) -> Iterator[exp.Expr]:
    """By what a query groups; numbers stand for its columns, and ALL for those that can."""
    from sqlglot import exp

    group = select.args["group"]
    plain = [each.unalias() for each in select.expressions]
    if group.args.get("all"):
        yield from (each for each in plain if not each.find(exp.AggFunc))
    for each in group.expressions:
        place = int(each.name) if isinstance(each, exp.Literal) and each.is_int else 0
        yield plain[place - 1] if 0 < place <= len(plain) else each


def _same(key: exp.Expr, given: exp.Expr, column: str) -> bool:
    from sqlglot import exp

    if isinstance(key, exp.Column) and key.name.lower() == column.lower():
        return True
    return key.sql().lower() == given.sql().lower()
