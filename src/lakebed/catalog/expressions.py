"""The few SQL expressions that SQLite and PostgreSQL spell differently."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement


class greatest(FunctionElement[int]):  # noqa: N801
    """The larger of two numbers."""

    type = sa.BigInteger()
    inherit_cache = True


class catalog_clock(FunctionElement[int]):  # noqa: N801
    """The database's own clock in microseconds; no other clock is used for decisions."""

    type = sa.BigInteger()
    inherit_cache = True


@compiles(greatest, "sqlite")
def _(element: Any, compiler: Any, **kw: Any) -> str:
    return f"max({compiler.process(element.clauses, **kw)})"


@compiles(greatest, "postgresql")
def _(element: Any, compiler: Any, **kw: Any) -> str:
    return f"greatest({compiler.process(element.clauses, **kw)})"


@compiles(catalog_clock, "sqlite")
def _(_element: Any, _compiler: Any, **_kw: Any) -> str:
    return "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER)"


@compiles(catalog_clock, "postgresql")
def _(_element: Any, _compiler: Any, **_kw: Any) -> str:
    return "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT)"


class _ValueList(sa.types.TypeDecorator[Sequence[Any]]):
    """A list as one bound value: an array on PostgreSQL, a JSON text on SQLite."""

    impl = sa.Text
    cache_ok = True

    def __init__(self, item: type[sa.types.TypeEngine[Any]]) -> None:
        super().__init__()
        self.item = item

    def load_dialect_impl(self, dialect: sa.Dialect) -> Any:
        if dialect.name == "postgresql":
            return dialect.type_descriptor(sa.ARRAY(self.item))
        return dialect.type_descriptor(sa.Text())

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> Any:
        return list(value) if dialect.name == "postgresql" else json.dumps(list(value))


class is_one_of(FunctionElement[bool]):  # noqa: N801
    """A test whether a value is in a bound list of any length. PostgreSQL looks up each element of
    an array in an index regardless of statistics; with a subquery that unnests the array it may
    read all of a table that was never analyzed."""

    type = sa.Boolean()
    inherit_cache = True

    def self_group(self, against: Any = None) -> Any:  # noqa: ARG002
        """A comparison: SQLite, to which truth is a number, need not compare it with 1."""
        return self


@compiles(is_one_of, "sqlite")
def _(element: Any, compiler: Any, **kw: Any) -> str:
    value, listed = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{value} IN (SELECT value FROM json_each({listed}))"


@compiles(is_one_of, "postgresql")
def _(element: Any, compiler: Any, **kw: Any) -> str:
    value, listed = (compiler.process(clause, **kw) for clause in element.clauses)
    return f"{value} = ANY ({listed})"


def one_of_bound(column: sa.ColumnElement[Any], name: str) -> sa.ColumnElement[bool]:
    """`one_of` for texts that are bound when the statement runs; for statements built once."""
    return is_one_of(column, sa.bindparam(name, type_=_ValueList(sa.Text)))


def one_of(column: sa.ColumnElement[Any], values: Sequence[Any]) -> sa.ColumnElement[bool]:
    """``column IN (…)`` for any number of values, without a limit on bound parameters."""
    item = sa.BigInteger if isinstance(column.type, sa.Integer) else sa.Text
    bound = sa.bindparam(None, list(values), type_=_ValueList(item), unique=True)
    return is_one_of(column, bound)
