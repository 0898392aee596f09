"""Metrics of every kind, with exemplars; cumulative ones keep growing from request to request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    AGGREGATION_TEMPORALITY_DELTA,
    AGGREGATION_TEMPORALITY_UNSPECIFIED,
    AggregationTemporality,
    DataPointFlags,
    Metric,
)

from lakebed.samples.attributes import key_values, odd_attributes, put
from lakebed.samples.chance import Chance

Kind = Literal["gauge", "sum", "histogram", "exponential", "summary"]

_DELTA = AGGREGATION_TEMPORALITY_DELTA
_CUMULATIVE = AGGREGATION_TEMPORALITY_CUMULATIVE
_INTERVAL_NS = 15_000_000_000
_BOUNDS = (0.0, 5.0, 10.0, 25.0, 50.0, 75.0, 100.0, 250.0, 500.0, 1000.0)


@dataclass(frozen=True, slots=True)
class Instrument:
    """A measurement of a program."""

    name: str
    unit: str
    kind: Kind
    whole: bool = False
    temporality: AggregationTemporality.ValueType = _CUMULATIVE
    monotonic: bool = True
    description: str = ""


INSTRUMENTS = (
    Instrument("http.server.request.duration", "ms", "histogram", description="how long it took"),
    Instrument("http.server.requests", "{request}", "sum", whole=True),
    Instrument("process.cpu.utilization", "1", "gauge"),
    Instrument("process.threads", "{thread}", "gauge", whole=True),
    Instrument("rpc.client.duration", "ms", "exponential"),
    Instrument("go.gc.pause", "s", "summary"),
    Instrument("queue.length", "{item}", "sum", whole=True, monotonic=False),
    Instrument("network.io", "By", "sum", temporality=_DELTA),
    Instrument("body.size", "By", "histogram", temporality=_DELTA),
    Instrument("ring.battery.drift", "%", "exponential", temporality=_DELTA),
    Instrument("balance", "€", "sum", temporality=_DELTA, monotonic=False),
    Instrument("température.extérieure", "Cel", "gauge", description="mesurée à l'ombre – °C"),
    Instrument("legacy", "", "sum", temporality=AGGREGATION_TEMPORALITY_UNSPECIFIED),
)

Totals = dict[tuple[int, str, int], float]
"""The sums of cumulative series so far, by instance, instrument and series."""


def fill_metric(
    metric: Metric,
    chance: Chance,
    instrument: Instrument,
    points: int,
    *,
    operations: tuple[str, ...],
    instance: int,
    begin_ns: int,
    totals: Totals,
) -> None:
    """Makes one metric with so many data points, one per series of attributes."""
    metric.name = instrument.name
    metric.unit = instrument.unit
    metric.description = instrument.description
    if chance.happens(0.05):
        metric.metadata.extend(key_values([("prometheus.type", "unknown"), ("level", 1)]))
    data: Any = _data_of(metric, instrument)
    for series in range(points):
        now = chance.pass_time(50_000)
        point = data.data_points.add()
        point.time_unix_nano = now
        delta = instrument.temporality == _DELTA
        if instrument.kind != "gauge":
            point.start_time_unix_nano = now - _INTERVAL_NS if delta else begin_ns
        put(
            point.attributes,
            (("http.route", operations[series % len(operations)]), ("shard", series)),
        )
        if chance.happens(0.04):
            point.attributes.extend(odd_attributes(chance))
        if chance.happens(0.02):
            point.flags = DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
            continue
        before = 0.0 if delta else totals.get((instance, instrument.name, series), 0.0)
        total = before + int(chance.heavy(10))
        totals[instance, instrument.name, series] = total
        _fill_value(point, chance, instrument, total)


def _data_of(metric: Metric, instrument: Instrument) -> Any:
    match instrument.kind:
        case "gauge":
            return metric.gauge
        case "sum":
            metric.sum.aggregation_temporality = instrument.temporality
            metric.sum.is_monotonic = instrument.monotonic
            return metric.sum
        case "histogram":
            metric.histogram.aggregation_temporality = instrument.temporality
            return metric.histogram
        case "exponential":
            metric.exponential_histogram.aggregation_temporality = instrument.temporality
            return metric.exponential_histogram
        case "summary":
            return metric.summary


def _fill_value(point: Any, chance: Chance, instrument: Instrument, total: float) -> None:
    match instrument.kind:
        case "gauge" | "sum":
            signed = total if instrument.monotonic else total * chance.choice((1, -1))
            if instrument.whole:
                point.as_int = int(signed)
            else:
                point.as_double = _maybe_odd(chance, signed / 3)
            _add_exemplars(point, chance, 0.1, whole=instrument.whole)
        case "histogram":
            _fill_histogram(point, chance, int(total))
        case "exponential":
            _fill_exponential(point, chance, int(total))
        case "summary":
            point.count = int(total)
            point.sum = total * 0.0013
            for quantile in (0.0, 0.5, 0.9, 0.99, 1.0):
                point.quantile_values.add(quantile=quantile, value=0.001 * (1 + quantile) ** 4)


def _maybe_odd(chance: Chance, value: float) -> float:
    if chance.happens(0.98):
        return value
    return chance.choice((float("nan"), float("inf"), float("-inf"), -0.0))


def _fill_histogram(point: Any, chance: Chance, count: int) -> None:
    point.count = count
    if chance.happens(0.05):
        return  # a histogram may be only a count
    point.sum = count * 31.5
    if chance.happens(0.8):
        point.min, point.max = 0.25, 1.5 * count
    counts = [0] * (len(_BOUNDS) + 1)
    for _ in range(8):
        counts[chance.below(len(counts))] += count // 8
    counts[3] += count - sum(counts)
    point.explicit_bounds.extend(_BOUNDS)
    point.bucket_counts.extend(counts)
    _add_exemplars(point, chance, 0.5, whole=False)


def _fill_exponential(point: Any, chance: Chance, count: int) -> None:
    point.scale = chance.choice((3, 0, -2, 20))
    point.zero_count = chance.below(3)
    point.zero_threshold = 1e-6 if chance.happens(0.5) else 0.0
    point.positive.offset = chance.below(40) - 20
    point.positive.bucket_counts.extend(chance.below(100) for _ in range(chance.below(20)))
    if chance.happens(0.3):
        point.negative.offset = chance.below(10) - 5
        point.negative.bucket_counts.extend(chance.below(300) for _ in range(3))
    counted = sum(point.positive.bucket_counts) + sum(point.negative.bucket_counts)
    point.count = point.zero_count + counted
    if chance.happens(0.8):
        point.sum, point.min, point.max = count * 1.25, 0.5, 99.0
    _add_exemplars(point, chance, 0.3, whole=False)


def _add_exemplars(point: Any, chance: Chance, probability: float, *, whole: bool) -> None:
    while chance.happens(probability):
        exemplar = point.exemplars.add()
        exemplar.time_unix_nano = point.time_unix_nano - chance.below(_INTERVAL_NS)
        if chance.happens(0.8):
            exemplar.trace_id, exemplar.span_id = chance.context()
        if chance.happens(0.3):
            put(exemplar.filtered_attributes, (("request.id", chance.request_id()), ("n", 7)))
        if whole:
            exemplar.as_int = chance.below(1000)
        else:
            exemplar.as_double = chance.heavy(3)
