"""Metrics: which there are, and one of them over time, split by an attribute.

What a line means depends on the metric: gauges are averaged, counters become increases per second,
distributions the mean of what they measured. Series that count since their beginning are taken
apart first, so that a restarted process does not look like a fall.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakebed.errors import BadInput, NotFound
from lakebed.lake import Lake
from lakebed.model.time import SECOND, TimeRange, format_instant, to_instant
from lakebed.query.plain import to_objects
from lakebed.web.times import Bins, plan_bins, read_range

DEFAULT = "1h"
WAYS = ("value", "rate", "mean")
"""The average of values; the increase per second; the mean of what distributions measured."""
_BINS = 60
_MOST_POINTS = 100_000
_MOST_LINES = 6


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric of the range."""

    name: str
    kind: str
    unit: str | None
    description: str | None
    services: int
    points: int
    latest: str


@dataclass(frozen=True, slots=True)
class MetricLine:
    """One line of the chart: a number for each bin, or none."""

    name: str
    values: Sequence[float | None]
    latest: float | None


@dataclass(frozen=True, slots=True)
class MetricChart:
    """One metric over time."""

    name: str
    kind: str
    temporality: str | None
    unit: str | None
    description: str | None
    way: str
    points: int
    is_cut: bool
    """Whether there are more points than were looked at: these are the newest."""
    attributes: Sequence[str]
    """What it can be split by."""
    by: str | None
    bins: Sequence[str]
    """When each bin begins."""
    bin_seconds: float
    lines: Sequence[MetricLine]
    lines_left_out: int


@dataclass(frozen=True, slots=True)
class MeasuresPage:
    """What the page shows."""

    asked: Mapping[str, str]
    begin: str
    end: str
    metrics: Sequence[MetricRow]
    chart: MetricChart | None
    newest: str | None
    warnings: Sequence[str]


@dataclass(frozen=True, slots=True)
class Point:
    """One data point, as far as charts need it."""

    time: int
    series: str
    """Points of one series follow each other."""
    label: str
    start: int | None
    """Since when a cumulative series counts."""
    value: float | None = None
    count: float | None = None
    sum: float | None = None


def read_measures(
    lake: Lake, asked: Mapping[str, str], now: int, seconds: float | None
) -> MeasuresPage:
    """The metrics of a range, and one of them if it is named."""
    known = ("name", "by", "way", "service", "begin", "end", "find")
    wanted = {name: asked[name] for name in known if asked.get(name)}
    within = read_range(wanted, now, DEFAULT)
    if wanted.get("way") and wanted["way"] not in WAYS:
        raise BadInput(f"{wanted['way']!r} is no way to show it", hint=f"use {', '.join(WAYS)}")
    chart, newest = None, None
    metrics: Sequence[MetricRow] = ()
    warnings: Sequence[str] = ()
    if wanted.get("name"):
        chart = _read_chart(lake, wanted, within, seconds)
    else:
        metrics, warnings = _list_metrics(lake, wanted, within, seconds)
        if not metrics:
            latest = lake.query(
                "SELECT max(time) AS latest FROM measures", timeout=seconds, admin=False
            ).to_arrow()["latest"][0]
            newest = format_instant(to_instant(latest.as_py())) if latest.is_valid else None
    return MeasuresPage(
        wanted,
        format_instant(within.begin),
        format_instant(within.end),
        metrics,
        chart,
        newest,
        warnings,
    )


def _list_metrics(
    lake: Lake, asked: Mapping[str, str], within: TimeRange, seconds: float | None
) -> tuple[list[MetricRow], Sequence[str]]:
    result = lake.query(
        """SELECT name, max(kind) AS kind, max(unit) AS unit, max(description) AS description,
            count(DISTINCT service_name) AS services, count(*) AS points, max(time) AS latest
            FROM measures WHERE strpos(lower(name), lower(?)) > 0 OR ? = ''
            GROUP BY name ORDER BY name""",
        within.begin,
        within.end,
        parameters=[asked.get("find", ""), asked.get("find", "")],
        timeout=seconds,
        admin=False,
    )
    table = result.to_arrow()
    rows = (row for b in table.to_batches() for row in to_objects(b, table.column_names))
    return [MetricRow(**row) for row in rows], result.warnings


