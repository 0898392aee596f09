"""Validate records for a table: the rows to store, and the problems of records that do not fit.

Records are checked column by column, so that those that fit, nearly all, are never handled one by
one. Nothing is written here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from lakebed.errors import BadInput
from lakebed.model.tables.schema import Column, TableSchema
from lakebed.tables.insert.convert_columns import are_all_between, as_value, convert, find_foreign
from lakebed.tables.insert.convert_values import Unreadable

if TYPE_CHECKING:
    import pyarrow as pa

OUT_OF_RANGE_COLUMN = "_out_of_range"
_SHOWN = 80
_SPELLED = (str, int, float, list, tuple, dict, datetime, type(None))


@dataclass(frozen=True, slots=True)
class Problem:
    """One value that does not fit; ``column`` is empty if the record is not an object."""

    column: str
    expected: str
    got: str
    """The value as JSON, cut to 80 characters."""

    def __str__(self) -> str:
        where = f"{self.column}: " if self.column else ""
        return f"{where}expected {self.expected}, got {self.got}"


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A refused record, with its index and all its problems."""

    index: int
    problems: tuple[Problem, ...]
    record: Any

    def __str__(self) -> str:
        return f"record {self.index}: {'; '.join(map(str, self.problems))}"


@dataclass(frozen=True, slots=True)
class Validated:
    """Rows that fit, in the table's columns, and the records that do not."""

    rows: pa.Table
    accepted: list[int] | None
    """The indexes of the accepted records; None if all fit."""
    bad: list[BadRecord]


def validate(records: list[Any] | pa.Table, schema: TableSchema) -> Validated:
    """Return the records as rows of a table with this schema.

    Absent and null are NULL. If the schema flags what is out of range, a last column
    ``_out_of_range`` names the columns whose value is, and is NULL where none is.
    """
    import pyarrow as pa

    source = _Records(records) if isinstance(records, list) else _Rows(records)
    checked = _check_columns(source, schema)
    fields = list(schema.arrow)
    if schema.out_of_range == "flag":
        fields.append(pa.field(OUT_OF_RANGE_COLUMN, pa.list_(pa.field("element", pa.string()))))
        flags = [checked.flags.get(index) for index in range(source.total)] if checked.flags else []
        checked.arrays.append(
            pa.array(flags, fields[-1].type) if flags else pa.nulls(source.total, fields[-1].type)
        )
    rows = pa.Table.from_arrays(checked.arrays, schema=pa.schema(fields))
    if not checked.problems:
        return Validated(rows, None, [])
    accepted = [index for index in range(source.total) if index not in checked.problems]
    bad = [
        BadRecord(index, tuple(problems), source.record(index))
        for index, problems in sorted(checked.problems.items())
    ]
    return Validated(rows.take(pa.array(accepted, pa.int64())), accepted, bad)


# ---- judging ------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Checked:
    arrays: list[pa.Array]
    problems: dict[int, list[Problem]]
    flags: dict[int, list[str]]

    def refuse(self, index: int, column: str, expected: str, got: str) -> None:
        self.problems.setdefault(index, []).append(Problem(column, expected, got))


def _check_columns(source: _Records | _Rows, schema: TableSchema) -> _Checked:
    checked = _Checked([], {}, {})
    for column in schema.columns:
        values = source.column(column.name)
        converted = convert(values, column)
        checked.arrays.append(converted.values)
        for index, (expected, value) in converted.bad.items():
            checked.refuse(index, column.name, expected, show(value))
        if column.required and converted.values.null_count:
            for index in _list_indexes(converted.values.is_null()):
                if index not in converted.bad:
                    checked.refuse(index, column.name, "a value", "nothing")
        for index, expected in _find_outside(converted.values, column):
            if schema.out_of_range == "flag":
                checked.flags.setdefault(index, []).append(column.name)
            else:
                checked.refuse(index, column.name, expected, show(source.value(values, index)))
    column_names = _shorten(", ".join(schema.names), 3 * _SHOWN)
    for index, name, value in source.find_unknown(frozenset(schema.names)):
        printable = str(name).encode(errors="backslashreplace").decode()
        expected = f"a column of the table ({column_names})"
        checked.refuse(index, _shorten(printable, _SHOWN), expected, show(value))
    for index, value in source.strange.items():
        checked.problems[index] = [Problem("", "an object", show(value))]
    return checked


