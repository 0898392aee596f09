"""Bringing a catalog to the shape this program knows, one revision at a time.

Each revision is one transaction; a revision that moves much data commits in batches before it. A
killed migration goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa

from lakebed.catalog.dialects import WRITE
from lakebed.errors import LakeNotFound, Outdated

if TYPE_CHECKING:
    from alembic.config import Config
    from alembic.script import Script

HEAD = "0003"
BATCH_ROWS = 500
_REVISIONS = ("0001", "0002", "0003")
_ADVISORY_LOCK = 0x1A4EBED


def current_revision(connection: sa.Connection) -> str | None:
    """The revision a catalog is at; None for a database without one."""
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    revision = connection.scalar(sa.text("SELECT version_num FROM alembic_version"))
    return None if revision is None else str(revision)


def require_head(connection: sa.Connection, where: str) -> None:
    """Raise unless the catalog is exactly of this program's shape."""
    revision = current_revision(connection)
    if revision == HEAD:
        return
    if revision is None:
        raise LakeNotFound(f"there is no catalog in {where}", hint="make one with: lakebed init")
    _refuse_newer(revision)
    raise Outdated(
        f"the catalog is at revision {revision}, this program needs {HEAD}",
        hint="bring it up to date with: lakebed migrate",
    )


def is_known(revision: str | None) -> bool:
    """Whether this program can bring a catalog of this revision up to date."""
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
    progress: Callable[[str], None] = lambda _line: None,
) -> list[str]:
    """Run every revision up to the target; which ones ran. Safe to repeat and to run twice at
    once: the second waits for the first."""
    with engine.connect() as connection:
        if current_revision(connection) == target:
            return []  # alembic takes longer to find that out than a catalog takes to open
    from alembic.script import ScriptDirectory

    script = ScriptDirectory.from_config(_config())
    ran = []
    with engine.connect() as guard:
        if engine.dialect.name == "postgresql":
            guard.exec_driver_sql(f"SELECT pg_advisory_lock({_ADVISORY_LOCK})")
            guard.rollback()  # the lock belongs to the session, not to the transaction
        try:
            for revision in _REVISIONS[: _REVISIONS.index(target) + 1]:
                if _run(engine, script.get_revision(revision), batch_rows, progress):
                    ran.append(revision)
        finally:
            if engine.dialect.name == "postgresql":
                guard.exec_driver_sql(f"SELECT pg_advisory_unlock({_ADVISORY_LOCK})")
                guard.rollback()
    return ran


def _run(
    engine: sa.Engine,
    step: Script,
    batch_rows: int,
    progress: Callable[[str], None],
) -> bool:
    """One revision, unless the catalog has it already."""
    from alembic import command

    prepare = getattr(step.module, "prepare", None)
    move_batch = getattr(step.module, "move_batch", None)
    if prepare is not None and move_batch is not None:
        moved = 0
        while True:
            with _transaction(engine) as connection:
                if not _is_next(connection, step):
                    break
                prepare(connection)
                copied = move_batch(connection, batch_rows)
            if not copied:
                break
            moved += copied
            progress(f"revision {step.revision}: {moved} footers moved")
    with _transaction(engine) as connection:
        if not _is_next(connection, step):
            return False
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, step.revision)
    progress(f"revision {step.revision}: {(step.doc or '').splitlines()[0]}")
    return True


def _is_next(connection: sa.Connection, step: Script) -> bool:
    revision = current_revision(connection)
    if revision is not None:
        _refuse_newer(revision)
    return revision == step.down_revision


def _transaction(engine: sa.Engine) -> AbstractContextManager[sa.Connection]:
    return engine.execution_options(**{WRITE: True}).begin()


def _config() -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    config.set_main_option("version_path_separator", "os")
    return config
