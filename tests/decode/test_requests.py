"""Splitting requests at landing: bytes are kept, counts and times are right, damage is typed."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakebed.decode import requests
from lakebed.decode.requests import RequestPart, split
from lakebed.decode.resources import show_double
from lakebed.errors import BadInput, BadPayload, PayloadTooLarge
from lakebed.model.signal import Signal
from lakebed.samples.attributes import any_value, key_values
from lakebed.samples.generator import Generator
from lakebed.samples.otlp_json import to_json
from tests.decode import sdk
from tests.decode.damage import delimited, mutations, nested_any_value, replayable

OFFICIAL: dict[Signal, Any] = {
    Signal.LOGS: ExportLogsServiceRequest,
    Signal.METRICS: ExportMetricsServiceRequest,
    Signal.TRACES: ExportTraceServiceRequest,
}
ALL_SIGNALS = pytest.mark.parametrize("signal", list(Signal))


def resources_of(request: Any) -> list[Any]:
    (field,) = request.DESCRIPTOR.fields
    return list(getattr(request, field.name))


def times_of(signal: Signal, resource: Any) -> list[tuple[int, ...]]:
    """The times of each record, told with OpenTelemetry's own messages, one by one."""
    if signal is Signal.LOGS:
        records = [record for scope in resource.scope_logs for record in scope.log_records]
        return [(record.time_unix_nano or record.observed_time_unix_nano,) for record in records]
    if signal is Signal.TRACES:
        spans = [span for scope in resource.scope_spans for span in scope.spans]
        return [(span.start_time_unix_nano, span.end_time_unix_nano) for span in spans]
    metrics = [metric for scope in resource.scope_metrics for metric in scope.metrics]
    return [
        (point.time_unix_nano,)
        for metric in metrics
        for data in (
            metric.gauge,
            metric.sum,
            metric.histogram,
            metric.exponential_histogram,
            metric.summary,
        )
        for point in data.data_points
    ]