def _read_chart(
    lake: Lake, asked: Mapping[str, str], within: TimeRange, seconds: float | None
) -> MetricChart:
    by = asked.get("by")
    conditions, parameters = ["name = ?"], [asked["name"]]
    if asked.get("service"):
        conditions.append("service_name = ?")
        parameters.append(asked["service"])
    table = lake.query(
        f"""SELECT CAST(time AS BIGINT) AS time, kind, unit, description, temporality, is_monotonic,
            process_id, target, service_name, properties, start_time_unix_nano AS start,
            value, count, sum
            FROM measures WHERE {" AND ".join(conditions)}
            ORDER BY time DESC LIMIT {_MOST_POINTS + 1}""",
        within.begin,
        within.end,
        parameters=parameters,
        timeout=seconds,
        admin=False,
    ).to_arrow()
    rows = [row for b in table.to_batches() for row in to_objects(b, table.column_names)]
    if not rows:
        raise NotFound(
            f"no point of metric {asked['name']!r} is in this range",
            hint="choose another time, or look at all metrics: /measures",
        )
    is_cut = len(rows) > _MOST_POINTS
    rows = rows[:_MOST_POINTS]
    first = rows[0]
    attributes = sorted({key for row in rows for key in row["properties"] or () if key})
    if by is not None and by not in ("service", *attributes):
        raise BadInput(
            f"no point has an attribute {by!r}",
            hint=f"split by one of {', '.join(['service', *attributes][:20])}",
        )
    way = asked.get("way") or choose_way(first["kind"], first["is_monotonic"])
    points = [_read_point(row, by) for row in rows]
    bins = plan_bins(within, _BINS)
    is_cumulative = first["temporality"] == "cumulative" or first["kind"] == "summary"
    lines = plan_lines(points, bins, within, way, is_cumulative=is_cumulative)
    return MetricChart(
        asked["name"],
        first["kind"],
        first["temporality"],
        first["unit"],
        first["description"],
        way,
        len(rows),
        is_cut,
        attributes,
        by,
        [format_instant(bins.begin_of(number)) for number in range(bins.count)],
        bins.width / SECOND,
        lines[:_MOST_LINES],
        max(0, len(lines) - _MOST_LINES),
    )


def choose_way(kind: str, is_monotonic: bool | None) -> str:
    """How a metric of this kind is shown, unless somebody says otherwise."""
    if kind in ("histogram", "exponential_histogram", "summary"):
        return "mean"
    return "rate" if kind == "sum" and is_monotonic else "value"


def _read_point(row: Mapping[str, Any], by: str | None) -> Point:
    properties = row["properties"] or {}
    label = "all"
    if by is not None:
        label = (row["service_name"] if by == "service" else properties.get(by)) or "none"
    series = repr((row["process_id"], row["target"], sorted(properties.items(), key=str)))
    numbers = (_finite(row[name]) for name in ("value", "count", "sum"))
    return Point(row["time"], series, label, row["start"], *numbers)


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def plan_lines(
    points: Sequence[Point], bins: Bins, within: TimeRange, way: str, *, is_cumulative: bool
) -> list[MetricLine]:
    """A line for each label, the largest first."""
    ordered = sorted(points, key=lambda each: each.time)
    upper: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    lower: dict[str, dict[int, float]] = defaultdict(lambda: defaultdict(float))
    if way == "value":
        for each in ordered:
            if each.value is not None:
                upper[each.label][bins.find(each.time)] += each.value
                lower[each.label][bins.find(each.time)] += 1
    else:
        wanted = list(_increases(ordered, within) if is_cumulative else ordered)
        for each in wanted:
            number = bins.find(each.time)
            if way == "mean":
                if each.sum is not None and each.count is not None:
                    upper[each.label][number] += each.sum
                    lower[each.label][number] += each.count
            else:
                grown = each.value if each.value is not None else each.count
                if grown is not None:
                    upper[each.label][number] += grown
                    lower[each.label][number] = bins.width / SECOND
    lines = []
    for label in upper:
        values = [
            upper[label][number] / lower[label][number] if lower[label].get(number) else None
            for number in range(bins.count)
        ]
        latest = next((value for value in reversed(values) if value is not None), None)
        lines.append(MetricLine(label, values, latest))
    return sorted(lines, key=lambda each: (-sum(abs(v) for v in each.values if v), each.name))


def _increases(points: Iterable[Point], within: TimeRange) -> Iterable[Point]:
    """What each point of cumulative series adds to the one before. Of the first point of a series
    that is only known if the series began inside the range."""
    last: dict[str, Point] = {}
    for each in points:
        before = last.get(each.series)
        last[each.series] = each
        restarted = before is not None and (
            before.start != each.start or _fell(before.value, each.value, before.count, each.count)
        )
        if before is None:
            if each.start is None or each.start // 1000 < within.begin:
                continue
            yield each
        elif restarted:
            yield each
        else:
            yield Point(
                each.time,
                each.series,
                each.label,
                each.start,
                _minus(each.value, before.value),
                _minus(each.count, before.count),
                _minus(each.sum, before.sum),
            )


def _fell(*pairs: float | None) -> bool:
    value_before, value, count_before, count = pairs
    return any(
        after is not None and before is not None and after < before
        for before, after in ((value_before, value), (count_before, count))
    )


def _minus(after: float | None, before: float | None) -> float | None:
    return None if after is None or before is None else after - before
