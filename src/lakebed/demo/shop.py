"""A shop of five services, instrumented with the OpenTelemetry SDK in the usual way. Each service
has its own providers; requests between services carry the trace in their headers. All telemetry has
simulated times, so that half an hour of customers takes seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from random import Random

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, Observation
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Link, SpanContext, SpanKind, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from lakebed.demo.past import Clock, PastExporter
from lakebed.demo.visits import PAYMENT, PRODUCTS, SERVICES, WAREHOUSE, Step, plan_visit

_SCOPE = "shop"
_MS = 1_000_000
_NETWORK_NS = _MS // 2
_MOST_WAITING = 100_000
"""More records than are sent between two flushes, so that none is dropped."""
_PARCELS = 5


class NoAnswer(Exception):
    """Raised by a service whose peer does not answer."""


class _Service:
    """One service's OpenTelemetry providers and instruments."""

    def __init__(self, name: str, endpoint: str, seconds: float, clock: Clock) -> None:
        resource = Resource.create(
            {"service.name": name, "service.namespace": _SCOPE, "service.version": "2.4.0"}
        )
        spans = BatchSpanProcessor(
            OTLPSpanExporter(f"{endpoint}/v1/traces"),
            max_queue_size=_MOST_WAITING,
            schedule_delay_millis=1000 * seconds,
        )
        lines = BatchLogRecordProcessor(
            OTLPLogExporter(f"{endpoint}/v1/logs"),
            max_queue_size=_MOST_WAITING,
            schedule_delay_millis=1000 * seconds,
        )
        reader = PeriodicExportingMetricReader(
            PastExporter(f"{endpoint}/v1/metrics", clock), export_interval_millis=5000 * seconds
        )
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._traces.add_span_processor(spans)
        self._logs = LoggerProvider(resource=resource, shutdown_on_exit=False)
        self._logs.add_log_record_processor(lines)
        self._meters = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
        self.tracer = self._traces.get_tracer(_SCOPE)
        self.logger = self._logs.get_logger(_SCOPE)
        self.meter = self._meters.get_meter(_SCOPE)

    def flush(self) -> None:
        self._traces.force_flush()
        self._logs.force_flush()
        self._meters.force_flush()

    def measure(self) -> None:
        self._meters.force_flush()

    def close(self) -> None:
        self._traces.shutdown()
        self._logs.shutdown()
        self._meters.shutdown()


class Shop:
    """A shop that serves customers drawn from a seed. ``sent`` counts the records given to
    OpenTelemetry."""

    def __init__(self, endpoint: str, seed: int, seconds: float = 1) -> None:
        self.sent: Counter[str] = Counter()
        self._chance = Random(seed)  # noqa: S311
        self._clock = Clock()
        self._services = {name: _Service(name, endpoint, seconds, self._clock) for name in SERVICES}
        self._headers = TraceContextTextMapPropagator()
        self._durations = {
            name: service.meter.create_histogram(
                "http.server.request.duration",
                unit="s",
                description="How long requests took.",
                explicit_bucket_boundaries_advisory=[
                    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10,
                ],
            )
            for name, service in self._services.items()
        }  # fmt: skip
        self._payments = self._services[PAYMENT].meter.create_counter(
            "shop.payments", unit="{payment}", description="Payments by what became of them."
        )
        self._stock = dict.fromkeys(PRODUCTS, 500)
        self._services[WAREHOUSE].meter.create_observable_gauge(
            "shop.stock", [self._observe_stock], unit="{item}", description="What is left to sell."
        )
        self._reserved: list[SpanContext] = []

    def _observe_stock(self, _options: CallbackOptions) -> Iterable[Observation]:
        return [Observation(stock, {"shop.product": name}) for name, stock in self._stock.items()]

    def visit(self, begin_ns: int) -> None:
        """Serve one customer's request, which came at that time."""
        visit = plan_visit(self._chance)
        end_ns = self._perform(visit, {}, begin_ns)
        self.sent["visits"] += 1
        if len(self._reserved) >= _PARCELS:
            self._pack(end_ns)

    def _perform(self, step: Step, headers: dict[str, str], begin_ns: int) -> int:
        """Perform a step and its requests to other services. Return its end."""
        service = self._services[step.service]
        span = service.tracer.start_span(
            step.name,
            self._headers.extract(headers),
            SpanKind.SERVER,
            dict(step.attributes),
            start_time=begin_ns,
        )
        self.sent["spans"] += 1
        inside = set_span_in_context(span)
        half = int(step.milliseconds * _MS / 2)
        now = begin_ns + half
        for call in step.calls:
            asking = service.tracer.start_span(
                f"ask {call.service}", inside, SpanKind.CLIENT, start_time=now
            )
            self.sent["spans"] += 1
            carried: dict[str, str] = {}
            self._headers.inject(carried, set_span_in_context(asking))
            now = self._perform(call, carried, now + _NETWORK_NS) + _NETWORK_NS
            if call.fails is not None:
                asking.set_status(StatusCode.ERROR, call.fails)
            asking.end(now)
        now += half
        for severity, line in step.says:
            service.logger.emit(
                LogRecord(
                    timestamp=now,
                    context=inside,
                    severity_number=SeverityNumber[severity],
                    severity_text=severity,
                    body=line,
                )
            )
            self.sent["log lines"] += 1
        if step.fails is not None:
            span.record_exception(NoAnswer(step.fails), timestamp=now)
            span.set_status(StatusCode.ERROR, step.fails)
        span.end(now)
        self._count(step, (now - begin_ns) / 1e9, span.get_span_context())
        return now

    def _count(self, step: Step, seconds: float, context: SpanContext) -> None:
        if step.route is not None:
            status = step.attributes["http.response.status_code"]
            about = {"http.route": step.route, "http.response.status_code": status}
            self._durations[step.service].record(seconds, about)
        if step.service == PAYMENT:
            self._payments.add(1, {"payment.outcome": step.attributes["payment.outcome"]})
            self.sent["payments"] += 1
        if step.service == WAREHOUSE:
            product = str(step.attributes["shop.product"])
            self._stock[product] = self._stock[product] - 1 or 500
            self._reserved.append(context)

    def _pack(self, begin_ns: int) -> None:
        """Pack the reserved items later, together: a trace of its own, with links to all
        reservations."""
        links = [Link(context) for context in self._reserved]
        self._reserved.clear()
        span = self._services[WAREHOUSE].tracer.start_span(
            "pack parcels", kind=SpanKind.CONSUMER, links=links, start_time=begin_ns
        )
        span.add_event("label printed", timestamp=begin_ns + 30 * _MS)
        span.end(begin_ns + 80 * _MS)
        self.sent["spans"] += 1

    def set_clock(self, now_ns: int | None) -> None:
        """Set the time of what was counted so far and of what follows; None is the present. The
        first time set is the beginning of the counters."""
        if self._clock.since_ns is None:
            self._clock.since_ns = now_ns
        self._clock.now_ns = now_ns
        for service in self._services.values():
            service.measure()

    def flush(self) -> None:
        """Send all pending records and wait until they are accepted."""
        for service in self._services.values():
            service.flush()

    def close(self) -> None:
        """Send the rest, and close."""
        for service in self._services.values():
            service.close()
