"""The origin of a statement's rows, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lakebed.model.time import format_instant


@dataclass(slots=True)
class TableExplanation:
    """The files, rows and blocks of one table that a statement read."""

    table: str
    partitions_considered: int | None
    """All partitions of the view set's active schema; None if they were not counted."""
    partitions_pruned: Mapping[str, int]
    """Numbers of partitions that need not be read, by reason."""
    partitions_read: int
    rows_in_partitions: int
    bytes_in_partitions: int
    tail_blocks: int | None = None
    """None for users' tables, which have no tail."""
    tail_rows: int = 0
    failed_blocks: int = 0
    built_until: str | None = None
    """Of SQL view sets, which have no tail: the insert time up to which they are built."""
    keys_read: int = 0
    """Of users' tables: partitions of which only the keys were read, because they may be newer."""


@dataclass(slots=True)
class Explanation:
    """The tables that a statement read, and the rows that it lacks."""

    engine: str
    tick: int
    tables: list[TableExplanation] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    rows: int | None = None
    """The number of rows that the reader has received; None before it read any."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as ``--json`` shows them."""
        return asdict(self) | {"snapshot": format_instant(self.tick)}

    def lines(self) -> list[str]:
        """Return a line for people about the snapshot and each table."""
        lines = [f"snapshot of {format_instant(self.tick)}, {self.engine} engine"]
        for table in self.tables:
            lines.append(f"{table.table}: {_describe(table)}")
        return lines


def _describe(table: TableExplanation) -> str:
    parts = []
    if table.partitions_considered is not None:
        parts.append(f"{_count(table.partitions_considered, 'partition')} considered")
    parts += [f"{count:,} pruned ({reason})" for reason, count in table.partitions_pruned.items()]
    parts.append(
        f"{table.partitions_read:,} read "
        f"({_count(table.rows_in_partitions, 'row')}, {_count(table.bytes_in_partitions, 'byte')})"
    )
    if table.keys_read:
        parts.append(f"keys of {_count(table.keys_read, 'newer partition')} read")
    if table.built_until is None and table.tail_blocks is not None:
        tail = f"{_count(table.tail_rows, 'row')} in {_count(table.tail_blocks, 'block')}"
        parts.append(f"fresh tail of {tail}" if table.tail_blocks else "no fresh tail")
    if table.failed_blocks:
        parts.append(f"{_count(table.failed_blocks, 'block')} that cannot be decoded")
    if table.built_until is not None:
        parts.append(f"built until {table.built_until}, no tail")
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
