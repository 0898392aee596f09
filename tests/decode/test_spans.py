"""Spans come out with their times, status, events and links."""

from __future__ import annotations

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from lakebed.decode import spans
from tests.decode.parts import LANDED, block

SECOND = 1_000_000_000


def rows(*sent: Span) -> list[dict[str, object]]:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.extend(sent)
    decoded = spans.decode([block(request, "traces")])
    assert (decoded.failures, decoded.fallbacks) == ((), 0)
    return decoded.table.to_pylist()


def test_time_is_the_first_that_is_known() -> None:
    found = rows(
        Span(start_time_unix_nano=SECOND, end_time_unix_nano=3 * SECOND + 999),
        Span(end_time_unix_nano=3 * SECOND),
        Span(),
        Span(start_time_unix_nano=3 * SECOND, end_time_unix_nano=SECOND),
        Span(start_time_unix_nano=2**64 - 1, end_time_unix_nano=SECOND),
    )
    times = [(row["time"].timestamp(), row["duration_ns"], row["problems"]) for row in found]
    assert times == [
        (1.0, 2 * SECOND + 999, None),
        (3.0, None, None),
        (LANDED / 1e6, None, None),
        (3.0, -2 * SECOND, None),
        (1.0, None, "absurd_time"),
    ]
    assert [row["end_time_unix_nano"] for row in found[:3]] == [3 * SECOND + 999, 3 * SECOND, None]
    assert found[2]["end_time"] is None


def test_kinds_and_status_have_names() -> None:
    found = rows(*(Span(kind=kind) for kind in (0, 1, 2, 3, 4, 5, 6, -1)))
    assert [row["kind"] for row in found] == [
        *("unspecified", "internal", "server", "client", "producer", "consumer", "6", "-1"),
    ]
    sent = [Status(), Status(code=1), Status(code=2, message="no"), Status(code=7)]
    found = rows(Span(), *(Span(status=status) for status in sent))
    assert [row["status_code"] for row in found] == ["unset", "unset", "ok", "error", "7"]
    assert [row["status_message"] for row in found] == [None, None, None, "no", None]


def test_a_root_has_no_parent() -> None:
    root, child = rows(Span(span_id=b"\x01" * 8), Span(parent_span_id=b"\x01" * 8))
    assert (root["parent_span_id"], child["parent_span_id"]) == (None, "01" * 8)


def test_events_and_links_stay_with_their_span() -> None:
    span = Span(dropped_events_count=4)
    event = span.events.add(time_unix_nano=7, name="e", dropped_attributes_count=2)
    event.attributes.add(key="k").value.int_value = 5
    span.events.add()
    link = span.links.add(trace_id=b"\xaa" * 16, span_id=b"\xbb" * 8, trace_state="s", flags=257)
    link.attributes.add(key="k")
    plain, found = rows(Span(), span)
    assert (plain["events"], plain["links"]) == ([], [])
    assert found["events"] == [
        {
            "time_unix_nano": 7,
            "name": "e",
            "properties": [("k", "5")],
            "dropped_attributes_count": 2,
        },
        {
            "time_unix_nano": None,
            "name": None,
            "properties": [],
            "dropped_attributes_count": 0,
        },
    ]
    assert found["links"] == [
        {
            "trace_id": "aa" * 16,
            "span_id": "bb" * 8,
            "trace_state": "s",
            "properties": [("k", None)],
            "dropped_attributes_count": 0,
            "flags": 257,
        }
    ]
    assert (found["dropped_events_count"], found["problems"]) == (4, None)


def test_what_is_marked_inside_marks_the_span() -> None:
    late = Span()
    late.events.add(time_unix_nano=2**63)
    short = Span()
    short.links.add(trace_id=b"\x01")
    found = rows(late, Span(), short)
    assert [row["problems"] for row in found] == ["absurd_time", None, "bad_id_length"]
