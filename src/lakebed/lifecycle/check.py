"""Check that the lake is what its catalog says, level by level. A check repairs nothing unless
requested: then it sets files aside (quarantine) and never deletes.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lakebed.catalog import journal, rules
from lakebed.catalog.catalog import Catalog, Connection
from lakebed.catalog.lookups import partition_search
from lakebed.catalog.lookups.partition_search import PartitionFilter
from lakebed.catalog.records import blocks, files, footers, lakes, partitions
from lakebed.catalog.records.blocks import Segment
from lakebed.catalog.records.files import TemporaryFile
from lakebed.errors import Damage, DamagedFile, LakebedError, UnknownObject
from lakebed.lifecycle.checks import segments, table_check
from lakebed.lifecycle.checks.aside import get_aside, get_candidate
from lakebed.lifecycle.checks.findings import Finding as Finding
from lakebed.lifecycle.checks.findings import Severity as Severity
from lakebed.lifecycle.checks.findings import damage
from lakebed.lifecycle.checks.sources import SourceCheck
from lakebed.lifecycle.checks.strays import StrayKind, classify
from lakebed.model.arguments import checked_methods
from lakebed.model.partition import FileState, Partition
from lakebed.model.tables.table import UserTable, name_import
from lakebed.model.time import format_instant
from lakebed.reading.footers import usable_bytes
from lakebed.reading.leases import LeaseKeeper
from lakebed.storage import footer as footer_format
from lakebed.storage import layout, parquet
from lakebed.storage.marks import require_mark
from lakebed.storage.objects import Listed, Store
from lakebed.writing.publish import retire_rows

if TYPE_CHECKING:
    import pyarrow.parquet as pq


class Level(enum.IntEnum):
    """The depth of a check; each level includes the ones before."""

    CATALOG = 1  # the catalog's rules
    FILES = 2  # every file present and of its size; strays
    FOOTERS = 3  # stored footer = the file's own; row counts; schema hashes; source hashes
    PAGES = 4  # every page read, with its checksum; every block's bytes


@dataclass(slots=True)
class CheckReport:
    """The counts and the findings of a check."""

    level: Level
    partitions: int = 0
    files: int = 0
    rows: int = 0
    bytes: int = 0
    segments: int = 0
    blocks: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Return True if nothing is damaged; there may be warnings and notes."""
        return not any(finding.severity is Severity.DAMAGE for finding in self.findings)

    @property
    def figures(self) -> dict[str, int]:
        """Return every count by name."""
        names = ("partitions", "files", "rows", "bytes", "segments", "blocks")
        return {name: getattr(self, name) for name in names}

    def damage(self, kind: str, subject: str, message: str) -> None:
        """Add a finding of damage."""
        self.findings.append(damage(kind, subject, message))

    def note_aside(self, aside: Sequence[TemporaryFile]) -> set[str]:
        """Add a note for each file that was set aside. Return their paths."""
        for file in aside:
            end = "" if file.expiration is None else ", and will be swept"
            message = f"was set aside{end}: {file.reason}"
            self.findings.append(
                Finding(Severity.NOTE, "quarantined file", file.file_path, message)
            )
        return {file.file_path for file in aside}


@dataclass(frozen=True, slots=True)
class Share:
    """A share of a lake's files."""

    live: Sequence[Partition]
    landed: Sequence[Segment]


