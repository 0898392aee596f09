"""Planning to adopt a tree of Parquet files: what each file is to a table, and what schema a table
gets that does not exist yet. Files are read, nothing is changed.
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
from lakebed.tables.importing.files import Broken, Found, look_at, read_batches, read_sample
from lakebed.tables.importing.paths import find_unfinished, read_folders, show_path
from lakebed.tables.importing.report import FileClass, ImportFile
from lakebed.tables.importing.schema_match import Fit, Judge, Verdict

_SAMPLED_FILES = 20
_SHOWN_FILES = 10


@dataclass(frozen=True, slots=True)
class TableWishes:
    """How a table that does not exist yet is to be made."""

    time_column: str | None = None
    bucket: str | None = None
    unique: Sequence[str] = ()
    zone: str | None = None
    """The zone of timestamps that the files store without one."""


@dataclass(frozen=True, slots=True)
class Target:
    """The table as files are judged by it; without an id while it does not exist."""

    schema: TableSchema
    bucket: Bucket
    table_id: str | None = None
    zone: str | None = None
    """The zone of timestamps that the files store without one."""


@dataclass(frozen=True, slots=True)
class _Taken:
    """A file that was taken, under which key, when, and by which schema."""

    key: str
    when: str
    schema: TableSchema


class Known:
    """Files that a table has, or will have when what is planned is done."""

    def __init__(self) -> None:
        self._by_digest: dict[str, list[_Taken]] = {}

    def add(self, key: str, when: str, schema: TableSchema) -> None:
        """A file was taken under this key, or will be."""
        digest = key.removeprefix(ADOPTED).split(":")[0]
        self._by_digest.setdefault(digest, []).append(_Taken(key, when, schema))

    def find(self, found: Found, bucket: Bucket) -> tuple[str, str] | None:
        """The key and the time of the same rows: of the same bytes, to which folders gave then what
        they would have given to these. Names of files, and folders that give nothing, do not
        matter."""
        for taken in self._by_digest.get(found.file.digest, []):
            then = Fit(taken.schema, bucket, found.schema, read_folders(found.file.path))
            if not then.drift and _key_of(found.file.digest, then.used) == taken.key:
                return taken.key, taken.when
        return None


def _key_of(digest: str, used: Sequence[tuple[str, str | None]]) -> str:
    """Under which a file is inserted: its bytes, and what folders add to them."""
    return ":".join([f"{ADOPTED}{digest}", *(_mark(*each) for each in used)])


def _mark(name: str, value: str | None) -> str:
    spelled = repr((name, value)).encode(errors="surrogateescape")
    return hashlib.sha256(spelled).hexdigest()[:12]


def look(file: ImportFile, at: Path, root: Path) -> Found:
    """What a file of a tree is by its name and its bytes."""
    named = None if at == root else find_unfinished(file.path)  # one that is named is meant
    return look_at(file, at, named)


def classify(found: Found, target: Target, known: Known) -> ImportFile:
    """What a file is to a table; one that is sound is known from now on."""
    file = found.file
    if found.schema is None:
        return file
    fit = Fit(target.schema, target.bucket, found.schema, read_folders(file.path), target.zone)
    same = known.find(found, target.bucket)
    if same is not None:
        return replace(file, kind=FileClass.IMPORTED, key=same[0], reason=same[1])
    if file.rows == 0:
        return replace(file, kind=FileClass.EMPTY)
    verdict = _judge(found, fit)
    key = _key_of(file.digest, fit.used)
    if verdict.kind is FileClass.SOUND:
        known.add(key, f"as {show_path(file.path)}", target.schema)
    return replace(file, kind=verdict.kind, reason=verdict.reason, key=key, remarks=verdict.remarks)


def _judge(found: Found, fit: Fit) -> Verdict:
    judge = Judge(fit)
    try:
        with found.source.open("rb") as opened:
            for rows in read_batches(opened, found.file.size, found.footer):
                judge.look(rows)
    except (Broken, OSError) as error:
        return Verdict(FileClass.UNREADABLE, str(error).splitlines()[0])
    return judge.conclude()


def draft_schema(
    found: Sequence[Found], wishes: TableWishes, table: str, source: Path
) -> TableSchema:
    """A schema from the files that have rows."""
    able = [each for each in found if each.schema is not None and each.file.rows]
    if not able:
        raise nothing_sound(table, source, [each.file for each in found])
    wanted = [*wishes.unique, *([wishes.time_column] if wishes.time_column else [])]
    draft = draft_columns([(each.schema, read_folders(each.file.path)) for each in able], wanted)
    names = draft.list_times(wishes.time_column)
    samples = []
    for each in able[:_SAMPLED_FILES]:
        folders = read_folders(each.file.path)
        samples += [{**folders, **record} for record in read_sample(each, names)]
    return draft.finish(*draft.choose_time(wishes.time_column, samples), wishes.unique)


def nothing_sound(table: str, source: Path, files: Sequence[ImportFile]) -> BadInput:
    """There is neither a table nor a file to make it from."""
    told = [
        f"{show_path(each.path)}: {each.kind}{f', {each.reason}' if each.reason else ''}"
        for each in files[:_SHOWN_FILES]
    ]
    if len(files) > len(told):
        told.append(f"and {len(files) - len(told)} more")
    return BadInput(
        f"no file in {source} is sound, so that there is no schema for {table}; {'; '.join(told)}",
        hint="make the table first, and import again",
    )


def read_bucket(bucket: str | None) -> Bucket:
    """The bucket of this name; days without one."""
    if bucket is not None and bucket not in list(Bucket):
        raise BadInput(f"{bucket!r} is not a bucket", hint=f"one of {', '.join(Bucket)}")
    return Bucket(bucket or Bucket.DAY)


def refuse_other_wishes(table: UserTable, wishes: TableWishes) -> None:
    """What a table is, is not changed by an import."""
    in_order = [name for name in table.key if name in wishes.unique]
    key = [*in_order, *(name for name in wishes.unique if name not in table.key)]
    unlike = [
        f"its {what} is {is_now}, not {wished}"
        for what, is_now, wished in (
            ("time column", table.time_column, wishes.time_column),
            ("bucket", table.bucket.value, wishes.bucket),
            ("key", ", ".join(table.key) or "empty", ", ".join(key) or None),
        )
        if wished is not None and wished != is_now
    ]
    if unlike:
        raise BadInput(
            f"there is a table {table.full_name} already: {'; '.join(unlike)}",
            hint="leave the options out, or choose another name",
        )
