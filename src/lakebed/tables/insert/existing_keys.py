"""Find the keys that a table has, for inserts that must not change existing rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.model.partition import Partition
from lakebed.model.tables.table import DELETED, UserTable
from lakebed.tables.fold import fold_rows
from lakebed.tables.rows.row_reader import RowReader
from lakebed.tables.rows.table_snapshot import TableSnapshot

if TYPE_CHECKING:
    import pyarrow as pa

_NEW = "_new"


def leave_out_existing(reader: RowReader, snapshot: TableSnapshot, rows: pa.Table) -> pa.Table:
    """Return the rows whose key the table does not have. Reads only the key columns of partitions
    that may hold one of the keys."""
    import pyarrow as pa
    import pyarrow.compute as pc

    table = snapshot.table
    candidates = [
        partition for partition in snapshot.partitions if _may_have(table, partition, rows)
    ]
    if not candidates:
        return rows
    first = pa.array(pc.unique(rows[table.key[0]]))
    key_batches = []
    for partition in candidates:
        keys = reader.read(table, partition, [*table.key, DELETED])
        key_batches.append(keys.filter(pc.is_in(keys[table.key[0]], value_set=first)))
    existing_keys = fold_rows.fold(key_batches, table.key).select(list(table.key))
    names = list(table.key)
    numbered = rows.select(names).append_column(_NEW, pa.array(range(rows.num_rows), pa.int64()))
    new_rows = numbered.join(existing_keys, names, join_type="left anti")[_NEW]
    return rows.take(new_rows.take(pc.sort_indices(new_rows)))


@dataclass(frozen=True, slots=True)
class NewKeys:
    """The keys of rows of an insert. Without a reader, statistics alone decide."""

    table: UserTable
    rows: pa.Table
    reader: RowReader | None = None

    def are_in(self, partitions: Sequence[Partition]) -> bool:
        """Return whether one of the partitions has one of the keys; without a reader, whether one
        may have."""
        import pyarrow.compute as pc

        candidates = [part for part in partitions if _may_have(self.table, part, self.rows)]
        if self.reader is None or not candidates:
            return bool(candidates)
        names = list(self.table.key)
        new = self.rows.select(names)
        for partition in candidates:
            keys = self.reader.read(self.table, partition, names).select(names)
            keys = keys.filter(pc.is_in(keys[names[0]], value_set=pc.unique(new[names[0]])))
            if keys.join(new, names, join_type="left semi").num_rows:
                return True
        return False


def _may_have(table: UserTable, partition: Partition, rows: pa.Table) -> bool:
    """Return False if the catalog's statistics prove that a partition has none of the keys."""
    if partition.is_empty or not rows.num_rows:
        return False
    return all(
        _touches(partition, name, rows[name], name == table.time_column) for name in table.key
    )


def _touches(partition: Partition, name: str, values: pa.ChunkedArray, is_time: bool) -> bool:
    import pyarrow as pa
    import pyarrow.compute as pc

    partition_bounds: Sequence[object] | None = partition.statistics.get(name)
    if is_time and partition.events is not None:
        partition_bounds = (partition.events.earliest, partition.events.latest)
    if partition_bounds is None or pa.types.is_boolean(values.type):
        return True
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    bounds = pc.min_max(values).as_py()
    return bool(bounds["min"] <= partition_bounds[1] and bounds["max"] >= partition_bounds[0])
