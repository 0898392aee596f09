"""What a command loads before it does anything: nothing that its help does not need."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lakebed.opening import init_lake

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


@pytest.mark.parametrize("ignored", [False, True])
def test_an_interrupt_while_it_loads_prints_nothing(tmp_path: Path, ignored: bool) -> None:
    (tmp_path / "typer.py").write_text(
        "import os, signal, sys\n"
        "os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.exit(f'still here, {signal.getsignal(signal.SIGINT)!r}')\n"
    )
    command = [sys.executable, "-m", "lakebed", "--help"]
    if ignored:  # as shells do for what runs in the background
        command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if ignored:
        assert done.stderr == f"still here, {signal.SIG_IGN!r}\n"
    else:
        assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


@pytest.mark.parametrize(
    ("told", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_an_interrupt_while_a_command_loads_more_has_its_exit_code(
    tmp_path: Path, told: signal.Signals, code: int
) -> None:
    init_lake(tmp_path / "lake").close()
    (tmp_path / "datafusion.py").write_text(  # modules run code of theirs as texts: dataclasses do
        f"exec('import os; os.kill(os.getpid(), {told:d})')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "lakebed", "query", "SELECT 1", "--lake", str(tmp_path / "lake")],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "interrupted\n")
