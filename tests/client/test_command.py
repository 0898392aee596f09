"""`lakebed query` against a server: the same command, another place."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakebed.access.keys import Role
from lakebed.cli.main import run
from lakebed.lake import Lake
from lakebed.opening import init_lake
from tests.parts.data import publish_hour, readings
from tests.query.test_result import ENDLESS, wait_until
from tests.serve.parts import Served, serving


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with init_lake(tmp_path_factory.mktemp("command") / "lake") as lake:
        lake.views.register(readings())
        publish_hour(lake, 0)
        yield lake


@pytest.fixture(scope="module")
def key(lake: Lake) -> str:
    return lake.keys.create("reader", [Role.READ]).secret


@pytest.fixture(scope="module")
def served(lake: Lake, key: str) -> Iterator[Served]:
    with serving(lake) as served:
        yield served


@pytest.fixture(autouse=True)
def _environment(served: Served, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEBED_LAKE", served.flight)
    monkeypatch.setenv("LAKEBED_KEY", key)
    monkeypatch.setenv("GRPC_VERBOSITY", "NONE")


def test_rows_explanations_and_errors(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(["query", "SELECT count(*) AS n FROM readings", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [{"n": 3}]
    written = tmp_path / "rows.csv"
    assert run(["query", "SELECT number FROM readings", "-o", str(written), "--limit", "2"]) == 0
    assert len(written.read_text().splitlines()) == 3
    assert run(["query", "SELECT * FROM readings", "--explain"]) == 0
    assert "readings: 1 partition considered, 1 read (3 rows" in capsys.readouterr().out
    assert run(["query", "SELECT 1,\n nothing FROM readings"]) == 2
    said = capsys.readouterr().err
    assert "(line 2, column 2)" in said
    assert said.splitlines()[1:] == ["2 |  nothing FROM readings", "  |  ^"]
    assert run(["query", "SELECT restore_partition('x')"]) == 4
    assert capsys.readouterr().err.startswith("error: function restore_partition needs the admin")
    assert run(["query", "SELECT 1", "--engine", "spark"]) == 2


def test_what_does_not_work_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["partitions", "list"]) == 2
    assert "needs the lake itself" in capsys.readouterr().err
    monkeypatch.setenv("LAKEBED_KEY", "lakebed_000000000000_" + "x" * 43)
    assert run(["query", "SELECT 1"]) == 4
    assert capsys.readouterr().err == "error: the key is not known, or was revoked\n"
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv("LAKEBED_LAKE", f"grpc://127.0.0.1:{nobody.getsockname()[1]}")
        assert run(["query", "SELECT 1"]) == 69
    said = capsys.readouterr().err
    assert said.startswith("error: no server answers at grpc://127.0.0.1:")
    assert said.count("\n") == 1


def test_an_interrupt_stops_the_statement_on_the_server(lake: Lake) -> None:
    sql = f"SELECT count(*) FROM ({ENDLESS})"
    with subprocess.Popen(
        [sys.executable, "-m", "lakebed", "query", sql],
        env=dict(os.environ),
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        wait_until(lambda: bool(lake.leases._pins))
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read() == "interrupted\n"
        assert process.wait(300) == 130
    wait_until(lambda: not lake.leases._pins)
