"""Senders that never give up, and a `lakebed serve` process that is killed under them. Each request
carries a mark of its own, so that what it left in the lake can be counted.
"""

from __future__ import annotations

import base64
import gzip
import http.client
import json
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
import psutil
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue

from lakebed.errors import Unavailable

BEGIN_NS = 1_794_744_000_000_000_000
RECORDS = "records"
_TYPES = {"protobuf": "application/x-protobuf", "json": "application/json"}
_METHODS = {
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
}
_PATIENCE_SECONDS = 120
_CHANNEL = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 500)]


class Outages:
    """When something was away: an odd number of changes means that it is away now."""

    def __init__(self) -> None:
        self._changes = 0
        self._back = threading.Event()
        self._back.set()

    @contextmanager
    def away(self) -> Iterator[None]:
        self._back.clear()
        self._changes += 1
        yield
        self._changes += 1
        self._back.set()

    def look(self) -> int:
        return self._changes

    def explains(self, before: int) -> bool:
        """Whether something that began then may have failed for being away."""
        return before % 2 == 1 or self._changes != before

    def wait(self) -> None:
        assert self._back.wait(_PATIENCE_SECONDS)


class ServerProcess:
    """`lakebed serve`, on the same ports after each kill."""

    def __init__(self, lake: str) -> None:
        self.port, self.otlp_port, self.flight_port = _free_ports(3)
        self.outages = Outages()
        self.rss_bytes: list[int] = []
        self.said: list[str] = []
        self._lake = lake
        self._process = self._start()

    @property
    def flight(self) -> str:
        return f"grpc://127.0.0.1:{self.flight_port}"

    @property
    def otlp(self) -> str:
        return f"127.0.0.1:{self.otlp_port}"

    def _start(self) -> subprocess.Popen[str]:
        ports = ["--port", str(self.port), "--otlp-port", str(self.otlp_port)]
        ports += ["--flight-port", str(self.flight_port)]
        quiet = ["--roles", "ingest,query", "--telemetry-seconds", "0"]
        process = subprocess.Popen(
            [sys.executable, "-m", "lakebed", "serve", "--lake", self._lake, *ports, *quiet],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first.startswith("serving "), first + process.stderr.read()
        threading.Thread(target=self._listen, args=(process,)).start()
        return process

    def _listen(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with process.stderr:
            self.said.extend(process.stderr)

    def kill(self) -> None:
        """SIGKILL, and another one in its place."""
        with self.outages.away():
            self._process.kill()
            self._process.wait()
            self._process = self._start()

    def stop(self) -> int:
        """End it in order; its exit code."""
        self._process.terminate()
        return self._process.wait(300)

    def sample(self) -> None:
        """Note how much memory it has now."""
        if self.outages.look() % 2 == 0:
            with _gone_is_nothing():
                self.rss_bytes.append(psutil.Process(self._process.pid).memory_info().rss)


@contextmanager
def _gone_is_nothing() -> Iterator[None]:
    try:
        yield
    except psutil.NoSuchProcess:
        return


def _free_ports(count: int) -> list[int]:
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in taken]
    for each in taken:
        each.close()
    return ports


@dataclass
class Load:
    """What is going on: when to stop, what was acknowledged, and what went wrong."""

    server: ServerProcess
    database: Outages = field(default_factory=Outages)
    """Once it was away, connections to it may break later as well."""
    stop: threading.Event = field(default_factory=threading.Event)
    acknowledged: dict[str, int] = field(default_factory=dict)
    """By mark, how many records."""
    totals: Counter[str] = field(default_factory=Counter)
    """By kind, how many of them."""
    seconds: list[float] = field(default_factory=list)
    queries: int = 0
    retries: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, kind: str, mark: str, size: int, seconds: float) -> None:
        with self._lock:
            self.acknowledged[mark] = size
            self.totals[kind] += size
            self.seconds.append(seconds)

    def excuse(self, before: int, said: str, *, broken: bool = False) -> None:
        """Take note of a failure that may pass: a retry if an outage explains it, of the server if
        the connection is broken, or else of the database. Everything else is a problem."""
        explained = self.database.look() > 0
        if broken:
            explained = explained or self.server.outages.explains(before)
        with self._lock:
            self.retries[said.splitlines()[0][:80]] += 1
        if not explained:
            self.fail(said)

    def fail(self, said: str) -> None:
        """Take note of what must not be, and end."""
        self.problems.append(said)
        self.stop.set()


