"""Killed at any step, an import is finished by doing it again: nothing twice and nothing lost."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import CAMPAIGN
from tests.parts import servers

EVERY, MOST = (1, 100_000) if CAMPAIGN else (24, 12)


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """A folder in memory if there is one: a killed process leaves the same files there."""
    folder = Path(tempfile.mkdtemp(dir=servers.quick_folder()))
    yield folder
    shutil.rmtree(folder)


def kill_imports(folder: Path, dialect: str, server: str = "") -> None:
    command = [sys.executable, "-m", "tests.tables.killed_imports", dialect, str(folder)]
    command += [str(EVERY), str(MOST), server]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    sys.stdout.write(f"killed at {report['points']} of {report['events']}\n")
    assert report["failures"] == []
    assert (report["rows"], report["aside"]) == (20, 2)
    assert len(report["points"]) >= 8


def test_a_killed_import_is_finished_by_the_next(quick_folder: Path) -> None:
    kill_imports(quick_folder, "sqlite")


@pytest.mark.campaign
def test_a_killed_import_is_finished_by_the_next_on_postgresql(
    quick_folder: Path, postgres_url: str
) -> None:
    kill_imports(quick_folder, "postgresql", postgres_url)
