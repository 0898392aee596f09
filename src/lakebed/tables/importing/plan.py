"""Plan the import of a tree of Parquet files: the class of each file for a table, and the schema of
a table that does not exist yet. Files are only read.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lakebed.catalog.records.inserts import ADOPTED
from lakebed.errors import BadInput
from lakebed.model.tables.schema import Bucket, TableSchema
from lakebed.model.tables.table import UserTable
from lakebed.tables.importing.draft_schema import draft_columns
from lakebed.tables.importing.files import (
    Broken,
    InspectedFile,
    inspect_file,
    read_batches,
    read_sample,
)
from lakebed.tables.importing.paths import find_unfinished, read_folders, show_path
from lakebed.tables.importing.report import FileClass, ImportFile
from lakebed.tables.importing.schema_match import Fit, Judge, Verdict

_SAMPLED_FILES = 20
_SHOWN_FILES = 10


@dataclass(frozen=True, slots=True)
class TableWishes:
    """Options for creating a table that does not exist yet."""

    time_column: str | None = None
    bucket: str | None = None
    unique: Sequence[str] = ()
    zone: str | None = None
    """The zone of timestamps that the files store without one."""


@dataclass(frozen=True, slots=True)
class Target:
    """The table that files are checked against; ``table_id`` is None while it does not exist."""

    schema: TableSchema
    bucket: Bucket
    table_id: str | None = None
    zone: str | None = None
    """The zone of timestamps that the files store without one."""


@dataclass(frozen=True, slots=True)
class _ImportedFile:
    """An imported file: its insert key, a description of when, and the schema of that time."""

    key: str
    when: str
    schema: TableSchema


class ImportedFiles:
    """The files that a table has, or will have once the plan is carried out."""

    def __init__(self) -> None:
        self._by_digest: dict[str, list[_ImportedFile]] = {}

    def add(self, key: str, when: str, schema: TableSchema) -> None:
        """Add a file that was imported under this key, or will be."""
        digest = key.removeprefix(ADOPTED).split(":")[0]
        self._by_digest.setdefault(digest, []).append(_ImportedFile(key, when, schema))

    def find(self, inspected: InspectedFile, bucket: Bucket) -> tuple[str, str] | None:
        """Return the key and the time under which the same rows were imported, or None.

        Rows are the same if the bytes are equal and the folders gave them the same values. File
        names, and folders that give no value, do not matter."""
        for earlier in self._by_digest.get(inspected.file.digest, []):
            earlier_fit = Fit(
                earlier.schema, bucket, inspected.schema, read_folders(inspected.file.path)
            )
            if (
                not earlier_fit.drift
                and _make_key(inspected.file.digest, earlier_fit.used) == earlier.key
            ):
                return earlier.key, earlier.when
        return None


def _make_key(digest: str, folder_values: Sequence[tuple[str, str | None]]) -> str:
    """Return the insert key of a file, made of its digest and the values that folders add."""
    return ":".join(
        [f"{ADOPTED}{digest}", *(_mark(*folder_value) for folder_value in folder_values)]
    )


def _mark(name: str, value: str | None) -> str:
    text = repr((name, value)).encode(errors="surrogateescape")
    return hashlib.sha256(text).hexdigest()[:12]


def inspect_path(file: ImportFile, at: Path, root: Path) -> InspectedFile:
    """Classify a file of a tree by its name and its bytes."""
    named = (
        None if at == root else find_unfinished(file.path)
    )  # a file that the user names is imported whatever its name
    return inspect_file(file, at, named)


def classify(inspected: InspectedFile, target: Target, imported_files: ImportedFiles) -> ImportFile:
    """Classify a file for a table, and add it to ``imported_files`` if it is sound."""
    file = inspected.file
    if inspected.schema is None:
        return file
    fit = Fit(target.schema, target.bucket, inspected.schema, read_folders(file.path), target.zone)
    imported = imported_files.find(inspected, target.bucket)
    if imported is not None:
        return replace(file, kind=FileClass.IMPORTED, key=imported[0], reason=imported[1])
    if file.rows == 0:
        return replace(file, kind=FileClass.EMPTY)
    verdict = _judge(inspected, fit)
    key = _make_key(file.digest, fit.used)
    if verdict.kind is FileClass.SOUND:
        imported_files.add(key, f"as {show_path(file.path)}", target.schema)
    return replace(file, kind=verdict.kind, reason=verdict.reason, key=key, remarks=verdict.remarks)


def _judge(inspected: InspectedFile, fit: Fit) -> Verdict:
    judge = Judge(fit)
    try:
        with inspected.source.open("rb") as opened:
            for rows in read_batches(opened, inspected.file.size, inspected.footer):
                judge.check_rows(rows)
    except (Broken, OSError) as error:
        return Verdict(FileClass.UNREADABLE, str(error).splitlines()[0])
    return judge.conclude()


def draft_schema(
    inspected_files: Sequence[InspectedFile], wishes: TableWishes, table: str, source: Path
) -> TableSchema:
    """Return a schema made from the files that have rows."""
    readable = [
        inspected
        for inspected in inspected_files
        if inspected.schema is not None and inspected.file.rows
    ]
    if not readable:
        raise nothing_sound(table, source, [inspected.file for inspected in inspected_files])
    column_names = [*wishes.unique, *([wishes.time_column] if wishes.time_column else [])]
    draft = draft_columns(
        [(inspected.schema, read_folders(inspected.file.path)) for inspected in readable],
        column_names,
    )
    names = draft.list_times(wishes.time_column)
    samples = []
    for inspected in readable[:_SAMPLED_FILES]:
        folders = read_folders(inspected.file.path)
        samples += [{**folders, **record} for record in read_sample(inspected, names)]
    return draft.finish(*draft.choose_time(wishes.time_column, samples), wishes.unique)


def nothing_sound(table: str, source: Path, files: Sequence[ImportFile]) -> BadInput:
    """Return the error for an import with neither a table nor a file to make its schema from."""
    descriptions = [
        f"{show_path(file.path)}: {file.kind}{f', {file.reason}' if file.reason else ''}"
        for file in files[:_SHOWN_FILES]
    ]
    if len(files) > len(descriptions):
        descriptions.append(f"and {len(files) - len(descriptions)} more")
    listing = "; ".join(descriptions)
    return BadInput(
        f"no file in {source} is sound, so that there is no schema for {table}; {listing}",
        hint="make the table first, and import again",
    )


def read_bucket(bucket: str | None) -> Bucket:
    """Return the bucket of this name; `Bucket.DAY` by default."""
    if bucket is not None and bucket not in list(Bucket):
        raise BadInput(f"{bucket!r} is not a bucket", hint=f"one of {', '.join(Bucket)}")
    return Bucket(bucket or Bucket.DAY)


def refuse_other_wishes(table: UserTable, wishes: TableWishes) -> None:
    """Raise `BadInput` if the options contradict the existing table: an import never alters it."""
    in_order = [name for name in table.key if name in wishes.unique]
    key = [*in_order, *(name for name in wishes.unique if name not in table.key)]
    differences = [
        f"its {label} is {current}, not {requested}"
        for label, current, requested in (
            ("time column", table.time_column, wishes.time_column),
            ("bucket", table.bucket.value, wishes.bucket),
            ("key", ", ".join(table.key) or "empty", ", ".join(key) or None),
        )
        if requested is not None and requested != current
    ]
    if differences:
        raise BadInput(
            f"there is a table {table.full_name} already: {'; '.join(differences)}",
            hint="leave the options out, or choose another name",
        )
