"""What commands print where, their help, and how a process ends."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import lakebed
from lakebed.cli.main import app
from tests.cli.parts import RANGE, RETIRE, Cli, hours

# ---- stdout is data, stderr is talk --------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["views", "list"],
        ["partitions", "list"],
        ["partitions", "list", "--retired"],
        ["partitions", "list", "--incompatible"],
        ["partitions", "publish", "readings", "--completed-empty", *RANGE],
        [*RETIRE, *hours(0, 2)],
        [*RETIRE, *hours(0, 2), "--yes", "--confirm", "readings"],
        [*RETIRE, *RANGE, "--yes", "--confirm", "readings"],
        [*RETIRE, "--incompatible"],
        [*RETIRE, "--incompatible", "--yes"],
        ["sweep"],
        ["sweep", "--yes"],
        ["check"],
        ["journal"],
        ["leases"],
    ],
    ids=" ".join,
)
def test_with_json_the_output_is_one_document_and_nothing_else(
    cli: Cli, weather: Path, command: list[str]
) -> None:
    ran = cli(*command, "--json")
    assert ran.code == 0
    assert ran.json is not None


def test_names_are_printed_as_they_are(cli: Cli, weather: Path) -> None:
    """Tables and talk take square brackets for text, not for markup."""
    file = weather / "store" / "[bold]stray[red] é.txt"
    file.write_text("hello")
    assert "[bold]stray[red] é.txt" in cli("check").out
    as_json = cli("check", "--json")
    assert as_json.json["findings"][0]["subject"] == "[bold]stray[red] é.txt"
    assert "é" in as_json.out


def test_without_a_command_the_help_is_shown(cli: Cli) -> None:
    for group in ([], ["tables"], ["views"], ["partitions"], ["backup"]):
        ran = cli(*group)
        assert ran.code == 2
        assert "Usage: lakebed" in ran.err
        assert "Commands:" in ran.err


def _leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, child in getattr(command, "commands", {}).items():
        yield from _leaves(child, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


COMMANDS = dict(_leaves(typer.main.get_command(app)))


def test_every_command_is_here() -> None:
    assert {" ".join(path) for path in COMMANDS} == {
        "init",
        "land",
        "build",
        "blocks keep",
        "blocks retire",
        "query",
        "tables create",
        "tables insert",
        "tables list",
        "tables show",
        "tables alter",
        "tables delete",
        "tables restore",
        "tables forget",
        "tables expire",
        "tables import",
        "views list",
        "views show",
        "views define",
        "views register",
        "views keep",
        "views remove",
        "partitions list",
        "partitions publish",
        "partitions retire",
        "partitions restore",
        "upkeep",
        "keys create",
        "keys list",
        "keys revoke",
        "serve",
        "config",
        "doctor",
        "sweep",
        "check",
        "journal",
        "leases",
        "backup create",
        "backup restore",
        "migrate",
        "demo",
        "tour",
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_help_of_a_command_has_an_example_that_it_takes(
    cli: Cli, path: tuple[str, ...]
) -> None:
    ran = cli(*path, "--help")
    assert (ran.code, ran.err) == (0, "")
    name = " ".join(["lakebed", *path])
    assert f"Example: {name}" in " ".join(ran.out.split())
    examples = " ".join(COMMANDS[path].help.split()).split("Example: ")[1:]
    for example in examples:
        words = shlex.split(re.split(r" \(| > ", example)[0].removeprefix(name))
        with COMMANDS[path].make_context(name, words):
            pass


# ---- as a process --------------------------------------------------------------------------------


def _process(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "lakebed", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_process_ends_with_the_code_and_one_line(weather: Path) -> None:
    with (
        _process("--version") as version,
        _process("check", "--json") as clean,
        _process("views", "show", "nothing") as wrong,
        _process("views", "show") as usage,
    ):
        assert version.communicate() == (f"lakebed {lakebed.__version__}\n", "")
        out, err = clean.communicate()
        assert (json.loads(out)["clean"], err) == (True, "")
        out, err = wrong.communicate()
        assert (out, err.count("\n")) == ("", 1)
        assert usage.communicate()[1].count("\n") == 1
    assert [each.returncode for each in (version, clean, wrong, usage)] == [0, 0, 3, 2]


def _left_alone(*arguments: str) -> tuple[int, str]:
    """How a command ends whose output nobody reads, as in `lakebed journal | head -0`."""
    with _process(*arguments) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        talk = process.stderr.read()
    return process.returncode, talk


@pytest.mark.parametrize("arguments", [("journal",), ("journal", "--json")], ids=" ".join)
def test_a_reader_that_went_away_is_no_news(weather: Path, arguments: tuple[str, ...]) -> None:
    _code, talk = _left_alone(*arguments)
    assert talk == ""


def test_a_reader_that_went_away_is_no_failure(weather: Path) -> None:
    assert _left_alone("journal")[0] == 0
