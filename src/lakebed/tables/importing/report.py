"""What adopting a tree of files found, and what became of each: plain values for a plan that is
shown before anything happens, and for the report afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from lakebed.model.tables.schema import Bucket, TableSchema
from lakebed.model.tables.table import UserTable


class FileClass(StrEnum):
    """What a file turned out to be."""

    SOUND = "sound"
    """Its rows fit the table, if need be by widening and by NULL for what it lacks."""
    IMPORTED = "already imported"
    """The same bytes, whatever their name was, are in the table."""
    EMPTY = "empty"
    """Parquet without rows."""
    EMPTY_DIRECTORY = "empty directory"
    ZERO_BYTES = "zero bytes"
    TRUNCATED = "truncated"
    """It begins like Parquet, and its end is missing."""
    NOT_PARQUET = "not parquet"
    TEMPORARY = "temporary"
    """It has a name that writers give to what is not finished, or not data."""
    DRIFT = "schema drift"
    """Its columns are not those of the table."""
    BAD_ROWS = "bad rows"
    """Its columns fit, some of its rows do not."""
    UNREADABLE = "unreadable"
    """Its footer or a page is damaged or encrypted, or nobody may read it."""
    NOT_A_FILE = "not a file"
    """A link to a folder, a pipe, a socket, a device."""


class Fate(StrEnum):
    """What became of a file; the source itself is never touched."""

    TAKEN = "taken"
    QUARANTINED = "quarantined"
    SKIPPED = "skipped"
    """There was nothing to do: it has no bytes, or the lake has them. See its note."""


@dataclass(frozen=True, slots=True)
class ImportFile:
    """One file of the tree, or a folder with nothing in it."""

    path: str
    """Relative to the tree."""
    kind: FileClass
    size: int = 0
    rows: int | None = None
    """As far as they could be counted."""
    reason: str = ""
    modified: int = 0
    """When it was last written, in microseconds since 1970."""
    digest: str = ""
    """The SHA-256 of its bytes; empty if there are none to read."""
    key: str = ""
    """Under which its insert counts once."""
    remarks: tuple[str, ...] = ()
    """Contradictions between the folders and the rows of a sound file, one text each."""


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """What an import would do. Nothing was changed to make it."""

    folder: Path
    is_single: bool
    """Whether the folder is one file."""
    database: str
    name: str
    schema: TableSchema
    bucket: Bucket
    table: UserTable | None
    """None if the import makes it, with this schema, and with its database."""
    files: tuple[ImportFile, ...]
    if_exists: str = "replace"
    """What becomes of rows whose key is in the table already: replace, or ignore."""
    zone: str | None = None
    """The zone of timestamps that the files store without one."""

    @property
    def counts(self) -> Mapping[FileClass, int]:
        """How many files there are of each class that there is, in the order of the classes."""
        return count_classes(self.files)

    @property
    def rows(self) -> int:
        """The rows of the files that would be taken."""
        return sum(each.rows or 0 for each in self.list_files(FileClass.SOUND))

    def list_files(self, kind: FileClass) -> list[ImportFile]:
        """The files of one class."""
        return [each for each in self.files if each.kind is kind]


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """What became of one file."""

    file: ImportFile
    """As it was when its turn came, which may be another class than in the plan."""
    fate: Fate
    note: str = ""
    rows_inserted: int = 0
    """Of a table with a key, without rows that a later row of the same file replaced, and without
    those that were ignored."""
    kept_as: str | None = None
    """Where in the store its bytes are, if they are in quarantine."""

    @property
    def is_left_behind(self) -> bool:
        """Whether it may hold data that is neither in the table nor in quarantine."""
        unread = self.file.kind in (FileClass.UNREADABLE, FileClass.NOT_A_FILE)
        return self.fate is Fate.SKIPPED and unread and self.kept_as is None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import did; every file is in it once."""

    outcomes: tuple[ImportOutcome, ...]
    table_created: bool = False

    @property
    def taken(self) -> list[ImportOutcome]:
        return self._list(Fate.TAKEN)

    @property
    def quarantined(self) -> list[ImportOutcome]:
        return self._list(Fate.QUARANTINED)

    @property
    def skipped(self) -> list[ImportOutcome]:
        return self._list(Fate.SKIPPED)

    @property
    def left_behind(self) -> list[ImportOutcome]:
        """Those of the skipped that could not even be read: somebody should look at them."""
        return [each for each in self.outcomes if each.is_left_behind]

    @property
    def rows(self) -> int:
        """The rows of all files that were taken."""
        return sum(each.file.rows or 0 for each in self.taken)

    @property
    def rows_inserted(self) -> int:
        """`rows` without those that a later row of the same file, with the same key, replaced, and
        without those that were ignored."""
        return sum(each.rows_inserted for each in self.taken)

    @property
    def counts(self) -> Mapping[FileClass, int]:
        """How many files there were of each class."""
        return count_classes([each.file for each in self.outcomes])

    def _list(self, fate: Fate) -> list[ImportOutcome]:
        return [each for each in self.outcomes if each.fate is fate]


def count_classes(files: Sequence[ImportFile]) -> dict[FileClass, int]:
    """How many files there are of each class that there is, in the order of the classes."""
    found = Counter(each.kind for each in files)
    return {kind: found[kind] for kind in FileClass if found[kind]}
