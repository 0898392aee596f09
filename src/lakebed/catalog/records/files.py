"""Files that are not part of the lake: reserved names, retired files, files that a sweep has
claimed, and quarantine. With the live partitions they account for every byte in a store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from lakebed.catalog.connections.trips import LATER
from lakebed.catalog.expressions import one_of, one_of_bound
from lakebed.catalog.schema import leases, partitions, temporary_files
from lakebed.model.partition import FileState

_INSERT = sa.insert(temporary_files).inline().execution_options(**{LATER: True})


@dataclass(frozen=True, slots=True)
class TemporaryFile:
    """A file that is not live, with the reason."""

    file_path: str
    file_size: int
    state: FileState
    expiration: int | None = None
    lease_id: str | None = None
    reason: str | None = None
    retired_at: int | None = None


def insert_many(connection: sa.Connection, files: Sequence[TemporaryFile]) -> None:
    """Record files that are not live."""
    if not files:
        return
    connection.execute(
        _INSERT,
        [
            {
                "file_path": file.file_path,
                "file_size": file.file_size,
                "state": file.state.value,
                "expiration": file.expiration,
                "lease_id": file.lease_id,
                "reason": file.reason,
                "retired_at": file.retired_at,
            }
            for file in files
        ],
    )


def discard(connection: sa.Connection, paths: Sequence[str], lease_id: str, tick: int) -> None:
    """Give up reservations whose files may exist: the next sweep deletes and forgets them."""
    table = temporary_files
    own_staged = sa.and_(
        one_of(table.c.file_path, paths),
        table.c.state == FileState.STAGED.value,
        table.c.lease_id == lease_id,
    )
    values = {"state": FileState.DELETING.value, "lease_id": None, "expiration": tick}
    connection.execute(sa.update(table).where(own_staged).values(**values))


_TAKE_STAGED = sa.delete(temporary_files).where(
    one_of_bound(temporary_files.c.file_path, "paths"),
    temporary_files.c.state == FileState.STAGED.value,
    temporary_files.c.lease_id == sa.bindparam("lease"),
)


def take_staged(connection: sa.Connection, paths: Sequence[str], lease_id: str) -> int:
    """Remove the reservations of these paths, if the lease still owns them. Return their number."""
    return connection.execute(_TAKE_STAGED, {"paths": list(paths), "lease": lease_id}).rowcount


def take(connection: sa.Connection, paths: Sequence[str], states: Sequence[FileState]) -> int:
    """Remove the rows of these paths that are in one of the states. Return their number."""
    table = temporary_files
    statement = sa.delete(table).where(
        one_of(table.c.file_path, paths), table.c.state.in_([state.value for state in states])
    )
    return connection.execute(statement).rowcount


def list_files(
    connection: sa.Connection, states: Sequence[FileState] = tuple(FileState)
) -> list[TemporaryFile]:
    """Return every temporary file in one of the states, by path."""
    table = temporary_files
    rows = connection.execute(
        sa.select(table)
        .where(table.c.state.in_([state.value for state in states]))
        .order_by(table.c.file_path)
    )
    return [_read(row) for row in rows]


def list_paths(connection: sa.Connection, states: Sequence[FileState]) -> set[str]:
    """Return the paths of every temporary file in one of the states."""
    table = temporary_files
    query = sa.select(table.c.file_path).where(table.c.state.in_([s.value for s in states]))
    return {str(path) for path in connection.scalars(query)}


def list_aside(connection: sa.Connection, reason: str = "") -> list[TemporaryFile]:
    """Return the files that were set aside for a reason with this prefix, by path; also those that
    were condemned since and are not yet deleted: of the retired files, only they have a reason."""
    table = temporary_files
    states = [FileState.QUARANTINED.value, FileState.RETIRED.value]
    rows = connection.execute(
        sa.select(table)
        .where(table.c.state.in_(states), table.c.reason.startswith(reason, autoescape=True))
        .order_by(table.c.file_path)
    )
    return [_read(row) for row in rows]


def find_file(connection: sa.Connection, file_path: str) -> TemporaryFile | None:
    """Return the temporary file at a path, or None."""
    table = temporary_files
    row = connection.execute(sa.select(table).where(table.c.file_path == file_path)).one_or_none()
    return None if row is None else _read(row)


def find_quarantined(connection: sa.Connection, beginning: str) -> str | None:
    """Return the quarantined file whose path has this prefix."""
    table = temporary_files
    query = sa.select(table.c.file_path).where(
        table.c.state == FileState.QUARANTINED.value,
        table.c.file_path.startswith(beginning, autoescape=True),
    )
    return connection.scalar(query.limit(1))


def list_abandoned(connection: sa.Connection, limit: int) -> list[TemporaryFile]:
    """Return the reservations whose lease is gone."""
    table = temporary_files
    living = sa.select(leases.c.lease_id)
    rows = connection.execute(
        sa.select(table)
        .where(table.c.state == FileState.STAGED.value, table.c.lease_id.not_in(living))
        .order_by(table.c.file_path)
        .limit(limit)
    )
    return [_read(row) for row in rows]


def list_expired(
    connection: sa.Connection, now: int, protected_from: int, limit: int
) -> list[TemporaryFile]:
    """Return the retired files past their grace period that no reader's snapshot can hold."""
    table = temporary_files
    still_read = sa.exists().where(
        partitions.c.file_path == table.c.file_path, partitions.c.retired_at > protected_from
    )
    unread = sa.or_(table.c.retired_at.is_(None), table.c.retired_at <= protected_from)
    rows = connection.execute(
        sa.select(table)
        .where(table.c.state == FileState.RETIRED.value, table.c.expiration <= now)
        .where(~still_read, unread)
        .order_by(table.c.expiration, table.c.file_path)
        .limit(limit)
    )
    return [_read(row) for row in rows]


def list_claimed(connection: sa.Connection, now: int, limit: int) -> list[TemporaryFile]:
    """Return the files that a sweep has claimed and whose rows may be deleted."""
    table = temporary_files
    rows = connection.execute(
        sa.select(table)
        .where(table.c.state == FileState.DELETING.value, table.c.expiration <= now)
        .order_by(table.c.file_path)
        .limit(limit)
    )
    return [_read(row) for row in rows]


def claim(connection: sa.Connection, paths: Sequence[str], expiration: int | None = None) -> None:
    """Mark files as being deleted; this is never undone."""
    table = temporary_files
    values: dict[str, object] = {"state": FileState.DELETING.value, "lease_id": None}
    if expiration is not None:
        values["expiration"] = expiration
    connection.execute(sa.update(table).where(one_of(table.c.file_path, paths)).values(**values))


def _read(row: sa.Row[tuple[object, ...]]) -> TemporaryFile:
    return TemporaryFile(
        row.file_path,
        row.file_size,
        FileState(row.state),
        row.expiration,
        row.lease_id,
        row.reason,
        row.retired_at,
    )


def expire(connection: sa.Connection, paths: Sequence[str], expiration: int) -> None:
    """Set an expiration for files of retired partitions without one; also if they were set
    aside."""
    connection.execute(
        sa.update(temporary_files)
        .where(
            one_of(temporary_files.c.file_path, paths),
            temporary_files.c.state.in_([FileState.RETIRED.value, FileState.QUARANTINED.value]),
            temporary_files.c.expiration.is_(None),
        )
        .values(expiration=expiration, state=FileState.RETIRED.value)
    )
