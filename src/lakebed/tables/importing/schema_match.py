"""Whether a foreign file's rows fit a table: what is done to them so that they do, and what is
wrong if they do not. Rows are looked at batch by batch, by the same rules as those of an insert.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lakebed.model.tables.schema import BUCKET_COLUMN, Bucket, Column, TableSchema
from lakebed.tables.importing.draft_schema import NOTHING, kind_of_field
from lakebed.tables.importing.paths import (
    TIME_FOLDERS,
    Folders,
    FolderTime,
    find_time,
    list_bad_times,
    show_path,
)
from lakebed.tables.importing.report import FileClass
from lakebed.tables.insert.convert_columns import assume_zone, find_foreign, is_naive
from lakebed.tables.insert.convert_values import Misfit, reader_of
from lakebed.tables.insert.validation import BadRecord, Validated, validate

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = 3
_COMPARED = ("bool", "float", "int", "string")
_LONGEST_TYPE = 80


class UnclearTime(Exception):
    """A time of one ``column`` has no or two instants in the zone."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason)
        self.column = column


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a file is, and why."""

    kind: FileClass
    reason: str
    remarks: tuple[str, ...] = ()
    """Contradictions between folders and rows; part of the reason of a sound file."""


@dataclass(slots=True)
class Fit:
    """How the rows of one file become rows of a table."""

    schema: TableSchema
    bucket: Bucket
    given: pa.Schema
    folders: Folders
    zone: str | None = None
    """The zone of timestamps that are stored without one."""
    filled: dict[str, Any] = field(default_factory=dict)
    """Columns that the file lacks and a folder gives, with the value."""
    missing: list[str] = field(default_factory=list)
    """Columns that will be NULL."""
    drift: dict[str, str] = field(default_factory=dict)
    """Columns that do not fit, and why."""

    def __post_init__(self) -> None:
        names = self.given.names
        for name in sorted({each for each in names if names.count(each) > 1}):
            self.drift[name] = "expected one column of the name, got several"
        self._refuse_unplaced()
        for column in self.schema.columns:
            if column.name in names:
                continue
            folder = self._folder_of(column)
            if folder is not None:
                self._fill(column, self.folders[folder])
            elif column.required:
                self.drift[column.name] = f"expected {column.type}, got no such column"
            else:
                self.missing.append(column.name)

    def _folder_of(self, column: Column) -> str | None:
        """The folder that gives a column its values, however it is spelled."""
        return next((each for each in self.folders if each.lower() == column.name.lower()), None)

    def _refuse_unplaced(self) -> None:
        """A folder tells something of its rows that only a column can keep, unless it tells their
        time."""
        kept = {name.lower() for name in (*self.given.names, *self.schema.names, *TIME_FOLDERS)}
        for name, value in self.folders.items():
            if value is not None and name.lower() not in kept:
                self.drift[name] = f"expected such a column, for what folder {name}={value} says"

    def _fill(self, column: Column, text: str | None) -> None:
        try:
            self.filled[column.name] = None if text is None else _read_folder(column, text)
        except (Misfit, ValueError):
            self.drift[column.name] = (
                f"expected {column.type}, got {show_path(text or '')!r} of a folder"
            )

    @property
    def used(self) -> list[tuple[str, str | None]]:
        """The folders that give values, without which the same bytes would be other rows."""
        folders = [self._folder_of(self.schema.column(name)) for name in self.filled]
        return sorted((each, self.folders[each]) for each in folders if each is not None)

    @property
    def told_twice(self) -> list[tuple[str, str, Column]]:
        """What folders say that the file says itself, as `name` and value, and of which column."""
        found = []
        for column in self.schema.columns:
            folder = self._folder_of(column) if column.name in self.given.names else None
            text = None if folder is None else self.folders[folder]
            if folder is not None and text is not None and column.type in _COMPARED:
                found.append((folder, text, column))
        return found

    def find_drift(self, rows: pa.Table) -> dict[str, str]:
        """Columns with values that the table has no place for. NULL has a place everywhere."""
        found = dict(self.drift)
        for given, values in zip(rows.schema, rows.columns, strict=True):
            name = given.name
            if name in found or values.null_count == len(values) or name == BUCKET_COLUMN:
                continue
            if name not in self.schema.names:
                found[name] = f"expected no such column, got {_show_type(given)}"
            elif not _has_place(self.schema.column(name), given):
                expected = self.schema.column(name).type
                found[name] = f"expected {expected}, got {_show_type(given)}"
            elif self.zone is None and self._is_naive_time(given):
                found[name] = f"expected a zone, got {_show_type(given)}; name it with --zone UTC"
        return found

    def _is_naive_time(self, field: pa.Field) -> bool:
        return self.schema.column(field.name).item_type == "datetime" and is_naive(field.type)

    def prepare(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the table's columns only, and with the values of the folders.
        `UnclearTime` if a time does not exist in the zone, or exists twice."""
        import pyarrow as pa

        columns: dict[str, Any] = {}
        for column in self.schema.columns:
            if column.name in self.given.names:
                columns[column.name] = rows[column.name]
                if self.zone is not None and self._is_naive_time(rows.schema.field(column.name)):
                    try:
                        columns[column.name] = assume_zone(rows[column.name], self.zone)
                    except Misfit as misfit:
                        raise UnclearTime(column.name, str(misfit)) from None
            elif column.name in self.filled:
                value = self.filled[column.name]
                scalar = pa.scalar(value) if value is not None else pa.scalar(None, pa.null())
                columns[column.name] = pa.repeat(scalar, rows.num_rows)
        return pa.table(columns)


