"""Callers that say nothing, do not read, or send without end: they keep neither threads nor memory
from those who do, and a server that is told to stop does not wait for them.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import grpc
import pyarrow.flight as flight
import pytest
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub

from lakebed.access.keys import Role
from lakebed.errors import Unavailable
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.query.request.parameters import prepare
from lakebed.samples.generator import Generator
from lakebed.serve import workers
from lakebed.serve.flight._prepared import MOST_BOUND_BYTES, PreparedStatements
from lakebed.serve.http._connections import LimitedConnection
from lakebed.serve.limits import ServerSettings
from lakebed.views.builtin import built_in
from lakebed.wire import protocol
from tests.query.test_engine import ENDLESS
from tests.serve.abuse import status_of
from tests.serve.parts import PROTOBUF, Served, serving

EXPORT = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
CHECK, WATCH = "/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"
SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"
MANY = 200
WIDE = "SELECT a.value, b.value FROM range(100000) a, range(100000) b"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with init_lake(tmp_path / "lake") as lake:
        lake.views.ensure(built_in())
        yield lake


def silent(until: threading.Event) -> Iterator[bytes]:
    until.wait()
    yield from ()


@contextlib.contextmanager
def silent_calls(target: str, count: int = MANY) -> Iterator[list[grpc.Future]]:
    """So many calls that have begun and say nothing."""
    over = threading.Event()
    with ExitStack() as stack:
        channels = [stack.enter_context(grpc.insecure_channel(target)) for _ in range(4)]
        calls = [
            channels[place % 4].stream_unary(EXPORT).future(silent(over)) for place in range(count)
        ]
        try:
            yield calls
        finally:
            over.set()
            for each in calls:
                each.cancel()


def details_of(error: grpc.RpcError) -> status_pb2.Status:
    trailers = dict(error.trailing_metadata())
    return status_pb2.Status.FromString(trailers["grpc-status-details-bin"])


def test_silent_calls_keep_nobody_from_sending(lake: Lake) -> None:
    settings = ServerSettings(stall_seconds=2)
    with serving(lake, settings=settings) as served, silent_calls(served.otlp) as calls:
        with grpc.insecure_channel(served.otlp) as channel:
            for seed in range(5):
                LogsServiceStub(channel).Export(Generator(seed).logs(2), timeout=300)
            assert channel.unary_unary(CHECK)(b"", timeout=300) == SERVING
        codes = {each.exception(timeout=300).code() for each in calls}
        assert codes <= {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED}
    assert lake.query("SELECT count(*) AS n FROM log_entries").to_arrow()["n"].to_pylist() == [10]


def test_without_a_key_nothing_is_received(lake: Lake) -> None:
    lake.keys.create("sender", [Role.INGEST])
    with serving(lake) as served, silent_calls(served.otlp) as calls:
        codes = {each.exception(timeout=300).code() for each in calls}
        assert codes == {grpc.StatusCode.UNAUTHENTICATED}


def test_answers_that_nobody_reads_keep_nobody_from_asking(lake: Lake) -> None:
    ticket = protocol.wrap(protocol.new("TicketStatementQuery", statement_handle=WIDE.encode()))
    with serving(lake) as served, ExitStack() as stack:
        clients = [stack.enter_context(flight.FlightClient(served.flight)) for _ in range(70)]
        readers = [each.do_get(flight.Ticket(ticket)) for each in clients]
        asking = stack.enter_context(flight.FlightClient(served.flight))
        one = protocol.wrap(protocol.new("TicketStatementQuery", statement_handle=b"SELECT 1"))
        options = flight.FlightCallOptions(timeout=300)
        assert asking.do_get(flight.Ticket(one), options).read_all().num_rows == 1
        target = served.flight.removeprefix("grpc://")
        with grpc.insecure_channel(target) as channel:
            assert channel.unary_unary(CHECK)(b"", timeout=300) == SERVING
        for each in readers:
            each.cancel()


def test_an_answer_that_nobody_reads_is_ended(lake: Lake) -> None:
    ticket = protocol.new("TicketStatementQuery", statement_handle=WIDE.encode())
    message = protocol.new("Ticket", ticket=protocol.wrap(ticket)).SerializeToString()
    with serving(lake, settings=ServerSettings(query_seconds=2)) as served:
        target = served.flight.removeprefix("grpc://")
        with grpc.insecure_channel(target) as channel:
            answers = channel.unary_stream("/arrow.flight.protocol.FlightService/DoGet")(message)
            with pytest.raises(grpc.RpcError) as ended:
                next(answers)
                wait_until(lambda: not lake.leases._pins)
                for _ in answers:
                    pass
            assert ended.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for a condition; the limit only ends a test that would hang."""
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.05)


