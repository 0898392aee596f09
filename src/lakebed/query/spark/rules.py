"""What statements on Spark may be: one query over view sets and users' tables. Spark itself can do
much more in a SELECT than read tables: call Java, run scripts, open paths, read what else its
catalogs have. So statements are held to this, in three ways that do not depend on each other:

* here, by their parts: tables are view sets by their plain names or users' tables with their
  database, functions are on a list;
* by Spark's own grammar: the statement is run as a subquery, where only a query can stand;
* by the session: paths as tables and variables in the text are switched off.

What Spark is given names no database, because temporary views have none: each table of a database
is a view with a name of its own, which is put where the parser found the table's.
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
from lakebed.query.spark import functions
from lakebed.query.spark.text import Edit, Scanned, Spelling, refuse, scan, spell

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
_WORD = re.compile(r"\w+")
_NAME_PARTS = frozenset({"db", "catalog"})
_CATALOG, _VIEW_SETS = "lake", "public"
"""Where the embedded engine has everything, and view sets in it."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement that may be run."""

    text: str
    """Without comments."""
    spelling: Spelling
    """What Spark is given."""
    scanned: Scanned
    tree: exp.Expr
    views: Mapping[str, str]
    """What Spark is given under some names: view sets and tables by theirs."""
    most_rows: int | None
    """No more rows than this, whatever the tables hold."""
    keeps_count: bool
    """No more rows than its one table has."""

    @property
    def tables(self) -> tuple[str, ...]:
        """The view sets and tables that it names."""
        return tuple(dict.fromkeys(self.views.values()))


def read(sql: str, tables: Collection[str]) -> Statement:
    """Read a statement over these tables. `BadSql` says what is wrong, and where."""
    scanned = scan(sql)
    tokens, tree = _parse(scanned)
    for offset, said, hint in _find_problems(tokens, tree, tables):
        raise refuse(scanned.clean, offset, said, hint)
    views = _name_views(scanned, tree, tables)
    spelling = spell(scanned.clean, list(_find_edits(scanned, tree, views)))
    references = [each for each in _references(tree) if _full_name(each) in tables]
    return Statement(
        scanned.clean,
        spelling,
        scanned,
        tree,
        {view: name for (name, _), view in views.items()},
        _find_most_rows(tree),
        len(references) == 1 and _keeps_count(tree),
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
    name = _full_name(table)
    if name is None:
        yield where, "only view sets and tables can be read, by their names", None
    elif any(value for part, value in table.args.items() if part not in _TABLE_PARTS | _NAME_PARTS):
        yield where, f"{name} is read in a way that view sets and tables do not have", None
    elif table.args.get("db"):
        yield from _refuse_qualified(table, name, tables)
    elif name not in tables and table.name.lower() not in own:
        known = ", ".join(sorted(tables))
        yield where, f"there is no view set {name}", f"there are: {known}"


def _refuse_qualified(table: exp.Table, name: str, tables: Collection[str]) -> Iterator[Problem]:
    where = _place(table)
    if name not in tables:
        whole = ".".join(part.name for part in table.parts)
        known = ", ".join(sorted(each for each in tables if "." in each))
        said = f"{whole} cannot be read; only view sets and tables of the lake can"
        yield where, said, f"there are: {known}" if known else None
    elif any("start" not in part.meta for part in table.parts):
        yield where, f"{name} stands where it cannot be found again; give it a name", None
    elif table.args.get("sample") and not table.alias:
        hint = f"{name} TABLESAMPLE (…) AS {table.name}"
        yield where, f"a sample of {name} needs a name", hint


def _full_name(table: exp.Table) -> str | None:
    """A table's name as lakes have it: with its database, if it is of one."""
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


def _references(tree: exp.Expr) -> list[exp.Table]:
    """Every place where a table stands, in their order."""
    from sqlglot import exp

    found = [each for each in tree.find_all(exp.Table) if not isinstance(each.this, exp.Func)]
    return sorted(found, key=lambda each: _place(each.this))


def _name_views(
    scanned: Scanned, tree: exp.Expr, tables: Collection[str]
) -> dict[tuple[str, bool], str]:
    """What each table is called as a view, by its name and whether that has a database before it:
    plain names stay, also where a CTE has the same one; others get one that nothing else has."""
    taken = {*tables, *_WORD.findall(scanned.masked.lower())}
    free = (each for each in map("lakebed_{}".format, count()) if each not in taken)
    views: dict[tuple[str, bool], str] = {}
    for table in _references(tree):
        name, qualified = _full_name(table), bool(table.args.get("db"))
        if name is not None and name in tables and (name, qualified) not in views:
            views[name, qualified] = next(free) if qualified else name
    return views


def _find_edits(
    scanned: Scanned, tree: exp.Expr, views: Mapping[tuple[str, bool], str]
) -> Iterator[Edit]:
    """Views in place of tables that are named with a database, and columns without it."""
    from sqlglot import exp

    unnamed: dict[str, set[str]] = {}
    for table in _references(tree):
        if not table.args.get("db"):
            continue
        name = _join(table.parts)
        view = views[name, True]
        if not table.alias:
            unnamed.setdefault(table.name.lower(), set()).add(name)
            view = f"{view} AS {table.name.lower()}"
        yield Edit(table.parts[0].meta["start"], table.parts[-1].meta["end"] + 1, view)
    for column in tree.find_all(exp.Column):
        found = unnamed.get(column.table.lower(), set())
        if not column.args.get("db") or _join(column.parts[:-1]) not in found:
            continue
        start = column.parts[0].meta["start"]
        if len(found) > 1:
            said = f"{' and '.join(sorted(found))} need names of their own"
            hint = f"{_join(column.parts[:-1])} AS a, and then a.{column.name}"
            raise refuse(scanned.clean, start, said, hint)
        yield Edit(start, column.args["table"].meta["start"], "")


def _place(node: Any) -> int:
    """Where a part of the statement begins, as far as the parser remembers."""
    known = [each.meta["start"] for each in node.walk() if "start" in each.meta]
    return min(known, default=0)


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
