"""The files of a lake in a fixed order, so that they can be read little by little: those of live
partitions by their paths, then segments by theirs.
"""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from lakebed.catalog.expressions import one_of
from lakebed.catalog.records.blocks import Segment
from lakebed.catalog.records.partitions import read_partition
from lakebed.catalog.schema import partitions, segments
from lakebed.model.partition import Partition

_LIVE = sa.and_(partitions.c.retired_at.is_(None), partitions.c.file_path.is_not(None))


def weigh(connection: sa.Connection) -> tuple[int, int]:
    """Return the number of files and their total bytes."""
    count, size = 0, 0
    for table, condition in ((partitions, _LIVE), (segments, sa.true())):
        sums = sa.select(sa.func.count(), sa.func.sum(table.c.file_size)).where(condition)
        files, total = connection.execute(sums).one()
        count, size = count + files, size + int(total or 0)
    return count, size


def list_partitions(connection: sa.Connection, after: str, limit: int) -> list[Partition]:
    """Return the next live partitions whose file path is greater than ``after``."""
    query = sa.select(partitions).where(_LIVE, partitions.c.file_path > after)
    rows = connection.execute(query.order_by(partitions.c.file_path).limit(limit))
    return [read_partition(row) for row in rows]


def list_segments(connection: sa.Connection, after: str, limit: int) -> list[Segment]:
    """Return the next segments whose path is greater than ``after``."""
    query = sa.select(segments).where(segments.c.segment_path > after)
    return _read(connection, query.order_by(segments.c.segment_path).limit(limit))


def list_at(
    connection: sa.Connection, paths: Sequence[str]
) -> tuple[list[Partition], list[Segment]]:
    """Return the live partitions and the segments whose files are at these paths."""
    live = sa.select(partitions).where(_LIVE, one_of(partitions.c.file_path, paths))
    landed = sa.select(segments).where(one_of(segments.c.segment_path, paths))
    return [read_partition(row) for row in connection.execute(live)], _read(connection, landed)


def _read(connection: sa.Connection, query: sa.Select[tuple[object, ...]]) -> list[Segment]:
    rows = connection.execute(query)
    return [Segment(row.segment_path, row.file_size, row.insert_time) for row in rows]
