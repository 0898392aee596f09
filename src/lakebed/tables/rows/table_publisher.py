"""Publish rows of users' tables: an insert becomes a file for each bucket that it touches, and all
of them go live in one transaction at one tick, which is the version of its rows.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.catalog import journal
from lakebed.catalog.catalog import Catalog, Connection, Transaction
from lakebed.catalog.records import files, inserts, lakes, partitions, tables
from lakebed.catalog.records.inserts import KnownInsert
from lakebed.errors import LakebedError, StalePlan, UnknownTable
from lakebed.logs import Operation
from lakebed.model.ids import new_id
from lakebed.model.partition import NO_SOURCE, Partition
from lakebed.model.tables.table import UserTable
from lakebed.model.time import TimeRange
from lakebed.storage import parquet
from lakebed.storage.objects import Store
from lakebed.storage.parquet import WrittenFile
from lakebed.tables.fold import fold_rows
from lakebed.tables.importing.quarantine import Quarantine
from lakebed.tables.insert.insert_values import Inserted, Insertion, Premise, require_same
from lakebed.tables.rows.row_reader import RowReader
from lakebed.tables.rows.stored_rows import split_rows
from lakebed.writing.files import FileWriter, NewFile
from lakebed.writing.name_reservations import NamePool
from lakebed.writing.publish import (
    WrittenPartition,
    are_there,
    insert_partitions,
    note_published,
    retire_rows,
)

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)
FOLDER = "rows"
"""The folder of a table's files in all buckets, so that names are reserved for all of them."""


