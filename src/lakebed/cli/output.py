"""Output of commands: tables for people, JSON for programs, messages on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lakebed.model.time import format_instant

if TYPE_CHECKING:
    from rich.console import Console

    from lakebed.model.partition import Partition

_WIDTH_WHEN_PIPED = 240


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _WIDTH_WHEN_PIPED
    return Console(stderr=stderr, width=width, highlight=False, soft_wrap=False)


def say(text: str) -> None:
    """A line of talk, on stderr."""
    from rich.text import Text

    _console(stderr=True).print(Text(text), soft_wrap=True)


def tell(text: str) -> None:
    """A line of data, on stdout."""
    from rich.text import Text

    _console().print(Text(text), soft_wrap=True)


def show(rows: Sequence[dict[str, Any]], *, as_json: bool, empty: str) -> None:
    """Rows as a table, or as one JSON array; ``empty`` is said where there are none."""
    if as_json:
        show_json(list(rows))
        return
    if not rows:
        say(empty)
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for name, value in rows[0].items():
        number = isinstance(value, int) and not isinstance(value, bool)
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(_cell(value)) for value in row.values()))
    _console().print(table)


def show_json(value: object) -> None:
    """One JSON document on stdout."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list | tuple):
        return "\n".join(str(each) for each in value)
    return str(value)


def instant(value: int | None) -> str | None:
    """An instant for people and programs alike."""
    return None if value is None else format_instant(value)


def partition_row(partition: Partition, *, retired: bool = False) -> dict[str, Any]:
    """A partition as the command line shows it."""
    row: dict[str, Any] = {
        "view_set_name": partition.view_set,
        "view_instance_id": partition.instance,
        "begin_insert_time": instant(partition.insert_range.begin),
        "end_insert_time": instant(partition.insert_range.end),
        "file_schema_hash": partition.schema_hash.hex(),
        "num_rows": partition.num_rows,
        "file_size": partition.file_size,
        "file_path": partition.file_path,
        "partition_id": partition.partition_id,
    }
    if retired:
        row["retired_at"] = instant(partition.retired_at)
        row["expiration"] = instant(partition.expiration)
        row["held"] = partition.held
    return row


def short(row: dict[str, Any]) -> dict[str, Any]:
    """A row with what people rarely read made shorter; programs get everything."""
    shortened = dict(row)
    for name, value in row.items():
        if name.endswith("schema_hash") and isinstance(value, str):
            shortened[name] = value[:12]
        elif name.endswith(("_time", "_at", "expiration", "time")) and isinstance(value, str):
            shortened[name] = value.replace(".000000Z", "Z")
    shortened.pop("file_path", None)
    return shortened


def show_partitions(
    partitions: Iterable[Partition],
    *,
    as_json: bool,
    empty: str,
    retired: bool = False,
    names: Mapping[str, str] | None = None,
) -> None:
    """Partitions as a table, in which tables have the names that people gave them, or as JSON."""
    rows = [partition_row(each, retired=retired) for each in partitions]
    if not as_json:
        rows = [name_tables(short(row), names or {}) for row in rows]
    show(rows, as_json=as_json, empty=empty)


def name_tables(row: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A row with a table's own name."""
    stored = row["view_set_name"]
    return row | {"view_set_name": names.get(stored, stored)}


def size(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{count} B"


def plural(count: int, noun: str) -> str:
    """``1 file``, ``2 files``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
