"""The threads on which a server works for the lake, because that waits for disks. Their number is
limited, and no request waits longer than callers do for a free one, or for a catalog that hangs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from lakebed.access.keys import Caller
from lakebed.admission import Admission
from lakebed.catalog.acting import on_behalf_of
from lakebed.errors import NotStarted, OutcomeUnknown, Unresponsive
from lakebed.serve.health import Health

_THREADS = 64
_WAIT_SECONDS = 5.0
T = TypeVar("T")


class Workers:
    """A number of threads, used from event loops."""

    def __init__(self, name: str, health: Health, threads: int = _THREADS) -> None:
        self._health = health
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self.admission = Admission(threads, hint="try again a little later")

    async def run(
        self,
        work: Callable[[], T],
        *,
        caller: Caller | None = None,
        once: bool = False,
        patient: bool = False,
    ) -> T:
        """Return the result of work that a thread does. The journal names ``caller``.

        Raise `Busy` if no thread is free in time, and `Unresponsive` if the catalog or the store
        does not respond, or `OutcomeUnknown` if the work must be done ``once``. Patient work waits
        as long as it takes.
        """
        if patient:
            return await self._run(work, caller, None)
        try:
            return await self._health.attend(self._run(work, caller, _WAIT_SECONDS))
        except NotStarted:
            raise
        except Unresponsive as error:
            if once:
                raise OutcomeUnknown(f"{error}, and it may have happened") from None
            raise

    async def _run(self, work: Callable[[], T], caller: Caller | None, seconds: float | None) -> T:
        def act() -> T:
            if caller is None:
                return work()
            with on_behalf_of(caller.asker):
                return work()

        await self.admission.wait_async(1, seconds)
        done = self._threads.submit(act)
        # The thread is free when the work is done, also if no caller waits for it any more.
        done.add_done_callback(lambda _done: self.admission.release(1))
        return await asyncio.wrap_future(done)

    def run_later(self, work: Callable[[], object]) -> None:
        """Let a thread do some work whose result is not awaited."""
        self._threads.submit(work)

    def close(self) -> None:
        """Wait for the threads to finish."""
        self._threads.shutdown()
