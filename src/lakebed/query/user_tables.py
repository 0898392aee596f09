"""Users' tables in a statement: which of their partitions are needed, and what of the newer ones
hides what is in the older. Deciding is pure; small partitions are read and kept for the next
statement.

A key's versions may lie in any bucket unless the time is part of the key. So partitions may be left
out only by what is the same in all versions of a row: its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.catalog import tables
from lakebed.catalog.catalog import Connection
from lakebed.errors import TailTooLarge
from lakebed.model.partition import Partition
from lakebed.model.table import BUCKET_COLUMN
from lakebed.model.user_table import DELETED, VERSION, UserTable
from lakebed.partitions import folding
from lakebed.partitions.rows import RowReader
from lakebed.query import conditions
from lakebed.query.conditions import EVER, Scan
from lakebed.query.content import UserContent

if TYPE_CHECKING:
    import pyarrow as pa

_SMALL_BYTES = 4 << 20
_PLACE = "_place"


@dataclass(slots=True)
class UserView:
    """What one of a statement's tables is made of."""

    table: UserTable
    files: Sequence[Partition] = ()
    """Read by the engine, from disk."""
    small: Sequence[Partition] = ()
    """Read into memory, because they are newer than others of their bucket."""
    key_files: Sequence[Partition] = ()
    small_keys: Sequence[Partition] = ()
    """Of these only the keys matter: for partitions in files, and for small ones."""
    pruned: dict[str, int] = field(default_factory=dict)
    considered: int | None = None

    @property
    def read(self) -> list[Partition]:
        """Every partition whose rows are read."""
        return [*self.files, *self.small]

    @property
    def opened(self) -> list[Partition]:
        """Every partition whose file is opened, each once."""
        every = [*self.files, *self.small, *self.key_files, *self.small_keys]
        return list({each.partition_id: each for each in every}.values())


def find(
    connection: Connection, table: UserTable, scans: Sequence[Scan], as_of: int | None
) -> UserView:
    """What a table is made of for some scans, in one look at the catalog."""
    found = tables.list_partitions(connection, table.stored_as, as_of=as_of)
    return choose(table, [each for each in found if not each.is_empty], scans, len(found))


def choose(
    table: UserTable, partitions: Sequence[Partition], scans: Sequence[Scan], considered: int
) -> UserView:
    """Which partitions some scans need, and how."""
    view = UserView(table, considered=considered)
    asked, others = [], []
    for partition in partitions:
        if any(_may_have(table, scan, partition, by_time=True) for scan in scans):
            asked.append(partition)
        elif any(_may_have(table, scan, partition, by_time=False) for scan in scans):
            others.append(partition)
        else:
            view.pruned["statistics"] = view.pruned.get("statistics", 0) + 1
    if len(partitions) < considered:
        view.pruned["empty"] = considered - len(partitions)
    if not table.key or table.key_has_time:
        if others:
            view.pruned["time"] = view.pruned.get("time", 0) + len(others)
        others = []
    if not table.key:
        view.files = asked
        return view
    files, small = _lay_out(asked)
    view.files, view.small = files, small
    _find_what_hides(view, asked, others)
    return view


def _lay_out(asked: Sequence[Partition]) -> tuple[list[Partition], list[Partition]]:
    """Of each bucket the oldest partition and the large ones stay in files; the rest is small."""
    files, small = [], []
    oldest: dict[str, Partition] = {}
    for each in asked:
        known = oldest.setdefault(each.instance, each)
        if each.insert_range.begin < known.insert_range.begin:
            oldest[each.instance] = each
    for each in asked:
        if oldest[each.instance] is each or each.file_size > _SMALL_BYTES:
            files.append(each)
        else:
            small.append(each)
    return files, small


def _find_what_hides(
    view: UserView, asked: Sequence[Partition], others: Sequence[Partition]
) -> None:
    """Besides the small partitions: large ones that are not the oldest of their bucket and, if a
    key may move from bucket to bucket, all that may hold newer versions of what is asked for."""
    if not asked:
        return
    if view.table.key_has_time or len({each.instance for each in (*asked, *others)}) == 1:
        oldest: dict[str, int] = {}
        for each in view.files:
            begin = each.insert_range.begin
            oldest[each.instance] = min(begin, oldest.get(each.instance, begin))
        view.key_files = [
            each for each in view.files if each.insert_range.begin > oldest[each.instance]
        ]
        return
    since = min(each.insert_range.begin for each in asked)
    newer = [
        each
        for each in others
        if each.insert_range.end > since and _shares_keys(view.table, each, asked)
    ]
    view.small_keys = [each for each in newer if each.file_size <= _SMALL_BYTES]
    view.key_files = [
        *(view.files if len(view.files) > 1 or view.small else ()),
        *(each for each in newer if each.file_size > _SMALL_BYTES),
    ]
    left = len(others) - len(newer)
    if left:
        view.pruned["time"] = view.pruned.get("time", 0) + left


