"""API keys as rows: who may use a server, and for what. Of secrets only the digests are stored."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from lakebed.catalog.schema import api_keys as table


@dataclass(frozen=True, slots=True)
class Key:
    """One key, without its secret."""

    key_id: str
    name: str
    roles: tuple[str, ...]
    digest: bytes
    created_at: int
    last_used_at: int | None = None
    revoked_at: int | None = None


def insert(connection: sa.Connection, key: Key) -> None:
    """Record a new key."""
    connection.execute(
        sa.insert(table).values(
            key_id=key.key_id,
            name=key.name,
            roles=" ".join(key.roles),
            digest=key.digest,
            created_at=key.created_at,
        )
    )


_ONE = sa.select(table).where(table.c.key_id == sa.bindparam("key_id"))


def find(connection: sa.Connection, key_id: str) -> Key | None:
    """Return the key with this id, revoked or not, or None."""
    row = connection.execute(_ONE, {"key_id": key_id}).one_or_none()
    return None if row is None else _read(row)


def list_keys(connection: sa.Connection) -> list[Key]:
    """Return every key ever created, the oldest first."""
    query = sa.select(table).order_by(table.c.created_at, table.c.key_id)
    return [_read(row) for row in connection.execute(query)]


def has_any(connection: sa.Connection) -> bool:
    """Return True if a key was ever created."""
    return bool(connection.scalar(sa.select(sa.exists(sa.select(table.c.key_id)))))


def revoke(connection: sa.Connection, key_id: str, tick: int) -> bool:
    """Revoke a key. Return True if it was in force."""
    changed = connection.execute(
        sa.update(table)
        .where(table.c.key_id == key_id, table.c.revoked_at.is_(None))
        .values(revoked_at=tick)
    )
    return changed.rowcount == 1


def note_use(connection: sa.Connection, key_id: str, at: int) -> None:
    """Record when a key was last used."""
    connection.execute(sa.update(table).where(table.c.key_id == key_id).values(last_used_at=at))


def _read(row: sa.Row[tuple[object, ...]]) -> Key:
    return Key(
        key_id=row.key_id,
        name=row.name,
        roles=tuple(row.roles.split()),
        digest=bytes(row.digest),
        created_at=row.created_at,
        last_used_at=row.last_used_at,
        revoked_at=row.revoked_at,
    )
