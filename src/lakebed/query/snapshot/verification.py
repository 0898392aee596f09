"""Verification of the files of a snapshot, which an engine reads by itself and without checksums:
footers by the digest in the catalog, pages by their own checksums. Each file and column is verified
when a statement of this process reads it first, and again once the file has changed. The embedded
engine also ignores a missing file, so each statement checks that its files exist.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from lakebed.catalog.catalog import Catalog
from lakebed.catalog.records import footers
from lakebed.errors import (
    BadSql,
    Cancelled,
    Damage,
    DamagedFile,
    LakebedError,
    UnknownFooter,
    UnknownObject,
)
from lakebed.model.partition import NO_SOURCE, Partition
from lakebed.model.tables.table import DELETED, VERSION
from lakebed.query.embedded.running.turns import Deadline
from lakebed.query.planning.conditions import Scan
from lakebed.query.snapshot.snapshot import StatementSnapshot
from lakebed.storage import checksums, parquet
from lakebed.storage import footer as footer_format
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import Store

_MOST_FILES = 100_000
"""The number of files that are remembered; each takes about 400 bytes."""
_MOST_COLUMN_SETS = 1_000
_REQUESTS, _VERSION_REQUESTS = 16, 32
_ALL: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class FileRead:
    """A file that a statement reads, and the columns that it reads there; None stands for all."""

    partition: Partition
    columns: frozenset[str] | None

    @property
    def path(self) -> str:
        return self.partition.file_path or ""


class _Verified(NamedTuple):
    version: str
    columns: frozenset[str] | None


class FileVerifier:
    """Verifies files and remembers which. Safe to use from several threads."""

    def __init__(self, catalog: Catalog, store: Store, most_files: int = _MOST_FILES) -> None:
        self._catalog = catalog
        self._store = store
        self._most_files = most_files
        self._verified: OrderedDict[str, _Verified] = OrderedDict()
        self._column_sets: dict[frozenset[str], frozenset[str]] = {}
        self._lock = threading.Lock()

    def list_unverified(
        self, reads: Iterable[FileRead], versions: Mapping[str, str] | None = None
    ) -> list[FileRead]:
        """Return the reads that were not verified yet, or not in the version that the store has
        now, if these are given."""
        unverified = []
        with self._lock:
            for read in reads:
                path = read.path
                verified = self._verified.get(path)
                if (
                    verified is None
                    or not _covers(verified.columns, read.columns)
                    or (versions is not None and versions[path] != verified.version)
                ):
                    unverified.append(read)
                else:
                    self._verified.move_to_end(path)
        return unverified

    def list_unseen(self, reads: Iterable[FileRead]) -> list[FileRead]:
        """Return the reads of files of which nothing was verified yet."""
        with self._lock:
            return [read for read in reads if read.path not in self._verified]

    def get_version(self, partition: Partition) -> str:
        """Return the version of a file, or raise `DamagedFile` unless it is in the store and as
        large as the catalog says."""
        try:
            size, version = self._store.version(partition.file_path or "")
        except UnknownObject as missing:
            raise _name_missing(partition) from missing
        if size != partition.file_size:
            raise DamagedFile(
                f"the file of {partition.describe()} has {size} bytes, not {partition.file_size}",
                hint=suggest_repair(partition),
            )
        return version

    def list_versions(self, partitions: Sequence[Partition]) -> dict[str, str]:
        """Return the versions of files by path, as `get_version` does."""
        paths = [partition.file_path or "" for partition in partitions]
        if isinstance(self._store, LocalStore) or len(paths) < 2:
            return dict(zip(paths, map(self.get_version, partitions), strict=True))
        with ThreadPoolExecutor(_VERSION_REQUESTS) as pool:
            return dict(zip(paths, pool.map(self.get_version, partitions), strict=True))

    def find_damage(self, partition: Partition) -> str | None:
        """Return what is wrong with a file, down to the checksums of its pages."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = partition.file_path or ""
        try:
            source = self._store.open(path)
            try:
                file = pq.ParquetFile(source, page_checksum_verification=True)
                parquet.validate(
                    file.metadata,
                    path=path,
                    num_rows=partition.num_rows,
                    expected_hash=partition.schema_hash,
                )
                for _ in file.iter_batches():
                    pass
            finally:
                source.close()
        except (pa.ArrowException, LakebedError, OSError, ValueError) as error:
            return str(error).splitlines()[0]
        return None

    def verify(self, read: FileRead, digest: bytes | None, statement: Verification) -> None:
        """Verify the footer of a file and the pages of some of its columns, or raise
        `DamagedFile`. ``digest`` is that of the footer in the catalog."""
        partition = read.partition
        version = self.get_version(partition)
        try:
            columns = self._verify_content(read, digest, statement)
        except UnknownObject as missing:
            raise _name_missing(partition) from missing
        except Damage as error:
            raise _name_damaged(partition, error) from error
        self._remember(read.path, version, columns)

    def _verify_content(
        self, read: FileRead, digest: bytes | None, statement: Verification
    ) -> frozenset[str] | None:
        """Return the columns that need no verification any more."""
        path = read.path
        statement.proceed()
        footer = parquet.read_footer(self._store, path, read.partition.file_size)
        if footer_format.digest(footer) != digest:
            self._require_unchanged(path)
        if not parquet.is_ours(footer):
            return _ALL  # another system wrote the file, without checksums
        if read.columns == frozenset():
            return read.columns
        chunks = [
            chunk
            for chunk in checksums.list_chunks(footer, path=path)
            if _covers(read.columns, frozenset([chunk.column]))
        ]
        checksums.verify_chunks(
            lambda offset, length: self._store.read(path, offset, length),
            chunks,
            path=path,
            proceed=statement.proceed,
        )
        return read.columns

    def _require_unchanged(self, path: str) -> None:
        """Raise `DamagedFile` if the footer of a file of ours is not the one in the catalog. Of
        adopted files the catalog has another one; and it may be the catalog's that is damaged."""
        try:
            with self._catalog.read() as connection:
                stored = footers.get(connection, path)
        except UnknownFooter:
            return
        is_sound = footer_format.digest(stored.metadata) == stored.digest
        if is_sound and parquet.is_ours(stored.metadata):
            raise DamagedFile(f"the footer of {path} differs from the one in the catalog")

    def list_digests(self, reads: Sequence[FileRead]) -> dict[str, bytes]:
        """Return the digests of the footers that the catalog has for some files."""
        with self._catalog.read() as connection:
            return footers.list_digests(connection, [read.path for read in reads])

    def _remember(self, path: str, version: str, columns: frozenset[str] | None) -> None:
        with self._lock:
            previous = self._verified.pop(path, None)
            if previous is not None and previous.version == version and columns is not None:
                columns = None if previous.columns is None else columns | previous.columns
            if columns is not None:  # many files share few sets
                if len(self._column_sets) > _MOST_COLUMN_SETS:
                    self._column_sets.clear()
                columns = self._column_sets.setdefault(columns, columns)
            self._verified[path] = _Verified(version, columns)
            while len(self._verified) > self._most_files:
                self._verified.popitem(last=False)

    @property
    def threads(self) -> int:
        """Number of files that are verified at once."""
        return min(4, os.cpu_count() or 1) if isinstance(self._store, LocalStore) else _REQUESTS


