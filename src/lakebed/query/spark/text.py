"""Replaced parts of a statement's text, and the way back from positions in what Spark reads to
positions in what the caller wrote.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.errors import BadSql

_QUOTED = re.compile(
    r"""(?:\b[rR]'[^']*'|'(?:[^'\\]|\\.|'')*'|`[^`]*`|--[^\n]*|/\*.*?\*/)|(?P<name>"[^"]*")""",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement for a part of a text."""

    start: int
    end: int
    new: str


@dataclass(frozen=True, slots=True)
class Spelling:
    """A statement as the caller wrote it, with the edits that make it Spark's."""

    written: str
    edits: tuple[Edit, ...] = ()
    """In order; no edit is inside another."""

    @property
    def given(self) -> str:
        """The text that Spark reads."""
        parts, at = [], 0
        for edit in self.edits:
            parts += [self.written[at : edit.start], edit.new]
            at = edit.end
        return "".join([*parts, self.written[at:]])

    def locate(self, offset: int) -> tuple[int, int] | None:
        """Return the line and the column, as written, of an offset in the given text; None if the
        text has no such offset."""
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
        """Return the same for a line and a column of the given text, counted from 1."""
        lines = self.given.split("\n")
        if not 1 <= line <= len(lines):
            return None
        return self.locate(
            sum(len(line_before) + 1 for line_before in lines[: line - 1]) + column - 1
        )


def spell(written: str, edits: Sequence[Edit]) -> Spelling:
    """Return a statement with some parts replaced."""
    return Spelling(written, tuple(sorted(edits, key=lambda edit: edit.start)))


def locate(text: str, offset: int) -> tuple[int, int]:
    """Return the line and the column of an offset in a text, counted from 1."""
    text_before = text[:offset]
    return text_before.count("\n") + 1, offset - text_before.rfind("\n")


def refuse(text: str, offset: int, message: str, hint: str | None = None) -> BadSql:
    """Return the error of a statement that is wrong at an offset."""
    line, column = locate(text, offset)
    return BadSql(message, line=line, column=column, hint=hint)


def quote_for_any_session(sql: str) -> str:
    """Return the statement with quoted names in backticks, which are names in every session."""
    return _QUOTED.sub(
        lambda part: f"`{part['name'][1:-1]}`" if part["name"] is not None else part[0], sql
    )
