"""Servers that do as little as possible on the same stacks as Lakebed's, to measure beside it: an
HTTP endpoint that reads bodies, and Flight servers that send batches from memory, or what the same
engine reads of the same files. Each is a process of its own: `python -m benchmarks.bare http`,
`… flight FILE` or `… scan FILE…`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.flight as flight
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

_PORT = re.compile(r":(\d+)")


def serve_http() -> None:
    async def read(request: Request) -> Response:
        await request.body()
        return Response(b"", media_type="application/x-protobuf")

    app = Starlette(routes=[Route("/v1/logs", read, methods=["POST"])])
    config = uvicorn.Config(app, port=0, http="httptools", lifespan="off", log_level="error")
    _Telling(config).run()


class _Telling(uvicorn.Server):
    async def startup(self, sockets: object = None) -> None:
        await super().startup(sockets)  # type: ignore[arg-type]
        _tell(self.servers[0].sockets[0].getsockname()[1])


def serve_flight(file: str) -> None:
    with pa.ipc.open_file(file) as reader:
        batches = [reader.get_batch(each) for each in range(reader.num_record_batches)]
        schema = reader.schema

    class Bare(flight.FlightServerBase):
        def do_get(self, _context: object, _ticket: flight.Ticket) -> flight.FlightDataStream:
            return flight.GeneratorStream(schema, iter(batches))

    _serve_flight(Bare)


def serve_scan(files: list[str]) -> None:
    from datafusion import SessionContext

    context = SessionContext()
    places = ", ".join(f"'{each}'" for each in files)
    context.sql(f"CREATE EXTERNAL TABLE made STORED AS PARQUET LOCATION ({places})")
    frame = context.sql("SELECT * FROM made")

    class Bare(flight.FlightServerBase):
        def do_get(self, _context: object, _ticket: flight.Ticket) -> flight.FlightDataStream:
            reader = pa.RecordBatchReader.from_stream(frame)
            return flight.RecordBatchStream(reader)

    _serve_flight(Bare)


def _serve_flight(kind: type[flight.FlightServerBase]) -> None:
    with kind("grpc://127.0.0.1:0") as server:
        _tell(server.port)
        server.wait()


def _tell(port: int) -> None:
    print(f"serving 127.0.0.1:{port}", file=sys.stderr, flush=True)


@contextmanager
def bare_server(*arguments: str) -> Iterator[int]:
    """The port of a bare server, until the block is left."""
    with _process(["benchmarks.bare", *arguments], 1) as ports:
        yield ports[0]


@contextmanager
def lakebed_server(lake: str, roles: str = "ingest,query") -> Iterator[tuple[int, int]]:
    """`lakebed serve` until the block is left: its ports of HTTP and of FlightSQL."""
    free = ["--port", "0", "--otlp-port", "0", "--flight-port", "0"]
    only = ["--roles", roles, "--telemetry-seconds", "0"]
    with _process(["lakebed", "serve", "--lake", lake, *free, *only], 3) as ports:
        yield ports[0], ports[2]


@contextmanager
def _process(module: list[str], lines: int) -> Iterator[list[int]]:
    """A process that says on which ports it listens, a line for each."""
    command = [sys.executable, "-m", *module]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = [process.stderr.readline() for _ in range(lines)]
        ports = [_PORT.findall(line)[-1] for line in said if _PORT.search(line)]
        if len(ports) < lines:
            process.kill()
            raise RuntimeError("".join(said) + process.stderr.read())
        rest = threading.Thread(target=process.stderr.read)
        rest.start()
        try:
            yield [int(each) for each in ports]
        finally:
            process.terminate()
            process.wait()
            rest.join()


if __name__ == "__main__":
    if sys.argv[1] == "http":
        serve_http()
    elif sys.argv[1] == "flight":
        serve_flight(sys.argv[2])
    else:
        serve_scan(sys.argv[2:])
