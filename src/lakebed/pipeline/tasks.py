"""The executors' tasks for the steps of a plan: read segments and decode, or read partitions, and
fold those of users' tables; then sort, write and validate one file, and return one result. A task
gets paths, not rows, and knows the store and no catalog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import msgspec

from lakebed.errors import DamagedFile, LakebedError, Unavailable
from lakebed.logs import Operation
from lakebed.model.block import Block
from lakebed.model.partition import Partition
from lakebed.model.tables.table import UserTable
from lakebed.model.view_set import ViewSet
from lakebed.pipeline.sessions.executors import StoreAddress
from lakebed.pipeline.writing import TaskResult, write_once
from lakebed.reading.block_reader import MadeRows, decode_blocks
from lakebed.storage import parquet
from lakebed.storage.objects import Store
from lakebed.tables.fold.fold_rows import fold_partitions
from lakebed.tables.rows.row_reader import RowReader

if TYPE_CHECKING:
    import pyarrow as pa

_LAST_ATTEMPT = 3
_log = logging.getLogger(__name__)


class BuildOrder(msgspec.Struct, frozen=True, tag=True):
    """One step as an executor gets it."""

    definition: str
    names: tuple[str, ...]
    blocks: tuple[Block, ...] = ()
    files: tuple[tuple[str, int], ...] = ()
    """Paths with their numbers of rows."""
    processes: dict[str, tuple[int, str]] = {}
    streams: dict[str, tuple[int, str]] = {}
    is_merge: bool = False


class FoldOrder(msgspec.Struct, frozen=True, tag=True):
    """Partitions of a user's table that become one, with the version from which on delete marks
    are kept."""

    table: UserTable
    partitions: tuple[Partition, ...]
    marks_from: int | None
    names: tuple[str, ...]


Order = BuildOrder | FoldOrder


def build_task(
    address: StoreAddress,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` over rows of (step, work): each is carried out by
    itself.

    Errors that a retry cannot mend are returned as results. Any other error fails the attempt, and
    Spark repeats it; the last attempt returns that too, so that one step never fails the others.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        for batch in batches:
            for row in batch.to_pylist():
                order = msgspec.msgpack.decode(row["work"], type=Order)
                try:
                    result = _carry_out_logged(address.open(), order, attempt)
                except Exception as error:
                    hopeless = isinstance(error, LakebedError) and not isinstance(
                        error, Unavailable
                    )
                    if not hopeless and attempt < _LAST_ATTEMPT:
                        raise
                    result = TaskResult(error=f"{type(error).__name__}: {error}", attempt=attempt)
                yield result.to_batch(row["step"])

    return run


def _carry_out_logged(store: Store, order: Order, attempt: int) -> TaskResult:
    if isinstance(order, FoldOrder):
        name, inputs = "fold task", len(order.partitions)
    elif order.is_merge:
        name, inputs = "merge task", len(order.files)
    else:
        name, inputs = "build task", len(order.blocks)
    with Operation(_log, name, path=order.names[0], inputs=inputs, attempt=attempt) as operation:
        result = carry_out(store, order, attempt)
        file = result.file
        operation.add(rows=file.num_rows if file else 0, bytes=file.size if file else 0)
    return result


def carry_out(store: Store, order: Order, attempt: int = 0) -> TaskResult:
    """Make, sort, write and validate the rows of one step."""
    if isinstance(order, FoldOrder):
        view_set = order.table.view_set
        step_rows = _fold(store, order)
    else:
        view_set = ViewSet.from_definition(order.definition)
        if order.is_merge:
            step_rows = _merge(store, order, view_set)
        else:
            step_rows = decode_blocks(store, view_set, order.blocks, order.processes, order.streams)
    if step_rows.failures or step_rows.rows.num_rows == 0:
        failures = tuple((block_id, reason) for block_id, reason in step_rows.failures)
        return TaskResult(failures=failures, fallbacks=step_rows.fallbacks, attempt=attempt)
    rows = parquet.conform(step_rows.rows, view_set)
    step_rows.rows = None
    first = attempt % len(order.names)
    names = [*order.names[first:], *order.names[:first]]
    file = write_once(store, names, rows, view_set)
    return TaskResult(file, fallbacks=step_rows.fallbacks, attempt=attempt)


def _fold(store: Store, order: FoldOrder) -> MadeRows:
    reader = RowReader(store)
    rows = fold_partitions(reader, order.table, order.partitions, order.marks_from)
    return MadeRows(rows, [])


def _merge(store: Store, order: BuildOrder, view_set: ViewSet) -> MadeRows:
    """Return the rows of several files of one view set."""
    import pyarrow as pa

    tables = [view_set.schema.empty_table()]
    for path, num_rows in order.files:
        rows = parquet.read_rows(store, path)
        if rows.num_rows != num_rows:
            raise DamagedFile(
                f"{path} has {rows.num_rows} rows instead of {num_rows}", hint=parquet.SEE_DAMAGE
            )
        tables.append(rows.cast(view_set.schema))
    return MadeRows(pa.concat_tables(tables), [])
