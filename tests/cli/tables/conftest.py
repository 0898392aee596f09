"""`lakebed tables` in this process, in a lake with a table of two devices."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lakebed.cli.main import run
from lakebed.opening import init_lake
from lakebed.settings import Settings
from tests.cli.parts import Cli, Ran
from tests.cli.tables.parts import RING, SCHEMA, WATCH


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a table of two devices."""
    folder = tmp_path_factory.mktemp("tables") / "lake"
    with init_lake(folder, settings=Settings()) as lake:
        lake.tables.create_database("home")
        lake.tables.create_table("home", "pulse", SCHEMA).insert([RING, WATCH])
    return folder


@pytest.fixture
def cli(
    template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Cli:
    """Runs `lakebed tables` in this process, in a folder with a lake of its own."""
    shutil.copytree(template, tmp_path / "lake")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBED_LAKE", "lake")

    def call(*arguments: object, stdin: str | None = None, group: str = "tables") -> Ran:
        if stdin is not None:
            piped = SimpleNamespace(buffer=io.BytesIO(stdin.encode()), isatty=lambda: False)
            monkeypatch.setattr(sys, "stdin", piped)
        capsys.readouterr()
        code = run([group, *(str(argument) for argument in arguments)])
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return call
