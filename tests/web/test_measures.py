"""The page of metrics: averages, rates, means and percentiles are those of what was sent."""

from __future__ import annotations

import math
import random
import re
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlencode, urlsplit

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)

from lakebed.model.time import to_instant
from lakebed.opening import init_lake
from lakebed.samples.generator import BEGIN_NS, Generator
from lakebed.web.charting.series import WAYS
from tests.parts.building import build
from tests.serve.parts import Served
from tests.web.parts import see, showing

RANGE = {"begin": "2026-11-15T11:59:00Z", "end": "2026-11-15T13:00:00Z"}
ROOT = Path(__file__).parents[2]
MARKUP = "<svg onload=alert(1)>"
MINUTE_NS = 60 * 10**9
BOUNDS = [5.0, 10.0, 25.0, 50.0, 100.0, 250.0]
ROUTES = ("/cart", "/pay?by=card")
RESTARTED = 20
"""In which minute the shop begins to count anew."""
WITHOUT_VALUE = (10, 33)
"""In which minutes its points only say that nothing was recorded."""


def make_latencies() -> dict[tuple[str, int], list[float]]:
    """What requests took, by route and minute."""
    chance = random.Random(20261115)
    return {
        (route, minute): [chance.lognormvariate(2 + place, 1) for _ in range(chance.randint(1, 40))]
        for place, route in enumerate(ROUTES)
        for minute in range(40)
    }


LATENCIES = make_latencies()


def add_shop(request: Any, begin_ns: int) -> None:
    """A service whose histogram counts since it started, and one that tells each minute alone in
    powers of two; of both the values are `LATENCIES`."""
    group = request.resource_metrics.add()
    group.resource.attributes.add(key="service.name").value.string_value = "shop"
    scope = group.scope_metrics.add()
    since_start = scope.metrics.add(name="shop.latency", unit="ms").histogram
    each_minute = scope.metrics.add(name="shop.latency.exact", unit="ms").exponential_histogram
    since_start.aggregation_temporality, each_minute.aggregation_temporality = 2, 1
    for (route, minute), values in LATENCIES.items():
        start = 0 if minute < RESTARTED else RESTARTED
        points = since_start.data_points.add(), each_minute.data_points.add()
        for point, from_minute in zip(points, (start, minute), strict=True):
            point.attributes.add(key="http.route").value.string_value = route
            point.attributes.add(key="region").value.string_value = "eu"
            point.start_time_unix_nano = begin_ns + from_minute * MINUTE_NS
            point.time_unix_nano = begin_ns + minute * MINUTE_NS + MINUTE_NS // 2
        if minute in WITHOUT_VALUE:
            points[0].flags = 1
        else:
            until = [each for m in range(start, minute + 1) for each in LATENCIES[route, m]]
            points[0].count, points[0].sum = len(until), sum(until)
            points[0].explicit_bounds.extend(BOUNDS)
            points[0].bucket_counts.extend(
                [sum(bisect_left(BOUNDS, each) == n for each in until) for n in range(7)]
            )
        powers = Counter(math.ceil(math.log2(each)) - 1 for each in values)
        first, last = min(powers), max(powers)
        points[1].count, points[1].positive.offset = len(values), first
        points[1].positive.bucket_counts.extend(powers[n] for n in range(first, last + 1))


@pytest.fixture(scope="module")
def sent() -> list[Any]:
    generator = Generator(21)
    requests = [generator.metrics(260), generator.metrics(130)]
    marked = (
        requests[0]
        .resource_metrics[0]
        .scope_metrics[0]
        .metrics.add(name=MARKUP, unit=MARKUP, description=MARKUP)
    )
    point = marked.gauge.data_points.add(time_unix_nano=generator.now_ns, as_double=2.5)
    point.attributes.add(key=MARKUP).value.string_value = MARKUP
    add_shop(requests[1], BEGIN_NS)
    return requests


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, sent: list[Any]) -> Iterator[Served]:
    with init_lake(tmp_path_factory.mktemp("web") / "lake") as lake:
        lake.telemetry.land("metrics", sent[0].SerializeToString())
        build(lake, "measures")
        lake.telemetry.land("metrics", sent[1].SerializeToString())
        with showing(lake) as served:
            yield served


