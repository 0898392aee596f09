"""What a server counts: requests, how long they took, records and bytes, refusals, and how the lake
is doing. Names follow OpenMetrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from lakebed.catalog import blocks, clock, duties, leases, rules
from lakebed.errors import LakebedError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from lakebed.lake import Lake

CONTENT_TYPE = CONTENT_TYPE_LATEST
_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_MICROSECONDS = 1_000_000


class Meters:
    """The counters of one server."""

    def __init__(self, lake: Lake) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "lakebed_requests",
            "Requests, by what they asked for and how they were answered.",
            ["route", "status"],
            registry=self.registry,
        )
        self.seconds = Histogram(
            "lakebed_request_seconds",
            "From the first byte of a request to the last of its answer.",
            ["route"],
            buckets=_BOUNDS,
            registry=self.registry,
        )
        self.records = Counter(
            "lakebed_records",
            "Records acknowledged, by what they are.",
            ["kind"],
            registry=self.registry,
        )
        self.bytes = Counter(
            "lakebed_body_bytes",
            "Bytes of acknowledged bodies, decompressed.",
            ["kind"],
            registry=self.registry,
        )
        self.waiting = Gauge(
            "lakebed_requests_waiting", "Requests that are being answered.", registry=self.registry
        )
        self.registry.register(_LakeState(lake))

    def show(self) -> bytes:
        """All of it as OpenMetrics text."""
        shown: bytes = generate_latest(self.registry)  # type: ignore[no-untyped-call]
        return shown


class _LakeState(Collector):
    """What the catalog says, asked when somebody looks."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def collect(self) -> Iterator[Metric]:
        try:
            with self._lake.catalog.read() as connection:
                now = clock.upcoming(connection)
                landed = blocks.last_insert_time(connection)
                overdue = rules.oldest_overdue(connection)
                held = leases.list_leases(connection)
                known = duties.list_states(connection)
        except LakebedError:
            yield GaugeMetricFamily("lakebed_catalog_up", "Whether the catalog answers.", 0)
            return
        yield GaugeMetricFamily("lakebed_catalog_up", "Whether the catalog answers.", 1)
        yield GaugeMetricFamily(
            "lakebed_last_landed_age_seconds",
            "How long ago the newest block landed; -1 if none did.",
            -1 if landed is None else (now - landed) / _MICROSECONDS,
        )
        yield GaugeMetricFamily(
            "lakebed_overdue_seconds",
            "For how long the oldest file should have been swept.",
            0 if overdue is None else (now - overdue[1]) / _MICROSECONDS,
        )
        yield GaugeMetricFamily(
            "lakebed_oldest_lease_age_seconds",
            "How old the oldest lease is.",
            max(((now - each.acquired_at) / _MICROSECONDS for each in held), default=0),
        )
        age = GaugeMetricFamily(
            "lakebed_duty_age_seconds", "How long ago a duty of upkeep succeeded.", labels=["duty"]
        )
        failing = GaugeMetricFamily(
            "lakebed_duty_failing", "Whether the last run of a duty failed.", labels=["duty"]
        )
        for name, state in known.items():
            if state.last_success is not None:
                age.add_metric([name], (now - state.last_success) / _MICROSECONDS)
            failing.add_metric([name], 0 if state.error is None else 1)
        yield age
        yield failing
