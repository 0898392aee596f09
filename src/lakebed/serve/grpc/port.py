"""The gRPC side of a server: its ports, on an event loop of their own. One loop for the whole
process, because gRPC's own machinery for them does not bear several.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from functools import cache
from typing import Any, TypeVar

import grpc
import grpc.aio

from lakebed.serve.grpc.calls import Answering, Handlers
from lakebed.serve.health import Health, make_health
from lakebed.serve.limits import MOST_BYTES

_OPTIONS = [
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 64 << 10),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_time_ms", 60_000),  # so that a caller that vanished is noticed
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.so_reuseport", 0),
]
T = TypeVar("T")


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="lakebed-grpc-loop", daemon=True).start()
    return loop


def _begin(work: Coroutine[Any, Any, T]) -> Future[T]:
    return asyncio.run_coroutine_threadsafe(work, _loop())


class GrpcPort:
    """One port and what is served there."""

    def __init__(
        self,
        address: str,
        services: Handlers,
        answering: Answering,
        health: Health,
        certificate: tuple[bytes, bytes] | None,
    ) -> None:
        """``certificate`` is its key and its chain. `RuntimeError` if nobody can listen there."""
        self._answering = answering
        handlers = [*services.values(), make_health(health, set(services))]
        self._server, self.port = _begin(_make(address, handlers, certificate)).result()
        self._stopped: Future[None] | None = None

    def start(self) -> None:
        """Take calls from now on."""
        _begin(self._server.start()).result()

    def begin_stop(self, seconds: float) -> None:
        """Take no more calls; those that are open have so long to end."""
        if self._stopped is None:
            self._stopped = _begin(self._server.stop(seconds))

    def wait_stopped(self) -> None:
        """Wait until all have ended."""
        if self._stopped is not None:
            self._stopped.result()
        self._answering.close()


async def _make(
    address: str, handlers: list[grpc.GenericRpcHandler], certificate: tuple[bytes, bytes] | None
) -> tuple[Any, int]:
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers(handlers)
    if certificate is None:
        return server, server.add_insecure_port(address)
    return server, server.add_secure_port(address, grpc.ssl_server_credentials([certificate]))
