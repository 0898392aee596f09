"""A statement on Spark: the tables that it names, and the text that Spark reads.

Temporary views have no database. Each table of a database is therefore a view with a name of its
own, which replaces the table's name in the text. Callers own the session, so Spark itself decides
what else a query may contain; its grammar accepts only a query in that position.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any

from lakebed.errors import BadSql
from lakebed.query.spark.text import Edit, Spelling, refuse, spell

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.tokenizer_core import Token

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.variable.substitute": "false",
}
"""The dialect of statements, independent of the settings of the caller's session."""

_ONLY_QUERIES = "on spark, a statement is one SELECT"
_ELSEWHERE = "the embedded engine has SHOW TABLES, EXPLAIN and the lake's own functions"
_GROWING = {
    *("explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer"),
    *("stack", "json_tuple", "variant_explode", "variant_explode_outer", "range", "sequence"),
}
"""Functions that return more rows than they read."""
_WORD = re.compile(r"\w+")
_CATALOG, _VIEW_SETS = "lake", "public"
"""The catalog and the schema of view sets in the embedded engine."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One query."""

    text: str
    """The text as written, without a semicolon at its end."""
    spelling: Spelling
    tokens: Sequence[Token]
    tree: exp.Expr
    views: Mapping[str, str]
    """The view set or table that each temporary view shows."""
    most_rows: int | None
    """A limit of rows that does not depend on the tables."""
    keeps_count: bool
    """The result has no more rows than its one table."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of its view sets and tables."""
        return tuple(dict.fromkeys(self.views.values()))


def read(sql: str, tables: Collection[str]) -> Statement:
    """Read a query over these tables. `BadSql` says what is wrong, and where."""
    text, tokens, tree = _parse(sql)
    references = _find_references(tree)
    _require_tables(text, tree, references, tables)
    views = _name_views(text, references, tables)
    return Statement(
        text,
        spell(text, list(_find_edits(text, tree, references, views))),
        tokens,
        tree,
        {view: name for (name, _), view in views.items()},
        _find_most_rows(tree),
        sum(_full_name(table) in tables for table in references) == 1 and _keeps_count(tree),
    )


def _parse(sql: str) -> tuple[str, Sequence[Token], exp.Expr]:
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import ParseError, TokenError
    from sqlglot.tokenizer_core import TokenType

    dialect = _dialect()
    try:
        tokens = dialect.tokenize(sql)
        while tokens and tokens[-1].token_type == TokenType.SEMICOLON:
            sql = sql[: tokens.pop().start]
        first = next((token for token in tokens if token.token_type != TokenType.L_PAREN), None)
        if first is None:
            raise BadSql("the statement is empty")
        kinds = (TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.FROM)
        if first.token_type not in kinds:
            word = first.text.split()[0].upper()
            raise refuse(sql, first.start, f"{_ONLY_QUERIES}, not {word}", _ELSEWHERE)
        semicolon = next(
            (token for token in tokens if token.token_type == TokenType.SEMICOLON), None
        )
        if semicolon is not None:
            raise refuse(sql, semicolon.start, f"{_ONLY_QUERIES}; it has a semicolon in it")
        (tree,) = sqlglot.parse(sql, dialect=dialect)
    except ParseError as error:
        detail = error.errors[0]
        message = str(detail["description"]).rstrip(".").lower()
        highlight = str(detail["highlight"])
        raise BadSql(
            f"{message} near {highlight}" if highlight else message,
            line=detail["line"],
            column=detail["col"],
        ) from None
    except TokenError as error:
        raise BadSql(f"cannot be read: {str(error).splitlines()[0].lower()}") from None
    except RecursionError:
        raise BadSql("the statement is nested too deeply") from None
    if not isinstance(tree, exp.Query | exp.Values):
        raise BadSql(_ONLY_QUERIES, hint=_ELSEWHERE)
    return sql, tokens, tree


@cache
def _dialect() -> Dialect:
    """Return Spark's dialect, in which double quotes are for names."""
    from sqlglot.dialects.spark import Spark

    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it warns about its fallbacks

    class Quoted(Spark):
        class Tokenizer(Spark.Tokenizer):
            QUOTES = ["'"]  # noqa: RUF012
            IDENTIFIERS = ["`", '"']  # noqa: RUF012
            STRING_ESCAPES = ["\\", "'"]  # noqa: RUF012

    return Quoted()


def _find_references(tree: exp.Expr) -> list[exp.Table]:
    """Return the named tables of a query, in their order. Table functions and hints are not named
    tables."""
    from sqlglot import exp

    tables = (
        table
        for table in tree.find_all(exp.Table)
        if not isinstance(table.this, exp.Func) and table.find_ancestor(exp.Hint) is None
    )
    return sorted(tables, key=lambda table: _find_offset(table.this))