def metrics_of(sent: list[Any]) -> Iterator[tuple[str, Any]]:
    """Services and metrics."""
    for group in (each for request in sent for each in request.resource_metrics):
        names = {a.key: a.value.string_value for a in group.resource.attributes}
        for scope in group.scope_metrics:
            for metric in scope.metrics:
                yield names["service.name"], metric


def data_of(served: Served, **asked: str | Sequence[str]) -> Any:
    answer = served.ask("GET", f"/measures.json?{urlencode(RANGE | asked, doseq=True)}")
    assert answer.status == 200, answer.body
    return answer.json()


def count_increases(chart: Any, line: Any, *known: tuple[int, int]) -> float:
    """What a line of increases per second adds up to, which is known in some stretches of time."""
    width, total = chart["bin_seconds"] * 10**9, 0.0
    for at, value in zip(chart["bins"], line["values"], strict=True):
        first = to_instant(at) * 1000
        parts = (min(first + width, end) - max(first, begin) for begin, end in known)
        total += (value or 0) * sum(max(0, part) for part in parts) / 10**9
    return total


def test_the_list_has_every_metric(served: Served, sent: list[Any]) -> None:
    points: Counter[str] = Counter()
    services = defaultdict(set)
    for service, metric in metrics_of(sent):
        points[metric.name] += len(getattr(metric, metric.WhichOneof("data")).data_points)
        services[metric.name].add(service)
    found = {each["name"]: each for each in data_of(served)["metrics"]}
    assert {name: each["points"] for name, each in found.items()} == dict(points)
    assert {name: each["services"] for name, each in found.items()} == {
        name: len(each) for name, each in services.items()
    }
    page = see(served.ask("GET", f"/measures?{urlencode(RANGE)}"))
    for name in points:
        assert name in page.text
    assert [each["name"] for each in data_of(served, find="CPU")["metrics"]] == [
        "process.cpu.utilization"
    ]


def test_gauges_are_averaged_and_deltas_added(served: Served, sent: list[Any]) -> None:
    values, bytes_sent = defaultdict(list), defaultdict(float)
    begins, ends = [], []
    for service, metric in metrics_of(sent):
        for point in getattr(metric, metric.WhichOneof("data")).data_points:
            if point.flags:
                continue
            if metric.name == "process.cpu.utilization" and math.isfinite(point.as_double):
                values[service].append(point.as_double)
            if metric.name == "network.io":
                number = point.as_double or point.as_int
                bytes_sent[service] += number if math.isfinite(number) else 0
                if math.isfinite(number):
                    begins.append(point.start_time_unix_nano)
                    ends.append(point.time_unix_nano)
    chart = data_of(served, name="process.cpu.utilization", by="service")["chart"]
    assert chart["way"] == "value"
    counted = {
        each["name"]: [v for v in each["values"] if v is not None] for each in chart["lines"]
    }
    assert counted.keys() == values.keys()
    for service, means in counted.items():
        assert min(values[service]) <= min(means) <= max(means) <= max(values[service])
        if len(means) == 1:
            assert means[0] == pytest.approx(sum(values[service]) / len(values[service]))
    chart = data_of(served, name="network.io", by="service")["chart"]
    assert chart["way"] == "rate"
    for line in chart["lines"]:
        total = count_increases(chart, line, (min(begins), max(ends)))
        assert total == pytest.approx(bytes_sent[line["name"]])