class Judge:
    """Looks at a file's rows, batch by batch, and says what the file is."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._time: FolderTime | None = find_time(fit.folders)
        self._drift: dict[str, str] = dict(fit.drift)
        self._seen = 0
        self._bad = 0
        self._examples: list[str] = []
        self._elsewhere = 0
        self._unlike: Counter[str] = Counter()
        """Of folders how many rows say something else than they do."""

    def look(self, rows: pa.Table) -> None:
        """Take in the next rows."""
        self._drift |= self._fit.find_drift(rows)
        try:
            prepared = None if self._drift else self._fit.prepare(rows)
        except UnclearTime as unclear:
            prepared = None
            self._drift[unclear.column] = str(unclear)
        if prepared is not None:
            checked = validate(prepared, self._fit.schema)
            self._note_bad(checked.bad)
            if not checked.bad:
                self._compare_buckets(rows, checked)
            self._compare_folder(checked)
            self._compare_values(checked)
        self._seen += rows.num_rows

    def _note_bad(self, bad: list[BadRecord]) -> None:
        self._bad += len(bad)
        for each in bad[: _SHOWN - len(self._examples)]:
            problems = "; ".join(map(str, each.problems))
            self._examples.append(f"row {self._seen + each.index}: {problems}")

    def _compare_buckets(self, rows: pa.Table, checked: Validated) -> None:
        """A table shows each row's bucket itself: a column with its name is left out if it says
        the same, and has no place if it says something else."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if BUCKET_COLUMN not in rows.column_names:
            return
        fit = self._fit
        names = fit.bucket.name_all(checked.rows[fit.schema.time_column])
        try:
            given = rows[BUCKET_COLUMN].cast(pa.string()).combine_chunks()
        except pa.ArrowException:
            given = pa.nulls(len(names), pa.string()).fill_null("")
        length = pc.max(pc.utf8_length(names)).as_py() or 0
        same = pc.equal(pc.utf8_slice_codeunits(given, 0, length), names)
        if not pc.all(same, min_count=0).as_py():
            self._drift[BUCKET_COLUMN] = "expected the bucket of each row, got something else"

    def _compare_folder(self, checked: Validated) -> None:
        """Count rows whose time is not the folder's."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self._time is None:
            return
        fit, span = self._fit, self._time.span
        times = checked.rows[fit.schema.time_column]
        instants = times.cast(pa.int64())
        inside = pc.and_(pc.greater_equal(instants, span.begin), pc.less(instants, span.end))
        if pc.all(inside, min_count=0).as_py():
            return
        named = pc.equal(fit.bucket.name_all(times), self._time.value)
        elsewhere = pc.invert(pc.or_(inside.combine_chunks(), named))
        self._elsewhere += pc.sum(elsewhere).as_py() or 0

    def _compare_values(self, checked: Validated) -> None:
        """Count rows that say something else than a folder does."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for folder, text, column in self._fit.told_twice:
            values = checked.rows[column.name]
            try:
                value = pa.scalar(_read_folder(column, text), values.type)
                same = pc.sum(pc.equal(values, value)).as_py() or 0
            except (Misfit, ValueError, pa.ArrowException):  # no value of the column is like it
                same = 0
            self._unlike[f"{folder}={text}"] += len(values) - same

    def conclude(self) -> Verdict:
        """What the file is, once all rows were seen."""
        if self._drift:
            told = [f"column {show_path(name)}: {why}" for name, why in self._drift.items()]
            return Verdict(FileClass.DRIFT, _join(told))
        if not self._seen:
            return Verdict(FileClass.EMPTY, "")
        if self._bad:
            told = [f"{self._bad} of {self._seen} rows", *self._examples]
            if self._bad > len(self._examples):
                told.append(f"and {self._bad - len(self._examples)} more")
            return Verdict(FileClass.BAD_ROWS, "; ".join(told))
        told = []
        if self._fit.missing:
            told.append(f"NULL for {', '.join(self._fit.missing)}")
        if self._fit.filled:
            told.append(f"{', '.join(self._fit.filled)} from its folder")
        remarks = self._list_remarks()
        return Verdict(FileClass.SOUND, "; ".join([*told, *remarks]), tuple(remarks))

    def _list_remarks(self) -> list[str]:
        """Return what folders say that the rows do not confirm."""
        remarks = [
            f"{count} of {self._seen} rows are not of {show_path(folder)}: "
            "rows go by their own value"
            for folder, count in self._unlike.items()
            if count
        ]
        if self._elsewhere and self._time is not None:
            remarks.append(
                f"{self._elsewhere} of {self._seen} rows are not of {show_path(self._time.label)}: "
                "rows go by their own time"
            )
        columns = (*self._fit.given.names, *self._fit.schema.names)
        remarks += [
            f"folder {show_path(folder)} does not name a time: rows go by their own time"
            for folder in list_bad_times(self._fit.folders, columns)
        ]
        return remarks


