"""Sweep: delete condemned files after their grace period, once no reader can use them.

It works in bounded batches, each of which a crash may interrupt anywhere:

claim (committed, never undone) → unlink → sync the folders → forget the rows
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from lakebed.catalog import clock, journal, leases
from lakebed.catalog.catalog import Catalog, Connection, Transaction
from lakebed.catalog.leases import Lease
from lakebed.catalog.records import blocks, files, footers, inserts, lakes, partitions
from lakebed.catalog.records.files import TemporaryFile
from lakebed.errors import LakebedError, Refused
from lakebed.logs import Operation
from lakebed.model.arguments import checked_methods
from lakebed.model.partition import FileState, Partition
from lakebed.storage import layout
from lakebed.storage.marks import require_mark
from lakebed.storage.objects import Store

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """The files that a sweep would delete now, and the reasons why it leaves others."""

    expired: tuple[TemporaryFile, ...]  # retired, past their grace period, without readers
    abandoned: tuple[TemporaryFile, ...]  # reserved by a process that is dead
    unfinished: tuple[TemporaryFile, ...]  # claimed by a sweep that did not finish
    empty: tuple[Partition, ...]  # retired partitions without a file
    dead_leases: tuple[Lease, ...]
    waiting: int = 0  # retired files whose grace period still runs
    protected: int = 0  # expired files that a reader may still use
    oldest_overdue: int | None = None

    @property
    def files(self) -> tuple[TemporaryFile, ...]:
        return self.unfinished + self.expired + self.abandoned

    @property
    def bytes(self) -> int:
        return sum(file.file_size for file in self.files)

    @property
    def is_empty(self) -> bool:
        return not self.files and not self.empty and not self.dead_leases


@dataclass(slots=True)
class SweepResult:
    """The counts of a sweep."""

    files: int = 0
    bytes: int = 0
    empty_partitions: int = 0
    leases_ended: int = 0
    journal_entries_dropped: int = 0
    names_released: int = 0  # reservations of dead writers
    catalog_seconds: float = 0.0
    has_more: bool = False  # it ended because it had done enough


class LeaseObserver:
    """Tells dead leases from living ones: a lease is dead if it had no heartbeat for its
    time-to-live while this observer watched, by this process's monotonic clock."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._seen: dict[str, tuple[int, float]] = {}

    def observe(self, present: Sequence[Lease]) -> list[Lease]:
        """Observe the leases once. Return those that have stood still for long enough."""
        now = self._monotonic()
        still_since = {}
        for lease in present:
            beats, since = self._seen.get(lease.lease_id, (lease.beats, now))
            still_since[lease.lease_id] = (lease.beats, since if beats == lease.beats else now)
        self._seen = still_since
        return [
            lease
            for lease in present
            if now - still_since[lease.lease_id][1] >= lease.ttl_us / 1_000_000
        ]


