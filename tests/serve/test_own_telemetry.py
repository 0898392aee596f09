"""A server's own telemetry is in its lake: what it warned of, what it counted, and nothing about
writing it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Histogram

from lakebed.errors import Unavailable
from lakebed.lake import Lake
from lakebed.serve.meters import Meters
from lakebed.serve.own_telemetry import OwnTelemetry, as_otlp_metric
from tests.serve.parts import serving

DIALECTS = pytest.mark.parametrize("dialect", ["sqlite"])
SAID = logging.getLogger("lakebed.upkeep.upkeep")


@pytest.fixture
def own(lake: Lake) -> Iterator[OwnTelemetry]:
    made = OwnTelemetry(lake, Meters(lake), every_seconds=3600)
    made.start()
    yield made
    made.close()


def _logs(lake: Lake) -> list[tuple[int, str]]:
    sql = "SELECT level, msg FROM log_entries ORDER BY time"
    return [tuple(row.values()) for row in lake.query(sql).to_arrow().to_pylist()]


@DIALECTS
def test_a_server_tells_of_its_life_and_of_what_goes_wrong(lake: Lake) -> None:
    with serving(lake, own_telemetry_seconds=3600) as served:
        assert served.ask("GET", "/livez").status == 200
        SAID.info("nobody needs to know")
        SAID.warning("a duty failed", extra={"duty": "sweep"})
    told = _logs(lake)
    assert [body for _, body in told] == ["server started", "a duty failed", "server stopped"]
    assert told[1][0] == 3
    counted = lake.query("SELECT value FROM measures WHERE name = 'lakebed_requests'").to_arrow()
    assert counted["value"].to_pylist() == [1]


@DIALECTS
def test_secrets_in_warnings_are_masked(lake: Lake, own: OwnTelemetry) -> None:
    secret = lake.keys.create("shop", ["read"]).secret
    SAID.warning("refused %s", secret, extra={"statement": f"SELECT '{secret}'"})
    own.close()
    rows = lake.query("SELECT msg, properties FROM log_entries").to_arrow().to_pylist()
    assert len(rows) == 1
    assert secret not in str(rows)
    assert secret[:20] in str(rows)


@DIALECTS
def test_writing_it_makes_no_more_of_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if landing complains every time, while the server listens to all that is said."""
    land = lake.telemetry.land
    landed = threading.Semaphore(0)

    def complain(*arguments: object, **more: object) -> object:
        SAID.warning("landing is slow")
        landed.release()
        return land(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(lake.telemetry, "land", complain)
    own = OwnTelemetry(lake, Meters(lake), every_seconds=0.01)
    own.start()
    SAID.warning("once")
    for _ in range(5):
        assert landed.acquire(timeout=300)
    own.close()
    assert [body for _, body in _logs(lake)] == ["once"]


@DIALECTS
def test_what_could_not_be_written_is_written_later(
    lake: Lake, own: OwnTelemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:

        def fail(*_anything: object, **_more: object) -> None:
            raise Unavailable("the store is away")

        patch.setattr(lake.telemetry, "land", fail)
        SAID.warning("first")
        own._write()
    SAID.warning("second")
    own.close()
    assert [body for _, body in _logs(lake)] == ["first", "second"]


def test_only_so_much_is_kept() -> None:
    made = OwnTelemetry(None, None, 1)  # type: ignore[arg-type]
    for place in range(1500):
        made.emit(logging.LogRecord(SAID.name, logging.WARNING, "", 0, str(place), (), None))
    assert len(made._records) == 1000
    assert made._records[-1].body.string_value == "1499"


def test_histograms_count_between_their_bounds() -> None:
    registry = CollectorRegistry()
    histogram = Histogram("h", "h", ["route"], buckets=(1, 2, 4), registry=registry)
    for value in (0.5, 1.5, 1.6, 3, 9):
        histogram.labels("a").observe(value)
    (metric,) = registry.collect()
    made = as_otlp_metric(metric, 1, 2)
    assert made is not None
    (point,) = made.histogram.data_points
    assert list(point.explicit_bounds) == [1, 2, 4]
    assert list(point.bucket_counts) == [1, 2, 1, 1]
    assert (point.count, point.sum) == (5, 15.6)


@DIALECTS
def test_it_goes_on_after_any_failure(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    made = OwnTelemetry(lake, Meters(lake), every_seconds=0.01)
    tried = threading.Semaphore(0)
    land = lake.telemetry.land

    def fail(*_arguments: object, **_more: object) -> None:
        tried.release()
        raise OSError(24, "too many open files")

    monkeypatch.setattr(lake.telemetry, "land", fail)
    made.start()
    SAID.warning("kept for later")
    for _ in range(3):
        assert tried.acquire(timeout=300)
    monkeypatch.setattr(lake.telemetry, "land", land)
    made.close()
    assert [body for _, body in _logs(lake)] == ["kept for later"]
