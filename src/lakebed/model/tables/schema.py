"""Tables of JSON records: the columns that a user declares, and the time buckets of their rows.

What holds a `TableSchema` need not doubt it: it is checked where it is declared or altered, in
`table_declaration`. The same JSON form is declared, stored and shown.
"""

from __future__ import annotations

import calendar
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any

from lakebed.errors import BadInput
from lakebed.model.time import SECOND, TimeRange, to_datetime, to_instant

if TYPE_CHECKING:
    import pyarrow as pa

FIRST_INSTANT = to_instant(datetime(1, 1, 1, tzinfo=UTC))
LAST_INSTANT = to_instant(datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
"""The limits of a datetime: the years 1 to 9999."""

UNITS = {"s": SECOND, "ms": 1_000, "us": 1, "ns": 1}
"""Microseconds in each unit in which numbers may count time; there are 1,000 ns in one."""

SCALARS = ("int", "float", "string", "bool", "datetime", "json")
TYPES = (*SCALARS, *(f"{name}[]" for name in SCALARS))
OUT_OF_RANGE = ("reject", "flag")
MOST_COLUMNS = 1_000
BUCKET_COLUMN = "partition_date"
"""The name of the column with a row's bucket; no declared column can have it."""

_HOUR = 3600 * SECOND


class Bucket(StrEnum):
    """The unit of time by which a table's rows are split; a bucket's name is its begin in UTC."""

    HOUR = "hour"
    """``2026-11-16T05``"""
    DAY = "day"
    """``2026-11-16``"""
    WEEK = "week"
    """The date of its Monday: ``2026-11-16``"""
    MONTH = "month"
    """``2026-11``"""

    def name_of(self, instant_us: int) -> str:
        """Return the name of the bucket that an instant is in; names sort as their times do."""
        moment = to_datetime(instant_us)
        if self is Bucket.WEEK:
            moment -= timedelta(days=moment.weekday())  # the calendar begins with a Monday
        return moment.isoformat()[: NAME_LENGTHS[self]]

    def range_of(self, name: str) -> TimeRange:
        """Return the instants of the bucket of this name."""
        try:
            begin = datetime.fromisoformat(f"{name}-01" if self is Bucket.MONTH else name)
            first = to_instant(begin.replace(tzinfo=UTC))
        except (ValueError, TypeError):
            first = None
        if first is None or self.name_of(first) != name:
            raise BadInput(
                f"{name!r} is not the name of a bucket by {self.value}",
                hint=f"write it like {self.name_of(to_instant('2026-11-16T05:00Z'))}",
            )
        match self:
            case Bucket.HOUR:
                hours = 1
            case Bucket.DAY:
                hours = 24
            case Bucket.WEEK:
                hours = 7 * 24
            case Bucket.MONTH:
                hours = 24 * calendar.monthrange(begin.year, begin.month)[1]
        return TimeRange(first, first + hours * _HOUR)

    def name_all(self, times: pa.Array | pa.ChunkedArray) -> pa.Array:
        """Return `name_of` for every one of these timestamps in microseconds and UTC."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if isinstance(times, pa.ChunkedArray):
            times = times.combine_chunks()
        begins = pc.floor_temporal(times.cast(pa.timestamp("us")), unit=self.value)
        names = pc.utf8_slice_codeunits(begins.cast(pa.string()), 0, NAME_LENGTHS[self])
        return pc.utf8_replace_slice(names, 10, 11, "T") if self is Bucket.HOUR else names


NAME_LENGTHS = {Bucket.HOUR: 13, Bucket.DAY: 10, Bucket.WEEK: 10, Bucket.MONTH: 7}


@cache
def _arrow_types() -> dict[str, pa.DataType]:
    """Return the Arrow type in which each type of column is stored."""
    import pyarrow as pa

    items = {
        "int": pa.int64(),
        "float": pa.float64(),
        "string": pa.string(),
        "bool": pa.bool_(),
        "datetime": pa.timestamp("us", "UTC"),
        "json": pa.string(),
    }
    arrays = {f"{name}[]": pa.list_(pa.field("element", item)) for name, item in items.items()}
    return items | arrays


@dataclass(frozen=True, slots=True)
class Column:
    """One declared column."""

    name: str
    type: str
    required: bool = False
    """True if every record must have a value; key and time columns always must."""
    unique: bool = False
    """True if it is part of the table's key."""
    min: int | float | str | None = None
    max: int | float | str | None = None
    """The smallest and largest value that is in range; of a datetime, as RFC 3339 text."""
    unit: str | None = None
    """The unit of numbers given for a datetime; without it, numbers are refused."""
    time: bool = False
    """True if it is the table's time column."""
    description: str = ""

    def __post_init__(self) -> None:
        if self.unique or self.time:
            object.__setattr__(self, "required", True)

    @property
    def is_array(self) -> bool:
        """Return True if the column's values are lists."""
        return self.type.endswith("[]")

    @property
    def item_type(self) -> str:
        """The type of one value: of an array, the type of its items."""
        return self.type.removesuffix("[]")

    @property
    def bounds(self) -> tuple[int | float | None, int | float | None]:
        """`min` and `max` as numbers to compare with; of a datetime, in microseconds."""
        return as_number(self.min), as_number(self.max)

    @property
    def arrow(self) -> pa.DataType:
        """The Arrow type of its values; JSON is kept as canonical text."""
        return _arrow_types()[self.type]

    def to_json(self) -> dict[str, Any]:
        """Return the declaration as plain values, without default values."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }


@dataclass(frozen=True, slots=True)
class TableSchema:
    """The declared columns of a table, in order; made by `parse_schema`, which checks them."""

    columns: tuple[Column, ...]
    out_of_range: str = "reject"
    """The rule for a record with a value outside its column's range: reject, or flag."""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(column.name for column in self.columns)

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that together name a row; a table may have none."""
        return tuple(column.name for column in self.columns if column.unique)

    @property
    def time_column(self) -> str:
        """The name of the column by which rows are split into buckets."""
        return next(column.name for column in self.columns if column.time)

    @property
    def arrow(self) -> pa.Schema:
        """The columns in Arrow; only those of the key and the time can never become optional."""
        import pyarrow as pa

        return pa.schema(
            [
                pa.field(column.name, column.arrow, nullable=not (column.unique or column.time))
                for column in self.columns
            ]
        )

    def column(self, name: str) -> Column:
        """The column of this name; `BadInput` if there is none."""
        for column in self.columns:
            if column.name == name:
                return column
        raise BadInput(f"there is no column {name!r}", hint=f"there are {', '.join(self.names)}")

    def to_json(self) -> dict[str, Any]:
        """Plain values that `from_json` and `parse_schema` read back."""
        return {
            "columns": [column.to_json() for column in self.columns],
            "out_of_range": self.out_of_range,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TableSchema:
        """The schema that `to_json` wrote; it is trusted."""
        return cls(tuple(Column(**column) for column in value["columns"]), value["out_of_range"])


# ---- declaring ----------------------------------------------------------------------------------


def as_number(bound: int | float | str | None) -> int | float | None:
    return to_instant(bound) if isinstance(bound, str) else bound
