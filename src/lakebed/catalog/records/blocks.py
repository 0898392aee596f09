"""Blocks: landed bytes, from which partitions are built. This module decides which partitions can
be built again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import msgspec
import sqlalchemy as sa

from lakebed.catalog import clock
from lakebed.catalog.expressions import one_of, one_of_bound
from lakebed.catalog.schema import blocks, processes, segments, streams
from lakebed.model.block import Block, Process, Stream
from lakebed.model.partition import NO_SOURCE, Partition
from lakebed.model.time import TimeRange

_PAGE_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Segment:
    """A stored object that holds blocks."""

    segment_path: str
    file_size: int
    insert_time: int


_DIGESTS = sa.select(blocks.c.block_id, blocks.c.payload_digest).where(
    one_of_bound(blocks.c.block_id, "wanted")
)


def find_digests(connection: sa.Connection, block_ids: Sequence[str]) -> dict[str, bytes]:
    """Return the payload digests of those blocks that have landed already."""
    rows = connection.execute(_DIGESTS, {"wanted": list(block_ids)})
    return {block_id: bytes(digest) for block_id, digest in rows}


def insert_segment(connection: sa.Connection, segment: Segment, landed: Sequence[Block]) -> None:
    """Record a durable segment with all its blocks."""
    connection.execute(
        sa.insert(segments),
        {
            "segment_path": segment.segment_path,
            "file_size": segment.file_size,
            "insert_time": segment.insert_time,
        },
    )
    connection.execute(
        sa.insert(blocks),
        [
            {
                "block_id": block.block_id,
                "stream_id": block.stream_id,
                "process_id": block.process_id,
                "insert_time": block.insert_time,
                "begin_time": block.begin_time,
                "end_time": block.end_time,
                "nb_objects": block.nb_objects,
                "encoding": block.encoding,
                "payload_digest": block.payload_digest,
                "segment_path": block.segment_path,
                "segment_offset": block.segment_offset,
                "payload_size": block.payload_size,
            }
            for block in landed
        ],
    )


def insert_senders(
    connection: sa.Connection,
    new_processes: Sequence[Process],
    new_streams: Sequence[Stream],
    tick: int,
) -> None:
    """Record processes and streams that are not recorded yet; the clock keeps this unique."""
    if new_processes:
        ids = [process.process_id for process in new_processes]
        existing = sa.select(processes.c.process_id).where(one_of(processes.c.process_id, ids))
        existing_ids = set(connection.scalars(existing))
        rows = [
            {
                "process_id": process.process_id,
                "properties": _encode(process.properties),
                "insert_time": tick,
            }
            for process in new_processes
            if process.process_id not in existing_ids
        ]
        if rows:
            connection.execute(sa.insert(processes), rows)
    if new_streams:
        ids = [stream.stream_id for stream in new_streams]
        existing_ids = set(
            connection.scalars(
                sa.select(streams.c.stream_id).where(one_of(streams.c.stream_id, ids))
            )
        )
        rows = [
            {
                "stream_id": stream.stream_id,
                "process_id": stream.process_id,
                "properties": _encode(stream.properties),
                "insert_time": tick,
            }
            for stream in new_streams
            if stream.stream_id not in existing_ids
        ]
        if rows:
            connection.execute(sa.insert(streams), rows)


def _encode(properties: dict[str, object]) -> str:
    return msgspec.json.encode(properties, order="deterministic").decode()


def has_segment(connection: sa.Connection, segment_path: str) -> bool:
    """Return True if a segment was recorded."""
    query = sa.select(segments.c.segment_path).where(segments.c.segment_path == segment_path)
    return connection.scalar(query) is not None


def list_blocks(
    connection: sa.Connection,
    within: TimeRange,
    encodings: Iterable[str] | None = None,
) -> list[Block]:
    """Return the blocks that landed in a range, in the order of their insert times."""
    query = sa.select(blocks).where(
        blocks.c.insert_time >= within.begin, blocks.c.insert_time < within.end
    )
    if encodings is not None:
        query = query.where(blocks.c.encoding.in_(list(encodings)))
    return [_read(row) for row in connection.execute(query.order_by(blocks.c.insert_time))]


def find_first(
    connection: sa.Connection, within: TimeRange, encodings: Iterable[str] | None = None
) -> int | None:
    """Return the insert time of the first block of a range, or None."""
    query = sa.select(sa.func.min(blocks.c.insert_time)).where(
        blocks.c.insert_time >= within.begin, blocks.c.insert_time < within.end
    )
    if encodings is not None:
        query = query.where(blocks.c.encoding.in_(list(encodings)))
    insert_time = connection.scalar(query)
    return None if insert_time is None else int(insert_time)


def list_blocks_in(connection: sa.Connection, ranges: Sequence[TimeRange]) -> list[Block]:
    """Return the blocks of any kind that landed in one of a few ranges, by insert time."""
    bounds = {
        f"{edge}{index}": getattr(insert_times, edge)
        for index, insert_times in enumerate(ranges)
        for edge in ("begin", "end")
    }
    return [_read(row) for row in connection.execute(_in_ranges(len(ranges)), bounds)]


@cache
def _in_ranges(count: int) -> sa.Select[tuple[object, ...]]:
    """Return the query for this number of ranges, cached because building it takes longer than
    running it."""
    inside = sa.or_(
        sa.false(),
        *(
            sa.and_(
                blocks.c.insert_time >= sa.bindparam(f"begin{index}", type_=sa.BigInteger),
                blocks.c.insert_time < sa.bindparam(f"end{index}", type_=sa.BigInteger),
            )
            for index in range(count)
        ),
    )
    return sa.select(blocks).where(inside).order_by(blocks.c.insert_time)


def list_senders(
    connection: sa.Connection, within: TimeRange
) -> tuple[dict[str, tuple[int, str]], dict[str, tuple[int, str]]]:
    """Return the processes and streams of the blocks in a range: by id, insert time and
    properties."""
    landed = sa.and_(blocks.c.insert_time >= within.begin, blocks.c.insert_time < within.end)
    senders: list[dict[str, tuple[int, str]]] = []
    for table, key in ((processes, "process_id"), (streams, "stream_id")):
        ids = sa.select(blocks.c[key]).where(landed)
        rows = connection.execute(
            sa.select(table.c[key], table.c.insert_time, table.c.properties).where(
                table.c[key].in_(ids)
            )
        )
        senders.append({row[0]: (row[1], row[2]) for row in rows})
    return senders[0], senders[1]


def first_insert_time(connection: sa.Connection) -> int | None:
    """Return the insert time of the oldest block, or None."""
    insert_time = connection.scalar(sa.select(sa.func.min(blocks.c.insert_time)))
    return None if insert_time is None else int(insert_time)


def last_insert_time(connection: sa.Connection, before: int | None = None) -> int | None:
    """Return the insert time of the newest block, or of the newest before a tick, or None."""
    query = sa.select(sa.func.max(blocks.c.insert_time))
    if before is not None:
        query = query.where(blocks.c.insert_time < before)
    insert_time = connection.scalar(query)
    return None if insert_time is None else int(insert_time)


def list_segments(connection: sa.Connection) -> list[Segment]:
    """Return every segment, by path."""
    rows = connection.execute(sa.select(segments).order_by(segments.c.segment_path))
    return [Segment(row.segment_path, row.file_size, row.insert_time) for row in rows]


def list_segments_among(connection: sa.Connection, paths: Sequence[str]) -> list[str]:
    """Return those of the paths at which a segment is recorded."""
    query = sa.select(segments.c.segment_path).where(one_of(segments.c.segment_path, paths))
    return sorted(connection.scalars(query))


def count_blocks(connection: sa.Connection) -> int:
    """Return the number of blocks."""
    return int(connection.scalar(sa.select(sa.func.count()).select_from(blocks)) or 0)


def find_boundary(connection: sa.Connection, before: int) -> int:
    """Return the last tick up to the given one at which no segment has blocks on both sides. A
    segment's blocks have consecutive ticks: they landed in one transaction."""
    at = sa.select(blocks.c.segment_path).where(blocks.c.insert_time >= before)
    segment = connection.scalar(at.order_by(blocks.c.insert_time).limit(1))
    if segment is None:
        return before
    first = sa.select(sa.func.min(blocks.c.insert_time)).where(blocks.c.segment_path == segment)
    return min(before, int(connection.scalar(first) or before))


