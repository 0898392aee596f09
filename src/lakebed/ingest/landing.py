"""Landing: concurrent requests share one segment and one transaction, and each is acknowledged when
both are durable.

Requests queue; one thread takes all that wait and lands them together, so that the
next group gathers while one is synced. Every request gets an answer, even if that thread fails.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from lakebed.admission import Admission
from lakebed.catalog.acting import find_askers, on_behalf_of
from lakebed.catalog.catalog import Catalog
from lakebed.errors import Conflict, LakebedError, Unavailable
from lakebed.ingest.requests import NewBlock
from lakebed.ingest.segments import Receipt, SegmentWriter
from lakebed.storage.objects import Store
from lakebed.writing.name_reservations import NamePool

_SEGMENT_BYTES = 32 << 20
_MOST_WAITING_BYTES = 256 << 20
_GATHER_SECONDS = 0.010
_QUIET_SECONDS = 0.002


@dataclass(slots=True)
class _Waiting:
    blocks: Sequence[NewBlock]
    bytes: int
    askers: tuple[str, ...] = field(default_factory=find_askers)
    done: Future[Receipt] = field(default_factory=Future)


class Lander:
    """Lands requests for one lake. Safe to use from several threads, which share segments."""

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        names: NamePool,
        *,
        segment_bytes: int = _SEGMENT_BYTES,
        most_waiting_bytes: int = _MOST_WAITING_BYTES,
    ) -> None:
        self._writer = SegmentWriter(catalog, store, names)
        self._segment_bytes = segment_bytes
        self._queue_bytes = Admission(most_waiting_bytes, hint="send it again a little later")
        self._changed = threading.Condition()
        self._queue: deque[_Waiting] = deque()
        self._expected = 0
        self._closed = False
        self._thread: threading.Thread | None = None

    @property
    def commits(self) -> int:
        """Return how many segments were recorded; concurrent requests share one."""
        return self._writer.commits

    @property
    def waiting(self) -> tuple[int, int]:
        """Return how many requests wait to be landed, and their bytes."""
        return len(self._queue), self._queue_bytes.held

    def land(self, new: Sequence[NewBlock]) -> Future[Receipt]:
        """Land one request, all or nothing. Return its receipt as a future that is done when the
        request is durable. Wait while the queue is full."""
        waiting = _Waiting(new, sum(len(block.payload) for block in new))
        admitted = not new or self._queue_bytes.wait(waiting.bytes)
        try:
            with self._changed:
                if self._closed:
                    raise Unavailable("the lake is closed", hint="open it again")
                if not new:
                    waiting.done.set_result(Receipt())
                    return waiting.done
                if self._thread is None or not self._thread.is_alive():
                    thread = threading.Thread(target=self._run, name="lakebed-lander", daemon=True)
                    thread.start()
                    self._thread = thread
                self._queue.append(waiting)
                self._changed.notify_all()
        except BaseException:
            if admitted:
                self._queue_bytes.release(waiting.bytes)
            raise
        return waiting.done

    def close(self) -> None:
        """Land the waiting requests, then stop."""
        with self._changed:
            self._closed = True
            self._queue_bytes.close()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        group: list[_Waiting] = []
        try:
            while self._gather(group):
                # From here on a sender cannot cancel; a request that was cancelled does not land.
                self._land([one for one in group if one.done.set_running_or_notify_cancel()])
                with self._changed:
                    # Senders come back with their next request: as many as there were at once.
                    self._expected = len(group) + len(self._queue)
                group.clear()
        except BaseException as error:
            with self._changed:
                for waiting in self._queue:
                    self._queue_bytes.release(waiting.bytes)
                unanswered = [*group, *self._queue]
                self._queue.clear()
                self._thread = None  # the next request starts another
            _fail(unanswered, error)
            raise

    def _gather(self, group: list[_Waiting]) -> bool:
        """Take the next group; return False after the last one.

        Waiting a moment for as many requests as there were last time saves them a commit of their
        own. It ends when they are there, when none has come for a while, and in any case soon.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closed)
            deadline = time.monotonic() + _GATHER_SECONDS
            while (
                not self._closed
                and len(self._queue) < self._expected
                and self._queue_bytes.held < self._segment_bytes
                and (seconds := deadline - time.monotonic()) > 0
                and self._has_grown_within(min(seconds, _QUIET_SECONDS))
            ):
                pass
            size = 0
            while self._queue and (not group or size + self._queue[0].bytes <= self._segment_bytes):
                group.append(self._queue.popleft())
                size += group[-1].bytes
                self._queue_bytes.release(group[-1].bytes)
        return bool(group)

    def _has_grown_within(self, seconds: float) -> bool:
        before = len(self._queue)
        self._changed.wait_for(lambda: len(self._queue) > before or self._closed, seconds)
        return len(self._queue) > before

    def _land(self, group: Sequence[_Waiting]) -> None:
        """Land a group and answer its senders."""
        if not group:
            return
        askers = sorted({asker for waiting in group for asker in waiting.askers})
        try:
            with on_behalf_of(*askers):
                outcomes = self._writer.land([waiting.blocks for waiting in group])
        except Exception as error:  # noqa: BLE001  (a thread that died would answer nobody)
            if len(group) == 1 or isinstance(error, Unavailable | Conflict):
                _fail(group, error)
                return
            for waiting in group:  # something in one of them: the others land without it
                self._land([waiting])
            return
        for waiting, outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, Conflict):
                waiting.done.set_exception(outcome)
            else:
                waiting.done.set_result(outcome)


def _fail(group: Iterable[_Waiting], error: BaseException) -> None:
    """Fail each request with its own error: one raised in several threads grows a traceback in
    each."""
    for waiting in group:
        if waiting.done.done():
            continue
        if isinstance(error, LakebedError):
            own_error = type(error)(str(error), hint=error.hint)
        else:
            own_error = Unavailable(f"landing failed unexpectedly: {error!r}")
        own_error.__cause__ = error
        waiting.done.set_exception(own_error)
