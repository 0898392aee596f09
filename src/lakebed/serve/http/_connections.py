"""Requests whose line and headers have no end, or do not come, are cut off, and so are connections
that are too many: uvicorn would keep any amount of them, whoever sends them and whatever they ask
for. Those that offer to go on in another protocol are read as if they did not: uvicorn would take
them for requests without a body.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 64 << 10
_MOST_FILES = 65_536
_OF_UPGRADES = (b"upgrade", b"http2-settings")


def _spell(status: str, said: str) -> bytes:
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\n"
        f"content-length: {len(said)}\r\nconnection: close\r\nretry-after: 2\r\n\r\n{said}"
    ).encode()


_TOO_LARGE = _spell(
    "431 Request Header Fields Too Large",
    f"the request's line and headers have more than {MOST_HEAD_BYTES >> 10} KiB",
)
_TOO_MANY = _spell("503 Service Unavailable", "too many connections are open")
_TOO_SLOW = _spell("408 Request Timeout", "the request's line and headers did not come in time")


class _Parser:
    """Reads the body of a request also behind a head that offers an upgrade, as clients do that
    speak HTTP/2, too. The library takes what follows such a head for the other protocol, so the
    head is read again without the offer."""

    def __init__(self, protocol: BoundedHeads) -> None:
        self._protocol = protocol
        self._parser = self._begin()

    def _begin(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self._protocol)
        parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
        return parser

    def __getattr__(self, name: str) -> Any:
        return getattr(self._parser, name)

    def feed_data(self, data: bytes) -> None:
        """Read on; raises as the library does."""
        while data:
            try:
                self._parser.feed_data(data)
                data = b""
            except httptools.HttpParserUpgrade as found:
                if self._protocol.head_again is None:
                    raise
                data = self._protocol.head_again + data[found.args[0] :]
                self._parser = (
                    self._begin()
                )  # the old one ends if the head said that it is the last


class BoundedHeads(HttpToolsProtocol):
    """HTTP whose requests have a head of moderate size that comes in time."""

    most_connections = 10_000
    head_seconds = 30.0

    _in_head = False
    _head_bytes = 0
    _waiting: asyncio.TimerHandle | None = None
    head_again: bytes | None = None
    """The head of a request that was read only for this: without its offer to upgrade."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.parser = cast("httptools.HttpRequestParser", _Parser(self))

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        if len(self.connections) > self.most_connections:
            self._refuse(_TOO_MANY)
        else:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self.head_again = None
        self._wait_for_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._wait_no_more()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > MOST_HEAD_BYTES:
            self._refuse(_TOO_LARGE)
        elif self.parser.should_upgrade() and self.parser.get_method() != b"CONNECT":
            self.head_again = self._without_upgrade()
        else:
            super().on_headers_complete()

    def _without_upgrade(self) -> bytes:
        version = self.parser.get_http_version().encode()
        lines = [b"%s %s HTTP/%s" % (self.parser.get_method(), self.url, version)]
        for name, value in self.headers:
            if name == b"connection":
                tokens = [each.strip() for each in value.split(b",")]
                value = b", ".join(each for each in tokens if each.lower() not in _OF_UPGRADES)
            if name not in _OF_UPGRADES:
                lines.append(name + b": " + value)
        return b"\r\n".join(lines) + b"\r\n\r\n"

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.transport.is_closing() and self.head_again is None:
            super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse(_TOO_LARGE)

    def _wait_for_head(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(self.head_seconds, self._refuse, _TOO_SLOW)

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _refuse(self, said: bytes) -> None:
        self._wait_no_more()
        if not self.transport.is_closing():
            self.transport.write(said)
            self.transport.close()


def bounded_heads(head_seconds: float) -> type[BoundedHeads]:
    """The protocol for a process of which at most half the files may be connections. It may open as
    many files as it is allowed to, which shells and containers often set far lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    most = _MOST_FILES if soft == resource.RLIM_INFINITY else soft
    bounds = {"head_seconds": head_seconds, "most_connections": most // 2}
    return cast("type[BoundedHeads]", type("Heads", (BoundedHeads,), bounds))
