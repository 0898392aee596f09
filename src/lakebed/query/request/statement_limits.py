"""Limits of a statement that are checked before an engine plans it. Engines follow nested
expressions by recursion and expand subqueries that are used twice, so a short text can keep a
planner busy for hours or overflow its stack, and nothing can stop a planner.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from lakebed.errors import BadSql

_MOST_CHARACTERS = 1 << 20
_MOST_OPERATORS = 1000
_MOST_SELECTS = 200
_MOST_JOINS = 100
_MOST_NESTED = 16
_LONGEST_WORD = 1000
_MOST_EXPANDED = 1000
_MOST_GROWTH = 100_000
_MOST_TOKENS = 50_000
_MOST_ITEMS = 1000
_MOST_CARRIED = 5000
_MOST_KEYS = 100
_MOST_WINDOWS = 100
_MOST_GROUPING_SETS = 256
TEXT = (
    r"(?:\b[eE]'(?:[^'\\]|\\.|'')*'"  # with escapes
    r"|'(?:[^']|'')*'"
    r"|\$(?P<tag>(?:[^\W\d]\w*)?)\$.*?\$(?P=tag)\$)"
)
"""A string literal in SQL."""
_TOKEN = re.compile(
    r"""
      (?P<skip>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<text>TEXT)
    | (?P<quoted>"(?:[^"]|"")*")
    | (?P<word>[^\W\d]\w*)
    | (?P<number>\d[\w.]*)
    | (?P<operator>[+\-*/%|&^<>=!~@#:]+)
    | (?P<other>.)
    """.replace("TEXT", TEXT),
    re.VERBOSE | re.DOTALL,
)
_TEXT = re.compile(TEXT, re.DOTALL)
_CHANGING = {
    *("create", "drop", "alter", "insert", "update", "delete", "merge", "truncate", "copy", "load"),
    *("set", "reset", "use", "grant", "revoke", "call", "execute", "prepare", "deallocate"),
    *(
        "begin",
        "start",
        "commit",
        "rollback",
        "savepoint",
        "vacuum",
        "optimize",
        "refresh",
        "unload",
    ),
}
_JOINING = {"concat", "concat_ws", "array_concat", "list_concat", "array_cat", "list_cat"}
_REPLACING = {"replace", "regexp_replace", "overlay", "translate"}
_NESTING = {"and", "or", "not", "union", "intersect", "except", "join", "like", "is", "between"}


def check_statement(sql: str) -> None:
    """Raise `BadSql` if the statement would change something, or is larger than a person or a tool
    would write."""
    check_length(sql)
    if "\0" in sql or any("\ud800" <= character <= "\udfff" for character in sql):
        raise BadSql("the statement holds characters that are no text")
    tokens = list(islice(_tokens(sql), _MOST_TOKENS + 1))
    if len(tokens) > _MOST_TOKENS:
        raise BadSql(
            f"the statement has more than {_MOST_TOKENS} words, numbers and signs",
            hint="ask in several statements, or insert long lists into a table and join it",
        )
    if tokens and tokens[0][1] in _CHANGING:
        raise BadSql(
            f"{tokens[0][1].upper()} is not possible: SQL only reads here",
            hint="start with SELECT, WITH, SHOW, DESCRIBE or EXPLAIN; "
            "commands and functions change a lake, see: lakebed --help",
        )
    if any(len(word) > _LONGEST_WORD for kind, word in tokens):
        raise BadSql(f"the statement has a name of more than {_LONGEST_WORD} characters")
    operators = sum(kind == "operator" or word in _NESTING for kind, word in tokens)
    selects = sum(word in ("select", "values") for kind, word in tokens if kind == "word")
    lists = _measure_lists(tokens)
    joins = sum(word == "join" for _, word in tokens) + lists.comma_joins
    windows = sum(kind == "word" and word == "over" for kind, word in tokens)
    expanded = _count_expanded(tokens)
    for count, limit, noun in (
        (operators, _MOST_OPERATORS, "operators"),
        (selects, _MOST_SELECTS, "SELECTs"),
        (joins, _MOST_JOINS, "joins"),
        (_measure_nesting(tokens), _MOST_NESTED, "levels, one inside the other"),
        (expanded, _MOST_EXPANDED, "uses of named subqueries, once they are expanded"),
        (lists.longest, _MOST_ITEMS, "columns or arguments in one list"),
        (lists.carried, _MOST_CARRIED, "columns, counted again for each * above them"),
        (lists.most_keys, _MOST_KEYS, "expressions to group, sort or partition by"),
        (windows, _MOST_WINDOWS, "window functions"),
        (lists.grouping_sets, _MOST_GROUPING_SETS, "grouping sets"),
    ):
        if count > limit:
            raise BadSql(
                f"the statement has {count} {noun}; at most {limit} are taken",
                hint="write long lists as IN (…), and ask in several statements",
            )
    growth = _measure_growth(
        tokens, max(map(len, [literal[0] for literal in _TEXT.finditer(sql)]), default=0)
    )
    if growth > 1 and "recursive" in words_of(sql):
        raise BadSql(
            "a recursion that joins texts may never end", hint="join them outside of the recursion"
        )
    if growth > _MOST_GROWTH:
        raise BadSql(
            f"the statement joins texts to values {growth} times as long as what it reads; at most "
            f"{_MOST_GROWTH} are taken",
            hint="join what was read, not what was joined before",
        )


def check_length(sql: str) -> None:
    """Raise `BadSql` if the statement is too long to be looked at."""
    if len(sql) > _MOST_CHARACTERS:
        raise BadSql(
            f"the statement has {len(sql)} characters; at most {_MOST_CHARACTERS} are taken"
        )


@dataclass(slots=True)
class _Lists:
    """Sizes of the lists of a statement."""

    longest: int = 0
    """Items of the longest list, of SELECT or of a call; not of IN or VALUES."""
    items: int = 0
    stars: int = 0
    """The number of ``*`` that stand for columns."""
    most_keys: int = 0
    comma_joins: int = 0
    grouping_sets: int = 1

    @property
    def carried(self) -> int:
        """Return the columns of all SELECTs, where each ``*`` may stand for the longest list."""
        return self.items + self.stars * (self.longest if self.longest > _MOST_KEYS else 0)

    def add(self, frame: _Frame) -> None:
        """Count a list that has come to its end."""
        if frame.clause == "select":
            self.items += frame.items
        if frame.clause == "select" or (not frame.clause and frame.opener != "in"):
            self.longest = max(self.longest, frame.items)
        elif frame.clause == "from":
            self.comma_joins += frame.items - 1
        elif frame.clause == "by":
            self.most_keys = max(self.most_keys, frame.items)
            self.grouping_sets = max(self.grouping_sets, frame.grouping_sets)


@dataclass(slots=True)
class _Frame:
    """One open pair of parentheses."""

    opener: str
    """The word before it."""
    clause: str = ""
    """The current clause of a SELECT."""
    items: int = 1
    grouping_sets: int = 1


_CLAUSES = {"select", "from", "where", "having", "by", "values", "limit"}
_GROUPING = {"cube", "rollup", "sets"}


def _measure_lists(tokens: list[tuple[str, str]]) -> _Lists:
    """Count what stands between commas, by what the commas separate."""
    lists = _Lists()
    frames = [_Frame("")]
    previous = ""
    for kind, word in tokens:
        frame = frames[-1]
        if word in ("(", "["):
            frames.append(_Frame(previous))
        elif word in (")", "]") and len(frames) > 1:
            lists.add(frame)
            frames.pop()
            frames[-1].grouping_sets *= _count_grouping_sets(frame)
        elif word == ",":
            frame.items += 1
        elif kind == "word" and word in _CLAUSES and (previous, word) != ("distinct", "from"):
            lists.add(frame)
            frame.clause, frame.items, frame.grouping_sets = word, 1, 1
        elif word == "*" and previous in ("select", ",", ".", "distinct"):
            lists.stars += 1
        previous = word
    for frame in frames:
        lists.add(frame)
    return lists


def _count_grouping_sets(frame: _Frame) -> int:
    """Return how many grouping sets the content of a CUBE, ROLLUP or GROUPING SETS makes, at
    least 1 and, so that the product stays small, at most one more than a statement may have."""
    count = 1
    if frame.opener == "cube":
        count = 1 << min(frame.items, 30)
    elif frame.opener in _GROUPING:
        count = frame.items + (frame.opener == "rollup")
    return min(count * frame.grouping_sets, _MOST_GROUPING_SETS + 1)


def words_of(sql: str) -> set[str]:
    """Return the names in a statement, in lower case, without its texts and comments."""
    return {word for kind, word in _tokens(sql) if kind == "word"}


def _tokens(sql: str) -> Iterator[tuple[str, str]]:
    """Yield kind and lower-case text of each token, without spaces, comments and texts."""
    for token in _TOKEN.finditer(sql):
        kind = str(token.lastgroup)
        if kind not in ("skip", "text"):
            yield ("word" if kind == "quoted" else kind, token[0].strip('"').lower())


def _measure_nesting(tokens: list[tuple[str, str]]) -> int:
    """Return the depth of the statement: parentheses, CASE, and signs and NOT in a row. A parser
    that gives up at its limit tries everything again on the way back: each level doubles that."""
    levels: list[int] = []
    prefixes = deepest = depth = 0
    for kind, word in tokens:
        if word in ("(", "[", "{", "case"):
            levels.append(1 + prefixes)
            depth += levels[-1]
            prefixes = 0
        elif word in (")", "]", "}", "end"):
            depth -= levels.pop() if levels else 0
            prefixes = 0
        else:
            prefixes = prefixes + len(word) if kind == "operator" or word == "not" else 0
        deepest = max(deepest, depth + max(0, prefixes - 3))
    return deepest


def _count_expanded(tokens: list[tuple[str, str]]) -> int:
    """Return the number of uses of subqueries named by WITH after each use is replaced by its text:
    names that use each other twice double it with every line."""
    weights: dict[str, int] = {}
    bodies: list[tuple[str, int, int]] = []  # of open ones: name, depth, weight so far
    depth = total = 0
    for index, (kind, word) in enumerate(tokens):
        if word == "(":
            depth += 1
            if index >= 2 and tokens[index - 1][1] == "as" and tokens[index - 2][0] == "word":
                bodies.append((tokens[index - 2][1], depth, 1))
        elif word == ")":
            if bodies and bodies[-1][1] == depth:
                name, _, weight = bodies.pop()
                weights[name] = weights.get(name, 0) + weight
            depth -= 1
        elif kind == "word" and word in weights:
            if bodies:
                name, body_depth, weight = bodies[-1]
                bodies[-1] = (name, body_depth, weight + weights[word])
            else:
                total += weights[word]
    return total


def _measure_growth(tokens: list[tuple[str, str]], longest: int) -> int:
    """Return how many times as long as its input a value can become at most: joining texts, or
    putting longer ones into them, multiplies along parentheses and named subqueries, and no memory
    limit sees it."""
    growth_by_name: dict[str, int] = {}
    frames: list[list[Any]] = [
        ["", 1, 1]
    ]  # name of its body, number of joined texts, largest growth within
    for index, (kind, word) in enumerate(tokens):
        frame = frames[-1]
        is_call = index + 1 < len(tokens) and tokens[index + 1][1] == "("
        if word == "(":
            is_named = (
                index >= 2 and tokens[index - 1][1] == "as" and tokens[index - 2][0] == "word"
            )
            frames.append([tokens[index - 2][1] if is_named else "", 1, 1])
        elif word == ")" and len(frames) > 1:
            name, num_joined, largest = frames.pop()
            size = num_joined * largest
            if name:
                growth_by_name[name] = max(size, growth_by_name.get(name, 1))
            frames[-1][2] = max(size, frames[-1][2])
        elif kind == "operator" and "||" in word:
            frame[1] += 1
        elif is_call and word in _JOINING:
            frame[1] += _count_arguments(tokens, index + 1)
        elif is_call and word in _REPLACING:
            frame[1] += longest
        elif kind == "word" and word in growth_by_name:
            frame[2] = max(frame[2], growth_by_name[word])
    size = 1
    for _, num_joined, largest in reversed(frames):
        size = num_joined * max(size, largest)
    return int(size)


def _count_arguments(tokens: list[tuple[str, str]], index: int) -> int:
    depth = count = 0
    for _, word in tokens[index:]:
        depth += (word == "(") - (word == ")")
        count += word == "," and depth == 1
        if not depth:
            break
    return count + 1
