"""The command line in this process, and lakes for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakebed.cli.main import run
from lakebed.opening import init_lake
from tests.cli.parts import (
    Cli,
    Ran,
    settle,
)
from tests.parts.data import publish_hour, readings


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Runs a command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAKEBED_LAKE", raising=False)

    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return call


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A lake with two hours of rows and an empty one, by grace period; tests get copies."""
    made: dict[str, Path] = {}

    def make(grace: str) -> Path:
        if grace not in made:
            folder = tmp_path_factory.mktemp("template") / "weather"
            with init_lake(folder, grace=grace) as lake:
                lake.views.register(readings())
                publish_hour(lake, 0)
                publish_hour(lake, 1)
                publish_hour(lake, 2, count=0)
            made[grace] = folder
        return made[grace]

    return make


@pytest.fixture
def weather(
    cli: Cli, template: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The lake that commands use here without being told."""
    return settle(template("24h"), tmp_path, monkeypatch)


@pytest.fixture
def hasty(
    cli: Cli, template: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The same without a grace period, so that what was retired can be swept at once."""
    return settle(template("0s"), tmp_path, monkeypatch)
