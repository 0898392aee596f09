"""Instants and ranges. An instant is a whole number of microseconds since 1970 in UTC; a tick is
an instant of the lake's own clock. Ranges are half-open everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Literal

from lakebed.errors import BadInput, TooPrecise
from lakebed.model.time_text import NotATime, NoZone, read_time_text

Instant = int | datetime | date | str
"""A time as callers pass it: microseconds since 1970, a datetime with a zone, a date, or text."""

DEFAULT_GRACE = "24h"
DEFAULT_LONGEST_READ = "24h"
"""The defaults of a new lake; here, because the command line shows them without opening one."""

SECOND = 1_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNITS = {"us": 1, "ms": 1_000, "s": SECOND, "m": 60 * SECOND, "h": 3600 * SECOND}
_UNITS |= {"d": 24 * _UNITS["h"], "w": 7 * 24 * _UNITS["h"]}
_DURATION = re.compile(r"(\d{1,19})(us|ms|s|m|h|d|w)")
_BELOW_MICROSECOND = re.compile(r":\d{2}[.,]\d{6}\d*[1-9]")
_LIMIT = 1 << 62
_WORDS = {"now": None, "today": 0, "yesterday": 1}
"""Words for times, and how many days before today they are."""

Rounding = Literal["exact", "down", "up"]
"""Handling of a time between two microseconds: refuse it, or take the one before or after it."""


def to_instant(value: Instant, rounding: Rounding = "exact") -> int:
    """Return microseconds since 1970 for any accepted spelling of a time.

    Raise `BadInput` for a time without a zone, and `TooPrecise` for one that has parts of a
    microsecond unless ``rounding`` allows it. Both ends of a half-open range of instants round up:
    ``begin <= t < end`` then holds for the same whole microseconds.
    """
    instant = _read_instant(value)
    if rounding == "down" or not _has_nanoseconds(value):
        return instant
    if rounding == "up":
        return instant + 1
    text = value if isinstance(value, str) else value.isoformat()  # type: ignore[union-attr]
    raise TooPrecise(
        f"the time {text} has parts of a microsecond",
        hint="give whole microseconds, which are at most 6 digits after the seconds",
    )


def _has_nanoseconds(value: Instant) -> bool:
    """Return True for texts and pandas timestamps with parts of a microsecond."""
    if isinstance(value, str):
        return _BELOW_MICROSECOND.search(value) is not None
    return bool(getattr(value, "nanosecond", 0))


def _read_instant(value: Instant) -> int:
    """Return the whole microseconds of a time, rounded down."""
    if isinstance(value, bool):
        raise BadInput(f"expected an instant, not {value!r}")
    if isinstance(value, int):
        if not -_LIMIT < value < _LIMIT:
            raise BadInput(f"{value} microseconds is not an instant of this era")
        return value
    if isinstance(value, str):
        try:
            return read_time_text(value)
        except NoZone:
            raise _without_zone(value) from None
        except NotATime:
            raise BadInput(
                f"cannot read {value!r} as a time", hint="write it like 2026-11-15T12:00:00Z"
            ) from None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime.combine(value, time(), UTC)
    if not isinstance(value, datetime):
        raise BadInput(f"expected an instant, not {type(value).__name__}")
    if value.tzinfo is None:
        raise _without_zone(value.isoformat())
    return (value - _EPOCH) // _MICROSECOND


def _without_zone(text: str) -> BadInput:
    return BadInput(
        f"the time {text} has no zone",
        hint=f"write {text.replace(' ', 'T')}Z for UTC, or add an offset such as +02:00",
    )


def to_datetime(instant: int) -> datetime:
    """Return the aware UTC datetime of an instant."""
    try:
        return _EPOCH + timedelta(microseconds=instant)
    except OverflowError:
        raise BadInput(f"{instant} microseconds is beyond the calendar") from None


def format_instant(instant: int) -> str:
    """Return an instant as ISO 8601 in UTC with microseconds, e.g.
    ``2026-11-15T12:00:00.000000Z``. Instants beyond the calendar, which stored bytes may hold,
    become a plain number."""
    try:
        moment = _EPOCH + timedelta(microseconds=instant)
    except OverflowError:
        return f"{instant}us"
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def parse_duration(text: str) -> int:
    """Return the microseconds of a duration such as ``30s``, ``15m``, ``24h`` or ``7d``."""
    match = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise BadInput(
            f"cannot read {text!r} as a duration", hint="write it like 30s, 15m, 24h or 7d"
        )
    duration = int(match[1]) * _UNITS[match[2]]
    if duration >= _LIMIT:
        raise BadInput(f"the duration {text!r} is too long")
    return duration


def is_duration(text: str) -> bool:
    """Return True if `parse_duration` accepts the text."""
    return _DURATION.fullmatch(text.strip()) is not None


def is_relative(value: Instant) -> bool:
    """Return True for a time that depends on the current one: ``now``, ``yesterday``, ``1h``."""
    return isinstance(value, str) and (value.strip() in _WORDS or is_duration(value))


def parse_moment(value: Instant, now: int) -> int:
    """Return a time in any accepted spelling: also a duration before now (``1h``, ``7d``), ``now``,
    and ``today`` and ``yesterday``, which are midnights in UTC. Parts of a microsecond round up,
    see `to_instant`."""
    if isinstance(value, str) and is_relative(value):
        word = value.strip()
        if word not in _WORDS:
            return now - parse_duration(word)
        days = _WORDS[word]
        return now if days is None else (now // _UNITS["d"] - days) * _UNITS["d"]
    try:
        return to_instant(value, "up")
    except BadInput as error:
        raise BadInput(
            str(error), hint=f"{error.hint}, or count back from now: 1h, 7d" if error.hint else None
        ) from None


def format_duration(micros: int) -> str:
    """Return the shortest exact text that `parse_duration` reads back."""
    for unit in ("w", "d", "h", "m", "s", "ms"):
        if micros and micros % _UNITS[unit] == 0:
            return f"{micros // _UNITS[unit]}{unit}"
    return f"{micros}us"


@dataclass(frozen=True, slots=True, order=True)
class TimeRange:
    """The instants from ``begin`` up to, not including, ``end``; never empty."""

    begin: int
    end: int

    def __post_init__(self) -> None:
        if self.begin >= self.end:
            raise BadInput(
                f"the range [{format_instant(self.begin)}, {format_instant(self.end)}) "
                f"{'is empty' if self.begin == self.end else 'runs backwards'}",
                hint="begin must be before end",
            )

    @classmethod
    def of(cls, begin: Instant, end: Instant) -> TimeRange:
        """Return the range between two instants in any accepted spelling; `TooPrecise` if one has
        parts of a microsecond."""
        return cls(to_instant(begin), to_instant(end))

    @classmethod
    def within(cls, begin: Instant, end: Instant) -> TimeRange:
        """Return the longest range of whole microseconds inside two instants."""
        return cls(to_instant(begin, "up"), to_instant(end, "down"))

    def overlaps(self, other: TimeRange) -> bool:
        """Return True if the two ranges share an instant."""
        return self.begin < other.end and other.begin < self.end

    def intersect(self, other: TimeRange) -> TimeRange:
        """Return the intersection of two overlapping ranges."""
        return TimeRange(max(self.begin, other.begin), min(self.end, other.end))

    def contains(self, other: TimeRange) -> bool:
        """Return True if every instant of `other` is in this range."""
        return self.begin <= other.begin and other.end <= self.end

    def __str__(self) -> str:
        return f"[{format_instant(self.begin)}, {format_instant(self.end)})"


def covers(ranges: list[TimeRange], target: TimeRange) -> bool:
    """Return True if the union of the ranges contains the target without a gap."""
    reached = target.begin
    for time_range in sorted(ranges):
        if time_range.begin > reached:
            return False
        reached = max(reached, time_range.end)
        if reached >= target.end:
            return True
    return False


def find_gaps(within: TimeRange, covered: Iterable[TimeRange]) -> list[TimeRange]:
    """Return the parts of a range that `covered` leaves uncovered, in order."""
    gaps = []
    reached = within.begin
    for time_range in sorted(covered):
        if time_range.begin >= within.end:
            break
        if time_range.begin > reached:
            gaps.append(TimeRange(reached, time_range.begin))
        reached = max(reached, time_range.end)
    if reached < within.end:
        gaps.append(TimeRange(reached, within.end))
    return gaps
