"""`lakebed land` as its users see it."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lakebed.cli.main import run
from lakebed.opening import init_lake
from lakebed.samples.generator import Generator
from lakebed.samples.otlp_json import to_json


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a lake, in which the commands run."""
    init_lake(tmp_path / "lake").close()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBED_LAKE", "lake")
    generator = Generator(seed=1)
    lines = [to_json(generator.make(kind, 20, services=2)) for kind in ("logs", "metrics", "logs")]
    (tmp_path / "good.jsonl").write_bytes(b"\n".join(lines))
    (tmp_path / "bad.jsonl").write_bytes(b"\n".join([lines[0], b'{"resourceLogs":7}']))
    (tmp_path / "logs.pb").write_bytes(generator.serialized("logs", 30, services=1))
    return tmp_path


def _count(capsys: pytest.CaptureFixture[str]) -> int:
    capsys.readouterr()
    assert run(["check", "--json"]) == 0
    return int(json.loads(capsys.readouterr().out)["blocks"])


def test_a_file_lands_and_is_summed_up_in_one_line(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["land", "good.jsonl"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    summary = r"landed 3 requests: 6 blocks, 60 records, [\d.]+ KiB, 0 duplicates\n"
    assert re.fullmatch(summary, printed.out)
    assert run(["land", "good.jsonl", "logs.pb"]) == 0
    printed = capsys.readouterr()
    assert re.fullmatch(r"landed 4 requests: 1 block, 30 records, .*, 6 duplicates\n", printed.out)
    assert _count(capsys) == 7


def test_json_has_the_sums_and_each_file(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["land", "good.jsonl", "logs.pb", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    keys = ["requests", "blocks", "records", "bytes", "duplicates"]
    assert list(found) == [*keys, "files"]
    assert [found[key] for key in ("requests", "blocks", "records")] == [4, 7, 90]
    assert [each["file"] for each in found["files"]] == ["good.jsonl", "logs.pb"]
    assert list(found["files"][0]) == ["file", *keys, "error"]
    assert [each["records"] for each in found["files"]] == [60, 30]


def test_a_bad_file_changes_nothing_and_is_one_line(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["land", "bad.jsonl"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert re.fullmatch(r"error: bad\.jsonl line 2: .*\n", printed.err)
    assert _count(capsys) == 0


def test_good_files_land_beside_bad_ones(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["land", "bad.jsonl", "nowhere.json", "good.jsonl", "--json"]) == 5
    printed = capsys.readouterr()
    assert [line[:6] for line in printed.err.splitlines()] == ["error:", "error:"]
    found = json.loads(printed.out)
    assert [each["blocks"] for each in found["files"]] == [0, 0, 6]
    assert [each["error"] is None for each in found["files"]] == [False, False, True]
    assert run(["land", "bad.jsonl", "nowhere.json"]) == 2
    assert _count(capsys) == 6


def test_standard_input(
    place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = (place / "good.jsonl").read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(body)))
    assert run(["land", "-"]) == 0
    assert "60 records" in capsys.readouterr().out
    broken = SimpleNamespace(buffer=io.BytesIO(body[:-5]))
    monkeypatch.setattr(sys, "stdin", broken)
    assert run(["land", "-"]) == 2
    assert "standard input line 3" in capsys.readouterr().err


def test_a_real_pipe(place: Path) -> None:
    command = f"cat logs.pb | {sys.executable} -m lakebed land - --signal logs"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "landed 1 request: 1 block, 30 records" in done.stdout


def test_an_id_of_ones_own(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert run(["land", "logs.pb", "--id", "monday"]) == 0
    assert "0 blocks, 0 records, 0 B, 1 duplicate" in capsys.readouterr().out
    assert run(["land", "logs.pb", "--id", "tuesday"]) == 0
    (place / "logs.pb").write_bytes(Generator(seed=2).serialized("logs", 30, services=1))
    capsys.readouterr()
    assert run(["land", "logs.pb", "--id", "monday"]) == 4
    assert "other bytes" in capsys.readouterr().err
    assert run(["land", "logs.pb", "good.jsonl", "--id", "monday"]) == 2
    assert "land each by itself" in capsys.readouterr().err
    assert run(["land", "logs.pb", "--id", ""]) == 2
    assert "id has 1 to 200 printable characters" in capsys.readouterr().err
    assert _count(capsys) == 2


def test_the_commands_of_the_page_work(place: Path) -> None:
    """Those of docs/landing.md, in a shell."""
    page = (Path(__file__).parents[2] / "docs" / "landing.md").read_text()
    commands = re.findall(r"^    lakebed (land .*)$", page, re.M)
    assert len(commands) == 4
    (place / "lake").rename(place / "telemetry")
    (place / "telemetry.jsonl").write_bytes((place / "good.jsonl").read_bytes())
    for command in commands:
        line = f"{sys.executable} -m lakebed {command}"
        done = subprocess.run(line, shell=True, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, ""), command


def test_wrong_calls(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["land"]) == 2
    assert run(["land", "good.jsonl", "--signal", "profiles"]) == 2
    assert run(["land", "good.jsonl", "--lake", "nowhere"]) == 3
    assert run(["land", "good.jsonl", "--signal", "metrics"]) == 2
    assert "holds logs, not metrics" in capsys.readouterr().err
    assert _count(capsys) == 0


def test_a_file_without_records_is_remarked(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "typo.json").write_text('{"resourceLogs": [{"scopeLog": [{"logRecords": [{}]}]}]}')
    assert run(["land", "typo.json"]) == 0
    said = capsys.readouterr()
    assert "0 records" in said.out
    assert "typo.json holds no records; unknown fields are ignored" in said.err
    assert run(["land", "good.jsonl"]) == 0
    assert run(["land", "good.jsonl"]) == 0
    assert capsys.readouterr().err == "", "there were records, also those that were there before"


def test_progress_on_a_terminal_only(place: Path) -> None:
    """Under a terminal's rules a line counts; the data stays clean."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "lakebed", "land", "good.jsonl", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower) as done:
        out, _ = done.communicate(timeout=300)
    os.close(follower)
    shown = os.read(leader, 1 << 16).decode()
    os.close(leader)
    assert "reading" in shown or "landed" in shown
    assert json.loads(out)["records"] == 60
