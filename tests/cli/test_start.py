"""What a command loads before it does anything: nothing that its help does not need."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakebed.lake import init_lake

HEAVY = ["alembic", "datafusion", "numpy", "obstore", "pandas", "pyarrow", "pydantic", "pyspark"]
HEAVY += ["rich", "sqlalchemy", "sqlglot"]


def _loaded_after(arguments: list[str]) -> set[str]:
    code = (
        "import sys; from lakebed.cli.main import run; "
        f"code = run({arguments!r}, alone=True); print(); "
        f"print(*(name for name in {HEAVY!r} if name in sys.modules)); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["query", "--help"], ["tables", "--help"]]
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    assert _loaded_after(arguments) == set()


def test_completion_can_be_shown() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "lakebed", "--show-completion", "bash"],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "SHELL": "/bin/bash",
            "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1",
        },
    )
    assert "_LAKEBED_COMPLETE" in done.stdout


def test_a_query_does_without_what_it_does_not_use(tmp_path: Path) -> None:
    init_lake(tmp_path).close()
    loaded = _loaded_after(["query", "SELECT count(*) FROM log_entries", "--lake", str(tmp_path)])
    assert "datafusion" in loaded
    assert not loaded & {"alembic", "pandas", "pyspark", "rich"}
