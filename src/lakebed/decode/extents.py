"""How much a resource of a request holds, and when it happened: counts and event times.

A time of zero is absent, and one past the year 2262 is absurd; neither says when anything happened.
A log record happened at its own time or, without one, when it was observed; a data point at its own
time, not at the start of its interval; a span from its start to its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from lakebed.model.signal import Signal

_ABSURD = 1 << 63
_time = attrgetter("time_unix_nano")
_observed = attrgetter("observed_time_unix_nano")
_start = attrgetter("start_time_unix_nano")
_end = attrgetter("end_time_unix_nano")


@dataclass(frozen=True, slots=True)
class Extent:
    """So many records, from the earliest to the latest event in microseconds, both included."""

    nb_objects: int
    begin: int | None
    end: int | None


def measure(signal: Signal, resource: Any) -> Extent:
    """The extent of one ResourceLogs, ResourceMetrics or ResourceSpans message."""
    count, earliest, latest = 0, _ABSURD, 0
    for records, times in _GROUPS[signal](resource):
        count += records
        low, high = _bounds(times)
        earliest, latest = min(earliest, low), max(latest, high)
    if not latest:
        return Extent(count, None, None)
    return Extent(count, earliest // 1000, latest // 1000)


def _bounds(times: Sequence[int]) -> tuple[int, int]:
    """The earliest and the latest time that says something; an impossible pair if none does."""
    if not times:
        return _ABSURD, 0
    low, high = min(times), max(times)
    if low > 0 and high < _ABSURD:
        return low, high
    known = [time for time in times if 0 < time < _ABSURD]
    return (min(known), max(known)) if known else (_ABSURD, 0)


def _log_groups(resource: Any) -> Iterator[tuple[int, Sequence[int]]]:
    for scope in resource.scope_logs:
        records = scope.log_records
        times = list(map(_time, records))
        if times and not (min(times) > 0 and max(times) < _ABSURD):
            times = [
                time if 0 < time < _ABSURD else observed
                for time, observed in zip(times, map(_observed, records), strict=True)
            ]
        yield len(times), times


def _metric_groups(resource: Any) -> Iterator[tuple[int, Sequence[int]]]:
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            kind = metric.WhichOneof("data")
            if kind:
                times = list(map(_time, getattr(metric, kind).data_points))
                yield len(times), times


def _span_groups(resource: Any) -> Iterator[tuple[int, Sequence[int]]]:
    for scope in resource.scope_spans:
        starts = list(map(_start, scope.spans))
        yield len(starts), starts + list(map(_end, scope.spans))


_GROUPS: dict[Signal, Any] = {
    Signal.LOGS: _log_groups,
    Signal.METRICS: _metric_groups,
    Signal.TRACES: _span_groups,
}
