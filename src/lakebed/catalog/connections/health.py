"""Read-only checks of a catalog of any revision: its software, its revision, its clock, and whether
it can be written.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from lakebed.catalog import clock
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.connections.dialects import SqliteDialect
from lakebed.catalog.expressions import catalog_clock
from lakebed.catalog.migrate import HEAD, current_revision, is_known


@dataclass(frozen=True, slots=True)
class Software:
    """The SQLite that this process uses."""

    version: str
    is_safe_for_wal: bool
    """True if it is free of the WAL-reset bug; if not, catalogs are written without WAL."""


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a catalog that responds."""

    software: str
    revision: str | None
    """None if there is no catalog in the database."""
    needed_revision: str
    is_known_revision: bool
    ahead_us: int
    """The catalog's clock minus this machine's, with an error of ``give_or_take_us``."""
    give_or_take_us: int
    ticks_ahead_us: int | None
    """The last tick minus the catalog's clock; negative is normal."""
    journal_mode: str | None
    """SQLite only; None for a read-only catalog."""


def find_software(url: str) -> Software | None:
    """The SQLite behind an embedded catalog's URL; None for another database."""
    if not url.startswith("sqlite:///"):
        return None
    dialect = SqliteDialect(Path(url.removeprefix("sqlite:///")))
    return Software(dialect.module.sqlite_version, dialect.uses_wal)


def examine(catalog: Catalog, now_us: Callable[[], int]) -> Health:
    """Look at a catalog; ``now_us`` is this machine's clock. Raises what `Catalog.read` raises."""
    embedded = isinstance(catalog.dialect, SqliteDialect)
    with catalog.read() as connection:
        version = connection.scalar(
            sa.text("SELECT sqlite_version()" if embedded else "SHOW server_version")
        )
        in_use = embedded and not catalog.read_only
        mode = connection.scalar(sa.text("PRAGMA journal_mode")) if in_use else None
        revision = current_revision(connection, catalog.dialect.name_database())
        before = now_us()
        moment = int(connection.scalar(sa.select(catalog_clock())) or 0)
        after = now_us()
        tick = clock.now(connection) if revision == HEAD else None
    return Health(
        software=f"{'SQLite' if embedded else 'PostgreSQL'} {version}",
        revision=revision,
        needed_revision=HEAD,
        is_known_revision=is_known(revision),
        ahead_us=moment - (before + after) // 2,
        give_or_take_us=(after - before) // 2,
        ticks_ahead_us=None if tick is None else tick - moment,
        journal_mode=mode,
    )


class _Undo(Exception):
    """Raised to roll a transaction back that must not change anything."""


def try_to_write(catalog: Catalog) -> None:
    """Begin a write and roll it back; raise the error that prevents it."""
    with suppress(_Undo), catalog.write():
        raise _Undo