def _join(told: list[str]) -> str:
    more = [f"and {len(told) - _SHOWN} more"] if len(told) > _SHOWN else []
    return "; ".join([*told[:_SHOWN], *more])


def _show_type(given: pa.Field) -> str:
    text = show_path(find_foreign(given.type, given.metadata) or str(given.type))
    return text if len(text) <= _LONGEST_TYPE else f"{text[: _LONGEST_TYPE - 1]}…"


def _has_place(column: Column, given: pa.Field) -> bool:
    """Whether a column may take values of an Arrow type; whether it does is up to each value."""
    kind = kind_of_field(given)
    if kind is None or kind == NOTHING:
        return kind == NOTHING
    if column.type == "json":
        return not kind.startswith("datetime")
    if column.is_array != kind.endswith("[]"):
        return False
    item = kind.removesuffix("[]")
    if item == column.item_type:
        return True
    if column.item_type == "datetime":
        return item == "string" or (item in ("int", "float") and column.unit is not None)
    takes = {
        "int": ("float",),
        "float": ("int",),
        "json": ("int", "float", "string", "bool"),
    }
    return item in takes.get(column.item_type, ())


def _read_folder(column: Column, text: str) -> Any:
    """The value that a folder's name gives to a column; `Misfit` or ValueError if it is none."""
    value: Any = text
    if column.type == "bool":
        value = {"true": True, "false": False}.get(text.lower())
    elif column.type in ("int", "float"):
        value = int(text) if column.type == "int" else float(text)
    elif column.is_array:
        raise Misfit(column.type)
    reader_of(column)(value)
    return json.dumps(value) if column.type == "json" else value
