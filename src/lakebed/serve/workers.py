"""The threads on which a server does the lake's work: so many at once, and nobody waits for a free
one, or for a catalog that does not answer, longer than callers have patience.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from lakebed.admission import Admission
from lakebed.serve.health import Health

_THREADS = 64
_WAIT_SECONDS = 5.0
T = TypeVar("T")


class Workers:
    """A number of threads, used from one event loop."""

    def __init__(self, name: str, health: Health, threads: int = _THREADS) -> None:
        self._health = health
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self.admission = Admission(threads, hint="try again a little later")

    async def do(self, work: Callable[[], T], *, patient: bool = False) -> T:
        """Return the result of some work. Raise `Busy` if no thread is free in time, and
        `Unresponsive` if the catalog or the store does not respond, unless it is patient."""
        done = self._do(work, patient=patient)
        return await (done if patient else self._health.attend(done))

    async def _do(self, work: Callable[[], T], *, patient: bool) -> T:
        return await asyncio.wrap_future(await self.start(work, patient=patient))

    async def start(self, work: Callable[[], T], *, patient: bool = False) -> Future[T]:
        """Let a thread do it. `Busy` if none is free for long, unless there is patience."""
        await self.admission.wait_async(1, None if patient else _WAIT_SECONDS)
        done = self._threads.submit(work)
        # The thread is free when it has done it, even if nobody waits for that any more.
        done.add_done_callback(lambda _done: self.admission.release(1))
        return done

    def submit(self, work: Callable[[], object]) -> None:
        """Let it be done sometime; nobody waits for it."""
        self._threads.submit(work)

    def close(self) -> None:
        """Wait for what is being done."""
        self._threads.shutdown()
