"""Migrations of a catalog to the shape that this program needs.

Every pending revision first names the rows that it cannot take. Nothing changes if there are any.
Large data moves in batches beside the older shape, which still works. Then one transaction takes
the catalog through all pending revisions. A killed migration can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from lakebed.catalog import schema
from lakebed.catalog.connections.dialects import WRITE
from lakebed.errors import ForeignCatalog, LakeNotFound, MigrationRefused, Outdated

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import Script

HEAD = "0003"
BATCH_ROWS = 500
_REVISIONS = ("0001", "0002", "0003")
_ADVISORY_LOCK = 0x1A4EBED
_OLDEST_TABLES = {"blocks", "lakehouse_partitions", "processes", "streams", "temporary_files"}
"""Tables that a catalog of every revision has."""


def current_revision(connection: sa.Connection, database: str = "the database") -> str | None:
    """Return the revision of a catalog, or None for a database without one. Raise `ForeignCatalog`
    if the database has tables that another program made; ``database`` names it for people."""
    inspector = sa.inspect(connection)
    names = set(inspector.get_table_names())
    if "alembic_version" in names:
        revision = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
        if revision is not None and names >= _OLDEST_TABLES:
            return str(revision)
    names.update(inspector.get_view_names())
    foreign = sorted(names & {"alembic_version", *schema.metadata.tables})
    if foreign:
        raise ForeignCatalog(
            f"{database} is not a Lakebed catalog: another program made its tables "
            f"{', '.join(foreign)}",
            hint="use an empty database",
        )
    return None


def require_head(connection: sa.Connection, database: str) -> None:
    """Raise unless the catalog is exactly of this program's shape."""
    revision = current_revision(connection, database)
    if revision == HEAD:
        return
    if revision is None:
        raise LakeNotFound(f"there is no catalog in {database}", hint="make one with: lakebed init")
    _refuse_newer(revision)
    raise Outdated(
        f"the catalog is at revision {revision}, this program needs {HEAD}",
        hint="bring it up to date with: lakebed migrate",
    )


def is_known(revision: str | None) -> bool:
    """Return True if this program can bring a catalog of this revision up to date."""
    return revision is None or revision in _REVISIONS


def _refuse_newer(revision: str) -> None:
    if not is_known(revision):
        raise Outdated(
            f"the catalog is at revision {revision}, which this program does not know",
            hint="it was migrated by a newer lakebed; use that one",
        )


def migrate(
    engine: sa.Engine,
    *,
    target: str = HEAD,
    batch_rows: int = BATCH_ROWS,
    database: str = "the database",
    progress: Callable[[str], None] = lambda _line: None,
) -> list[str]:
    """Run every pending revision up to the target and return their names. Of two migrations at
    once the second waits for the first. Raise `MigrationRefused` before anything changes."""
    with engine.connect() as connection:
        if current_revision(connection, database) == target:
            return []  # alembic takes longer to find that out than a catalog takes to open
    with engine.connect() as guard:
        if engine.dialect.name == "postgresql":
            guard.exec_driver_sql(f"SELECT pg_advisory_lock({_ADVISORY_LOCK})")
            guard.rollback()  # the lock belongs to the session, not to the transaction
        try:
            return _migrate(engine, target, batch_rows, progress)
        finally:
            if engine.dialect.name == "postgresql":
                guard.exec_driver_sql(f"SELECT pg_advisory_unlock({_ADVISORY_LOCK})")
                guard.rollback()


def _migrate(
    engine: sa.Engine, target: str, batch_rows: int, progress: Callable[[str], None]
) -> list[str]:
    from alembic import command

    with engine.connect() as connection, connection.begin():
        steps = _list_pending(connection, target)
        _refuse_broken_rows(connection, steps)
    if steps and steps[0].down_revision is not None:
        _move_batches(engine, steps[0], batch_rows, progress)
    with _transaction(engine) as connection:
        # SQLite lets only one process migrate from here on: another may have done it.
        steps = _list_pending(connection, target)
        if not steps:
            return []
        if steps[0].down_revision is not None and engine.dialect.name == "postgresql":
            connection.exec_driver_sql(f"LOCK TABLE {', '.join(sorted(_OLDEST_TABLES))}")
        _refuse_broken_rows(connection, steps)  # rows that were written since
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, target)
    for step in steps:
        progress(f"revision {step.revision}: {(step.doc or '').splitlines()[0]}")
    return [step.revision for step in steps]


def _list_pending(connection: sa.Connection, target: str) -> list[Script]:
    """Return the revisions that a catalog lacks up to the target, in order."""
    from alembic.script import ScriptDirectory

    revision = current_revision(connection)
    if revision is not None:
        _refuse_newer(revision)
    script = ScriptDirectory.from_config(_config())
    first = 0 if revision is None else _REVISIONS.index(revision) + 1
    behind = _REVISIONS.index(target) + 1
    return [script.get_revision(name) for name in _REVISIONS[first:behind]]


def _refuse_broken_rows(connection: sa.Connection, steps: Sequence[Script]) -> None:
    """Raise `MigrationRefused` if any revision finds rows that it cannot take."""
    if not steps or steps[0].down_revision is None:
        return
    problems = []
    for step in steps:
        if hasattr(step.module, "find_problems"):
            problems += step.module.find_problems(connection)
    if problems:
        raise MigrationRefused(problems)


def _move_batches(
    engine: sa.Engine, step: Script, batch_rows: int, progress: Callable[[str], None]
) -> None:
    """Move data that a revision copies, each batch in a transaction of its own."""
    prepare = getattr(step.module, "prepare", None)
    move_batch = getattr(step.module, "move_batch", None)
    if prepare is None or move_batch is None:
        return
    moved = 0
    while True:
        with _transaction(engine) as connection:
            if current_revision(connection) != step.down_revision:
                return  # another process was faster
            prepare(connection)
            copied = move_batch(connection, batch_rows)
        if not copied:
            return
        moved += copied
        progress(f"revision {step.revision}: {moved} footers moved")


def _transaction(engine: sa.Engine) -> AbstractContextManager[sa.Connection]:
    return engine.execution_options(**{WRITE: True}).begin()


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("version_path_separator", "os")
    return config