@checked_methods
class Checker:
    """Checks one lake, also while it is written to: it reads one snapshot under a lease."""

    def __init__(self, catalog: Catalog, store: Store, keeper: LeaseKeeper) -> None:
        self._catalog = catalog
        self._store = store
        self._keeper = keeper

    def run(
        self,
        level: Level = Level.FOOTERS,
        progress: Callable[[CheckReport], None] = lambda _report: None,
    ) -> CheckReport:
        """Check everything up to a level."""
        report = CheckReport(level)
        if level >= Level.FILES:
            self._check_mark(report)
        # Files are listed before the catalog is read: every file in a store was in the catalog
        # before, so that a file which the later snapshot does not know is a stray, or just swept.
        listed = list(self._store.list()) if level >= Level.FILES else []
        pin = self._keeper.pin()
        try:
            with self._catalog.read() as connection:
                self._check_rules(connection, report)
                known_paths = {file.file_path for file in files.list_files(connection)}
                looked_at = report.note_aside(files.list_aside(connection))
                sources = SourceCheck(connection)
                known_tables = table_check.list_known(connection)
                for page in partition_search.list_pages(connection):
                    for partition in page:
                        sources.add(partition)
                        report.findings.extend(table_check.look_at(partition, known_tables))
                        self._check_partition(connection, partition, report, looked_at)
                    progress(report)
                known_paths |= looked_at
                if level >= Level.FOOTERS:
                    report.findings.extend(sources.run())
                known_paths |= self._check_segments(connection, report, progress)
                self._check_strays(connection, listed, known_paths, report)
        finally:
            self._keeper.unpin(pin)
        return report

    def check_table(self, table: UserTable, level: Level = Level.PAGES) -> CheckReport:
        """Check the partitions of one table, retired ones too, and each of their files that was
        not set aside. Files that were set aside, also by imports into the table, are only noted."""
        report = CheckReport(level)
        pin = self._keeper.pin()
        try:
            with self._catalog.read() as connection:
                tables_by_id = {table.table_id: table}
                search = PartitionFilter(view_sets=[(table.stored_as, None)], include_retired=True)
                table_partitions = partition_search.search(connection, search)
                own = {partition.file_path for partition in table_partitions}
                imported = name_import(table.database, table.name)
                aside = [
                    file
                    for file in files.list_aside(connection)
                    if file.file_path in own or (file.reason or "").startswith(imported)
                ]
                looked_at = report.note_aside(aside)
                for partition in table_partitions:
                    report.findings.extend(table_check.look_at(partition, tables_by_id))
                    self._check_partition(connection, partition, report, looked_at)
        finally:
            self._keeper.unpin(pin)
        return report

    def read_share(self, choose: Callable[[Connection], Share]) -> tuple[CheckReport, list[str]]:
        """Read some files to their end. Return the report and the paths of damaged files."""
        report = CheckReport(Level.PAGES)
        damaged: list[str] = []
        pin = self._keeper.pin()
        try:
            with self._catalog.read() as connection:
                share = choose(connection)
                for partition in share.live:
                    before = len(report.findings)
                    report.partitions += 1
                    report.rows += partition.num_rows
                    self._check_file(connection, partition, report)
                    if len(report.findings) > before:
                        damaged.append(partition.file_path or "")
                for segment in share.landed:
                    report.segments += 1
                    if not self._check_segment(connection, segment, report):
                        damaged.append(segment.segment_path)
        finally:
            self._keeper.unpin(pin)
        return report, damaged

    def _check_mark(self, report: CheckReport) -> None:
        with self._catalog.read() as connection:
            lake_id = lakes.get(connection).lake_id
        try:
            require_mark(self._store, lake_id)
        except LakebedError as error:
            report.damage("store mark", layout.MARK, str(error))

    def _check_rules(self, connection: Connection, report: CheckReport) -> None:
        for subject, message in rules.list_broken(connection):
            report.damage("catalog rule", subject, message)
        overdue = rules.oldest_overdue(connection)
        if overdue is not None:
            path, since = overdue
            message = f"should have been swept since {format_instant(since)}; run: lakebed sweep"
            report.findings.append(Finding(Severity.WARNING, "overdue file", path, message))

    def _check_partition(
        self,
        connection: Connection,
        partition: Partition,
        report: CheckReport,
        looked_at: set[str],
    ) -> None:
        """Count a partition, and check its file unless that was done."""
        report.partitions += 1
        report.rows += partition.num_rows if partition.is_live else 0
        path = partition.file_path
        if path is not None and path not in looked_at:
            looked_at.add(path)
            self._check_file(connection, partition, report)

    def _check_file(
        self, connection: Connection, partition: Partition, report: CheckReport
    ) -> None:
        if report.level < Level.FILES:
            return
        path = partition.file_path or ""
        report.files += 1
        report.bytes += partition.file_size
        try:
            size = self._store.size(path)
            if size != partition.file_size:
                report.damage(
                    "file size", path, f"has {size} bytes, the catalog says {partition.file_size}"
                )
                return
            if report.level >= Level.FOOTERS:
                own = self._check_footer(connection, partition, report)
                if own is not None and report.level >= Level.PAGES:
                    self._check_pages(partition, own)
        except UnknownObject:
            message = f"of {partition.identity} is not in the store"
            if self._is_live(path):  # maybe by another of its rows: a partition that was restored
                report.damage("missing file", path, message)
            elif not self._is_being_swept(path):
                warning = f"{message}; it is retired, and cannot be restored"
                report.findings.append(Finding(Severity.WARNING, "missing file", path, warning))
        except Damage as error:
            report.damage("file content", path, str(error))

    def _is_live(self, path: str) -> bool:
        with self._catalog.read() as connection:
            return bool(partitions.list_live_among(connection, [path]))

    def _is_being_swept(self, path: str) -> bool:
        """Return True if a sweep took a retired file while the check ran."""
        with self._catalog.read() as connection:
            file = files.find_file(connection, path)
            live = partitions.list_live_among(connection, [path])
        return not live and (file is None or file.state is FileState.DELETING)

    def _check_footer(
        self, connection: Connection, partition: Partition, report: CheckReport
    ) -> pq.FileMetaData:
        """Compare the stored footer with the file's own, and both with the row."""
        path = partition.file_path or ""
        own = parquet.read_footer(self._store, path, partition.file_size)
        parsed = footer_format.parse(own, path=path)
        ours = partition.format_version == footer_format.FOOTER_FORMAT
        parquet.validate(
            parsed,
            path=path,
            num_rows=partition.num_rows,
            expected_hash=partition.schema_hash if ours else None,
        )
        try:
            stored = footers.get(connection, path)
            usable = usable_bytes(stored, partition.num_rows)
            if ours and usable != own:
                report.damage("stored footer", path, "differs from the footer in the file")
        except LakebedError as error:
            report.damage("stored footer", path, str(error))
        return parsed

    def _check_pages(self, partition: Partition, metadata: pq.FileMetaData) -> None:
        """Read every page; a bit that flipped shows in a checksum or in the decoded rows."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = partition.file_path or ""
        source = self._store.open(path)
        try:
            file = pq.ParquetFile(source, metadata=metadata, page_checksum_verification=True)
            rows = sum(batch.num_rows for batch in file.iter_batches())
        except (pa.ArrowException, OSError) as error:
            reason = str(error).splitlines()[0]
            raise DamagedFile(f"{path} cannot be read to its end: {reason}") from error
        finally:
            source.close()
        if rows != partition.num_rows:
            raise DamagedFile(f"{path} gave {rows} rows, the catalog says {partition.num_rows}")

    def _check_segments(
        self,
        connection: Connection,
        report: CheckReport,
        progress: Callable[[CheckReport], None],
    ) -> set[str]:
        """Check the landed segments. Return the path of every segment."""
        report.blocks = blocks.count_blocks(connection)
        known_paths = set()
        for segment in blocks.list_segments(connection):
            report.segments += 1
            known_paths.add(segment.segment_path)
            if report.level >= Level.FILES:
                self._check_segment(connection, segment, report)
            progress(report)
        return known_paths

    def _check_segment(self, connection: Connection, segment: Segment, report: CheckReport) -> bool:
        """Check one segment. Return True if it is sound."""
        report.files += 1
        report.bytes += segment.file_size
        troubles = segments.check_file(self._store, segment)
        if not troubles and report.level >= Level.PAGES:
            troubles = list(segments.check_payloads(connection, self._store, segment))
        report.findings.extend(troubles)
        return not troubles

    def _check_strays(
        self,
        connection: Connection,
        listed: list[Listed],
        known_paths: set[str],
        report: CheckReport,
    ) -> None:
        for file in listed:
            if file.path in known_paths or file.path == layout.MARK:
                continue
            spoken_of = journal.find_last(connection, file.path)
            kind = classify(self._store, file, in_journal=spoken_of is not None)
            if kind is None:
                continue
            normal = kind is StrayKind.EMPTY_DIRECTORY and file.path.split("/")[0] in layout.ROOTS
            report.findings.append(
                Finding(
                    Severity.NOTE if normal else Severity.WARNING,
                    kind.value,
                    file.path,
                    f"{file.size} bytes that no catalog row knows"
                    if not file.empty_folder
                    else "nothing in it",
                    modified=file.modified,
                    journaled=spoken_of,
                )
            )

    def plan_quarantine(self, path: str) -> str:
        """Return the effect of `quarantine`, in words. Raises the errors of `quarantine`."""
        with self._catalog.read() as connection:
            _file, live = get_candidate(connection, self._store, path)
        what = f"retire {live[0].identity} and set its file aside" if live else "set aside"
        return f"{path}: would {what}"

    def quarantine(self, path: str, reason: str = "quarantined by an operator") -> str:
        """Set a file aside: a stray gets a row and is never swept; a live partition with it is
        retired. Return the effect in words. Nothing is deleted or moved."""
        with self._catalog.write() as transaction:
            connection = transaction.connection
            file, live = get_candidate(connection, self._store, path)
            if live:
                retire_rows(
                    transaction, live, operation="quarantine", reason=reason, hint="try again"
                )
            files.take(connection, [path], [FileState.RETIRED, FileState.QUARANTINED])
            files.insert_many(connection, [replace(file, reason=reason)])
            entry = journal.Entry("quarantine", reason, file_path=path, bytes=file.file_size)
            journal.append(transaction, [] if live else [entry])
        what = f"retired {live[0].identity} and set its file aside" if live else "set aside"
        return f"{path}: {what}"

    def get_aside(self, path: str) -> TemporaryFile:
        """Return a file that was set aside. `Conflict` if it was not, or is condemned already."""
        with self._catalog.read() as connection:
            return get_aside(connection, path)

    def condemn(self, path: str) -> str:
        """Let a sweep delete a file that was set aside, once the lake's grace period is over,
        also if its partition was held. Return the effect in words."""
        with self._catalog.write() as transaction:
            connection = transaction.connection
            file = get_aside(connection, path)
            expiration = transaction.tick + lakes.get(connection).grace_us
            lost = [
                partition.partition_id for partition in partitions.list_by_path(connection, path)
            ]
            partitions.condemn(connection, lost, expiration)
            files.expire(connection, [path], expiration)
            entry = journal.Entry("condemn", file.reason, file_path=path, bytes=file.file_size)
            journal.append(transaction, [entry])
        return f"{path}: a sweep deletes it from {format_instant(expiration)} on"
