"""The executors' task that writes a partition: it gets the rows of one partition, writes and
validates the file, and returns one result. It knows the store and no catalog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec

from lakebed.errors import AlreadyThere, BadInput
from lakebed.logs import Operation
from lakebed.model.view_set import ViewSet
from lakebed.pipeline.frames.types import to_view_set
from lakebed.pipeline.sessions.executors import StoreAddress
from lakebed.storage import parquet
from lakebed.storage.objects import Store
from lakebed.storage.parquet import WrittenFile

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)
RESULT = "step long, result binary"
"""The columns in which Spark hands a `TaskResult` to the driver."""


class TaskResult(msgspec.Struct, frozen=True):
    """The result of one step: a file, no file because there were no rows, or an error."""

    file: WrittenFile | None = None
    error: str | None = None
    hint: str | None = None
    failures: tuple[tuple[str, str], ...] = ()
    """Blocks that could not be decoded, with the reason."""
    fallbacks: int = 0
    attempt: int = 0
    """The number of the attempt, so that the driver knows whether there were others."""
    bucket: str = ""
    is_rejected: bool = False
    missing_files: int = 0
    """The number of files for which an insert needs names, one for each bucket; nothing was
    written."""

    def to_batch(self, step: int = 0) -> pa.RecordBatch:
        """Return one row of `RESULT`."""
        import pyarrow as pa

        columns = [pa.array([step], pa.int64()), pa.array([msgspec.msgpack.encode(self)])]
        return pa.RecordBatch.from_arrays(columns, ["step", "result"])

    def require_rows(self) -> Self:
        """Raise `BadInput` if the task refused the rows."""
        if self.error is not None:
            raise BadInput(self.error, hint=self.hint)
        return self


def read_results(rows: Iterable[Any]) -> dict[int, TaskResult]:
    """Return the results that Spark collected, by the place of their step."""
    decoder = msgspec.msgpack.Decoder(TaskResult)
    return {row["step"]: decoder.decode(row["result"]) for row in rows}


def by_position(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return these columns for `write_task`, in the view set's order and without their names:
    Spark takes a dot in a name for a path when it hands rows to Python."""
    quoted = ["`" + name.replace("`", "``") + "`" for name in columns]
    return frame.select(*quoted).toDF(*(f"c{index}" for index in range(len(columns))))


def write_task(
    address: StoreAddress, definition: str, names: Sequence[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` over one partition of rows, columns `by_position`.
    Bad rows are returned as an error, because a retry cannot mend them; any other error fails
    the attempt, and Spark repeats it."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        view_set = ViewSet.from_definition(definition)
        held = [batch for batch in batches if batch.num_rows]
        if not held:
            return
        context = TaskContext.get()
        first = context.attemptNumber() if context is not None else 0
        try:
            store = address.open()
            with Operation(_log, "write task", view_set=view_set.name, attempt=first) as operation:
                rows = pa.Table.from_batches(held).rename_columns(view_set.schema.names)
                rows = parquet.conform(to_view_set(rows, view_set), view_set)
                held.clear()
                file = write_once(store, [*names[first:], *names[:first]], rows, view_set)
                operation.add(rows=file.num_rows, bytes=file.size, path=file.path)
            yield TaskResult(file, attempt=first).to_batch()
        except BadInput as error:
            yield TaskResult(error=str(error), hint=error.hint, attempt=first).to_batch()

    return run


def write_once(
    store: Store, names: Sequence[str], rows: pa.Table, view_set: ViewSet
) -> WrittenFile:
    """Write under the first name that no other attempt has used: creating is exclusive."""
    for name in names:
        try:
            return parquet.write(store, name, rows, view_set)
        except AlreadyThere:
            continue
    raise AlreadyThere(f"all {len(names)} names for this partition were taken by other attempts")
