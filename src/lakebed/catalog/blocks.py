"""Blocks: landed bytes, of which partitions are built. What can be rebuilt is decided here."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from lakebed.catalog.schema import blocks
from lakebed.model.partition import NO_SOURCE, Partition


def list_rebuildable(connection: sa.Connection, partitions: Sequence[Partition]) -> set[str]:
    """The ids of those partitions whose rows could be built again: there are blocks in their
    insert range, or there were no rows to begin with."""
    rebuildable = {partition.partition_id for partition in partitions if partition.is_empty}
    if connection.scalar(sa.select(blocks.c.block_id).limit(1)) is None:
        return rebuildable
    for partition in partitions:
        if partition.is_empty or partition.source_hash == NO_SOURCE:
            continue
        landed = sa.select(blocks.c.block_id).where(
            blocks.c.insert_time >= partition.insert_range.begin,
            blocks.c.insert_time < partition.insert_range.end,
        )
        if connection.scalar(landed.limit(1)) is not None:
            rebuildable.add(partition.partition_id)
    return rebuildable
