"""The first key of a lake closes servers that run, by every door and on every server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import grpc
import pyarrow.flight as flight
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub

from lakebed.access.keys import Keys
from lakebed.lake import Lake
from lakebed.opening import open_lake
from lakebed.samples.generator import Generator
from tests.conftest import NewLake
from tests.serve.parts import JSON, PROTOBUF, Served, serving
from tests.serve.test_flight import connect, get

LOGS = Generator(1).logs(3)
Headers = dict[str, str]


def _query(served: Served, headers: Headers) -> bool:
    return served.post("/v1/query", b"SELECT 1", headers).status == 200


def _land(served: Served, headers: Headers) -> bool:
    body = LOGS.SerializeToString()
    return served.post("/v1/logs", body, PROTOBUF | headers).status == 200


def _insert(served: Served, headers: Headers) -> bool:
    rows = b'[{"time": "2026-01-01T00:00:00Z"}]'
    return served.post("/v1/tables/home/rings", rows, JSON | headers).status == 200


def _metrics(served: Served, headers: Headers) -> bool:
    return served.ask("GET", "/metrics", headers=headers).status == 200


def _page(served: Served, headers: Headers) -> bool:
    return served.ask("GET", "/lake", headers=headers).status == 200


def _page_data(served: Served, headers: Headers) -> bool:
    return served.ask("GET", "/lake.json", headers=headers).status == 200


def _otlp_grpc(served: Served, headers: Headers) -> bool:
    with grpc.insecure_channel(served.otlp) as channel:
        try:
            LogsServiceStub(channel).Export(LOGS, metadata=tuple(headers.items()))
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
            return False
    return True


def _flight_sql(served: Served, headers: Headers) -> bool:
    with connect(served) as client:
        try:
            get(client, "SELECT 1", headers)
        except flight.FlightUnauthenticatedError:
            return False
    return True


DOORS: dict[str, Callable[[Served, Headers], bool]] = {
    "HTTP query": _query,
    "HTTP OTLP": _land,
    "HTTP records": _insert,
    "HTTP metrics": _metrics,
    "page": _page,
    "page as JSON": _page_data,
    "gRPC OTLP": _otlp_grpc,
    "FlightSQL": _flight_sql,
}


@dataclass
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def lake(new_lake: NewLake) -> Lake:
    lake = new_lake()
    lake.tables.create_database("home")
    lake.tables.create_table("home", "rings", {"time": "datetime"})
    return lake


@pytest.fixture
def served(lake: Lake) -> Iterator[Served]:
    with serving(lake, roles=("ingest", "query", "web")) as served:
        yield served


def _create_elsewhere(lake: Lake) -> Headers:
    """Make a key as `lakebed keys create` does, in a process of its own."""
    with open_lake(lake.catalog.url) as other:
        secret = other.keys.create("boss", ["admin"]).secret
    return {"authorization": f"Bearer {secret}"}


def test_running_server_requires_key_at_every_door_after_first_is_made_elsewhere(
    lake: Lake, served: Served
) -> None:
    clock = Clock()
    lake.keys = Keys(lake.catalog, clock)
    assert all(enter(served, {}) for enter in DOORS.values())
    key = _create_elsewhere(lake)
    assert all(enter(served, {}) for enter in DOORS.values()), "it looks again after 5 s"
    for name, enter in DOORS.items():
        lake.keys = Keys(lake.catalog, clock)  # so that no door profits from another's look
        assert not enter(served, {}), name
        assert enter(served, key), name
    lake.keys = Keys(lake.catalog, clock)
    assert [served.ask("GET", path).status for path in ("/livez", "/readyz")] == [200, 200]


def test_server_looks_for_a_first_key_every_five_seconds(lake: Lake) -> None:
    clock = Clock()
    keys = Keys(lake.catalog, clock)
    assert keys.must_look_for_any()
    assert not keys.has_any()
    clock.now = 4.9
    assert not keys.must_look_for_any()
    _create_elsewhere(lake)
    clock.now = 5.0
    assert keys.must_look_for_any()
    assert not keys.had_any
    assert keys.has_any()
    clock.now = 1000.0
    assert not keys.must_look_for_any(), "a key that was made stays made"


def test_first_key_of_the_same_process_is_required_at_once(lake: Lake, served: Served) -> None:
    lake.keys = Keys(lake.catalog, Clock())
    assert _query(served, {})
    lake.keys.create("boss", ["admin"])
    assert [enter(served, {}) for enter in DOORS.values()] == [False] * len(DOORS)


def test_server_without_keys_by_name_stays_open_after_the_first_key(lake: Lake) -> None:
    with serving(lake, roles=("ingest", "query", "web"), open_to_all=True) as served:
        lake.keys.create("boss", ["admin"])
        assert all(enter(served, {}) for enter in DOORS.values())


def test_page_answers_sign_in_after_the_first_key(lake: Lake, served: Served) -> None:
    lake.keys.create("boss", ["admin"])
    answer = served.ask("GET", "/lake")
    assert (answer.status, answer.headers["location"]) == (303, "/sign-in?next=%2Flake")
