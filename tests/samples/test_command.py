"""`python -m lakebed.samples`: a file to begin with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lakebed.opening import init_lake


def test_samples_land_and_are_of_the_last_minutes(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    with file.open("wb") as opened:
        command = [sys.executable, "-m", "lakebed.samples", "20"]
        subprocess.run(command, stdout=opened, check=True)
    with init_lake(tmp_path / "lake") as lake:
        landed = lake.telemetry.land_file(file)
        assert (landed.requests, landed.records, landed.duplicates) == (3, 60, 0)
        for name in ("log_entries", "measures", "spans"):
            found = lake.query(f"SELECT count(*) AS n FROM {name}", "1h").to_arrow()
            assert found["n"].to_pylist()[0] >= 15, "a few have absurd times, as real ones do"


def test_help_says_what_to_do_with_them() -> None:
    command = [sys.executable, "-m", "lakebed.samples", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "lakebed land requests.jsonl" in done.stdout


def test_a_wrong_call_is_one_line() -> None:
    command = [sys.executable, "-m", "lakebed.samples", "-5"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: say how many records: python -m lakebed.samples 100\n"
