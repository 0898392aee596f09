"""Check segments: each exists and has its size and, at the deepest level, every block has the
bytes that landed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence

from lakebed.catalog.catalog import Connection
from lakebed.catalog.records import blocks
from lakebed.catalog.records.blocks import Segment
from lakebed.errors import UnknownObject
from lakebed.lifecycle.checks.findings import Finding, damage
from lakebed.model.block import Block
from lakebed.storage.objects import Store

_READ_BYTES = 8 << 20


def check_file(store: Store, segment: Segment) -> list[Finding]:
    """Return the findings for a segment's file, none if it is sound."""
    path = segment.segment_path
    try:
        size = store.size(path)
    except UnknownObject:
        return [damage("missing segment", path, "is not in the store, and its blocks with it")]
    if size != segment.file_size:
        message = f"has {size} bytes, the catalog says {segment.file_size}"
        return [damage("segment size", path, message)]
    return []


def check_payloads(connection: Connection, store: Store, segment: Segment) -> Iterator[Finding]:
    """Read every block of a segment whose file is sound, and compare its digest."""
    for run in _runs(blocks.list_in_segment(connection, segment.segment_path)):
        begin = run[0].segment_offset
        length = run[-1].segment_offset + run[-1].payload_size - begin
        data = memoryview(store.read(segment.segment_path, begin, length))
        for block in run:
            at = block.segment_offset - begin
            payload = data[at : at + block.payload_size]
            if hashlib.sha256(payload).digest() != block.payload_digest:
                yield damage(
                    "block content",
                    block.block_id,
                    f"its bytes in {block.segment_path} at {block.segment_offset} are not "
                    "those that landed",
                )


def _runs(ordered: Sequence[Block]) -> Iterator[list[Block]]:
    """Yield neighbouring blocks of a segment that are read together, in bounded sizes."""
    run: list[Block] = []
    for block in ordered:
        end = block.segment_offset + block.payload_size
        if run and (
            end - run[0].segment_offset > _READ_BYTES
            or block.segment_offset < run[-1].segment_offset + run[-1].payload_size
        ):
            yield run
            run = []
        run.append(block)
    if run:
        yield run
