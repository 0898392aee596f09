"""HTTP connections whose number is limited, and requests whose line and headers are of limited size
and arrive in time.

uvicorn 0.54 has no settings for that (https://github.com/Kludex/uvicorn/issues/157): with httptools
it accepts headers of any size, ``h11_max_incomplete_event_size`` is for its slower h11 parser and
answers 400 instead of 431, no setting limits how long headers take, and ``limit_concurrency`` keeps
connections open and refuses their requests without Retry-After. httptools 0.9 takes a request that
offers an upgrade for one without a body, and drops the body. So this is a subclass of uvicorn's
protocol; tests/serve/test_starving.py and test_upgrades.py fail if either library changes.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 64 << 10
_MOST_FILES = 65_536
_UPGRADE_HEADERS = (b"upgrade", b"http2-settings")


def _make_response(status: str, message: str) -> bytes:
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(message)}\r\nconnection: close\r\nretry-after: 2\r\n\r\n{message}"
    ).encode()


_TOO_LARGE = _make_response(
    "431 Request Header Fields Too Large",
    f"the request's line and headers have more than {MOST_HEAD_BYTES >> 10} KiB",
)
_TOO_MANY = _make_response("503 Service Unavailable", "too many connections are open")
_TOO_SLOW = _make_response(
    "408 Request Timeout", "the request's line and headers did not come in time"
)


class LimitedConnection(HttpToolsProtocol):
    """A connection whose requests have a head of moderate size that arrives in time."""

    most_connections = 10_000
    head_seconds = 30.0

    _in_head = False
    _head_bytes = 0
    _timer: asyncio.TimerHandle | None = None
    head_without_upgrade: bytes | None = None
    """The head to read again, while a head that offers an upgrade is read."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.parser = cast("httptools.HttpRequestParser", _Parser(self))

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            self._refuse(_TOO_MANY)
        else:
            self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self.head_without_upgrade = None
        self._start_timer()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_timer()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > MOST_HEAD_BYTES:
            self._refuse(_TOO_LARGE)
        elif self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self.head_without_upgrade = self._remove_upgrade()
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.transport.is_closing() and self.head_without_upgrade is None:
            super().on_message_complete()

    def _remove_upgrade(self) -> bytes:
        """Return the head of the request without its offer to upgrade."""
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [token.strip() for token in value.split(b",")]
                value = b", ".join(t for t in tokens if t.lower() not in _UPGRADE_HEADERS)
            if name not in _UPGRADE_HEADERS:
                lines.append(name + b": " + value)
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(self.head_seconds, self._refuse, _TOO_SLOW)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _refuse(self, response: bytes) -> None:
        self._stop_timer()
        if not self.transport.is_closing():
            self.transport.write(response)
            self.transport.close()


class _Parser:
    """A parser that reads a head which offers an upgrade, as clients send that also speak HTTP/2,
    again without the offer, so that it finds the body."""

    def __init__(self, connection: LimitedConnection) -> None:
        self._connection = connection
        self._parser = self._make()

    def _make(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self._connection)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        return parser

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> None:
        """Parse more data; raise as httptools does."""
        while data:
            try:
                self._parser.feed_data(data)
                data = b""
            except httptools.HttpParserUpgrade as upgrade:
                if self._connection.head_without_upgrade is None:
                    raise
                data = self._connection.head_without_upgrade + data[upgrade.args[0] :]
                self._parser = self._make()  # the old one ends if the head asked to close


def limit_connections(head_seconds: float) -> type[LimitedConnection]:
    """Return the protocol for a process of which at most half the files may be connections. Raise
    the number of files it may open to what is allowed; shells and containers often set it lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        soft = allowed
    files = _MOST_FILES if soft == resource.RLIM_INFINITY else soft
    limits = {"head_seconds": head_seconds, "most_connections": files // 2}
    return cast("type[LimitedConnection]", type("Limited", (LimitedConnection,), limits))
