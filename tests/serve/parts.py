"""A server in a thread of the test, and what talks to it."""

from __future__ import annotations

import gzip
import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from lakebed.lake import Lake
from lakebed.serve.server import Listening, Server

PROTOBUF = {"Content-Type": "application/x-protobuf"}
JSON = {"Content-Type": "application/json"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server said."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Served:
    """A server that runs."""

    server: Server
    port: int

    @property
    def flight(self) -> str:
        return f"grpc://127.0.0.1:{self.server.ports['FlightSQL']}"

    @property
    def otlp(self) -> str:
        return f"127.0.0.1:{self.server.ports['OTLP']}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request(method, path, body or None, dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def post(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        zipped: bool = False,
    ) -> Answer:
        sent = dict(headers or {})
        if zipped:
            body = gzip.compress(body)
            sent["Content-Encoding"] = "gzip"
        return self.ask("POST", path, body, sent)

    def query(self, sql: str, headers: Mapping[str, str] | None = None) -> Any:
        return self.post("/v1/query", sql.encode(), headers).json()


@contextmanager
def serving(lake: Lake, **options: Any) -> Iterator[Served]:
    """Serve a lake until the block is left, unless told otherwise to send to and to ask."""
    usual = {"port": 0, "otlp_port": 0, "flight_port": 0, "roles": ("ingest", "query")}
    server = Server(lake, Listening(**(usual | options)))
    ready = threading.Event()
    ports: list[int] = []

    def note(port: int) -> None:
        ports.append(port)
        ready.set()

    thread = threading.Thread(target=server.run, args=(note,))
    thread.start()
    try:
        assert ready.wait(300)
        yield Served(server, ports[0])
    finally:
        server.stop()
        thread.join(300)
        assert not thread.is_alive(), "the server does not end"
