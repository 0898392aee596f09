"""Whether a server can do its work: catalog and store are asked, on a thread that has nothing else
to do, once for all who want to know at a time. Load balancers ask over HTTP or gRPC. Whoever waits
for the lake asks too, after a while, so that nobody waits for a catalog that does not answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from lakebed.catalog import lakes
from lakebed.catalog.catalog import Catalog
from lakebed.errors import Busy, NotStarted, Unavailable, Unresponsive
from lakebed.storage.marks import require_mark

if TYPE_CHECKING:
    from lakebed.lake import Lake

_WATCH_SECONDS = 1.0
_UNASKED_SECONDS = 3.0
"""How long work may take before catalog and store are asked whether they are there."""
_PATIENCE_SECONDS = 5.0
"""How long they have to answer. Most senders wait for ten seconds in all."""
_SERVING, _NOT_SERVING, _SERVICE_UNKNOWN = b"\x08\x01", b"\x08\x02", b"\x08\x03"
"""Each a HealthCheckResponse."""
_log = logging.getLogger(__name__)
T = TypeVar("T")


class Health:
    """The health of one server; to be asked from any event loop."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._catalog: Catalog | None = None
        """Asked on connections of its own: those of the lake may wait for others who write, or be
        dead."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakebed-health")
        self._looked_at = 0.0
        self._looking = False
        self._error: Exception | None = None
        self.draining = False

    async def require(self) -> None:
        """Raise if the lake cannot be worked with, or the server is stopping."""
        if self.draining:
            raise Busy("the server is stopping")
        error = await self._ask()
        if error is not None:
            raise error

    async def attend(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of some work. Raise `Unresponsive` if the catalog or the store, for
        which the work may wait, does not respond: then the work goes on, and nobody waits for it.
        Raise `NotStarted` without starting it if they did not respond before."""
        if self._looking and time.monotonic() - self._looked_at >= _PATIENCE_SECONDS:
            work.close()
            raise NotStarted("catalog and store do not answer")
        task, silence = asyncio.ensure_future(work), asyncio.ensure_future(self._find_silence())
        try:
            await asyncio.wait({task, silence}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise silence.result()
            return task.result()
        finally:
            task.cancel()
            silence.cancel()

    async def _find_silence(self) -> Unresponsive:
        """Come back if catalog or store do not answer. What else is wrong with them, those are told
        who work with them."""
        while True:
            await asyncio.sleep(_UNASKED_SECONDS)
            try:
                await self._ask()
            except Unresponsive as error:
                return error

    async def _ask(self) -> Exception | None:
        """What is wrong with catalog and store; `Unresponsive` if they do not say."""
        loop = asyncio.get_running_loop()
        since = time.monotonic()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await loop.run_in_executor(self._thread, self._look, since)
        except TimeoutError:
            # Who comes next is not to be begun, even if the look began a little after this.
            self._looked_at = min(self._looked_at, since)
            message = f"catalog and store did not answer for {_PATIENCE_SECONDS:g} s"
            raise Unresponsive(message) from None

    def _look(self, since: float) -> Exception | None:
        """What came of the last look that began after somebody asked."""
        if self._looked_at < since:
            self._looked_at = time.monotonic()
            self._looking = True
            try:
                self.probe()
            except Unavailable as error:
                self._error = error
            except Exception as error:  # noqa: BLE001  (told to whoever asks)
                self._error = Unavailable(str(error))
            else:
                self._error = None
            finally:
                self._looking = False
        return self._error

    def probe(self) -> None:
        """Ask catalog and store."""
        if self._catalog is None:
            known = self._lake.catalog
            self._catalog = Catalog(known.url, actor=known.actor, read_only=known.read_only)
        try:
            with self._catalog.read() as connection:
                lake_id = lakes.get(connection).lake_id
        finally:
            self._catalog.engine.dispose()  # the next one asks as a newcomer again
        require_mark(self._lake.store, lake_id)

    def close(self) -> None:
        """Nobody will ask any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._catalog is not None:
            self._catalog.close()


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
