"""Fold rows of a table: the last version of a key counts, and a delete mark hides older versions.
Plans of folds are made here too. Nothing here writes.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.model.partition import Partition
from lakebed.model.tables.table import DELETED, VERSION, UserTable
from lakebed.model.time import TimeRange
from lakebed.tables.rows.row_reader import RowReader
from lakebed.writing.merge_groups import fill, find_worthwhile

if TYPE_CHECKING:
    import pyarrow as pa

MANY_PARTITIONS = 48
"""An insert folds the small partitions of a bucket each time it has so many more."""
SMALL_BYTES = 4 << 20
"""The most bytes of a bucket that a small insert folds; larger inserts and builds fold more."""
_MOST_TIMES = 16
"""A larger insert folds up to so many times its own size."""
LARGE_ROWS = 50_000
"""An insert of so many rows into a bucket always folds: the time is small in comparison."""
TINY_ROWS = 1000
"""Partitions of at most so many rows are always folded with newer ones."""
CHEAP_BYTES = 1 << 20
"""Each build folds partitions that are at most this together."""
MOST_BYTES, MOST_ROWS = 256 << 20, 10_000_000
"""The limits of one folded partition: a fold holds it in memory."""
_FEW_ROWS = 500
"""For so few rows, a loop in Python is faster than a group by."""
_MANY_ROWS = 50_000
"""With fewer rows, starting threads takes longer than grouping."""
_ORDER = "_order"


def fold_partitions(
    reader: RowReader, table: UserTable, partitions: Sequence[Partition], marks_from: int | None
) -> pa.Table:
    """Return the rows of the partition that replaces these."""
    rows = [reader.read(table, partition) for partition in partitions]
    return fold(rows, table.key, marks_from, in_order=follow_each_other(table, partitions))


def fold(
    tables: Sequence[pa.Table],
    key: Sequence[str],
    marks_from: int | None = None,
    *,
    in_order: bool = False,
) -> pa.Table:
    """Return the last version of each key; without a key, all rows. Delete marks that are not older
    than ``marks_from`` stay; without it, none stay. With ``in_order``, rows of a key are in the
    order of their versions, but for marks."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = pa.concat_tables(tables)
    if not key:
        return rows
    rows = rows.set_column(
        rows.schema.get_field_index(DELETED), DELETED, pc.fill_null(rows[DELETED], False)
    )
    if not in_order or pc.any(rows[DELETED]).as_py():
        rows = _in_order(rows)
    last = keep_last(rows, key)
    is_mark = last[DELETED]
    if marks_from is not None:
        is_mark = pc.and_(is_mark, pc.less(last[VERSION], marks_from))
    return last.filter(pc.invert(is_mark)) if pc.any(is_mark).as_py() else last


def follow_each_other(table: UserTable, partitions: Sequence[Partition]) -> bool:
    """Return whether rows of a key, but for marks, are newer in later partitions."""
    ends: dict[str, int] = {}
    for partition in partitions:
        bucket = partition.instance if table.key_has_time else ""
        if partition.insert_range.begin < ends.get(bucket, partition.insert_range.begin):
            return False
        ends[bucket] = partition.insert_range.end
    return True


def _in_order(rows: pa.Table) -> pa.Table:
    """Sort by version; a mark follows the row that was deleted at the same instant."""
    import pyarrow.compute as pc

    order = pc.sort_indices(rows, sort_keys=[(VERSION, "ascending"), (DELETED, "ascending")])
    return rows.take(order)


