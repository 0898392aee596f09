"""Data points of one metric as lines over time. Pure.

A line is the average of values, the increase per second, or the mean or a percentile of
distributions. Cumulative series are converted to increases first, so that a restarted process does
not look like a fall.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from lakebed.model.time import TimeRange
from lakebed.web.charting.lines import Line, by_size, make_line
from lakebed.web.charting.percentiles import Bucket, Counts, confine, find_percentile, subtract
from lakebed.web.charting.rates import Growth, draw_rates
from lakebed.web.times import Bins

PERCENTILES = {"p50": 50, "p90": 90, "p95": 95, "p99": 99}
QUANTILES = "quantiles"
"""The aggregation of summaries, whose senders have no buckets but know some quantiles. Each is a
point with a label and value of its own."""
WAYS = {
    "value": "average value",
    "rate": "increase per second",
    "mean": "mean of what was measured",
    "percentiles": "percentiles 50, 90 and 99",
    **{name: f"percentile {percent}" for name, percent in PERCENTILES.items()},
    QUANTILES: "quantiles, as they were sent",
}
"""Aggregations of a metric, with the texts of the page."""
EVERYTHING = "all"
"""The label of points that are not split."""
_DISTRIBUTIONS = ("histogram", "exponential_histogram")
_TOGETHER = ("p99", "p90", "p50")
_AVERAGED = ("value", QUANTILES)


@dataclass(frozen=True, slots=True)
class Point:
    """One data point, as far as charts need it."""

    time: int
    series: str
    """The identity of a series; its points follow each other."""
    label: str
    start: int | None
    """The begin of its count, in nanoseconds: of a cumulative series its own beginning."""
    value: float | None = None
    count: float | None = None
    sum: float | None = None
    buckets: Counts | None = None
    least: float | None = None
    greatest: float | None = None
    is_first: bool = False
    """True if its series began at its start."""


def choose_aggregation(kind: str, is_monotonic: bool | None) -> str:
    """Return the aggregation that shows a metric of this kind, unless the address names one."""
    if kind in (*_DISTRIBUTIONS, "summary"):
        return "mean"
    return "rate" if kind == "sum" and is_monotonic else "value"


def list_aggregations(kind: str) -> list[str]:
    """Return the aggregations that suit a metric of this kind."""
    if kind in _DISTRIBUTIONS:
        return ["mean", "rate", "percentiles", *PERCENTILES]
    return ["mean", "rate", QUANTILES] if kind == "summary" else ["value", "rate"]


def needs_buckets(aggregation: str | None) -> bool:
    """Return True if an aggregation needs the buckets of histograms."""
    return aggregation == "percentiles" or aggregation in PERCENTILES


def plan_lines(
    points: Sequence[Point], bins: Bins, within: TimeRange, aggregation: str, *, is_cumulative: bool
) -> list[Line]:
    """Return a line for each label, the largest first; of several percentiles, some for each."""
    ordered = sorted(points, key=lambda point: point.time)
    if needs_buckets(aggregation):
        ordered = [point for point in ordered if point.buckets is not None]
    if is_cumulative and aggregation not in _AVERAGED:
        ordered = list(_list_increases(ordered, within))
    if aggregation == "percentiles":
        return _join_percentiles(_gather_buckets(ordered, bins), bins)
    if aggregation in PERCENTILES:
        lines = _draw_percentile(_gather_buckets(ordered, bins), bins, PERCENTILES[aggregation])
    elif aggregation == "rate":
        lines = draw_rates(_list_growths(ordered, bins), bins, is_cumulative=is_cumulative)
    else:
        lines = _draw_quotients(ordered, bins, aggregation)
    return sorted(lines, key=by_size)


def _draw_quotients(points: Iterable[Point], bins: Bins, aggregation: str) -> list[Line]:
    upper: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    lower: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for point in points:
        number = bins.find(point.time)
        if aggregation in _AVERAGED:
            if point.value is not None:
                upper[point.label][number] += point.value
                lower[point.label][number] += 1
        elif point.sum is not None and point.count is not None:
            upper[point.label][number] += point.sum
            lower[point.label][number] += point.count
    return [
        make_line(
            label,
            [
                upper[label][number] / lower[label][number] if lower[label].get(number) else None
                for number in range(bins.count)
            ],
        )
        for label in upper
    ]


def find_begin(points: Iterable[Point], within: TimeRange, aggregation: str) -> int:
    """Return when the first of them begins: it counts since its start."""
    begin = within.end - 1
    for point in points:
        start = (point.start or 0) // 1000
        is_inside = aggregation == "rate" and within.begin <= start < point.time
        begin = min(begin, start if is_inside else point.time)
    return max(begin, within.begin)


def _list_growths(points: Iterable[Point], bins: Bins) -> Iterable[Growth]:
    """Yield the time in which each increase grew. A point without a start is assumed to count since
    the point before, and the first one for one step."""
    last: dict[str, int] = {}
    for point in points:
        amount = point.value if point.value is not None else point.count
        if amount is None:
            continue
        since = (point.start or 0) // 1000
        if not 0 < since < point.time:
            since = last.get(point.series, point.time - bins.width)
        last[point.series] = point.time
        yield Growth(point.label, point.series, since, point.time, amount, point.is_first)


_Gathered = Mapping[str, Mapping[int, Counts]]


def _gather_buckets(points: Iterable[Point], bins: Bins) -> _Gathered:
    """Return the buckets of all points of a label and bin together."""
    buckets: dict[str, dict[int, dict[Bucket, int]]] = defaultdict(lambda: defaultdict(dict))
    for point in points:
        total = buckets[point.label][bins.find(point.time)]
        for bucket, count in confine(point.buckets or {}, point.least, point.greatest).items():
            total[bucket] = total.get(bucket, 0) + count
    return buckets


def _draw_percentile(buckets: _Gathered, bins: Bins, percent: int) -> list[Line]:
    lines = [
        make_line(
            label,
            [find_percentile(by_bin.get(number, {}), percent) for number in range(bins.count)],
        )
        for label, by_bin in buckets.items()
    ]
    return [line for line in lines if line.latest is not None]


def _join_percentiles(buckets: _Gathered, bins: Bins) -> list[Line]:
    lines = {
        name: {line.name: line for line in _draw_percentile(buckets, bins, PERCENTILES[name])}
        for name in _TOGETHER
    }
    ranked = sorted(lines[_TOGETHER[0]].values(), key=by_size)
    return [
        replace(lines[name][label.name], name=name_percentile(label.name, name))
        for label in ranked
        for name in _TOGETHER
    ]


def name_percentile(label: str, name: str) -> str:
    """Return the name of a percentile of points of some label."""
    return name if label == EVERYTHING else f"{label} {name}"


def _list_increases(points: Iterable[Point], within: TimeRange) -> Iterable[Point]:
    """Return the increase of each point of cumulative series since the one before. The increase of
    the first point of a series is only known if the series began inside the range."""
    last: dict[str, Point] = {}
    for point in points:
        previous = last.get(point.series)
        last[point.series] = point
        if previous is None:
            if point.start is None or point.start // 1000 < within.begin:
                continue
            yield replace(point, is_first=True)
            continue
        increase = None
        if point.buckets is not None and previous.buckets is not None:
            increase = subtract(point.buckets, previous.buckets)
        fell = _has_fallen(previous.value, point.value) or _has_fallen(previous.count, point.count)
        lost = point.buckets is not None and previous.buckets is not None and increase is None
        if previous.start != point.start or fell or lost:
            started = (point.start or 0) // 1000
            is_known = previous.time <= started < point.time
            yield point if is_known else replace(point, start=previous.time * 1000)
        else:
            yield replace(
                point,
                start=previous.time * 1000,
                value=_subtract(point.value, previous.value),
                count=_subtract(point.count, previous.count),
                sum=_subtract(point.sum, previous.sum),
                buckets=increase,
            )


def _has_fallen(before: float | None, after: float | None) -> bool:
    return after is not None and before is not None and after < before


def _subtract(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before
