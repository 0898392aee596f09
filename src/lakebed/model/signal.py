"""The three kinds of telemetry that OTLP carries, each with a request message of its own."""

from __future__ import annotations

import enum


class Signal(enum.StrEnum):
    """What an OTLP request holds, spelled as in its path: ``/v1/logs``."""

    LOGS = "logs"
    METRICS = "metrics"
    TRACES = "traces"