class _Repeated(LakebedError):
    """An insert with this key exists already."""

    def __init__(self, earlier: KnownInsert) -> None:
        super().__init__("the insert was repeated")
        self.earlier = earlier


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Rows of one bucket, in a durable and validated file under a reserved name."""

    table: UserTable
    instance: str
    file: WrittenFile

    def at(self, partition_id: str, tick: int) -> Partition:
        """Return the partition that an insert at a tick publishes."""
        within = TimeRange(tick, tick + 1)
        written = WrittenPartition(self.table.view_set, within, self.instance, NO_SOURCE, self.file)
        return written.to_partition(partition_id, tick)


class TablePublisher:
    """Writes files of tables and publishes them."""

    def __init__(
        self, catalog: Catalog, store: Store, names: NamePool, reader: RowReader | None = None
    ) -> None:
        """``reader`` caches inserted rows, because they are read soon."""
        self._catalog = catalog
        self._reader = reader
        self._files = FileWriter(store, names)
        self.quarantine = Quarantine(catalog, store, names)

    def insert(self, insertion: Insertion) -> Inserted:
        """Write rows and publish them at one tick. `StalePlan` if the table has another schema now
        or a change fails the premise."""
        parts = [part for rows in insertion.rows for part in split_rows(rows)]

        def commit(lease: str, written: list[WrittenFile]) -> Inserted:
            new = []
            for part, file in zip(parts, written, strict=True):
                new.append(WrittenRows(part.table, part.instance, file))
                if self._reader is not None:
                    self._reader.keep(file.path, part.rows, file.size)
            return self.insert_written(insertion, new, lease=lease)

        new_files = [NewFile(part.table.view_set, FOLDER, part.rows) for part in parts]
        return self._files.publish(new_files, commit)

    def insert_written(
        self, insertion: Insertion, written: Sequence[WrittenRows], *, lease: str
    ) -> Inserted:
        """Publish rows that are in files under names of a lease; the insertion may have none."""
        ids = [new_id() for _ in written]
        operation = Operation(
            _log,
            "publish",
            table=insertion.table.full_name,
            operation=insertion.operation,
            partitions=len(written),
        )
        with operation:
            try:
                inserted = self._catalog.commit(
                    lambda transaction: _insert(transaction, insertion, written, ids, lease),
                    lambda connection, _done: _is_known(connection, insertion, ids),
                )
            except _Repeated as repeated:
                earlier = repeated.earlier
                inserted = Inserted(earlier.tick, earlier.rows, earlier.rejected, repeated=True)
            operation.add(rows=inserted.rows, tick=inserted.tick, repeated=inserted.repeated)
        return inserted

    def replace_all(
        self,
        table: UserTable,
        replacements: Sequence[tuple[Sequence[Partition], pa.Table]],
        *,
        operation: str = journal.FOLDED,
        reason: str | None = None,
        condemned: Sequence[Partition] = (),
        premise: Premise | None = None,
    ) -> list[Partition]:
        """Publish rows in place of partitions of a bucket that follow each other and must still be
        live, any number of times in one transaction; without rows, an empty partition stands for
        them. Retired partitions in ``condemned`` become unrestorable."""
        new_files = [
            NewFile(table.view_set, FOLDER, parquet.conform(rows, table.view_set))
            for _, rows in replacements
            if rows.num_rows
        ]

        def commit(lease: str, written: list[WrittenFile]) -> list[Partition]:
            remaining = iter(written)
            return self.replace_written(
                table,
                [(old, next(remaining) if rows.num_rows else None) for old, rows in replacements],
                lease=lease,
                operation=operation,
                reason=reason,
                condemned=condemned,
                premise=premise,
            )

        return self._files.publish(new_files, commit)

    def replace_written(
        self,
        table: UserTable,
        replacements: Sequence[tuple[Sequence[Partition], WrittenFile | None]],
        *,
        lease: str,
        operation: str = journal.FOLDED,
        reason: str | None = None,
        condemned: Sequence[Partition] = (),
        premise: Premise | None = None,
    ) -> list[Partition]:
        """Publish files that were written and validated under names of a lease in place of
        partitions; without a file, an empty partition replaces them."""
        ids = [new_id() for _ in replacements]
        written = [file for _, file in replacements if file is not None]

        def work(transaction: Transaction) -> list[Partition]:
            connection, tick = transaction.connection, transaction.tick
            instances = [old[0].instance for old, _ in replacements]
            ground = _require_ground(connection, table, instances, premise)
            retire_rows(
                transaction,
                [partition for old, _ in replacements for partition in old],
                operation=operation,
                reason=reason,
                hint="look again",
                replaced=True,
            )
            if condemned:
                _condemn(connection, condemned, tick)
            new = [
                WrittenPartition(
                    table.view_set, _span(old), old[0].instance, NO_SOURCE, file
                ).to_partition(partition_id, tick)
                for (old, file), partition_id in zip(replacements, ids, strict=True)
            ]
            if operation != journal.FOLDED:
                tables.touch(connection, table.table_id, tick)
            entries = [
                journal.Entry.about(operation, partition, reason)
                for partition in (*condemned, *new)
            ]
            insert_partitions(transaction, new, _numbers(table, ground), written, lease, entries)
            return new

        def happened(connection: Connection, _new: list[Partition]) -> bool:
            condemned_ids = [partition.partition_id for partition in condemned]
            retired = partitions.list_by_id(connection, condemned_ids)
            return are_there(connection, ids) and all(part.replaced for part in retired)

        log = Operation(
            _log,
            "publish",
            table=table.full_name,
            operation=operation,
            partitions=len(replacements),
            replaces=sum(len(old) for old, _ in replacements),
        )
        with log:
            published = self._catalog.commit(work, happened)
            note_published(log, published)
        return published


def _condemn(connection: Connection, retired: Sequence[Partition], tick: int) -> None:
    """Make retired partitions, also held ones, unrestorable, so that sweeps delete their files."""
    expiration = tick + lakes.get(connection).grace_us
    partitions.condemn(connection, [part.partition_id for part in retired], expiration)
    files.expire(connection, [part.file_path for part in retired if part.file_path], expiration)


def _span(old: Sequence[Partition]) -> TimeRange:
    return TimeRange(
        min(part.insert_range.begin for part in old), max(part.insert_range.end for part in old)
    )


def _insert(
    transaction: Transaction,
    insertion: Insertion,
    written: Sequence[WrittenRows],
    ids: Sequence[str],
    lease: str,
) -> Inserted:
    connection, tick = transaction.connection, transaction.tick
    first, insert_key = insertion.table, insertion.insert_key
    if insert_key is not None:
        earlier = inserts.find(connection, first.table_id, insert_key.key)
        if earlier is not None:
            require_same(first, insert_key, earlier)
            raise _Repeated(earlier)
    series: dict[partitions.SeriesKey, int] = {}
    crowded: tuple[str, ...] = ()
    for rows in insertion.rows:
        table = rows.table
        instances = [part.instance for part in written if part.table is table]
        premise = insertion.premise if table is first else None
        ground = _require_ground(connection, table, instances, premise)
        series |= _numbers(table, ground)
        if table is first:
            crowded = tuple(
                part.instance
                for part in written
                if part.table is first
                and fold_rows.is_due(
                    part.instance, ground.live.get(part.instance, 0) + 1, part.file.num_rows
                )
            )
        tables.touch(connection, table.table_id, tick)
    new = [part.at(partition_id, tick) for part, partition_id in zip(written, ids, strict=True)]
    buckets = tuple(part.instance for part in written if part.table is first)
    counts = [part.file.num_rows for part in written if part.table is first]
    rejected = [part.file.num_rows for part in written if part.table is not first]
    done = Inserted(tick, sum(counts), sum(rejected), buckets=buckets, crowded=crowded)
    if insert_key is not None:
        record = KnownInsert(insert_key.digest, tick, done.rows, done.rejected)
        inserts.record(connection, first.table_id, insert_key.key, record)
    entry = journal.Entry(
        insertion.operation,
        insertion.reason,
        first.stored_as,
        rows=done.rows,
        bytes=sum(partition.file_size for partition in new),
        detail={"table": first.full_name, "buckets": [part.instance for part in written]},
    )
    insert_partitions(transaction, new, series, [part.file for part in written], lease, [entry])
    return done


def _require_ground(
    connection: Connection,
    table: UserTable,
    instances: Sequence[str],
    premise: Premise | None = None,
) -> tables.Ground:
    """Return what the transaction needs to know of a table. Raise unless the table exists in this
    version and its premise holds."""
    ground = tables.find_ground(connection, table, instances)
    if ground is None:
        raise UnknownTable(f"table {table.full_name} was deleted meanwhile")
    if ground.version != table.version:
        raise StalePlan(f"table {table.full_name} was altered meanwhile", hint="insert again")
    if (
        premise is not None
        and ground.changed_at > premise.tick
        and _fails(connection, table, premise)
    ):
        raise StalePlan(f"table {table.full_name} changed meanwhile", hint="look again")
    return ground


def _numbers(table: UserTable, ground: tables.Ground) -> dict[partitions.SeriesKey, int]:
    """Return the numbers of the series of a table's buckets that have one."""
    schema_hash = table.view_set.schema_hash
    return {
        (table.stored_as, instance, schema_hash): number
        for instance, number in ground.series.items()
    }


def _fails(connection: Connection, table: UserTable, premise: Premise) -> bool:
    """Return whether a change after the tick of the premise fails it."""
    if premise.operations:
        name, after = table.stored_as, premise.tick
        return journal.has_happened(connection, name, premise.operations, after)
    if premise.keys is None:
        return True
    live = tables.list_partitions(connection, table.stored_as)
    return premise.keys.are_in(
        [
            partition
            for partition in live
            if partition.published_at > premise.tick and not partition.is_empty
        ]
    )


def _is_known(connection: Connection, insertion: Insertion, ids: Sequence[str]) -> bool:
    """Return whether an insert happened; one without rows leaves only its key."""
    insert_key = insertion.insert_key
    if insert_key is None:
        return are_there(connection, ids)
    has_key = inserts.is_known(connection, insertion.table.table_id, insert_key.key)
    return has_key and are_there(connection, ids)