def test_summaries_show_the_quantiles_that_they_have(served: Served, sent: list[Any]) -> None:
    wanted = defaultdict(list)
    for service, metric in metrics_of(sent):
        for point in metric.summary.data_points if metric.name == "go.gc.pause" else ():
            for each in () if point.flags else point.quantile_values:
                wanted[service, f"p{each.quantile * 100:g}"].append(each.value)
    chart = data_of(served, name="go.gc.pause", way="quantiles")["chart"]
    assert "quantiles" in chart["ways"]
    assert {each["name"] for each in chart["lines"]} == {name for _, name in wanted}
    for line in chart["lines"]:
        all_of_it = [
            v for (_, name), found in wanted.items() if name == line["name"] for v in found
        ]
        assert line["latest"] == pytest.approx(all_of_it[0])  # the samples never change
    split = data_of(served, name="go.gc.pause", way="quantiles", by="service")["chart"]
    names = {each["name"] for each in split["lines"]}
    assert names <= {f"{service} {name}" for service, name in wanted}
    page = see(
        served.ask(
            "GET", f"/measures?{urlencode(RANGE | {'name': 'go.gc.pause', 'way': 'quantiles'})}"
        )
    )
    assert "what senders say" in page.text
    none = data_of(served, name="process.cpu.utilization", way="quantiles")["chart"]
    assert none["lines"] == []


def test_points_are_chosen_by_their_attributes(served: Served, sent: list[Any]) -> None:
    totals: Counter[tuple[str, str]] = Counter()
    spans = defaultdict(list)
    for _, metric in metrics_of(sent):
        if metric.name == "network.io":
            for point in metric.sum.data_points:
                had = {each.key: each.value for each in point.attributes}
                number = point.as_double or point.as_int
                key = had["http.route"].string_value, str(had["shard"].int_value)
                if math.isfinite(number) and not point.flags:
                    totals[key] += number
                    spans[key].append((point.start_time_unix_nano, point.time_unix_nano))
    routes = sorted({route for route, _ in totals})
    shard = next(shard for route, shard in totals if route == routes[0])

    def total_of(*chosen: str) -> float:
        chart = data_of(served, name="network.io", attribute=chosen)["chart"]
        assert [f"{each['name']}={each['value']}" for each in chart["filters"]] == list(chosen)
        (line,) = chart["lines"]
        having = [
            each
            for (route, shard), found in spans.items()
            if f"http.route={route}" in chosen
            and (f"shard={shard}" in chosen or "shard" not in str(chosen))
            for each in found
        ]
        begin, end = min(each for each, _ in having), max(each for _, each in having)
        return count_increases(chart, line, (begin, end))

    one, two = (f"http.route={route}" for route in routes[:2])
    of_route = Counter[str]()
    for (route, _), count in totals.items():
        of_route[route] += count
    assert total_of(one) == pytest.approx(of_route[routes[0]])
    assert total_of(one, two) == pytest.approx(of_route[routes[0]] + of_route[routes[1]])
    assert total_of(one, f"shard={shard}") == pytest.approx(totals[routes[0], shard])
    found = {
        each["name"]: each for each in data_of(served, name="network.io")["chart"]["attributes"]
    }
    assert sorted(found["http.route"]["values"]) == routes
    shards = {shard for _, shard in totals}
    assert len(found["shard"]["values"]) + found["shard"]["values_left_out"] == len(shards)

    asked = urlencode(RANGE | {"name": "network.io", "attribute": [one, two]}, doseq=True)
    page = see(served.ask("GET", f"/measures?{asked}"))
    (without,) = (
        a["href"] for t, a in page.tags if a.get("aria-label") == f"Without {as_text(two)}"
    )
    kept = parse_qs(urlsplit(without or "").query)
    assert kept["attribute"] == [one]
    (as_json,) = (link for link in page.links if ".json" in link)
    assert parse_qs(urlsplit(as_json).query)["attribute"] == [one, two]


def as_text(chosen: str) -> str:
    return chosen.replace("=", " = ", 1)


def edges_of(value: float, edges: Sequence[float]) -> tuple[float, float]:
    place = bisect_left(edges, value)
    return edges[place - 1] if place else 0.0, edges[min(place, len(edges) - 1)]


