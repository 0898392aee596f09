"""Requests whose line and headers have no end, or do not come, are cut off, and so are connections
that are too many: uvicorn would keep any amount of them, whoever sends them and whatever they ask
for.
"""

from __future__ import annotations

import asyncio
import resource
from typing import Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 64 << 10
_MOST_FILES = 65_536


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


class BoundedHeads(HttpToolsProtocol):
    """HTTP whose requests have a head of moderate size that comes in time."""

    most_connections = 10_000
    head_seconds = 30.0

    _in_head = False
    _head_bytes = 0
    _waiting: asyncio.TimerHandle | None = None

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
        self._wait_for_head()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._wait_no_more()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > MOST_HEAD_BYTES:
            self._refuse(_TOO_LARGE)
        else:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self.transport.is_closing():
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
