"""The rules for the SQL of view sets: one SELECT over other view sets, without anything that would
give other rows when the same range is built again. Pure: text goes in, its sources and its problems
come out.

Names in double quotes are columns, as in both engines that run the SQL; otherwise it is Spark's
dialect. Calls are searched among the tokens, so that no spelling (quotes, case, a qualifier, a
subquery) hides one from the parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

from lakebed.views.sql import functions

if TYPE_CHECKING:
    from sqlglot import exp
    from sqlglot.dialects.dialect import Dialect
    from sqlglot.tokenizer_core import Token

_MOST_CHARACTERS = 100_000
_CUTS = ("having", "qualify", "limit", "offset")
_TABLE_PARTS = frozenset(
    {"this", "alias", "db", "catalog", "joins", "laterals", "pivots", "sample"}
)
_AROUND = r"[\x00-\x20\x7f-\x9f]*"
_MOMENT = re.compile(
    rf"{_AROUND}(?:{'|'.join(functions.MOMENTS)})(?:\s+\S+)?{_AROUND}", re.IGNORECASE
)
_ESCAPED = re.compile(r"\\(?:u[0-9a-f]{4}|U[0-9a-f]{8}|[0-3][0-7]{2})", re.IGNORECASE)
_WITH_A_DATE = re.compile(rf"{_AROUND}[+-]?\d{{4,}}(?:-.*)?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Parsed:
    """The names that a SELECT reads, and all its problems, one line each."""

    reads: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()
    """The names that it gives to its own parts, in lower case."""
    picked: frozenset[str] = frozenset()
    """Columns of which an aggregate picks one value of the group, in lower case."""
    columns: frozenset[str] = frozenset()
    """Every column that is named, in lower case."""
    cuts: tuple[str, ...] = ()
    """Clauses that drop rows by a computed value, such as HAVING or LIMIT."""
    compares: bool = False
    """True if a condition or a value depends on an aggregate over other rows."""
    filters: bool = False
    """True if it drops rows anywhere."""
    problems: tuple[str, ...] = ()


def normalise(text: str) -> str:
    """Return SQL as it is stored: with one kind of line end, stripped. A lone carriage return
    ends a comment in Spark, so it must do so for every engine."""
    return text.replace("\r\n", "\n").replace("\r", "\n").strip().rstrip(";").rstrip()


def parse(text: str) -> Parsed:
    """Parse one SELECT. Raises nothing: problems are part of the result."""
    import sqlglot
    from sqlglot.errors import ParseError, TokenError

    if not text:
        return Parsed(problems=("is empty",))
    if len(text) > _MOST_CHARACTERS:
        return Parsed(problems=(f"is longer than {_MOST_CHARACTERS:,} characters",))
    if "${" in text:
        return Parsed(problems=("has ${…} in it, which Spark replaces with settings",))
    strange = next((char for char in text if char.isspace() and char not in " \n\t"), None)
    if strange is not None:
        return Parsed(problems=(f"has the character U+{ord(strange):04X} in it; write a space",))
    dialect = _dialect()
    try:
        tokens = dialect.tokenize(text)
        problems = list(_refuse_statements(tokens))
        if problems:
            return Parsed(problems=tuple(problems))
        (tree,) = sqlglot.parse(text, dialect=dialect)
        return _judge(tree, tokens) if tree else Parsed(problems=("is empty",))
    except ParseError as error:
        where = error.errors[0]
        problem = f"{where['description']} at line {where['line']}, column {where['col']}"
        return Parsed(problems=(f"cannot be parsed: {problem.lower()}",))
    except TokenError as error:
        return Parsed(problems=(f"cannot be parsed: {str(error).splitlines()[0]}",))
    except RecursionError:
        return Parsed(problems=("is nested too deeply",))


def _judge(tree: exp.Expr, tokens: Sequence[Token]) -> Parsed:
    from sqlglot import exp

    own = frozenset(cte.alias.lower() for cte in tree.find_all(exp.CTE))
    problems = [*_refuse_calls(tokens), *_refuse_texts(tokens), *_find_problems(tree)]
    return Parsed(
        tuple(dict.fromkeys(name for name in _tables(tree) if name not in own)),
        own,
        frozenset(_picked(tree)),
        frozenset(column.name.lower() for column in tree.find_all(exp.Column)),
        tuple(dict.fromkeys(_cuts(tree))),
        any(map(_sums_up, tree.find_all(exp.Subquery, exp.In, exp.Exists))),
        tree.find(exp.Where, exp.Having, exp.Qualify, exp.Limit, exp.Offset) is not None,
        tuple(dict.fromkeys(problems)),
    )


def _cuts(tree: exp.Expr) -> Iterator[str]:
    from sqlglot import exp

    for query in tree.find_all(exp.Query):
        yield from (clause.upper() for clause in _CUTS if query.args.get(clause))


def _sums_up(node: exp.Expr) -> bool:
    """Return True for a query that aggregates and is part of an expression, not read from."""
    from sqlglot import exp

    if isinstance(node, exp.Subquery):
        if isinstance(node.parent, exp.From | exp.Join | exp.CTE | exp.Lateral | exp.SetOperation):
            return False
        inner = node.this
    else:
        inner = node.args.get("query") or node.this
    return isinstance(inner, exp.Query | exp.Subquery) and inner.find(exp.AggFunc) is not None


@cache
def _dialect() -> Dialect:
    """Spark's, where double quotes are for names."""
    from sqlglot.dialects.spark import Spark

    class Quoted(Spark):
        class Tokenizer(Spark.Tokenizer):
            QUOTES = ["'"]  # noqa: RUF012
            IDENTIFIERS = ["`", '"']  # noqa: RUF012

    return Quoted()


