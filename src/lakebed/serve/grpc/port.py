"""The gRPC ports of a server, on an event loop of their own: one for the whole process, because
grpc.aio supports only one.
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

from lakebed.serve.grpc._health_service import make_health_service
from lakebed.serve.grpc.calls import Calls, Handlers
from lakebed.serve.health import Health
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
    """One port and the services on it."""

    def __init__(
        self,
        address: str,
        services: Handlers,
        calls: Calls,
        health: Health,
        certificate: tuple[bytes, bytes] | None,
    ) -> None:
        """``certificate`` is its key and its chain. Raise `RuntimeError` if the port is in use."""
        self._calls = calls
        handlers = [*services.values(), make_health_service(health, set(services))]
        self._server, self.port = _begin(_make(address, handlers, certificate)).result()
        self._stopped: Future[None] | None = None

    def start(self) -> None:
        """Accept calls."""
        _begin(self._server.start()).result()

    def begin_stop(self, seconds: float) -> None:
        """Accept no more calls; open ones have so many seconds to end."""
        if self._stopped is None:
            self._stopped = _begin(self._server.stop(seconds))

    def wait_stopped(self) -> None:
        """Wait until all calls have ended."""
        if self._stopped is not None:
            self._stopped.result()
        self._calls.close()


async def _make(
    address: str, handlers: list[grpc.GenericRpcHandler], certificate: tuple[bytes, bytes] | None
) -> tuple[Any, int]:
    server = grpc.aio.server(options=_OPTIONS)
    server.add_generic_rpc_handlers(handlers)
    if certificate is None:
        return server, server.add_insecure_port(address)
    return server, server.add_secure_port(address, grpc.ssl_server_credentials([certificate]))
