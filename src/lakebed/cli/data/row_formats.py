"""Formats of the rows of `lakebed query`. Each takes record batches one by one and holds as few of
them as it can.
"""

from __future__ import annotations

import os
import stat
import sys
import time
import unicodedata
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal

from lakebed.errors import BadInput, ReadOnly
from lakebed.query.output.formats import (
    CsvWriter,
    JsonWriter,
    NdjsonWriter,
    ParquetWriter,
    Sink,
    Writer,
)

if TYPE_CHECKING:
    import pyarrow as pa

_CHOOSE = "choose a file that you may write"
_WIDEST_CELL = 60
_WIDEST_VALUE = 1_000
_WIDTH_WHEN_PIPED = 240
_INVISIBLE = {"Cc", "Cf", "Zl", "Zp"}


class TableWriter:
    """For people: the first rows, aligned, or one below the other if they are too wide; the others
    are only counted."""

    def __init__(
        self,
        sink: Sink,
        schema: pa.Schema,
        *,
        most_rows: int,
        width: int | None = None,
        say: Callable[[str], None],
    ) -> None:
        self._sink = sink
        self._schema = schema
        self._most_rows = most_rows
        self._width = width or _terminal_width()
        self._say = say
        self._rows: list[list[str]] = []
        self._count = 0
        self._shown = False
        self._began = time.monotonic()

    def write(self, batch: pa.RecordBatch) -> None:
        """Show the first rows as soon as they are there, and count."""
        missing = self._most_rows - len(self._rows)
        if missing > 0 and batch.num_rows:
            from lakebed.query.output.plain import to_values

            columns = [to_values(column) for column in batch.slice(0, missing).columns]
            cells = [[_cell(value) for value in column] for column in columns]
            self._rows += [list(row) for row in zip(*cells, strict=True)]
        self._count += batch.num_rows
        if self._count > self._most_rows:
            self._show()

    def _show(self) -> None:
        if self._shown:
            return
        self._shown = True
        import pyarrow as pa

        names = [make_visible(name) for name in self._schema.names]
        numbers = [
            pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
            for field in self._schema
        ]
        lines = lay_out(names, numbers, self._rows, self._width)
        self._sink.write("".join(f"{line}\n" for line in lines).encode())
        sys.stdout.flush()

    def end(self) -> None:
        """Print the number of rows, and how to get all of them."""
        self._show()
        took = f"in {time.monotonic() - self._began:.2f} s"
        if self._count <= self._most_rows:
            self._say(f"{self._count:,} {'row' if self._count == 1 else 'rows'} {took}")
            return
        self._say(
            f"the first {self._most_rows:,} of {self._count:,} rows {took}; "
            "show more with --limit N, get all with --format ndjson, json, csv or parquet"
        )


def _terminal_width() -> int:
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _WIDTH_WHEN_PIPED
    except (OSError, ValueError):
        return _WIDTH_WHEN_PIPED


def lay_out(
    names: Sequence[str], numbers: Sequence[bool], rows: Sequence[Sequence[str]], width: int
) -> Iterator[str]:
    """A table if it fits the width, with long cells cut; else a block of lines for each row."""
    from rich.cells import cell_len

    short = [[_cut(cell, _WIDEST_CELL) for cell in row] for row in rows]
    widths = [
        max([cell_len(name), *(cell_len(row[column]) for row in short)])
        for column, name in enumerate(names)
    ]
    if sum(widths) + 2 * (len(widths) - 1) <= width or not rows:
        for row in [names, ["─" * width_of_column for width_of_column in widths], *short]:
            cells = [
                _pad(cell, widths[column], right=numbers[column]) for column, cell in enumerate(row)
            ]
            yield "  ".join(cells).rstrip()
        return
    longest = max(cell_len(name) for name in names)
    for number, row in enumerate(rows, 1):
        yield f"── row {number} ".ljust(min(width, longest + 20), "─")
        for name, cell in zip(names, row, strict=True):
            room = max(min(_WIDEST_VALUE, 4 * width), 20)
            yield f"{_pad(name, longest)}  {_cut(cell, room)}".rstrip()


def measure(text: str) -> int:
    """Return the number of terminal columns that a text takes."""
    from rich.cells import cell_len

    return cell_len(text)


def _pad(text: str, width: int, *, right: bool = False) -> str:
    from rich.cells import cell_len

    filling = " " * max(width - cell_len(text), 0)
    return filling + text if right else text + filling


def _cut(text: str, width: int) -> str:
    from rich.cells import cell_len, set_cell_size

    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def _cell(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        return make_visible(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | dict):
        import msgspec

        return make_visible(msgspec.json.encode(value).decode())
    return str(value)


def make_visible(text: str) -> str:
    """Text that cannot move the cursor, colour the terminal or turn the reading direction."""
    if text.isprintable():
        return text
    return "".join(
        repr(character)[1:-1] if unicodedata.category(character) in _INVISIBLE else character
        for character in text
    )


@contextmanager
def written_whole(path: Path) -> Iterator[Sink]:
    """A file that has its name only when all of it is there. What is no file but a pipe or a
    device is written as it is."""
    path = path.resolve()
    try:
        mode = path.stat().st_mode if path.exists() else None
        if mode is not None and not stat.S_ISREG(mode):
            with _begin(path, "wb", path) as file:
                yield file
            return
        partial = path.with_name(f".{path.name}.{uuid.uuid4().hex[:12]}.partial")
        try:
            with _begin(partial, "xb", path) as file:
                if mode is not None:
                    os.fchmod(file.fileno(), stat.S_IMODE(mode))
                yield file
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            with suppress(OSError):
                partial.unlink()
            raise
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ReadOnly(_explain(path, error), hint=_CHOOSE) from error


def _begin(path: Path, mode: Literal["wb", "xb"], named: Path) -> BinaryIO:
    """Open a file; a name that cannot be one is the caller's mistake, not the disk's."""
    try:
        return path.open(mode)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise BadInput(_explain(named, error), hint=_CHOOSE) from error


def _explain(path: Path, error: OSError) -> str:
    return f"cannot write {path}: {(error.strerror or str(error)).lower()}"


def make_writer(name: str, sink: Sink, schema: pa.Schema, **for_tables: Any) -> Writer:
    """A writer of rows of this schema."""
    if name == "table":
        return TableWriter(sink, schema, **for_tables)
    kinds: dict[str, Callable[[Sink, pa.Schema], Writer]] = {
        "json": JsonWriter,
        "ndjson": NdjsonWriter,
        "csv": CsvWriter,
        "parquet": ParquetWriter,
    }
    return kinds[name](sink, schema)
