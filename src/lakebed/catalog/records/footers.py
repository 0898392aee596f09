"""Footers in their own table. A footer row lives exactly as long as its file: it is written with
the partition, survives retirement, and goes in the transaction that forgets the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from lakebed.catalog.connections.trips import LATER
from lakebed.catalog.expressions import one_of
from lakebed.catalog.schema import partition_metadata
from lakebed.errors import UnknownFooter

_INSERT = sa.insert(partition_metadata).inline().execution_options(**{LATER: True})


@dataclass(frozen=True, slots=True)
class StoredFooter:
    """Footer bytes as stored; format 1 must be upgraded before use."""

    file_path: str
    file_size: int
    metadata: bytes
    format_version: int
    digest: bytes


def insert_many(connection: sa.Connection, footers: Sequence[StoredFooter], tick: int) -> None:
    """Store new footers. The partitions that refer to them are inserted afterwards."""
    if not footers:
        return
    connection.execute(
        _INSERT,
        [
            {
                "file_path": footer.file_path,
                "file_size": footer.file_size,
                "metadata": footer.metadata,
                "partition_format_version": footer.format_version,
                "insert_time": tick,
                "digest": footer.digest,
            }
            for footer in footers
        ],
    )


def get(connection: sa.Connection, file_path: str) -> StoredFooter:
    """Return the footer of one file. Raises if there is none."""
    table = partition_metadata
    row = connection.execute(sa.select(table).where(table.c.file_path == file_path)).one_or_none()
    if row is None:
        raise UnknownFooter(f"no footer is stored for {file_path}")
    return read_footer(row)


def list_digests(connection: sa.Connection, paths: Sequence[str]) -> dict[str, bytes]:
    """Return the digests of the footers of some files, as far as there are any."""
    table = partition_metadata
    rows = connection.execute(
        sa.select(table.c.file_path, table.c.digest).where(one_of(table.c.file_path, paths))
    )
    return {row.file_path: bytes(row.digest) for row in rows}


def read_footer(row: sa.Row[tuple[object, ...]]) -> StoredFooter:
    """Return the footer in a row that has this table's columns."""
    return StoredFooter(
        file_path=row.file_path,
        file_size=row.file_size,
        metadata=bytes(row.metadata),
        format_version=row.partition_format_version,
        digest=bytes(row.digest),
    )


def list_of_format(
    connection: sa.Connection, format_version: int, after: str, limit: int
) -> list[StoredFooter]:
    """Return a page of the footers in one format, by path."""
    table = partition_metadata
    rows = connection.execute(
        sa.select(table)
        .where(table.c.partition_format_version == format_version, table.c.file_path > after)
        .order_by(table.c.file_path)
        .limit(limit)
    )
    return [read_footer(row) for row in rows]


def rewrite(connection: sa.Connection, footer: StoredFooter, old_digest: bytes) -> bool:
    """Replace a footer's stored form, unless another process already has or its file is gone."""
    table = partition_metadata
    changed = connection.execute(
        sa.update(table)
        .where(table.c.file_path == footer.file_path, table.c.digest == old_digest)
        .values(
            metadata=footer.metadata,
            partition_format_version=footer.format_version,
            digest=footer.digest,
        )
    )
    return bool(changed.rowcount)


def delete_many(connection: sa.Connection, paths: Sequence[str]) -> int:
    """Delete the footers of files that are gone."""
    table = partition_metadata
    return connection.execute(sa.delete(table).where(one_of(table.c.file_path, paths))).rowcount
