"""OTLP over gRPC: the same landing as over HTTP, acknowledged when it is durable. Requests stay
bytes: they land as they were sent, and are decoded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc

from lakebed.access.keys import Role
from lakebed.model.signal import Signal
from lakebed.serve.grpc.calls import Call, Calls, Handlers

if TYPE_CHECKING:
    from lakebed.lake import Lake
    from lakebed.serve.meters import Meters


def make_services(lake: Lake, calls: Calls, meters: Meters) -> Handlers:
    """Return the three Export calls of OTLP, by the names of their services."""
    return {
        signal.spec.service: grpc.method_handlers_generic_handler(
            signal.spec.service, {"Export": _exporter(lake, calls, meters, signal)}
        )
        for signal in Signal
    }


def _exporter(lake: Lake, calls: Calls, meters: Meters, signal: Signal) -> grpc.RpcMethodHandler:
    def export(body: bytes, _call: Call) -> bytes:
        receipt = lake.telemetry.land(signal, body)
        meters.records.labels(signal.value).inc(receipt.records)
        meters.bytes.labels(signal.value).inc(len(body))
        return b""

    return calls.unary(f"grpc {signal.value}", Role.INGEST, export)
