"""`lakebed serve`: the lake as a service."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lakebed.cli import output
from lakebed.cli.options import HERE, LakeOption, opened
from lakebed.errors import BadInput


def serve(
    lake: LakeOption = HERE,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The HTTP port; 0 for any that is free.")
    ] = 4318,
    otlp_port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port of OTLP over gRPC.")
    ] = 4317,
    flight_port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port of FlightSQL.")
    ] = 50051,
    roles: Annotated[
        str, typer.Option(help="What this process does: some of ingest,query,pipeline.")
    ] = "ingest,query,pipeline",
    without_keys: Annotated[
        bool,
        typer.Option("--without-keys", help="Let everybody in who can reach the port."),
    ] = False,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Speak TLS with this certificate (PEM).")
    ] = None,
    private_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The certificate's private key (PEM).")
    ] = None,
) -> None:
    """Take in OTLP and records over HTTP, answer SQL, and look after the lake.

    OpenTelemetry SDKs find it by themselves: OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 and
    OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf. Records: POST /v1/tables/DATABASE/TABLE. SQL: POST
    /v1/query. Also /livez, /readyz, /metrics, /version. Ends in order on Ctrl-C and SIGTERM.

    Example: lakebed serve --lake shop

    Example: lakebed serve --host 0.0.0.0 --certificate shop.pem --private-key shop.key
    """
    try:
        from lakebed.serve.server import Listening, Server
    except ModuleNotFoundError as missing:
        raise BadInput(
            f"a server needs {missing.name}, which is not installed",
            hint="install it with: pip install 'lakebed[serve]'",
        ) from None
    wanted = tuple(each.strip() for each in roles.split(",") if each.strip())
    for each in (certificate, private_key):
        if each is not None and not each.is_file():
            raise BadInput(f"there is no file {each}")
    listening = Listening(
        host, port, otlp_port, flight_port, wanted, without_keys, certificate, private_key
    )
    with opened(lake) as open_lake:
        server = Server(open_lake, listening)
        scheme = "http" if certificate is None else "https"

        def tell(real: int) -> None:
            output.say(f"serving {scheme}://{host}:{real}; stop with Ctrl-C")
            for what, known in server.ports.items():
                output.say(f"{what} on {host}:{known}")

        server.run(tell)
    output.say("stopped")
