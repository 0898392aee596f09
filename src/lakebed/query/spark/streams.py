"""Results from Spark as Arrow batches, at the pace of their reader.

Batches are packed into single values where Spark computes them, and fetched one partition of the
result after the other: a slow reader holds only that partition, and neither this
process nor Spark's driver ever has the whole result. Results that are certainly small are fetched
at once, which takes one job and no Python worker. (pyspark's own ``DataFrame.__arrow_c_stream__``
does the former, but fails on timestamps in 4.3; ``toArrow`` does the latter for every result.)

A thread of its own calls Spark, so that the reader gets an error at once when the statement is
stopped. Each statement has a session of its own, so all jobs of that session are the statement's;
a tag would not do, because classic Spark finds only those of the thread that asks.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakebed.errors import BadSql, Cancelled, LakebedError
from lakebed.query.embedded.running.turns import Deadline
from lakebed.query.spark.failing import translate
from lakebed.query.spark.text import Spelling

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_AHEAD = 2
"""The number of batches that are fetched ahead of the reader."""
_BATCH_ROWS = 65_536
_PATIENCE = 10
_END = object()


class SparkStream:
    """The batches of one running statement, for one reader; `cancel` may come from any thread."""

    def __init__(
        self,
        session: SparkSession,
        frame: DataFrame,
        statement: Spelling,
        *,
        like: pa.Schema | None,
        at_once: bool,
        deadline: Deadline | None,
        resources: ExitStack,
    ) -> None:
        """``like`` has the types that the other engine would return, if it can plan the statement.
        ``resources`` are released with the stream."""
        with translate(statement):
            self.schema = _widen_types(_arrow_schema(frame), like)
        self._session = session
        self._frame = frame.toDF(*(f"c{index}" for index in range(len(self.schema))))
        self._statement = statement
        self._at_once = at_once
        self._deadline = deadline
        self._resources = resources
        self._thread: threading.Thread | None = None
        self._fetched: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._slots = threading.Semaphore(_AHEAD)
        self._stopped = threading.Event()
        self._cancelled = False

    @property
    def is_complete(self) -> bool:
        """Return True if there are batches only once Spark has computed all of them."""
        return self._at_once

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            self._start()
            while (batch := self._next()) is not None:
                if batch.num_rows:
                    yield _rename(batch, self.schema)
        finally:
            self.close()

    def cancel(self) -> None:
        """Stop the statement; its reader gets `Cancelled`."""
        self._cancelled = True
        self._fetched.put(Cancelled("the statement was cancelled"))
        self._interrupt()

    def close(self) -> None:
        """Stop the statement if it still runs, and let go of what it holds."""
        self._stopped.set()
        self._slots.release()
        thread = self._thread
        if thread is not None:
            end = time.monotonic() + _PATIENCE
            while thread.is_alive() and time.monotonic() < end:  # a job may have begun just now
                self._interrupt()
                thread.join(0.2)
            self._thread = None
        self._resources.close()

    def _start(self) -> None:
        from pyspark import InheritableThread

        self._thread = InheritableThread(
            target=self._produce, session=self._session, name="lakebed-spark", daemon=True
        )
        self._thread.start()

    def _next(self) -> pa.RecordBatch | None:
        if self._cancelled:
            raise Cancelled("the statement was cancelled")
        deadline = self._deadline
        seconds_left = None if deadline is None else max(0.0, deadline.measure_rest())
        try:
            item = self._fetched.get(timeout=seconds_left)
        except queue.Empty:
            assert deadline is not None  # noqa: S101  (without one, get waits)
            raise deadline.error() from None
        self._slots.release()
        if isinstance(item, LakebedError):
            raise item
        return None if item is _END else item

    def _produce(self) -> None:
        """Fetch batches until there are no more, or the stream is closed."""
        try:
            with translate(self._statement):
                for batch in self._fetch():
                    self._slots.acquire()
                    if self._stopped.is_set():
                        return
                    self._fetched.put(batch)
            self._fetched.put(_END)
        except LakebedError as error:
            self._fetched.put(error)

    def _fetch(self) -> Iterator[pa.RecordBatch]:
        if self._at_once:
            yield from self._frame.toArrow().to_batches(_BATCH_ROWS)
            return
        for row in self._frame.mapInArrow(_packer(), "batch binary").toLocalIterator():
            with pa.ipc.open_stream(row[0]) as packed:
                yield from packed

    def _interrupt(self) -> None:
        if self._thread is not None:
            with translate(self._statement):
                self._session.interruptAll()


def _packer() -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # sent by value: executors need not have lakebed

        for batch in batches:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            packed = sink.getvalue()
            ends = pa.array([0, packed.size], pa.int32()).buffers()[1]
            yield pa.RecordBatch.from_arrays(
                [pa.Array.from_buffers(pa.binary(), 1, [None, ends, packed])], ["batch"]
            )

    return pack


def _arrow_schema(frame: DataFrame) -> pa.Schema:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    schema = frame.schema
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except PySparkException:
        kinds = ", ".join(f"{field.name} is {field.dataType.simpleString()}" for field in schema)
        raise BadSql(f"a column has no type in arrow: {kinds}", hint="cast it") from None


def _widen_types(ours: pa.Schema, like: pa.Schema | None) -> pa.Schema:
    """Return the same columns with the other engine's numbers where those are wider: 1 is an int
    here and a bigint there. Other differences stay: see docs/dialects.md."""
    if like is None or len(like) != len(ours):
        return ours
    fields = []
    for own_field, other in zip(ours, like, strict=True):
        wider = (
            pa.types.is_signed_integer(own_field.type) and pa.types.is_signed_integer(other.type)
        ) or (pa.types.is_floating(own_field.type) and pa.types.is_floating(other.type))
        if wider and other.type.bit_width > own_field.type.bit_width:
            own_field = own_field.with_type(other.type)
        fields.append(own_field)
    return pa.schema(fields)


def _rename(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        column if column.type.equals(field.type) else column.cast(field.type)
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
