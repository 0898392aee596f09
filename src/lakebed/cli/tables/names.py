"""Names of tables, files with records and schema problems, for all verbs of `lakebed tables`."""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output
from lakebed.errors import BadInput, BadSchema
from lakebed.model.tables.table import require_text

if TYPE_CHECKING:
    import pyarrow as pa

Row = dict[str, Any]
"""One line of what is shown, by its names."""

STANDARD_INPUT = "-"
REPEAT = "Nothing was changed. Repeat with --yes to do it."

TableArgument = Annotated[str, typer.Argument(metavar="DATABASE.TABLE", show_default=False)]


class IfExists(enum.StrEnum):
    """The treatment of a row whose key exists."""

    REPLACE = "replace"
    IGNORE = "ignore"


IfExistsOption = Annotated[
    IfExists,
    typer.Option("--if-exists", help="A key that is there: replace its row, or ignore ours."),
]
NameArgument = Annotated[str, typer.Argument(metavar="DATABASE[.TABLE]", show_default=False)]


def split_name(text: str) -> tuple[str, str | None]:
    """A database, and the table of it if one was named."""
    require_text(text)
    database, dot, table = text.partition(".")
    if not database or (dot and (not table or "." in table)):
        raise BadInput(
            f"{text!r} names no table", hint="write DATABASE.TABLE, or DATABASE for all of it"
        )
    return database, table if dot else None


def split_table_name(text: str) -> tuple[str, str]:
    """A database and a table of it."""
    database, table = split_name(text)
    if table is None:
        raise BadInput(
            f"{text} is no table: a table's name has two parts",
            hint=f"write {text}.TABLE or DATABASE.{text}; see them with: lakebed tables list",
        )
    return database, table


def read_bytes(name: str) -> bytes:
    """The content of a file, or of what is piped."""
    if name == STANDARD_INPUT:
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise BadInput(f"cannot read {name}: {(error.strerror or '').lower()}") from error


def read_file(name: str) -> bytes | pa.Table:
    """A file with records, of the kind that its name says."""
    suffix = Path(name).suffix.lower()
    if suffix not in (".parquet", ".arrow", ".feather", ".ipc"):
        return read_bytes(name)
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        if suffix == ".parquet":
            return pq.ParquetFile(name, page_checksum_verification=True).read()
        with pa.OSFile(name) as source:
            return pa.ipc.open_file(source).read_all()
    except FileNotFoundError:
        raise BadInput(f"cannot read {name}: no such file or directory") from None
    except (pa.ArrowException, OSError) as error:
        kind = "a Parquet" if suffix == ".parquet" else "an Arrow"
        raise BadInput(f"{name} is not {kind} file: {str(error).splitlines()[0]}") from error


@contextmanager
def problems_told() -> Iterator[None]:
    """A line on stderr for everything that is wrong with a schema."""
    try:
        yield
    except BadSchema as error:
        for problem in error.problems:
            output.say(f"error: {' '.join(problem.split())}")
        raise typer.Exit(error.exit_code) from error
