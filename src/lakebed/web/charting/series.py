"""Data points of one metric as lines over time. Pure.

What a line means depends on the way: the average of values, the increase per second, the mean or a
percentile of what distributions measured. Series that count since their beginning are taken apart
first, so that a restarted process does not look like a fall.
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
"""The way of summaries, whose senders have no buckets but know some quantiles. Each is a point with
a label and value of its own."""
WAYS = {
    "value": "average value",
    "rate": "increase per second",
    "mean": "mean of what was measured",
    "percentiles": "percentiles 50, 90 and 99",
    **{name: f"percentile {percent}" for name, percent in PERCENTILES.items()},
    QUANTILES: "quantiles, as they were sent",
}
"""How a metric can be shown."""
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
    """Points of one series follow each other."""
    label: str
    start: int | None
    """Since when it counts, in nanoseconds: of a cumulative series since its beginning."""
    value: float | None = None
    count: float | None = None
    sum: float | None = None
    buckets: Counts | None = None
    least: float | None = None
    greatest: float | None = None
    is_first: bool = False
    """Whether its series began at its start."""


def choose_way(kind: str, is_monotonic: bool | None) -> str:
    """How a metric of this kind is shown, unless somebody says otherwise."""
    if kind in (*_DISTRIBUTIONS, "summary"):
        return "mean"
    return "rate" if kind == "sum" and is_monotonic else "value"


def list_ways(kind: str) -> list[str]:
    """The ways in which a metric of this kind has something to show."""
    if kind in _DISTRIBUTIONS:
        return ["mean", "rate", "percentiles", *PERCENTILES]
    return ["mean", "rate", QUANTILES] if kind == "summary" else ["value", "rate"]


def needs_buckets(way: str | None) -> bool:
    """Whether it is made of the buckets of histograms."""
    return way == "percentiles" or way in PERCENTILES


def plan_lines(
    points: Sequence[Point], bins: Bins, within: TimeRange, way: str, *, is_cumulative: bool
) -> list[Line]:
    """A line for each label, the largest first; of several percentiles, some for each."""
    ordered = sorted(points, key=lambda each: each.time)
    if needs_buckets(way):
        ordered = [each for each in ordered if each.buckets is not None]
    if is_cumulative and way not in _AVERAGED:
        ordered = list(_increases(ordered, within))
    if way == "percentiles":
        return _join_percentiles(_gather_buckets(ordered, bins), bins)
    if way in PERCENTILES:
        lines = _draw_percentile(_gather_buckets(ordered, bins), bins, PERCENTILES[way])
    elif way == "rate":
        lines = draw_rates(_grow(ordered, bins), bins, is_cumulative=is_cumulative)
    else:
        lines = _draw_quotients(ordered, bins, way)
    return sorted(lines, key=by_size)


def _draw_quotients(points: Iterable[Point], bins: Bins, way: str) -> list[Line]:
    upper: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    lower: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    for each in points:
        number = bins.find(each.time)
        if way in _AVERAGED:
            if each.value is not None:
                upper[each.label][number] += each.value
                lower[each.label][number] += 1
        elif each.sum is not None and each.count is not None:
            upper[each.label][number] += each.sum
            lower[each.label][number] += each.count
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


def find_begin(points: Iterable[Point], within: TimeRange, way: str) -> int:
    """When the first of them begins: what it counts, it counts since its start."""
    begin = within.end - 1
    for each in points:
        start = (each.start or 0) // 1000
        is_inside = way == "rate" and within.begin <= start < each.time
        begin = min(begin, start if is_inside else each.time)
    return max(begin, within.begin)


def _grow(points: Iterable[Point], bins: Bins) -> Iterable[Growth]:
    """When each increase grew. Who does not say so is taken to speak of the time since the point
    before, and with the first one of one step."""
    last: dict[str, int] = {}
    for each in points:
        amount = each.value if each.value is not None else each.count
        if amount is None:
            continue
        since = (each.start or 0) // 1000
        if not 0 < since < each.time:
            since = last.get(each.series, each.time - bins.width)
        last[each.series] = each.time
        yield Growth(each.label, each.series, since, each.time, amount, each.is_first)


_Gathered = Mapping[str, Mapping[int, Counts]]


def _gather_buckets(points: Iterable[Point], bins: Bins) -> _Gathered:
    """The buckets of all points of a label and bin together."""
    found: dict[str, dict[int, dict[Bucket, int]]] = defaultdict(lambda: defaultdict(dict))
    for each in points:
        total = found[each.label][bins.find(each.time)]
        for bucket, count in confine(each.buckets or {}, each.least, each.greatest).items():
            total[bucket] = total.get(bucket, 0) + count
    return found


def _draw_percentile(gathered: _Gathered, bins: Bins, percent: int) -> list[Line]:
    lines = [
        make_line(
            label,
            [find_percentile(by_bin.get(number, {}), percent) for number in range(bins.count)],
        )
        for label, by_bin in gathered.items()
    ]
    return [line for line in lines if line.latest is not None]


def _join_percentiles(gathered: _Gathered, bins: Bins) -> list[Line]:
    drawn = {
        name: {line.name: line for line in _draw_percentile(gathered, bins, PERCENTILES[name])}
        for name in _TOGETHER
    }
    ranked = sorted(drawn[_TOGETHER[0]].values(), key=by_size)
    return [
        replace(drawn[name][label.name], name=name_percentile(label.name, name))
        for label in ranked
        for name in _TOGETHER
    ]


def name_percentile(label: str, name: str) -> str:
    """What a percentile of points of some label is called."""
    return name if label == EVERYTHING else f"{label} {name}"


def _increases(points: Iterable[Point], within: TimeRange) -> Iterable[Point]:
    """What each point of cumulative series adds to the one before, and since when. Of the first
    point of a series that is only known if the series began inside the range."""
    last: dict[str, Point] = {}
    for each in points:
        before = last.get(each.series)
        last[each.series] = each
        if before is None:
            if each.start is None or each.start // 1000 < within.begin:
                continue
            yield replace(each, is_first=True)
            continue
        grown = None
        if each.buckets is not None and before.buckets is not None:
            grown = subtract(each.buckets, before.buckets)
        fell = _fell(before.value, each.value) or _fell(before.count, each.count)
        lost = each.buckets is not None and before.buckets is not None and grown is None
        if before.start != each.start or fell or lost:
            started = (each.start or 0) // 1000
            is_known = before.time <= started < each.time
            yield each if is_known else replace(each, start=before.time * 1000)
        else:
            yield replace(
                each,
                start=before.time * 1000,
                value=_minus(each.value, before.value),
                count=_minus(each.count, before.count),
                sum=_minus(each.sum, before.sum),
                buckets=grown,
            )


def _fell(before: float | None, after: float | None) -> bool:
    return after is not None and before is not None and after < before


def _minus(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before
