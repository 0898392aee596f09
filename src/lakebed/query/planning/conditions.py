"""The conditions of a statement on a table, as far as they distinguish partitions: for some
columns, the values that a row must have. Pure; each engine reads its own predicates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lakebed.model.partition import Partition
from lakebed.model.time import TimeRange

Value = int | str
Interval = tuple[Value | None, Value | None]
"""From a value up to another, both included; None is open."""

EVER = TimeRange(-(1 << 61), 1 << 61)


@dataclass(frozen=True, slots=True)
class Scan:
    """One use of a table in a statement. ``columns`` has the intervals that a row's value must be
    in, for each column that the statement restricts; a row must satisfy them all. ``projection``
    has the columns that are read; None stands for all."""

    table: str
    columns: Mapping[str, Sequence[Interval]] = field(default_factory=dict)
    projection: frozenset[str] | None = None


def intersect(first: Sequence[Interval], second: Sequence[Interval]) -> list[Interval]:
    """Return the values that are in both sets of intervals."""
    common = []
    for low, high in first:
        for other_low, other_high in second:
            begin = _pick(max, low, other_low)
            end = _pick(min, high, other_high)
            if begin is None or end is None or begin <= end:
                common.append((begin, end))
    return common


def _pick(choose: Callable[[Any, Any], Any], one: Value | None, other: Value | None) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)


def combine(
    first: Mapping[str, Sequence[Interval]], second: Mapping[str, Sequence[Interval]]
) -> dict[str, Sequence[Interval]]:
    """Return the conditions of rows that must satisfy both."""
    combined = dict(first)
    for column, intervals in second.items():
        previous = combined.get(column)
        combined[column] = intervals if previous is None else intersect(previous, intervals)
    return combined


def choose_either(
    first: Mapping[str, Sequence[Interval]], second: Mapping[str, Sequence[Interval]]
) -> dict[str, Sequence[Interval]]:
    """Return the conditions that hold of all rows that satisfy one or the other."""
    return {
        column: [*intervals, *second[column]]
        for column, intervals in first.items()
        if column in second
    }


def time_range(scan: Scan, time_column: str) -> TimeRange | None:
    """Return the smallest range that holds the times of a scan; None if there are none."""
    intervals = scan.columns.get(time_column)
    if intervals is None:
        return EVER
    lows = [EVER.begin if low is None else max(int(low), EVER.begin) for low, _ in intervals]
    highs = [EVER.end if high is None else min(int(high) + 1, EVER.end) for _, high in intervals]
    if not intervals or min(lows) >= max(highs):
        return None
    return TimeRange(min(lows), max(highs))


def may_match(scan: Scan, partition: Partition, time_column: str) -> bool:
    """Return True if a partition with a file may hold rows for a scan, by its catalog entry."""
    for column, intervals in scan.columns.items():
        if column == time_column:
            events = partition.events
            bounds = None if events is None else (events.earliest, events.latest)
        else:
            statistics = partition.statistics.get(column)
            bounds = None if statistics is None else (statistics[0], statistics[1])
        if bounds is not None and not _touches(intervals, *bounds):
            return False
    return True


def find_blocking_column(
    scans: Iterable[Scan], partition: Partition, time_column: str
) -> str | None:
    """Return a column by which a partition needs not be read, for explanations; None if it must be
    read."""
    blocking = None
    for scan in scans:
        only = next(
            (
                column
                for column, intervals in scan.columns.items()
                if not may_match(Scan(scan.table, {column: intervals}), partition, time_column)
            ),
            None,
        )
        if only is None:
            return None
        blocking = only
    return blocking


def _touches(intervals: Sequence[Interval], smallest: Any, largest: Any) -> bool:
    for low, high in intervals:
        literals = [bound for bound in (low, high) if bound is not None]
        if any(type(bound) is not type(smallest) for bound in literals):
            return True  # values of different types are not compared here
        if (low is None or low <= largest) and (high is None or high >= smallest):
            return True
    return False
