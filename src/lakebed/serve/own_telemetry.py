"""The server's own telemetry, in the lake that it serves: its warnings as logs, its meters as
metrics, of the service ``lakebed``.

Messages that are logged while it writes are not written, so that writing never causes more of it;
between two writes it keeps only a limited number of messages.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, SeverityNumber
from opentelemetry.proto.metrics.v1 import metrics_pb2 as otlp

from lakebed.logs import LOGGER, mask_secrets, read_extra
from lakebed.model.signal import Signal

if TYPE_CHECKING:
    from prometheus_client.core import Metric
    from prometheus_client.samples import Sample

    from lakebed.lake import Lake
    from lakebed.serve.meters import Meters

_MOST_RECORDS = 1000
_OWN = "lakebed.serve"
_CUMULATIVE = otlp.AGGREGATION_TEMPORALITY_CUMULATIVE
_log = logging.getLogger(__name__)


class OwnTelemetry(logging.Handler):
    """Writes a server's telemetry into its lake every so often, until it is closed."""

    def __init__(self, lake: Lake, meters: Meters, every_seconds: float) -> None:
        super().__init__()
        self._lake = lake
        self._meters = meters
        self._every_seconds = every_seconds
        self._begun = time.time_ns()
        self._records: deque[LogRecord] = deque(maxlen=_MOST_RECORDS)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="lakebed-own-telemetry")

    def start(self) -> None:
        """Start to collect the server's log messages."""
        logger = logging.getLogger(_OWN)
        if not logger.isEnabledFor(logging.INFO):
            logger.setLevel(logging.INFO)
        logging.getLogger(LOGGER).addHandler(self)
        self._thread.start()

    def close(self) -> None:
        """Write the rest, and stop to listen."""
        logging.getLogger(LOGGER).removeHandler(self)
        self._stop.set()
        if self._thread.ident is not None:  # handlers are closed at exit, also before a start
            self._thread.join()
        super().close()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep warnings, and the server's own messages about its life."""
        lowest_level = logging.INFO if record.name.startswith(_OWN) else logging.WARNING
        about_this = record.name == __name__ or record.thread == self._thread.ident
        if record.levelno >= lowest_level and not about_this:
            self._records.append(_as_otlp(record))

    def _run(self) -> None:
        while not self._stop.wait(self._every_seconds):
            self._write()
        self._write()

    def _write(self) -> None:
        """Write the logs and meters. A failure is logged on stderr only; the logs are tried again
        with the next ones."""
        records = [self._records.popleft() for _ in range(len(self._records))]
        try:
            if records:
                self._lake.telemetry.land(Signal.LOGS, _logs(records))
            self._lake.telemetry.land(Signal.METRICS, self._metrics())
        except Exception as error:  # noqa: BLE001  (this thread continues)
            _log.warning("the server cannot write its own telemetry: %s", error)
            self._records.extendleft(reversed(records[: _MOST_RECORDS - len(self._records)]))

    def _metrics(self) -> bytes:
        request = ExportMetricsServiceRequest()
        resource = request.resource_metrics.add()
        resource.resource.attributes.extend(_who())
        scope = resource.scope_metrics.add()
        scope.scope.name = _OWN
        now = time.time_ns()
        for metric in self._meters.registry.collect():
            otlp_metric = as_otlp_metric(metric, self._begun, now)
            if otlp_metric is not None:
                scope.metrics.append(otlp_metric)
        return bytes(request.SerializeToString())


def _who() -> list[KeyValue]:
    return _attributes(
        {
            "service.name": "lakebed",
            "service.version": version("lakebed"),
            "host.name": socket.gethostname(),
        }.items()
    )


def _attributes(pairs: Iterable[tuple[str, object]]) -> list[KeyValue]:
    return [
        KeyValue(key=name, value=AnyValue(string_value=str(value)[:4096])) for name, value in pairs
    ]


def _logs(records: list[LogRecord]) -> bytes:
    request = ExportLogsServiceRequest()
    resource = request.resource_logs.add()
    resource.resource.attributes.extend(_who())
    scope = resource.scope_logs.add()
    scope.scope.name = LOGGER
    scope.log_records.extend(records)
    return bytes(request.SerializeToString())


def _as_otlp(record: logging.LogRecord) -> LogRecord:
    severity = {
        logging.INFO: SeverityNumber.SEVERITY_NUMBER_INFO,
        logging.WARNING: SeverityNumber.SEVERITY_NUMBER_WARN,
    }.get(record.levelno, SeverityNumber.SEVERITY_NUMBER_ERROR)
    figures = {
        name: mask_secrets(value) if isinstance(value, str) else value
        for name, value in read_extra(record).items()
    }
    attributes = {"logger": record.name, "thread": record.threadName, **figures}
    return LogRecord(
        time_unix_nano=int(record.created * 1e9),
        observed_time_unix_nano=int(record.created * 1e9),
        severity_number=severity,
        severity_text=record.levelname,
        body=AnyValue(string_value=mask_secrets(record.getMessage())[:4096]),
        attributes=_attributes(attributes.items()),
    )


def as_otlp_metric(metric: Metric, since: int, now: int) -> otlp.Metric | None:
    """Return a metric of OpenMetrics in OTLP's terms; None if it has no points."""
    otlp_metric = otlp.Metric(name=metric.name, description=metric.documentation)
    points = [sample for sample in metric.samples if not sample.name.endswith("_created")]
    if not points:
        return None
    if metric.type == "counter":
        otlp_metric.sum.aggregation_temporality = _CUMULATIVE
        otlp_metric.sum.is_monotonic = True
        otlp_metric.sum.data_points.extend(_point(sample, now, since) for sample in points)
    elif metric.type == "histogram":
        otlp_metric.histogram.aggregation_temporality = _CUMULATIVE
        otlp_metric.histogram.data_points.extend(_histograms(metric.name, points, since, now))
    else:
        otlp_metric.gauge.data_points.extend(_point(sample, now) for sample in points)
    return otlp_metric


def _point(sample: Sample, now: int, since: int = 0) -> otlp.NumberDataPoint:
    return otlp.NumberDataPoint(
        attributes=_attributes(sample.labels.items()),
        start_time_unix_nano=since,
        time_unix_nano=now,
        as_double=sample.value,
    )


def _histograms(
    name: str, samples: list[Sample], since: int, now: int
) -> Iterable[otlp.HistogramDataPoint]:
    """One point for each set of labels: OpenMetrics counts up to each bound, OTLP between them."""
    points: dict[tuple[tuple[str, str], ...], otlp.HistogramDataPoint] = {}
    for sample in samples:
        labels = tuple((key, value) for key, value in sample.labels.items() if key != "le")
        point = points.setdefault(
            labels,
            otlp.HistogramDataPoint(
                attributes=_attributes(labels), start_time_unix_nano=since, time_unix_nano=now
            ),
        )
        if sample.name == f"{name}_sum":
            point.sum = sample.value
        elif sample.name == f"{name}_count":
            point.count = int(sample.value)
        elif sample.labels["le"] == "+Inf":
            point.bucket_counts.append(int(sample.value) - sum(point.bucket_counts))
        else:
            point.explicit_bounds.append(float(sample.labels["le"]))
            point.bucket_counts.append(int(sample.value) - sum(point.bucket_counts))
    return points.values()