def list_segments_before(connection: sa.Connection, tick: int) -> list[Segment]:
    """Return the segments whose blocks landed before a tick, by path. The tick must be a
    boundary."""
    old = sa.select(blocks.c.segment_path).where(blocks.c.insert_time < tick)
    rows = connection.execute(
        sa.select(segments)
        .where(segments.c.segment_path.in_(old))
        .order_by(segments.c.segment_path)
    )
    return [Segment(row.segment_path, row.file_size, row.insert_time) for row in rows]


def count_before(connection: sa.Connection, tick: int) -> int:
    """Return the number of blocks that landed before a tick."""
    query = sa.select(sa.func.count()).select_from(blocks).where(blocks.c.insert_time < tick)
    return int(connection.scalar(query) or 0)


def delete_before(connection: sa.Connection, tick: int) -> None:
    """Delete the rows of blocks and segments that landed before a tick, which must be a
    boundary."""
    old = sa.select(blocks.c.segment_path).where(blocks.c.insert_time < tick)
    connection.execute(sa.delete(segments).where(segments.c.segment_path.in_(old)))
    connection.execute(sa.delete(blocks).where(blocks.c.insert_time < tick))


def list_in_segment(connection: sa.Connection, segment_path: str) -> list[Block]:
    """Return the blocks of one segment, in the order of their bytes."""
    query = sa.select(blocks).where(blocks.c.segment_path == segment_path)
    rows = connection.execute(query.order_by(blocks.c.segment_offset))
    return [_read(row) for row in rows]


