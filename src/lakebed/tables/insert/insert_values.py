"""Values that describe an insert: its rows, its condition and its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.catalog import journal
from lakebed.catalog.records.inserts import KnownInsert
from lakebed.errors import Conflict
from lakebed.model.tables.table import UserTable
from lakebed.tables.insert.existing_keys import NewKeys
from lakebed.tables.rows.stored_rows import TableRows


@dataclass(frozen=True, slots=True)
class InsertKey:
    """The key under which an insert is idempotent, and the digest of its records."""

    key: str
    digest: bytes


@dataclass(frozen=True, slots=True)
class Premise:
    """The condition of a change: the table did not change after the tick at which it was read. With
    ``operations`` or ``keys``, only such changes fail it."""

    tick: int
    operations: tuple[str, ...] = ()
    """Operations of the journal that fail the condition."""
    keys: NewKeys | None = None
    """Keys that fail the condition if a partition that is live since the tick has one."""


@dataclass(frozen=True, slots=True)
class Insertion:
    """Rows of a table and, if some were refused, of the table of its rejects; all or nothing."""

    rows: Sequence[TableRows]
    operation: str = journal.INSERTED
    reason: str | None = None
    premise: Premise | None = None
    insert_key: InsertKey | None = None

    @property
    def table(self) -> UserTable:
        return self.rows[0].table


@dataclass(frozen=True, slots=True)
class Inserted:
    """The result of an insert; ``repeated`` if it was done before."""

    tick: int
    rows: int
    rejected: int = 0
    repeated: bool = False
    buckets: tuple[str, ...] = ()
    crowded: tuple[str, ...] = ()
    """The buckets whose small partitions this insert should fold."""


def require_same(table: UserTable, insert_key: InsertKey, earlier: KnownInsert) -> None:
    """Raise `Conflict` if an earlier insert with the same key had other records."""
    if earlier.digest != insert_key.digest:
        raise Conflict(
            f"an insert of other records into {table.full_name} had the key {insert_key.key!r}",
            hint="give each insert a key of its own, and the same one only when repeating it",
        )
