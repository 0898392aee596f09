"""OTLP over gRPC: the same landing as over HTTP, acknowledged when it is durable. Requests are
taken as bytes: what lands is what was sent, and it is decoded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from lakebed.access.keys import Role
from lakebed.catalog.acting import on_behalf_of
from lakebed.model.signal import Signal
from lakebed.serve.calls import Gatekeeper

if TYPE_CHECKING:
    from lakebed.lake import Lake

_SERVICES = {
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
    Signal.METRICS: "opentelemetry.proto.collector.metrics.v1.MetricsService",
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
}


def make_services(lake: Lake, gate: Gatekeeper) -> list[grpc.GenericRpcHandler]:
    """The three Export calls of OTLP."""
    return [
        grpc.method_handlers_generic_handler(service, {"Export": _exporter(lake, gate, signal)})
        for signal, service in _SERVICES.items()
    ]


def _exporter(lake: Lake, gate: Gatekeeper, signal: Signal) -> grpc.RpcMethodHandler:
    route = f"grpc {signal.value}"

    def export(body: bytes, context: grpc.ServicerContext) -> bytes:
        caller = None
        try:
            caller = gate.identify(context)
            caller.require(Role.INGEST)
            with on_behalf_of(caller.asker):
                receipt = lake.telemetry.land(signal, body)
        except Exception as error:  # noqa: BLE001  (told, logged and counted)
            gate.refuse(context, error, route, caller)
            return b""
        gate.meters.requests.labels(route, "0").inc()
        gate.meters.records.labels(signal.value).inc(receipt.records)
        gate.meters.bytes.labels(signal.value).inc(len(body))
        return b""

    return grpc.unary_unary_rpc_method_handler(export)
