"""The range of time of a page, and the bins of its charts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakebed.errors import BadInput
from lakebed.model.time import SECOND, TimeRange, format_instant, parse_moment, to_instant

_MINUTE, _HOUR = 60 * SECOND, 3600 * SECOND
_STEPS = (
    *(digit * 10**power for power in range(6) for digit in (1, 2, 5)),
    *(SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 30 * SECOND),
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(days * 24 * _HOUR for days in (1, 2, 7, 14, 28, 91, 182)),
    *(years * 364 * 24 * _HOUR for years in (1, 2, 5, 10, 20, 50, 100, 200, 500)),
)
_DAY = 24 * _HOUR
_MOST_MARKS = 6
_EARLIEST = to_instant("0001-01-01T00:00:00Z")
_EDGE = 0.04
"""The part of an axis at its ends without marks: the begin and end are written below it."""
QUICK = ("5m", "15m", "1h", "6h", "24h", "7d", "30d")
"""Ranges that a page offers as links."""


@dataclass(frozen=True, slots=True)
class Bins:
    """Equal stretches of time that together hold a range; widths are those of clocks."""

    first: int
    width: int
    count: int

    def begin_of(self, number: int) -> int:
        """Return the begin of a bin."""
        return self.first + number * self.width

    def find(self, instant: int) -> int:
        """Return the bin of an instant."""
        return (instant - self.first) // self.width


@dataclass(frozen=True, slots=True)
class Mark:
    """A position on an axis, with its text."""

    percent: float
    text: str


def mark_times(begin: str, end: str) -> list[Mark]:
    """Return round times between two instants; a date where a day begins. Beyond the calendar,
    where instants are plain numbers, there are none."""
    if not begin.endswith("Z") or not end.endswith("Z"):
        return []
    first, last = to_instant(begin), to_instant(end)
    length = last - first
    step = next((step for step in _STEPS if length // step <= _MOST_MARKS), length)
    if length <= 0:
        return []
    edge = int(length * _EDGE)
    instants = range(-(-(first + edge) // step) * step, last - edge + 1, step)
    return [Mark(round(100 * (at - first) / length, 2), _name(at, step)) for at in instants]


def _name(instant: int, step: int) -> str:
    date, _, clock = format_instant(instant).rstrip("Z").partition("T")
    if instant % _DAY == 0:
        return date if step > 300 * _DAY else date[5:]
    whole, _, fraction = clock.partition(".")
    if step >= _MINUTE:
        return whole[:5]
    return whole if step >= SECOND else f"{whole}.{fraction}"


def mark_durations(nanoseconds: int) -> list[tuple[float, int]]:
    """Return round numbers of nanoseconds from the begin of a span, with their percentage of it."""
    steps = (digit * 10**power for power in range(20) for digit in (1, 2, 5))
    step = next(step for step in steps if nanoseconds // step <= 5)
    return [
        (round(100 * at / nanoseconds, 2), at)
        for at in range(step, nanoseconds - int(nanoseconds * 2 * _EDGE) + 1, step)
    ]


def plan_bins(within: TimeRange, max_bins: int) -> Bins:
    """Return at most so many bins, which begin at round times."""
    length = within.end - within.begin
    steps = (step for step in _STEPS if length // step + 2 <= max_bins)
    width = next(steps, length // max(1, max_bins - 2) + 1)
    first = within.begin // width * width
    return Bins(first, width, (within.end - 1 - first) // width + 1)


def read_range(query: Mapping[str, str], now: int, default: str) -> TimeRange:
    """Return the range that an address names: its begin is the default if it has none, its end is
    now."""
    end = parse_moment(query["end"], now) if query.get("end") else now + 1
    begin = parse_moment(query.get("begin") or default, now)
    if begin < _EARLIEST:
        raise BadInput(f"{query['begin']!r} is before the year 1", hint="use a later time")
    return TimeRange(begin, end)


def read_number(query: Mapping[str, str], name: str, default: int, maximum: int) -> int:
    """Return a whole number from an address."""
    text = query.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:12]) <= maximum:
        raise BadInput(f"{name} is {text!r}", hint=f"use a number from 1 to {maximum}")
    return int(text)
