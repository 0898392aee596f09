"""The health of a server: a thread of its own probes catalog and store, once for all callers at a
time. Load balancers ask over HTTP or gRPC. Long work for the lake asks too, so that no request
waits for a catalog that does not respond.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from lakebed.catalog.catalog import Catalog
from lakebed.catalog.records import lakes
from lakebed.errors import Busy, NotStarted, Unavailable, Unresponsive
from lakebed.storage.marks import require_mark

if TYPE_CHECKING:
    from lakebed.lake import Lake

_UNASKED_SECONDS = 3.0
"""The time that work may take before catalog and store are probed."""
_PATIENCE_SECONDS = 5.0
"""The time limit of a probe. Most senders wait for ten seconds in all."""
T = TypeVar("T")


class Health:
    """The health of one server. Safe to use from any event loop."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._catalog: Catalog | None = None
        """A catalog with connections of its own: those of the lake may wait for writers, or be
        dead."""
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="lakebed-health")
        self._looked_at = 0.0
        self._looking = False
        self._error: Exception | None = None
        self.draining = False

    async def require(self) -> None:
        """Raise if the catalog or the store does not work, or the server is stopping."""
        if self.draining:
            raise Busy("the server is stopping")
        error = await self._ask()
        if error is not None:
            raise error

    async def attend(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of some work. Raise `Unresponsive` if the catalog or the store, for
        which the work may wait, does not respond: the work then continues without a caller. Raise
        `NotStarted` without starting it if they did not respond before."""
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
        """Return the error once the catalog or the store does not respond; other errors reach the
        requests that meet them."""
        while True:
            await asyncio.sleep(_UNASKED_SECONDS)
            try:
                await self._ask()
            except Unresponsive as error:
                return error

    async def _ask(self) -> Exception | None:
        """Return the problem of the catalog or the store; raise `Unresponsive` if they do not
        respond."""
        loop = asyncio.get_running_loop()
        since = time.monotonic()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                return await loop.run_in_executor(self._thread, self._look, since)
        except TimeoutError:
            # The next request must not start, even if the probe began a little after this.
            self._looked_at = min(self._looked_at, since)
            message = f"catalog and store did not answer for {_PATIENCE_SECONDS:g} s"
            raise Unresponsive(message) from None

    def _look(self, since: float) -> Exception | None:
        """Return the error of a probe that began after ``since``."""
        if self._looked_at < since:
            self._looked_at = time.monotonic()
            self._looking = True
            try:
                self.probe()
            except Unavailable as error:
                self._error = error
            except Exception as error:  # noqa: BLE001  (raised where the health is asked)
                self._error = Unavailable(str(error))
            else:
                self._error = None
            finally:
                self._looking = False
        return self._error

    def probe(self) -> None:
        """Raise unless the catalog and the store respond and belong together."""
        if self._catalog is None:
            catalog = self._lake.catalog
            self._catalog = Catalog(catalog.url, actor=catalog.actor, read_only=catalog.read_only)
        try:
            with self._catalog.read() as connection:
                lake_id = lakes.get(connection).lake_id
        finally:
            self._catalog.engine.dispose()  # the next probe connects again
        require_mark(self._lake.store, lake_id)

    def close(self) -> None:
        """Stop probing."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._catalog is not None:
            self._catalog.close()
