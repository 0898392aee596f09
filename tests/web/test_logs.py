"""The page of logs: every count and line is what the generator sent, and markup stays text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qsl, quote

import pytest

from lakebed.lake import Lake
from lakebed.model.time import SECOND, TimeRange, format_instant, to_instant
from lakebed.opening import init_lake
from lakebed.samples.generator import Generator
from lakebed.web.charting.lines import HEIGHT, WIDTH, stack
from lakebed.web.pages.logs import Line, _cut
from lakebed.web.times import plan_bins
from tests.parts.building import build
from tests.serve.parts import Served
from tests.web.parts import see, showing

RANGE = "begin=2026-11-15T11:59:00Z&end=2026-11-15T13:00:00Z"
MARKUP = "<script>alert(1)</script> & \"quotes' </td>"
NAMES = ("trace", "debug", "info", "warn", "error", "fatal")


@pytest.fixture(scope="module")
def sent() -> list[dict[str, Any]]:
    """What is sent: its level, service, text and time in microseconds."""
    requests = [Generator(5).logs(300), Generator(6).logs(200)]
    record = requests[1].resource_logs[0].scope_logs[0].log_records[0]
    record.body.string_value = MARKUP
    record.severity_number = 9  # type: ignore[assignment]
    record.trace_id, record.span_id = bytes(range(16)), bytes(range(8))
    attribute = record.attributes.add(key=MARKUP)
    attribute.value.string_value = MARKUP
    found = []
    for request in requests:
        for group in request.resource_logs:
            for scope in group.scope_logs:
                for each in scope.log_records:
                    number = each.severity_number
                    service = next(
                        a.value.string_value
                        for a in group.resource.attributes
                        if a.key == "service.name"
                    )
                    nanos = each.time_unix_nano or each.observed_time_unix_nano
                    found.append(
                        {
                            "level": NAMES[(number - 1) // 4] if number else "info",
                            "service": service,
                            "text": each.body.string_value,
                            "is_text": each.body.HasField("string_value"),
                            "trace": each.trace_id.hex(),
                            "time": nanos // 1000,
                            "request": request,
                        }
                    )
    return found


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, sent: Any) -> Iterator[Served]:
    """One request is built, the other is in the fresh tail."""
    requests = list({id(each["request"]): each["request"] for each in sent}.values())
    with init_lake(tmp_path_factory.mktemp("web") / "lake") as lake:
        lake.telemetry.land("logs", requests[0].SerializeToString())
        build(lake, "log_entries")
        lake.telemetry.land("logs", requests[1].SerializeToString())
        with showing(lake) as served:
            yield served


def data_of(served: Served, query: str) -> Any:
    answer = served.ask("GET", f"/logs.json?{query}")
    assert answer.status == 200, answer.body
    return answer.json()


def test_counts_are_what_was_sent(served: Served, sent: list[dict[str, Any]]) -> None:
    data = data_of(served, RANGE)
    assert data["total"] == len(sent) == 500
    assert data["levels"] == dict(Counter(each["level"] for each in sent)) | {}
    assert data["services"] == sorted({each["service"] for each in sent})
    assert sum(each["total"] for each in data["bins"]) == 500
    for each in data["bins"]:
        begin, end = to_instant(each["begin"]), to_instant(each["end"])
        inside = [one["level"] for one in sent if begin <= one["time"] < end]
        assert each["levels"] == dict(Counter(inside))
    times = [to_instant(each["time"]) for each in data["lines"]]
    assert times == sorted((each["time"] for each in sent), reverse=True)[:200]
    page = see(served.ask("GET", f"/logs?{RANGE}"))
    assert "500 lines" in page.text
    for level, count in data["levels"].items():
        assert f"{count} {level}" in page.text


def test_a_search_finds_what_was_sent(served: Served, sent: list[dict[str, Any]]) -> None:
    bad = [each for each in sent if each["level"] in ("error", "fatal")]
    assert 0 < len(bad) < 500
    assert data_of(served, f"{RANGE}&level=error")["total"] == len(bad)
    service = sent[0]["service"]
    both = [each for each in bad if each["service"] == service]
    assert data_of(served, f"{RANGE}&level=error&service={service}")["total"] == len(both)
    traced = next(each["trace"] for each in sent if each["trace"])
    lines = data_of(served, f"{RANGE}&trace={traced}")["lines"]
    assert len(lines) == sum(each["trace"] == traced for each in sent)
    assert {each["trace_id"] for each in lines} == {traced}
    users = [each for each in sent if "user-0000" in each["text"].lower()]
    found = data_of(served, f"{RANGE}&text=USER-0000")
    assert len(users) <= found["total"] < 500
    assert data_of(served, f"{RANGE}&text=%25")["total"] == sum("%" in e["text"] for e in sent)


def test_markup_comes_out_as_text(served: Served) -> None:
    page = see(served.ask("GET", f"/logs?{RANGE}&text={quote(MARKUP)}"))
    assert MARKUP.split(" & ")[0] not in page.html
    assert page.text.count("<script>alert(1)</script>") >= 3  # the line, a property and its name
    assert page.all("input", name="text", value=MARKUP)
    assert "1 line:" in page.text
    assert f"/traces/{bytes(range(16)).hex()}?span={bytes(range(8)).hex()}" in page.links


def test_older_lines_are_a_link_away(served: Served, sent: list[dict[str, Any]]) -> None:
    seen: list[str] = []
    page = data_of(served, f"{RANGE}&lines=200")
    while True:
        seen += [each["time"] for each in page["lines"]]
        if page["older"] is None:
            break
        page = data_of(served, f"begin=2026-11-15T11:59:00Z&end={page['older']}&lines=200")
    assert len(seen) == 500
    assert seen == sorted(seen, reverse=True)


def test_lines_of_one_instant_are_not_lost_between_pages() -> None:
    times = ["5", "4", "3", "3", "3", "1"]
    lines = [
        Line(f"2026-11-15T12:00:0{each}.000000Z", "info", None, None, "", False, {}, None, None)
        for each in times
    ]
    shown, older = _cut(lines[:5], 4)
    assert [each.time[18] for each in shown] == ["5", "4"]
    assert older == "2026-11-15T12:00:03.000001Z"
    assert _cut(lines[2:5], 2) == (lines[2:4], "2026-11-15T12:00:03.000000Z")
    assert _cut(lines, 6) == (lines, None)


def test_nothing_found_says_where_something_is(served: Served, sent: list[dict[str, Any]]) -> None:
    data = data_of(served, "begin=2020-01-01T00:00:00Z&end=2020-01-02T00:00:00Z")
    assert data["total"] == 0
    assert to_instant(data["newest"]) >= max(each["time"] for each in sent)
    page = see(served.ask("GET", "/logs?begin=2020-01-01T00:00:00Z&end=2020-01-02T00:00:00Z"))
    (there,) = (link for link in page.links if "begin=2026" in link)
    assert data_of(served, there.partition("?")[2])["total"] > 0


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("level=loud", "'loud' is no level. What helps: use one of fatal"),
        ("lines=0", "a number from 1 to"),
        ("begin=last-week", "or count back from now: 1h, 7d"),
        ("begin=%3Cb%3E", "cannot read '<b>' as a time"),
    ],
)
def test_wrong_input_stays_in_the_form(served: Served, asked: str, said: str) -> None:
    page = see(served.ask("GET", f"/logs?text=order&{asked}"), 400)
    assert said in page.text
    assert page.all("input", name="text", value="order")
    (begin,) = page.all("input", name="begin")
    typed = dict(parse_qsl(asked)).get("begin", "")
    assert begin["value"] == typed, "it need not be typed again"
    assert "<b>" not in page.html
    assert served.ask("GET", f"/logs.json?{asked}").status == 400


def test_the_live_tail_notices_what_lands(served: Served, lake_of: Lake) -> None:
    later = "begin=2026-11-15T14:00:00Z&end=2026-11-15T16:00:00Z"
    before = data_of(served, later)["mark"]
    page = see(served.ask("GET", f"/logs?{RANGE}&live=1"))
    (found,) = page.all("div", id="found")
    assert found["data-live-mark"] == data_of(served, RANGE)["mark"]
    assert served.ask("GET", found["data-live-address"] or "").json()["total"] == 500
    begin_ns = to_instant("2026-11-15T15:00:00Z") * 1000
    lake_of.telemetry.land("logs", Generator(8, begin_ns=begin_ns).serialized("logs", 3))
    assert data_of(served, later)["mark"] != before


@pytest.fixture
def lake_of(served: Served) -> Lake:
    return served.server._lake


@pytest.mark.parametrize("length", [1, 79, 5_000, 3 * SECOND, 3600 * SECOND, 10**15])
@pytest.mark.parametrize("begin", [0, 1_794_744_000_123_456])
def test_bins_hold_their_range(begin: int, length: int) -> None:
    within = TimeRange(begin, begin + length)
    bins = plan_bins(within, 80)
    assert 1 <= bins.count <= 80, format_instant(begin)
    assert bins.first <= within.begin
    assert bins.begin_of(bins.count) >= within.end
    assert bins.find(within.begin) == 0
    assert bins.find(within.end - 1) == bins.count - 1


def test_bars_stay_inside() -> None:
    drawn = stack([{"a": 1, "b": 1000}, {}, {"a": 5}], ["a", "b"])
    assert [len(each) for each in drawn] == [2, 0, 1]
    for bar in (bar for bars in drawn for bar in bars):
        assert 0 <= bar.x <= bar.x + bar.width <= WIDTH
        assert 0 <= bar.y <= HEIGHT
        assert bar.height > 1