def list_ids(connection: sa.Connection) -> Iterator[list[tuple[int, str, str]]]:
    """Yield insert time, encoding and id of every block, in the order of landing, in pages."""
    result = connection.execution_options(yield_per=_PAGE_ROWS).execute(
        sa.select(blocks.c.insert_time, blocks.c.encoding, blocks.c.block_id).order_by(
            blocks.c.insert_time
        )
    )
    for page in result.partitions(_PAGE_ROWS):
        yield [(row.insert_time, row.encoding, row.block_id) for row in page]


def _read(row: sa.Row[tuple[object, ...]]) -> Block:
    return Block(
        block_id=row.block_id,
        stream_id=row.stream_id,
        process_id=row.process_id,
        insert_time=row.insert_time,
        begin_time=row.begin_time,
        end_time=row.end_time,
        nb_objects=row.nb_objects,
        encoding=row.encoding,
        payload_digest=bytes(row.payload_digest),
        segment_path=row.segment_path,
        segment_offset=row.segment_offset,
        payload_size=row.payload_size,
    )


def list_rebuildable(connection: sa.Connection, partitions: Sequence[Partition]) -> set[str]:
    """Return the ids of those partitions whose rows could be built again: their insert range has
    blocks and none of it is frozen, or they have no rows."""
    rebuildable = {partition.partition_id for partition in partitions if partition.is_empty}
    if connection.scalar(sa.select(blocks.c.block_id).limit(1)) is None:
        return rebuildable
    frozen_before = clock.blocks_from(connection)
    for partition in partitions:
        if partition.is_empty or partition.source_hash == NO_SOURCE:
            continue
        if partition.insert_range.begin < frozen_before:
            continue
        landed = sa.select(blocks.c.block_id).where(
            blocks.c.insert_time >= partition.insert_range.begin,
            blocks.c.insert_time < partition.insert_range.end,
        )
        if connection.scalar(landed.limit(1)) is not None:
            rebuildable.add(partition.partition_id)
    return rebuildable
