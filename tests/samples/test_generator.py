"""The samples: the same from the same seed, all kinds of telemetry in them, cheap to vary."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from typing import Any

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakebed.samples.generator import BEGIN_NS, Generator, Kind
from lakebed.samples.otlp_json import to_json
from lakebed.samples.templates import Template

KINDS = pytest.mark.parametrize("kind", ["logs", "metrics", "traces"])

_DIGEST = """
import hashlib
from lakebed.samples.generator import Generator
generator, digest = Generator(5), hashlib.sha256()
for kind in ("logs", "metrics", "traces"):
    digest.update(generator.serialized(kind, 200))
    for body in generator.stream(kind, requests=20, size=10):
        digest.update(body)
print(digest.hexdigest())
"""


def test_the_same_seed_gives_the_same_bytes_in_every_process() -> None:
    digests = set()
    for hash_seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", _DIGEST],
            capture_output=True,
            text=True,
            env={"PYTHONHASHSEED": hash_seed},
            check=True,
        )
        digests.add(run.stdout)
    assert len(digests) == 1


@KINDS
def test_another_seed_gives_other_bytes(kind: Kind) -> None:
    assert Generator(1).serialized(kind, 50) != Generator(2).serialized(kind, 50)


@KINDS
@pytest.mark.parametrize("size", [0, 1, 2, 13, 1000])
@pytest.mark.parametrize("services", [1, 3, 20])
def test_a_request_holds_as_much_as_asked_for(kind: Kind, size: int, services: int) -> None:
    request = Generator(3).make(kind, size, services=services)
    assert count(kind, request) == size


def count(kind: Kind, request: Any) -> int:
    if kind == "logs":
        return sum(len(s.log_records) for r in request.resource_logs for s in r.scope_logs)
    if kind == "traces":
        return sum(len(s.spans) for r in request.resource_spans for s in r.scope_spans)
    return sum(
        len(getattr(metric, metric.WhichOneof("data")).data_points)
        for resource in request.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    )


def test_logs_have_every_severity_value_kind_and_time() -> None:
    request = Generator(4).logs(20_000, services=8)
    records = [
        r for group in request.resource_logs for s in group.scope_logs for r in s.log_records
    ]
    assert {record.severity_number for record in records} == set(range(25))
    bodies = {record.body.WhichOneof("value") for record in records}
    values = {a.value.WhichOneof("value") for record in records for a in record.attributes}
    every = {None, "array_value", "bool_value", "bytes_value", "double_value", "int_value"}
    assert bodies == values == every | {"kvlist_value", "string_value"}
    assert {bool(record.time_unix_nano) for record in records} == {True, False}
    assert {bool(record.observed_time_unix_nano) for record in records} == {True, False}
    assert {bool(record.trace_id) for record in records} == {True, False}
    assert len({record.event_name for record in records}) > 5
    users = [a.value.string_value for r in records for a in r.attributes if a.key == "enduser.id"]
    frequencies = sorted((users.count(user) for user in set(users)), reverse=True)
    assert frequencies[0] > 20 * frequencies[len(frequencies) // 2]
    texts = {record.body.string_value for record in records}
    assert len(texts) > 10_000
    assert any(ord(letter) > 0xFFFF for text in texts for letter in text)


def test_metrics_have_every_kind_temporality_and_exemplars() -> None:
    request = Generator(4).metrics(3000)
    metrics = [
        m for group in request.resource_metrics for s in group.scope_metrics for m in s.metrics
    ]
    kinds = {metric.WhichOneof("data") for metric in metrics}
    assert kinds == {"gauge", "sum", "histogram", "exponential_histogram", "summary"}
    sums = {
        (m.sum.aggregation_temporality, m.sum.is_monotonic) for m in metrics if m.HasField("sum")
    }
    assert sums >= {(1, True), (1, False), (2, True), (2, False)}
    numbers = [p for m in metrics for p in (*m.gauge.data_points, *m.sum.data_points)]
    assert {point.WhichOneof("value") for point in numbers} == {None, "as_int", "as_double"}
    histograms = [p for metric in metrics for p in metric.histogram.data_points]
    for point in histograms:
        assert not point.bucket_counts or sum(point.bucket_counts) == point.count
        assert not point.bucket_counts or len(point.bucket_counts) == len(point.explicit_bounds) + 1
    exponential = [p for metric in metrics for p in metric.exponential_histogram.data_points]
    assert any(p.negative.bucket_counts for p in exponential)
    assert {p.scale for p in exponential} >= {-2, 0, 3}
    for points in (numbers, histograms, exponential):
        assert any(point.exemplars for point in points)


def test_cumulative_sums_grow_from_request_to_request() -> None:
    generator = Generator(4)
    totals: dict[Any, float] = {}
    seen = 0
    for _ in range(10):
        for group in generator.metrics(100, services=1).resource_metrics:
            instance = group.resource.SerializeToString()
            for metric in (m for s in group.scope_metrics for m in s.metrics):
                if metric.name == "http.server.requests":
                    for point in metric.sum.data_points:
                        shard = next(a for a in point.attributes if a.key == "shard")
                        series = (instance, shard.value.int_value)
                        if point.WhichOneof("value"):
                            seen += series in totals
                            assert point.as_int >= totals.get(series, 0)
                            totals[series] = point.as_int
    assert seen > 10


def test_spans_are_trees_with_events_links_and_errors() -> None:
    request = Generator(4).traces(5000, services=5)
    spans = [
        s for group in request.resource_spans for scope in group.scope_spans for s in scope.spans
    ]
    by_id = {span.span_id: span for span in spans}
    assert len(by_id) == len(spans)
    for span in spans:
        if span.parent_span_id:
            parent = by_id[span.parent_span_id]
            assert parent.trace_id == span.trace_id
            assert parent.start_time_unix_nano <= span.start_time_unix_nano
            assert span.end_time_unix_nano <= parent.end_time_unix_nano
    assert len({span.trace_id for span in spans if not span.parent_span_id}) == len(
        {span.trace_id for span in spans}
    )
    assert {span.kind for span in spans} == set(range(6))
    assert {span.status.code for span in spans} == {0, 1, 2}
    assert any(span.links for span in spans)
    assert any(event.name == "exception" for span in spans for event in span.events)
    lasts = sorted(span.end_time_unix_nano - span.start_time_unix_nano for span in spans)
    assert lasts[-1] > 50 * lasts[len(lasts) // 2]


def test_time_goes_on_from_request_to_request() -> None:
    generator = Generator(4)
    assert generator.now_ns == BEGIN_NS
    reached = []
    for kind in ("logs", "metrics", "traces"):
        generator.make(kind, 100)  # type: ignore[arg-type]
        reached.append(generator.now_ns)
        list(generator.stream(kind, requests=30, size=5))  # type: ignore[arg-type]
        reached.append(generator.now_ns)
    assert reached == sorted(set(reached))
    assert Generator(1, begin_ns=10**18).logs(1).resource_logs


@KINDS
def test_a_stream_varies_what_it_repeats(kind: Kind) -> None:
    bodies = list(Generator(6).stream(kind, requests=100, size=20, templates=4))
    assert len({hashlib.sha256(body).digest() for body in bodies}) == 100
    whole = Generator(6).make(kind, 20)
    parsed = [type(whole).FromString(body) for body in bodies]
    assert all(count(kind, request) == 20 for request in parsed)
    assert bodies[0] == whole.SerializeToString()
    first, later = parsed[0], parsed[96]
    assert shape(first) == shape(later)
    assert earliest(later) > earliest(first)


def shape(message: Any) -> Any:
    """A message without its times, ids and texts."""
    names = ("time_unix_nano", "trace_id", "span_id")
    return [
        (field.name, [shape(each) for each in value] if field.is_repeated else shape(value))
        if field.message_type is not None
        else field.name
        for field, value in message.ListFields()
        if not field.name.endswith(names)
    ]


def earliest(message: Any) -> int:
    found = 1 << 64
    for field, value in message.ListFields():
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                found = min(found, earliest(each))
        elif field.name.endswith("time_unix_nano"):
            found = min(found, value)
    return found


def test_a_variation_keeps_trees_together_and_ids_apart() -> None:
    request = Generator(7).traces(200)
    varied = ExportTraceServiceRequest.FromString(Template(request).vary(12345 << 64 | 678, 1000))
    before, after = all_spans(request), all_spans(varied)
    renamed = {old.span_id: new.span_id for old, new in zip(before, after, strict=True)}
    assert not set(renamed) & set(renamed.values())
    for old, new in zip(before, after, strict=True):
        assert new.parent_span_id == renamed.get(old.parent_span_id, b"")
        pattern = int.from_bytes(new.trace_id, "big") ^ int.from_bytes(old.trace_id, "big")
        assert pattern == 12345 << 64 | 678
        assert new.start_time_unix_nano == old.start_time_unix_nano + 1000
        assert [e.time_unix_nano - 1000 for e in new.events] == [
            e.time_unix_nano for e in old.events
        ]
    assert Template(request).vary(0, 0) == request.SerializeToString()


def all_spans(request: Any) -> list[Any]:
    return [
        s for group in request.resource_spans for scope in group.scope_spans for s in scope.spans
    ]


def test_variations_of_logs_have_other_texts() -> None:
    request = Generator(8).logs(300)
    varied = ExportLogsServiceRequest.FromString(Template(request).vary(99, 0))
    texts = [
        {
            r.body.string_value
            for g in each.resource_logs
            for s in g.scope_logs
            for r in s.log_records
        }
        for each in (request, varied)
    ]
    assert len(texts[0] - texts[1]) > 150


@KINDS
def test_json_is_what_protobuf_writes_but_for_ids_and_enums(kind: Kind) -> None:
    """Protobuf's own mapping agrees, told to write integers for enums and hex for ids."""
    import base64
    import json

    request = Generator(9).make(kind, 60)
    expected = json.loads(json_format.MessageToJson(request, use_integers_for_enums=True))

    def fix(value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: fix(each, key) for key, each in value.items()}
        if isinstance(value, list):
            return [fix(each) for each in value]
        if name in ("traceId", "spanId", "parentSpanId"):
            return base64.b64decode(value).hex()
        return value

    written = json.loads(to_json(request))
    assert written == fix(expected)
