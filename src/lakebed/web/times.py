"""Which time a page is about, and the bins of its charts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakebed.errors import BadInput
from lakebed.model.time import SECOND, TimeRange, parse_moment

_MINUTE, _HOUR = 60 * SECOND, 3600 * SECOND
_STEPS = (
    *(1, 10, 100, 1_000, 10_000, 100_000),
    *(SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 15 * SECOND, 30 * SECOND),
    *(_MINUTE, 2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 15 * _MINUTE, 30 * _MINUTE),
    *(_HOUR, 2 * _HOUR, 3 * _HOUR, 6 * _HOUR, 12 * _HOUR),
    *(days * 24 * _HOUR for days in (1, 2, 7, 14, 28, 91, 364, 3640)),
)
QUICK = ("5m", "15m", "1h", "6h", "24h", "7d", "30d")
"""Ranges that are a click away."""


@dataclass(frozen=True, slots=True)
class Bins:
    """Equal stretches of time that together hold a range; widths are those of clocks."""

    first: int
    width: int
    count: int

    def begin_of(self, number: int) -> int:
        """When a bin begins."""
        return self.first + number * self.width

    def find(self, instant: int) -> int:
        """The bin of an instant."""
        return (instant - self.first) // self.width


def plan_bins(within: TimeRange, most: int) -> Bins:
    """At most so many bins, which begin at round times."""
    length = within.end - within.begin
    fitting = (step for step in _STEPS if length // step + 2 <= most)
    width = next(fitting, length // max(1, most - 2) + 1)
    first = within.begin // width * width
    return Bins(first, width, (within.end - 1 - first) // width + 1)


def read_range(asked: Mapping[str, str], now: int, default: str) -> TimeRange:
    """The range that an address names: its begin is the default if it has none, its end is now."""
    end = parse_moment(asked["end"], now) if asked.get("end") else now + 1
    begin = parse_moment(asked.get("begin") or default, now)
    return TimeRange(begin, end)


def read_number(asked: Mapping[str, str], name: str, default: int, most: int) -> int:
    """A whole number from an address."""
    text = asked.get(name) or str(default)
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:12]) <= most:
        raise BadInput(f"{name} is {text!r}", hint=f"use a number from 1 to {most}")
    return int(text)
