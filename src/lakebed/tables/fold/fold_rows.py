"""Folding a table's rows: of each key the last version counts, and a delete mark hides what is not
newer than itself. Which partitions are folded together is decided here too, and nothing is done.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.model.partition import Partition
from lakebed.model.time import TimeRange
from lakebed.model.user_table import DELETED, VERSION, UserTable
from lakebed.tables.rows.row_reader import RowReader
from lakebed.writing.merge_groups import fill, find_worthwhile

if TYPE_CHECKING:
    import pyarrow as pa

MANY_PARTITIONS = 48
"""After so many more partitions of a bucket, an insert folds the small ones."""
SMALL_BYTES = 4 << 20
"""How much a small insert folds of a bucket at most; more is left to larger ones, and to builds."""
_MOST_TIMES = 16
"""A larger insert folds up to so many times its own size."""
LARGE_ROWS = 50_000
"""An insert of so many rows into a bucket takes so long anyway that it always folds."""
TINY_ROWS = 1000
"""So few are always folded with what is newer."""
CHEAP_BYTES = 1 << 20
"""So little is folded by every build."""
MOST_BYTES, MOST_ROWS = 256 << 20, 10_000_000
"""What becomes one partition at most: folding holds all of it in memory."""
_FEW_ROWS = 500
"""Python looks at so few sooner than a group by is set up."""
_MANY_ROWS = 50_000
"""Threads take longer to begin than fewer rows to group."""
_ORDER = "_order"


def fold_partitions(
    reader: RowReader, table: UserTable, partitions: Sequence[Partition], marks_from: int | None
) -> pa.Table:
    """The rows of partitions that are to become one."""
    rows = [reader.read(table, each) for each in partitions]
    return fold(rows, table.key, marks_from, in_order=follow_each_other(table, partitions))


def fold(
    tables: Sequence[pa.Table],
    key: Sequence[str],
    marks_from: int | None = None,
    *,
    in_order: bool = False,
) -> pa.Table:
    """The rows that count, of tables with versions; without a key all of them. Delete marks are
    kept if they are not older than ``marks_from``, or not at all. ``in_order`` says that of each
    key every row is newer than those before it; marks may be older."""
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
    """Whether of each key every row, unless it is a mark, is newer than those in partitions before
    its own."""
    ends: dict[str, int] = {}
    for each in partitions:
        bucket = each.instance if table.key_has_time else ""
        if each.insert_range.begin < ends.get(bucket, each.insert_range.begin):
            return False
        ends[bucket] = each.insert_range.end
    return True


def _in_order(rows: pa.Table) -> pa.Table:
    """By version; a mark comes after the row that was deleted at that very instant."""
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
        return sum(each.file_size for each in self.partitions)


def is_due(instance: str, live: int, rows: int) -> bool:
    """Whether the insert of some rows, after which a bucket has so many partitions, is the one to
    fold it. Inserts happen one after the other, so it is one of them, whichever processes they come
    from; and not all the buckets of a table are due at once."""
    if rows >= LARGE_ROWS:
        return live > 1
    if live <= MANY_PARTITIONS // 2:
        return False
    return (live + zlib.crc32(instance.encode())) % MANY_PARTITIONS == 0


def plan_small_fold(bucket: Sequence[Partition], barriers: Sequence[Partition]) -> Run | None:
    """What an insert should fold of a bucket that has become many partitions: of the newest, and of
    older ones as long as they are not larger than all that are newer, the oldest that are one
    partition together. It is in rows that they are compared, because many small files are larger
    than the one that they become. So each row is folded a few times only, however many inserts
    there are; and what is too much for one fold is left at the newer end, where the next begins."""
    runs = _runs(bucket, barriers)
    if not runs:
        return None
    newest = runs[-1][-1]
    reach = 4 if newest.num_rows >= LARGE_ROWS else 1
    most = max(SMALL_BYTES, min(_MOST_TIMES * newest.file_size, 4 * SMALL_BYTES))
    worthwhile: list[Partition] = []
    rows = 0
    for partition in reversed(runs[-1]):
        if 2 * partition.file_size > most:
            break
        if worthwhile and partition.num_rows > max(reach * rows, TINY_ROWS):
            break
        worthwhile.insert(0, partition)
        rows += partition.num_rows
    chosen = next(fill(worthwhile, most, MOST_ROWS), [])
    return Run(newest.instance, tuple(chosen)) if len(chosen) > 1 else None


def plan_folds(
    live: Sequence[Partition],
    restorable: Sequence[Partition],
    *,
    asked: bool,
    most_bytes: int = MOST_BYTES,
    most_rows: int = MOST_ROWS,
) -> list[Run]:
    """What of a table's partitions is folded, bucket by bucket: in each everything that follows
    each other and is not too much to be one partition. Unless it was asked for, only what is cheap
    to fold, and of the rest what is not mostly one large partition: so each row is folded a few
    times only, however often this is done."""
    buckets: dict[str, list[Partition]] = {}
    for each in live:
        buckets.setdefault(each.instance, []).append(each)
    found = []
    for instance, bucket in sorted(buckets.items()):
        barriers = [each for each in restorable if each.instance == instance]
        for run in _runs(bucket, barriers):
            for group in fill(run, most_bytes, most_rows):
                chosen = [group] if asked else find_worthwhile(group, _weigh, CHEAP_BYTES)
                found += [Run(instance, tuple(each)) for each in chosen if len(each) > 1]
    return found


def _weigh(partition: Partition) -> int:
    return partition.file_size


def _runs(bucket: Sequence[Partition], barriers: Sequence[Partition]) -> list[list[Partition]]:
    """Partitions that follow each other with nothing between them that may be restored."""
    runs: list[list[Partition]] = []
    starts = sorted(each.insert_range.begin for each in barriers)
    for partition in sorted(bucket, key=lambda each: each.insert_range.begin):
        if runs:
            after = bisect_right(starts, runs[-1][-1].insert_range.begin)
            if after < len(starts) and starts[after] < partition.insert_range.begin:
                runs.append([])
        else:
            runs.append([])
        runs[-1].append(partition)
    return runs


def find_marks_from(
    table: UserTable, inputs: Sequence[Partition], others: Sequence[Partition]
) -> int | None:
    """From which version on delete marks must be kept when these partitions are folded: a mark goes
    only if nothing older than it, of a key that these may have, is elsewhere, live or restorable.
    None if all may go."""
    mine = {each.partition_id for each in inputs}
    instance = inputs[0].instance
    keys = _find_bounds(table, inputs)
    begins = [
        each.insert_range.begin
        for each in others
        if (each.instance == instance or not table.key_has_time)
        and each.partition_id not in mine
        and not each.is_empty
        and all(
            (known := each.statistics.get(name)) is None or (known[0] <= high and known[1] >= low)
            for name, (low, high) in keys.items()
        )
    ]
    return min(begins, default=None)


def _find_bounds(table: UserTable, partitions: Sequence[Partition]) -> dict[str, tuple[Any, Any]]:
    """Between which values the keys of some partitions are, for each column of which it is known
    of all of them."""
    found = {}
    for name in table.key:
        known = [each.statistics.get(name) for each in partitions if not each.is_empty]
        bounds = [each for each in known if each is not None]
        if bounds and len(bounds) == len(known):
            found[name] = (min(low for low, _ in bounds), max(high for _, high in bounds))
    return found
