"""The pages of traces: what is searched, the waterfall and the export have what was sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.opening import init_lake
from lakebed.samples.generator import BEGIN_NS, Generator
from lakebed.web.pages.trace import Span, arrange, assign_lanes
from tests.parts.building import build
from tests.serve.parts import Served
from tests.web.parts import see, showing

RANGE = "begin=2026-11-15T11:59:00Z&end=2026-11-15T13:00:00Z"
MARKUP = "<img src=x onerror=alert(1)>"
STATUS = ("unset", "ok", "error")


@pytest.fixture(scope="module")
def sent() -> list[tuple[str, Any]]:
    """Services and spans, in several traces; one span has markup wherever there is text."""
    request = Generator(11).traces(300)
    found = []
    for group in request.resource_spans:
        for attribute in group.resource.attributes:
            if attribute.key == "service.name":
                service = attribute.value.string_value
        found += [(service, span) for scope in group.scope_spans for span in scope.spans]
    marked = found[0][1]
    marked.name = marked.status.message = MARKUP
    event = marked.events.add(name=MARKUP, time_unix_nano=marked.start_time_unix_nano)
    event.attributes.add(key=MARKUP).value.string_value = MARKUP
    marked.links.add(trace_id=bytes(range(16)), span_id=bytes(range(8)))
    found[0] = (found[0][0], marked)
    sent_requests.append(request)
    return found


sent_requests: list[Any] = []


@pytest.fixture(scope="module")
def marked(sent: list[tuple[str, Any]]) -> Any:
    return sent[0][1]


@pytest.fixture(scope="module")
def served(
    tmp_path_factory: pytest.TempPathFactory, sent: list[tuple[str, Any]], marked: Any
) -> Iterator[Served]:
    logs = Generator(12, begin_ns=BEGIN_NS).logs(40, services=1)
    records = [each for s in logs.resource_logs[0].scope_logs for each in s.log_records]
    for number, record in enumerate(records):
        record.trace_id = marked.trace_id if number < 5 else b""
        record.span_id = marked.span_id if number < 3 else bytes(8) if number < 5 else b""
        record.body.string_value = f"{MARKUP} {number}"
    with init_lake(tmp_path_factory.mktemp("web") / "lake") as lake:
        lake.telemetry.land("traces", sent_requests[0].SerializeToString())
        build(lake, "spans")
        lake.telemetry.land("logs", logs.SerializeToString())
        with showing(lake) as served:
            yield served


def data_of(served: Served, address: str) -> Any:
    answer = served.ask("GET", address)
    assert answer.status == 200, answer.body
    return answer.json()


def by_trace(sent: list[tuple[str, Any]]) -> dict[str, list[tuple[str, Any]]]:
    traces: dict[str, list[tuple[str, Any]]] = {}
    for service, span in sent:
        traces.setdefault(span.trace_id.hex(), []).append((service, span))
    return traces


def test_the_list_has_every_trace_as_it_was_sent(
    served: Served, sent: list[tuple[str, Any]]
) -> None:
    traces = by_trace(sent)
    data = data_of(served, f"/traces.json?{RANGE}&traces=1000")
    assert {each["trace_id"] for each in data["traces"]} == traces.keys()
    assert not data["is_cut"]
    for each in data["traces"]:
        spans = [span for _, span in traces[each["trace_id"]]]
        begin = min(span.start_time_unix_nano for span in spans)
        assert each["duration_ns"] == max(span.end_time_unix_nano for span in spans) - begin
        assert each["spans"] == len(spans)
        assert each["errors"] == sum(span.status.code == 2 for span in spans)
        assert each["services"] == len({service for service, _ in traces[each["trace_id"]]})
        (root,) = (span for span in spans if not span.parent_span_id)
        assert each["name"] == root.name
    assert data["longest_ns"] == max(each["duration_ns"] for each in data["traces"])
    page = see(served.ask("GET", f"/traces?{RANGE}&traces=1000"))
    assert f"{len(traces)} traces" in page.text
    assert f"/traces/{data['traces'][0]['trace_id']}" in page.links


def test_every_trace_is_on_one_of_the_pages(served: Served) -> None:
    every = data_of(served, f"/traces.json?{RANGE}&traces=1000")["traces"]
    address, found = f"/traces?{RANGE}&traces=7", []
    while address:
        found += data_of(served, address.replace("/traces", "/traces.json", 1))["traces"]
        older = see(served.ask("GET", address)).all("a", rel="next")
        address = (older[0]["href"] or "") if older else ""
    assert found == every
    assert len(every) > 14
    wrong = see(served.ask("GET", f"/traces?{RANGE}&until=then"), 400)
    assert "then" in wrong.text


def test_a_search_is_about_one_span(served: Served, sent: list[tuple[str, Any]]) -> None:
    traces = by_trace(sent)
    service, name = next((s, e.name) for s, e in sent if e.status.code == 2)
    query = f"{RANGE}&traces=1000&service={service}&status=error"
    found = {each["trace_id"] for each in data_of(served, f"/traces.json?{query}")["traces"]}
    assert found == {
        trace
        for trace, spans in traces.items()
        if any(s == service and span.status.code == 2 for s, span in spans)
    }
    named = data_of(served, f"/traces.json?{RANGE}&traces=1000&longer=3ms")["traces"]
    assert 0 < len(named) < len(traces)
    assert min(each["duration_ns"] for each in named) >= 3_000_000
    assert data_of(served, f"/traces.json?{RANGE}&traces=2")["is_cut"]
    assert "no status" in see(served.ask("GET", "/traces?status=sad"), 400).text
    wrong = see(served.ask("GET", "/traces?longer=long&name=POST"), 400)
    assert "30s, 15m" in wrong.text
    assert wrong.all("input", name="longer", value="long")
    assert wrong.all("input", name="name", value="POST")
    assert "newest span" in see(served.ask("GET", "/traces?begin=1s")).text
    assert name


def test_the_waterfall_is_the_trace(
    served: Served, sent: list[tuple[str, Any]], marked: Any
) -> None:
    trace_id = marked.trace_id.hex()
    spans = {span.span_id.hex(): (s, span) for s, span in by_trace(sent)[trace_id]}
    data = data_of(served, f"/traces/{trace_id}.json")
    assert {each["span_id"] for each in data["spans"]} == spans.keys()
    begin = min(span.start_time_unix_nano for _, span in spans.values())
    depths: dict[str, int] = {}
    for each in data["spans"]:
        service, span = spans[each["span_id"]]
        assert (each["service"], each["name"]) == (service, span.name)
        assert each["offset_ns"] == span.start_time_unix_nano - begin
        assert each["duration_ns"] == span.end_time_unix_nano - span.start_time_unix_nano
        assert each["status"] == STATUS[span.status.code]
        assert [e["name"] for e in each["events"]] == [e.name for e in span.events]
        assert [e["span_id"] for e in each["links"]] == [e.span_id.hex() for e in span.links]
        depths[each["span_id"]] = each["depth"]
        parent = span.parent_span_id.hex()
        assert each["depth"] == (depths[parent] + 1 if parent else 0)
    (own,) = (each for each in data["spans"] if each["span_id"] == marked.span_id.hex())
    assert {each["msg"] for each in own["lines"]} == {f"{MARKUP} {n}" for n in range(3)}
    assert len(data["lines"]) == 2
    assert not data["has_more_lines"]

    page = see(served.ask("GET", f"/traces/{trace_id}?span={marked.span_id.hex()}"))
    assert MARKUP not in page.html
    assert page.text.count(MARKUP) > 6
    assert f"/traces/{bytes(range(16)).hex()}?span={bytes(range(8)).hex()}" in page.links
    assert len(page.all("details")) == len(spans)
    assert len([each for each in page.all("details") if "open" in each]) == 1
    lost = see(served.ask("GET", "/traces/%3Cb%3E"), 404)
    assert "<b>" not in lost.html
    assert "/logs?trace=%3Cb%3E&begin=7d" in lost.links


def test_the_export_is_what_perfetto_reads(
    served: Served, sent: list[tuple[str, Any]], marked: Any
) -> None:
    trace_id = marked.trace_id.hex()
    spans = by_trace(sent)[trace_id]
    events = data_of(served, f"/traces/{trace_id}/perfetto.json")["traceEvents"]
    bars = {each["args"]["span_id"]: each for each in events if each["ph"] == "X"}
    names = {each["pid"]: each["args"]["name"] for each in events if each["ph"] == "M"}
    assert len(bars) == len(spans)
    for service, span in spans:
        bar = bars[span.span_id.hex()]
        assert (bar["name"], names[bar["pid"]]) == (span.name, service)
        assert abs(bar["ts"] * 1000 - span.start_time_unix_nano) < 1000
        lasts = span.end_time_unix_nano - span.start_time_unix_nano
        assert bar["dur"] == pytest.approx(lasts / 1000)
    assert sum(each["ph"] == "i" for each in events) == sum(len(s.events) for _, s in spans)


def test_lines_that_are_not_shown_are_mentioned(tmp_path: Path) -> None:
    """Also of a trace that lasts for hours: the link to its logs reaches all of them."""
    traces = Generator(3).traces(1)
    (span,) = (e for r in traces.resource_spans for s in r.scope_spans for e in s.spans)
    span.end_time_unix_nano = span.start_time_unix_nano + 5 * 3600 * 10**9
    logs = Generator(4).logs(1001)
    for record in (e for r in logs.resource_logs for s in r.scope_logs for e in s.log_records):
        record.trace_id, record.span_id = span.trace_id, span.span_id
        record.time_unix_nano = span.end_time_unix_nano
    path = f"/traces/{span.trace_id.hex()}"
    with init_lake(tmp_path / "lake") as lake, showing(lake) as served:
        lake.telemetry.land("traces", traces.SerializeToString())
        lake.telemetry.land("logs", logs.SerializeToString())
        data = data_of(served, f"{path}.json")
        assert len(data["spans"][0]["lines"]) == 1000
        assert data["has_more_lines"]
        page = see(served.ask("GET", path))
        assert "more log lines than are shown" in page.text
        (address,) = {each for each in page.links if each.startswith("/logs?")}
        assert data_of(served, address.replace("/logs", "/logs.json", 1))["total"] == 1001


def make_span(number: int, parent: int | None, begin: int = 0, lasts: int = 0) -> Span:
    known = None if parent is None else str(parent)
    texts = ("", None, "internal", "unset", None, "")
    return Span(str(number), known, *texts, begin, lasts, {}, [], [])


@given(st.lists(st.one_of(st.none(), st.integers(0, 12)), max_size=12))
def test_every_span_is_placed_once_whatever_its_parents(parents: list[int | None]) -> None:
    spans = [make_span(number, parent) for number, parent in enumerate(parents)]
    arranged = arrange(spans)
    assert sorted(each.span_id for each in arranged) == sorted(each.span_id for each in spans)
    places = {each.span_id: place for place, each in enumerate(arranged)}
    for each in arranged:
        if each.depth:
            assert places[each.parent_span_id or ""] < places[each.span_id]
        else:
            assert each.parent_span_id is None or each.is_orphan


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=20))
def test_spans_of_a_lane_never_cross(times: list[tuple[int, int]]) -> None:
    spans = [make_span(number, None, *each) for number, each in enumerate(times)]
    lanes: dict[int, list[tuple[int, int]]] = {}
    for lane, span in assign_lanes(spans):
        lanes.setdefault(lane, []).append((span.offset_ns, span.offset_ns + span.duration_ns))
    for lane_spans in lanes.values():
        for at, (begin, end) in enumerate(lane_spans):
            for other_begin, other_end in lane_spans[:at]:
                assert other_end <= begin or end <= other_end
                assert other_begin <= begin
    assert sum(map(len, lanes.values())) == len(times)
