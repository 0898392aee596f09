"""The extent of a resource of a request: the number of its records and their event times.

A time of zero is absent, and one past the year 2262 is absurd; neither says when anything happened.
A log record happened at its own time or, without one, when it was observed; a data point at its own
time, not at the start of its interval; a span from its start to its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from lakebed.model.signal import Signal, SignalSpec

_ABSURD = 1 << 63


@dataclass(frozen=True, slots=True)
class Extent:
    """A number of records, from the earliest to the latest event in microseconds, both included."""

    nb_objects: int
    begin: int | None
    end: int | None


def measure(signal: Signal, resource: Any) -> Extent:
    """Return the extent of one ResourceLogs, ResourceMetrics or ResourceSpans message."""
    count, earliest, latest = 0, _ABSURD, 0
    for records, times in _list_groups(signal.spec, resource):
        count += records
        low, high = _bounds(times)
        earliest, latest = min(earliest, low), max(latest, high)
    if not latest:
        return Extent(count, None, None)
    return Extent(count, earliest // 1000, latest // 1000)


def _bounds(times: Sequence[int]) -> tuple[int, int]:
    """Return the earliest and the latest valid time; an impossible pair if none is valid."""
    if not times:
        return _ABSURD, 0
    low, high = min(times), max(times)
    if low > 0 and high < _ABSURD:
        return low, high
    sound = [time for time in times if 0 < time < _ABSURD]
    return (min(sound), max(sound)) if sound else (_ABSURD, 0)


def _list_groups(spec: SignalSpec, resource: Any) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the number and the times of messages that stand together."""
    for scope in getattr(resource, spec.scopes):
        records = getattr(scope, spec.records)
        for group in _list_points(spec.points_in, records) if spec.points_in else (records,):
            times = [time for name in spec.times for time in _read(name, group)]
            if spec.second_time and times and not (min(times) > 0 and max(times) < _ABSURD):
                times = [
                    first if 0 < first < _ABSURD else second
                    for first, second in zip(times, _read(spec.second_time, group), strict=True)
                ]
            yield len(group), times


def _list_points(choice: str, records: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for record in records:
        if kind := record.WhichOneof(choice):
            yield getattr(record, kind).data_points


def _read(name: str, messages: Sequence[Any]) -> Iterator[int]:
    return map(attrgetter(name), messages)
