"""What statements on Spark may be: one query over view sets. Spark itself can do much more in a
SELECT than read tables: call Java, run scripts, open paths, read what else its catalogs have. So
statements are held to this, in three ways that do not depend on each other:

* here, by their parts: tables are view sets by their plain names, functions are on a list;
* by Spark's own grammar: the statement is run as a subquery, where only a query can stand;
* by the session: paths as tables and variables in the text are switched off.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from lakebed.errors import BadSql
from lakebed.query.spark import functions
from lakebed.query.spark.text import Scanned, refuse, scan

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.tokenizer_core import Token

SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.runSQLOnFiles": "false",
    "spark.sql.variable.substitute": "false",
}
"""How the session of a statement reads it."""

_ONLY_QUERIES = "on spark, a statement is one SELECT"
_ELSEWHERE = "the embedded engine has SHOW TABLES, EXPLAIN and the lake's own functions"
_TABLE_PARTS = frozenset({"this", "alias", "joins", "laterals", "pivots", "sample"})


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement that may be run."""

    text: str
    """What Spark is given, without comments."""
    scanned: Scanned
    tree: exp.Expr
    tables: tuple[str, ...]
    """The view sets that it names."""
    most_rows: int | None
    """No more rows than this, whatever the tables hold."""
    keeps_count: bool
    """No more rows than its one table has."""


def read(sql: str, tables: Collection[str]) -> Statement:
    """Read a statement over these tables. `BadSql` says what is wrong, and where."""
    scanned = scan(sql)
    tokens, tree = _parse(scanned)
    for offset, said, hint in _find_problems(tokens, tree, tables):
        raise refuse(scanned.clean, offset, said, hint)
    named = [name for name in _table_names(tree) if name in tables]
    return Statement(
        scanned.clean,
        scanned,
        tree,
        tuple(dict.fromkeys(named)),
        _find_most_rows(tree),
        len(named) == 1 and _keeps_count(tree),
    )


def _parse(scanned: Scanned) -> tuple[Sequence[Token], exp.Expr]:
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import ParseError, TokenError
    from sqlglot.tokenizer_core import TokenType

    dialect = _dialect()
    text = scanned.masked
    try:
        tokens = dialect.tokenize(text)
        begins = next((each for each in tokens if each.token_type != TokenType.L_PAREN), None)
        if begins is None:
            raise BadSql("the statement is empty")
        kinds = (TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.FROM)
        if begins.token_type not in kinds:
            word = begins.text.split()[0].upper()
            raise refuse(text, begins.start, f"{_ONLY_QUERIES}, not {word}", _ELSEWHERE)
        more = next((each for each in tokens if each.token_type == TokenType.SEMICOLON), None)
        if more is not None:
            raise refuse(text, more.start, f"{_ONLY_QUERIES}; it has a semicolon in it")
        (tree,) = sqlglot.parse(text, dialect=dialect)
    except ParseError as error:
        first = error.errors[0]
        said = str(first["description"]).rstrip(".").lower()
        near = str(first["highlight"])
        raise BadSql(
            f"{said} near {near}" if near else said, line=first["line"], column=first["col"]
        ) from None
    except TokenError as error:
        raise BadSql(f"cannot be read: {str(error).splitlines()[0].lower()}") from None
    except RecursionError:
        raise BadSql("the statement is nested too deeply") from None
    if not isinstance(tree, exp.Query | exp.Values):
        raise BadSql(_ONLY_QUERIES, hint=_ELSEWHERE)
    return tokens, tree


@cache
def _dialect() -> Dialect:
    """Spark's, where double quotes are for names."""
    from sqlglot.dialects.spark import Spark

    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # it tells what it falls back to

    class Quoted(Spark):
        class Tokenizer(Spark.Tokenizer):
            QUOTES = ["'"]  # noqa: RUF012
            IDENTIFIERS = ["`", '"']  # noqa: RUF012

    return Quoted()


Problem = tuple[int, str, str | None]


def _find_problems(
    tokens: Sequence[Token], tree: exp.Expr, tables: Collection[str]
) -> Iterator[Problem]:
    from sqlglot import exp

    yield from _refuse_tokens(tokens)
    own = {cte.alias.lower() for cte in tree.find_all(exp.CTE)}
    for node in tree.walk():
        yield from _refuse_node(node, own, tables)