def test_half_a_body_counts_before_it_is_whole(lake: Lake) -> None:
    settings = ServerSettings(most_in_flight_bytes=3 << 20)
    head = "POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
    head += f"Content-Length: {4 << 20}\r\n\r\n"
    body = Generator(1).logs(5).SerializeToString()
    with serving(lake, settings=settings) as served, ExitStack() as stack:
        for _ in range(2):
            each = stack.enter_context(socket.create_connection(("127.0.0.1", served.port)))
            each.sendall(head.encode() + bytes(1_500_000))
        wait_until(lambda: served.server.guard.body_bytes.held == 3_000_000)
        third = stack.enter_context(socket.create_connection(("127.0.0.1", served.port)))
        third.sendall(head.encode() + bytes(1_500_000))
        answer = third.recv(65536)
        assert status_of(answer) == 503
        assert b"retry-after" in answer
        assert served.post("/v1/logs", body, PROTOBUF).status == 200  # which is small
        with grpc.insecure_channel(served.otlp) as channel:
            with pytest.raises(grpc.RpcError) as refused:
                channel.unary_unary(EXPORT)(bytes(1 << 20))
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
            (retry,) = [
                each
                for each in details_of(refused.value).details
                if each.type_url.endswith("google.rpc.RetryInfo")
            ]
            delay = error_details_pb2.RetryInfo.FromString(retry.value).retry_delay
            assert delay.ToSeconds() > 0
    assert served.server.guard.body_bytes.held == 0


def test_a_body_that_stops_coming_is_given_up(lake: Lake) -> None:
    with (
        serving(lake, settings=ServerSettings(stall_seconds=0.3)) as served,
        socket.create_connection(("127.0.0.1", served.port), timeout=300) as sender,
    ):
        sender.sendall(
            b"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
            b"Content-Length: 100\r\n\r\nhalf"
        )
        assert status_of(sender.recv(65536)) == 503


