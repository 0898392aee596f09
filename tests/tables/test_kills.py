"""Killed with SIGKILL at any step, whatever is done to a table has happened or has not: the lake is
sound, it can be done again, and nothing is left behind.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import CAMPAIGN
from tests.parts import servers
from tests.tables.killing import SCENARIOS

# The campaign kills at every step. The default run takes each commit and each kind of disk
# operation of a batch over five months, and a few steps of everything else.
EVERY = 1 if CAMPAIGN else 12
EVERYTHING = dict.fromkeys(SCENARIOS, 100_000)
SOME = {
    "sqlite": {**dict.fromkeys(SCENARIOS, 2), "insert": 8},
    "postgresql": {"insert": 3, "delete": 1, "fold": 1},
}


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """A folder in memory if there is one: a killed process leaves the same files there."""
    folder = Path(tempfile.mkdtemp(dir=servers.quick_folder()))
    yield folder
    shutil.rmtree(folder)


def test_killed_at_any_step(
    dialect: str, quick_folder: Path, request: pytest.FixtureRequest
) -> None:
    most = EVERYTHING if CAMPAIGN else SOME[dialect]
    command = [sys.executable, "-m", "tests.tables.killing", dialect, str(quick_folder)]
    command += [str(EVERY), json.dumps(most)]
    if dialect == "postgresql":
        command.append(request.getfixturevalue("postgres_url"))
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    reports = json.loads(done.stdout)
    assert set(reports) == set(most)
    for name, report in reports.items():
        events = Counter(report["events"])
        sys.stdout.write(f"{name}: killed at {report['points']} of {events.total()}\n")
        assert report["failures"] == [], name
        assert report["changed"], f"{name} did nothing to be killed at"
        assert len(report["points"]) >= min(most[name], events.total()) // 2
    events = Counter(reports["insert"]["events"])
    assert events["disk create"] == 6, "five months, and the rejects"
    assert events["sql COMMIT"] >= 2, "names, then rows"
