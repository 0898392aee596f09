"""The time limit covers planning. Nothing can stop a planner, so it is abandoned."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.flight as flight
import pytest

from lakebed.errors import BadSql, TimedOut, Unavailable
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.query.embedded.running.turns import Deadline, EngineReplaced, Turns, Workers
from lakebed.query.queries import Queries, QuerySettings
from lakebed.serve.limits import ServerSettings
from lakebed.wire import protocol
from tests.parts.data import publish_hour, readings
from tests.serve.parts import serving

WAIT = 60


class Planner:
    """Work that stands still until a test lets it end."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.released = threading.Event()

    def __call__(self) -> str:
        self.begun.set()
        assert self.may_end.wait(WAIT)
        return "planned"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with init_lake(tmp_path / "lake") as lake:
        lake.views.register(readings())
        publish_hour(lake, 0)
        yield lake


@pytest.fixture
def blocked(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Planner]:
    """A planner that stands still in the lake's present engine."""
    planner = Planner()
    engine = lake.queries._embedded()
    monkeypatch.setattr(engine, "_plan", lambda *_args: planner())
    yield planner
    planner.may_end.set()


def past() -> Deadline:
    return Deadline(5, time.monotonic() + 0.01)


def test_a_planner_is_abandoned_at_its_deadline_and_released_at_its_end() -> None:
    planner = Planner()
    turns = Turns(planner.released.set, Workers())
    with pytest.raises(TimedOut, match="longer than 5 s"):
        turns.take(planner, past())
    assert planner.begun.is_set()
    assert turns.is_abandoned
    assert not planner.released.is_set()
    with pytest.raises(EngineReplaced):
        turns.take(lambda: "planned")
    planner.may_end.set()
    assert planner.released.wait(WAIT)


def test_a_statement_behind_an_abandoned_planner_gets_the_next_engine() -> None:
    planner = Planner()
    turns = Turns(planner.released.set, Workers())
    replaced = threading.Event()

    def follow() -> None:
        try:
            turns.take(lambda: "planned", Deadline.after(WAIT))
        except EngineReplaced:
            replaced.set()

    def lead() -> str:
        threading.Thread(target=follow).start()
        return planner()

    with pytest.raises(TimedOut):
        turns.take(lead, past())
    planner.may_end.set()
    assert replaced.wait(WAIT)


def test_a_deadline_that_has_passed_plans_nothing() -> None:
    planner = Planner()
    turns = Turns(planner.released.set, Workers())
    with pytest.raises(TimedOut):
        turns.take(planner, Deadline(5, time.monotonic() - 1))
    assert not planner.begun.is_set()
    assert not turns.is_abandoned


def test_errors_of_a_planner_reach_its_caller() -> None:
    turns = Turns(lambda: None, Workers())

    def fail() -> None:
        raise BadSql("there is no table x")

    with pytest.raises(BadSql, match="no table x"):
        turns.take(fail, Deadline.after(WAIT))
    assert turns.take(lambda: "planned", Deadline.after(WAIT)) == "planned"


def test_abandoned_planners_are_limited_in_number() -> None:
    workers = Workers(most_abandoned=2)
    planners = [Planner(), Planner()]
    for planner in planners:
        with pytest.raises(TimedOut):
            Turns(planner.released.set, workers).take(planner, past())
    turns = Turns(lambda: None, workers)
    with pytest.raises(Unavailable, match="2 statements are still being planned"):
        turns.take(lambda: "planned", Deadline.after(WAIT))
    assert not turns.is_abandoned
    for planner in planners:
        planner.may_end.set()
        assert planner.released.wait(WAIT)
    planned = None
    while planned is None:  # the workers note the end right after the release
        try:
            planned = turns.take(lambda: "planned", Deadline.after(WAIT))
        except Unavailable:
            continue
    assert planned == "planned"


def test_a_query_times_out_while_it_is_planned_and_the_next_is_answered(
    lake: Lake, blocked: Planner
) -> None:
    while not blocked.begun.is_set():  # on a busy machine, time may be over before the planning
        with pytest.raises(TimedOut, match=r"longer than 0\.1 s"):
            lake.query("SELECT count(*) AS n FROM readings", timeout=0.1)
    rows = lake.query("SELECT count(*) AS n FROM readings").to_arrow()
    assert rows["n"].to_pylist() == [3]
    with pytest.raises(TimedOut):
        lake.queries.describe("SELECT 1", timeout=0)
    assert not lake.leases._pins


def test_planning_that_takes_too_long_is_a_timeout_over_http(lake: Lake, blocked: Planner) -> None:
    with serving(lake, settings=ServerSettings(query_seconds=0.1)) as served:
        while not blocked.begun.is_set():
            caller = http.client.HTTPConnection("127.0.0.1", served.port)
            caller.request("POST", "/v1/query", "SELECT count(*) AS n FROM readings")
            response = caller.getresponse()
            body = response.read()
            caller.close()
            assert response.status == 504
            assert b"longer than 0.1 s" in body


def test_planning_that_takes_too_long_is_a_timeout_over_flight(
    lake: Lake, blocked: Planner
) -> None:
    command = protocol.wrap(protocol.new("CommandStatementQuery", query="SELECT 1 AS n"))
    descriptor = flight.FlightDescriptor.for_command(command)
    with (
        serving(lake, settings=ServerSettings(query_seconds=0.1)) as served,
        flight.FlightClient(served.flight) as client,
    ):
        while not blocked.begun.is_set():
            with pytest.raises(flight.FlightTimedOutError, match=r"longer than 0\.1 s"):
                client.get_flight_info(descriptor)


def test_a_statement_that_asks_for_too_much_is_refused_before_it_is_planned(lake: Lake) -> None:
    queries = Queries(lake.catalog, lake.store, lake.leases, QuerySettings())
    columns = ", ".join(f"{i} AS c{i}" for i in range(20_000))
    with pytest.raises(BadSql, match="more than 50000 words"):
        queries.query(f"SELECT {columns}")
    with pytest.raises(BadSql, match="2000 columns or arguments in one list; at most 1000"):
        queries.query("SELECT " + ", ".join(["1"] * 2000))
    with pytest.raises(BadSql, match="2000 columns"):
        queries.query("SELECT ?" + ", 1" * 1999, parameters=[1])
    with pytest.raises(BadSql, match="2000 columns"):
        queries.query("EXPLAIN SELECT " + ", ".join(["1"] * 2000))
    with pytest.raises(BadSql, match="2000 columns"):
        queries.query("SELECT " + ", ".join(["1"] * 2000), engine="spark")
    with pytest.raises(BadSql, match="characters"):
        queries.query("SELECT ?, '" + "x" * (1 << 21) + "'", parameters=[1])
    assert queries._engines._engine is None
