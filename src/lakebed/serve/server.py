"""A server of a lake: its ports, its certificates, its upkeep, and an orderly end. Without keys it
listens to this machine only, unless an option opens it to all.
"""

from __future__ import annotations

import ipaddress
import logging
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import uvicorn

from lakebed.errors import BadInput, Refused, Unavailable
from lakebed.lake import Lake
from lakebed.query.embedded.running.spilling import remove_abandoned
from lakebed.serve.flight.service import FlightService
from lakebed.serve.grpc.calls import Calls, Handlers
from lakebed.serve.grpc.otlp import make_services
from lakebed.serve.grpc.port import GrpcPort
from lakebed.serve.guard import Guard
from lakebed.serve.health import Health
from lakebed.serve.http._connections import limit_connections
from lakebed.serve.http.routes import HttpSide
from lakebed.serve.limits import ServerSettings
from lakebed.serve.meters import Meters
from lakebed.serve.own_telemetry import OwnTelemetry
from lakebed.upkeep.upkeep import Upkeep

INGEST, QUERY, PIPELINE, WEB = "ingest", "query", "pipeline", "web"
ROLES = (INGEST, QUERY, PIPELINE, WEB)
_ONCE_MORE_SECONDS = 0.2
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listening:
    """The addresses that a server listens on, and its options."""

    host: str = "127.0.0.1"
    port: int = 4318
    otlp_port: int | None = 4317
    flight_port: int | None = 50051
    """Ports of OTLP over gRPC and of FlightSQL; 0 for any that is free, None for none."""
    roles: tuple[str, ...] = ROLES
    open_to_all: bool = False
    """True to listen without keys to everybody who can reach it."""
    certificate: Path | None = None
    private_key: Path | None = None
    settings: ServerSettings = field(default_factory=ServerSettings)
    drain_seconds: int = 25
    """The time that open requests have to end after the server receives a stop signal."""
    own_telemetry_seconds: float | None = None
    """The interval at which the server writes its own telemetry into the lake; None for never."""

    @property
    def bare_host(self) -> str:
        """Return the host as sockets need it: without the brackets of IPv6."""
        return self.host.removeprefix("[").removesuffix("]")

    def spell(self, port: int) -> str:
        """Return the host with a port, as addresses are written."""
        return f"[{self.bare_host}]:{port}" if ":" in self.host else f"{self.host}:{port}"


