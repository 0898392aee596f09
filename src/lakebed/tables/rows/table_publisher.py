"""Publishing rows of users' tables: an insert becomes a file for each bucket that it touches, all
of them live in one transaction at one tick, which is the version of its rows. Or nothing happens.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakebed.catalog import files, footers, inserts, journal, lakes, partitions, tables
from lakebed.catalog.catalog import Catalog, Connection, Transaction
from lakebed.catalog.inserts import KnownInsert
from lakebed.errors import (
    AlreadyThere,
    BadInput,
    LakebedError,
    LeaseLost,
    StalePlan,
    Unavailable,
    UnknownTable,
)
from lakebed.logs import Operation
from lakebed.model.partition import NO_SOURCE, Partition
from lakebed.model.time import TimeRange
from lakebed.model.user_table import UserTable
from lakebed.storage import parquet
from lakebed.storage.objects import Store
from lakebed.storage.parquet import WrittenFile
from lakebed.tables.fold import fold_rows
from lakebed.tables.importing.quarantine import Quarantine
from lakebed.tables.insert.insert_values import Inserted, Insertion, Premise, require_same
from lakebed.tables.rows.row_reader import RowReader
from lakebed.tables.rows.stored_rows import Part, split_rows
from lakebed.writing.name_reservations import NamePool
from lakebed.writing.publish import (
    WrittenPartition,
    note_published,
    retire_rows,
    stored_footers,
)

if TYPE_CHECKING:
    import pyarrow as pa

_ATTEMPTS = 2
_WRITERS = 4
_log = logging.getLogger(__name__)
FOLDER = "rows"
"""Where a table's files are, whatever their bucket, so that names can be reserved for all."""


