"""What executors do for the steps of a plan: read segments and decode, or read partitions; then
sort, write and validate one file, and answer with one descriptor. A task gets paths, not rows, and
knows the store and no catalog.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from lakebed.errors import LakebedError, Unavailable, UnknownObject
from lakebed.model.block import Block
from lakebed.model.source import BlockSource
from lakebed.model.view_set import ViewSet
from lakebed.pipeline.executors import StoreAddress
from lakebed.pipeline.writing import describe, to_batch, write_once
from lakebed.storage import parquet
from lakebed.storage.objects import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.decode.blocks import LandedBlock

_LAST_ATTEMPT = 3
_READ_BYTES = 16 << 20
_READ_GAP = 256 << 10
_DECODE_BYTES = 16 << 20


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
    made = _merge(store, order, view_set) if order.is_merge else _build(store, order, view_set)
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


@dataclass(slots=True)
class _Made:
    rows: Any
    failures: list[tuple[str, str]]
    fallbacks: int = 0


def _merge(store: Store, order: BuildOrder, view_set: ViewSet) -> _Made:
    """The rows of several files of one view set."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [view_set.schema.empty_table()]
    for path, _size in order.files:
        with store.open(path) as source:
            tables.append(pq.read_table(source).cast(view_set.schema))
    return _Made(pa.concat_tables(tables), [])


def _build(store: Store, order: BuildOrder, view_set: ViewSet) -> _Made:
    """The rows that the view set's decoder makes of blocks."""
    import pyarrow as pa

    assert isinstance(view_set.source, BlockSource)  # noqa: S101
    if view_set.source.decoder == "blocks":
        from lakebed.views.blocks import make_rows

        return _Made(make_rows(order.blocks, order.processes, order.streams), [])
    decode = _find_decoder(view_set.source.decoder)
    tables: list[pa.Table] = []
    failures: list[tuple[str, str]] = []
    fallbacks = 0
    for some in _chunks(order.blocks):
        landed, damaged = read_blocks(store, some)
        failures += damaged
        decoded = decode(landed, compact=True)
        failures += [(each.block_id, each.reason) for each in decoded.failures]
        fallbacks += decoded.fallbacks
        tables.append(decoded.table)
    rows = pa.concat_tables(tables)
    return _Made(rows, failures, fallbacks)


def _find_decoder(name: str) -> Callable[..., Any]:
    from lakebed.decode import logs, metrics, spans

    return {"logs": logs.decode, "metrics": metrics.decode, "traces": spans.decode}[name]


def _chunks(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Blocks to decode at once: enough to be quick, few enough for the memory."""
    chunk: list[Block] = []
    size = 0
    for block in blocks:
        if chunk and size + block.payload_size > _DECODE_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(block)
        size += block.payload_size
    if chunk:
        yield chunk


def read_blocks(
    store: Store, blocks: Sequence[Block]
) -> tuple[list[LandedBlock], list[tuple[str, str]]]:
    """The payloads of blocks, and which of them cannot be had, with the reason."""
    from lakebed.decode.blocks import LandedBlock

    payloads: dict[str, bytes] = {}
    failures: list[tuple[str, str]] = []
    by_segment: dict[str, list[Block]] = defaultdict(list)
    for block in blocks:
        by_segment[block.segment_path].append(block)
    for path, inside in by_segment.items():
        try:
            for run in _runs(sorted(inside, key=lambda block: block.segment_offset)):
                start = run[0].segment_offset
                length = run[-1].segment_offset + run[-1].payload_size - start
                data = memoryview(store.read(path, start, length))
                for block in run:
                    at = block.segment_offset - start
                    payloads[block.block_id] = bytes(data[at : at + block.payload_size])
        except UnknownObject:
            failures += [(block.block_id, f"its segment {path} is missing") for block in inside]
    landed = []
    for block in blocks:
        payload = payloads.get(block.block_id)
        if payload is None:
            continue
        if hashlib.sha256(payload).digest() != block.payload_digest:
            failures.append((block.block_id, f"its bytes in {block.segment_path} have changed"))
            continue
        landed.append(
            LandedBlock(
                block.block_id,
                block.stream_id,
                block.process_id,
                block.insert_time,
                block.encoding,
                payload,
            )
        )
    return landed, failures


def _runs(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Blocks that are read in one go: near each other, and not too much."""
    run: list[Block] = []
    for block in blocks:
        end = block.segment_offset + block.payload_size
        if run:
            last = run[-1].segment_offset + run[-1].payload_size
            far = block.segment_offset - last > _READ_GAP
            if far or end - run[0].segment_offset > _READ_BYTES:
                yield run
                run = []
        run.append(block)
    if run:
        yield run
