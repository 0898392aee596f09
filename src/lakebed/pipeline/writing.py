"""What executors do to write a partition: one task has the rows of one partition, writes and
validates the file, and returns one descriptor. It knows the store and no catalog.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from lakebed.errors import AlreadyThere, BadInput
from lakebed.logs import Operation
from lakebed.model.partition import EventRange
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
DESCRIPTOR = (
    "step long, path string, size long, num_rows long, footer binary, earliest long, latest long, "
    "statistics string, error string, hint string, failures string, fallbacks long, attempt long"
)
"""One row for each step: a file, no file (the step gave no rows), or why there is none; and which
attempt this was, so that the driver knows whether there were others."""


def by_position(frame: DataFrame, columns: Sequence[str]) -> DataFrame:
    """These columns for `write_task`, in the view set's order and without their names: Spark takes
    a dot in a name for a path when it hands rows to Python."""
    quoted = ["`" + name.replace("`", "``") + "`" for name in columns]
    return frame.select(*quoted).toDF(*(f"c{place}" for place in range(len(columns))))


def write_task(
    address: StoreAddress, definition: str, names: Sequence[str]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow` over one partition of rows, columns `by_position`. Wrong rows
    are described, because trying them again is of no use; anything else fails the attempt, and
    Spark repeats it."""

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
            yield to_batch(describe(file) | {"attempt": first})
        except BadInput as error:
            yield to_batch({"error": str(error), "hint": error.hint, "attempt": first})

    return run


def write_once(
    store: Store, names: Sequence[str], rows: pa.Table, view_set: ViewSet
) -> WrittenFile:
    """Write under the first name that no other attempt has taken: creating is exclusive."""
    for name in names:
        try:
            return parquet.write(store, name, rows, view_set)
        except AlreadyThere:
            continue
    raise AlreadyThere(f"all {len(names)} names for this partition were taken by other attempts")


def describe(file: WrittenFile) -> dict[str, Any]:
    """What the driver needs to publish a file."""
    return {
        "path": file.path,
        "size": file.size,
        "num_rows": file.num_rows,
        "footer": file.footer,
        "earliest": file.events.earliest,
        "latest": file.events.latest,
        "statistics": json.dumps(file.statistics),
    }


def to_batch(values: dict[str, Any], kind: str = DESCRIPTOR) -> pa.RecordBatch:
    """One descriptor as Spark takes it."""
    import pyarrow as pa

    kinds = {"string": pa.string(), "long": pa.int64(), "binary": pa.binary()}
    columns = [column.split() for column in kind.split(", ")]
    schema = pa.schema([(name, kinds[kind]) for name, kind in columns])
    return pa.RecordBatch.from_pylist([values], schema=schema)


def read_descriptor(row: Any) -> WrittenFile:
    """The file that a task described; `BadInput` if it refused the rows instead."""
    if row["error"] is not None:
        raise BadInput(row["error"], hint=row["hint"])
    return WrittenFile(
        path=row["path"],
        size=row["size"],
        num_rows=row["num_rows"],
        footer=bytes(row["footer"]),
        events=EventRange(row["earliest"], row["latest"]),
        statistics=json.loads(row["statistics"]),
    )
