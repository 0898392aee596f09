"""Metrics: their list, and one of them over time, of points with some attributes, split by another
attribute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lakebed.errors import BadInput, NotFound
from lakebed.lake import Lake
from lakebed.model.time import SECOND, TimeRange, format_instant, to_instant
from lakebed.query.output.plain import to_objects
from lakebed.web.charting.attributes import (
    Attribute,
    Filter,
    ask_for_attributes,
    list_attributes,
    plan_filters,
)
from lakebed.web.charting.lines import Line
from lakebed.web.charting.percentiles import read_buckets
from lakebed.web.charting.series import (
    EVERYTHING,
    QUANTILES,
    WAYS,
    Point,
    choose_aggregation,
    find_begin,
    list_aggregations,
    name_percentile,
    needs_buckets,
    plan_lines,
)
from lakebed.web.times import plan_bins, read_range

DEFAULT = "1h"
_BINS = 60
_MOST_POINTS = 100_000
_MOST_DISTRIBUTIONS = 20_000
_MOST_LINES = 6
_NUMBERS = "value, count, sum"
_BUCKETS = """min, max, explicit_bounds, bucket_counts, scale, zero_count, zero_threshold,
    positive_offset, positive_bucket_counts, negative_offset, negative_bucket_counts"""
_NOT_RECORDED = 1
"""The flag of a point without a value."""


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
class MetricChart:
    """One metric over time."""

    name: str
    kind: str
    temporality: str | None
    unit: str | None
    description: str | None
    way: str
    ways: Sequence[str]
    """The aggregations that suit its kind."""
    points: int
    is_cut: bool
    """True if there are more points than were read: these are the newest."""
    attributes: Sequence[Attribute]
    filters: Sequence[Filter]
    by: str | None
    bins: Sequence[str]
    """The begin of each bin."""
    bin_seconds: float
    lines: Sequence[Line]
    lines_left_out: int


@dataclass(frozen=True, slots=True)
class MeasuresPage:
    """The data of the page."""

    asked: Mapping[str, str | Sequence[str]]
    begin: str
    end: str
    metrics: Sequence[MetricRow]
    chart: MetricChart | None
    newest: str | None
    """The time of the newest point, of the metric or of all, if nothing was found."""
    warnings: Sequence[str]


def read_measures(
    lake: Lake,
    query: Mapping[str, str],
    attributes: Sequence[str],
    now: int,
    seconds: float | None,
) -> MeasuresPage:
    """Return the metrics of a range, and one of them if it is named: only its points with the
    attributes, each as ``name=value``."""
    names = ("name", "by", "way", "service", "begin", "end", "find")
    fields = {name: query[name] for name in names if query.get(name)}
    within = read_range(fields, now, DEFAULT)
    if fields.get("way") and fields["way"] not in WAYS:
        raise BadInput(f"{fields['way']!r} is no way to show it", hint=f"use {', '.join(WAYS)}")
    chart, newest = None, None
    metrics: Sequence[MetricRow] = ()
    warnings: Sequence[str] = ()
    requested_attributes = list(dict.fromkeys(filter(None, attributes)))
    if fields.get("name"):
        chart, warnings = _read_chart(lake, fields, requested_attributes, within, seconds)
    else:
        metrics, warnings = _list_metrics(lake, fields, within, seconds)
    if not chart and not metrics:
        newest = _find_newest(lake, fields.get("name"), seconds)
        if fields.get("name") and newest is None:
            raise NotFound(
                f"there is no metric {fields['name']!r}",
                hint="; ".join(warnings) or "look at all metrics: /measures",
            )
    return MeasuresPage(
        {**fields, "attribute": requested_attributes}
        if fields.get("name") and requested_attributes
        else fields,
        format_instant(within.begin),
        format_instant(within.end),
        metrics,
        chart,
        newest,
        warnings,
    )


def _find_newest(lake: Lake, name: str | None, seconds: float | None) -> str | None:
    """Return the time of the newest point, of one metric or of all."""
    where = "" if name is None else " WHERE name = ?"
    latest = lake.query(
        f"SELECT max(time) AS latest FROM measures{where}",
        parameters=None if name is None else [name],
        timeout=seconds,
        admin=False,
    ).to_arrow()["latest"][0]
    return format_instant(to_instant(latest.as_py())) if latest.is_valid else None


def _list_metrics(
    lake: Lake, query: Mapping[str, str], within: TimeRange, seconds: float | None
) -> tuple[list[MetricRow], Sequence[str]]:
    result = lake.query(
        """SELECT name, max(kind) AS kind, max(unit) AS unit, max(description) AS description,
            count(DISTINCT service_name) AS services, count(*) AS points, max(time) AS latest
            FROM measures WHERE strpos(lower(name), lower(?)) > 0 OR ? = ''
            GROUP BY name ORDER BY name""",
        within.begin,
        within.end,
        parameters=[query.get("find", ""), query.get("find", "")],
        timeout=seconds,
        admin=False,
    )
    table = result.to_arrow()
    rows = (row for b in table.to_batches() for row in to_objects(b, table.column_names))
    return [MetricRow(**row) for row in rows], result.warnings


def _read_chart(
    lake: Lake,
    query: Mapping[str, str],
    requested_attributes: Sequence[str],
    within: TimeRange,
    seconds: float | None,
) -> tuple[MetricChart | None, Sequence[str]]:
    """Return the chart, None if no such point is in the range; and warnings."""
    where, parameters = ["name = ?"], [query["name"]]
    if query.get("service"):
        where.append("service_name = ?")
        parameters.append(query["service"])

    warnings: Sequence[str] = ()

    def ask(sql: str) -> list[dict[str, Any]]:
        nonlocal warnings
        result = lake.query(
            sql,
            within.begin,
            within.end,
            parameters=parameters,
            timeout=seconds,
            admin=False,
        )
        table, warnings = result.to_arrow(), result.warnings
        return [row for b in table.to_batches() for row in to_objects(b, table.column_names)]

    attributes = list_attributes(ask(ask_for_attributes(" AND ".join(where))))
    names = [attribute.name for attribute in attributes]
    if requested_attributes and not names:  # so no points could have them
        return None, warnings
    filters = plan_filters(requested_attributes, names)
    for name in dict.fromkeys(condition.name for condition in filters):
        values = [condition.value for condition in filters if condition.name == name]
        where.append(f"property_get(properties, ?) IN ({', '.join('?' for _ in values)})")
        parameters += [name, *values]
    columns = [_NUMBERS]
    if needs_buckets(query.get("way")):
        columns.append(_BUCKETS)
    if query.get("way") == QUANTILES:
        columns.append("quantiles, quantile_values")
    limit = _MOST_POINTS if columns == [_NUMBERS] else _MOST_DISTRIBUTIONS
    rows = ask(
        f"""SELECT CAST(time AS BIGINT) AS time, kind, unit, description, temporality, is_monotonic,
            process_id, target, service_name, properties, start_time_unix_nano AS start, flags,
            {", ".join(columns)}
            FROM measures WHERE {" AND ".join(where)} ORDER BY time DESC LIMIT {limit + 1}"""
    )
    if not rows:
        return None, warnings
    by = query.get("by")
    if by is not None and by not in ("service", *names):
        raise BadInput(
            f"no point has an attribute {by!r}",
            hint=f"split by one of {', '.join(['service', *names][:20])}",
        )
    first = rows[0]
    aggregation = query.get("way") or choose_aggregation(first["kind"], first["is_monotonic"])
    recorded_rows = [row for row in rows[:limit] if not (row["flags"] or 0) & _NOT_RECORDED]
    points = [
        _read_point(row, by, with_buckets=needs_buckets(aggregation)) for row in recorded_rows
    ]
    if aggregation == QUANTILES:
        pairs = zip(points, recorded_rows, strict=True)
        points = [quantile for point, row in pairs for quantile in _read_quantiles(point, row)]
    bins = plan_bins(_choose_range(query, within, points, aggregation), _BINS)
    is_cumulative = first["temporality"] == "cumulative" or first["kind"] == "summary"
    lines = plan_lines(points, bins, within, aggregation, is_cumulative=is_cumulative)
    chart = MetricChart(
        query["name"],
        first["kind"],
        first["temporality"],
        first["unit"],
        first["description"],
        aggregation,
        list_aggregations(first["kind"]),
        min(len(rows), limit),
        len(rows) > limit,
        attributes,
        filters,
        by,
        [format_instant(bins.begin_of(number)) for number in range(bins.count)],
        bins.width / SECOND,
        lines[:_MOST_LINES],
        max(0, len(lines) - _MOST_LINES),
    )
    return chart, warnings


def _choose_range(
    query: Mapping[str, str], within: TimeRange, points: Sequence[Point], aggregation: str
) -> TimeRange:
    """Return the range of the chart; without a requested begin, it starts at the first point."""
    if query.get("begin") or not points:
        return within
    return TimeRange(find_begin(points, within, aggregation), within.end)


def _read_point(row: Mapping[str, Any], by: str | None, *, with_buckets: bool) -> Point:
    properties = row["properties"] or {}
    label = EVERYTHING
    if by is not None:
        label = (row["service_name"] if by == "service" else properties.get(by)) or "none"
    series = repr((row["process_id"], row["target"], sorted(properties.items(), key=str)))
    return Point(
        row["time"],
        series,
        label,
        row["start"],
        _finite(row["value"]),
        _finite(row["count"]),
        _finite(row["sum"]),
        read_buckets(row) if with_buckets else None,
        _finite(row["min"]) if with_buckets else None,
        _finite(row["max"]) if with_buckets else None,
    )


def _read_quantiles(point: Point, row: Mapping[str, Any]) -> list[Point]:
    """Return a point for each quantile that a summary gives."""
    return [
        replace(
            point, label=name_percentile(point.label, f"p{100 * quantile:g}"), value=_finite(value)
        )
        for quantile, value in zip(
            row["quantiles"] or (), row["quantile_values"] or (), strict=True
        )
    ]


def _finite(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) else None
