"""Streamed results that can be stopped: by their reader, by a time limit, or from another thread.
The engine stops at its next pause; its reader gets the error at once.
"""

from __future__ import annotations

import asyncio
import atexit
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from functools import cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import DataFrame

from lakebed.errors import Cancelled, Damage, LakebedError, TimedOut
from lakebed.query.embedded.failing import out_of_disk, out_of_memory, translate
from lakebed.query.embedded.running.spilling import SpillFolder
from lakebed.query.embedded.running.turns import WORKERS, Deadline
from lakebed.query.embedded.types import without_views

_LAST_WAIT, _WAY_BACK, _WAY_BACK_FROM_WORK = 1.0, 0.05, 0.5
_TOGETHER_BYTES, _TOGETHER_SECONDS = 1 << 20, 0.02
_SPILL_INTERVAL_SECONDS = 0.25
_making_loop = threading.Lock()
_stopped: list[float] = []
"""The time at which a running statement was last stopped."""


def _loop() -> asyncio.AbstractEventLoop:
    """Return the one event loop of the process, and make it first if necessary: batches are awaited
    there, so that they can be cancelled."""
    with _making_loop:
        return _make_loop()


@cache
def _make_loop() -> asyncio.AbstractEventLoop:
    ready: Future[asyncio.AbstractEventLoop] = Future()

    def run() -> None:  # Ctrl-C never interrupts this thread, where it would leave half a loop
        loop = asyncio.new_event_loop()
        ready.set_result(loop)
        loop.run_forever()
        loop.run_until_complete(_cancel_all())

    thread = threading.Thread(target=run, name="lakebed-queries", daemon=True)
    thread.start()
    loop = ready.result()
    atexit.register(_end, loop, thread)
    return loop


async def _cancel_all() -> None:
    """Cancel all tasks, so that nothing waits when the loop ends; Python would warn of such a
    task."""
    while tasks := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    """Stop the loop before the interpreter ends. The engine's own threads report each batch to the
    loop; a thread that returns from Python after the loop's end would crash the process."""
    loop.call_soon_threadsafe(loop.stop)
    thread.join(_LAST_WAIT)
    at_work = bool(_stopped) and time.monotonic() - _stopped[-1] < _LAST_WAIT
    time.sleep(_WAY_BACK_FROM_WORK if at_work else _WAY_BACK)
    if not thread.is_alive():
        loop.close()


