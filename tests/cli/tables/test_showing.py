"""What tables there are, and how they stand."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from lakebed.opening import init_lake
from lakebed.settings import Settings
from tests.cli.parts import Cli
from tests.cli.tables.parts import RING, write


def test_tables_are_listed(cli: Cli) -> None:
    listed = cli("list")
    assert re.search(r"^home\.pulse +device +day +forever +2 +2 ", listed.out, re.M)
    (row,) = cli("list", "home", "--json").json["tables"]
    assert (row["table"], row["key"], row["version"]) == ("home.pulse", ["device"], 1)
    assert row["bytes"] > 0
    assert cli("list", "nowhere").code == 3


@pytest.mark.parametrize("name", ["home.pulse\udce9", "home\udce9.pulse", "home\udce9"])
def test_a_name_that_is_no_utf8_is_wrong_usage(cli: Cli, name: str) -> None:
    for command in ("show", "list", "restore", "expire"):
        shown = cli(command, name)
        assert shown.code == 2
        assert "is not a name" in shown.err


def test_a_lake_without_tables_says_how_to_make_one(cli: Cli, tmp_path: Path) -> None:
    init_lake(tmp_path / "empty", settings=Settings()).close()
    listed = cli("list", "--lake", "empty")
    assert (listed.code, listed.out) == (0, "")
    assert "lakebed tables create DATABASE.TABLE" in listed.err
    assert cli("list", "--lake", "empty", "--json").json == {"databases": [], "tables": []}


def test_a_table_is_shown(cli: Cli) -> None:
    cli("alter", "home.pulse", "--add", "note:string", "--widen", "bpm")
    shown = cli("show", "home.pulse")
    assert shown.code == 0
    for line in (
        "home.pulse, version 2",
        "  rows      2, 2026-11-15T05:00:00Z to 2026-11-16T05:00:00Z",
        "  key       device",
        "  kept      forever",
        "  version 2 widened bpm to float, added note string",
    ):
        assert line in shown.out.splitlines()
    assert re.search(r"^bpm +float +required, 20\.0 … 250\.0", shown.out, re.M)
    assert re.search(r"^2026-11-16 +1 +1 ", shown.out, re.M)
    told = cli("show", "home.pulse", "--json").json
    assert (told["version"], len(told["versions"]), told["stats"]["rows"]) == (2, 2, 2)
    assert [each["bucket"] for each in told["buckets"]] == ["2026-11-15", "2026-11-16"]


def test_late_and_future_rows_are_counted(cli: Cli) -> None:
    times = ["2001-01-01T00:00:00Z", "2001-01-02T00:00:00Z", "2100-01-01T00:00:00Z"]
    records = [{**RING, "device": time, "time": time} for time in times]
    before = cli("show", "home.pulse", "--json").json["stats"]
    cli("insert", "home.pulse", write("r.json", records))
    after = cli("show", "home.pulse", "--json").json["stats"]
    assert (after["late"] - before["late"], after["future"] - before["future"]) == (2, 1)


def test_many_buckets_are_shown_in_part(cli: Cli) -> None:
    days = [
        {**RING, "device": str(day), "time": f"2026-10-{day:02}T00:00:00Z"} for day in range(1, 20)
    ]
    cli("insert", "home.pulse", write("r.json", days))
    shown = cli("show", "home.pulse")
    assert re.search("^2026-11-16 ", shown.out, re.M)
    assert not re.search("^2026-10-01 ", shown.out, re.M)
    assert "and 11 older buckets" in shown.err


@pytest.mark.parametrize("verb", ["show", "alter", "delete", "forget", "expire"])
def test_what_is_not_there_is_not_found(cli: Cli, verb: str) -> None:
    more = {"alter": ["--add", "x:int"], "forget": ["device=x"]}.get(verb, [])
    assert "there is no table 'nothing'" in cli(verb, "home.nothing", *more).error
    assert cli(verb, "home.nothing", *more).code == 3
    assert "there is no database 'nowhere'" in cli(verb, "nowhere.pulse", *more).error


def test_tables_fit_a_narrow_terminal(cli: Cli, tmp_path: Path) -> None:
    cli(
        "alter", "home.pulse", "--add", f"x:{json.dumps({'type': 'int', 'description': 'a ' * 60})}"
    )
    for arguments in (["list"], ["show", "home.pulse"]):
        out = _on_terminal(["tables", *arguments], tmp_path, columns=80)
        assert max(len(line) for line in out.splitlines()) <= 80
        assert "home.pulse" in out


def _on_terminal(arguments: list[str], folder: Path, columns: int) -> str:
    """What a command prints on a terminal of this width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "LAKEBED_LAKE": "lake"}
    environment.pop("COLUMNS", None)
    with subprocess.Popen(
        [sys.executable, "-m", "lakebed", *arguments],
        cwd=folder,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
    ) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                read = os.read(master, 65536)
            except OSError:  # how Linux says that nobody is left to write
                break
            if not read:
                break
            seen += read
        assert process.wait() == 0, seen
    os.close(master)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    return text.replace("\r\n", "\n")


def test_progress_is_for_terminals(cli: Cli, tmp_path: Path) -> None:
    files = [write(f"r{number}.json", [{**RING, "device": f"d{number}"}]) for number in range(3)]
    shown = _on_terminal(["tables", "insert", "home.pulse", *files], tmp_path, columns=100)
    assert "3/3 files" in shown
    assert shown.rstrip().endswith("home.pulse: 3 rows inserted, of 3 files")
    assert cli("insert", "home.pulse", *files).err == ""
