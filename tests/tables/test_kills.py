"""An operation on a table that is killed with SIGKILL at any step is atomic: the lake is sound, the
operation can be repeated, and no file is leaked.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import CAMPAIGN
from tests.parts.processes import run_alone
from tests.tables.killing import SCENARIOS, run_all

# The campaign kills at every step. The default run takes, on SQLite, each commit and each kind of
# disk operation of a batch over five months, and of everything else the last commit; on PostgreSQL
# a few of these.
EVERY = 1 if CAMPAIGN else 12
EVERYTHING = dict.fromkeys(SCENARIOS, 100_000)
SOME = {
    "sqlite": {**dict.fromkeys(SCENARIOS, 1), "fold": 2, "insert": 100_000},
    "postgresql": {"insert": 3, "delete": 1, "fold": 1},
}


def test_killed_at_any_step(
    dialect: str, quick_folder: Path, request: pytest.FixtureRequest
) -> None:
    limit = EVERYTHING if CAMPAIGN else SOME[dialect]
    server = request.getfixturevalue("postgres_url") if dialect == "postgresql" else ""
    log = quick_folder / "log"
    reports = run_alone(run_all, log, dialect, quick_folder, EVERY, limit, server)
    assert set(reports) == set(limit)
    for name, report in reports.items():
        events = Counter(report["events"])
        sys.stdout.write(f"{name}: killed at {report['points']} of {events.total()}\n")
        assert report["failures"] == [], (name, log.read_text())
        assert report["changed"], f"{name} did nothing to be killed at"
        killed = [report["events"][point - 1] for point in report["points"]]
        # Writers run in threads: how many of the chosen points coincide differs by their order.
        assert len(killed) >= min(limit[name], events.total(), 15), name
        assert killed[-1] == "sql COMMIT", "the last thing that is done"
        assert "disk write, half done" in killed or not events["disk write"] or len(killed) == 1
    events = Counter(reports["insert"]["events"])
    assert events["disk create"] == 6, "five months, and the rejects"
    assert events["sql COMMIT"] >= 2, "names, then rows"
