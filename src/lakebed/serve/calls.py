"""What every service on gRPC shares: who may call, how errors are told, and the server itself."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import grpc

from lakebed.access.keys import ANYBODY, Caller
from lakebed.client import failing
from lakebed.errors import Denied, LakebedError, Unauthenticated, Unavailable
from lakebed.serve.answers import RETRY_SECONDS, conceal, describe, find_status, note_denial
from lakebed.serve.bodies import MOST_BYTES

if TYPE_CHECKING:
    from lakebed.lake import Lake
    from lakebed.serve.meters import Meters

_CODES = {each.value[0]: each for each in grpc.StatusCode}
_OPTIONS = [
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_metadata_size", 64 << 10),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.so_reuseport", 0),
]
_log = logging.getLogger(__name__)


class Gatekeeper:
    """Who may call what, and how errors are told, for every service on gRPC."""

    def __init__(self, lake: Lake, meters: Meters, *, with_keys: bool) -> None:
        self._lake = lake
        self.meters = meters
        self._with_keys = with_keys

    def identify(self, context: grpc.ServicerContext) -> Caller:
        """Who calls; `Unauthenticated` if nobody knows."""
        if not self._with_keys:
            return ANYBODY
        metadata = {key.lower(): value for key, value in context.invocation_metadata()}
        kind, _, secret = str(metadata.get("authorization", "")).partition(" ")
        if kind.lower() != "bearer" or not secret:
            raise Unauthenticated(
                "a key is needed", hint="set LAKEBED_KEY, or send: authorization: Bearer KEY"
            )
        return self._lake.keys.check(secret.strip())

    def refuse(
        self,
        context: grpc.ServicerContext,
        error: Exception,
        route: str,
        caller: Caller | None = None,
    ) -> None:
        """End a call with the status of an error; never with a traceback."""
        _, code = find_status(error)
        self.meters.requests.labels(route, str(code)).inc()
        if not isinstance(error, LakebedError):
            _log.error("call failed: %s", error, exc_info=True)
        elif isinstance(error, Unauthenticated | Denied):
            note_denial(error, route, caller)
        elif isinstance(error, Unavailable):
            _log.error("call failed: %s", error)
        error = conceal(error)
        trailers: list[tuple[str, str | bytes]] = []
        if isinstance(error, Unavailable):
            trailers.append(("retry-after", str(RETRY_SECONDS)))
        if isinstance(error, LakebedError):
            trailers.append((failing.TRAILER, failing.encode_error(error, code)))
        context.set_trailing_metadata(tuple(trailers))
        context.abort(_CODES[code], failing.shorten(describe(error)))


_SERVING = b"\x08\x01"
"""A HealthCheckResponse that says so."""


def make_health() -> grpc.GenericRpcHandler:
    """The health service that load balancers ask; whoever is answered is answered well."""

    def check(_request: bytes, _context: grpc.ServicerContext) -> bytes:
        return _SERVING

    handler = grpc.unary_unary_rpc_method_handler(check)
    return grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler})


def make_server(
    address: str,
    handlers: Sequence[grpc.GenericRpcHandler],
    *,
    threads: int = 64,
    certificate: tuple[bytes, bytes] | None = None,
) -> tuple[grpc.Server, int]:
    """A server that is not started yet, and its port. ``certificate`` is its key and its chain."""
    pool = ThreadPoolExecutor(threads, thread_name_prefix="lakebed-grpc")
    server = grpc.server(pool, options=_OPTIONS, maximum_concurrent_rpcs=1024)
    server.add_generic_rpc_handlers(handlers)
    if certificate is None:
        port = server.add_insecure_port(address)
    else:
        port = server.add_secure_port(address, grpc.ssl_server_credentials([certificate]))
    return server, port