class _Repeated(LakebedError):
    """An insert with this key has happened."""

    def __init__(self, known: KnownInsert) -> None:
        super().__init__("the insert was repeated")
        self.known = known


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Rows of one bucket, in a durable and validated file under a reserved name."""

    table: UserTable
    instance: str
    file: WrittenFile

    def at(self, partition_id: str, tick: int) -> Partition:
        """The partition that an insert at a tick makes of it."""
        within = TimeRange(tick, tick + 1)
        written = WrittenPartition(self.table.view_set, within, self.instance, NO_SOURCE, self.file)
        return written.to_partition(partition_id, tick)


class TablePublisher:
    """Writes files of tables and publishes them."""

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        names: NamePool,
        new_id: Callable[[], str],
        reader: RowReader | None = None,
    ) -> None:
        """``reader`` is told what was written, because it will be read soon."""
        self._catalog = catalog
        self._store = store
        self._reader = reader
        self._names = names
        self._new_id = new_id

    @property
    def quarantine(self) -> Quarantine:
        """Where bytes go that no table takes and that are not to be lost."""
        return Quarantine(self._catalog, self._store, self._names)

    def insert(self, insertion: Insertion) -> Inserted:
        """Make rows live, all at one tick. `StalePlan` if the table has another schema by now, or
        changed when it should not have."""
        parts = [part for each in insertion.rows for part in split_rows(each)]
        with self._written(parts) as (lease, written):
            return self.insert_written(insertion, written, lease=lease)

    def insert_written(
        self, insertion: Insertion, written: Sequence[WrittenRows], *, lease: str
    ) -> Inserted:
        """The same for rows that are in files already, under names of a lease; the insertion itself
        needs none."""
        ids = [self._new_id() for _ in written]
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
                earlier = repeated.known
                inserted = Inserted(earlier.tick, earlier.rows, earlier.rejected, repeated=True)
            operation.add(rows=inserted.rows, tick=inserted.tick, repeated=inserted.repeated)
        return inserted

    def replace(self, table: UserTable, old: Sequence[Partition], rows: pa.Table) -> Partition:
        """Publish rows of one bucket in place of partitions of it that follow each other, which
        must all still be live; without rows, an empty partition stands for them."""
        return self.replace_all(table, [(old, rows)])[0]

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
        """Several such replacements in one transaction, in which ``condemned`` partitions, which
        are retired, lose the right to come back."""
        parts = [
            Part(table, old[0].instance, parquet.conform(rows, table.view_set))
            for old, rows in replacements
            if rows.num_rows
        ]
        with self._written(parts) as (lease, written):
            made = iter(written)
            return self.replace_written(
                table,
                [(old, next(made).file if rows.num_rows else None) for old, rows in replacements],
                lease=lease,
                operation=operation,
                reason=reason,
                condemned=condemned,
                premise=premise,
            )

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
        """The same for files that were written and validated under names of a lease; without a
        file, an empty partition stands for what it replaces."""
        ids = [self._new_id() for _ in replacements]
        written = [file for _, file in replacements if file is not None]

        def work(transaction: Transaction) -> list[Partition]:
            connection, tick = transaction.connection, transaction.tick
            instances = [old[0].instance for old, _ in replacements]
            ground = _require_ground(connection, table, instances, premise)
            retire_rows(
                transaction,
                [each for old, _ in replacements for each in old],
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
            footers.insert_many(connection, stored_footers(written), tick)
            partitions.insert_many(connection, new, _numbers(table, ground))
            if operation != journal.FOLDED:
                tables.touch(connection, table.table_id, tick)
            told = [*condemned, *new]
            entries = [journal.Entry.about(operation, each, reason) for each in told]
            journal.append(transaction, entries)
            _take(connection, written, lease)
            return new

        def happened(connection: Connection, _new: list[Partition]) -> bool:
            retired = [each.partition_id for each in condemned]
            gone = partitions.list_by_id(connection, retired)
            return _are_there(connection, ids) and all(each.replaced for each in gone)

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

    @contextmanager
    def _written(self, parts: Sequence[Part]) -> Iterator[tuple[str, list[WrittenRows]]]:
        """The parts as durable files under reserved names, to be published inside; what was not
        published is left to a sweep."""
        lease, paths, written = self._write_all(parts)
        try:
            yield lease, written
        except LeaseLost:
            self._names.forget(lease)
            raise
        except Unavailable:  # nobody knows whether the commit happened, or the names could be given
            raise
        except Exception:
            if paths:
                self._names.discard(paths)
            raise

    def _write_all(self, parts: Sequence[Part]) -> tuple[str, list[str], list[WrittenRows]]:
        for attempt in range(_ATTEMPTS):
            lease, paths = self._reserve(parts)
            try:
                return lease, paths, self._write(parts, paths)
            except AlreadyThere:  # a put whose answer was lost: the names are lost, not the rows
                if attempt == _ATTEMPTS - 1:
                    raise
            except BadInput:
                self._names.discard(paths)
                raise
        raise AssertionError("every attempt returns or raises")

    def _reserve(self, parts: Sequence[Part]) -> tuple[str, list[str]]:
        lease, names = "", {}
        for name in {part.table.stored_as for part in parts}:
            count = sum(part.table.stored_as == name for part in parts)
            lease, names[name] = self._names.take(name, FOLDER, count)
        return lease, [names[part.table.stored_as].pop() for part in parts]

    def _write(self, parts: Sequence[Part], paths: Sequence[str]) -> list[WrittenRows]:
        def write(store: Store, part: Part, path: str) -> WrittenRows:
            file = parquet.write(store, path, part.rows, part.table.view_set)
            if self._reader is not None:
                self._reader.keep(path, part.rows, file.size)
            return WrittenRows(part.table, part.instance, file)

        if len(parts) <= 1:
            return [write(self._store, part, path) for part, path in zip(parts, paths, strict=True)]
        with self._store.together() as store, ThreadPoolExecutor(_WRITERS) as writers:
            return list(writers.map(partial(write, store), parts, paths))


def _condemn(connection: Connection, retired: Sequence[Partition], tick: int) -> None:
    """Retired partitions, held ones too, cannot come back and will be swept."""
    expiration = tick + lakes.get(connection).grace_us
    partitions.condemn(connection, [each.partition_id for each in retired], expiration)
    files.expire(connection, [each.file_path for each in retired if each.file_path], expiration)


def _span(old: Sequence[Partition]) -> TimeRange:
    return TimeRange(
        min(each.insert_range.begin for each in old), max(each.insert_range.end for each in old)
    )


def _insert(
    transaction: Transaction,
    insertion: Insertion,
    written: Sequence[WrittenRows],
    ids: Sequence[str],
    lease: str,
) -> Inserted:
    connection, tick = transaction.connection, transaction.tick
    first, remembered = insertion.table, insertion.remembered
    if remembered is not None:
        known = inserts.find(connection, first.table_id, remembered.key)
        if known is not None:
            require_same(first, remembered, known)
            raise _Repeated(known)
    series: dict[partitions.SeriesKey, int] = {}
    crowded: tuple[str, ...] = ()
    for each in insertion.rows:
        instances = [part.instance for part in written if part.table is each.table]
        premise = insertion.premise if each.table is first else None
        ground = _require_ground(connection, each.table, instances, premise)
        series |= _numbers(each.table, ground)
        if each.table is first:
            crowded = tuple(
                part.instance
                for part in written
                if part.table is first
                and fold_rows.is_due(
                    part.instance, ground.live.get(part.instance, 0) + 1, part.file.num_rows
                )
            )
        tables.touch(connection, each.table.table_id, tick)
    new = [part.at(partition_id, tick) for part, partition_id in zip(written, ids, strict=True)]
    footers.insert_many(connection, stored_footers(part.file for part in written), tick)
    partitions.insert_many(connection, new, series)
    buckets = tuple(part.instance for part in written if part.table is first)
    counts = [part.file.num_rows for part in written if part.table is first]
    rejected = [part.file.num_rows for part in written if part.table is not first]
    done = Inserted(tick, sum(counts), sum(rejected), buckets=buckets, crowded=crowded)
    if remembered is not None:
        known = KnownInsert(remembered.digest, tick, done.rows, done.rejected)
        inserts.record(connection, first.table_id, remembered.key, known)
    entry = journal.Entry(
        insertion.operation,
        insertion.reason,
        first.stored_as,
        rows=done.rows,
        bytes=sum(each.file_size for each in new),
        detail={"table": first.full_name, "buckets": [part.instance for part in written]},
    )
    journal.append(transaction, [entry])
    _take(connection, [part.file for part in written], lease)
    return done


def _require_ground(
    connection: Connection,
    table: UserTable,
    instances: Sequence[str],
    premise: Premise | None = None,
) -> tables.Ground:
    """What there is to know of a table; raises unless it is there, in this version, and as it was
    read."""
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
    """The numbers of the series of a table's buckets, as far as they have one."""
    schema_hash = table.view_set.schema_hash
    return {
        (table.stored_as, instance, schema_hash): number
        for instance, number in ground.series.items()
    }