@pytest.mark.parametrize(
    ("name", "edges"),
    [("shop.latency", BOUNDS), ("shop.latency.exact", [2.0**n for n in range(-20, 20)])],
)
def test_percentiles_are_in_the_buckets_of_the_truth(
    served: Served, name: str, edges: list[float]
) -> None:
    """In a bin whose point has no value, those of the next point are all that was since."""
    for route in ROUTES:
        chosen = {"name": name, "attribute": f"http.route={route}"}
        chart = data_of(served, way="percentiles", **chosen)["chart"]
        begins = [to_instant(each) * 1000 for each in chart["bins"]]
        values: dict[int, list[float]] = defaultdict(list)
        for (of_route, minute), measured in LATENCIES.items():
            if of_route == route:
                if name == "shop.latency" and minute in WITHOUT_VALUE:
                    minute += 1
                at = BEGIN_NS + minute * MINUTE_NS + MINUTE_NS // 2
                values[max(n for n, begin in enumerate(begins) if begin <= at)] += measured
        assert [each["name"] for each in chart["lines"]] == ["p99", "p90", "p50"]
        for line in chart["lines"]:
            percent = int(line["name"][1:])
            shown = {n: each for n, each in enumerate(line["values"]) if each is not None}
            assert shown.keys() == values.keys()
            for number, estimate in shown.items():
                rank = -(-len(values[number]) * percent // 100)
                low, high = edges_of(sorted(values[number])[rank - 1], edges)
                assert low <= estimate <= high, (route, line["name"], number)
        split = data_of(served, name=name, way="p90", by="http.route")["chart"]
        (same,) = (each for each in split["lines"] if each["name"] == route)
        assert same["values"] == chart["lines"][1]["values"]
    both = data_of(served, name=name, way="percentiles", by="http.route")["chart"]["lines"]
    assert [each["name"] for each in both] == [
        f"{route} {each}" for route in reversed(ROUTES) for each in ("p99", "p90", "p50")
    ]


def test_points_without_a_value_are_no_restart(served: Served) -> None:
    chart = data_of(served, name="shop.latency", way="rate")["chart"]
    (line,) = chart["lines"]
    minutes = (0, RESTARTED - 0.5), (RESTARTED, 39.5)
    known = [tuple(BEGIN_NS + int(each * MINUTE_NS) for each in pair) for pair in minutes]
    counted = count_increases(chart, line, *known)
    assert counted == pytest.approx(sum(len(each) for each in LATENCIES.values()))


def test_the_example_of_the_docs_is_answered(served: Served) -> None:
    """Of a metric that is here."""
    (example,) = re.findall(r"/(measures.json[?][^']+)'", (ROOT / "docs" / "web.md").read_text())
    address = example.replace("http.server.request.duration", "shop.latency")
    chart = served.ask("GET", f"/{address}&{urlencode(RANGE)}").json()["chart"]
    assert [line["name"] for line in chart["lines"]] == ["shop"]
    assert chart["filters"] == [{"name": "http.route", "value": "/cart"}]


def test_a_way_without_numbers_says_so(served: Served) -> None:
    asked = urlencode(RANGE | {"name": "process.cpu.utilization", "way": "p99"})
    page = see(served.ask("GET", f"/measures?{asked}"))
    assert "try another way" in page.text
    assert {"value", "rate", "p99"} == {
        a["value"] for a in page.all("option") if a["value"] in WAYS
    }


def test_markup_and_wrong_wishes(served: Served) -> None:
    page = see(served.ask("GET", f"/measures?{urlencode(RANGE | {'name': MARKUP, 'by': MARKUP})}"))
    assert MARKUP not in page.html
    assert page.text.count(MARKUP) > 4
    assert "2.5" in page.text
    page = see(served.ask("GET", f"/measures?{urlencode(RANGE | {'name': 'no'})}"), 404)
    assert ">/measures</a>" in page.html, "the hint leads there"
    chosen = {"name": MARKUP, "attribute": f"{MARKUP}={MARKUP}"}
    page = see(served.ask("GET", f"/measures?{urlencode(RANGE | chosen)}"))
    assert MARKUP not in page.html
    assert data_of(served, **chosen)["chart"]["filters"] == [{"name": MARKUP, "value": MARKUP}]
    for status, more in (
        (400, {"by": "<b>"}),
        (400, {"attribute": "<b>=1"}),
        (400, {"attribute": "shard"}),
        (400, {"attribute": [f"shard={number}" for number in range(99)]}),
        (200, {"attribute": "shard=<b>"}),
        (200, {"attribute": "shard=<b>", "begin": "1s", "end": ""}),
    ):
        asked = urlencode(RANGE | {"name": "network.io"} | more, doseq=True)
        assert "<b>" not in see(served.ask("GET", f"/measures?{asked}"), status).html
    assert see(served.ask("GET", "/measures?way=sideways"), 400)
    page = see(served.ask("GET", "/measures?begin=%3Cb%3E&find=io"), 400)
    assert page.all("input", name="begin", value="<b>")
    assert page.all("input", name="find", value="io")
    assert "<b>" not in page.html
    assert "newest point" in see(served.ask("GET", "/measures?begin=1s")).text
    page = see(served.ask("GET", f"/measures?begin=1s&name={quote(MARKUP)}&attribute=gone=1"))
    assert MARKUP not in page.html
    (back,) = (link for link in page.links if "end=" in link)
    assert "2.5" in see(served.ask("GET", back)).text


@pytest.mark.parametrize("wrong", [{"by": "<b>"}, {"attribute": "<b>=1"}, {"way": "<b>"}])
def test_a_metric_is_shown_without_what_is_wrong(served: Served, wrong: dict[str, str]) -> None:
    asked = {"name": "shop.latency", "way": "p99", "by": "http.route", "attribute": "region=eu"}
    page = see(served.ask("GET", f"/measures?{urlencode(RANGE | asked | wrong)}"), 400)
    assert "That did not work" in page.text
    assert page.all("polyline"), "the chart is there"
    assert page.all("input", name="begin", value=RANGE["begin"]), "of the range that was asked for"
    assert "<b>" not in page.html
    onward = [link for link in page.links if ".json" not in link]
    assert not [link for link in onward if "by=%3Cb" in link or "attribute=%3Cb" in link]
    assert served.ask("GET", f"/measures.json?{urlencode(RANGE | asked | wrong)}").status == 400


def test_without_metrics_the_page_says_how_to_send_some(tmp_path: Path) -> None:
    with init_lake(tmp_path / "lake") as new, showing(new) as other:
        page = see(other.ask("GET", "/measures"))
    assert "export OTEL_EXPORTER_OTLP_ENDPOINT=" in page.text
    assert "export OTEL_METRICS_EXPORTER=otlp" in page.text


def test_unless_somebody_says_when_a_chart_begins_with_its_first_point(tmp_path: Path) -> None:
    now = time.time_ns()
    with init_lake(tmp_path / "lake") as lake, showing(lake) as served:
        for seconds in (150, 90, 30):
            request = ExportMetricsServiceRequest()
            scope = request.resource_metrics.add().scope_metrics.add()
            point = scope.metrics.add(name="young").gauge.data_points.add()
            point.as_double, point.time_unix_nano = seconds, now - seconds * 10**9
            lake.telemetry.land("metrics", request.SerializeToString())
        chart = served.ask("GET", "/measures.json?name=young").json()["chart"]
        assert chart["bin_seconds"] <= 10
        (line,) = chart["lines"]
        assert [each for each in line["values"] if each is not None] == [150, 90, 30]
        assert line["values"][0] == 150
        asked = served.ask("GET", "/measures.json?name=young&begin=1h").json()["chart"]
        assert asked["bin_seconds"] >= 60
