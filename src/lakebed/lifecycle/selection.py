"""The partitions that an operation of retirement selects: by identity, by file, by range, or one to
restore. Each function reads in the caller's transaction and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.catalog.catalog import Connection
from lakebed.catalog.lookups import partition_search
from lakebed.catalog.lookups.partition_search import PartitionFilter
from lakebed.catalog.records import partitions, tables
from lakebed.errors import Ambiguous, Conflict, Overlap, UnknownPartition
from lakebed.model.partition import Partition
from lakebed.model.tables.table import UserTable, is_table, table_id_of
from lakebed.model.time import TimeRange
from lakebed.storage.layout import check_path
from lakebed.views.active import get_view_set

BY_IDENTITY = "retired by identity"
BY_FILE = "retired by file"
BY_FILE_IS_DEPRECATED = (
    "retiring by file is deprecated: it cannot name an empty partition; "
    "use retire_partition_by_metadata, or --exact on the command line"
)


def by_range(insert_range: TimeRange) -> str:
    """Return the reason in the journal for retiring partitions in a range."""
    return f"retired by range {insert_range}"


@dataclass(frozen=True, slots=True)
class InRange:
    """Live partitions that lie inside a range, and those that extend beyond one of its ends."""

    inside: Sequence[Partition]
    straddling: Sequence[Partition]


def get_by_identity(
    connection: Connection,
    view_set: str,
    instance: str,
    insert_range: TimeRange,
    schema_hash: bytes | None = None,
) -> Partition:
    """Return the one live partition with this identity. Without the schema hash, or with only
    its first bytes, the match must be unique."""
    matches = [
        partition
        for partition in _live(connection, view_set, instance, insert_range)
        if partition.insert_range == insert_range
        and (schema_hash is None or partition.schema_hash.startswith(schema_hash))
    ]
    if not matches:
        raise UnknownPartition(
            f"no live partition of {view_set}/{instance} covers exactly {insert_range}"
            + (f" with schema hash {schema_hash.hex()[:12]}" if schema_hash else ""),
            hint=f"see what there is with: lakebed partitions list {view_set}",
        )
    if len(matches) > 1:
        raise Ambiguous(
            f"{len(matches)} live partitions of {view_set}/{instance} cover {insert_range}: "
            + ", ".join(partition.schema_hash.hex() for partition in matches),
            hint="name the one you mean with its schema hash",
        )
    return matches[0]


def get_by_file(connection: Connection, file_path: str) -> Partition:
    """Return the live partition of a file."""
    check_path(file_path)
    matches = [
        partition
        for partition in partitions.list_by_path(connection, file_path)
        if partition.is_live
    ]
    if not matches:
        raise UnknownPartition(
            f"no live partition has the file {file_path}",
            hint="see what there is with: lakebed partitions list",
        )
    return matches[0]


def list_in_range(
    connection: Connection, view_set: str, instance: str | None, insert_range: TimeRange
) -> InRange:
    """Return every live partition that touches an insert-time range, of one instance or of all."""
    require_known(connection, view_set)
    touching = _live(connection, view_set, instance, insert_range)
    return InRange(
        [partition for partition in touching if insert_range.contains(partition.insert_range)],
        [partition for partition in touching if not insert_range.contains(partition.insert_range)],
    )


def get_restorable(connection: Connection, partition_id: str) -> Partition:
    """Return the retired partition with this id. Raises if anything but a live neighbour
    prevents restoring it."""
    matching = partitions.list_by_id(connection, [partition_id])
    if not matching:
        raise UnknownPartition(
            f"no partition has the id {partition_id}",
            hint="see the retired ones with: lakebed partitions list --retired",
        )
    old = matching[0]
    if old.is_live:
        raise Conflict(f"{old.describe()} is live; there is nothing to restore")
    if is_table(old.view_set):
        _require_table_wants(connection, old)
    newer = partitions.find_newer_copy(connection, old)
    if newer is not None:
        raise Conflict(
            f"{old.describe()} was restored already",
            hint=f"its newest row is {newer.partition_id}",
        )
    for held in partitions.list_held(connection, old.view_set, old.instance, old.insert_range):
        if held.partition_id != old.partition_id:
            raise Overlap(f"{held.describe()} is held", hint=f"restore {held.partition_id} first")
    return old


def list_in_the_way(connection: Connection, old: Partition) -> list[Partition]:
    """Return the live partitions of the same series that overlap a retired one."""
    overlapping = _live(connection, old.view_set, old.instance, old.insert_range)
    if is_table(old.view_set):  # every version of a table's schema is read together
        return overlapping
    return [partition for partition in overlapping if partition.schema_hash == old.schema_hash]


def _require_table_wants(connection: Connection, old: Partition) -> None:
    """Raise unless a table's partition may be restored: its table exists and its rows are in no
    other partition."""
    if old.replaced:
        raise Conflict(
            f"what is left of the rows of {old.describe()} lives on in what replaced it",
            hint="read the past with as_of, or --as-of",
        )
    table = tables.get_by_id(connection, table_id_of(old.view_set))
    if table.deleted_at is not None:
        raise Conflict(
            f"table {table.full_name} was deleted",
            hint=f"restore it with: lakebed tables restore {table.full_name}",
        )
    in_the_way = list_in_the_way(connection, old)
    if in_the_way:
        raise Overlap(f"{in_the_way[0].describe()} is in the way")


def require_known(connection: Connection, view_set: str) -> None:
    """Raise `UnknownViewSet` for a name that is not a view set's and has no partitions."""
    if view_set not in partitions.count_live(connection):
        get_view_set(connection, view_set)


def _live(
    connection: Connection, view_set: str, instance: str | None, inserted: TimeRange
) -> list[Partition]:
    return partition_search.search(
        connection,
        PartitionFilter(view_sets=[(view_set, None)], instance=instance, inserted=inserted),
    )


def find_hiding(
    table: UserTable, old: Sequence[Partition], live: Sequence[Partition]
) -> list[Partition]:
    """Return those of some old partitions of a table that cannot be retired alone: a row or a
    delete mark in them may hide an older row of the same key in a partition that stays, which
    would become visible again."""
    if not table.key or table.key_has_time:  # a key's versions are all in one bucket
        return []
    going = {partition.partition_id: partition for partition in old if not partition.is_empty}
    staying = [
        partition
        for partition in live
        if partition.partition_id not in going and not partition.is_empty
    ]
    hiding: list[Partition] = []
    while staying:
        more = [
            partition
            for partition in going.values()
            if any(_may_hide(table, partition, other) for other in staying)
        ]
        hiding += more
        staying = more
        for partition in more:
            del going[partition.partition_id]
    return hiding


def _may_hide(table: UserTable, partition: Partition, other: Partition) -> bool:
    """Return True if `partition` may have a newer version of a key that `other` has too."""
    if other.insert_range.begin >= partition.insert_range.end:
        return False
    bounds, theirs = (side.statistics.get(table.key[0]) for side in (partition, other))
    return bounds is None or theirs is None or (bounds[0] <= theirs[1] and bounds[1] >= theirs[0])
