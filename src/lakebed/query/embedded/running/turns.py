"""Planning within a time limit. DataFusion plans in native code that nothing can stop, so a planner
that outlives its deadline is abandoned: its caller gets the error, and its engine is replaced,
because the planner still uses it. The number of abandoned planners is limited.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

from lakebed.errors import TimedOut, Unavailable

_MOST_ABANDONED = 8
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Deadline:
    """The time limit of one statement."""

    seconds: float
    end: float
    """On the clock of `time.monotonic`."""

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline of a statement that begins now."""
        return cls(seconds, time.monotonic() + seconds)

    def measure_rest(self) -> float:
        """Return the seconds until the deadline, negative after it."""
        return self.end - time.monotonic()

    def error(self) -> TimedOut:
        """Return the error of a statement that passed its deadline."""
        return TimedOut(
            f"the statement took longer than {self.seconds:g} s",
            hint="ask for less, or allow more time",
        )


class EngineReplaced(Exception):
    """The engine belongs to an abandoned planner; plan on the next one."""


class Workers:
    """Threads for native work that cannot be stopped."""

    def __init__(self, most_abandoned: int = _MOST_ABANDONED) -> None:
        self._most_abandoned = most_abandoned
        self._lock = threading.Lock()
        self._futures: set[Future[Any]] = set()

    def begin(self, work: Callable[[], Any], future: Future[Any]) -> None:
        """Start the work for a future, which its caller cancels to abandon it. Raise `Unavailable`
        while too much abandoned work is running."""
        with self._lock:
            abandoned = sum(running.done() for running in self._futures)
            if abandoned >= self._most_abandoned:
                raise Unavailable(
                    f"{abandoned} statements are still being planned after their time limit",
                    hint="try again later, or restart the process",
                )
            self._futures.add(future)

        def run() -> None:
            try:
                result = work()
            except BaseException as error:  # noqa: BLE001  (raised where it is waited for)
                self._end(future)
                if future.set_running_or_notify_cancel():
                    future.set_exception(error)
            else:
                self._end(future)
                if future.set_running_or_notify_cancel():
                    future.set_result(result)

        context = copy_context()
        threading.Thread(
            target=context.run, args=(run,), name="lakebed-statement", daemon=True
        ).start()

    def _end(self, future: Future[Any]) -> None:
        with self._lock:
            self._futures.discard(future)


WORKERS = Workers()
"""The workers of this process."""


class Turns:
    """Lets one statement at a time plan on an engine, until one of them is abandoned."""

    def __init__(self, release: Callable[[], None], workers: Workers = WORKERS) -> None:
        """``release`` is called when an abandoned planner has come to its end."""
        self._release = release
        self._workers = workers
        self._changed = threading.Condition()
        self._busy = self._is_working = False
        self._is_abandoned = False

    @property
    def is_abandoned(self) -> bool:
        """Return True if nothing can be planned on this engine any more."""
        return self._is_abandoned

    def take(self, work: Callable[[], T], deadline: Deadline | None = None) -> T:
        """Plan when it is this caller's turn. Raise `TimedOut` at the deadline, also while the work
        is running, and `EngineReplaced` if another planner was abandoned meanwhile."""
        with self._changed:
            seconds_left = None if deadline is None else deadline.measure_rest()
            is_free = self._changed.wait_for(
                lambda: self._is_abandoned or not self._busy, seconds_left
            )
            if self._is_abandoned:
                raise EngineReplaced
            if deadline is not None and (not is_free or deadline.measure_rest() <= 0):
                raise deadline.error()
            self._busy = True
        try:
            if deadline is None:
                return work()
            return self._work_until(work, deadline)
        finally:
            with self._changed:
                self._busy = False
                self._changed.notify_all()

    def _work_until(self, work: Callable[[], T], deadline: Deadline) -> T:
        def plan() -> T:
            try:
                return work()
            finally:
                self._note(is_working=False)

        future: Future[T] = Future()
        self._is_working = True
        try:
            self._workers.begin(plan, future)
        except BaseException:
            self._is_working = False
            raise
        try:
            return future.result(max(0, deadline.measure_rest()))
        except TimeoutError:
            if future.done() and not future.cancelled():
                return future.result()  # its own error, or a result that arrived just now
            raise deadline.error() from None
        finally:
            if not future.done():
                future.cancel()
                self._note(is_abandoned=True)

    def _note(self, *, is_working: bool | None = None, is_abandoned: bool = False) -> None:
        """Release the engine once its planner is abandoned and has come to its end."""
        with self._changed:
            self._is_working = self._is_working if is_working is None else is_working
            self._is_abandoned |= is_abandoned
            must_release = self._is_abandoned and not self._is_working
        if must_release:
            self._release()
