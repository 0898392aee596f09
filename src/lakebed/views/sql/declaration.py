"""The declaration of a SQL view set: a TOML file, or the same values from Python. Its own mistakes
are found here; `lakebed.views.sql.definitions` checks that its SQL works.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lakebed.errors import BadDefinition, BadInput
from lakebed.model.source import SqlSource
from lakebed.model.time import format_duration, parse_duration
from lakebed.model.view_set import TARGET_BYTES, ViewSet, check_view_set_name
from lakebed.views.sql import rules as sql

_SIZE = re.compile(r"(\d{1,12})\s*(B|KiB|MiB|GiB)?")
_UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
_REQUIRED = ("name", "sql", "time_column", "merge_sql")
_OPTIONAL = ("sort_order", "target_size", "retention", "description")
_MOST_BYTES = 1 << 31


@dataclass(frozen=True, slots=True)
class SqlView:
    """The declaration of a SQL view set.

    ``sql`` makes rows of other view sets; each partition holds its result for the rows that landed
    in the partition's range. ``merge_sql`` reads the view set itself by its own name and adds such
    partial results up.
    """

    name: str
    sql: str
    time_column: str
    merge_sql: str
    sort_order: tuple[str, ...] = ()
    target_size: str | None = None
    retention: str | None = None
    description: str = ""

    def __post_init__(self) -> None:
        for part in (*_REQUIRED, "description"):
            if not isinstance(getattr(self, part), str):
                raise BadInput(f"the {part} of a view set is text, not {getattr(self, part)!r}")
        for part in ("target_size", "retention"):
            if not isinstance(getattr(self, part), str | None):
                raise BadInput(f"the {part} of view set {self.name} is text such as '64MiB', '30d'")
        if isinstance(self.sort_order, str) or not all(
            isinstance(column, str) for column in self.sort_order
        ):
            raise BadInput(f"the sort_order of view set {self.name} is a list of columns")
        object.__setattr__(self, "sort_order", tuple(self.sort_order))
        object.__setattr__(self, "sql", sql.normalise(self.sql))
        object.__setattr__(self, "merge_sql", sql.normalise(self.merge_sql))
        object.__setattr__(self, "description", self.description.strip())

    @property
    def target_bytes(self) -> int:
        return TARGET_BYTES if self.target_size is None else parse_size(self.target_size)

    @property
    def retention_us(self) -> int | None:
        return None if self.retention is None else parse_duration(self.retention)

    def find_problems(self) -> Iterator[str]:
        """Yield the problems of everything but the SQL."""
        try:
            check_view_set_name(self.name)
        except BadInput as error:
            yield f"{error}; {error.hint}"
        if not self.time_column:
            yield f"{self.name}: time_column is empty; name the column with the rows' event time"
        for part in ("target_bytes", "retention_us"):
            try:
                getattr(self, part)
            except BadInput as error:
                yield f"{self.name}: {error}" + (f"; {error.hint}" if error.hint else "")
        if len(set(self.sort_order)) < len(self.sort_order):
            yield f"{self.name}: sort_order names a column twice"

    @classmethod
    def of(cls, view_set: ViewSet) -> SqlView:
        """The declaration of a SQL view set that exists."""
        source = view_set.source
        if not isinstance(source, SqlSource):
            raise BadInput(f"view set {view_set.name} is not made by SQL")
        retention = view_set.retention_us
        return cls(
            view_set.name,
            source.sql,
            view_set.time_column,
            source.merge_sql,
            view_set.sort_order,
            None if view_set.target_bytes == TARGET_BYTES else format_size(view_set.target_bytes),
            None if retention is None else format_duration(retention),
            view_set.description,
        )


def parse_size(text: str) -> int:
    """Return the bytes of a size such as ``64MiB``."""
    match = _SIZE.fullmatch(text.strip())
    count = int(match[1]) * _UNITS[match[2] or "B"] if match else 0
    if not 0 < count < _MOST_BYTES:
        raise BadInput(f"cannot use {text!r} as a size", hint="write it like 64MiB; less than 2GiB")
    return count


def format_size(count: int) -> str:
    """Return the shortest exact text that `parse_size` reads back."""
    unit = next(unit for unit, factor in _UNITS.items() if count % factor == 0)
    return f"{count // _UNITS[unit]}{unit}"


def read_toml(text: str, where: str) -> SqlView:
    """Return the declaration in a file. `BadDefinition` has all problems of its form."""
    try:
        values = tomllib.loads(text)
        problems = list(_find_problems(values, where))
    except tomllib.TOMLDecodeError as error:
        raise BadDefinition([f"{where} is not TOML: {str(error).lower()}"]) from error
    except RecursionError:
        raise BadDefinition([f"{where} declares no view set: it is nested too deeply"]) from None
    if problems:
        raise BadDefinition(problems)
    return SqlView(**{**values, "sort_order": tuple(values.get("sort_order", ()))})


def _find_problems(values: dict[str, Any], where: str) -> Iterator[str]:
    for key in values:
        if key not in (*_REQUIRED, *_OPTIONAL):
            yield f"{where}: {key!r} means nothing; known: {', '.join((*_REQUIRED, *_OPTIONAL))}"
    for key in _REQUIRED:
        if key not in values:
            yield f"{where}: {key} is missing"
    for key, value in values.items():
        if key == "sort_order":
            if not isinstance(value, list) or not all(isinstance(column, str) for column in value):
                yield f"{where}: sort_order must be a list of columns"
        elif key in (*_REQUIRED, *_OPTIONAL) and not isinstance(value, str):
            yield f"{where}: {key} must be text, not {value!r}"


def write_toml(view: SqlView) -> str:
    """The declaration as a file that `read_toml` reads back."""
    lines = [f"name = {_text(view.name)}"]
    if view.description:
        lines.append(f"description = {_text(view.description)}")
    lines.append(f"time_column = {_text(view.time_column)}")
    if view.sort_order:
        lines.append(f"sort_order = [{', '.join(map(_text, view.sort_order))}]")
    if view.target_size is not None:
        lines.append(f"target_size = {_text(view.target_size)}")
    if view.retention is not None:
        lines.append(f"retention = {_text(view.retention)}")
    lines += [f"sql = {_block(view.sql)}", f"merge_sql = {_block(view.merge_sql)}"]
    return "\n".join(lines) + "\n"


def _text(value: str) -> str:
    """A basic string: JSON's is one, but for the one control character that JSON leaves alone."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _block(value: str) -> str:
    """A literal string over several lines, if the text can stand in one as it is."""
    plain = all(char in "\n\t" or char.isprintable() for char in value)
    return f"'''\n{value}\n'''" if plain and "'''" not in value else _text(value)
