"""The samples' front door: OTLP requests of any size from a seed.

generator = Generator(seed=7)
request = generator.logs(1000)
for body in generator.stream("logs", requests=10_000, size=1000): ...
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from lakebed.samples.attributes import SCHEMA_URL, make_resource, make_scopes
from lakebed.samples.chance import Chance, Skewed
from lakebed.samples.logs import fill_record
from lakebed.samples.metrics import INSTRUMENTS, Totals, fill_metric
from lakebed.samples.templates import Template
from lakebed.samples.traces import SpanTarget, fill_traces
from lakebed.samples.words import SERVICES, Service

Kind = Literal["logs", "metrics", "traces"]

BEGIN_NS = 1_794_744_000_000_000_000
"""2026-11-15T12:00:00Z, when the samples begin unless told otherwise."""


@dataclass(frozen=True, slots=True)
class _Instance:
    number: int
    service: Service
    resource: Resource
    scopes: list[InstrumentationScope]


class Generator:
    """A source of OTLP requests; each request begins in time where the previous one ended."""

    def __init__(self, seed: int, *, begin_ns: int = BEGIN_NS) -> None:
        self._begin_ns = begin_ns
        self._chance = Chance(seed, begin_ns)
        self._totals: Totals = {}
        instances: list[list[_Instance]] = []
        number = 0
        for service in SERVICES:
            instances.append([])
            for index in range(service.instances):
                resource = make_resource(self._chance, service, index)
                instance = _Instance(number, service, resource, make_scopes(service))
                instances[-1].append(instance)
                number += 1
        self._services = instances

    @property
    def now_ns(self) -> int:
        """The instant that the samples have reached."""
        return self._chance.now_ns

    def logs(self, records: int, *, services: int = 3) -> ExportLogsServiceRequest:
        """A request of so many log records from so many services (fewer, if records run out)."""
        request = ExportLogsServiceRequest()
        for instance, share in self._shares(records, services):
            group = request.resource_logs.add(resource=instance.resource, schema_url=SCHEMA_URL)
            scopes = [group.scope_logs.add(scope=scope) for scope in instance.scopes]
            scopes[0].schema_url = SCHEMA_URL
            lists = Skewed([scope.log_records for scope in scopes])
            operations = Skewed(instance.service.operations)
            chance = self._chance
            for _ in range(share):
                fill_record(lists.pick(chance).add(), chance, operations.pick(chance))
        return request

    def metrics(self, points: int, *, services: int = 3) -> ExportMetricsServiceRequest:
        """A request of so many data points; 13 per service are enough to see every kind."""
        request = ExportMetricsServiceRequest()
        for instance, share in self._shares(points, services):
            group = request.resource_metrics.add(resource=instance.resource, schema_url=SCHEMA_URL)
            scopes = [group.scope_metrics.add(scope=scope) for scope in instance.scopes]
            base_count, more = divmod(share, len(INSTRUMENTS))
            for order, instrument in enumerate(INSTRUMENTS):
                count = base_count + (order < more)
                if count:
                    fill_metric(
                        scopes[order % len(scopes)].metrics.add(),
                        self._chance,
                        instrument,
                        count,
                        operations=instance.service.operations,
                        instance=instance.number,
                        begin_ns=self._begin_ns,
                        totals=self._totals,
                    )
        return request

    def traces(self, spans: int, *, services: int = 3) -> ExportTraceServiceRequest:
        """A request of so many spans in trees that go through so many services."""
        request = ExportTraceServiceRequest()
        targets = []
        for instance, _ in self._shares(spans, services):
            group = request.resource_spans.add(resource=instance.resource, schema_url=SCHEMA_URL)
            scopes = [group.scope_spans.add(scope=scope) for scope in instance.scopes]
            targets.append(SpanTarget(instance.service.operations, scopes))
        if targets:
            fill_traces(targets, self._chance, spans)
        return request

    def make(self, kind: Kind, size: int, *, services: int = 3) -> Any:
        """The request that `logs`, `metrics` or `traces` makes."""
        methods = {"logs": self.logs, "metrics": self.metrics, "traces": self.traces}
        return methods[kind](size, services=services)

    def serialized(self, kind: Kind, size: int, *, services: int = 3) -> bytes:
        """The bytes of such a request, as a sender posts them."""
        return cast(bytes, self.make(kind, size, services=services).SerializeToString())

    def stream(
        self, kind: Kind, *, requests: int, size: int, services: int = 3, templates: int = 8
    ) -> Iterator[bytes]:
        """Yield so many different requests as bytes, cheaply: a few are made, the others vary them.

        Times advance from request to request. No two are the same, but their texts, apart from the
        ids in them, repeat; raise ``templates`` for more variety.
        """
        pool = [
            Template(self.make(kind, size, services=services))
            for _ in range(min(requests, templates))
        ]
        lap_ns = len(pool) * max((template.lasts_ns for template in pool), default=0)
        if pool:
            self._chance.now_ns += lap_ns * ((requests - 1) // len(pool))
        patterns = Chance(self._chance.below(1 << 62), 0)
        for number in range(requests):
            template = pool[number % len(pool)]
            lap = number // len(pool)
            pattern = int.from_bytes(patterns.trace_id(), "big") if lap else 0
            yield template.vary(pattern, lap * lap_ns)

    def _shares(self, total: int, services: int) -> list[tuple[_Instance, int]]:
        """Return the instances that send, each with its share of the total: skewed, at least one
        each."""
        senders = []
        for number in range(max(1, min(services, total))):
            # The first services by rank, so that few services mean the important ones.
            instances = self._services[number % len(self._services)]
            senders.append(Skewed(instances).pick(self._chance))
        shares = []
        remaining = total
        for behind in range(len(senders) - 1, -1, -1):
            share = max(1, remaining // 2) if behind else remaining
            share = min(share, remaining - behind)
            shares.append(share)
            remaining -= share
        return list(zip(senders, shares, strict=True)) if total > 0 else []
