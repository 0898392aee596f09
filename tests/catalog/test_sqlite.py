"""SQLite where pysqlite3 has no wheel, as on Linux arm64: Python's own module."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import ModuleType

import pytest

from lakebed.catalog.connections.dialects import SqliteDialect
from lakebed.errors import BadInput


def make_module(version: tuple[int, int, int]) -> ModuleType:
    """Return Python's SQLite module, with another version of SQLite."""
    module = ModuleType("sqlite3")
    vars(module).update(vars(sqlite3))
    vars(module).update(
        sqlite_version_info=version, sqlite_version=".".join(str(part) for part in version)
    )
    return module


@pytest.mark.parametrize(
    ("version", "mode", "synchronous"),
    [((3, 51, 3), "wal", 2), ((3, 51, 2), "delete", 3), ((3, 35, 0), "delete", 3)],
)
def test_journal_mode_is_safe_for_the_version_of_sqlite(
    tmp_path: Path, version: tuple[int, int, int], mode: str, synchronous: int
) -> None:
    file = tmp_path / "catalog.sqlite3"
    file.touch()
    dialect = SqliteDialect(file, module=make_module(version))
    names = {"wal": "WAL, synchronous=FULL", "delete": "rollback journal, synchronous=EXTRA"}
    number = ".".join(str(part) for part in version)
    assert dialect.describe() == f"SQLite {number} ({names[mode]})"
    with dialect.create_engine().connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == mode
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == synchronous


def test_sqlite_without_returning_is_refused_with_both_versions_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"needs SQLite 3\.35\.0 or newer, .* has 3\.34\.1") as error:
        SqliteDialect(tmp_path / "catalog.sqlite3", module=make_module((3, 34, 1)))
    assert "--catalog postgresql://" in (error.value.hint or "")