def _find_outside(values: pa.Array, column: Column) -> Iterator[tuple[int, str]]:
    """Yield the indexes of values that are out of bounds, with the expected bound."""
    import pyarrow as pa
    import pyarrow.compute as pc

    low, high = column.bounds
    if low is None and high is None:
        return
    numbers = values.cast(pa.int64()) if column.type == "datetime" else values
    if pa.types.is_integer(numbers.type) and are_all_between(numbers, low, high):
        return
    # The comparisons are inverted because NaN compares false with every bound.
    above = None if low is None else pc.invert(pc.greater_equal(numbers, low))
    below = None if high is None else pc.invert(pc.less_equal(numbers, high))
    too_small = set() if above is None else set(_list_indexes(above))
    too_large = set() if below is None else set(_list_indexes(below))
    for index in sorted(too_small | too_large):
        small = index in too_small
        yield index, f"at least {column.min}" if small else f"at most {column.max}"


def _list_indexes(answers: pa.Array) -> list[int]:
    import pyarrow.compute as pc

    return list(pc.indices_nonzero(answers).to_pylist())


# ---- the two kinds of records -------------------------------------------------------------------


class _Records:
    """Records from Python or JSON; each should be an object."""

    def __init__(self, records: list[Any]) -> None:
        self.records = records
        self.total = len(records)
        self.strange: dict[int, Any] = {}
        """Records that are not objects. They are checked as empty ones, then refused."""
        self.objects: list[Mapping[Any, Any]] = records
        if set(map(type, records)) - {dict}:
            self.strange = {
                index: record
                for index, record in enumerate(records)
                if not isinstance(record, Mapping)
            }
            self.objects = [
                {} if index in self.strange else records[index] for index in range(self.total)
            ]

    def column(self, name: str) -> list[Any]:
        return [record.get(name) for record in self.objects]

    def value(self, values: list[Any], index: int) -> Any:
        return values[index]

    def record(self, index: int) -> Any:
        return self.records[index]

    def find_unknown(self, column_names: frozenset[str]) -> Iterable[tuple[int, Any, Any]]:
        if set().union(*self.objects) <= column_names:
            return
        for index, record in enumerate(self.objects):
            for name in record:
                if name not in column_names:
                    yield index, name, record[name]


class _Rows:
    """Rows of an Arrow table."""

    def __init__(self, table: pa.Table) -> None:
        names = table.column_names
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise BadInput(f"the records have several columns named {', '.join(twice)}")
        self.table = table
        self.total = table.num_rows
        self.strange: dict[int, Any] = {}
        self.foreign = {
            field.name: foreign
            for field in table.schema
            if (foreign := find_foreign(field.type, field.metadata)) is not None
        }

    def column(self, name: str) -> pa.Array | list[Any]:
        import pyarrow as pa

        if name not in self.table.column_names:
            return pa.nulls(self.total)
        column = _in_one_piece(self.table.column(name))
        if name in self.foreign:
            return [self._read(name, scalar) for scalar in column]
        return column

    def value(self, values: pa.Array | list[Any], index: int) -> Any:
        return values[index] if isinstance(values, list) else as_value(values[index])

    def record(self, index: int) -> Any:
        table = self.table
        return {name: self._read(name, table.column(name)[index]) for name in table.column_names}

    def _read(self, name: str, scalar: pa.Scalar) -> Any:
        value = as_value(scalar)
        if name not in self.foreign or value is None or isinstance(value, Unreadable):
            return value
        return Unreadable(f"{self.foreign[name]} {value}")

    def find_unknown(self, column_names: frozenset[str]) -> Iterable[tuple[int, str, Any]]:
        for name in self.table.column_names:
            if name not in column_names:
                for index, scalar in enumerate(self.table.column(name)):
                    yield index, name, self._read(name, scalar)


def _in_one_piece(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def show(value: Any) -> str:
    """Return a value as JSON, or else its Python repr, cut to 80 characters."""
    try:
        if isinstance(value, _SPELLED):
            text = json.dumps(value, ensure_ascii=False, default=str)
        elif isinstance(value, Unreadable):
            text = str(value)
        else:  # a text would look as if it were one that came
            text = repr(value)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        try:
            text = ascii(value)
        except ValueError:
            text = "a number too long to show"
        except RecursionError:
            text = "a value too deep to show"
    return _shorten(text, _SHOWN)


def _shorten(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"
