"""What the library logs: structured, to whoever listens, and to nobody else."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakebed import logs
from lakebed.errors import BadRecords, BadSql
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.settings import Settings

GOOD = {"time": "2026-11-16T05:00:00Z", "bpm": 60}
Said = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with init_lake(tmp_path / "lake", settings=Settings()) as lake:
        lake.tables.create_database("home")
        lake.tables.create_table("home", "pulse", {"time": "datetime", "bpm": "int"})
        yield lake


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> Said:
    """What was logged with a beginning like this, as it would be printed."""
    caplog.set_level(logging.DEBUG, logger="lakebed")
    formatter = logs.JsonLines()

    def find(beginning: str) -> list[dict[str, Any]]:
        records = [json.loads(formatter.format(each)) for each in caplog.records]
        return [each for each in records if each["message"].startswith(beginning)]

    return find


def test_an_insert_says_what_it_wrote(lake: Lake, said: Said) -> None:
    lake.tables.insert("home", "pulse", [GOOD, GOOD])
    (started,) = said("insert started")
    (ended,) = said("insert ended")
    (written,) = said("file written")
    assert started["table"] == ended["table"] == "home.pulse"
    assert (ended["level"], ended["rows"], ended["rejected"]) == ("info", 2, 0)
    assert ended["seconds"] >= written["seconds"] >= 0
    assert (written["level"], written["rows"]) == ("debug", 2)
    assert written["bytes"] > 0
    assert written["path"].endswith(".parquet")


def test_an_insert_that_fails_says_why(lake: Lake, said: Said) -> None:
    with pytest.raises(BadRecords):
        lake.tables.insert("home", "pulse", [{"bpm": "x"}])
    (failed,) = said("insert failed")
    assert failed["level"] == "warning"
    assert "1 of 1 records are bad" in failed["message"]


def test_a_query_says_what_it_read_and_gave(lake: Lake, said: Said) -> None:
    lake.tables.insert("home", "pulse", [GOOD])
    lake.query("SELECT *\n FROM home.pulse").to_arrow()
    (started,) = said("query started")
    (ended,) = said("query ended")
    assert started["statement"] == ended["statement"] == "SELECT * FROM home.pulse"
    assert (ended["tables"], ended["rows"]) == (["home.pulse"], 1)
    assert ended["bytes"] == said("file written")[0]["bytes"]
    assert ended["seconds"] >= 0
    assert not said("query closed")


@pytest.mark.parametrize(
    "sql", ["SELECT nothing FROM home.pulse", "SELECT 1 / (bpm - 60) FROM home.pulse"]
)
def test_a_query_that_fails_says_so_once(lake: Lake, said: Said, sql: str) -> None:
    lake.tables.insert("home", "pulse", [GOOD])
    with pytest.raises(BadSql) as raised:
        lake.query(sql).to_arrow()
    (failed,) = said("query failed")
    assert failed["message"] == f"query failed: {raised.value}"
    assert failed["statement"] == sql
    assert not said("query ended")
    assert not said("query closed")


def test_a_result_that_nobody_reads_is_closed(lake: Lake, said: Said) -> None:
    lake.query("SELECT * FROM home.pulse").close()
    (closed,) = said("query closed")
    assert closed["rows"] == 0
    assert not said("query ended")


def test_records_carry_process_and_thread(lake: Lake, said: Said) -> None:
    thread = threading.Thread(
        target=lake.tables.insert, args=("home", "pulse", [GOOD]), name="sender-7"
    )
    thread.start()
    thread.join()
    (ended,) = said("insert ended")
    assert ended["thread"] == "sender-7"
    assert isinstance(ended["process"], int)
    assert ended["logger"].startswith("lakebed.")
    assert ended["time"].endswith("Z")


def test_what_json_does_not_know_is_printed_as_text() -> None:
    record = logging.makeLogRecord({"name": "lakebed", "msg": "a %s", "args": ("b",), "x": Path()})
    assert json.loads(logs.JsonLines().format(record))["x"] == "."
    assert json.loads(logs.JsonLines().format(record))["message"] == "a b"


SCRIPT = """
import lakebed, sys
with lakebed.open("lake") as lake:
    lake.tables.insert("home", "pulse", [{"time": "2026-11-16T05:00:00Z"}])
    try:
        lake.tables.insert("home", "pulse", [{}])
    except lakebed.LakebedError:
        pass
with lakebed.open("lake") as lake:
    lake.query("SELECT 1").to_arrow()
"""


def _run(folder: Path, monkeypatch: pytest.MonkeyPatch, level: str | None) -> str:
    monkeypatch.delenv("LAKEBED_LOG", raising=False)
    if level is not None:
        monkeypatch.setenv("LAKEBED_LOG", level)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=folder, capture_output=True, text=True, check=True
    )
    assert done.stdout == ""
    return done.stderr


def test_nothing_is_printed_unless_asked_for(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _run(tmp_path, monkeypatch, None) == ""


@pytest.mark.parametrize("level", ["info", "debug"])
def test_the_setting_prints_json_lines(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str
) -> None:
    records = [json.loads(line) for line in _run(tmp_path, monkeypatch, level).splitlines()]
    messages = [each["message"] for each in records]
    assert messages.count("insert ended") == 1
    assert messages.count("query ended") == 1  # a second lake does not print twice
    assert ("file written" in messages) == (level == "debug")
    assert {"time", "level", "logger", "message", "process", "thread"} <= records[0].keys()


def test_a_wrong_level_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lakebed.cli.main import run

    monkeypatch.setenv("LAKEBED_LOG", "loud")
    assert run(["query", "SELECT 1", "--lake", str(tmp_path)]) == 2


def test_warnings_are_printed_only_for_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("lakebed.somewhere")
    with logs.warnings_on_stderr():
        logger.warning("during")
        logger.info("not worth it")
    logger.warning("after")
    printed = capsys.readouterr().err.splitlines()
    assert [json.loads(each)["message"] for each in printed] == ["during"]
