"""One grammar of times through every door: Python, command line, connections, HTTP and pages."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from lakebed import admin
from lakebed.catalog import clock
from lakebed.catalog.times import resolve
from lakebed.cli import main
from lakebed.client.client import connect
from lakebed.errors import BadInput
from lakebed.lake import Lake
from lakebed.model.time import to_instant
from tests.parts.data import publish_hour, readings
from tests.serve.parts import serving

Door = Callable[[Any], object]

TODAY = datetime.now(UTC).date()
SPELLINGS = [
    *("1h", "7d", "15m", "yesterday", "today"),
    *("2026-01-02", "2026-01-02T03:00Z", "2026-01-02 03:00:00.5+01:00"),
]
NAIVE = ["2026-01-02T03:00:00", "2026-01-02 03:00"]
GARBAGE = ["soon", "1 hour", "2026-13-01", "20260102T030000Z"]


def list_python_doors(lake: Lake) -> dict[str, Door]:
    return {
        "query begin": lambda time: lake.query("SELECT 1", time, "now").close(),
        "query end": lambda time: lake.query("SELECT 1", "0001-01-01", time).close(),
        "partitions inserted": lambda time: lake.partitions.list_partitions(inserted=(time, "now")),
        "snapshot events": lambda time: lake.partitions.snapshot(
            "readings", events=(time, "now")
        ).close(),
        "plan begin": lambda time: lake.pipeline.plan(begin=time, end="now"),
        "retire range": lambda time: lake.retirement.plan_by_range("readings", time, "now"),
        "blocks before": lambda time: lake.blocks.plan_before(time),
        "explain_empty": lambda time: admin.explain_empty(lake, "readings", time, "now"),
    }


@pytest.fixture
def filled(lake: Lake) -> Lake:
    lake.views.register(readings())
    publish_hour(lake, 0, 1)
    return lake


def test_python_keywords_take_every_spelling_and_refuse_times_without_a_zone(filled: Lake) -> None:
    for name, door in list_python_doors(filled).items():
        for spelling in (*SPELLINGS, date(2026, 1, 2), datetime(2026, 1, 2, tzinfo=UTC)):
            door(spelling)
        for naive in (*NAIVE, datetime(2026, 1, 2)):  # noqa: DTZ001
            with pytest.raises(BadInput, match="has no zone") as raised:
                door(naive)
            assert "+02:00" in str(raised.value.hint), name
        for garbage in GARBAGE:
            with pytest.raises(BadInput, match="as a time") as raised:
                door(garbage)
            assert "1h, 7d" in str(raised.value.hint), name


def test_relative_times_count_from_the_lakes_clock(filled: Lake) -> None:
    with filled.catalog.read() as connection:
        now = clock.upcoming(connection)
    hour = 3_600_000_000
    two_hours_ago = resolve(filled.catalog, "2h")
    assert isinstance(two_hours_ago, int)
    assert now - 2 * hour <= two_hours_ago < now - hour
    assert resolve(filled.catalog, "today") == to_instant(TODAY)
    assert resolve(filled.catalog, "yesterday") == to_instant(TODAY - timedelta(days=1))
    assert resolve(filled.catalog, "2026-01-02") == "2026-01-02"


def test_as_of_takes_relative_times(filled: Lake) -> None:
    sql = "SELECT count(*) AS n FROM list_partitions()"
    with serving(filled) as served, connect(served.flight) as client:
        for source in (filled, client):
            assert source.query(sql, as_of="now").to_arrow()["n"].to_pylist() == [1]
            assert admin.list_partitions(source, as_of="now").num_rows == 1
    assert len(filled.partitions.list_partitions(as_of="now")) == 1
    assert filled.partitions.list_partitions(as_of="1h") == []
    with filled.partitions.snapshot("readings", as_of="now") as snapshot:
        assert len(snapshot.partitions) == 1


def test_servers_and_pages_take_every_spelling(filled: Lake) -> None:
    roles = ("ingest", "query", "web")
    with serving(filled, roles=roles) as served, connect(served.flight) as client:
        for spelling in SPELLINGS:
            client.query("SELECT 1", spelling, "now").close()
            body = json.dumps({"sql": "SELECT 1 AS n", "begin": spelling, "end": "now"})
            assert served.post("/v1/query", body.encode(), {"Content-Type": "application/json"})
            for page in ("/logs.json", "/lake.json"):
                query = spelling.replace("+", "%2B").replace(" ", "%20")
                answer = served.ask("GET", f"{page}?begin={query}")
                assert answer.status == 200
                assert b"as a time" not in answer.body
                assert b"no zone" not in answer.body
        assert b"has no zone" in served.ask("GET", f"/logs.json?begin={NAIVE[0]}").body
        for naive in NAIVE:
            with pytest.raises(BadInput, match="has no zone"):
                client.query("SELECT 1", naive)
            body = json.dumps({"sql": "SELECT 1 AS n", "begin": naive})
            refused = served.post("/v1/query", body.encode(), {"Content-Type": "application/json"})
            assert refused.status == 400
            assert "has no zone" in refused.json()["error"]["message"]


COMMANDS: list[Callable[[str], list[str]]] = [
    lambda time: ["query", "SELECT 1", "--since", time],
    lambda time: ["query", "SELECT 1", "--from", time, "--to", "now"],
    lambda time: ["partitions", "list", "--begin", time, "--end", "now"],
    lambda time: ["partitions", "retire", "readings", "--begin", time, "--end", "now"],
    lambda time: ["build", "--plan", "--from", time, "--to", "now"],
    lambda time: ["blocks", "retire", "--before", time],
]


def test_commands_take_every_spelling(
    filled: Lake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    url = filled.catalog.url
    folder = url.removeprefix("sqlite:///").removesuffix("/catalog.sqlite3")
    monkeypatch.setenv("LAKEBED_LAKE", folder)
    for command in COMMANDS:
        for spelling in ("1h", "yesterday", "2026-01-02", "2026-01-02T03:00Z"):
            assert main.run(command(spelling)) == 0, (command(spelling), capsys.readouterr().err)
        assert main.run(command(NAIVE[0])) == 2
        printed = " ".join(capsys.readouterr().err.split())
        assert "has no zone; write 2026-01-02T03:00:00Z for UTC" in printed
    for as_of in ("now", "1h"):
        sql = "SELECT count(*) FROM list_partitions()"
        assert main.run(["partitions", "list", "--as-of", as_of, "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)) == (as_of == "now")
        assert main.run(["query", sql, "--as-of", as_of]) in (0, 4)
        capsys.readouterr()
