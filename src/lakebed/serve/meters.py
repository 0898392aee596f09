"""Meters of a server: requests, how long they took, records and bytes, refusals, and the state of
the lake. Names follow OpenMetrics.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from lakebed.catalog import clock, leases, rules
from lakebed.catalog.leases import LeaseKind
from lakebed.catalog.records import blocks, duties
from lakebed.catalog.records.duties import DutyState
from lakebed.errors import LakebedError
from lakebed.upkeep.duties import DUTIES
from lakebed.upkeep.lag import find_unbuilt

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
        self._state = _LakeState(lake)
        self.registry.register(self._state)

    def show(self) -> bytes:
        """Return all meters as OpenMetrics text."""
        return _show(self.registry)

    def show_without_lake(self) -> bytes:
        """Return the meters that need no catalog, for when it does not respond."""
        registry = CollectorRegistry()
        for meter in (self.requests, self.seconds, self.records, self.bytes, self.waiting):
            registry.register(meter)
        registry.register(_Unseen(self._state))
        return _show(registry)


def _show(registry: CollectorRegistry) -> bytes:
    text: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return text


class _LakeState(Collector):
    """The state of the lake in the catalog, read when the meters are collected."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def collect(self) -> Iterator[Metric]:
        yield from self.show_queue()
        try:
            with self._lake.catalog.read() as connection:
                now = clock.upcoming(connection)
                landed = blocks.last_insert_time(connection)
                unbuilt = find_unbuilt(connection)
                overdue = rules.oldest_overdue(connection)
                overdue_files = rules.count_overdue(connection)
                lease_list = leases.list_leases(connection)
                duty_states = duties.list_states(connection)
        except LakebedError:
            yield _catalog_is_up(0)
            return
        yield _catalog_is_up(1)
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
            "lakebed_overdue_files",
            "Retired files past their grace period that are not swept yet.",
            overdue_files,
        )
        yield _labelled(
            "lakebed_pipeline_lag_seconds",
            "How long ago the oldest block landed that a view set is not built of; 0 if none.",
            "view_set",
            {name: now - (first or now) for name, first in unbuilt.items()},
        )
        ages: dict[str, int] = {kind.value: 0 for kind in LeaseKind}
        for lease in lease_list:
            ages[lease.kind.value] = max(ages[lease.kind.value], now - lease.acquired_at)
        yield _labelled(
            "lakebed_lease_age_seconds", "How old the oldest lease of a kind is.", "kind", ages
        )
        yield from self._show_duties(duty_states, now)

    def show_queue(self) -> Iterator[Metric]:
        requests, size = self._lake.telemetry.waiting
        yield GaugeMetricFamily(
            "lakebed_landing_requests", "Requests that wait to be landed.", requests
        )
        yield GaugeMetricFamily("lakebed_landing_bytes", "Bytes that wait to be landed.", size)

    def _show_duties(self, duty_states: Mapping[str, DutyState], now: int) -> Iterator[Metric]:
        states = [duty_states.get(duty.name, DutyState(duty.name)) for duty in DUTIES]
        made_at = self._lake.row.created_at
        yield _labelled(
            "lakebed_duty_age_seconds",
            "How long ago a duty of upkeep succeeded.",
            "duty",
            {e.name: now - e.last_success for e in states if e.last_success is not None},
        )
        yield _labelled(
            "lakebed_duty_overdue_seconds",
            "For how long a duty of upkeep should have been done; 0 if it is not due.",
            "duty",
            {state.name: state.overdue_us(now, made_at) for state in states},
        )
        failing = GaugeMetricFamily(
            "lakebed_duty_failing", "Whether the last run of a duty failed.", labels=["duty"]
        )
        for state in states:
            failing.add_metric([state.name], 0 if state.error is None else 1)
        yield failing


class _Unseen(Collector):
    """The meters of a lake whose catalog does not respond."""

    def __init__(self, state: _LakeState) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        yield from self._state.show_queue()
        yield _catalog_is_up(0)


def _catalog_is_up(value: int) -> Metric:
    return GaugeMetricFamily("lakebed_catalog_up", "Whether the catalog answers.", value)


def _labelled(name: str, meaning: str, label: str, micros: Mapping[str, int]) -> Metric:
    """Return durations, by one label."""
    family = GaugeMetricFamily(name, meaning, labels=[label])
    for value, duration in micros.items():
        family.add_metric([value], duration / _MICROSECONDS)
    return family
