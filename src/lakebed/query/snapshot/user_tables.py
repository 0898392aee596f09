"""Users' tables in a statement: the partitions that it needs, and the older rows that newer ones
hide. Deciding is pure; small partitions are read and cached for the next statement.

A key's versions may lie in any bucket unless the time is part of the key. So partitions may be left
out only by what is the same in all versions of a row: its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.catalog.catalog import Connection
from lakebed.catalog.records import tables
from lakebed.model.partition import Partition
from lakebed.model.tables.schema import BUCKET_COLUMN
from lakebed.model.tables.table import DELETED, VERSION, UserTable
from lakebed.query.planning import conditions
from lakebed.query.planning.conditions import EVER, Scan
from lakebed.query.planning.content import UserContent
from lakebed.tables.fold import fold_rows
from lakebed.tables.rows.row_reader import RowReader

if TYPE_CHECKING:
    import pyarrow as pa

_SMALL_BYTES = 4 << 20
_MEMORY_BYTES = 64 << 20
"""Small partitions are read into memory, and folded there, up to this size."""
_PLACE = "_place"


@dataclass(slots=True)
class UserView:
    """The files and rows of one users' table that a statement reads."""

    table: UserTable
    files: Sequence[Partition] = ()
    """Partitions that the engine reads from disk."""
    small: Sequence[Partition] = ()
    """Partitions that are read into memory, because they are newer than others, or may be."""
    key_files: Sequence[Partition] = ()
    small_keys: Sequence[Partition] = ()
    """Partitions of which only the keys matter: in files, and small ones in memory."""
    pruned: dict[str, int] = field(default_factory=dict)
    considered: int | None = None

    @property
    def read(self) -> list[Partition]:
        """Every partition whose rows are read."""
        return [*self.files, *self.small]

    @property
    def bucket(self) -> str | None:
        """The bucket of all rows that are read, if it is one."""
        buckets = {partition.instance for partition in self.read}
        return buckets.pop() if len(buckets) == 1 else None

    @property
    def opened(self) -> list[Partition]:
        """Every partition whose file is opened, each once."""
        partitions = [*self.files, *self.small, *self.key_files, *self.small_keys]
        return list({partition.partition_id: partition for partition in partitions}.values())


def find(
    connection: Connection, table: UserTable, scans: Sequence[Scan], as_of: int | None
) -> UserView:
    """Return the files and rows that some scans read of a table, in one look at the catalog."""
    partitions = tables.list_partitions(connection, table.stored_as, as_of=as_of)
    return choose(
        table,
        [partition for partition in partitions if not partition.is_empty],
        scans,
        len(partitions),
    )


def choose(
    table: UserTable, partitions: Sequence[Partition], scans: Sequence[Scan], considered: int
) -> UserView:
    """Return the partitions that some scans need, and the way in which they are read."""
    view = UserView(table, considered=considered)
    matching, outside = [], []
    for partition in partitions:
        if any(_may_have(table, scan, partition, by_time=True) for scan in scans):
            matching.append(partition)
        elif any(_may_have(table, scan, partition, by_time=False) for scan in scans):
            outside.append(partition)
        else:
            view.pruned["statistics"] = view.pruned.get("statistics", 0) + 1
    if len(partitions) < considered:
        view.pruned["empty"] = considered - len(partitions)
    if not table.key or table.key_has_time:
        if outside:
            view.pruned["time"] = view.pruned.get("time", 0) + len(outside)
        outside = []
    if not table.key:
        view.files = matching
        return view
    if table.key_has_time or (
        not outside and len({partition.instance for partition in matching}) <= 1
    ):
        _choose_by_bucket(view, matching)
    else:
        _choose_by_key(view, matching, outside)
    return view


def _choose_by_bucket(view: UserView, matching: Sequence[Partition]) -> None:
    """Set the files of a table no key of which has versions in two buckets: the oldest partition
    of each bucket hides nothing and stays in its file; newer partitions hide older rows."""
    oldest: dict[str, int] = {}
    for partition in matching:
        begin = partition.insert_range.begin
        oldest[partition.instance] = min(begin, oldest.get(partition.instance, begin))
    newer = [
        partition
        for partition in matching
        if partition.insert_range.begin > oldest[partition.instance]
    ]
    view.small, view.key_files = _split_by_size(newer)
    small_ids = {partition.partition_id for partition in view.small}
    view.files = [partition for partition in matching if partition.partition_id not in small_ids]


def _choose_by_key(
    view: UserView, matching: Sequence[Partition], outside: Sequence[Partition]
) -> None:
    """Set the files of a table whose keys may move: every partition may hide rows of every other
    one, also of those outside the scans' times."""
    view.small, view.files = _split_by_size(matching)
    since = min((partition.insert_range.begin for partition in matching), default=EVER.end)
    newer = [
        partition
        for partition in outside
        if partition.insert_range.end > since and _shares_keys(view.table, partition, matching)
    ]
    remaining = _MEMORY_BYTES - sum(partition.file_size for partition in view.small)
    view.small_keys, large = _split_by_size(newer, remaining)
    view.key_files = [*(view.files if len(view.files) > 1 or view.small else ()), *large]
    remaining = len(outside) - len(newer)
    if remaining:
        view.pruned["time"] = view.pruned.get("time", 0) + remaining


