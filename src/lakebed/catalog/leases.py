"""Leases: which processes are alive, and what they read, write or build. A lease is dead when its
heartbeats stood still for its time-to-live on the observer's own monotonic clock, so the clocks of
other hosts do not matter.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

import sqlalchemy as sa

from lakebed.catalog.schema import leases


class LeaseKind(enum.StrEnum):
    """The kinds of things that a lease protects."""

    READER = "reader"  # files retired after its oldest tick
    WRITER = "writer"  # file names that it reserved
    BUILDER = "builder"  # the right to build one view set


@dataclass(frozen=True, slots=True)
class Lease:
    """One row: a holder and its heartbeat."""

    lease_id: str
    kind: LeaseKind
    holder: str
    beats: int
    ttl_us: int
    acquired_at: int
    view_set: str | None = None
    oldest_tick: int | None = None
    pinned_at: int | None = None


def insert(connection: sa.Connection, lease: Lease) -> None:
    """Take a lease."""
    connection.execute(
        sa.insert(leases).values(
            lease_id=lease.lease_id,
            kind=lease.kind.value,
            holder=lease.holder,
            view_set_name=lease.view_set,
            oldest_tick=lease.oldest_tick,
            pinned_at=lease.pinned_at,
            beats=lease.beats,
            ttl_us=lease.ttl_us,
            acquired_at=lease.acquired_at,
        )
    )


def renew(connection: sa.Connection, lease_id: str, reads: tuple[int, int] | None = None) -> bool:
    """Record a heartbeat, which may also change the oldest tick of a reader and its begin. Return
    False if the lease was taken away."""
    values: dict[str, object] = {"beats": leases.c.beats + 1}
    if reads is not None:
        values["oldest_tick"], values["pinned_at"] = reads
    statement = sa.update(leases).where(leases.c.lease_id == lease_id).values(**values)
    return bool(connection.execute(statement).rowcount)


def find(connection: sa.Connection, lease_id: str) -> Lease | None:
    """Return the lease, or None if it was released or taken away."""
    row = connection.execute(sa.select(leases).where(leases.c.lease_id == lease_id)).one_or_none()
    return None if row is None else _read(row)


def find_builder(connection: sa.Connection, view_set: str) -> Lease | None:
    """Return the lease of the process that builds a view set, or None."""
    row = connection.execute(
        sa.select(leases).where(leases.c.view_set_name == view_set)
    ).one_or_none()
    return None if row is None else _read(row)


def list_leases(connection: sa.Connection) -> list[Lease]:
    """Every lease, oldest first."""
    rows = connection.execute(sa.select(leases).order_by(leases.c.acquired_at, leases.c.lease_id))
    return [_read(row) for row in rows]


def remove(connection: sa.Connection, lease_id: str, beats: int | None = None) -> bool:
    """Release a lease, or remove a dead one. Return False if it has other heartbeats by now."""
    statement = sa.delete(leases).where(leases.c.lease_id == lease_id)
    if beats is not None:
        statement = statement.where(leases.c.beats == beats)
    return bool(connection.execute(statement).rowcount)


def remove_overaged_readers(connection: sa.Connection, before: int) -> list[Lease]:
    """Remove the leases of readers that have used a tick for too long. Return them."""
    overaged = [
        lease
        for lease in list_leases(connection)
        if lease.pinned_at is not None and lease.pinned_at < before
    ]
    by_id = sorted(overaged, key=lambda lease: lease.lease_id)
    return [lease for lease in by_id if remove(connection, lease.lease_id, lease.beats)]


def oldest_read_tick(connection: sa.Connection) -> int | None:
    """The oldest tick that any reader still uses."""
    oldest = connection.scalar(sa.select(sa.func.min(leases.c.oldest_tick)))
    return None if oldest is None else int(oldest)


def _read(row: sa.Row[tuple[object, ...]]) -> Lease:
    return Lease(
        lease_id=row.lease_id,
        kind=LeaseKind(row.kind),
        holder=row.holder,
        beats=row.beats,
        ttl_us=row.ttl_us,
        acquired_at=row.acquired_at,
        view_set=row.view_set_name,
        oldest_tick=row.oldest_tick,
        pinned_at=row.pinned_at,
    )
