"""Admission control: a request waits, or fails with `Busy`, until what it needs is free.

Everything that a process has only so much of is an `Admission` of its own: bytes of requests in
memory, bytes that are parsed at once, bytes that wait to be landed, worker threads, open calls.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

from lakebed.errors import Busy


class Admission:
    """A number of units that requests hold while they are served.

    Requests that wait are admitted in order. One that needs more than all units is admitted alone.
    Safe to use from several threads and event loops.
    """

    def __init__(self, units: int, *, hint: str, message: str | None = None) -> None:
        """``message`` and ``hint`` are those of `Busy`."""
        self.units = units
        self._message = message or "the server has too much to do"
        self._hint = hint
        self._lock = threading.Lock()
        self._held = 0
        self._waiting: deque[tuple[int, Future[bool]]] = deque()
        self._closed = False

    @property
    def held(self) -> int:
        """Return how many units requests hold."""
        return self._held

    @property
    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self._waiting)

    def take(self, units: int) -> None:
        """Hold units that are free; raise `Busy` if they are not."""
        with self._lock:
            if self._held + units > self.units:
                raise Busy(self._message, hint=self._hint)
            self._held += units

    def wait(self, units: int) -> bool:
        """Hold units as soon as they are free; return False without them after `close`."""
        admitted = self._join_queue(units)
        try:
            return admitted.result()
        except BaseException:
            self._leave_queue(units, admitted)
            raise

    async def wait_async(self, units: int, seconds: float | None = None) -> None:
        """Hold units as soon as they are free; raise `Busy` if that takes longer than ``seconds``.

        Limits that are closed must use `wait`.
        """
        admitted = self._join_queue(units)
        if admitted.done():
            return
        try:
            async with asyncio.timeout(seconds):
                await asyncio.wrap_future(admitted)
        except BaseException as error:
            self._leave_queue(units, admitted)
            if isinstance(error, TimeoutError):
                raise Busy(self._message, hint=self._hint) from None
            raise

    def release(self, units: int) -> None:
        """Give back units, and admit the requests that wait for them."""
        with self._lock:
            self._held -= min(units, self.units)
            self._admit()

    @contextmanager
    def hold(self, units: int) -> Iterator[None]:
        """Hold units for the length of a block, which begins as soon as they are free."""
        self.wait(units)
        try:
            yield
        finally:
            self.release(units)

    @contextmanager
    def share(self) -> Iterator[Share]:
        """Yield what one request holds; it is given back at the end of the block."""
        share = Share(self)
        try:
            yield share
        finally:
            self.release(share.units)

    def close(self) -> None:
        """End the wait of every request, also of later ones."""
        with self._lock:
            self._closed = True
            self._admit()

    def _join_queue(self, units: int) -> Future[bool]:
        admitted: Future[bool] = Future()
        with self._lock:
            self._waiting.append((min(units, self.units), admitted))
            self._admit()
        return admitted

    def _leave_queue(self, units: int, admitted: Future[bool]) -> None:
        """Give up waiting; a request that was admitted meanwhile gives back its units."""
        with self._lock:
            if not admitted.cancel() and admitted.result():
                self._held -= min(units, self.units)
            self._admit()

    def _admit(self) -> None:
        """Admit the first requests that wait, as many as have room. The lock must be held."""
        while self._waiting:
            units, admitted = self._waiting[0]
            if admitted.cancelled():
                self._waiting.popleft()
                continue
            if not self._closed and self._held + units > self.units:
                return
            self._waiting.popleft()
            if admitted.set_running_or_notify_cancel():
                self._held += 0 if self._closed else units
                admitted.set_result(not self._closed)


class Share:
    """The units that one request holds, which grow while it is received."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self.units = 0

    def add(self, units: int) -> None:
        """Hold more units; raise `Busy` if they are not free."""
        self._admission.take(units)
        self.units += units
