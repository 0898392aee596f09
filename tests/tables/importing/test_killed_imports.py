"""Killed at any step, an import is finished by doing it again: nothing twice and nothing lost."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import CAMPAIGN
from tests.parts.processes import run_alone
from tests.tables.importing.killed_imports import run

EVERY, MOST = (1, 100_000) if CAMPAIGN else (24, 12)


def kill_imports(folder: Path, dialect: str, server: str = "") -> None:
    report = run_alone(run, folder / "log", dialect, folder, EVERY, MOST, server)
    sys.stdout.write(f"killed at {report['points']} of {report['events']}\n")
    assert report["failures"] == [], (folder / "log").read_text()
    assert (report["rows"], report["aside"]) == (20, 2)
    assert len(report["points"]) >= 8


def test_a_killed_import_is_finished_by_the_next(quick_folder: Path) -> None:
    kill_imports(quick_folder, "sqlite")


@pytest.mark.campaign
def test_a_killed_import_is_finished_by_the_next_on_postgresql(
    quick_folder: Path, postgres_url: str
) -> None:
    kill_imports(quick_folder, "postgresql", postgres_url)