def require_guarded(listening: Listening, *, has_keys: bool) -> None:
    """Raise if everybody on a network had full access and no option allows it."""
    for role in listening.roles:
        if role not in ROLES:
            raise BadInput(f"{role!r} is no role of a server", hint=f"some of {', '.join(ROLES)}")
    if (listening.certificate is None) != (listening.private_key is None):
        raise BadInput("TLS needs a certificate and its key", hint="give both, or none")
    if has_keys or listening.open_to_all or _is_loopback(listening.bare_host):
        return
    raise Refused(
        f"this lake has no keys, and {listening.host} can be reached from elsewhere",
        hint="make one with: lakebed keys create NAME --role admin; or say --without-keys",
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _read_certificate(listening: Listening) -> tuple[bytes, bytes] | None:
    """Return the private key and the chain of certificates, if the server speaks TLS."""
    if listening.certificate is None or listening.private_key is None:
        return None
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(listening.certificate, listening.private_key, password="")
        return listening.private_key.read_bytes(), listening.certificate.read_bytes()
    except OSError as error:  # the base class of ssl's errors
        raise BadInput(
            f"{listening.certificate} and {listening.private_key} are no certificate and its key",
            hint=f"give PEM files that belong together, the key without a password: {error}",
        ) from None


def _require_address(listening: Listening) -> None:
    """Raise unless the host is an address of this machine and no port is used twice."""
    ports = {"--port": listening.port}
    if listening.otlp_port and "ingest" in listening.roles:
        ports["--otlp-port"] = listening.otlp_port
    if listening.flight_port and "query" in listening.roles:
        ports["--flight-port"] = listening.flight_port
    options = {port: [name for name in ports if ports[name] == port] for port in ports.values()}
    for port, names in options.items():
        if port and len(names) > 1:
            raise BadInput(
                f"{' and '.join(names)} are both {port}", hint="each needs a port of its own"
            )
    try:
        (family, kind, protocol, _, address), *_ = socket.getaddrinfo(
            listening.bare_host, 0, type=socket.SOCK_STREAM
        )
        with socket.socket(family, kind, protocol) as test_socket:
            test_socket.bind(address)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise BadInput(
            f"cannot listen on {listening.host}: {reason}",
            hint="choose an address of this machine with --host",
        ) from None


def _cannot_listen(address: str, protocol_name: str) -> Unavailable:
    option = {"HTTP": "--port", "OTLP": "--otlp-port", "FlightSQL": "--flight-port"}[protocol_name]
    return Unavailable(
        f"cannot listen on {address} for {protocol_name}, which another program may do",
        hint=f"choose another port with {option}",
    )


class Server:
    """One process that serves a lake."""

    def __init__(self, lake: Lake, listening: Listening) -> None:
        has_keys = lake.keys.has_any()
        require_guarded(listening, has_keys=has_keys)
        _require_address(listening)
        _read_certificate(listening)
        settings = replace(listening.settings, open_to_all=listening.open_to_all)
        self._lake = lake
        self._listening = listening
        meters = Meters(lake)
        self._own_telemetry: OwnTelemetry | None = None
        if listening.own_telemetry_seconds is not None:
            self._own_telemetry = OwnTelemetry(lake, meters, listening.own_telemetry_seconds)
        self.health = Health(lake)
        self.guard = Guard(lake, settings, meters, self.health)
        self.http = HttpSide(lake, settings, listening.roles, self.guard)
        self._grpc: dict[str, GrpcPort] = {}
        if INGEST in listening.roles and listening.otlp_port is not None:
            calls = Calls(self.guard, settings)
            services = make_services(lake, calls, meters)
            self._add_grpc("OTLP", listening.otlp_port, services, calls)
        if QUERY in listening.roles:
            remove_abandoned()
        if QUERY in listening.roles and listening.flight_port is not None:
            calls = Calls(self.guard, settings)
            flight = FlightService(lake, meters, settings.query_seconds)
            services = flight.make_services(calls)
            self._add_grpc("FlightSQL", listening.flight_port, services, calls)
        self._stop = threading.Event()
        self._upkeep = threading.Thread(
            target=Upkeep(lake).loop, args=(self._stop,), name="lakebed-upkeep"
        )
        self.stopping = threading.Event()
        """Set when the server receives a stop signal."""
        self._uvicorn: _Uvicorn | None = None

    def _add_grpc(self, protocol_name: str, port: int, services: Handlers, calls: Calls) -> None:
        certificate = _read_certificate(self._listening)
        address = self._listening.spell(port)
        try:
            self._grpc[protocol_name] = GrpcPort(address, services, calls, self.health, certificate)
        except RuntimeError:
            raise _cannot_listen(address, protocol_name) from None

    @property
    def ports(self) -> dict[str, int]:
        """The gRPC ports by the names of their protocols."""
        return {name: port.port for name, port in self._grpc.items()}

    def stop(self) -> None:
        """Make `run` end, which another thread executes."""
        if self._uvicorn is not None:
            self._uvicorn.should_exit = True

    def run(self, ready: Callable[[int], None] = lambda _port: None) -> None:
        """Serve until SIGTERM or SIGINT, then accept no more requests and finish the open ones."""
        config = uvicorn.Config(
            self.http.make_app(),
            host=self._listening.bare_host,
            port=self._listening.port,
            http=limit_connections(self._listening.settings.stall_seconds),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=self._listening.drain_seconds,
            ssl_certfile=self._listening.certificate,
            ssl_keyfile=self._listening.private_key,
        )
        for name in ("uvicorn", "uvicorn.error"):  # our own log has the line
            logging.getLogger(name).addHandler(logging.NullHandler())
            logging.getLogger(name).propagate = False
        self._uvicorn = _Uvicorn(config, self, ready)
        try:
            for port in self._grpc.values():
                port.start()
            self._uvicorn.run()
        except SystemExit:  # uvicorn reports in this way that it cannot listen
            address = self._listening.spell(self._listening.port)
            raise _cannot_listen(address, "HTTP") from None
        finally:
            self._stop.set()
            self.begin_drain()
            for port in self._grpc.values():
                port.wait_stopped()
            self.http.close()
            self.guard.close()
            self.health.close()
            while self._upkeep.is_alive():
                self._lake.pipeline.cancel()  # again: the build may not have begun before
                self._upkeep.join(_ONCE_MORE_SECONDS)
            _log.info("server stopped")
            if self._own_telemetry is not None:
                self._own_telemetry.close()

    def begin_work(self) -> None:
        """Start upkeep and own telemetry, which need a server that listens."""
        if PIPELINE in self._listening.roles:
            self._upkeep.start()
        if self._own_telemetry is not None:
            self._own_telemetry.start()
        _log.info("server started", extra={"roles": ",".join(self._listening.roles)})

    def begin_drain(self) -> None:
        """Accept no more requests on any port; open ones have a while to end."""
        self.stopping.set()
        self.health.draining = True
        for port in self._grpc.values():
            port.begin_stop(self._listening.drain_seconds)


class _Uvicorn(uvicorn.Server):
    """A uvicorn server that notifies a `Server` when it begins and ends to listen."""

    def __init__(
        self, config: uvicorn.Config, server: Server, ready: Callable[[int], None]
    ) -> None:
        super().__init__(config)
        self._server = server
        self._ready = ready

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Make signals end the server in order, and not what it runs in."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {
            number: signal.signal(number, self.handle_exit)
            for number in (signal.SIGINT, signal.SIGTERM)
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: object = None) -> None:
        await super().startup(sockets)  # type: ignore[arg-type]
        if not self.should_exit:
            self._server.begin_work()
            self._ready(self.servers[0].sockets[0].getsockname()[1])

    async def shutdown(self, sockets: object = None) -> None:
        self._server.begin_drain()
        await super().shutdown(sockets)  # type: ignore[arg-type]