def _refuse_statements(tokens: Sequence[Token]) -> Iterator[str]:
    from sqlglot.tokenizer_core import TokenType

    kinds = [token.token_type for token in tokens]
    first = next((token for token in tokens if token.token_type != TokenType.L_PAREN), None)
    if first is None or first.token_type not in (TokenType.SELECT, TokenType.WITH):
        yield f"must be a SELECT, not {first.text.upper() if first else 'nothing'}"
    elif TokenType.SEMICOLON in kinds:
        yield "must be one SELECT; it has a semicolon"
    elif TokenType.PIPE_GT in kinds:
        yield "uses |>; write it as a SELECT"


def _refuse_calls(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield a problem for each forbidden function that is called anywhere."""
    from sqlglot.tokenizer_core import TokenType

    for index, token in enumerate(tokens):
        name = token.text.lower()
        after = [following.token_type for following in tokens[index + 1 : index + 3]]
        before = tokens[index - 1].text.lower() if index else ""
        if _is_text(token):
            continue
        if after[:1] != [TokenType.L_PAREN]:
            named = token.token_type in (TokenType.VAR, TokenType.IDENTIFIER)
            if name in functions.WITHOUT_PARENTHESES and not named and before not in (".", "as"):
                yield from _refuse_bare(name)
            continue
        if name in functions.FORBIDDEN:
            yield f"uses {name}(), which {functions.FORBIDDEN[name]}"
        bare = after == [TokenType.L_PAREN, TokenType.R_PAREN]
        if bare and name in functions.FORBIDDEN_WITHOUT_ARGUMENTS:
            reason = functions.FORBIDDEN_WITHOUT_ARGUMENTS[name]
            yield f"uses {name}() without arguments, which {reason}"


def _refuse_texts(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield a problem for texts with a special meaning: Spark reads some words as the clock
    wherever a time is expected, and joins adjacent texts."""
    for is_text, group in groupby(enumerate(tokens), key=lambda entry: _is_text(entry[1])):
        if not is_text:
            continue
        run = list(group)
        text = "".join(token.text for _, token in run)
        before = tokens[run[0][0] - 1].text.lower() if run[0][0] else ""
        if before == "using":
            yield "runs a script, which is code outside SQL"
        if _ESCAPED.search(text):
            yield "has a character in it that is written as its number; write the character"
        if _MOMENT.fullmatch(text) and before not in ("like", "ilike", "rlike"):
            yield (
                f"has '{text.strip()}' in it, which reads the clock where a time is wanted; "
                "if text is meant, compare it with LIKE"
            )


def _is_text(token: Token) -> bool:
    return token.token_type.name.endswith("STRING")


def _find_problems(tree: exp.Expr) -> Iterator[str]:
    """Yield the forbidden parts of the parsed tree, in the order of the text."""
    from sqlglot import exp

    if not isinstance(tree.unnest(), exp.Select | exp.SetOperation):
        yield "must be a SELECT"
        return
    for node in tree.walk(bfs=False):
        yield from _refuse(node)
    yield from _refuse_columns(tree)


def _refuse(node: Any) -> Iterator[str]:
    from sqlglot import exp

    match node:
        case exp.DDL() | exp.DML() | exp.Command() | exp.Into():
            yield "must only read; it has a statement in it that writes"
        case exp.Hint():
            yield "has a hint for Spark in it; hints change no rows and are not kept"
        case exp.TableSample():
            yield "uses TABLESAMPLE, which is random"
        case exp.QueryTransform():
            yield "runs a script, which is code outside SQL"
        case exp.Placeholder() | exp.Parameter() | exp.SessionParameter():
            yield "has a parameter in it; write the value"
        case exp.With() if node.args.get("recursive"):
            yield "is recursive"
        case exp.Table():
            yield from _refuse_table(node)
        case exp.Lateral():
            yield from _refuse_lateral(node)
        case exp.Unnest() | exp.TableFromRows():
            yield "uses a table function; read view sets, and explode values in the SELECT"
        case exp.Limit() | exp.Offset() | exp.Fetch():
            owner = node.parent
            if owner is None or not owner.args.get("order"):
                yield "uses LIMIT or OFFSET without ORDER BY, which takes any rows"
        case exp.Cast() if node.is_type(*exp.DataType.TEMPORAL_TYPES):
            yield from _refuse_time(node.this)
        case exp.Dot() if isinstance(node.expression, exp.Func):
            yield f"calls {node.expression.name or node.expression.key}() of a schema"
        case exp.Func():
            yield from _refuse_function(node)
        case exp.Column() if not node.table:
            yield from _refuse_bare(node.name)


def _refuse_table(table: exp.Table) -> Iterator[str]:
    from sqlglot import exp

    if not isinstance(table.this, exp.Identifier):
        yield "uses a table function; read view sets, and explode values in the SELECT"
    elif table.args.get("db") or table.args.get("catalog"):
        whole = ".".join(part.name for part in table.parts)
        yield f"reads {whole}; only view sets can be read, by their plain names"
    elif any(value for part, value in table.args.items() if part not in _TABLE_PARTS):
        yield f"reads {table.name} in a way that view sets do not have"


def _refuse_lateral(lateral: exp.Lateral) -> Iterator[str]:
    from sqlglot import exp

    generator = lateral.this
    if isinstance(generator, exp.Subquery):
        return
    if not (lateral.args.get("view") and _names(generator) & functions.GENERATORS):
        yield "uses a table function; read view sets, and explode values in the SELECT"


def _refuse_function(node: exp.Func) -> Iterator[str]:
    names = _names(node)
    if names & functions.UNORDERED and not _is_sorted(node):
        called = min(names & functions.UNORDERED)
        written = functions.UNORDERED_AS_WRITTEN.get(called, called)
        yield f"uses {written}(), whose order is by chance; sort it with array_sort()"


def _refuse_time(value: exp.Expr) -> Iterator[str]:
    """Refuse a value that is cast to a time, unless it is a column or a literal with a date:
    without a date Spark uses today's."""
    from sqlglot import exp

    if value.find(exp.Column) is not None:
        return
    if isinstance(value, exp.Literal) and _WITH_A_DATE.fullmatch(value.name):
        return
    if not _MOMENT.fullmatch(value.name):
        text = value.sql(_dialect())[:60]
        yield f"makes a time of {text}, which may be today's; write it as '2026-11-15 12:00:00'"


def _refuse_bare(name: str) -> Iterator[str]:
    lowered = name.lower()
    if lowered in functions.WITHOUT_PARENTHESES:
        yield (
            f"uses {lowered}, which {functions.FORBIDDEN[lowered]}; "
            "if a column is meant, write its table before it"
        )


def _refuse_columns(tree: exp.Expr) -> Iterator[str]:
    """Columns must have names of their own, and a range without rows must give none."""
    from sqlglot import exp

    outer = list(_outer_selects(tree))
    for projection in outer[0].expressions:
        if isinstance(projection, exp.Alias | exp.Aliases | exp.Column | exp.Star | exp.Dot):
            continue
        yield f"has a column without a name; write {projection.sql(_dialect())[:60]} AS …"
    for select in outer:
        if select.args.get("group") is None and any(map(_aggregates, select.expressions)):
            yield "aggregates without GROUP BY, which gives a row where there is nothing"


def _outer_selects(tree: exp.Expr) -> Iterator[exp.Select]:
    """The SELECTs whose rows are the result's, leftmost first."""
    from sqlglot import exp

    inner = tree.unnest()
    if isinstance(inner, exp.SetOperation):
        yield from _outer_selects(inner.left)
        yield from _outer_selects(inner.right)
    elif isinstance(inner, exp.Select):
        yield inner


def _aggregates(projection: exp.Expr) -> bool:
    from sqlglot import exp

    return any(
        aggregate.find_ancestor(exp.Window, exp.Select) is projection.parent_select
        for aggregate in projection.find_all(exp.AggFunc)
    )


def _is_sorted(node: exp.Expr) -> bool:
    from sqlglot import exp

    if any(order.parent is node for order in node.find_all(exp.Order)):
        return True
    above = node.parent
    while above is not None and not isinstance(above, exp.Select):
        if isinstance(above, exp.WithinGroup) or _names(above) & functions.SORTING:
            return True
        above = above.parent
    return False


def _names(node: Any) -> set[str]:
    """Every name that a call of this node may have been written with."""
    from sqlglot import exp

    if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc):
        return {str(node.name).lower()}
    if isinstance(node, exp.Func):
        return {name.lower() for name in node.sql_names()}
    return set()


def _tables(tree: exp.Expr) -> Iterator[str]:
    from sqlglot import exp

    for table in tree.find_all(exp.Table, bfs=False):
        if isinstance(table.this, exp.Identifier) and not table.args.get("db"):
            yield table.name.lower()


def _picked(tree: exp.Expr) -> Iterator[str]:
    from sqlglot import exp

    for call in tree.find_all(exp.Func):
        if _names(call) & functions.ANY_OF_GROUP:
            argument = call.this if isinstance(call.this, exp.Expr) else call
            for column in argument.find_all(exp.Column):
                yield column.name.lower()