class Visitor:
    """Somebody who asks over FlightSQL, and again if there is no answer. After an outage gRPC
    tries to connect only every now and then, and fails calls until it did."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._answered = load.server.outages.look()
        self._pause = threading.Event()

    def ask(self, work: Callable[[], object]) -> bool:
        """Whether there was an answer."""
        now = self._load.server.outages.look()
        try:
            work()
        except Unavailable as error:
            said = f"{type(error).__name__}: {error}"
            self._load.excuse(self._answered, said, broken=True)
            self._load.server.outages.wait()
            self._pause.wait(0.1)
            return False
        self._answered = now
        return True


@dataclass(frozen=True, slots=True)
class Way:
    """How a sender sends: what, in which encoding, and over what."""

    kind: str
    encoding: str = "protobuf"
    over: str = "http"
    zipped: bool = False


WAYS = (
    Way("logs"),
    Way("logs", zipped=True),
    Way("logs", zipped=True),
    Way("logs", "json"),
    Way("logs", "json", zipped=True),
    Way("metrics"),
    Way("metrics", zipped=True),
    Way("metrics", "json"),
    Way("traces"),
    Way("traces", zipped=True),
    Way("traces", "json"),
    Way("logs", over="grpc"),
    Way("metrics", over="grpc"),
    Way("traces", over="grpc"),
    Way(RECORDS, "json"),
    Way(RECORDS, "json", zipped=True),
)


class Sender(threading.Thread):
    """Sends one request after another, and each until it is acknowledged."""

    def __init__(self, load: Load, number: int, way: Way) -> None:
        super().__init__(name=f"sender-{number}")
        self._load = load
        self._number = number
        self._way = way
        self._connection: http.client.HTTPConnection | None = None

    def run(self) -> None:
        target = self._load.server.otlp
        with grpc.insecure_channel(target, options=_CHANNEL) as channel:
            count = 0
            while not self._load.stop.is_set():
                count += 1
                mark, size = f"s{self._number}-{count}", 1 + (self._number + count) % 20
                body = self._make(mark, size)
                begun = time.perf_counter()
                while not self._try(channel, mark, body):
                    if self._load.problems:
                        return
                    self._load.server.outages.wait()
                    self._load.database.wait()
                self._load.note(self._way.kind, mark, size, time.perf_counter() - begun)
        if self._connection is not None:
            self._connection.close()

    def _make(self, mark: str, size: int) -> bytes:
        if self._way.kind == RECORDS:
            row = {"time": "2026-11-15T12:00:00Z", "mark": mark}
            return json.dumps([row | {"place": place} for place in range(size)]).encode()
        request = make_request(self._way.kind, f"sender-{self._number}", mark, size)
        if self._way.encoding == "json":
            return json.dumps(_with_hexadecimal_ids(MessageToDict(request))).encode()
        return bytes(request.SerializeToString())

    def _try(self, channel: grpc.Channel, mark: str, body: bytes) -> bool:
        before = self._load.server.outages.look()
        if self._way.over == "grpc":
            return self._call(channel, body, before)
        return self._post(mark, body, before)

    def _call(self, channel: grpc.Channel, body: bytes, before: int) -> bool:
        call = channel.unary_unary(_METHODS[self._way.kind])
        try:
            call(body, timeout=300, wait_for_ready=True)
        except grpc.RpcError as error:
            said = f"gRPC {error.code().name}: {error.details()}"
            if error.code() == grpc.StatusCode.UNAVAILABLE:
                self._load.excuse(before, said, broken=True)
            else:
                self._load.fail(said)
            return False
        return True

    def _post(self, mark: str, body: bytes, before: int) -> bool:
        path, headers = f"/v1/{self._way.kind}", {"Content-Type": _TYPES[self._way.encoding]}
        if self._way.kind == RECORDS:
            path = "/v1/tables/home/visits"
            headers["Idempotency-Key"] = mark
        if self._way.zipped:
            body = gzip.compress(body, 1)
            headers["Content-Encoding"] = "gzip"
        if self._connection is None:
            self._connection = http.client.HTTPConnection(
                "127.0.0.1", self._load.server.port, timeout=300
            )
        try:
            self._connection.request("POST", path, body, headers)
            response = self._connection.getresponse()
            said = response.read()
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            self._connection = None
            self._load.excuse(before, f"{type(error).__name__}: {error}", broken=True)
            return False
        if response.status == 503:
            self._load.excuse(before, f"HTTP 503: {said!r}")
        elif response.status != 200:
            self._load.fail(f"HTTP {response.status} for {mark}: {said!r}")
        return response.status == 200


def _with_hexadecimal_ids(value: Any) -> Any:
    """OTLP's JSON spells ids as hexadecimal digits, unlike protobuf's."""
    if isinstance(value, list):
        return [_with_hexadecimal_ids(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: base64.b64decode(each).hex()
        if name in ("traceId", "spanId")
        else _with_hexadecimal_ids(each)
        for name, each in value.items()
    }


def make_request(kind: str, service: str, mark: str, size: int) -> Any:
    """An OTLP request of so many records, each with the mark."""
    who = KeyValue(key="service.name", value=AnyValue(string_value=service))
    times = [BEGIN_NS + place for place in range(size)]
    if kind == "logs":
        logs = ExportLogsServiceRequest()
        logged = logs.resource_logs.add()
        logged.resource.attributes.append(who)
        records = logged.scope_logs.add().log_records
        for each in times:
            records.add(time_unix_nano=each, event_name=mark).body.string_value = "visited"
        return logs
    if kind == "metrics":
        metrics = ExportMetricsServiceRequest()
        measured = metrics.resource_metrics.add()
        measured.resource.attributes.append(who)
        points = measured.scope_metrics.add().metrics.add(name=mark).gauge.data_points
        for each in times:
            points.add(time_unix_nano=each, as_int=1)
        return metrics
    traces = ExportTraceServiceRequest()
    traced = traces.resource_spans.add()
    traced.resource.attributes.append(who)
    spans = traced.scope_spans.add().spans
    for each in times:
        spans.add(
            trace_id=mark.encode().ljust(16, b"-")[:16],
            span_id=each.to_bytes(8, "big"),
            name=mark,
            start_time_unix_nano=each,
            end_time_unix_nano=each + 1,
        )
    return traces