@checked_methods
class Sweeper:
    """Sweeps one lake. Keep one instance per process: it learns which leases are dead."""

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        *,
        batch_files: int = 1000,
        journal_retention_us: int | None = None,
        observer: LeaseObserver | None = None,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._batch = batch_files
        self._journal_retention_us = journal_retention_us
        self._observer = observer or LeaseObserver()

    def watch_leases(self, sleep: Callable[[float], None] = time.sleep) -> None:
        """Observe leases for one time-to-live, so that dead ones are detected."""
        present = self._observe()
        if present:
            sleep(max(lease.ttl_us for lease in present) / 1_000_000 + 0.1)
            self._observe()

    def _observe(self) -> list[Lease]:
        with self._catalog.read() as connection:
            present = leases.list_leases(connection)
        self._observer.observe(present)
        return present

    def plan(self) -> SweepPlan:
        """Return the plan of the next batch without any change."""
        with self._catalog.read() as connection:
            present = leases.list_leases(connection)
            dead = self._observer.observe(present)
            now = clock.upcoming(connection)
            floor = now - lakes.get(connection).longest_read_us
            reading = [
                lease.oldest_tick
                for lease in present
                if lease not in dead
                and lease.oldest_tick is not None
                and (lease.pinned_at or 0) >= floor
            ]
            protected_from = min(reading, default=now)
            retired = files.list_files(connection, [FileState.RETIRED])
            overdue = [
                file for file in retired if file.expiration is not None and file.expiration <= now
            ]
            expired = files.list_expired(connection, now, protected_from, self._batch)
            all_expired = files.list_expired(connection, now, protected_from, len(retired) + 1)
            dead_ids = {lease.lease_id for lease in dead}
            abandoned = files.list_abandoned(connection, self._batch) + [
                file
                for file in files.list_files(connection, [FileState.STAGED])
                if file.lease_id in dead_ids
            ]
            expirations = [file.expiration for file in overdue if file.expiration is not None]
            return SweepPlan(
                expired=tuple(expired),
                abandoned=tuple(abandoned[: self._batch]),
                unfinished=tuple(files.list_claimed(connection, now, self._batch)),
                empty=tuple(
                    partitions.list_expired_empty(connection, now, protected_from, self._batch)
                ),
                dead_leases=tuple(dead),
                waiting=len(retired) - len(overdue),
                protected=len(overdue) - len(all_expired),
                oldest_overdue=min(expirations, default=None),
            )

    def run(
        self,
        progress: Callable[[SweepResult], None] = lambda _result: None,
        *,
        most_batches: int | None = None,
    ) -> SweepResult:
        """Sweep until nothing is left to delete now, or for so many batches."""
        result = SweepResult()
        with Operation(_log, "sweep") as operation:
            self._run(result, progress, most_batches)
            operation.add(
                files=result.files,
                bytes=result.bytes,
                empty_partitions=result.empty_partitions,
                leases_ended=result.leases_ended,
                names_released=result.names_released,
                journal_entries_dropped=result.journal_entries_dropped,
                has_more=result.has_more,
            )
        return result

    def _run(
        self,
        result: SweepResult,
        progress: Callable[[SweepResult], None],
        most_batches: int | None,
    ) -> None:
        self._require_own_store()
        full = True
        for _ in _batches(most_batches):
            before = time.perf_counter()
            empty = result.empty_partitions
            forget, keep = self._claim(result)
            result.catalog_seconds += time.perf_counter() - before
            if not forget and not keep and empty == result.empty_partitions:
                break
            self._store.delete([file.file_path for file in forget + keep])
            self._forget(forget, result)
            result.names_released += len(keep)
            progress(result)
            swept = (len(forget), len(keep), result.empty_partitions - empty)
            full = max(swept) >= self._batch
        else:
            result.has_more = full
        self._delete_late()
        self._prune_journal(result, most_batches)

    def _require_own_store(self) -> None:
        with self._catalog.read() as connection:
            require_mark(self._store, lakes.get(connection).lake_id)

    def _claim(self, result: SweepResult) -> tuple[list[TemporaryFile], list[TemporaryFile]]:
        """End dead leases, choose a batch and mark it as being deleted, in one transaction. Return
        the files to delete and forget, and those to delete whose names stay claimed.

        Names stay claimed when their writer lost its lease: it may be slow instead of dead, and
        still create the file after it was deleted here.
        """
        with self._catalog.read() as connection:
            dead = self._observer.observe(leases.list_leases(connection))
        with self._catalog.write() as transaction:
            connection, tick = transaction.connection, transaction.tick
            result.leases_ended += self._end_leases(transaction, dead)
            oldest = leases.oldest_read_tick(connection)
            protected_from = tick if oldest is None else oldest
            unfinished = files.list_claimed(connection, tick, self._batch)
            expired = files.list_expired(connection, tick, protected_from, self._batch)
            abandoned = files.list_abandoned(connection, self._batch)
            empty = partitions.list_expired_empty(connection, tick, protected_from, self._batch)
            forget = unfinished + expired
            doomed = [file.file_path for file in expired]
            _refuse_broken(connection, [file.file_path for file in forget + abandoned])
            files.claim(connection, doomed)
            keep_until = tick + lakes.get(connection).longest_read_us
            files.claim(connection, [file.file_path for file in abandoned], keep_until)
            partitions.delete_by_id(connection, [partition.partition_id for partition in empty])
            horizon = max((partition.retired_at or 0 for partition in empty), default=0)
            horizon = max(horizon, partitions.last_retirement(connection, doomed))
            clock.raise_sweep_horizon(connection, horizon)
            entries = [
                journal.Entry.about("sweep", partition, "empty partition") for partition in empty
            ]
            journal.append(transaction, entries)
            result.empty_partitions += len(empty)
        return forget, abandoned

    def _end_leases(self, transaction: Transaction, dead: Sequence[Lease]) -> int:
        connection = transaction.connection
        by_id = sorted(dead, key=lambda lease: lease.lease_id)  # as heartbeats lock them
        ended = [lease for lease in by_id if leases.remove(connection, lease.lease_id, lease.beats)]
        floor = transaction.tick - lakes.get(connection).longest_read_us
        ended += leases.remove_overaged_readers(connection, floor)
        entries = [
            journal.Entry("lease ended", f"{lease.kind} of {lease.holder}", lease.view_set)
            for lease in ended
        ]
        journal.append(transaction, entries)
        return len(ended)

    def _forget(self, deleted: Sequence[TemporaryFile], result: SweepResult) -> None:
        """Delete the rows and footers of deleted files, in one transaction."""
        if not deleted:
            return
        before = time.perf_counter()
        with self._catalog.write() as transaction:
            connection = transaction.connection
            claimed = files.list_paths(connection, [FileState.DELETING])
            deleted = [file for file in deleted if file.file_path in claimed]  # not by another
            paths = [file.file_path for file in deleted]
            partitions.delete_by_path(connection, paths)
            footers.delete_many(connection, paths)
            files.take(connection, paths, [FileState.DELETING])
            entries = [
                journal.Entry("sweep", file_path=file.file_path, bytes=file.file_size)
                for file in deleted
            ]
            journal.append(transaction, entries)
        result.catalog_seconds += time.perf_counter() - before
        result.files += len(deleted)
        result.bytes += sum(file.file_size for file in deleted)

    def _delete_late(self) -> None:
        """Delete files that slow writers created under names they had lost."""
        with self._catalog.read() as connection:
            claimed = files.list_files(connection, [FileState.DELETING])
        self._store.delete([file.file_path for file in claimed])

    def _prune_journal(self, result: SweepResult, most_batches: int | None) -> None:
        if self._journal_retention_us is None:
            return
        for _ in _batches(most_batches):
            with self._catalog.write() as transaction:
                before = transaction.tick - self._journal_retention_us
                dropped = journal.prune(transaction, before, self._batch)
                inserts.forget(transaction.connection, before)
            result.journal_entries_dropped += dropped
            if dropped < self._batch:
                return
        result.has_more = True


def _batches(most_batches: int | None) -> Iterable[int]:
    return count() if most_batches is None else range(most_batches)


def _refuse_broken(connection: Connection, paths: Sequence[str]) -> None:
    """Raise if a rule of the catalog is broken: a sweep of a broken catalog could delete live
    files."""
    for path in paths:
        try:
            layout.check_path(path)
        except LakebedError as error:
            raise Refused(f"nothing was swept: {error}", hint="run: lakebed check") from error
    live = partitions.list_live_among(connection, paths)
    live += blocks.list_segments_among(connection, paths)
    if live:
        raise Refused(
            f"nothing was swept: {live[0]} is live and listed as temporary at once",
            hint="run: lakebed check",
        )
