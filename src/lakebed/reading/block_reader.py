"""Decode blocks to the rows of a view set: read payloads from segments, verify and decode. The
same on an executor that builds a partition and in a query that reads what is not built yet.
"""

from __future__ import annotations

import hashlib
import importlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from lakebed.errors import UnknownObject
from lakebed.model.block import Block
from lakebed.model.signal import Signal
from lakebed.model.source import BlockSource
from lakebed.model.view_set import ViewSet
from lakebed.storage.objects import Store

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.decode.blocks import LandedBlock

_READ_BYTES = 16 << 20
_READ_GAP = 256 << 10
_DECODE_BYTES = 16 << 20

Senders = Mapping[str, tuple[int, str]]
"""Processes or streams by id: insert time and properties."""


@dataclass(slots=True)
class MadeRows:
    """Decoded rows, and the blocks that could not be decoded, with the reason."""

    rows: Any
    failures: list[tuple[str, str]]
    fallbacks: int = 0


def decode_blocks(
    store: Store,
    view_set: ViewSet,
    blocks: Sequence[Block],
    processes: Senders,
    streams: Senders,
) -> MadeRows:
    """Decode blocks with the view set's decoder."""
    import pyarrow as pa

    assert isinstance(view_set.source, BlockSource)  # noqa: S101
    if view_set.source.decoder == "blocks":
        from lakebed.views.blocks import make_rows

        return MadeRows(make_rows(blocks, processes, streams), [])
    decode = _find_decoder(view_set.source.decoder)
    tables: list[pa.Table] = []
    failures: list[tuple[str, str]] = []
    fallbacks = 0
    for chunk in _chunks(blocks):
        landed, damaged = read_blocks(store, chunk)
        failures += damaged
        decoded = decode(landed, compact=True)
        failures += [(failure.block_id, failure.reason) for failure in decoded.failures]
        fallbacks += decoded.fallbacks
        tables.append(decoded.table)
    rows = pa.concat_tables(tables)
    return MadeRows(rows, failures, fallbacks)


def _find_decoder(name: str) -> Callable[..., Any]:
    decoder = importlib.import_module(f"lakebed.decode.{Signal(name).spec.group}").decode
    return cast("Callable[..., Any]", decoder)


def _chunks(blocks: Sequence[Block]) -> Iterator[list[Block]]:
    """Yield blocks in chunks: large enough for speed, small enough for memory."""
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
    """Return the payloads of blocks, and the blocks that cannot be read, with the reason."""
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
    """Yield groups of blocks to read in one request: near each other and of limited size."""
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
