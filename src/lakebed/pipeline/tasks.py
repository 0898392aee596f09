"""What executors do for the steps of a plan: read segments and decode, or read partitions; then
sort, write and validate one file, and answer with one descriptor. A task gets paths, not rows, and
knows the store and no catalog.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from lakebed.errors import LakebedError, Unavailable
from lakebed.model.block import Block
from lakebed.model.view_set import ViewSet
from lakebed.partitions.decoding import MadeRows, decode_blocks
from lakebed.pipeline.executors import StoreAddress
from lakebed.pipeline.writing import describe, to_batch, write_once
from lakebed.storage import parquet
from lakebed.storage.objects import Store

if TYPE_CHECKING:
    import pyarrow as pa

_LAST_ATTEMPT = 3


class BuildOrder(msgspec.Struct, frozen=True):
    """One step as an executor gets it."""

    definition: str
    names: tuple[str, ...]
    blocks: tuple[Block, ...] = ()
    files: tuple[tuple[str, int], ...] = ()
    processes: dict[str, tuple[int, str]] = {}
    streams: dict[str, tuple[int, str]] = {}
    is_merge: bool = False


def build_task(
    address: StoreAddress,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function for `mapInArrow` over rows of (step, work): each is carried out by itself.

    What can never succeed is described. Anything else fails the attempt, and Spark repeats it; the
    last attempt describes that too, so that one step never fails the others.
    """

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        for batch in batches:
            for row in batch.to_pylist():
                order = msgspec.msgpack.decode(row["work"], type=BuildOrder)
                try:
                    answer = carry_out(address.open(), order, attempt)
                except Exception as error:
                    hopeless = isinstance(error, LakebedError) and not isinstance(
                        error, Unavailable
                    )
                    if not hopeless and attempt < _LAST_ATTEMPT:
                        raise
                    answer = {"error": f"{type(error).__name__}: {error}"}
                yield to_batch(answer | {"step": row["step"], "attempt": attempt})

    return run


def carry_out(store: Store, order: BuildOrder, attempt: int = 0) -> dict[str, Any]:
    """Do one step; its descriptor."""
    view_set = ViewSet.from_definition(order.definition)
    if order.is_merge:
        made = _merge(store, order, view_set)
    else:
        made = decode_blocks(store, view_set, order.blocks, order.processes, order.streams)
    answer: dict[str, Any] = {"fallbacks": made.fallbacks}
    if made.failures:
        return answer | {"failures": json.dumps(made.failures)}
    if made.rows.num_rows == 0:
        return answer
    rows = parquet.conform(made.rows, view_set)
    made.rows = None
    first = attempt % len(order.names)
    names = [*order.names[first:], *order.names[:first]]
    return answer | describe(write_once(store, names, rows, view_set))


def _merge(store: Store, order: BuildOrder, view_set: ViewSet) -> MadeRows:
    """The rows of several files of one view set."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [view_set.schema.empty_table()]
    for path, _size in order.files:
        with store.open(path) as source:
            tables.append(pq.read_table(source).cast(view_set.schema))
    return MadeRows(pa.concat_tables(tables), [])