def _require_tables(
    text: str, tree: exp.Expr, references: Sequence[exp.Table], tables: Collection[str]
) -> None:
    """Raise `BadSql` for a table that is not in the lake, or that no view can replace."""
    from sqlglot import exp

    subqueries = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for table in references:
        offset, name = _find_offset(table), _full_name(table)
        if not table.args.get("db"):
            if name is not None and name not in tables and table.name.lower() not in subqueries:
                hint = f"there are: {', '.join(sorted(tables))}"
                raise refuse(text, offset, f"there is no view set {name}", hint)
        elif name not in tables:
            full_name = ".".join(part.name for part in table.parts)
            table_names = ", ".join(
                sorted(table_name for table_name in tables if "." in table_name)
            )
            message = f"{full_name} cannot be read; only view sets and tables of the lake can"
            raise refuse(
                text, offset, message, f"there are: {table_names}" if table_names else None
            )
        elif any("start" not in part.meta for part in table.parts):
            raise refuse(text, offset, f"{name} cannot be located in the statement; give it a name")
        elif table.args.get("sample") and not table.alias:
            hint = f"{name} TABLESAMPLE (…) AS {table.name}"
            raise refuse(text, offset, f"a sample of {name} needs a name", hint)


def _full_name(table: exp.Table) -> str | None:
    """Return a table's name in the lake: with its database, if it has one."""
    from sqlglot import exp

    if not all(isinstance(part, exp.Identifier) for part in table.parts):
        return None
    return _join(table.parts)


def _join(parts: Sequence[exp.Expr]) -> str:
    names = [part.name.lower() for part in parts]
    names = [f"`{name}`" if "." in name else name for name in names]
    if len(names) == 3 and names[0] == _CATALOG:
        names = names[1:]
    if len(names) == 2 and names[0] == _VIEW_SETS:
        names = names[1:]
    return ".".join(names)


def _name_views(
    text: str, references: Sequence[exp.Table], tables: Collection[str]
) -> dict[tuple[str, bool], str]:
    """Return the view of each table, by its name and whether the statement has a database before
    it. Plain names stay, also beside a CTE of the same name; others get an unused name."""
    used = {*tables, *_WORD.findall(text.lower())}
    unused = (name for name in map("lakebed_{}".format, count()) if name not in used)
    views: dict[tuple[str, bool], str] = {}
    for table in references:
        name, qualified = _full_name(table), bool(table.args.get("db"))
        if name is not None and name in tables and (name, qualified) not in views:
            views[name, qualified] = next(unused) if qualified else name
    return views


def _find_edits(
    text: str,
    tree: exp.Expr,
    references: Sequence[exp.Table],
    views: Mapping[tuple[str, bool], str],
) -> Iterator[Edit]:
    """Yield the edits that put views in place of tables of databases, and that take the database
    off their columns."""
    from sqlglot import exp

    unnamed: dict[str, set[str]] = {}
    for table in references:
        if not table.args.get("db"):
            continue
        name = _join(table.parts)
        view = views[name, True]
        if not table.alias:
            unnamed.setdefault(table.name.lower(), set()).add(name)
            view = f"{view} AS {table.name.lower()}"
        yield Edit(table.parts[0].meta["start"], table.parts[-1].meta["end"] + 1, view)
    for column in tree.find_all(exp.Column):
        names = unnamed.get(column.table.lower(), set())
        if not column.args.get("db") or _join(column.parts[:-1]) not in names:
            continue
        start = column.parts[0].meta["start"]
        if len(names) > 1:
            message = f"{' and '.join(sorted(names))} need names of their own"
            hint = f"{_join(column.parts[:-1])} AS a, and then a.{column.name}"
            raise refuse(text, start, message, hint)
        yield Edit(start, column.args["table"].meta["start"], "")


def _find_offset(node: Any) -> int:
    """Return the offset of a node in the text, as far as the parser remembers it."""
    return min((part.meta["start"] for part in node.walk() if "start" in part.meta), default=0)


def _find_most_rows(tree: exp.Expr) -> int | None:
    from sqlglot import exp

    limit = tree.args.get("limit")
    if isinstance(limit, exp.Limit) and isinstance(limit.expression, exp.Literal):
        text = limit.expression.name
        return int(text) if text.isdigit() else None
    if isinstance(tree, exp.Select) and not tree.args.get("group"):
        grouped = any(
            aggregate.find_ancestor(exp.Window, exp.Select) is tree
            for projection in tree.expressions
            for aggregate in projection.find_all(exp.AggFunc)
        )
        return 1 if grouped and not _grows(tree) else None
    return None


def _keeps_count(tree: exp.Expr) -> bool:
    """Return True if no two rows of the result come from the same row of the table."""
    from sqlglot import exp

    growing = (exp.Join, exp.Lateral, exp.SetOperation, exp.Unnest, exp.Explode, exp.Values)
    if tree.find(*growing) is not None or tree.find(exp.Cube, exp.Rollup, exp.GroupingSets):
        return False
    return not _grows(tree)


def _grows(tree: exp.Expr) -> bool:
    from sqlglot import exp

    return any(_names(function) & _GROWING for function in tree.find_all(exp.Func))


def _names(node: exp.Expr) -> set[str]:
    from sqlglot import exp

    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return {str(node.name).lower()}
    return {name.lower() for name in node.sql_names()} if isinstance(node, exp.Func) else set()
