"""Data points come out as `measures`, whatever their kind."""

from __future__ import annotations

import math

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AggregationTemporality,
    ExponentialHistogram,
    ExponentialHistogramDataPoint,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    Sum,
    Summary,
    SummaryDataPoint,
)

from lakebed.decode import metrics
from tests.decode.parts import LANDED, block

CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE


def rows(*sent: Metric) -> list[dict[str, object]]:
    request = ExportMetricsServiceRequest()
    request.resource_metrics.add().scope_metrics.add().metrics.extend(sent)
    decoded = metrics.decode([block(request, "metrics")])
    assert (decoded.failures, decoded.fallbacks) == ((), 0)
    return decoded.table.to_pylist()


def test_numbers_are_doubles_and_ints_also_exact() -> None:
    points = [
        NumberDataPoint(as_double=1.5),
        NumberDataPoint(as_int=2**53 + 1),
        NumberDataPoint(as_int=0),
        NumberDataPoint(flags=1),
    ]
    found = rows(Metric(name="m", unit="s", gauge=Gauge(data_points=points)))
    assert [(row["value"], row["int_value"]) for row in found] == [
        (1.5, None),
        (float(2**53), 2**53 + 1),
        (0.0, 0),
        (None, None),
    ]
    assert [row["flags"] for row in found] == [0, 0, 0, 1]
    assert {(row["kind"], row["temporality"], row["is_monotonic"]) for row in found} == {
        ("gauge", None, None)
    }
    assert {(row["name"], row["unit"], row["description"]) for row in found} == {("m", "s", None)}


def test_points_keep_the_order_of_their_metrics() -> None:
    point = NumberDataPoint(as_int=1)
    found = rows(
        Metric(name="a", sum=Sum(data_points=[point, point], is_monotonic=True)),
        Metric(name="b", gauge=Gauge(data_points=[point])),
        Metric(name="nothing"),
        Metric(name="empty", gauge=Gauge()),
        Metric(name="c", summary=Summary(data_points=[SummaryDataPoint()])),
        Metric(name="d", sum=Sum(data_points=[point])),
    )
    assert [row["name"] for row in found] == ["a", "a", "b", "c", "d"]
    assert [row["is_monotonic"] for row in found] == [True, True, None, None, False]


def test_absent_statistics_are_null() -> None:
    histogram = Histogram(
        data_points=[
            HistogramDataPoint(count=2, sum=0.0, min=0.0, bucket_counts=[1, 1]),
            HistogramDataPoint(explicit_bounds=[math.inf]),
        ],
        aggregation_temporality=CUMULATIVE,
    )
    first, second = rows(Metric(histogram=histogram))
    assert (first["count"], first["sum"], first["min"], first["max"]) == (2, 0.0, 0.0, None)
    assert (second["count"], second["sum"], second["min"], second["max"]) == (0, None, None, None)
    assert (first["bucket_counts"], first["explicit_bounds"]) == ([1, 1], [])
    assert (second["bucket_counts"], second["explicit_bounds"]) == ([], [math.inf])
    assert (first["temporality"], first["value"], first["scale"]) == ("cumulative", None, None)


def test_absent_buckets_are_null_and_empty_ones_empty() -> None:
    point = ExponentialHistogramDataPoint(scale=-3, zero_threshold=0.5)
    point.positive.offset = -7
    (row,) = rows(Metric(exponential_histogram=ExponentialHistogram(data_points=[point])))
    assert (row["positive_offset"], row["positive_bucket_counts"]) == (-7, [])
    assert (row["negative_offset"], row["negative_bucket_counts"]) == (None, None)
    assert (row["scale"], row["zero_threshold"], row["zero_count"]) == (-3, 0.5, 0)


def test_absurd_counts_are_null_and_marked() -> None:
    point = HistogramDataPoint(count=2**63, bucket_counts=[2**64 - 1, 5])
    fine = HistogramDataPoint(count=2**63 - 1)
    absurd, kept = rows(Metric(histogram=Histogram(data_points=[point, fine])))
    assert (absurd["count"], absurd["bucket_counts"]) == (None, [None, 5])
    assert (absurd["problems"], kept["problems"]) == ("absurd_count", None)
    assert kept["count"] == 2**63 - 1
    point = ExponentialHistogramDataPoint(zero_count=2**63)
    point.negative.bucket_counts.append(2**63)
    (row,) = rows(Metric(exponential_histogram=ExponentialHistogram(data_points=[point])))
    assert (row["zero_count"], row["negative_bucket_counts"]) == (None, [None])
    assert row["problems"] == "absurd_count"


def test_an_unknown_temporality_keeps_its_number() -> None:
    point = NumberDataPoint(as_int=1)
    found = rows(
        *(Metric(sum=Sum(data_points=[point], aggregation_temporality=n)) for n in (0, 1, 2, 9, -1))
    )
    assert [row["temporality"] for row in found] == [None, "delta", "cumulative", "9", "-1"]


def test_a_point_without_a_time_has_the_blocks() -> None:
    (row,) = rows(Metric(gauge=Gauge(data_points=[NumberDataPoint(start_time_unix_nano=5)])))
    assert row["time"].timestamp() == LANDED / 1e6
    assert (row["time_unix_nano"], row["start_time_unix_nano"]) == (None, 5)


def test_what_is_marked_inside_an_exemplar_marks_its_point() -> None:
    point = NumberDataPoint(as_int=1)
    point.exemplars.add(as_int=3, trace_id=b"short")
    first, second = rows(
        Metric(sum=Sum(data_points=[NumberDataPoint()])),
        Metric(gauge=Gauge(data_points=[point])),
    )
    assert (first["problems"], second["problems"]) == (None, "bad_id_length")
    assert (first["exemplars"], len(second["exemplars"])) == ([], 1)
    assert second["exemplars"][0]["int_value"] == 3
    assert second["exemplars"][0]["trace_id"] == b"short".hex()