class BatchStream:
    """The batches of one running statement, in plain types. To be read by one thread; `cancel` may
    come from any."""

    def __init__(
        self,
        frame: DataFrame,
        sql: str,
        deadline: Deadline | None,
        *,
        spills: SpillWatch | None = None,
        at_once: bool = False,
        most_rows: int | None = None,
        secrets: Collection[str] = (),
    ) -> None:
        """``at_once`` is for statements with little to do. Texts are returned without
        ``secrets``."""
        self.schema = without_views(frame.schema())
        self._execution = _Execution(frame)
        self._spills = spills
        self._sql = sql
        self._deadline = deadline
        self._running: _Pump | None = None
        self._waiting: Future[Any] | None = None
        self._at_once = at_once
        self._rows_left = most_rows
        self._secrets = secrets
        self._begun = self._cancelled = False
        self._failure: LakebedError | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            while batches := self._next():
                for batch in batches:
                    rows = batch.slice(0, self._rows_left)
                    if self._rows_left is not None:
                        self._rows_left -= rows.num_rows
                    if rows.num_rows:
                        plain = _in_plain_types(rows, self.schema)
                        yield _without_secrets(plain, self._secrets) if self._secrets else plain
        finally:
            self.close()

    @property
    def is_complete(self) -> bool:
        """Return True if the engine has no more batches."""
        return self._begun and (self._running is None or self._running.is_complete)

    def _next(self) -> Sequence[pa.RecordBatch]:
        """Return the next few batches; an empty list at the end."""
        if self._cancelled:
            raise self._find_reason()
        try:
            with translate(self._sql):
                return self._fetch()
        except Damage as error:
            if error.unless_damaged is None and self._execution.may_repeat_input():
                error.unless_damaged = out_of_memory("a join did not fit, and could not spill")
            raise

    def _fetch(self) -> Sequence[pa.RecordBatch]:
        running = self._running
        if running is None:
            if self._begun:
                return ()
            self._begun = True
            if self._at_once:
                batches = self._wait(partial(WORKERS.begin, self._execution.collect))
                return [batch for batch in batches if batch.num_rows]
            self._wait(partial(WORKERS.begin, self._execution.start))
            self._running = running = _Pump(self._execution)
            if self._spills is not None:
                _loop().call_soon_threadsafe(self._spills.add, self)
        fetched: Sequence[pa.RecordBatch] = self._wait(
            lambda future: _loop().call_soon_threadsafe(running.begin, future)
        )
        return fetched

    def _wait(self, begin: Callable[[Future[Any]], object]) -> Any:
        """Let ``begin`` start work on another thread, and wait for it until the time limit."""
        seconds_left = None if self._deadline is None else self._deadline.measure_rest()
        if seconds_left is not None and seconds_left <= 0:  # also if all rows would arrive at once
            raise self._timed_out()
        waiting: Future[Any] = Future()
        self._waiting = waiting
        begin(waiting)
        if self._cancelled:  # meanwhile, by a thread that had nothing to cancel yet
            waiting.cancel()
        try:
            result = waiting.result(seconds_left)
        except CancelledError:
            raise self._find_reason() from None
        except TimeoutError:
            raise self._timed_out() from None
        if self._cancelled:  # too late to prevent the result
            raise self._find_reason()
        return result

    def _find_reason(self) -> LakebedError:
        """Return why the statement was stopped."""
        return self._failure or Cancelled("the statement was cancelled")

    def _timed_out(self) -> TimedOut:
        self.close()
        assert self._deadline is not None  # noqa: S101  (without one, this is not reached)
        return self._deadline.error()

    def count_spilled_bytes(self) -> int:
        """Return how many bytes the statement has written to disk."""
        return self._execution.count_spilled_bytes()

    def fail(self, error: LakebedError) -> None:
        """Stop the statement; its reader gets this error."""
        self._failure = error
        self.cancel()

    def cancel(self) -> None:
        """Stop the statement; its reader gets `Cancelled`."""
        self._cancelled = True
        if self._waiting is not None:
            self._waiting.cancel()

    def close(self) -> None:
        """Stop the statement if it still runs, and let go of what it holds."""
        self._cancelled = True  # for a reader that is about to begin
        if self._waiting is not None and not self._waiting.done():
            self._waiting.cancel()
        if self._running is not None:
            _loop().call_soon_threadsafe(self._running.stop)
            if self._spills is not None:
                _loop().call_soon_threadsafe(self._spills.remove, self)
        else:
            self._execution.release()
        self._running = self._waiting = None


class SpillWatch:
    """Ends the statement that spilled most while the spill files of an engine are too large. Its
    timer runs on the loop, only while there are statements."""

    def __init__(self, folder: SpillFolder, interval: float = _SPILL_INTERVAL_SECONDS) -> None:
        self._folder = folder
        self._interval = interval
        self._streams: set[BatchStream] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: BatchStream) -> None:
        """Watch a statement that has begun; on the loop only."""
        self._folder.enter()
        self._streams.add(stream)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval, self._look)

    def remove(self, stream: BatchStream) -> None:
        """Forget a statement that has ended; on the loop only."""
        if stream in self._streams:
            self._streams.discard(stream)
            self._folder.leave()

    def _look(self) -> None:
        self._timer = None
        if not self._streams:
            return
        self._timer = asyncio.get_running_loop().call_later(self._interval, self._look)
        if self._folder.measure() > self._folder.limit_bytes:
            largest = max(self._streams, key=BatchStream.count_spilled_bytes)
            if largest.count_spilled_bytes():
                largest.fail(out_of_disk(self._folder.limit_bytes))


