"""The page of metrics: points, averages, rates and means are those of what was sent."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from lakebed.lake import init_lake
from lakebed.model.time import SECOND, TimeRange, to_instant
from lakebed.samples.generator import Generator
from lakebed.web.series import Point, choose_way, plan_lines
from lakebed.web.times import plan_bins
from tests.parts.building import build
from tests.serve.parts import Served
from tests.web.parts import see, showing

RANGE = {"begin": "2026-11-15T11:59:00Z", "end": "2026-11-15T13:00:00Z"}
MARKUP = "<svg onload=alert(1)>"


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


def data_of(served: Served, **asked: str) -> Any:
    answer = served.ask("GET", f"/measures.json?{urlencode(RANGE | asked)}")
    assert answer.status == 200, answer.body
    return answer.json()


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
    for service, metric in metrics_of(sent):
        for point in getattr(metric, metric.WhichOneof("data")).data_points:
            if point.flags:
                continue
            if metric.name == "process.cpu.utilization" and math.isfinite(point.as_double):
                values[service].append(point.as_double)
            if metric.name == "network.io":
                number = point.as_double or point.as_int
                bytes_sent[service] += number if math.isfinite(number) else 0
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
        total = sum(v for v in line["values"] if v is not None) * chart["bin_seconds"]
        assert total == pytest.approx(bytes_sent[line["name"]])


def test_markup_and_wrong_wishes(served: Served) -> None:
    page = see(served.ask("GET", f"/measures?{urlencode(RANGE | {'name': MARKUP, 'by': MARKUP})}"))
    assert MARKUP not in page.html
    assert page.text.count(MARKUP) > 4
    assert "2.5" in page.text
    assert see(served.ask("GET", f"/measures?{urlencode(RANGE | {'name': 'no'})}"), 404)
    wrong = {"name": "network.io", "by": "<b>"}
    assert "<b>" not in see(served.ask("GET", f"/measures?{urlencode(RANGE | wrong)}"), 400).html
    assert see(served.ask("GET", "/measures?way=sideways"), 400)
    assert "newest point" in see(served.ask("GET", "/measures?begin=1s")).text


BEGIN = to_instant("2026-11-15T12:00:00Z")
WITHIN = TimeRange(BEGIN, BEGIN + 600 * SECOND)


def point(at: int, value: float, *, series: str = "a", start: int = 0, **more: Any) -> Point:
    return Point(BEGIN + at * SECOND, series, "all", start * 1000, value, **more)


def rates(points: list[Point]) -> dict[float, float]:
    """Bins, as seconds from the begin, and what was counted in them."""
    bins = plan_bins(WITHIN, 12)
    lines = plan_lines(points, bins, WITHIN, "rate", is_cumulative=True)
    return {
        (bins.begin_of(number) - BEGIN) / SECOND: value * bins.width / SECOND
        for line in lines
        for number, value in enumerate(line.values)
        if value is not None
    }


def test_counters_are_taken_apart() -> None:
    grown = [point(0, 100), point(60, 107), point(120, 110)]
    assert rates(grown) == pytest.approx({60: 7, 120: 3})
    assert rates(list(reversed(grown))) == rates(grown)
    restarted = [point(0, 100), point(60, 107), point(120, 4, start=BEGIN)]
    assert rates(restarted) == pytest.approx({60: 7, 120: 4})
    fallen = [point(0, 100), point(60, 2)]  # a restart that did not say so
    assert rates(fallen) == pytest.approx({60: 2})
    new = [point(60, 5, start=BEGIN)]
    assert rates(new) == pytest.approx({60: 5})
    both = [*grown, *(point(at, 10 * at, series="b") for at in (0, 60, 120))]
    assert rates(both) == pytest.approx({60: 607, 120: 603})


def test_distributions_are_their_mean() -> None:
    bins = plan_bins(WITHIN, 12)
    points = [
        Point(BEGIN, "a", "all", 0, None, 10, 100),
        Point(BEGIN + 60 * SECOND, "a", "all", 0, None, 14, 180),
    ]
    (line,) = plan_lines(points, bins, WITHIN, "mean", is_cumulative=True)
    assert [each for each in line.values if each is not None] == [20]
    (line,) = plan_lines(points, bins, WITHIN, "mean", is_cumulative=False)
    assert [each for each in line.values if each is not None] == [10, 180 / 14]
    assert [choose_way("gauge", None), choose_way("sum", True), choose_way("sum", False)] == [
        "value",
        "rate",
        "value",
    ]
