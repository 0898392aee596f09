"""Publish partitions, all or none: files are written first, under reserved names; then one
transaction makes all of them live, retires exactly those that they replace, and writes the journal.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.catalog import journal
from lakebed.catalog.catalog import Catalog, Connection, Transaction
from lakebed.catalog.records import files, footers, lakes, partitions, view_sets
from lakebed.catalog.records.files import TemporaryFile
from lakebed.catalog.records.footers import StoredFooter
from lakebed.catalog.records.partitions import Ground
from lakebed.errors import (
    BadInput,
    Conflict,
    Outdated,
    Overlap,
    StalePlan,
)
from lakebed.logs import Operation
from lakebed.model.ids import new_id
from lakebed.model.partition import NO_SOURCE, FileState, Identity, Partition
from lakebed.model.time import Instant, TimeRange, covers, format_instant
from lakebed.model.view_set import GLOBAL, ViewSet, check_instance
from lakebed.storage import footer as footer_format
from lakebed.storage import parquet
from lakebed.storage.objects import Store
from lakebed.storage.parquet import WrittenFile
from lakebed.writing.files import FileWriter, NewFile
from lakebed.writing.name_reservations import NamePool, take_reserved

if TYPE_CHECKING:
    import pyarrow as pa


_LOGGED_RANGES = 10
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class NewPartition:
    """Rows to publish for a range, or the statement that the range is complete and empty."""

    view_set: ViewSet
    insert_range: TimeRange
    rows: pa.Table | None
    instance: str = GLOBAL
    source_hash: bytes = NO_SOURCE

    def __post_init__(self) -> None:
        check_instance(self.instance)
        if not isinstance(self.source_hash, bytes):
            raise BadInput("a source hash is bytes", hint="make it with hash_sources(…)")
        if self.rows is not None and self.rows.num_rows == 0:
            raise BadInput(
                f"there are no rows for {self.view_set.name} {self.insert_range}",
                hint="if the range is complete and truly empty, say so: completed_empty(…) or "
                "--completed-empty",
            )

    @classmethod
    def of_rows(
        cls,
        view_set: ViewSet,
        begin: Instant,
        end: Instant,
        rows: pa.Table,
        *,
        instance: str = GLOBAL,
        source_hash: bytes = NO_SOURCE,
    ) -> NewPartition:
        """Return a partition with rows. No rows are an error: the producer may have failed."""
        return cls(view_set, TimeRange.of(begin, end), rows, instance, source_hash)

    @classmethod
    def completed_empty(
        cls,
        view_set: ViewSet,
        begin: Instant,
        end: Instant,
        *,
        instance: str = GLOBAL,
        source_hash: bytes = NO_SOURCE,
    ) -> NewPartition:
        """Return the proof that a range was processed to its end and gave no rows."""
        return cls(view_set, TimeRange.of(begin, end), None, instance, source_hash)


@dataclass(frozen=True, slots=True)
class WrittenPartition:
    """A new partition whose file, if it has one, is durable and validated."""

    view_set: ViewSet
    insert_range: TimeRange
    instance: str
    source_hash: bytes
    file: WrittenFile | None

    def to_partition(self, partition_id: str, tick: int) -> Partition:
        """Return the catalog row that publishing at a tick inserts."""
        return Partition(
            partition_id=partition_id,
            identity=Identity(
                self.view_set.name, self.instance, self.insert_range, self.view_set.schema_hash
            ),
            events=self.file.events if self.file else None,
            file_path=self.file.path if self.file else None,
            file_size=self.file.size if self.file else 0,
            num_rows=self.file.num_rows if self.file else 0,
            source_hash=self.source_hash,
            sort_order=self.view_set.sort_order,
            format_version=footer_format.FOOTER_FORMAT,
            statistics=self.file.statistics if self.file else {},
            published_at=tick,
        )


def check_publication(new: Sequence[NewPartition], replaced: Sequence[Partition]) -> None:
    """Raise unless the new partitions are disjoint and cover all that they replace: replacing
    must not open a gap in which rows would disappear."""
    if len({old.partition_id for old in replaced}) != len(replaced):
        raise BadInput("a partition cannot be replaced twice")
    groups: dict[tuple[str, str], list[TimeRange]] = {}
    for partition in new:
        ranges = groups.setdefault((partition.view_set.name, partition.instance), [])
        for other in ranges:
            if other.overlaps(partition.insert_range):
                raise BadInput(
                    f"two of the new partitions overlap: {other} and {partition.insert_range}"
                )
        ranges.append(partition.insert_range)
    for old in replaced:
        ranges = groups.get((old.view_set, old.instance), [])
        if not covers(ranges, old.insert_range):
            raise BadInput(f"the new partitions do not cover what they replace: {old.describe()}")


class Publisher:
    """Writes files and publishes them."""

    def __init__(self, catalog: Catalog, store: Store, names: NamePool) -> None:
        self._catalog = catalog
        self._files = FileWriter(store, names)

    def publish(
        self,
        new: Sequence[NewPartition],
        *,
        replaces: Sequence[Partition] = (),
        read_at: int | None = None,
        reason: str | None = None,
    ) -> list[Partition]:
        """Write and publish partitions, all or none, retiring exactly those they replace.

        ``read_at`` is the tick of the snapshot that the rows come from; no range may end after it.
        On `Conflict` nothing happened: take a new snapshot and plan again.
        """
        if not new:
            raise BadInput("there is nothing to publish")

        def commit(lease: str, files: list[WrittenFile]) -> list[Partition]:
            written = _combine(new, files)
            return self._commit(written, lease, replaces, read_at, reason)

        with start_publishing(new, replaces) as operation:
            check_publication(new, replaces)
            files = [
                NewFile(
                    partition.view_set,
                    partition.instance,
                    parquet.conform(partition.rows, partition.view_set),
                )
                for partition in new
                if partition.rows is not None
            ]
            self.refuse_early(new, read_at, replaces)
            published = self._files.publish(files, commit)
            note_published(operation, published)
        return published

    def refuse_early(
        self, new: Sequence[NewPartition], read_at: int | None, replaces: Sequence[Partition]
    ) -> None:
        """Raise, before anything is written, the errors that the transaction would raise."""
        with self._catalog.glance() as connection:
            for partition in new:
                _check_may_publish(connection, partition, read_at, replaces)

    def publish_written(
        self,
        written: Sequence[WrittenPartition],
        *,
        lease: str,
        replaces: Sequence[Partition] = (),
        read_at: int | None = None,
        reason: str | None = None,
    ) -> list[Partition]:
        """Publish files that were written and validated under reservations of a lease."""
        with start_publishing(written, replaces) as operation:
            published = self._commit(written, lease, replaces, read_at, reason)
            note_published(operation, published)
        return published

    def _commit(
        self,
        written: Sequence[WrittenPartition],
        lease: str,
        replaces: Sequence[Partition],
        read_at: int | None,
        reason: str | None,
    ) -> list[Partition]:
        """Make the partitions live in one transaction."""
        ids = [new_id() for _ in written]

        def work(transaction: Transaction) -> list[Partition]:
            return _publish(transaction, written, ids, lease, replaces, read_at, reason)

        try:
            return self._catalog.commit(work, lambda connection, _: are_there(connection, ids))
        except Overlap as overlap:
            if overlap.hint is None:
                names = ", ".join(
                    f"{e.view_set.name}/{e.instance} {e.insert_range}" for e in written
                )
                raise Overlap(
                    f"a live partition already covers part of {names}",
                    hint="replace what is there (replaces=…, --replaces ID), or take another range",
                ) from overlap
            raise


def _combine(new: Sequence[NewPartition], files: Sequence[WrittenFile]) -> list[WrittenPartition]:
    """Return the new partitions with their files; one that is empty has none."""
    remaining = iter(files)
    return [
        WrittenPartition(
            partition.view_set,
            partition.insert_range,
            partition.instance,
            partition.source_hash,
            None if partition.rows is None else next(remaining),
        )
        for partition in new
    ]


def start_publishing(
    new: Sequence[NewPartition | WrittenPartition], replaces: Sequence[Partition]
) -> Operation:
    """Return the operation that logs a publication."""
    ranges = sorted({str(partition.insert_range) for partition in new})
    return Operation(
        _log,
        "publish",
        view_sets=sorted({partition.view_set.name for partition in new}),
        ranges=ranges[:_LOGGED_RANGES],
        partitions=len(new),
        replaces=len(replaces),
    )


def note_published(operation: Operation, published: Sequence[Partition]) -> None:
    """Add the published partitions to the log of a publication."""
    operation.add(
        rows=sum(partition.num_rows for partition in published),
        bytes=sum(partition.file_size for partition in published),
        tick=max((partition.published_at for partition in published), default=None),
    )


def _publish(
    transaction: Transaction,
    written: Sequence[WrittenPartition],
    ids: Sequence[str],
    lease: str,
    replaces: Sequence[Partition],
    read_at: int | None,
    reason: str | None,
) -> list[Partition]:
    connection, tick = transaction.connection, transaction.tick
    last = tick if read_at is None else min(read_at, tick)
    series: dict[partitions.SeriesKey, int] = {}
    for partition in written:
        ground = _check_may_publish(connection, partition, last, replaces)
        if ground.series_id is not None:
            key = (partition.view_set.name, partition.instance, ground.schema_hash)
            series[key] = ground.series_id
    retire_rows(
        transaction,
        replaces,
        operation="replace",
        reason=reason,
        hint="take a new snapshot and plan again",
        replaced=True,
    )
    new = [
        partition.to_partition(partition_id, tick)
        for partition, partition_id in zip(written, ids, strict=True)
    ]
    entries = [journal.Entry.about("publish", partition, reason) for partition in new]
    files = [partition.file for partition in written if partition.file is not None]
    insert_partitions(transaction, new, series, files, lease, entries)
    return new


def insert_partitions(
    transaction: Transaction,
    new: Sequence[Partition],
    series: Mapping[partitions.SeriesKey, int],
    files: Sequence[WrittenFile],
    lease: str,
    entries: Sequence[journal.Entry],
) -> None:
    """Insert live partitions with their footers, write the journal, and take their files over from
    the reservations of a lease: the end of each transaction that publishes."""
    connection = transaction.connection
    new_footers = [
        StoredFooter(
            file.path,
            file.size,
            file.footer,
            footer_format.FOOTER_FORMAT,
            footer_format.digest(file.footer),
        )
        for file in files
    ]
    footers.insert_many(connection, new_footers, transaction.tick)
    partitions.insert_many(connection, new, series)
    journal.append(transaction, entries)
    take_reserved(connection, [file.path for file in files], lease)


def are_there(connection: Connection, partition_ids: Sequence[str]) -> bool:
    """Return whether all of these partitions were inserted, live or not."""
    return len(partitions.list_by_id(connection, partition_ids)) == len(partition_ids)


def retire_rows(
    transaction: Transaction,
    old: Sequence[Partition],
    *,
    operation: str,
    reason: str | None,
    hint: str,
    hold: bool = False,
    replaced: bool = False,
    unconfirmed: Collection[str] = (),
) -> None:
    """Retire exactly these partitions, which must all still be live, and give their files a grace
    period (without end if ``hold``). ``replaced`` means that other partitions have their rows. The
    journal marks the ids in ``unconfirmed`` for the guard of retirement."""
    if not old:
        return
    connection, tick = transaction.connection, transaction.tick
    expiration = None if hold else tick + lakes.get(connection).grace_us
    ids = [partition.partition_id for partition in old]
    retired = partitions.retire(
        connection, ids, tick, expiration=expiration, held=hold, replaced=replaced
    )
    if retired != len(old):
        retired_now = {
            partition.partition_id
            for partition in partitions.list_by_id(connection, ids)
            if partition.retired_at == tick
        }
        stale = [partition for partition in old if partition.partition_id not in retired_now]
        raise StalePlan(f"{stale[0].describe()} is not live any more", hint=hint)
    files.insert_many(
        connection,
        [
            TemporaryFile(partition.file_path, partition.file_size, FileState.RETIRED, expiration)
            for partition in old
            if partition.file_path is not None
        ],
    )
    entries = [
        journal.Entry.about(
            operation, partition, reason, unconfirmed=partition.partition_id in unconfirmed
        )
        for partition in old
    ]
    journal.append(transaction, entries)


def _check_may_publish(
    connection: Connection,
    new: NewPartition | WrittenPartition,
    read_at: int | None,
    replaces: Sequence[Partition],
) -> Ground:
    """Raise unless the range has ended, its view set is the active one, and nothing in it is held
    (but what is visible already, beside a held partition of another schema, may be replaced)."""
    view_set, insert_range = new.view_set, new.insert_range
    ground = partitions.find_ground(connection, view_set.name, new.instance, insert_range)
    if ground is None:
        view_sets.get(connection, view_set.name)  # raises, saying what to do
        raise AssertionError(view_set.name)
    last = ground.upcoming if read_at is None else read_at
    if insert_range.end > last:
        raise BadInput(
            f"the range {insert_range} ends after {format_instant(last)}, the last tick read",
            hint="publish only ranges that have ended: more may still land in this one",
        )
    if ground.schema_hash != view_set.schema_hash:
        if ground.version == view_set.version:
            raise BadInput(
                f"the rows' view set {view_set.name} is not the registered version "
                f"{view_set.version}: its schema differs",
                hint="name the view set, or register the changed one with a higher version",
            )
        raise Outdated(
            f"view set {view_set.name} is active in version {ground.version}, "
            f"these rows are of version {view_set.version}",
            hint="register the version first, or update this program",
        )
    if insert_range.end <= ground.retained_from:
        floor = format_instant(ground.retained_from)
        raise Conflict(f"{view_set.name} keeps nothing from before {floor}")
    if ground.has_held:
        _check_held(connection, new, replaces)
    return ground


def _check_held(
    connection: Connection, new: NewPartition | WrittenPartition, replaces: Sequence[Partition]
) -> None:
    view_set, insert_range = new.view_set, new.insert_range
    visible = [
        old.insert_range
        for old in replaces
        if (old.view_set, old.instance) == (view_set.name, new.instance)
    ]
    for held in partitions.list_held(connection, view_set.name, new.instance, insert_range):
        if covers(visible, held.insert_range.intersect(insert_range)):
            continue
        raise Overlap(
            f"{held.describe()} is held",
            hint=f"restore it first: lakebed partitions restore {held.partition_id}",
        )
