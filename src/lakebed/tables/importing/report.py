"""Plain values for the plan of an import, shown before anything is written, and for the report
afterwards: the class of every file and its outcome.
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
    """The class of a file, as its inspection found."""

    SOUND = "sound"
    """Its rows fit the table, if need be by widening and by NULL for what it lacks."""
    IMPORTED = "already imported"
    """The table has the same bytes already, under this or another name."""
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
    """The outcome for a file; the source itself is never changed."""

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
    """The plan of an import. Planning changes nothing."""

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
        """The number of files of each class that occurs, in the order of the classes."""
        return count_classes(self.files)

    @property
    def rows(self) -> int:
        """The number of rows in the files that would be imported."""
        return sum(file.rows or 0 for file in self.list_files(FileClass.SOUND))

    def list_files(self, kind: FileClass) -> list[ImportFile]:
        """Return the files of one class."""
        return [file for file in self.files if file.kind is kind]


@dataclass(frozen=True, slots=True)
class ImportOutcome:
    """The outcome for one file."""

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
        """True if the file may hold data that is neither in the table nor in quarantine."""
        unread = self.file.kind in (FileClass.UNREADABLE, FileClass.NOT_A_FILE)
        return self.fate is Fate.SKIPPED and unread and self.kept_as is None


@dataclass(frozen=True, slots=True)
class ImportReport:
    """The result of an import, with one outcome for every file."""

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
        """The skipped files that could not be read; an operator must look at them."""
        return [outcome for outcome in self.outcomes if outcome.is_left_behind]

    @property
    def rows(self) -> int:
        """The number of rows in all imported files."""
        return sum(outcome.file.rows or 0 for outcome in self.taken)

    @property
    def rows_inserted(self) -> int:
        """The number of `rows` that were neither replaced by a later row of the same file with the
        same key, nor ignored."""
        return sum(outcome.rows_inserted for outcome in self.taken)

    @property
    def counts(self) -> Mapping[FileClass, int]:
        """The number of files of each class that occurs."""
        return count_classes([outcome.file for outcome in self.outcomes])

    def _list(self, fate: Fate) -> list[ImportOutcome]:
        return [outcome for outcome in self.outcomes if outcome.fate is fate]


def count_classes(files: Sequence[ImportFile]) -> dict[FileClass, int]:
    """Return the number of files of each class that occurs, in the order of the classes."""
    counts = Counter(file.kind for file in files)
    return {kind: counts[kind] for kind in FileClass if counts[kind]}
