"""The journal of the lake: append-only, one entry for each operation, with its time, actor and
reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from lakebed.catalog.catalog import Transaction
from lakebed.catalog.connections.trips import LATER
from lakebed.catalog.schema import journal
from lakebed.model.partition import Partition

LANDED, INSERTED, DELETED, FOLDED = "land", "insert", "delete rows", "fold"
FORGOTTEN, RESTORED = "forget", "restore"
QUIET = (LANDED, INSERTED, DELETED, FOLDED)
"""Operations that change no partition of a view set: they add blocks, or concern users' tables."""

_RETIRING = ("retire", "hold")
_UNCONFIRMED = '"unconfirmed":true'
_spell = json.JSONEncoder(separators=(",", ":")).encode
_INSERT = sa.insert(journal).inline().execution_options(**{LATER: True})


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the journal; ``tick`` and ``actor`` come from the transaction."""

    operation: str
    reason: str | None = None
    view_set: str | None = None
    instance: str | None = None
    partition_id: str | None = None
    file_path: str | None = None
    rows: int = 0
    bytes: int = 0
    detail: dict[str, Any] = field(default_factory=dict)
    tick: int = 0
    actor: str = ""

    @classmethod
    def about(
        cls,
        operation: str,
        partition: Partition,
        reason: str | None = None,
        *,
        unconfirmed: bool = False,
    ) -> Entry:
        """Return an entry about one partition; ``unconfirmed`` marks it for `list_unconfirmed`."""
        insert_range = [partition.insert_range.begin, partition.insert_range.end]
        return cls(
            operation,
            reason,
            partition.view_set,
            partition.instance,
            partition.partition_id,
            partition.file_path,
            partition.num_rows,
            partition.file_size,
            {"insert_range": insert_range} | ({"unconfirmed": True} if unconfirmed else {}),
        )


def append(transaction: Transaction, entries: Iterable[Entry]) -> None:
    """Append entries for this transaction."""
    rows = [
        {
            "tick": transaction.tick,
            "operation": entry.operation,
            "actor": transaction.actor,
            "reason": entry.reason,
            "view_set_name": entry.view_set,
            "view_instance_id": entry.instance,
            "partition_id": entry.partition_id,
            "file_path": entry.file_path,
            "rows": entry.rows,
            "bytes": entry.bytes,
            "detail": _spell(entry.detail),
        }
        for entry in entries
    ]
    if rows:
        transaction.connection.execute(_INSERT, rows)


def list_entries(
    connection: sa.Connection,
    *,
    limit: int | None = None,
    operations: Sequence[str] = (),
    view_set: str | None = None,
    since: int | None = None,
) -> list[Entry]:
    """The newest entries that match, newest first."""
    query = sa.select(journal).order_by(journal.c.entry_id.desc())
    if operations:
        query = query.where(journal.c.operation.in_(operations))
    if view_set is not None:
        query = query.where(journal.c.view_set_name == view_set)
    if since is not None:
        query = query.where(journal.c.tick >= since)
    if limit is not None:
        query = query.limit(limit)
    return [_read(row) for row in connection.execute(query)]


def list_unconfirmed(connection: sa.Connection, since: int) -> list[Entry]:
    """Return the retirements from a tick on that nobody confirmed by name. Reads the journal
    backwards as far as that tick: it has no index on ticks, which rise with the entries."""
    last_before = (
        sa.select(journal.c.entry_id)
        .where(journal.c.tick < since)
        .order_by(journal.c.entry_id.desc())
        .limit(1)
        .scalar_subquery()
    )
    query = sa.select(journal).where(
        journal.c.entry_id > sa.func.coalesce(last_before, 0),
        journal.c.operation.in_(_RETIRING),
        journal.c.detail.contains(_UNCONFIRMED),
    )
    return [_read(row) for row in connection.execute(query)]


def _read(row: sa.Row[Any]) -> Entry:
    return Entry(
        row.operation,
        row.reason,
        row.view_set_name,
        row.view_instance_id,
        row.partition_id,
        row.file_path,
        row.rows,
        row.bytes,
        json.loads(row.detail),
        row.tick,
        row.actor,
    )


def list_operations(connection: sa.Connection) -> list[str]:
    """Return the names of the operations in the journal, sorted."""
    return list(connection.scalars(sa.select(journal.c.operation).distinct().order_by("operation")))


def has_happened(
    connection: sa.Connection, view_set: str, operations: Sequence[str], after: int
) -> bool:
    """Return True if one of these operations was done to a view set after a tick."""
    query = sa.select(
        sa.exists().where(
            journal.c.tick > after,
            journal.c.view_set_name == view_set,
            journal.c.operation.in_(operations),
        )
    )
    return bool(connection.scalar(query))


def find_last(connection: sa.Connection, file_path: str) -> int | None:
    """Return the tick of the journal's last entry about a file, or None."""
    query = sa.select(sa.func.max(journal.c.tick)).where(journal.c.file_path == file_path)
    last = connection.scalar(query)
    return None if last is None else int(last)


def prune(transaction: Transaction, before: int, limit: int) -> int:
    """Delete at most ``limit`` of the oldest entries from before a tick. Return their number."""
    old = (
        sa.select(journal.c.entry_id)
        .where(journal.c.tick < before)
        .order_by(journal.c.entry_id)
        .limit(limit)
    )
    statement = sa.delete(journal).where(journal.c.entry_id.in_(old))
    return transaction.connection.execute(statement).rowcount
