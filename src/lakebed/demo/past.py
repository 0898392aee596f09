"""Metrics of a past time. The SDK stamps measurements with the time at which they are sent; a shop
that sends its last half hour in a few seconds must set the time itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import MetricExportResult, MetricsData

_INSIDE = ("resource_metrics", "scope_metrics", "metrics", "data", "data_points")


@dataclass(slots=True)
class Clock:
    """The time at which measurements are taken."""

    since_ns: int | None = None
    """The beginning of the counters; None for the SDK's."""
    now_ns: int | None = None
    """None for the present."""


class PastExporter(OTLPMetricExporter):
    """Sends data points with the times of a clock."""

    def __init__(self, endpoint: str, clock: Clock) -> None:
        super().__init__(endpoint)
        self._clock = clock

    def export(
        self, metrics_data: MetricsData, timeout_millis: float | None = 10_000, **more: Any
    ) -> MetricExportResult:
        """Send the metrics. Return the exporter's result."""
        return super().export(restamp(metrics_data, self._clock), timeout_millis, **more)


def restamp(measured: Any, clock: Clock) -> Any:
    """Return the same metrics with the times of a clock in every data point."""
    if hasattr(measured, "time_unix_nano"):
        start, now = measured.start_time_unix_nano, measured.time_unix_nano
        if start is not None and clock.since_ns is not None:
            start = min(start, clock.since_ns)
        now = now if clock.now_ns is None else clock.now_ns
        return replace(measured, start_time_unix_nano=start, time_unix_nano=now)
    (name,) = (attribute for attribute in _INSIDE if hasattr(measured, attribute))
    inside = getattr(measured, name)
    if name == "data":
        return replace(measured, data=restamp(inside, clock))
    return replace(measured, **{name: [restamp(part, clock) for part in inside]})
