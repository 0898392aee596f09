"""Convert one value at a time to the form that a column stores, or report the expectation.

This is the exact path, without Arrow; `convert_columns` has the fast one, which must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from lakebed.model.tables.schema import FIRST_INSTANT, LAST_INSTANT, UNITS, Column
from lakebed.model.time_text import NotATime, NoZone, read_time_text

YEARS = "datetime of the years 1 to 9999"
_TIME_TEXT = "datetime such as 2026-11-16T05:00:00Z"
NO_ZONE = (
    "datetime with a zone (add Z or an offset such as +02:00 to a text, "
    "and a zone such as UTC to a datetime or a column)"
)

_INT64 = 1 << 63
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Misfit(Exception):
    """The value does not fit its column; the message is the expectation."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A value that Python cannot hold, which no column holds either."""

    text: str

    def __str__(self) -> str:
        return self.text


class HugeNumber(Unreadable):
    """A number, by its digits."""

    __slots__ = ()


def reader_of(column: Column) -> Callable[[Any], Any]:
    """Return the function that converts one value to the stored one or raises `Misfit`."""
    if column.item_type == "datetime":
        unit = column.unit
        return lambda value: read_datetime(value, unit)
    readers: dict[str, Callable[[Any], Any]] = {
        "int": _read_int,
        "float": _read_float,
        "string": _read_string,
        "bool": _read_bool,
        "json": _read_json,
    }
    return readers[column.item_type]


def _read_int(value: Any) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, HugeNumber):
        raise Misfit("int of at most 64 bits")
    if not isinstance(value, int) or isinstance(value, bool):
        raise Misfit("int")
    if not -_INT64 <= value < _INT64:
        raise Misfit("int of at most 64 bits")
    return int(value)


def _read_float(value: Any) -> float:
    if isinstance(value, HugeNumber):
        raise Misfit("float of at most 64 bits")
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise Misfit("float")
    try:
        return float(value)
    except OverflowError:
        raise Misfit("float of at most 64 bits") from None


def _read_string(value: Any) -> str:
    if not isinstance(value, str):
        raise Misfit("string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Misfit("string of valid unicode") from None
    return value


def _read_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Misfit("bool")
    return value


# ---- JSON ---------------------------------------------------------------------------------------


def _read_json(value: Any) -> str:
    import msgspec

    try:
        if _is_json(value):
            return msgspec.json.encode(value, order="deterministic").decode()
    except (TypeError, ValueError, RecursionError):
        pass
    raise Misfit("a JSON value")


def read_json_text(text: Any) -> str | None:
    """JSON text in its canonical spelling; the text null is NULL."""
    import msgspec

    try:
        value = msgspec.json.decode(text)
    except (TypeError, ValueError, RecursionError):
        raise Misfit("JSON text") from None
    return None if value is None else _read_json(value)


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_json(value[key]) for key in value)
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    if isinstance(value, float):
        return value - value == 0  # neither infinite nor not a number
    return value is None or isinstance(value, str | int)


# ---- time ---------------------------------------------------------------------------------------


def read_datetime(value: Any, unit: str | None) -> int:
    """Return microseconds since 1970 for a text, a number in this unit, a datetime or a date; raise
    `Misfit` for anything else. Times need a zone; a date is its midnight in UTC."""
    if isinstance(value, str):
        instant = _read_text(value)
    elif isinstance(value, datetime):
        try:
            aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
            instant = int((aware - _EPOCH) // _MICROSECOND)
        except (ValueError, TypeError, OverflowError):  # such as a NaT of pandas
            raise Misfit("datetime") from None
        if value.tzinfo is None:
            raise Misfit(NO_ZONE)
    elif isinstance(value, date):
        instant = (datetime.combine(value, time(), UTC) - _EPOCH) // _MICROSECOND
    elif isinstance(value, int | float) and not isinstance(value, bool):
        if unit is None:
            raise Misfit("datetime as text; for numbers the column needs a unit")
        instant = _read_time_number(value, unit)
    else:
        raise Misfit("datetime")
    if not FIRST_INSTANT <= instant <= LAST_INSTANT:
        raise Misfit(YEARS)
    return instant


def _read_text(text: str) -> int:
    try:
        return read_time_text(text)
    except NoZone:
        raise Misfit(NO_ZONE) from None
    except NotATime:
        raise Misfit(_TIME_TEXT) from None


def _read_time_number(value: int | float, unit: str) -> int:
    """Whole numbers are cut to microseconds; a float holds none exactly and is rounded."""
    if isinstance(value, int):
        return value // 1_000 if unit == "ns" else value * UNITS[unit]
    try:
        return round(value / 1_000 if unit == "ns" else value * UNITS[unit])
    except (ValueError, OverflowError):  # not a number, or infinite
        raise Misfit(YEARS) from None