def _fails(connection: Connection, table: UserTable, premise: Premise) -> bool:
    """Whether what changed since a table was read is what must not have."""
    if premise.undone:
        name, after = table.stored_as, premise.tick
        return journal.has_happened(connection, name, premise.undone, after)
    if premise.minds is None:
        return True
    live = tables.list_partitions(connection, table.stored_as)
    new = [each for each in live if each.published_at > premise.tick and not each.is_empty]
    return premise.minds(new)


def _take(connection: Connection, written: Sequence[WrittenFile], lease: str) -> None:
    """Last, because it is the one whose answer is needed: the others travel together."""
    paths = [each.path for each in written]
    if paths and files.take_staged(connection, paths, lease) != len(paths):
        raise LeaseLost(
            "a reservation was lost, because this process seemed dead", hint="do it again"
        )


def _is_known(connection: Connection, insertion: Insertion, ids: Sequence[str]) -> bool:
    """Whether an insert happened; one of no rows leaves only its key."""
    remembered = insertion.remembered
    if remembered is None:
        return _are_there(connection, ids)
    known = inserts.is_known(connection, insertion.table.table_id, remembered.key)
    return known and _are_there(connection, ids)


def _are_there(connection: Connection, ids: Sequence[str]) -> bool:
    return len(partitions.list_by_id(connection, ids)) == len(ids)
