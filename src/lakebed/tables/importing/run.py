"""Import of a tree of Parquet files. The plan classifies every file. Carrying it out inserts each
sound file in one idempotent transaction and copies the others to quarantine. The source is only
read. An interrupted import is finished by running it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lakebed.catalog.catalog import Catalog
from lakebed.catalog.records import inserts, tables
from lakebed.errors import BadInput, Conflict, StalePlan
from lakebed.model.tables.table import UserTable, check_name, name_import
from lakebed.model.time import format_instant
from lakebed.tables.importing.files import (
    Broken,
    describe,
    list_tree,
    read_batches,
    require_source,
)
from lakebed.tables.importing.paths import read_folders, show_path
from lakebed.tables.importing.plan import (
    ImportedFiles,
    TableWishes,
    Target,
    classify,
    draft_schema,
    inspect_path,
    nothing_sound,
    read_bucket,
    refuse_other_wishes,
)
from lakebed.tables.importing.quarantine import Quarantine
from lakebed.tables.importing.report import (
    Fate,
    FileClass,
    ImportFile,
    ImportOutcome,
    ImportPlan,
    ImportReport,
)
from lakebed.tables.importing.schema_match import Fit, UnclearTime
from lakebed.tables.insert.insert import IGNORE, REPLACE, Inserter, InsertOptions
from lakebed.tables.insert.insert_values import Inserted
from lakebed.tables.schema.ddl import Definitions

_LONGEST_REASON = 500
_LOOKS = 3
"""The number of attempts for a file that keeps changing."""


class _Changed(Exception):
    """The file or the table changed after the file was classified."""


class Adopter:
    """Imports foreign files into the tables of one lake."""

    def __init__(
        self,
        catalog: Catalog,
        definitions: Definitions,
        inserter: Inserter,
        quarantine: Quarantine,
    ) -> None:
        self._catalog = catalog
        self._definitions = definitions
        self._inserter = inserter
        self._quarantine = quarantine

    # -- planning -------------------------------------------------------------------------------

    def plan(
        self,
        folder: Path,
        database: str,
        name: str,
        wishes: TableWishes,
        progress: Callable[[ImportFile], None] = lambda _file: None,
        if_exists: str = REPLACE,
    ) -> ImportPlan:
        """Read every file below a folder, or one file, and return the plan of an import."""
        InsertOptions(if_exists=if_exists)
        source = require_source(folder)
        self._refuse_own(source)
        table = self._find_table(database, name)
        inspected_files = [inspect_path(file, at, source) for file, at in list_tree(source)]
        if not inspected_files:
            raise BadInput(f"there is nothing in {source} to import")
        if table is not None:
            refuse_other_wishes(table, wishes)
            target = Target(table.schema, table.bucket, table.table_id, wishes.zone)
        else:
            schema = draft_schema(inspected_files, wishes, f"{database}.{name}", source)
            target = Target(schema, read_bucket(wishes.bucket), zone=wishes.zone)
        files = []
        imported_files = self._list_imported(
            target, [inspected.file.digest for inspected in inspected_files if inspected.schema]
        )
        for inspected in sorted(
            inspected_files, key=lambda inspected: (inspected.file.modified, inspected.file.path)
        ):
            files.append(classify(inspected, target, imported_files))
            progress(files[-1])
        files.sort(key=lambda file: file.path)
        plan = ImportPlan(
            source,
            source.is_file(),
            database,
            name,
            target.schema,
            target.bucket,
            table,
            tuple(files),
            if_exists,
            wishes.zone,
        )
        if table is None and not plan.list_files(FileClass.SOUND):
            raise nothing_sound(f"{database}.{name}", source, files)
        return plan

    def _refuse_own(self, source: Path) -> None:
        """Raise `BadInput` if the source overlaps with the folders of the lake itself."""
        lake_folders = [Path(unquote(urlsplit(self._quarantine.store.url).path))]
        if not self._quarantine.store.url.startswith("file:"):
            lake_folders = []
        if self._catalog.url.startswith("sqlite:///"):
            lake_folders.append(Path(self._catalog.url.removeprefix("sqlite:///")).parent)
        for lake_folder in (folder.resolve() for folder in lake_folders):
            if (
                source == lake_folder
                or lake_folder in source.parents
                or source in lake_folder.parents
            ):
                raise BadInput(
                    f"{source} and the lake in {lake_folder} are not apart from each other",
                    hint="import files from outside the lake",
                )

    def _find_table(self, database: str, name: str) -> UserTable | None:
        with self._catalog.read() as connection:
            table = tables.find(connection, database, name)
        if table is None:
            check_name(database, "database")
            check_name(name, "table")
        elif table.rejects_of is not None:
            raise BadInput(f"{table.full_name} is for what another table refused")
        return table

    def _list_imported(self, target: Target, digests: Iterable[str]) -> ImportedFiles:
        """Return those of the files that the table has already."""
        imported_files = ImportedFiles()
        if target.table_id is not None:
            beginnings = [f"{inserts.ADOPTED}{digest}" for digest in digests]
            with self._catalog.read() as connection:
                earlier_inserts = inserts.list_beginning(connection, target.table_id, beginnings)
                versions = tables.list_versions(connection, target.table_id)
            since = [tick for tick, _ in versions]
            for key, insert in earlier_inserts:
                _, schema = versions[bisect_right(since, insert.tick) - 1]
                imported_files.add(key, f"at {format_instant(insert.tick)}", schema)
        return imported_files

    # -- carrying out ---------------------------------------------------------------------------

    def carry_out(
        self,
        plan: ImportPlan,
        progress: Callable[[ImportOutcome], None] = lambda _outcome: None,
    ) -> ImportReport:
        """Carry out a plan, file by file, so that of several rows with the same key the latest
        wins: in the order in which the files were written, or in reverse if existing rows stay."""
        target, created = self._ensure_table(plan)
        outcomes = []
        in_order = sorted(plan.files, key=lambda file: (file.modified, file.path))
        for file in reversed(in_order) if plan.if_exists == IGNORE else in_order:
            outcomes.append(self._carry_out_one(plan, target, file))
            progress(outcomes[-1])
        outcomes.sort(key=lambda outcome: outcome.file.path)
        return ImportReport(tuple(outcomes), created)

    def _ensure_table(self, plan: ImportPlan) -> tuple[Target, bool]:
        """Return the table and whether it was created; create it and its database if missing."""
        created = False
        if plan.table is None:
            if plan.database not in self._definitions.list_databases():
                with contextlib.suppress(Conflict):  # created concurrently
                    self._definitions.create_database(plan.database)
            try:
                definition = plan.schema, plan.bucket.value
                self._definitions.create_table(plan.database, plan.name, *definition)
                created = True
            except Conflict:  # created since the plan was made
                now = self._definitions.get(plan.database, plan.name)
                if (now.schema, now.bucket) != (plan.schema, plan.bucket):
                    raise StalePlan(
                        f"table {now.full_name} was made meanwhile, with another schema",
                        hint="plan the import again",
                    ) from None
        return replace(self._target(plan), schema=plan.schema), created

    def _target(self, plan: ImportPlan) -> Target:
        table = self._definitions.get(plan.database, plan.name)
        if plan.table is not None and table.table_id != plan.table.table_id:
            raise StalePlan(
                f"table {table.full_name} is another one by now", hint="plan the import again"
            )
        return Target(table.schema, table.bucket, table.table_id, plan.zone)

    def _carry_out_one(self, plan: ImportPlan, target: Target, file: ImportFile) -> ImportOutcome:
        """Import a file or copy it to quarantine. If it changed, classify it again first."""
        source = plan.folder if plan.is_single else plan.folder / file.path
        for _ in range(_LOOKS):
            try:
                if file.kind in (FileClass.SOUND, FileClass.IMPORTED):
                    return self._take(plan, target, file, source)
                if file.digest:
                    return self._keep(plan, file, source)
                return ImportOutcome(file, Fate.SKIPPED, _why_skipped(file))
            except _Changed:
                target = self._target(plan)
                file = self._judge_again(plan, target, file, source)
            except OSError as error:
                reason = (error.strerror or str(error)).lower()
                file = replace(file, kind=FileClass.UNREADABLE, reason=reason, digest="")
        note = "it changed whenever it was read"
        file = replace(file, kind=FileClass.UNREADABLE, reason=note, digest="")
        return ImportOutcome(file, Fate.SKIPPED, note)

    def _judge_again(
        self, plan: ImportPlan, target: Target, file: ImportFile, source: Path
    ) -> ImportFile:
        root = source if plan.is_single else plan.folder
        inspected = inspect_path(describe(source, file.path), source, root)
        return classify(inspected, target, self._list_imported(target, [inspected.file.digest]))

    def _take(
        self, plan: ImportPlan, target: Target, file: ImportFile, source: Path
    ) -> ImportOutcome:
        """Insert a file's rows, unless the table has them. Raise `_Changed` if the table was
        altered since the plan: the values from folders, and so the insert key, depend on the
        schema."""
        if self._target(plan) != target:
            raise _Changed
        with self._catalog.glance() as connection:
            earlier = inserts.find(connection, target.table_id or "", file.key)
        if earlier is not None:
            return _skip_imported(file, earlier)
        data = source.read_bytes()
        if hashlib.sha256(data).hexdigest() != file.digest:
            raise _Changed
        try:
            return self._insert(plan, target, file, data)
        except (Broken, BadInput) as error:
            if self._target(plan) != target:  # altered at this very moment
                raise _Changed from error
            file = replace(file, kind=FileClass.UNREADABLE, reason=str(error).splitlines()[0])
            return self._keep(plan, file, source)

    def _insert(
        self, plan: ImportPlan, target: Target, file: ImportFile, data: bytes
    ) -> ImportOutcome:
        import pyarrow as pa

        try:
            source_rows = pa.concat_tables(list(read_batches(io.BytesIO(data), len(data))))
            folders = read_folders(file.path)
            fit = Fit(target.schema, target.bucket, source_rows.schema, folders, target.zone)
            rows = fit.prepare(source_rows)
            digest = bytes.fromhex(file.digest)
            options = InsertOptions(if_exists=plan.if_exists, key=file.key, digest=digest)
            done = self._inserter.insert(plan.database, plan.name, rows, options)
        except (pa.ArrowException, MemoryError, UnclearTime) as error:
            raise Broken(f"it cannot be taken in one piece: {error}") from error
        if done.repeated:  # by another process, meanwhile
            return _skip_imported(file, done)
        file = replace(file, kind=FileClass.SOUND, rows=source_rows.num_rows)
        fewer = source_rows.num_rows - done.rows
        cause = "were there or" if plan.if_exists == IGNORE else "were"
        note = f"{fewer} rows {cause} replaced by later ones with the same key" if fewer else ""
        return ImportOutcome(file, Fate.TAKEN, note, done.rows)

    def _keep(self, plan: ImportPlan, file: ImportFile, source: Path) -> ImportOutcome:
        """Copy a file's bytes to quarantine, unless a copy exists."""
        description = f"{name_import(plan.database, plan.name)} {show_path(file.path)}: {file.kind}"
        reason = f"{description}: {file.reason}" if file.reason else description
        reason = reason[:_LONGEST_REASON]
        try:
            copy = self._quarantine.keep(lambda: source.open("rb"), file.digest, reason)
        except StalePlan as error:
            raise _Changed from error
        if copy.repeated:
            note = "the same bytes are in quarantine already"
            return ImportOutcome(file, Fate.SKIPPED, note, kept_as=copy.path)
        return ImportOutcome(file, Fate.QUARANTINED, kept_as=copy.path)


def _skip_imported(file: ImportFile, earlier: inserts.KnownInsert | Inserted) -> ImportOutcome:
    reason = (
        file.reason if file.kind is FileClass.IMPORTED else f"at {format_instant(earlier.tick)}"
    )
    file = replace(file, kind=FileClass.IMPORTED, reason=reason)
    return ImportOutcome(file, Fate.SKIPPED, f"{file.kind} {reason}")


def _why_skipped(file: ImportFile) -> str:
    if file.kind in (FileClass.UNREADABLE, FileClass.NOT_A_FILE):
        return file.reason
    return "nothing in it"
