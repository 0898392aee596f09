"""What the path of a foreign file says: whether a writer had finished it, the values that folders
such as ``device=ring-7`` give to all its rows, and the time that they should be of.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import PurePosixPath
from urllib.parse import unquote

from lakebed.model.table import BUCKET_COLUMN
from lakebed.model.time import TimeRange, to_instant

TIME_FOLDERS = (BUCKET_COLUMN, "date", "dt", "year", "month", "week", "day", "hour", "minute")
"""Folders that only repeat what the rows' own times say."""

_ABSENT = "__HIVE_DEFAULT_PARTITION__"
_ENDINGS = (
    *(".tmp", ".temp", ".inprogress", ".in-progress", ".pending", ".partial", ".part"),
    *(".crc", ".swp", ".lock", ".bak", "~", "._COPYING_"),
)
_NUMBERED = re.compile(r".*#\d+", re.DOTALL)
_WHEN = re.compile(r"(\d{4})[-.]?(\d\d)(?:[-.]?(\d\d)(?:[T ](\d\d))?)?")

Folders = Mapping[str, str | None]
"""The values in a path's folders, by name; None stands for NULL."""


def find_unfinished(path: str) -> str | None:
    """Why a file with this path, relative to its tree, is not taken for data; None if it is."""
    for part in PurePosixPath(path).parts:
        if part.startswith(("_", ".")):
            return f"{show_path(part)} begins as names do that are not data"
    name = PurePosixPath(path).name
    for each in (name, name.removesuffix(".parquet")):
        for ending in _ENDINGS:
            if each.endswith(ending):
                return f"{ending} is the ending of files that are not finished, or not data"
        if _NUMBERED.fullmatch(each):
            return "# and a number end the names of files that are being written"
    return None


def read_folders(path: str) -> dict[str, str | None]:
    """The values that the folders of a path give, as ``{"device": "ring-7"}``. Bytes that are no
    text stay what they are, as in every path."""
    found: dict[str, str | None] = {}
    for part in PurePosixPath(path).parent.parts:
        name, equals, value = part.partition("=")
        if name and equals:
            found[_read(name)] = None if value in ("", _ABSENT) else _read(value)
    return found


def _read(text: str) -> str:
    return unquote(text, errors="surrogateescape")


@dataclass(frozen=True, slots=True)
class FolderTime:
    """The time that the rows in a folder should be of."""

    label: str
    """As the folder spells it."""
    value: str
    span: TimeRange


def find_time(folders: Folders) -> FolderTime | None:
    """What ``partition_date=``, ``date=``, ``dt=`` or ``year=``, ``month=`` … say; None if they are
    not there or no dates."""
    for name in (BUCKET_COLUMN, "date", "dt"):
        value = folders.get(name)
        match = _WHEN.fullmatch(value) if value else None
        if value and match:
            span = _span([int(each) for each in match.groups() if each is not None])
            return None if span is None else FolderTime(f"{name}={value}", value, span)
    given: list[tuple[str, str]] = []
    for name in ("year", "month", "day", "hour"):
        value = folders.get(name)
        if value is None:
            break
        given.append((name, value))
    if not given or not all(value.isdecimal() for _, value in given):
        return None
    span = _span([int(value) for _, value in given])
    label = "/".join(f"{name}={value}" for name, value in given)
    return None if span is None else FolderTime(label, label, span)


def _span(numbers: list[int]) -> TimeRange | None:
    """The year, month, day or hour that begins with these numbers."""
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
    """A path that can be printed and stored, whatever bytes its names are made of."""
    text = path.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)