def ask_and_leave(lake: Lake, served: Served, sql: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", served.port)
    connection.request("POST", "/v1/query", sql)
    wait_until(lambda: bool(lake.leases._pins))
    connection.close()


def test_a_caller_that_leaves_stops_its_statement(lake: Lake) -> None:
    with serving(lake) as served:
        ask_and_leave(lake, served, ENDLESS)
        wait_until(lambda: not lake.leases._pins)
        assert served.query("SELECT 1 AS one") == [{"one": 1}]


def test_health_says_what_readiness_says(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise Unavailable("away")

    with serving(lake) as served, grpc.insecure_channel(served.otlp) as channel:
        check = channel.unary_unary(CHECK)
        name = EXPORT.split("/")[1].encode()
        assert check(b"\n" + bytes([len(name)]) + name) == SERVING
        with pytest.raises(grpc.RpcError) as unknown:
            check(b"\n\x04none")
        assert unknown.value.code() == grpc.StatusCode.NOT_FOUND
        watching = channel.unary_stream(WATCH)(b"")
        assert next(watching) == SERVING
        monkeypatch.setattr(served.server.health, "probe", fail)
        assert check(b"") == NOT_SERVING
        assert next(watching) == NOT_SERVING
        monkeypatch.undo()
        assert next(watching) == SERVING
        served.server.health.draining = True
        assert list(watching) == [NOT_SERVING]
        assert check(b"") == NOT_SERVING


def test_nothing_new_is_taken_while_the_server_drains(lake: Lake) -> None:
    """A statement is still being read when the server is told to stop."""
    with serving(lake) as served, grpc.insecure_channel(served.otlp) as channel:
        stub = LogsServiceStub(channel)
        stub.Export(Generator(1).logs(2))
        connection = http.client.HTTPConnection("127.0.0.1", served.port)
        csv = {"Accept": "text/csv"}
        connection.request("POST", "/v1/query", "SELECT value FROM range(2000000)", csv)
        response = connection.getresponse()
        served.server.stop()
        wait_until(lambda: served.server.health.draining)
        with pytest.raises(grpc.RpcError) as refused:
            stub.Export(Generator(2).logs(2), timeout=300)
        assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
        assert response.read().count(b"\n") == 2_000_001
        connection.close()


def test_statements_without_end_do_not_keep_the_server_from_its_own(lake: Lake) -> None:
    """Their callers wait, and are told when its time is over."""
    ticket = protocol.wrap(protocol.new("TicketStatementQuery", statement_handle=ENDLESS.encode()))
    with ExitStack() as stack:
        with serving(lake, drain_seconds=1) as served:
            client = stack.enter_context(flight.FlightClient(served.flight))
            reader = client.do_get(flight.Ticket(ticket))
            connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=300)
            stack.callback(connection.close)
            connection.request("POST", "/v1/query", ENDLESS)
            wait_until(lambda: len(lake.leases._pins) == 2)
        response = stack.enter_context(connection.getresponse())
        assert (response.status, response.headers["Retry-After"]) == (503, "2")
        assert json.loads(response.read())["error"]["message"] == "the server is stopping"
        with pytest.raises((flight.FlightError, KeyboardInterrupt)):
            reader.read_all()


@pytest.mark.parametrize("said", [b"", b"POST /v1/logs HTTP/1.1\r\nHost: x\r\n"])
def test_who_does_not_say_what_it_wants_is_let_go(lake: Lake, said: bytes) -> None:
    settings = ServerSettings(stall_seconds=0.3)
    with (
        serving(lake, settings=settings) as served,
        socket.create_connection(("127.0.0.1", served.port), timeout=300) as silent,
    ):
        silent.sendall(said)
        answer = b"".join(iter(lambda: silent.recv(4096), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert answer.endswith(b"did not come in time")


def test_connections_beyond_a_number_are_told_to_come_later(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Few(LimitedConnection):
        most_connections = 2

    monkeypatch.setattr("lakebed.serve.server.limit_connections", lambda _seconds: Few)
    with serving(lake) as served, ExitStack() as stack:
        address = ("127.0.0.1", served.port)
        for _ in range(2):
            stack.enter_context(socket.create_connection(address))
        third = stack.enter_context(socket.create_connection(address, timeout=300))
        answer = b"".join(iter(lambda: third.recv(4096), b""))
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 2" in answer
        stack.close()
        wait_until(lambda: served.ask("GET", "/livez").status == 200)


def test_a_server_may_open_as_many_files_as_it_is_allowed_to() -> None:
    code = (
        "import resource as r\n"
        "hard = r.getrlimit(r.RLIMIT_NOFILE)[1]\n"
        "r.setrlimit(r.RLIMIT_NOFILE, (64, hard))\n"
        "from lakebed.serve.http._connections import limit_connections\n"
        "most = limit_connections(1).most_connections\n"
        "assert r.getrlimit(r.RLIMIT_NOFILE)[0] == 2 * most > 64\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_values_that_are_bound_do_not_pile_up() -> None:
    kept = PreparedStatements()
    prepared = prepare("SELECT ?")
    for number in range(100):
        kept.keep(b"%d" % number, prepared, [number], MOST_BOUND_BYTES)
    held = [number for number in range(100) if kept.find(b"%d" % number)]
    assert held == [97, 98, 99]
    kept.pop(b"99")
    for number in range(2000):
        kept.keep(b"small %d" % number, prepared, [], 0)
    assert kept.find(b"small 1000") is not None
    assert kept.find(b"small 999") is None


def test_threads_that_hang_are_told_of_in_time(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not answer keeps every thread; callers are told, and meters are shown."""
    monkeypatch.setattr(workers, "_WAIT_SECONDS", 0.2)
    hanging = threading.Event()
    body = Generator(1).logs(2).SerializeToString()
    with serving(lake) as served, ExitStack() as stack:
        stack.callback(hanging.set)
        monkeypatch.setattr(lake.telemetry, "land", lambda *_, **__: hanging.wait())
        most = served.server.http.workers.admission.units
        pool = stack.enter_context(ThreadPoolExecutor(most))
        for _ in range(most):
            pool.submit(served.post, "/v1/logs", body, PROTOBUF)
        wait_until(lambda: served.server.http.workers.admission.held == most)
        refused = served.post("/v1/logs", body, PROTOBUF)
        assert (refused.status, refused.headers["retry-after"]) == (503, "2")
        assert served.ask("GET", "/metrics").status == 200
        hanging.set()
