"""Looks at this machine: Java, Spark's workers, ports, certificates, disks."""

from __future__ import annotations

import contextlib
import errno
import http.client
import ipaddress
import json
import os
import platform
import shutil
import socket
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lakebed.errors import BadInput, Unavailable

_ANSWER_SECONDS = 3
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104


@dataclass(frozen=True, slots=True)
class Port:
    """A port of a server."""

    service: str
    setting: str
    host: str
    number: int

    @property
    def address(self) -> str:
        return f"[{self.host}]:{self.number}" if ":" in self.host else f"{self.host}:{self.number}"


@dataclass(frozen=True, slots=True)
class Disk:
    """The file system of a folder."""

    content: str
    path: str
    device: int
    free_bytes: int
    total_bytes: int
    has_free_files: bool = True


def describe_java() -> str:
    """Return the Java that Spark would run on; raise `BadInput` if there is none."""
    import pyspark.version

    from lakebed.pipeline.sessions.session import own_java

    java = own_java()
    return f"Java {java.version} at {java.home}, for Spark {pyspark.version.__version__}"


def _report_python(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield the version of the Python of a Spark worker."""
    import pyarrow as pa

    for _ in batches:
        yield pa.record_batch({"python": [platform.python_version()]})


def run_spark_job() -> tuple[str, str]:
    """Run a small job as `lakebed build` would; return the versions of Spark and its Python."""
    from pyspark.errors import PySparkException

    from lakebed.pipeline.sessions.session import use_session

    try:
        with use_session(quick=True) as spark:
            row = spark.range(1).mapInArrow(_report_python, "python string").collect()[0]
            return str(spark.version), str(row["python"])
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise Unavailable(f"a small job on spark failed: {reason}") from error


def find_listener(port: Port) -> str | None:
    """Return what answers on a port that is taken, "" if nothing answers, None if it is free."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            port.host or None, port.number, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1)
            return None
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            reason = (error.strerror or str(error)).lower()
            raise BadInput(
                f"cannot listen on {port.address}: {reason}",
                hint=f"choose another with serve_host or {port.setting}",
            ) from error
    host = _LOOPBACK.get(port.host, port.host)
    probes = [_ask_http, _ask_grpc] if port.service == "HTTP" else [_ask_grpc, _ask_http]
    return next((answer for probe in probes if (answer := probe(host, port.number))), "")


def _ask_http(host: str, port: int) -> str | None:
    """Return what answers HTTP or HTTPS; None if nothing does."""
    seconds, tls = _ANSWER_SECONDS, _unverified_tls()
    for connection in (
        http.client.HTTPConnection(host, port, timeout=seconds),
        http.client.HTTPSConnection(host, port, timeout=seconds, context=tls),
    ):
        with (
            contextlib.closing(connection),
            contextlib.suppress(OSError, http.client.HTTPException),
        ):
            connection.request("GET", "/version")
            response = connection.getresponse()
            body = response.read(4096)
            with contextlib.suppress(ValueError, KeyError, TypeError):
                return f"lakebed {json.loads(body)['lakebed']}"
            name = response.getheader("Server")
            return f"a web server ({name})" if name else "a web server"
    return None


def _ask_grpc(host: str, port: int) -> str | None:
    """Return what answers gRPC, or at least TLS; None if nothing does or gRPC is missing."""
    try:
        import grpc
    except ImportError:
        return None
    with grpc.insecure_channel(f"[{host}]:{port}" if ":" in host else f"{host}:{port}") as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            if check(b"", timeout=_ANSWER_SECONDS) == b"\x08\x01":  # status: SERVING
                return "a healthy gRPC server"
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return "a gRPC server"
    with (
        contextlib.suppress(OSError),
        socket.create_connection((host, port), _ANSWER_SECONDS) as connection,
        _unverified_tls().wrap_socket(connection),
    ):
        return "a TLS server"
    return None


def _unverified_tls() -> ssl.SSLContext:
    """Return a context for a probe that sends nothing confidential."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def is_loopback(host: str) -> bool:
    """Return True for an address that only this machine reaches."""
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def find_certificate_end(certificate: Path | None, key: Path | None) -> int | None:
    """Return the end of a certificate in microseconds, after a TLS handshake in memory with its
    key; None if none is configured."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise BadInput(
            "TLS needs a certificate and its key, and only one is configured",
            hint="set serve_certificate and serve_private_key, or none of them",
        )
    for file in (certificate, key):
        file.read_bytes()  # the errors of ssl do not name the file
    server, client = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        server.load_cert_chain(certificate, key, password=lambda: "")
        client.load_verify_locations(certificate)
        up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
        caller = client.wrap_bio(down, up)
        for side in (caller, server.wrap_bio(up, down, server_side=True)) * 8:
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        raise BadInput(
            f"no client accepts {certificate}: {error.verify_message}", hint="renew the certificate"
        ) from None
    except ssl.SSLError as error:
        reason = (error.reason or "").lower().replace("_", " ")
        raise BadInput(
            f"{certificate} and {key} do not make a TLS server: "
            + (reason or "they are not PEM, or have a password"),
            hint="give PEM files: the certificate with its chain, and its own key without password",
        ) from None
    return int(ssl.cert_time_to_seconds(str((caller.getpeercert() or {})["notAfter"]))) * 1_000_000


def look_at_disk(content: str, path: Path) -> Disk:
    """Return the file system of a folder that exists or will be created."""
    while not path.exists() and path != path.parent:
        path = path.parent
    usage, files = shutil.disk_usage(path), os.statvfs(path)
    has_free_files = files.f_files == 0 or files.f_favail > 0
    device = path.stat().st_dev
    return Disk(content, str(path), device, usage.free, usage.total, has_free_files)


def look_at_temporary_folder() -> Disk:
    """Return the file system of temporary files; raise `OSError` if it cannot be written."""
    with tempfile.TemporaryFile() as file:
        file.write(b"probe")
    return look_at_disk("temporary files", Path(tempfile.gettempdir()))
