"""Facts in the path of a foreign file: whether its writer had finished it, the values that folders
such as ``device=ring-7`` give to all its rows, and the time range of the rows.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from urllib.parse import unquote

from lakebed.model.tables.schema import BUCKET_COLUMN
from lakebed.model.time import TimeRange, to_instant

_DATE_FOLDERS = (BUCKET_COLUMN, "date", "dt")
_NUMBERS = {
    "year": (1, 9999),
    "month": (1, 12),
    "week": (1, 53),
    "day": (1, 31),
    "hour": (0, 23),
    "minute": (0, 59),
}
TIME_FOLDERS = (*_DATE_FOLDERS, *_NUMBERS)
"""Folders that repeat the times of their rows."""

_ABSENT = "__HIVE_DEFAULT_PARTITION__"
_ENDINGS = (
    *(".tmp", ".temp", ".inprogress", ".in-progress", ".pending", ".partial", ".part"),
    *(".crc", ".swp", ".lock", ".bak", "~", "._COPYING_"),
)
_NUMBERED = re.compile(r".*#\d+", re.DOTALL)
_WHEN = re.compile(r"(\d{4})[-.]?(\d\d)(?:[-.]?(\d\d)(?:[T ](\d\d))?)?")
_WEEK = re.compile(r"\d{4}-?W\d\d")

Folders = Mapping[str, str | None]
"""The values in a path's folders, by name; None stands for NULL."""


def find_unfinished(path: str) -> str | None:
    """Return the reason why a path, relative to its tree, does not name a data file, or None."""
    for part in PurePosixPath(path).parts:
        if part.startswith(("_", ".")):
            return f"{show_path(part)} begins as names do that are not data"
    name = PurePosixPath(path).name
    for candidate in (name, name.removesuffix(".parquet")):
        for ending in _ENDINGS:
            if candidate.endswith(ending):
                return f"{ending} is the ending of files that are not finished, or not data"
        if _NUMBERED.fullmatch(candidate):
            return "# and a number end the names of files that are being written"
    return None


def read_folders(path: str) -> dict[str, str | None]:
    """Return the values that the folders of a path give, as ``{"device": "ring-7"}``. Bytes that
    are not UTF-8 stay surrogate escapes, as in every path."""
    values_by_folder: dict[str, str | None] = {}
    for part in PurePosixPath(path).parent.parts:
        name, equals, value = part.partition("=")
        if name and equals:
            values_by_folder[_read(name)] = None if value in ("", _ABSENT) else _read(value)
    return values_by_folder


def _read(text: str) -> str:
    return unquote(text, errors="surrogateescape")


@dataclass(frozen=True, slots=True)
class FolderTime:
    """The time range in the name of a folder."""

    label: str
    """As the folder spells it."""
    value: str
    span: TimeRange


def find_time(folders: Folders) -> FolderTime | None:
    """Return the time that ``partition_date=``, ``date=``, ``dt=`` or ``year=``, ``month=`` … name;
    None if such folders are absent or do not hold a date."""
    for name in _DATE_FOLDERS:
        value = folders.get(name)
        match = _WHEN.fullmatch(value) if value else None
        if value and match:
            span = _span([int(number) for number in match.groups() if number is not None])
            return None if span is None else FolderTime(f"{name}={value}", value, span)
    parts = _list_time_parts(folders)
    if not parts or not all(_is_number(name, value) for name, value in parts):
        return None
    span = _span([int(value) for _, value in parts])
    label = _join_parts(parts)
    return None if span is None else FolderTime(label, label, span)


def list_bad_times(folders: Folders, columns: Collection[str]) -> list[str]:
    """Return the folders, as ``name=value``, whose names promise a time that their values do not
    hold. Folders named like one of the ``columns`` are values of that column and are left out."""
    names = {name.lower() for name in columns}
    times = {
        name: value
        for name, value in folders.items()
        if value is not None and name.lower() in TIME_FOLDERS and name.lower() not in names
    }
    bad = [f"{name}={value}" for name, value in times.items() if not _holds_time(name, value)]
    parts = _list_time_parts(times)
    in_range = all(_is_number(name, value) for name, value in parts)
    if parts and in_range and _span([int(value) for _, value in parts]) is None:
        bad.append(_join_parts(parts))
    return bad


def _holds_time(name: str, value: str) -> bool:
    """Return True if the value of one time folder is a date, a week, or a number in range."""
    if match := _WHEN.fullmatch(value):
        return _span([int(part) for part in match.groups() if part]) is not None
    if _WEEK.fullmatch(value):
        return True
    return name.lower() in _NUMBERS and _is_number(name, value)


def _is_number(name: str, value: str) -> bool:
    low, high = _NUMBERS[name.lower()]
    return value.isascii() and value.isdecimal() and len(value) < 5 and low <= int(value) <= high


def _list_time_parts(folders: Folders) -> list[tuple[str, str]]:
    """Return the ``year``, ``month``, ``day`` and ``hour`` folders, up to the first missing one."""
    parts: list[tuple[str, str]] = []
    for name in ("year", "month", "day", "hour"):
        value = folders.get(name)
        if value is None:
            break
        parts.append((name, value))
    return parts


def _join_parts(parts: Sequence[tuple[str, str]]) -> str:
    return "/".join(f"{name}={value}" for name, value in parts)


def _span(numbers: list[int]) -> TimeRange | None:
    """Return the year, month, day or hour with these numbers, or None."""
    year, month, day, hour = [*numbers, *[1, 1, 0][len(numbers) - 1 :]]
    try:
        begin = datetime(year, month, day, hour, tzinfo=UTC)
        hours = {
            1: 24 * (366 if calendar.isleap(year) else 365),
            2: 24 * calendar.monthrange(year, month)[1],
            3: 24,
            4: 1,
        }[len(numbers)]
        end = begin + timedelta(hours=hours)
    except (ValueError, OverflowError):
        return None
    return TimeRange(to_instant(begin), to_instant(end))


def show_path(path: str) -> str:
    """Return a printable form of a path whose names may hold arbitrary bytes."""
    text = path.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )
