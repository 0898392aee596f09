"""The examples of docs/operating.md can be copied: units, containers and settings files parse, and
what they run is a command line of `lakebed`.
"""

from __future__ import annotations

import configparser
import json
import re
import shlex
from pathlib import Path

import pytest
import typer

from lakebed.cli.main import app
from lakebed.errors import BadInput, LakeNotFound, Refused, Unavailable
from lakebed.settings import FILE_VARIABLE, Settings, look_up, variable

DOCS = Path(__file__).parents[1] / "docs"
EXAMPLES = DOCS / "examples"
VARIABLES = {FILE_VARIABLE, "XDG_CACHE_HOME"} | {variable(name) for name in Settings.model_fields}


def require_accepted(arguments: list[str]) -> None:
    """Fail unless the parser of the command takes these arguments."""
    root = typer.main.get_command(app)
    name, *rest = arguments
    command = root.commands[name]  # type: ignore[attr-defined]
    while hasattr(command, "commands"):
        name, *rest = rest
        command = command.commands[name]
    command.make_context(name, rest)


def test_the_unit_runs_a_server_and_knows_its_exit_codes() -> None:
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string((EXAMPLES / "lakebed.service").read_text())
    assert unit.sections() == ["Unit", "Service", "Install"]
    service = unit["Service"]
    program, *arguments = shlex.split(service["ExecStart"])
    assert program.endswith("/bin/lakebed")
    assert arguments[0] == "serve"
    require_accepted(arguments)
    assert {each.split("=")[0] for each in service["Environment"].split()} <= VARIABLES
    hopeless = {str(each.exit_code) for each in (BadInput, LakeNotFound, Refused)}
    assert {*service["RestartPreventExitStatus"].split()} == hopeless
    assert str(Unavailable.exit_code) not in hopeless


def test_the_container_runs_a_server() -> None:
    text = (EXAMPLES / "Containerfile").read_text().replace("\\\n", " ")
    lines = dict(line.split(maxsplit=1) for line in text.splitlines() if line.strip())
    command = [*json.loads(lines["ENTRYPOINT"]), *json.loads(lines["CMD"])]
    assert command == ["lakebed", "serve"]
    require_accepted(command[1:])
    assert {each.split("=")[0] for each in lines["ENV"].split()} <= VARIABLES
    ports = {field.default for name, field in Settings.model_fields.items() if "_port" in name}
    assert {int(port) for port in lines["EXPOSE"].split()} == ports
    compile(json.loads(lines["HEALTHCHECK"].partition("CMD ")[2])[-1], "HEALTHCHECK", "exec")


def test_settings_files_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / "operating.md").read_text()
    files = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    files.append((EXAMPLES / "lakebed.toml").read_text())
    assert len(files) == 2
    monkeypatch.setenv(FILE_VARIABLE, str(tmp_path / "lakebed.toml"))
    for text in files:
        (tmp_path / "lakebed.toml").write_text(text)
        assert look_up().problems == ()


def test_command_lines_of_the_page_are_accepted() -> None:
    page = (DOCS / "operating.md").read_text().replace("lakebed --file", "")
    lines = re.findall(r"(?:^    |/bin/|lake:/lake )lakebed (\w.*)$", page, re.M)
    assert len(lines) > 8
    for line in lines:
        require_accepted(shlex.split(line))