def keep_last(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Return the last row of each key, in the order of the rows. Without a key, return all rows."""
    if not key:
        return rows
    find = _find_last_of_few if rows.num_rows <= _FEW_ROWS else _find_last
    positions = find(rows.select(list(key)))
    return rows if positions is None else rows.take(positions)


def _find_last_of_few(keys: pa.Table) -> pa.Array | None:
    """Return the positions of the last row of each key, in order; None if no key occurs twice."""
    import pyarrow as pa

    values = [
        (column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column).to_pylist()
        for column in keys.columns
    ]
    last = dict(zip(zip(*values, strict=True), range(keys.num_rows), strict=True))
    return None if len(last) == keys.num_rows else pa.array(sorted(last.values()))


def _find_last(keys: pa.Table) -> pa.Array | None:
    """Do the same for many rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    numbered = keys.append_column(_ORDER, pa.arange(0, keys.num_rows))
    in_threads = keys.num_rows > _MANY_ROWS
    grouped = numbered.group_by(keys.column_names, use_threads=in_threads)
    last = grouped.aggregate([(_ORDER, "max")])[f"{_ORDER}_max"].combine_chunks()
    return None if len(last) == keys.num_rows else last.take(pc.array_sort_indices(last))


@dataclass(frozen=True, slots=True)
class Run:
    """Partitions of one bucket that follow each other, to be folded into one."""

    instance: str
    partitions: tuple[Partition, ...]

    @property
    def insert_range(self) -> TimeRange:
        first, last = self.partitions[0], self.partitions[-1]
        return TimeRange(first.insert_range.begin, last.insert_range.end)

    @property
    def bytes(self) -> int:
        return sum(partition.file_size for partition in self.partitions)


def is_due(instance: str, live: int, rows: int) -> bool:
    """Return whether an insert of so many rows, after which a bucket has so many live partitions,
    folds it. Commits are serial, so exactly one of concurrent inserts does; the hash prevents that
    all buckets of a table are due at once."""
    if rows >= LARGE_ROWS:
        return live > 1
    if live <= MANY_PARTITIONS // 2:
        return False
    return (live + zlib.crc32(instance.encode())) % MANY_PARTITIONS == 0


def plan_small_fold(bucket: Sequence[Partition], barriers: Sequence[Partition]) -> Run | None:
    """Return the fold that an insert does in a bucket of many partitions: the newest ones and older
    ones that are not larger than all newer ones together, up to the size of one partition.

    Sizes are compared in rows, because many small files are larger than the one that replaces them.
    Each row is folded a few times only, independent of the number of inserts. Partitions beyond the
    limits of one fold stay at the newer end, where the next fold begins."""
    runs = _runs(bucket, barriers)
    if not runs:
        return None
    newest = runs[-1][-1]
    reach = 4 if newest.num_rows >= LARGE_ROWS else 1
    max_bytes = max(SMALL_BYTES, min(_MOST_TIMES * newest.file_size, 4 * SMALL_BYTES))
    worthwhile: list[Partition] = []
    rows = 0
    for partition in reversed(runs[-1]):
        if 2 * partition.file_size > max_bytes:
            break
        if worthwhile and partition.num_rows > max(reach * rows, TINY_ROWS):
            break
        worthwhile.insert(0, partition)
        rows += partition.num_rows
    inputs = next(fill(worthwhile, max_bytes, MOST_ROWS), [])
    return Run(newest.instance, tuple(inputs)) if len(inputs) > 1 else None


def plan_folds(
    live: Sequence[Partition],
    restorable: Sequence[Partition],
    *,
    is_requested: bool,
    most_bytes: int = MOST_BYTES,
    most_rows: int = MOST_ROWS,
) -> list[Run]:
    """Return the folds of a table by bucket: partitions that follow each other, up to the limits of
    one partition. Unless folds were requested, only cheap ones, and of the others those that are
    not mostly one large partition: each row is folded a few times only."""
    buckets: dict[str, list[Partition]] = {}
    for partition in live:
        buckets.setdefault(partition.instance, []).append(partition)
    folds = []
    for instance, bucket in sorted(buckets.items()):
        barriers = [partition for partition in restorable if partition.instance == instance]
        for run in _runs(bucket, barriers):
            for group in fill(run, most_bytes, most_rows):
                parts = [group] if is_requested else find_worthwhile(group, _weigh, CHEAP_BYTES)
                folds += [Run(instance, tuple(part)) for part in parts if len(part) > 1]
    return folds


def _weigh(partition: Partition) -> int:
    return partition.file_size


def _runs(bucket: Sequence[Partition], barriers: Sequence[Partition]) -> list[list[Partition]]:
    """Return groups of partitions with no restorable partition between them."""
    runs: list[list[Partition]] = []
    starts = sorted(partition.insert_range.begin for partition in barriers)
    for partition in sorted(bucket, key=lambda partition: partition.insert_range.begin):
        if runs:
            after = bisect_right(starts, runs[-1][-1].insert_range.begin)
            if after < len(starts) and starts[after] < partition.insert_range.begin:
                runs.append([])
        else:
            runs.append([])
        runs[-1].append(partition)
    return runs


def find_marks_from(
    table: UserTable, inputs: Sequence[Partition], candidates: Sequence[Partition]
) -> int | None:
    """Return the version from which delete marks must stay when these partitions are folded, or
    None: a mark is needed while an older row of its key may be in another partition, live or
    restorable."""
    input_ids = {partition.partition_id for partition in inputs}
    instance = inputs[0].instance
    keys = _find_bounds(table, inputs)
    begins = [
        partition.insert_range.begin
        for partition in candidates
        if (partition.instance == instance or not table.key_has_time)
        and partition.partition_id not in input_ids
        and not partition.is_empty
        and all(
            (bounds := partition.statistics.get(name)) is None
            or (bounds[0] <= high and bounds[1] >= low)
            for name, (low, high) in keys.items()
        )
    ]
    return min(begins, default=None)


def _find_bounds(table: UserTable, partitions: Sequence[Partition]) -> dict[str, tuple[Any, Any]]:
    """Return the bounds of key columns, for columns of which all partitions have statistics."""
    key_bounds = {}
    for name in table.key:
        statistics = [
            partition.statistics.get(name) for partition in partitions if not partition.is_empty
        ]
        bounds = [pair for pair in statistics if pair is not None]
        if bounds and len(bounds) == len(statistics):
            key_bounds[name] = (min(low for low, _ in bounds), max(high for _, high in bounds))
    return key_bounds
