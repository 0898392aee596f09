"""Killed at any step, an operation leaves the lake as it was or as it should become: it opens,
`check` is clean, nothing acknowledged is lost, and the operation can be repeated.
"""

from __future__ import annotations

import json
import os
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
from tests.parts.processes import run_alone
from tests.proof import killing

POINTS = Path(__file__).with_name("kill_points.json")
"""How often each kind of step occurs in an undisturbed run. Made by the tests themselves when run
with LAKEBED_RECORD=1; afterwards no step may disappear, or it would no longer be killed at."""

RECORD = bool(os.environ.get("LAKEBED_RECORD"))
# Every commit, each kind of disk operation, and of the rest every second step on SQLite, where
# copies are cheap; fewer on PostgreSQL, and in migrations (many statements, few transactions). The
# campaign leaves nothing out.
DEFAULT_STEP = {
    ("sqlite", False): 2,
    ("sqlite", True): 20,
    ("postgresql", False): 48,
    ("postgresql", True): 72,
}
SCENARIOS = (
    "land",
    "publish",
    "replace",
    "retire",
    "restore",
    "sweep",
    "retire blocks",
    "migrate",
)


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """A folder in memory if there is one: a killed process leaves the same files there."""
    folder = Path(tempfile.mkdtemp(dir=servers.quick_folder()))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_killed_at_every_step(
    scenario: str, dialect: str, quick_folder: Path, request: pytest.FixtureRequest
) -> None:
    step = 1 if CAMPAIGN else DEFAULT_STEP[dialect, scenario == "migrate"]
    server = request.getfixturevalue("postgres_url") if dialect == "postgresql" else ""
    log = quick_folder / "log"
    report = run_alone(killing.run, log, scenario, dialect, quick_folder, step, server)
    sys.stdout.write(f"{report['points']} kill points of {len(report['events'])}\n")
    assert report["failures"] == [], log.read_text()
    assert report["changed"] == (scenario != "sweep"), "the operation did nothing to be killed at"
    _compare_points(f"{scenario} {dialect}", Counter(report["events"]))


@pytest.mark.campaign
@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("scenario", ["land", "publish", "replace", "sweep"])
def test_killed_at_system_calls(scenario: str, quick_folder: Path) -> None:
    command = [sys.executable, "-m", "tests.proof.straced", "kill", scenario]
    command += [str(quick_folder), os.environ.get("LAKEBED_STRACE_KILLS", "12")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    sys.stdout.write(f"{report['kills']} kills; calls {report['counts']}\n")
    assert report["failures"] == []
    assert report["kills"] > 10


def _compare_points(name: str, found: Counter[str]) -> None:
    known = json.loads(POINTS.read_text()) if POINTS.exists() else {}
    if RECORD:
        known[name] = dict(sorted(found.items()))
        POINTS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
        return
    missing = Counter(known[name]) - found
    assert not missing, f"steps that were killed at have disappeared: {dict(missing)}"
