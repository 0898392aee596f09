"""Match the rows of a foreign file with a table: the conversions that make them fit, and the
reasons why they do not. Rows are checked batch by batch with the rules of an insert.
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
    """The class of a file, and the reason."""

    kind: FileClass
    reason: str
    remarks: tuple[str, ...] = ()
    """Contradictions between folders and rows; part of the reason of a sound file."""


@dataclass(slots=True)
class Fit:
    """The conversion of one file's rows to rows of a table."""

    schema: TableSchema
    bucket: Bucket
    file_schema: pa.Schema
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
        names = self.file_schema.names
        for name in sorted({column_name for column_name in names if names.count(column_name) > 1}):
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
        """Return the folder that gives a column its values, compared without case, or None."""
        return next(
            (folder for folder in self.folders if folder.lower() == column.name.lower()), None
        )

    def _refuse_unplaced(self) -> None:
        """Report folders whose values no column can hold as drift, except time folders."""
        expected_names = {
            name.lower() for name in (*self.file_schema.names, *self.schema.names, *TIME_FOLDERS)
        }
        for name, value in self.folders.items():
            if value is not None and name.lower() not in expected_names:
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
        """The folders that give values to rows, and so are part of the insert key."""
        folders = [self._folder_of(self.schema.column(name)) for name in self.filled]
        return sorted((folder, self.folders[folder]) for folder in folders if folder is not None)

    @property
    def repeated_folders(self) -> list[tuple[str, str, Column]]:
        """Folders that repeat a column of the file, as (folder, value, column)."""
        repeated = []
        for column in self.schema.columns:
            folder = self._folder_of(column) if column.name in self.file_schema.names else None
            text = None if folder is None else self.folders[folder]
            if folder is not None and text is not None and column.type in _COMPARED:
                repeated.append((folder, text, column))
        return repeated

    def find_drift(self, rows: pa.Table) -> dict[str, str]:
        """Return the columns whose values the table cannot hold, with the reason. Columns that hold
        only NULL always fit."""
        drift = dict(self.drift)
        for column, values in zip(rows.schema, rows.columns, strict=True):
            name = column.name
            if name in drift or values.null_count == len(values) or name == BUCKET_COLUMN:
                continue
            if name not in self.schema.names:
                drift[name] = f"expected no such column, got {_show_type(column)}"
            elif not _has_place(self.schema.column(name), column):
                expected = self.schema.column(name).type
                drift[name] = f"expected {expected}, got {_show_type(column)}"
            elif self.zone is None and self._is_naive_time(column):
                drift[name] = f"expected a zone, got {_show_type(column)}; name it with --zone UTC"
        return drift

    def _is_naive_time(self, field: pa.Field) -> bool:
        return self.schema.column(field.name).item_type == "datetime" and is_naive(field.type)

    def prepare(self, rows: pa.Table) -> pa.Table:
        """Return the rows with the table's columns only, and with the values of the folders.
        Raise `UnclearTime` if a time does not exist in the zone, or exists twice."""
        import pyarrow as pa

        columns: dict[str, Any] = {}
        for column in self.schema.columns:
            if column.name in self.file_schema.names:
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
    """Checks a file's rows, batch by batch, and classifies the file."""

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._time: FolderTime | None = find_time(fit.folders)
        self._drift: dict[str, str] = dict(fit.drift)
        self._seen = 0
        self._bad = 0
        self._examples: list[str] = []
        self._elsewhere = 0
        self._unlike: Counter[str] = Counter()
        """The number of rows that contradict each folder."""

    def check_rows(self, rows: pa.Table) -> None:
        """Check the next rows."""
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
        for record in bad[: _SHOWN - len(self._examples)]:
            problems = "; ".join(map(str, record.problems))
            self._examples.append(f"row {self._seen + record.index}: {problems}")

    def _compare_buckets(self, rows: pa.Table, checked: Validated) -> None:
        """Compare a column named like the bucket column with the buckets of the rows: the table
        computes it itself, so that equal values are dropped and others are drift."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if BUCKET_COLUMN not in rows.column_names:
            return
        fit = self._fit
        names = fit.bucket.name_all(checked.rows[fit.schema.time_column])
        try:
            file_buckets = rows[BUCKET_COLUMN].cast(pa.string()).combine_chunks()
        except pa.ArrowException:
            file_buckets = pa.nulls(len(names), pa.string()).fill_null("")
        length = pc.max(pc.utf8_length(names)).as_py() or 0
        same = pc.equal(pc.utf8_slice_codeunits(file_buckets, 0, length), names)
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
        """Count the rows that contradict a folder."""
        import pyarrow as pa
        import pyarrow.compute as pc

        for folder, text, column in self._fit.repeated_folders:
            values = checked.rows[column.name]
            try:
                value = pa.scalar(_read_folder(column, text), values.type)
                same = pc.sum(pc.equal(values, value)).as_py() or 0
            except (Misfit, ValueError, pa.ArrowException):  # no value of the column is like it
                same = 0
            self._unlike[f"{folder}={text}"] += len(values) - same

    def conclude(self) -> Verdict:
        """Return the class of the file. All rows must have been checked."""
        if self._drift:
            details = [f"column {show_path(name)}: {why}" for name, why in self._drift.items()]
            return Verdict(FileClass.DRIFT, _join(details))
        if not self._seen:
            return Verdict(FileClass.EMPTY, "")
        if self._bad:
            details = [f"{self._bad} of {self._seen} rows", *self._examples]
            if self._bad > len(self._examples):
                details.append(f"and {self._bad - len(self._examples)} more")
            return Verdict(FileClass.BAD_ROWS, "; ".join(details))
        details = []
        if self._fit.missing:
            details.append(f"NULL for {', '.join(self._fit.missing)}")
        if self._fit.filled:
            details.append(f"{', '.join(self._fit.filled)} from its folder")
        remarks = self._list_remarks()
        return Verdict(FileClass.SOUND, "; ".join([*details, *remarks]), tuple(remarks))

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
        columns = (*self._fit.file_schema.names, *self._fit.schema.names)
        remarks += [
            f"folder {show_path(folder)} does not name a time: rows go by their own time"
            for folder in list_bad_times(self._fit.folders, columns)
        ]
        return remarks


def _join(texts: list[str]) -> str:
    more = [f"and {len(texts) - _SHOWN} more"] if len(texts) > _SHOWN else []
    return "; ".join([*texts[:_SHOWN], *more])


def _show_type(field: pa.Field) -> str:
    text = show_path(find_foreign(field.type, field.metadata) or str(field.type))
    return text if len(text) <= _LONGEST_TYPE else f"{text[: _LONGEST_TYPE - 1]}…"


def _has_place(column: Column, field: pa.Field) -> bool:
    """Return True if a column may hold values of an Arrow type; each value is checked later."""
    kind = kind_of_field(field)
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
    """Return the value that a folder gives to a column; raise `Misfit` or ValueError if invalid."""
    value: Any = text
    if column.type == "bool":
        value = {"true": True, "false": False}.get(text.lower())
    elif column.type in ("int", "float"):
        value = int(text) if column.type == "int" else float(text)
    elif column.is_array:
        raise Misfit(column.type)
    reader_of(column)(value)
    return json.dumps(value) if column.type == "json" else value