def _shares_keys(table: UserTable, other: Partition, asked: Sequence[Partition]) -> bool:
    """Whether a partition may hold a key that one of the others has."""
    name = table.key[0]
    bounds = other.statistics.get(name)
    if bounds is None:
        return True
    return any(
        (known := each.statistics.get(name)) is None
        or (known[0] <= bounds[1] and known[1] >= bounds[0])
        for each in asked
    )


def _may_have(table: UserTable, scan: Scan, partition: Partition, *, by_time: bool) -> bool:
    """Whether a partition may have rows for a scan: by its key, and by its times and bucket."""
    known = {
        name: intervals
        for name, intervals in scan.columns.items()
        if name in table.key or (not table.key and name != BUCKET_COLUMN)
    }
    if table.time_column in known and not by_time:
        del known[table.time_column]
    if by_time and table.time_column in scan.columns:
        known[table.time_column] = scan.columns[table.time_column]
    if not conditions.may_match(Scan(scan.table, known), partition, table.time_column):
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

    def __init__(self, reader: RowReader, most_bytes: int) -> None:
        self._reader = reader
        self._most_bytes = most_bytes

    def read(self, view: UserView) -> UserContent:
        """The table's content as an engine takes it."""
        import pyarrow as pa
        import pyarrow.compute as pc

        table = view.table
        self._require_bounded(view)
        if not view.small and not view.small_keys:
            compares = bool(view.key_files)
            return UserContent(table, view.files, None, None, view.key_files, compares)
        names = [*table.key, VERSION, DELETED]
        rows = [self._reader.read(table, each) for each in view.small]
        keys = [self._reader.read(table, each, names) for each in view.small_keys]
        every = pa.concat_tables([each.select(names) for each in (*rows, *keys)])
        numbered = every.append_column(_PLACE, pa.array(range(every.num_rows), pa.int64()))
        last = folding.fold([numbered], table.key, EVER.begin)
        # A mark hides what was inserted at its very instant, too.
        version = pc.add(last[VERSION], pc.cast(last[DELETED], pa.int64()))
        hiding = last.select(list(table.key)).append_column(VERSION, version)
        return UserContent(
            table,
            view.files,
            _take(rows, last),
            hiding,
            view.key_files,
            bool(view.key_files) or _overlaps(view, rows, keys),
        )

    def _require_bounded(self, view: UserView) -> None:
        size = sum(each.file_size for each in (*view.small, *view.small_keys))
        if size > self._most_bytes:
            name = view.table.full_name
            raise TailTooLarge(
                f"{size >> 20} MiB of {name} are in many small partitions; "
                f"a query folds at most {self._most_bytes >> 20} MiB itself",
                hint=f"fold them with: lakebed build {name}",
            )


def _take(rows: Sequence[pa.Table], last: pa.Table) -> pa.Table | None:
    """Those of the rows that are the last of their key, and not only marks; None without any."""
    import pyarrow as pa
    import pyarrow.compute as pc

    count = sum(each.num_rows for each in rows)
    chosen = last.filter(pc.and_(pc.less(last[_PLACE], count), pc.invert(last[DELETED])))
    if not chosen.num_rows:
        return None
    return pa.concat_tables(rows).take(chosen[_PLACE])


def _overlaps(view: UserView, rows: Sequence[pa.Table], keys: Sequence[pa.Table]) -> bool:
    """Whether something that hides may be older than something in a file that it could hide."""
    import pyarrow.compute as pc

    oldest: dict[str, int] = {}
    for partition, read in zip((*view.small, *view.small_keys), (*rows, *keys), strict=True):
        bucket = partition.instance if view.table.key_has_time else ""
        version = pc.min(read[VERSION]).as_py()
        oldest[bucket] = min(version, oldest.get(bucket, version))
    return any(
        each.insert_range.end
        > oldest.get(each.instance if view.table.key_has_time else "", EVER.end)
        for each in view.files
    )


def by_name(found: Sequence[UserTable], database: str | None = None) -> Mapping[str, UserTable]:
    """Tables as SQL may name them; those of one database also without its name."""
    named = {each.full_name: each for each in found}
    return named | {each.name: each for each in found if each.database == database}
