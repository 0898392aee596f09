"""Whether a server can do its work: catalog and store are asked, on a thread that has nothing else
to do, once for all who want to know at a time. Load balancers ask over HTTP or gRPC.
"""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc

from lakebed.errors import TimedOut, Unavailable
from lakebed.serve.answers import Busy

if TYPE_CHECKING:
    from lakebed.lake import Lake

_WATCH_SECONDS = 1.0
_PATIENCE_SECONDS = 10.0
_SERVING, _NOT_SERVING, _SERVICE_UNKNOWN = b"\x08\x01", b"\x08\x02", b"\x08\x03"
"""Each a HealthCheckResponse."""
_log = logging.getLogger(__name__)


class Health:
    """The health of one server; to be asked from any event loop."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakebed-health")
        self._looked_at = 0.0
        self._error: Exception | None = None
        self.draining = False

    async def require(self) -> None:
        """Raise if the lake cannot be worked with, or the server is stopping."""
        if self.draining:
            raise Busy("the server is stopping")
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                error = await loop.run_in_executor(self._thread, self._look, time.monotonic())
        except TimeoutError:
            raise TimedOut("catalog and store take long to answer") from None
        if error is not None:
            raise error

    def _look(self, since: float) -> Exception | None:
        """What came of the last look that began after somebody asked."""
        if self._looked_at < since:
            self._looked_at = time.monotonic()
            try:
                self.probe()
            except Unavailable as error:
                self._error = error
            except Exception as error:  # noqa: BLE001  (told to whoever asks)
                self._error = Unavailable(str(error))
            else:
                self._error = None
        return self._error

    def probe(self) -> None:
        """Ask catalog and store."""
        from lakebed.catalog import lakes
        from lakebed.storage.marks import require_mark

        with self._lake.catalog.read() as connection:
            lake_id = lakes.get(connection).lake_id
        require_mark(self._lake.store, lake_id)

    def close(self) -> None:
        """Nobody will ask any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def make_health(health: Health, services: set[str]) -> grpc.GenericRpcHandler:
    """``grpc.health.v1.Health`` for these services and the server as a whole."""

    async def look() -> bytes:
        try:
            await health.require()
        except Exception as error:  # noqa: BLE001  (whatever it is, others serve better)
            _log.warning("not healthy: %s", error)
            return _NOT_SERVING
        return _SERVING

    async def check(request: bytes, context: Any) -> bytes:
        if not _is_known(request, services):
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service here")
        return await look()

    async def watch(request: bytes, context: Any) -> None:
        said = None
        while said == _SERVING or not health.draining:
            now = await look() if _is_known(request, services) else _SERVICE_UNKNOWN
            if now != said:
                await context.write(now)
            said = now
            await asyncio.sleep(_WATCH_SECONDS)

    return grpc.method_handlers_generic_handler(
        "grpc.health.v1.Health",
        {
            "Check": grpc.unary_unary_rpc_method_handler(check),
            "Watch": grpc.unary_stream_rpc_method_handler(watch),
        },
    )


def _is_known(request: bytes, services: set[str]) -> bool:
    """A HealthCheckRequest has one field, the name of a service; none asks for the server."""
    if not request:
        return True
    name = request[2:].decode(errors="replace")
    return request[:1] == b"\n" and len(request) - 2 == request[1] and name in services