def check_against_official(signal: Signal, parts: list[RequestPart], request: Any) -> None:
    resources = resources_of(request)
    assert len(parts) == len(resources)
    for part, resource in zip(parts, resources, strict=True):
        records = times_of(signal, resource)
        known = [instant for record in records for instant in record if instant]
        assert part.nb_objects == len(records)
        assert part.begin == (min(known) // 1000 if known else None)
        assert part.end == (max(known) // 1000 if known else None)


@ALL_SIGNALS
@pytest.mark.parametrize("size", [1, 7, 500])
def test_protobuf_parts_are_the_bytes_as_received(signal: Signal, size: int) -> None:
    request = Generator(size).make(signal.value, size, services=5)
    body = request.SerializeToString()
    parts = split(signal, body, content="protobuf")
    assert b"".join(part.payload for part in parts) == body
    for part, resource in zip(parts, resources_of(request), strict=True):
        assert resources_of(OFFICIAL[signal].FromString(part.payload)) == [resource]
    check_against_official(signal, parts, request)
    assert sum(part.nb_objects for part in parts) == size


@ALL_SIGNALS
def test_json_parts_are_the_texts_as_received(signal: Signal) -> None:
    request = Generator(9).make(signal.value, 60, services=4)
    texts = [b" " + to_json(resource).replace(b":", b" : ") for resource in resources_of(request)]
    (field,) = request.DESCRIPTOR.fields
    body = b'\n{"other": [1], "%s" : [' % field.json_name.encode() + b" ,\n".join(texts) + b"]}"
    parts = split(signal, body, content="json")
    assert [part.payload for part in parts] == [text.strip() for text in texts]
    check_against_official(signal, parts, request)


@ALL_SIGNALS
def test_json_and_protobuf_say_the_same(signal: Signal) -> None:
    request = Generator(10).make(signal.value, 200, services=8)
    binary = split(signal, request.SerializeToString(), content="protobuf")
    text = split(signal, to_json(request), content="json")
    assert [(p.resource, p.nb_objects, p.begin, p.end) for p in binary] == [
        (p.resource, p.nb_objects, p.begin, p.end) for p in text
    ]


@ALL_SIGNALS
def test_an_empty_request_has_no_parts(signal: Signal) -> None:
    (field,) = OFFICIAL[signal].DESCRIPTOR.fields
    assert split(signal, b"", content="protobuf") == []
    for text in ("{}", '{"unknown": {"a": [1]}}', '{"%s": null}', '{"%s": []}'):
        body = text.replace("%s", field.json_name).encode()
        assert split(signal, body, content="json") == []


@ALL_SIGNALS
def test_a_resource_without_records_is_a_part_of_no_objects(signal: Signal) -> None:
    (field,) = OFFICIAL[signal].DESCRIPTOR.fields
    body = b'{"%s":[{}]}' % field.json_name.encode()
    for parts in (
        split(signal, b"\x0a\x00", content="protobuf"),
        split(signal, body, content="json"),
    ):
        (part,) = parts
        assert (part.nb_objects, part.begin, part.end) == (0, None, None)
        assert (part.resource.service_name, part.resource.exe) == (None, "")
        assert part.resource.properties == {}


def test_unknown_fields_beside_the_resources_are_ignored() -> None:
    one = Generator(1).serialized("logs", 3, services=1)
    group = b"\x13" + one + b"\x14"  # a group, field 2, that holds something like a resource
    body = b"\x18\x96\x01" + one + b"\x21" + bytes(8) + group + one + b"\x2d" + bytes(4)
    assert [part.payload for part in split(Signal.LOGS, body, content="protobuf")] == [one, one]


def test_absent_and_absurd_times_are_not_event_times() -> None:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    records.add()
    records.add(time_unix_nano=(1 << 64) - 1)
    body = request.SerializeToString()
    (part,) = split(Signal.LOGS, body, content="protobuf")
    assert (part.nb_objects, part.begin, part.end) == (2, None, None)
    records.add(time_unix_nano=1 << 63, observed_time_unix_nano=5_999)
    records.add(time_unix_nano=7_001, observed_time_unix_nano=1)
    (part,) = split(Signal.LOGS, request.SerializeToString(), content="protobuf")
    assert (part.nb_objects, part.begin, part.end) == (4, 5, 7)
    traces = ExportTraceServiceRequest()
    spans = traces.resource_spans.add().scope_spans.add().spans
    spans.add(start_time_unix_nano=3_000, end_time_unix_nano=1 << 63)
    (part,) = split(Signal.TRACES, traces.SerializeToString(), content="protobuf")
    assert (part.nb_objects, part.begin, part.end) == (1, 3, 3)


def test_a_span_that_ends_before_it_starts_is_covered() -> None:
    request = ExportTraceServiceRequest()
    spans = request.resource_spans.add().scope_spans.add().spans
    spans.add(start_time_unix_nano=9_000, end_time_unix_nano=4_000)
    spans.add(start_time_unix_nano=6_000)
    (part,) = split(Signal.TRACES, request.SerializeToString(), content="protobuf")
    assert (part.begin, part.end) == (4, 9)


def test_a_resource_is_described_by_its_attributes() -> None:
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add().resource
    resource.attributes.extend(
        key_values(
            [
                ("service.name", "käse"),
                ("service.namespace", "shop"),
                ("host.name", "h1"),
                ("process.owner", "nobody"),
                ("int", -(2**63)),
                ("double", 2.5),
                ("whole", 3.0),
                ("odd", float("nan")),
                ("yes", True),
                ("bytes", b"\x00\xff"),
                ("array", [1, "zwei", 2.0, None, b"\x00", float("inf"), [False]]),
                ("map", {"a": {"ü": []}, "b": {}}),
                ("nothing", None),
                ("twice", 1),
                ("twice", 2),
            ]
        )
    )
    (part,) = split(Signal.LOGS, request.SerializeToString(), content="protobuf")
    assert part.resource == requests.Resource(
        service_name="käse",
        exe="shop/käse",
        username="nobody",
        computer="h1",
        properties={
            "service.name": "käse",
            "service.namespace": "shop",
            "host.name": "h1",
            "process.owner": "nobody",
            "int": "-9223372036854775808",
            "double": "2.5",
            "whole": "3",
            "odd": "nan",
            "yes": "true",
            "bytes": "AP8=",
            "array": '[1,"zwei",2.0,null,"AA==","inf",[false]]',
            "map": '{"a":{"ü":[]},"b":{}}',
            "nothing": None,
            "twice": "2",
        },
    )


def test_bad_utf8_is_replaced_not_refused() -> None:
    attribute = delimited(1, b"k\xff") + delimited(2, delimited(1, b"v\xc3("))
    body = delimited(1, delimited(1, delimited(1, attribute)))
    (part,) = split(Signal.LOGS, body, content="protobuf")
    assert part.payload == body
    assert part.resource.properties == {"k�": "v�("}


def test_properties_are_spelled_as_in_columns() -> None:
    """The same strings as those that decoding makes of attributes, column by column."""
    from lakebed.decode.logs import decode
    from tests.decode.parts import block

    request = Generator(4).logs(200, services=8)
    extra = request.resource_logs[0].resource.attributes
    values = [1e10, 1e-7, 0.1, -0.0, float("-inf"), 1 / 3, [1e300], {"a": float("nan")}, "", None]
    extra.extend(key_values((f"n{n}", value) for n, value in enumerate(values)))
    extra.add(key="no value")
    extra.add(key="strindex").value.string_value_strindex = 3
    parts = split(Signal.LOGS, request.SerializeToString(), content="protobuf")
    for part in parts:
        table = decode([block(part.payload, "logs")]).table
        assert json.loads(table["process_properties"][0].as_py()) == part.resource.properties


def test_doubles_are_laid_out_as_arrow_does() -> None:
    chance = replayable()
    numbers = [chance.uniform(-1, 1) * 10.0 ** chance.randint(-12, 16) for _ in range(3000)]
    numbers += [float(10**power) for power in range(25)] + [10.0**-power for power in range(12)]
    numbers += [float(chance.randrange(1 << 40)) for _ in range(500)] + [0.0, -0.0, 5e-324]
    assert [show_double(number) for number in numbers] == pa.array(numbers).cast("str").to_pylist()


def test_requests_of_the_sdk() -> None:
    for signal, request in (
        (Signal.LOGS, sdk.logs_request()),
        (Signal.METRICS, sdk.metrics_request()),
        (Signal.METRICS, sdk.metrics_request(delta=True)),
        (Signal.TRACES, sdk.traces_request()),
    ):
        body = request.SerializeToString()
        (part,) = split(signal, body, content="protobuf")
        assert part.payload == body
        check_against_official(signal, [part], request)
        assert part.resource.exe == "lakebed/tests"
        assert part.resource.computer == "rechner-ü"
        assert part.resource.username == "nobody"
        assert part.resource.properties["process.pid"] == "4711"
        assert part.resource.properties["process.command_args"] == '["python","-m","tests"]'


@pytest.mark.parametrize("compressed", [False, True])
def test_what_the_sdk_puts_on_the_wire(compressed: bool) -> None:
    with sdk.listening() as (endpoint, received):
        sdk.export_all(endpoint, compressed=compressed)
    counts = dict.fromkeys(Signal, 0)
    for path, headers, body in received:
        assert headers["content-type"] == "application/x-protobuf"
        assert (headers.get("content-encoding") == "gzip") == compressed
        signal = Signal(path.removeprefix("/v1/"))
        plain = gzip.decompress(body) if compressed else body
        (part,) = split(signal, plain, content="protobuf")
        assert part.payload == plain
        assert part.resource.service_name == "tests"
        counts[signal] += part.nb_objects
    assert counts[Signal.LOGS] == sdk.LOG_RECORDS
    assert counts[Signal.TRACES] == sdk.SPANS
    assert counts[Signal.METRICS] == 7


@ALL_SIGNALS
def test_protobuf_truncated_anywhere_is_refused(signal: Signal) -> None:
    body = Generator(2).serialized(signal.value, 6, services=2)
    for size in range(len(body)):
        cut = body[:size]
        try:
            expected = OFFICIAL[signal].FromString(cut)
        except DecodeError:
            with pytest.raises(BadPayload):
                split(signal, cut, content="protobuf")
        else:
            parts = split(signal, cut, content="protobuf")
            assert len(parts) == len(resources_of(expected)) < 2


@ALL_SIGNALS
def test_json_truncated_anywhere_is_refused(signal: Signal) -> None:
    body = to_json(Generator(2).make(signal.value, 4, services=2))
    for size in range(len(body)):
        with pytest.raises(BadPayload):
            split(signal, body[:size], content="json")


@ALL_SIGNALS
@pytest.mark.parametrize("content", ["protobuf", "json"])
def test_damage_gives_parts_or_a_typed_error(signal: Signal, content: Any) -> None:
    chance = replayable()
    request = Generator(3).make(signal.value, 8, services=2)
    body = to_json(request) if content == "json" else request.SerializeToString()
    outcomes = {True: 0, False: 0}
    for damaged in mutations(body, chance, 2000):
        try:
            parts = split(signal, damaged, content=content)
        except BadInput as error:
            assert "\n" not in str(error)
            assert len(str(error)) < 400
            outcomes[False] += 1
        else:
            assert all(part.payload in damaged for part in parts)
            for part in parts:  # each part is a request of its own, with the same content
                alone = part.payload
                if content == "json":
                    (field,) = OFFICIAL[signal].DESCRIPTOR.fields
                    alone = b'{"%s":[%s]}' % (field.json_name.encode(), alone)
                assert split(signal, alone, content=content) == [part]
            outcomes[True] += 1
    assert min(outcomes.values()) > 5, outcomes


def test_nesting_that_protobuf_cannot_read_is_refused() -> None:
    def body(depth: int) -> bytes:
        value = nested_any_value(depth)
        return delimited(1, delimited(2, delimited(2, delimited(5, value))))

    assert split(Signal.LOGS, body(40), content="protobuf")[0].nb_objects == 1
    for depth in (60, 10_000):
        with pytest.raises(BadPayload, match="nested more than 100"):
            split(Signal.LOGS, body(depth), content="protobuf")


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"resourceLogs":[', b'[{"a":'])
def test_json_nested_without_end_is_refused(opening: bytes) -> None:
    for body in (opening * 10_000, b'{"x":' + opening * 10_000 + b"}"):
        with pytest.raises(BadPayload):
            split(Signal.LOGS, body, content="json")


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a\xff\xff\xff\xff\x07",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\x00",
        b"\x0c",
        b"\x13",
        b"\xff" * 100,
        b"\x8a\x80\x80\x80\x80\x80\x00\x00",
    ],
)
def test_impossible_lengths_and_tags_are_refused(body: bytes) -> None:
    for signal in Signal:
        with pytest.raises(BadPayload, match="no protobuf request of"):
            split(signal, body, content="protobuf")


def test_a_tag_in_a_long_spelling_is_understood() -> None:
    one = Generator(1).serialized("logs", 1, services=1)
    body = b"\x8a\x80\x00" + one[1:]
    (part,) = split(Signal.LOGS, body, content="protobuf")
    assert part.payload == body


def test_more_than_the_limit_is_too_large() -> None:
    too_large = bytes(requests.MAX_BODY_BYTES + 1)
    for content in ("protobuf", "json"):
        with pytest.raises(PayloadTooLarge, match="more than 67,108,864"):
            split(Signal.LOGS, too_large, content=content)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"text"',
        b"{} {}",
        b'{"resourceLogs":{}}',
        b'{"resourceLogs":[1]}',
        b'{"resourceLogs":[null]}',
        b'{"resourceLogs":[{]}',
        b'{"resourceLogs":[{"schemaUrl":"\xff"}]}',
        b"\xff\xfe{\x00}\x00",
        Generator(1).serialized("logs", 2),
    ],
)
def test_what_is_no_json_request_is_refused(body: bytes) -> None:
    with pytest.raises(BadPayload):
        split(Signal.LOGS, body, content="json")


def test_splitting_needs_no_heavy_library() -> None:
    program = (
        "import sys, lakebed.decode.files, lakebed.decode.requests, lakebed.samples.generator\n"
        "print({'pyarrow', 'pyspark', 'sqlalchemy', 'pandas'} & set(sys.modules))"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "set()", run.stderr


def test_a_value_of_each_kind_can_be_made() -> None:
    kinds = {any_value(v).WhichOneof("value") for v in ("", 1, 1.0, True, b"", [], {}, None)}
    assert len(kinds) == 8