class Verification:
    """The verification of the files of one statement. `cancel` may come from any thread."""

    def __init__(
        self,
        verifier: FileVerifier,
        reads: Sequence[FileRead],
        deadline: Deadline | None = None,
        snapshot: StatementSnapshot | None = None,
    ) -> None:
        """``reads`` are verified; all files of ``snapshot`` must be there."""
        self._verifier = verifier
        self._reads = reads
        self._deadline = deadline
        self._snapshot = snapshot
        self._files = [] if snapshot is None else snapshot.files
        self._digests: dict[str, bytes] = {}
        self._cancelled = False

    def run(self, versions: Mapping[str, str] | None = None) -> None:
        """Verify what is not verified yet, or has another version now. `DamagedFile` if a file is
        not as it was written, `TimedOut` and `Cancelled` like the statement."""
        self._run(self._verifier.list_unverified(self._reads, versions))

    def run_footers(self) -> None:
        """Verify the footers alone, as `run` does; the embedded engine learns the columns there."""
        unseen = self._verifier.list_unseen(self._reads)
        self._run([FileRead(read.partition, frozenset()) for read in unseen])

    def skip_pages(self) -> None:
        """Verify nothing more: the statement reads no pages."""
        self._reads = ()

    def require_unchanged(self) -> None:
        """Raise `DamagedFile` unless every file is there, and verified as it is now."""
        self.run(self._verifier.list_versions(self._files))

    def raise_named(self, error: BaseException) -> None:
        """Raise the cause of an engine's error if files explain it: a lost snapshot, or a damaged
        file. An engine that cannot read a file does not name it, and takes an empty one for a table
        without columns."""
        if isinstance(error, Damage) and self._snapshot is not None:
            self._snapshot.require_held()
        if not isinstance(error, Damage | BadSql) or isinstance(error, DamagedFile):
            return
        damage = self._find_damage(error)
        if damage is not None:
            raise damage from error
        if isinstance(error, Damage) and error.unless_damaged is not None:
            raise error.unless_damaged from error

    def _find_damage(self, error: LakebedError) -> DamagedFile | None:
        try:
            self.require_unchanged()
        except DamagedFile as damage:
            return damage
        for partition in self._files if isinstance(error, Damage) else ():
            reason = self._verifier.find_damage(partition)
            if reason is not None:
                return _name_damaged(partition, reason)
        return None

    def _run(self, unverified: Sequence[FileRead]) -> None:
        if not unverified:
            return
        unknown = [read for read in unverified if read.path not in self._digests]
        self._digests |= self._verifier.list_digests(unknown) if unknown else {}

        def verify(read: FileRead) -> None:
            self._verifier.verify(read, self._digests.get(read.path), self)

        threads = min(self._verifier.threads, len(unverified))
        if threads == 1:
            for read in unverified:
                verify(read)
            return
        with ThreadPoolExecutor(threads) as pool:
            try:
                for _ in pool.map(verify, unverified):
                    pass
            finally:
                pool.shutdown(wait=False, cancel_futures=True)

    def proceed(self) -> None:
        """Raise if the statement was cancelled or takes too long."""
        if self._cancelled:
            raise Cancelled("the statement was cancelled")
        if self._deadline is not None and self._deadline.measure_rest() < 0:
            raise self._deadline.error()

    def cancel(self) -> None:
        """Stop it; `run` raises `Cancelled`."""
        self._cancelled = True


