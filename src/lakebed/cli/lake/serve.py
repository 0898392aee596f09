"""`lakebed serve`: the lake as a service."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lakebed.cli import output
from lakebed.cli.options import HERE, LakeOption, opened
from lakebed.client.address import is_server
from lakebed.errors import BadInput, Unavailable
from lakebed.extras import require_extra

if TYPE_CHECKING:
    from lakebed.serve.server import Listening
    from lakebed.settings import Settings

_STUCK_SECONDS = 60.0


def _option(name: str, default: str, text: str, *spelled: str, **more: Any) -> Any:
    """An option of a setting: the settings, not typer, know its variable and its default."""
    source = f"env var: {name}" + (f"; default: {default}" if default else "")
    return typer.Option(*spelled, help=f"{text}  [{source}]", show_default=False, **more)


def _port(name: str, default: str, text: str) -> Any:
    return _option(name, default, text, metavar="PORT")


def _file(name: str, text: str) -> Any:
    return _option(name, "", text, metavar="FILE")


HostOption = Annotated[
    str | None,
    _option("LAKEBED_SERVE_HOST", "127.0.0.1", "The address to listen on.", metavar="ADDRESS"),
]
PortOption = Annotated[
    int | None, _port("LAKEBED_SERVE_PORT", "4318", "The HTTP port; 0 for any that is free.")
]
OtlpPortOption = Annotated[
    int | None, _port("LAKEBED_SERVE_OTLP_PORT", "4317", "The port of OTLP over gRPC.")
]
FlightPortOption = Annotated[
    int | None, _port("LAKEBED_SERVE_FLIGHT_PORT", "50051", "The port of FlightSQL.")
]
RolesOption = Annotated[
    str | None,
    _option(
        "LAKEBED_SERVE_ROLES",
        "ingest,query,pipeline,web",
        "What this process does.",
        metavar="NAMES",
    ),
]
WithoutKeysOption = Annotated[
    bool | None,
    _option(
        "LAKEBED_SERVE_WITHOUT_KEYS",
        "with-keys",
        "Let everybody in who can reach the ports.",
        "--without-keys/--with-keys",
    ),
]
CertificateOption = Annotated[
    Path | None, _file("LAKEBED_SERVE_CERTIFICATE", "Speak TLS with this certificate (PEM).")
]
PrivateKeyOption = Annotated[
    Path | None, _file("LAKEBED_SERVE_PRIVATE_KEY", "The certificate's private key (PEM).")
]
WaitSecondsOption = Annotated[
    float | None,
    _option(
        "LAKEBED_SERVE_WAIT_SECONDS",
        "300.0",
        "How long to wait at the start for a PostgreSQL that accepts no connections.",
        metavar="SECONDS",
    ),
]
TelemetrySecondsOption = Annotated[
    float | None,
    _option(
        "LAKEBED_SERVE_TELEMETRY_SECONDS",
        "60.0",
        "How often it writes its own telemetry into the lake; 0 for never.",
        metavar="SECONDS",
    ),
]


def serve(
    lake: LakeOption = HERE,
    host: HostOption = None,
    port: PortOption = None,
    otlp_port: OtlpPortOption = None,
    flight_port: FlightPortOption = None,
    roles: RolesOption = None,
    without_keys: WithoutKeysOption = None,
    certificate: CertificateOption = None,
    private_key: PrivateKeyOption = None,
    wait_seconds: WaitSecondsOption = None,
    telemetry_seconds: TelemetrySecondsOption = None,
) -> None:
    """Take in OTLP and records over HTTP, answer SQL, and look after the lake.

    OpenTelemetry SDKs find it by themselves: OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 and
    OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf. Records: POST /v1/tables/DATABASE/TABLE. SQL: POST
    /v1/query. Pages for browsers: /. Also /livez, /readyz, /metrics, /version. Ends in order on
    Ctrl-C and SIGTERM.

    Options can be set in the environment and in lakebed.toml instead; see docs/operating.md.

    Example: lakebed serve --lake shop

    Example: lakebed serve --host 0.0.0.0 --certificate shop.pem --private-key shop.key
    """
    require_extra("serve")
    from lakebed.logs import warnings_on_stderr
    from lakebed.serve.server import Server
    from lakebed.settings import read_settings

    settings = read_settings(
        lake=lake or None,
        serve_host=host,
        serve_port=port,
        serve_otlp_port=otlp_port,
        serve_flight_port=flight_port,
        serve_roles=roles,
        serve_without_keys=without_keys,
        serve_certificate=certificate,
        serve_private_key=private_key,
        serve_wait_seconds=wait_seconds,
        serve_telemetry_seconds=telemetry_seconds,
    )
    for file in (settings.serve_certificate, settings.serve_private_key):
        if file is not None and not file.is_file():
            raise BadInput(f"there is no file {file}")
    listening = _read_listening(settings)
    _wait_for_catalog(settings)
    # What callers are not told must be somewhere.
    with warnings_on_stderr(), opened(settings.lake) as open_lake:
        server = Server(open_lake, listening)
        scheme = "http" if settings.serve_certificate is None else "https"

        def announce(http_port: int) -> None:
            output.say(f"serving {scheme}://{listening.spell(http_port)}; stop with Ctrl-C")
            for protocol, bound_port in server.ports.items():
                output.say(f"{protocol} on {listening.spell(bound_port)}")

        threading.Thread(
            target=leave_if_stuck, args=(server.stopping,), name="lakebed-leaving", daemon=True
        ).start()
        server.run(announce)
    output.say("stopped")


def _read_listening(settings: Settings) -> Listening:
    """Return what a server listens on, from the settings."""
    from lakebed.serve.limits import ServerSettings
    from lakebed.serve.server import Listening

    limits = ServerSettings()
    if settings.query_seconds is not None:
        limits = replace(limits, query_seconds=settings.query_seconds)
    return Listening(
        host=settings.serve_host,
        port=settings.serve_port,
        otlp_port=settings.serve_otlp_port,
        flight_port=settings.serve_flight_port,
        roles=tuple(settings.serve_roles.split(",")),
        open_to_all=settings.serve_without_keys,
        certificate=settings.serve_certificate,
        private_key=settings.serve_private_key,
        settings=limits,
        own_telemetry_seconds=settings.serve_telemetry_seconds or None,
    )


def _wait_for_catalog(settings: Settings) -> None:
    """Wait for the catalog's server to start, with a line on stderr now and then."""
    if is_server(settings.lake):
        return
    from lakebed.catalog.connections.waiting import wait_until_reachable
    from lakebed.opening import connect

    catalog = connect(settings.lake, settings)
    try:
        wait_until_reachable(catalog, settings.serve_wait_seconds, output.say)
    finally:
        catalog.close()


def leave_if_stuck(
    stopping: threading.Event,
    seconds: float = _STUCK_SECONDS,
    leave: Callable[[int], object] = os._exit,
) -> None:
    """End the process if it does not end by itself for so long after it was told to: something that
    it waits for, such as a catalog, does not answer. What was acknowledged is stored."""
    stopping.wait()
    time.sleep(seconds)
    output.say("error: catalog or store do not answer; stopped without waiting for them")
    leave(Unavailable.exit_code)