def _refuse_tokens(tokens: Sequence[Token]) -> Iterator[Problem]:
    """By their names, wherever they stand: no other spelling can hide a call from the parser."""
    from sqlglot.tokenizer_core import TokenType

    for place, token in enumerate(tokens):
        name = token.text.lower()
        after = tokens[place + 1].token_type if place + 1 < len(tokens) else None
        before = tokens[place - 1].text.lower() if place else ""
        if token.token_type.name.endswith("STRING"):
            continue
        if name == "using" and after != TokenType.L_PAREN:
            yield token.start, "the statement runs a script, which is code outside SQL", None
        if name == "_metadata":
            yield token.start, "_metadata tells of files, not of what is in them", None
        if after == TokenType.L_PAREN and name in functions.FORBIDDEN:
            yield token.start, f"{name}() {functions.FORBIDDEN[name]}", None
        if (
            name in functions.WITHOUT_PARENTHESES
            and token.token_type != TokenType.IDENTIFIER
            and before not in (".", "as")
        ):
            hint = "if a column is meant, write its table before it"
            yield token.start, f"{name} {functions.FORBIDDEN[name]}", hint


def _refuse_node(node: Any, own: Collection[str], tables: Collection[str]) -> Iterator[Problem]:
    from sqlglot import exp

    match node:
        case exp.DDL() | exp.DML() | exp.Command() | exp.Into():
            yield _place(node), f"{_ONLY_QUERIES}; it has a statement in it that writes", None
        case exp.QueryTransform():
            yield _place(node), "the statement runs a script, which is code outside SQL", None
        case exp.Placeholder() | exp.Parameter() | exp.SessionParameter():
            yield _place(node), "there is a parameter in the statement; write the value", None
        case exp.Table():
            yield from _refuse_table(node, own, tables)
        case exp.Dot() if isinstance(node.expression, exp.Func):
            called = node.expression.name or node.expression.key
            yield _place(node), f"{called}() is called of a schema; write its plain name", None
        case exp.Anonymous() | exp.AnonymousAggFunc():
            name = str(node.name).lower()
            if name not in functions.ALLOWED and name not in functions.FORBIDDEN:
                hint = "see docs/dialects.md for what only the embedded engine has"
                yield _place(node), f"spark has no function {name}", hint


def _refuse_table(
    table: exp.Table, own: Collection[str], tables: Collection[str]
) -> Iterator[Problem]:
    from sqlglot import exp

    where = _place(table)
    if isinstance(table.this, exp.Func):
        return  # judged like every call
    if not isinstance(table.this, exp.Identifier):
        yield where, "only view sets can be read, by their plain names", None
    elif table.args.get("db") or table.args.get("catalog"):
        whole = ".".join(part.name for part in table.parts)
        yield where, f"{whole} cannot be read; only view sets can, by their plain names", None
    elif any(value for part, value in table.args.items() if part not in _TABLE_PARTS):
        yield where, f"{table.name} is read in a way that view sets do not have", None
    elif table.name.lower() not in tables and table.name.lower() not in own:
        known = ", ".join(sorted(tables))
        yield where, f"there is no view set {table.name}", f"there are: {known}"


def _place(node: Any) -> int:
    """Where a part of the statement begins, as far as the parser remembers."""
    known = [each.meta["start"] for each in node.walk() if "start" in each.meta]
    return min(known, default=0)


def _table_names(tree: exp.Expr) -> Iterator[str]:
    from sqlglot import exp

    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier):
            yield table.name.lower()


def _find_most_rows(tree: exp.Expr) -> int | None:
    from sqlglot import exp

    limit = tree.args.get("limit")
    if isinstance(limit, exp.Limit) and isinstance(limit.expression, exp.Literal):
        written = limit.expression.name
        return int(written) if written.isdigit() else None
    if isinstance(tree, exp.Select) and not tree.args.get("group"):
        grouped = any(
            found.find_ancestor(exp.Window, exp.Select) is tree
            for projection in tree.expressions
            for found in projection.find_all(exp.AggFunc)
        )
        growing = any(_names(each) & functions.GROWING for each in tree.find_all(exp.Func))
        return 1 if grouped and not growing else None
    return None


def _keeps_count(tree: exp.Expr) -> bool:
    """Whether each row of the result comes from rows of the table that no other row comes from."""
    from sqlglot import exp

    growing = (exp.Join, exp.Lateral, exp.SetOperation, exp.Unnest, exp.Explode, exp.Values)
    if tree.find(*growing) is not None or tree.find(exp.Cube, exp.Rollup, exp.GroupingSets):
        return False
    return not any(_names(each) & functions.GROWING for each in tree.find_all(exp.Func))


def _names(node: exp.Expr) -> set[str]:
    from sqlglot import exp

    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return {str(node.name).lower()}
    return {name.lower() for name in node.sql_names()} if isinstance(node, exp.Func) else set()
