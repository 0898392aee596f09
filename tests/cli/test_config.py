"""`lakebed config` as its users see it, and commands that take their lake from a settings file."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lakebed.cli.main import run
from lakebed.opening import init_lake
from lakebed.settings import Settings


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which commands run with nothing of ours in the environment."""
    for name in os.environ:
        if name.startswith("LAKEBED_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, dict[str, Any]]:
    assert run(["config", "--json", *arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return {each.pop("name"): each for each in json.loads(printed.out)}


def test_every_setting_is_shown_with_its_origin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("lakebed.toml").write_text('tail_mib = 512\nserve_certificate = "shop.pem"')
    monkeypatch.setenv("LAKEBED_LOG", "info")
    shown = _shown(capsys, "--lake", "postgresql://me:hush@db/lake")
    assert shown.keys() == Settings.model_fields.keys()
    known = {name: (each["value"], each["origin"], each["place"]) for name, each in shown.items()}
    assert known["lake"] == ("postgresql://me:***@db/lake", "flag", "--lake")
    assert known["log"] == ("info", "environment", "LAKEBED_LOG")
    assert known["tail_mib"] == (512, "file", "lakebed.toml")
    assert known["serve_certificate"] == ("shop.pem", "file", "lakebed.toml")
    assert known["serve_without_keys"] == (False, "default", None)
    assert shown["tail_mib"]["default"] == 256
    assert shown["tail_mib"]["variable"] == "LAKEBED_TAIL_MIB"


def test_people_get_a_table_and_a_note_on_what_is_no_setting(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEBED_LAKE", "postgresql://me:hush@db/lake")
    monkeypatch.setenv("LAKEBED_SWEEP_FILE", "2")
    assert run(["config"]) == 0
    printed = capsys.readouterr()
    (line,) = [each for each in printed.out.splitlines() if each.startswith("lake ")]
    assert "postgresql://me:***@db/lake" in line
    assert "LAKEBED_LAKE" in line
    assert "hush" not in printed.out + printed.err
    assert (
        "note: LAKEBED_SWEEP_FILE is no setting; did you mean LAKEBED_SWEEP_FILES?" in printed.err
    )
    assert "there is no settings file" in printed.err


def test_every_wrong_setting_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Path("lakebed.toml").write_text("tail_mib = 0\nport = 4318")
    assert run(["config", "--json"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "tail_mib = 0 in lakebed.toml" in printed.err
    assert "'port', which is no setting" in printed.err


def test_commands_find_their_lake_in_the_file(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    init_lake(folder / "shop").close()
    assert run(["leases"]) == 3
    Path("lakebed.toml").write_text('lake = "shop"')
    assert run(["leases"]) == 0
    assert run(["migrate"]) == 0
    monkeypatch.setenv("LAKEBED_LAKE", "nowhere")
    assert run(["leases"]) == 3
    assert run(["leases", "--lake", "shop"]) == 0
    Path("lakebed.toml").write_text("lakes = 1")
    capsys.readouterr()
    assert run(["leases", "--lake", "shop"]) == 2
    assert "lakebed.toml has 'lakes', which is no setting" in capsys.readouterr().err


def test_a_server_is_configured_by_the_file_alone(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    init_lake(folder / "shop").close()
    file = Path("lakebed.toml")
    file.write_text('lake = "shop"\nserve_host = "0.0.0.0"\nserve_port = 0')
    assert run(["serve"]) == 4
    assert "no keys, and 0.0.0.0 can be reached" in capsys.readouterr().err
    assert run(["serve", "--host", "::"]) == 4
    assert "no keys, and :: can be reached" in capsys.readouterr().err
    file.write_text(
        'lake = "shop"\nserve_port = 0\nserve_otlp_port = 0\nserve_flight_port = 0\n'
        'serve_roles = "query"'
    )
    command = [sys.executable, "-m", "lakebed", "serve"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline() + process.stderr.readline()
        process.terminate()
        rest = process.stderr.read()
    assert process.returncode == 0
    assert re.fullmatch(r"serving http://127.0.0.1:\d+; .*\nFlightSQL on 127.0.0.1:\d+\n", said)
    assert "OTLP" not in rest