class _Execution:
    """The engine's objects of one statement. Stored errors have frames that may refer to it, so it
    drops the objects itself: a plan holds spill files, and a stream keeps the engine at work."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame: DataFrame | None = frame
        self._stream: Any = None

    def start(self) -> None:
        """Start the statement."""
        frame = self._frame
        if frame is None:
            return
        stream = frame.execute_stream()
        if self._frame is not None:  # and not released meanwhile
            self._stream = stream

    def collect(self) -> list[pa.RecordBatch]:
        """Return all batches of a statement that has next to nothing to do."""
        frame = self._frame
        return [] if frame is None else frame.collect()

    def advance(self) -> asyncio.Future[Any] | None:
        """Begin to compute the next batch; None after the release."""
        if self._stream is None:
            return None
        # Not by its own __anext__: a stored error would keep the frame of that,
        # and with it the statement, running.
        batch: asyncio.Future[Any] = asyncio.ensure_future(self._stream.rbs.__anext__())
        return batch

    def count_spilled_bytes(self) -> int:
        """Return how many bytes the operators of the plan have written to disk."""
        frame = self._frame
        if frame is None or self._stream is None:
            return 0
        measured = frame.execution_plan().collect_metrics()
        return sum(metrics.spilled_bytes or 0 for _, metrics in measured)

    def may_repeat_input(self) -> bool:
        """Return True if the plan has a join that executes its left input again when memory is
        full. DataFusion 55 panics then if that input is repartitioned ("partition not used yet"):
        test_a_join_that_cannot_spill_is_out_of_memory fails once it does not."""
        frame = self._frame
        if frame is None or self._stream is None:
            return False
        return "NestedLoopJoinExec" in frame.execution_plan().display_indent()

    def release(self) -> None:
        """Drop the engine's objects."""
        self._frame = self._stream = None


class _Pump:
    """Awaits a running statement's batches, on the loop."""

    def __init__(self, execution: _Execution) -> None:
        self.is_complete = False
        self._execution = execution
        self._stopped = False
        self._pending: asyncio.Future[Any] | None = None

    def begin(self, waiter: Future[Any]) -> None:
        """Take the next batches for another thread, which may cancel the wait, or be interrupted at
        any moment; on the loop only."""
        if waiter.cancelled() or self._stopped:
            waiter.cancel()
            return
        task = asyncio.ensure_future(self.take())
        loop = asyncio.get_running_loop()
        waiter.add_done_callback(lambda _done: loop.call_soon_threadsafe(task.cancel))
        task.add_done_callback(lambda finished: _hand_over(finished, waiter))

    async def take(self) -> list[pa.RecordBatch]:
        """Return the next batches, small ones together, because each trip to the loop and back
        takes time; but never delay one for the next. Empty at the end."""
        batches: list[pa.RecordBatch] = []
        size = 0
        until = time.monotonic() + _TOGETHER_SECONDS
        while not batches or size < _TOGETHER_BYTES:
            if self._pending is None:
                self._pending = self._execution.advance()
            if self._pending is None:
                break
            timeout = None if not batches else max(0, until - time.monotonic())
            try:
                done, _ = await asyncio.wait({self._pending}, timeout=timeout)
            except asyncio.CancelledError:
                self.stop()
                raise
            if not done:
                break
            pending, self._pending = self._pending, None
            try:
                batch = pending.result().to_pyarrow()
            except StopAsyncIteration:
                self.is_complete = True
                break
            batches.append(batch)
            size += batch.nbytes
        return batches

    def stop(self) -> None:
        """Release the statement; on the loop only."""
        if self._pending is not None:
            self._pending.cancel()
            _stopped[:] = [time.monotonic()]
        self._stopped = True
        self._pending = None
        self._execution.release()


def _hand_over(finished: asyncio.Task[Any], waiter: Future[Any]) -> None:
    """Hand the result of a task to the thread that waits for it, if it still does."""
    error = None if finished.cancelled() else finished.exception()
    if finished.cancelled():
        waiter.cancel()
    elif not waiter.set_running_or_notify_cancel():
        return
    elif error is not None:
        waiter.set_exception(error)
    else:
        waiter.set_result(finished.result())


def _in_plain_types(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    columns = [
        column if column.type == field.type else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _without_secrets(batch: pa.RecordBatch, secrets: Collection[str]) -> pa.RecordBatch:
    columns = []
    for column in batch.columns:
        if pa.types.is_string(column.type):
            for secret in secrets:
                column = pc.replace_substring(column, secret, "")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)
