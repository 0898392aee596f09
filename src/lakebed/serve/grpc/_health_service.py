"""The standard health service of gRPC, which load balancers ask."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc

from lakebed.serve.health import Health

_WATCH_SECONDS = 1.0
_SERVING, _NOT_SERVING, _SERVICE_UNKNOWN = b"\x08\x01", b"\x08\x02", b"\x08\x03"
"""Each a HealthCheckResponse."""
_log = logging.getLogger(__name__)


def make_health_service(health: Health, services: set[str]) -> grpc.GenericRpcHandler:
    """Return ``grpc.health.v1.Health`` for these services and the server as a whole."""

    async def look() -> bytes:
        try:
            await health.require()
        except Exception as error:  # noqa: BLE001  (another server may do better)
            _log.warning("not healthy: %s", error)
            return _NOT_SERVING
        return _SERVING

    async def check(request: bytes, context: Any) -> bytes:
        if not _is_known(request, services):
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service here")
        return await look()

    async def watch(request: bytes, context: Any) -> None:
        sent = None
        while sent == _SERVING or not health.draining:
            status = await look() if _is_known(request, services) else _SERVICE_UNKNOWN
            if status != sent:
                await context.write(status)
            sent = status
            await asyncio.sleep(_WATCH_SECONDS)

    return grpc.method_handlers_generic_handler(
        "grpc.health.v1.Health",
        {
            "Check": grpc.unary_unary_rpc_method_handler(check),
            "Watch": grpc.unary_stream_rpc_method_handler(watch),
        },
    )


def _is_known(request: bytes, services: set[str]) -> bool:
    """Return True if a HealthCheckRequest names a known service. It has one field, the name; an
    empty one asks for the server."""
    if not request:
        return True
    name = request[2:].decode(errors="replace")
    return request[:1] == b"\n" and len(request) - 2 == request[1] and name in services