def _split_by_size(
    partitions: Sequence[Partition], memory_bytes: int | None = None
) -> tuple[list[Partition], list[Partition]]:
    """Return the partitions that are read into memory, and those that are too large or too many for
    that."""
    remaining_bytes = _MEMORY_BYTES if memory_bytes is None else memory_bytes
    small: list[Partition] = []
    large: list[Partition] = []
    for partition in sorted(partitions, key=lambda partition: partition.file_size):
        remaining_bytes -= partition.file_size
        (small if partition.file_size <= _SMALL_BYTES and remaining_bytes >= 0 else large).append(
            partition
        )
    return small, large


def _shares_keys(table: UserTable, candidate: Partition, matching: Sequence[Partition]) -> bool:
    """Return True if a partition may hold a key that a matching partition has."""
    name = table.key[0]
    bounds = candidate.statistics.get(name)
    if bounds is None:
        return True
    return any(
        (key_bounds := partition.statistics.get(name)) is None
        or (key_bounds[0] <= bounds[1] and key_bounds[1] >= bounds[0])
        for partition in matching
    )


def _may_have(table: UserTable, scan: Scan, partition: Partition, *, by_time: bool) -> bool:
    """Return True if a partition may have rows for a scan: by its key, and by its times and
    bucket."""
    intervals_by_column = {
        name: intervals
        for name, intervals in scan.columns.items()
        if name in table.key or (not table.key and name != BUCKET_COLUMN)
    }
    if table.time_column in intervals_by_column and not by_time:
        del intervals_by_column[table.time_column]
    if by_time and table.time_column in scan.columns:
        intervals_by_column[table.time_column] = scan.columns[table.time_column]
    if not conditions.may_match(
        Scan(scan.table, intervals_by_column), partition, table.time_column
    ):
        return False
    if not by_time or BUCKET_COLUMN not in scan.columns:
        return True
    return any(
        (low is None or str(low) <= partition.instance)
        and (high is None or str(high) >= partition.instance)
        for low, high in scan.columns[BUCKET_COLUMN]
    )


class UserReader:
    """Reads what is small, and folds it."""

    def __init__(self, reader: RowReader) -> None:
        self._reader = reader

    def read(self, view: UserView) -> UserContent:
        """Return the table's content as an engine takes it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table = view.table
        if not view.small and not view.small_keys:
            compares = bool(view.key_files)
            return UserContent(table, view.files, None, None, view.key_files, compares, view.bucket)
        names = [*table.key, VERSION, DELETED]
        view.small = sorted(view.small, key=lambda partition: partition.insert_range.begin)
        rows = [self._reader.read(table, partition) for partition in view.small]
        keys = [self._reader.read(table, partition, names) for partition in view.small_keys]
        in_order = fold_rows.follow_each_other(table, [*view.small, *view.small_keys])
        all_keys = pa.concat_tables([part.select(names) for part in (*rows, *keys)])
        numbered = all_keys.append_column(_PLACE, pa.arange(0, all_keys.num_rows))
        last = fold_rows.fold([numbered], table.key, EVER.begin, in_order=in_order)
        # A mark also hides rows that were inserted at its very instant.
        version = pc.add(last[VERSION], pc.cast(last[DELETED], pa.int64()))
        hiding = last.select(list(table.key)).append_column(VERSION, version)
        return UserContent(
            table,
            view.files,
            _take_last_rows(rows, last),
            hiding,
            view.key_files,
            bool(view.key_files) or _overlaps(view, rows, keys),
            view.bucket,
        )


def _take_last_rows(rows: Sequence[pa.Table], last: pa.Table) -> pa.Table | None:
    """Return the rows that are the last of their key, and not only marks; None without any."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = sum(part.num_rows for part in rows)
    visible = last.filter(pc.and_(pc.less(last[_PLACE], count), pc.invert(last[DELETED])))
    if not visible.num_rows:
        return None
    return pa.concat_tables(rows).take(visible[_PLACE])


def _overlaps(view: UserView, rows: Sequence[pa.Table], keys: Sequence[pa.Table]) -> bool:
    """Return True if something that hides may be older than something in a file that it could
    hide."""
    import pyarrow.compute as pc

    oldest: dict[str, int] = {}
    for partition, read in zip((*view.small, *view.small_keys), (*rows, *keys), strict=True):
        bucket = partition.instance if view.table.key_has_time else ""
        version = pc.min(read[VERSION]).as_py()
        oldest[bucket] = min(version, oldest.get(bucket, version))
    return any(
        partition.insert_range.end
        > oldest.get(partition.instance if view.table.key_has_time else "", EVER.end)
        for partition in view.files
    )


def by_name(tables: Sequence[UserTable], database: str | None = None) -> Mapping[str, UserTable]:
    """Return tables by the names that SQL may use; those of one database also without its name."""
    by_full_name = {table.full_name: table for table in tables}
    return by_full_name | {table.name: table for table in tables if table.database == database}
