"""The content of one statement's tables, as both engines take it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from lakebed.model.partition import Partition
from lakebed.model.source import SqlSource
from lakebed.model.tables.table import UserTable
from lakebed.model.time import TimeRange
from lakebed.model.view_set import ViewSet
from lakebed.query.planning.conditions import EVER
from lakebed.query.planning.merged_columns import keeps_apart, keeps_as_it_is

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class TableContent:
    """One table: files, and rows that are in no file yet. SQL view sets are read through their
    merge SQL, so that partial results add up."""

    view_set: ViewSet
    paths: Sequence[str] = ()
    tail: Sequence[pa.Table] = ()
    num_rows: int = 0
    """The number of rows in files and tail."""

    @property
    def is_empty(self) -> bool:
        """Return True if there is nothing to read."""
        return not (self.paths or self.tail)

    @property
    def merge_sql(self) -> str | None:
        """Return the SQL that adds partial results up; it reads the view set under its own name."""
        source = self.view_set.source
        return source.merge_sql if isinstance(source, SqlSource) else None


@dataclass(frozen=True, slots=True)
class UserContent:
    """A user's table: rows in files and in memory, without those that newer rows hide."""

    table: UserTable
    files: Sequence[Partition] = ()
    rows: pa.Table | None = None
    """Rows of small partitions: the last of each key."""
    hiding: pa.Table | None = None
    """Keys with versions, which hide their older rows."""
    hiding_files: Sequence[Partition] = ()
    """Partitions whose keys hide older rows of files and memory alike."""
    compares: bool = False
    """True if a hiding key may be older than a row in a file."""
    bucket: str | None = None
    """The bucket of all rows; None if there may be several."""

    @property
    def view_set(self) -> ViewSet:
        """The table's columns as users see them."""
        return self.table.shown

    @property
    def is_empty(self) -> bool:
        """Return True if there is nothing to read."""
        return not self.files and self.rows is None

    @property
    def num_rows(self) -> int:
        """Return an upper limit of the number of rows."""
        return sum(partition.num_rows for partition in self.files) + (
            0 if self.rows is None else self.rows.num_rows
        )

    @property
    def merge_sql(self) -> str | None:
        """Always None: partial results of tables are not added up."""
        return None


Content = TableContent | UserContent


def choose_bounds(view_set: ViewSet, within: TimeRange | None) -> tuple[int | None, int | None]:
    """Return the bounds of the caller's range that apply to a view set's times: from the first up
    to, not including, the second.

    Rows of events must be inside the range. Rows that sum up, such as a process with its last
    update, must only have been updated since the range began.
    """
    if within is None:
        return None, None
    begin = None if within.begin <= EVER.begin else within.begin
    end = None if within.end >= EVER.end else within.end
    return begin, (end if has_events(view_set) else None)


def has_events(view_set: ViewSet) -> bool:
    """Return True if each row describes one moment, so that events at other times add nothing to
    it."""
    source = view_set.source
    return not isinstance(source, SqlSource) or _is_key(source.merge_sql, view_set.time_column)


def keeps_times(view_set: ViewSet) -> bool:
    """Return True if rows have the times of the partial results that they are made of: then those
    outside of a range need not be read for it."""
    source = view_set.source
    return not isinstance(source, SqlSource) or _is_kept(source.merge_sql, view_set.time_column)


@cache
def _is_kept(merge_sql: str, column: str) -> bool:
    import sqlglot

    return keeps_as_it_is(sqlglot.parse_one(merge_sql, dialect="spark"), column)


@cache
def _is_key(merge_sql: str, column: str) -> bool:
    """Return True if merging keeps rows of different times apart; False where that is unknown."""
    import sqlglot

    return keeps_apart(sqlglot.parse_one(merge_sql, dialect="spark"), column)
