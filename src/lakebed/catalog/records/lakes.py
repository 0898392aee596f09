"""The one row that identifies the lake and its store."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from lakebed.catalog.schema import lake
from lakebed.errors import LakeNotFound


@dataclass(frozen=True, slots=True)
class LakeRow:
    """The values that all processes of one lake must agree on."""

    lake_id: str
    store_url: str
    grace_us: int
    longest_read_us: int
    created_at: int
    copied_from: str | None = None
    is_whole: bool = False
    keep_blocks_us: int | None = None
    """The retention of landed blocks; None for ever."""


def find(connection: sa.Connection) -> LakeRow | None:
    """Return the lake of this catalog, complete or not, or None."""
    row = connection.execute(sa.select(lake)).one_or_none()
    if row is None:
        return None
    return LakeRow(
        row.lake_id,
        row.store_url,
        row.grace_us,
        row.longest_read_us,
        row.created_at,
        row.copied_from,
        row.is_whole,
        row.keep_blocks_us,
    )


def find_in_any_shape(connection: sa.Connection) -> LakeRow | None:
    """Return the lake of a database that may have no catalog, or one of another revision."""
    return find(connection) if sa.inspect(connection).has_table(lake.name) else None


def get(connection: sa.Connection) -> LakeRow:
    """Return the lake of this catalog. Raises `LakeNotFound` if there is none or it is
    incomplete."""
    lake = find(connection)
    if lake is not None and lake.copied_from is not None and not lake.is_whole:
        raise LakeNotFound(
            "the catalog is an unfinished copy", hint="remove it and make the copy again"
        )
    if lake is None or not lake.is_whole:
        raise LakeNotFound(
            "the catalog has no lake yet", hint="finish it with: lakebed init --catalog … --store …"
        )
    return lake


def insert(connection: sa.Connection, row: LakeRow) -> None:
    """Record a new lake, which is incomplete until `complete`."""
    connection.execute(
        sa.insert(lake).values(
            singleton=1,
            lake_id=row.lake_id,
            store_url=row.store_url,
            grace_us=row.grace_us,
            longest_read_us=row.longest_read_us,
            keep_blocks_us=row.keep_blocks_us,
            created_at=row.created_at,
            copied_from=row.copied_from,
            is_whole=row.is_whole,
        )
    )


def keep_blocks(connection: sa.Connection, keep_us: int | None) -> None:
    """Set the retention of landed blocks."""
    connection.execute(sa.update(lake).values(keep_blocks_us=keep_us))


def complete(connection: sa.Connection) -> None:
    """Mark the lake as complete, so that it can be opened."""
    connection.execute(sa.update(lake).values(is_whole=True))
