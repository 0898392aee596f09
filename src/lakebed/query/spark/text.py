"""SQL text as Spark's lexer takes it apart, before anything parses it: where texts, quoted names
and comments begin and end. What two readers could take apart differently is refused, so that
nothing hides from the rules inside what they take for a text or a comment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.errors import BadSql

_MOST_CHARACTERS = 1_000_000
_PARTS = re.compile(
    r"""(?P<raw>(?<!\w)[rR]'[^']*')
      | (?P<text>'(?:[^'\\]|\\.|'')*')
      | (?P<name>"[^"]*"|`[^`]*`)
      | (?P<line>--[^\n]*)
      | (?P<block>/\*.*?\*/)
      | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Scanned:
    """A statement's text in forms of the same length, so that positions agree."""

    clean: str
    """Without comments: this is what Spark is given."""
    masked: str
    """And with nothing said in its texts: this is what is parsed."""
    texts: tuple[str, ...]
    """The texts in it, as they are written between their quotes."""
    adjacent: bool
    """Whether texts stand beside each other; Spark joins them."""


def scan(sql: str) -> Scanned:
    """Take a statement apart. `BadSql` for what is not one statement that everybody reads alike."""
    if len(sql) > _MOST_CHARACTERS:
        raise BadSql(f"the statement is longer than {_MOST_CHARACTERS:,} characters")
    text = sql.replace("\r\n", " \n").rstrip().rstrip(";").rstrip()
    clean, masked, texts = [], [], []
    adjacent, after_text = False, False
    for match in _PARTS.finditer(text):
        found, kind = match[0], match.lastgroup
        if kind in ("line", "block"):
            _check_comment(found, kind, text, match.start())
            blank = "".join("\n" if char == "\n" else " " for char in found)
            clean.append(blank)
            masked.append(blank)
            continue
        clean.append(found)
        if kind in ("raw", "text"):
            inside = found[found.index("'") + 1 : -1]
            texts.append(inside)
            masked.append(found[: -len(inside) - 1] + "x" * len(inside) + "'")
            adjacent = adjacent or after_text
            after_text = True
            continue
        _check(found, kind, text, match.start())
        masked.append(found)
        after_text = after_text and found.isspace()
    return Scanned("".join(clean), "".join(masked), tuple(texts), adjacent)


@dataclass(frozen=True, slots=True)
class Edit:
    """Something else in place of a part of a text."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True)
class Spelling:
    """A statement as it was written, and what Spark is given instead."""

    written: str
    edits: tuple[Edit, ...] = ()
    """In order, none inside another."""

    @property
    def given(self) -> str:
        """What Spark is given."""
        parts, at = [], 0
        for edit in self.edits:
            parts += [self.written[at : edit.start], edit.new]
            at = edit.end
        return "".join([*parts, self.written[at:]])

    def locate(self, offset: int) -> tuple[int, int] | None:
        """The line and the column, as written, of a place in what Spark is given; None if there is
        no such place."""
        if not 0 <= offset <= len(self.given):
            return None
        for edit in self.edits:
            if offset < edit.start:
                break
            if offset < edit.start + len(edit.new):
                return locate(self.written, edit.start)
            offset += edit.end - edit.start - len(edit.new)
        return locate(self.written, offset)

    def locate_in_line(self, line: int, column: int) -> tuple[int, int] | None:
        """The same for a line and a column of what Spark is given, from 1."""
        lines = self.given.split("\n")
        if not 1 <= line <= len(lines):
            return None
        return self.locate(sum(len(each) + 1 for each in lines[: line - 1]) + column - 1)


def quote_for_any_session(sql: str) -> str:
    """The same statement with quoted names in backticks: every session takes those for names."""
    return _PARTS.sub(
        lambda part: f"`{part[0][1:-1]}`" if part.lastgroup == "name" else part[0], sql
    )


def spell(written: str, edits: Sequence[Edit]) -> Spelling:
    """A statement with some parts replaced."""
    return Spelling(written, tuple(sorted(edits, key=lambda each: each.start)))


def locate(text: str, offset: int) -> tuple[int, int]:
    """The line and the column of a place in a text, from 1."""
    before = text[:offset]
    return before.count("\n") + 1, offset - before.rfind("\n")


def refuse(text: str, offset: int, said: str, hint: str | None = None) -> BadSql:
    """What is wrong at a place."""
    line, column = locate(text, offset)
    return BadSql(said, line=line, column=column, hint=hint)


def _check_comment(found: str, kind: str, text: str, offset: int) -> None:
    if kind == "line" and found.endswith("\\"):
        raise refuse(text, offset, "a comment ends in a backslash; end it with a letter")
    if kind == "block" and "/*" in found[2:]:
        raise refuse(text, offset, "there is a comment in a comment; write two")


def _check(found: str, kind: str | None, text: str, offset: int) -> None:
    if kind == "name":
        if "\\" in found or len(found) == 2:
            raise refuse(text, offset, f"{found} is no name of a table or column")
        if text[offset + len(found) : offset + len(found) + 1] == found[0]:
            raise refuse(text, offset, "there is a quote in a name, which no view set has")
        return
    if found in "'\"`":
        raise refuse(text, offset, "there is a quote that is not closed")
    if text.startswith("/*", offset):
        raise refuse(text, offset, "there is a comment that does not end")
    if found in "\\{}$" or not (found.isprintable() or found in "\n\t"):
        shown = found if found.isprintable() else f"U+{ord(found):04X}"
        raise refuse(text, offset, f"there is a character {shown} outside of a text")
