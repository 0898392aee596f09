"""What the real OpenTelemetry Python SDK makes: requests through its encoders, and what its HTTP
exporters put on the wire.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import Observation
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import (
    InMemoryLogRecordExporter,
    LogRecordExporter,
    SimpleLogRecordProcessor,
)
from opentelemetry.sdk.metrics import AlwaysOnExemplarFilter, Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    InMemoryMetricReader,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanKind, Status, StatusCode

RESOURCE = Resource(
    {
        "service.name": "tests",
        "service.namespace": "lakebed",
        "host.name": "rechner-ü",
        "process.owner": "nobody",
        "process.pid": 4711,
        "process.command_args": ["python", "-m", "tests"],
        "load": 0.5,
        "container": False,
    },
    schema_url="https://opentelemetry.io/schemas/1.38.0",
)
LOG_RECORDS, SPANS = 4, 3


def logs_request() -> Any:
    """The request that the SDK's encoder makes of some log records."""
    memory = InMemoryLogRecordExporter()
    _emit_logs(memory)
    return encode_logs(memory.get_finished_logs())


def traces_request() -> Any:
    """The request that the SDK's encoder makes of some spans."""
    memory = InMemorySpanExporter()
    _emit_spans(memory)
    return encode_spans(memory.get_finished_spans())


def metrics_request(*, delta: bool = False) -> Any:
    """The request that the SDK's encoder makes of every instrument; no summaries exist there."""
    kinds = {Histogram: AggregationTemporality.DELTA} if delta else None
    reader = InMemoryMetricReader(preferred_temporality=kinds)
    provider = _metered(reader)
    request = encode_metrics(reader.get_metrics_data())
    provider.shutdown()
    return request


def export_all(endpoint: str, *, compressed: bool) -> None:
    """Sends logs, metrics and traces with the SDK's own HTTP exporters."""
    compression = Compression.Gzip if compressed else Compression.NoCompression
    _emit_logs(OTLPLogExporter(f"{endpoint}/v1/logs", compression=compression))
    _emit_spans(OTLPSpanExporter(f"{endpoint}/v1/traces", compression=compression))
    exporter = OTLPMetricExporter(f"{endpoint}/v1/metrics", compression=compression)
    _metered(PeriodicExportingMetricReader(exporter, export_interval_millis=1e6)).shutdown()


@contextmanager
def listening() -> Iterator[tuple[str, list[tuple[str, dict[str, str], bytes]]]]:
    """An HTTP server on the loopback that says yes to everything and keeps what it got."""
    received: list[tuple[str, dict[str, str], bytes]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            received.append((self.path, headers, body))
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", received
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _emit_logs(exporter: LogRecordExporter) -> None:
    provider = LoggerProvider(resource=RESOURCE, shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    logger = provider.get_logger("tests.logs", "1.0", "https://example.com/schema", {"a": 1})
    for number, body in enumerate(("plain", {"k": [1, None, 2.5, b"\x00\xff"]}, 7, "größer 🚀")):
        logger.emit(
            LogRecord(
                timestamp=1_794_744_000_000_000_000 + number,
                observed_timestamp=1_794_744_000_000_001_000,
                severity_number=SeverityNumber.ERROR if number == 2 else SeverityNumber.INFO,
                severity_text="INFO",
                body=body,
                attributes={"number": number, "list": ["x", "y"], "ok": True, "raw": b"\x01"},
                event_name="tests.event" if number else None,
            )
        )
    provider.shutdown()


def _emit_spans(exporter: SpanExporter) -> None:
    provider = TracerProvider(resource=RESOURCE, shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("tests.spans", "1.0")
    with tracer.start_as_current_span("root", kind=SpanKind.SERVER) as root:
        root.set_attributes({"route": "/", "sizes": [1, 2], "ratio": 0.25})
        link = Link(root.get_span_context(), {"why": "because"})
        with tracer.start_as_current_span("child", kind=SpanKind.CLIENT, links=[link]) as child:
            child.add_event("happened", {"attempt": 1})
            child.set_status(Status(StatusCode.ERROR, "kaputt"))
        with tracer.start_as_current_span("failing") as failing:
            failing.record_exception(ValueError("no"))
    provider.shutdown()


def _metered(reader: Any) -> MeterProvider:
    """A provider that has measured with every instrument, some with exemplars."""
    provider = MeterProvider(
        metric_readers=[reader],
        resource=RESOURCE,
        shutdown_on_exit=False,
        exemplar_filter=AlwaysOnExemplarFilter(),
        views=[
            View(instrument_name="latency.exp", aggregation=ExponentialBucketHistogramAggregation())
        ],
    )
    meter = provider.get_meter("tests.metrics", "1.0")
    counter = meter.create_counter("requests", "{request}", "how many")
    counter.add(3, {"route": "/"})
    counter.add(4, {"route": "/x"})
    meter.create_up_down_counter("queue", "1").add(-2.5)
    meter.create_gauge("temperature", "Cel").set(-3.25, {"where": "außen"})
    meter.create_observable_gauge("seen", [lambda _: [Observation(5, {"n": 1})]])
    for name in ("latency", "latency.exp"):
        histogram = meter.create_histogram(name, "ms")
        for value in (0, 1, 20.5, 300):
            histogram.record(value, {"route": "/"})
    return provider