def suggest_repair(partition: Partition) -> str:
    """Return what can be done about a damaged file."""
    retire = partition.retire_command
    if partition.source_hash == NO_SOURCE:
        return f"put the file back from a backup, or accept the loss with: {retire}"
    return (
        "upkeep has it built again if its blocks are still there, and at once after: "
        f"{retire}; otherwise put the file back from a backup"
    )


def _name_missing(partition: Partition) -> DamagedFile:
    return DamagedFile(
        f"the file of {partition.describe()} is missing", hint=suggest_repair(partition)
    )


def _name_damaged(partition: Partition, reason: object) -> DamagedFile:
    return DamagedFile(
        f"cannot read {partition.describe()}: {reason}", hint=suggest_repair(partition)
    )


def _covers(columns: frozenset[str] | None, needed: frozenset[str] | None) -> bool:
    """Return whether some columns, None being all, include those that are needed."""
    return columns is None or (needed is not None and needed <= columns)


def list_reads(scans: Sequence[Scan], snapshot: StatementSnapshot) -> list[FileRead]:
    """Return the reads of the engine for some scans. Of users' tables it also reads keys, versions,
    delete marks and times of rows; small files it does not read."""
    projections: dict[str, frozenset[str] | None] = {}
    for scan in scans:
        previous = projections.get(scan.table, frozenset())
        if previous is None or scan.projection is None:
            projections[scan.table] = None
        else:
            projections[scan.table] = previous | scan.projection
    reads = []
    for name, table in snapshot.tables.items():
        reads += [FileRead(partition, projections.get(name)) for partition in table.files]
    for name, view in snapshot.user_tables.items():
        columns = projections.get(name)
        if columns is not None:
            columns |= {*view.table.key, view.table.time_column, VERSION, DELETED}
        reads += [FileRead(partition, columns) for partition in view.files]
        reads += [FileRead(partition, columns) for partition in view.key_files]
    return [read for read in reads if read.path]
