"""Inserts that carried a key. The result of each is stored, so that a repeated insert returns it
and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from lakebed.catalog.expressions import one_of
from lakebed.catalog.schema import table_inserts, tables

ADOPTED = "import:"
"""The prefix of the keys of inserts that imported a file; the file's digest follows."""


@dataclass(frozen=True, slots=True)
class KnownInsert:
    """An insert that carried a key, and its result."""

    digest: bytes
    tick: int
    rows: int
    rejected: int


_INSERTED = sa.select(
    table_inserts.c.digest, table_inserts.c.tick, table_inserts.c.rows, table_inserts.c.rejected
).where(
    table_inserts.c.table_id == sa.bindparam("table_id"), table_inserts.c.key == sa.bindparam("key")
)
_INSERTED_LIVE = _INSERTED.join_from(
    table_inserts, tables, tables.c.table_id == table_inserts.c.table_id
).where(tables.c.deleted_at.is_(None))


def find(connection: sa.Connection, table_id: str, key: str) -> KnownInsert | None:
    """Return the result of the insert with this key. None if there was no such insert, or if the
    table is gone, because its rows went with it."""
    row = connection.execute(_INSERTED_LIVE, {"table_id": table_id, "key": key}).one_or_none()
    return None if row is None else KnownInsert(bytes(row[0]), *row[1:])


def is_known(connection: sa.Connection, table_id: str, key: str) -> bool:
    """Return True if there was an insert with this key, of a deleted table too."""
    return connection.execute(_INSERTED, {"table_id": table_id, "key": key}).first() is not None


def list_beginning(
    connection: sa.Connection, table_id: str, beginnings: Sequence[str]
) -> list[tuple[str, KnownInsert]]:
    """Return the inserts whose key begins with one of these prefixes, which are all of the same
    length."""
    if not beginnings:
        return []
    table = table_inserts
    begins = sa.func.substr(table.c.key, 1, len(beginnings[0]))
    rows = connection.execute(
        sa.select(table.c.key, table.c.digest, table.c.tick, table.c.rows, table.c.rejected)
        .where(table.c.table_id == table_id, one_of(begins, beginnings))
        .order_by(table.c.key)
    )
    return [(row[0], KnownInsert(bytes(row[1]), *row[2:])) for row in rows]


def record(connection: sa.Connection, table_id: str, key: str, insert: KnownInsert) -> None:
    """Record an insert with its key."""
    connection.execute(
        sa.insert(table_inserts).values(
            table_id=table_id,
            key=key,
            digest=insert.digest,
            tick=insert.tick,
            rows=insert.rows,
            rejected=insert.rejected,
        )
    )


def forget(connection: sa.Connection, before: int) -> int:
    """Delete the keys of inserts from before a tick, but not those of imported files."""
    adopted = table_inserts.c.key.startswith(ADOPTED, autoescape=True)
    return connection.execute(
        sa.delete(table_inserts).where(table_inserts.c.tick < before, ~adopted)
    ).rowcount
