"""Where a statement's rows come from, for people and for programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lakebed.model.time import format_instant


@dataclass(slots=True)
class TableExplanation:
    """What one table of a statement was made of."""

    table: str
    partitions_considered: int | None
    """All partitions of the view set's active schema; None if they were not counted."""
    partitions_pruned: Mapping[str, int]
    """How many need not be read, by the reason."""
    partitions_read: int
    rows_in_partitions: int
    bytes_in_partitions: int
    tail_blocks: int
    tail_rows: int
    failed_blocks: int
    built_until: str | None
    """Of SQL view sets, which have no tail: the insert time up to which they are built."""


@dataclass(slots=True)
class Explanation:
    """What a statement read."""

    engine: str
    tick: int
    tables: list[TableExplanation] = field(default_factory=list)
    warnings: tuple[str, ...] = ()
    rows: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, as ``--json`` shows them."""
        return asdict(self) | {"snapshot": format_instant(self.tick)}

    def lines(self) -> list[str]:
        """For people, a line for each thing worth knowing."""
        said = [f"snapshot of {format_instant(self.tick)}, {self.engine} engine"]
        for each in self.tables:
            said.append(f"{each.table}: {_describe(each)}")
        return said


def _describe(table: TableExplanation) -> str:
    parts = []
    if table.partitions_considered is not None:
        parts.append(f"{table.partitions_considered} partitions considered")
    parts += [f"{count} pruned ({reason})" for reason, count in table.partitions_pruned.items()]
    parts.append(
        f"{table.partitions_read} read "
        f"({table.rows_in_partitions} rows, {table.bytes_in_partitions} bytes)"
    )
    parts.append(f"fresh tail of {table.tail_rows} rows in {table.tail_blocks} blocks")
    if table.failed_blocks:
        parts.append(f"{table.failed_blocks} blocks that cannot be decoded")
    if table.built_until is not None:
        parts.append(f"built until {table.built_until}, no tail")
    return ", ".join(parts)
