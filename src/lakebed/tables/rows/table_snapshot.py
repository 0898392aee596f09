"""Snapshots of users' tables for operations that change them: the live and the restorable
partitions. Files of a snapshot are not swept while it is held.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from lakebed.catalog.catalog import Catalog
from lakebed.catalog.records import tables
from lakebed.model.partition import Partition
from lakebed.model.tables.table import UserTable
from lakebed.reading.hold import hold_tick
from lakebed.reading.leases import LeaseKeeper


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """One table at one tick."""

    tick: int
    table: UserTable
    partitions: Sequence[Partition]
    restorable: Sequence[Partition]
    """Retired partitions that were not replaced by others."""

    @property
    def buckets(self) -> dict[str, list[Partition]]:
        """The live partitions of each bucket, in the order of their versions."""
        buckets: dict[str, list[Partition]] = {}
        for partition in sorted(
            self.partitions, key=lambda partition: partition.insert_range.begin
        ):
            buckets.setdefault(partition.instance, []).append(partition)
        return dict(sorted(buckets.items()))


class TableSnapshots:
    """Takes snapshots of tables."""

    def __init__(self, catalog: Catalog, keeper: LeaseKeeper) -> None:
        self._catalog = catalog
        self._keeper = keeper

    def find_rejects(self, table: UserTable) -> UserTable | None:
        """Return the rejects table of a table; None if the table is a rejects table itself."""
        with self._catalog.glance() as connection:
            tables_with_rejects = tables.list_tables(connection)
        return next(
            (
                candidate
                for candidate in tables_with_rejects
                if candidate.rejects_of == table.table_id
            ),
            None,
        )

    @contextmanager
    def take(self, table_id: str) -> Iterator[TableSnapshot]:
        """Yield the present snapshot of the table; its files are not swept within the block."""
        with hold_tick(self._catalog, self._keeper) as (connection, hold):
            table = tables.get_by_id(connection, table_id)
            live = tables.list_partitions(connection, table.stored_as)
            restorable = tables.list_restorable(connection, table.stored_as)
        with hold:
            yield TableSnapshot(hold.tick, table, live, restorable)
