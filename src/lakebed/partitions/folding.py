"""Folding a table's rows: of each key the last version counts, and a delete mark hides what is not
newer than itself. Which partitions are folded together is decided here too, and nothing is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.model.partition import Partition
from lakebed.model.time import TimeRange
from lakebed.model.user_table import DELETED, VERSION, UserTable
from lakebed.partitions.rows import RowReader

if TYPE_CHECKING:
    import pyarrow as pa

MANY_PARTITIONS = 16
"""How many partitions a bucket may have before inserts fold the small ones."""
SMALL_BYTES = 16 << 20
"""How much inserts fold at once; more is left to builds."""
CHEAP_BYTES = 1 << 20
"""So little is folded whenever it can be."""
MOST_BYTES, MOST_ROWS = 256 << 20, 10_000_000
"""What becomes one partition at most: folding holds all of it in memory."""
_ORDER = "_order"


def fold_partitions(
    reader: RowReader, table: UserTable, partitions: Sequence[Partition], marks_from: int | None
) -> pa.Table:
    """The rows of partitions that are to become one."""
    rows = [reader.read(table, each) for each in partitions]
    return fold(rows, table.key, marks_from)


def fold(tables: Sequence[pa.Table], key: Sequence[str], marks_from: int | None = None) -> pa.Table:
    """The rows that count, of tables with versions; without a key all of them. Delete marks are
    kept if they are not older than ``marks_from``, or not at all."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = pa.concat_tables(tables)
    if not key:
        return rows
    last = keep_last(_in_order(rows), key)
    is_mark = pc.fill_null(last[DELETED], False)
    if marks_from is not None:
        is_mark = pc.and_(is_mark, pc.less(last[VERSION], marks_from))
    return last.filter(pc.invert(is_mark))


def _in_order(rows: pa.Table) -> pa.Table:
    """By version; a mark comes after the row that was deleted at that very instant."""
    import pyarrow.compute as pc

    rows = rows.set_column(
        rows.schema.get_field_index(DELETED), DELETED, pc.fill_null(rows[DELETED], False)
    )
    order = pc.sort_indices(rows, sort_keys=[(VERSION, "ascending"), (DELETED, "ascending")])
    return rows.take(order)


def keep_last(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Of each key the last row; those that are left stay in order. Without a key, all rows."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not key:
        return rows
    places = pa.array(np.arange(rows.num_rows))
    numbered = rows.select(list(key)).append_column(_ORDER, places)
    last = numbered.group_by(list(key)).aggregate([(_ORDER, "max")])[f"{_ORDER}_max"]
    if len(last) == rows.num_rows:
        return rows
    return rows.take(last.take(pc.sort_indices(last)))


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


def plan_small_fold(bucket: Sequence[Partition], barriers: Sequence[Partition]) -> Run | None:
    """What an insert should fold of a bucket that has become many partitions: the newest ones, and
    older ones as long as they are not much larger than all that are newer. So each row is folded a
    few times only, however many inserts there are."""
    runs = _runs(bucket, barriers)
    if not runs or len(bucket) <= MANY_PARTITIONS:
        return None
    chosen: list[Partition] = []
    size = 0
    for partition in reversed(runs[-1]):
        if len(chosen) > 1 and partition.file_size > max(2 * size, CHEAP_BYTES):
            break
        if size + partition.file_size > SMALL_BYTES:
            break
        chosen.insert(0, partition)
        size += partition.file_size
    if len(chosen) < 2:
        return None
    return Run(bucket[0].instance, tuple(chosen))


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
            for group in _fill(run, most_bytes, most_rows):
                chosen = [group] if asked else _worthwhile(group)
                found += [Run(instance, tuple(each)) for each in chosen if len(each) > 1]
    return found


def _fill(run: Sequence[Partition], most_bytes: int, most_rows: int) -> Iterator[list[Partition]]:
    """Neighbours that are one partition together, the oldest first."""
    group: list[Partition] = []
    size = rows = 0
    for each in run:
        size += each.file_size
        rows += each.num_rows
        if group and (size > most_bytes or rows > most_rows):
            yield group
            group, size, rows = [], each.file_size, each.num_rows
        group.append(each)
    if group:
        yield group


def _worthwhile(group: Sequence[Partition]) -> Iterator[Sequence[Partition]]:
    if len(group) < 2:
        return
    sizes = [each.file_size for each in group]
    if sum(sizes) <= CHEAP_BYTES or 2 * max(sizes) <= sum(sizes):
        yield group
        return
    at = sizes.index(max(sizes))
    yield from _worthwhile(group[:at])
    yield from _worthwhile(group[at + 1 :])


def _runs(bucket: Sequence[Partition], barriers: Sequence[Partition]) -> list[list[Partition]]:
    """Partitions that follow each other with nothing between them that may be restored."""
    runs: list[list[Partition]] = []
    starts = sorted(each.insert_range.begin for each in barriers)
    for partition in sorted(bucket, key=lambda each: each.insert_range.begin):
        if runs:
            gap = (runs[-1][-1].insert_range.begin, partition.insert_range.begin)
            if any(gap[0] < start < gap[1] for start in starts):
                runs.append([])
        else:
            runs.append([])
        runs[-1].append(partition)
    return runs


def find_marks_from(
    table: UserTable, inputs: Sequence[Partition], others: Sequence[Partition]
) -> int | None:
    """From which version on delete marks must be kept when these partitions are folded: a mark goes
    only if nothing older than it is elsewhere, live or restorable. None if all may go."""
    mine = {each.partition_id for each in inputs}
    instance = inputs[0].instance
    begins = [
        each.insert_range.begin
        for each in others
        if (each.instance == instance or not table.key_has_time)
        and each.partition_id not in mine
        and not each.is_empty
    ]
    return min(begins, default=None)
