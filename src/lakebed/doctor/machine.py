"""Looks at this machine: Java, Spark's workers, ports, certificates, disks. What is wrong is raised
or told as a fact; `findings` says what it means.
"""

from __future__ import annotations

import errno
import http.client
import importlib.metadata
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from lakebed.doctor.facts import (
    CertificateSeen,
    DiskSeen,
    JavaSeen,
    PortSeen,
    PortState,
    WorkersSeen,
)
from lakebed.errors import BadInput, Unavailable

_ANSWER_SECONDS = 3
_TRIAL_SECONDS = 120
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104
_SERVING = b"\x08\x01"


def find_pyspark() -> str | None:
    """The version of pyspark; None if it is not installed."""
    try:
        return importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        return None


def look_at_java(pyspark: str) -> JavaSeen:
    """The Java that Spark would run on; raises if it would not."""
    from lakebed.pipeline.session import own_java

    java = own_java()
    return JavaSeen(java.version, str(java.home), pyspark)


def try_workers() -> WorkersSeen:
    """Run a small job on Spark in a process of its own, as `lakebed build` would."""
    command = [sys.executable, "-m", "lakebed.doctor.trial"]
    try:
        done = subprocess.run(  # noqa: S603  (this Python, and a module of ours)
            command, capture_output=True, text=True, timeout=_TRIAL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(
            f"a small job on spark did not end within {_TRIAL_SECONDS} s",
            hint="look at memory and load of this machine, and at what `lakebed build` prints",
        ) from None
    lines = done.stdout.strip().splitlines()
    try:
        said = json.loads(lines[-1])
        if "error" in said:
            raise BadInput(said["error"], hint=said["hint"])
        return WorkersSeen(said["spark"], said["worker_python"], said["driver_python"])
    except (IndexError, ValueError, KeyError, TypeError):
        words = done.stderr.strip().splitlines() or ["it said nothing"]
        raise Unavailable(f"a small job on spark failed ({done.returncode}): {words[-1]}") from None


def look_at_port(what: str, setting: str, host: str, port: int, *, is_http: bool) -> PortSeen:
    """Whether a server could listen; if not, who does."""
    shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if port == 0:
        return PortSeen(what, setting, shown, PortState.ANY)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(1)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            reason = (error.strerror or str(error)).lower()
            return PortSeen(what, setting, shown, PortState.REFUSED, reason)
    else:
        return PortSeen(what, setting, shown, PortState.FREE)
    reached = _EVERYWHERE.get(host, host)
    first, second = (_ask_http, _ask_grpc) if is_http else (_ask_grpc, _ask_http)
    who = first(reached, port) or second(reached, port)
    ours = is_http and who is not None and who.startswith("lakebed ")
    return PortSeen(what, setting, shown, PortState.TAKEN, answer=who or "", is_lakebed=ours)


def _ask_http(host: str, port: int) -> str | None:
    """Who answers HTTP or HTTPS; None if nobody does."""
    trusting = _trusting()
    for connection in (
        http.client.HTTPConnection(host, port, timeout=_ANSWER_SECONDS),
        http.client.HTTPSConnection(host, port, timeout=_ANSWER_SECONDS, context=trusting),
    ):
        try:
            connection.request("GET", "/version")
            answer = connection.getresponse()
            body = answer.read(4096)
        except (OSError, http.client.HTTPException):
            continue
        finally:
            connection.close()
        try:
            return f"lakebed {json.loads(body)['lakebed']}"
        except (ValueError, KeyError, TypeError):
            name = answer.getheader("Server")
            return f"a web server ({name})" if name else "a web server"
    return None


def _ask_grpc(host: str, port: int) -> str | None:
    """Who answers gRPC, or at least TLS; None if nobody does, or if gRPC is not installed."""
    try:
        import grpc
    except ImportError:
        return None
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with grpc.insecure_channel(where) as channel:
        check = channel.unary_unary("/grpc.health.v1.Health/Check")
        try:
            if check(b"", timeout=_ANSWER_SECONDS) == _SERVING:
                return "a healthy gRPC server"
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                return "a gRPC server"
    try:
        with (
            socket.create_connection((host, port), _ANSWER_SECONDS) as plain,
            _trusting().wrap_socket(plain),
        ):
            return "a TLS server"
    except OSError:
        return None


def _trusting() -> ssl.SSLContext:
    """TLS that only wants to know who is there, and sends nothing that matters."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def look_at_certificate(certificate: Path | None, key: Path | None) -> CertificateSeen | None:
    """Make a TLS connection with a certificate and its key, in memory; None if there is none."""
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise BadInput(
            "TLS needs a certificate and its key, and only one is configured",
            hint="set serve_certificate and serve_private_key, or none of them",
        )
    for file in (certificate, key):
        file.read_bytes()  # the errors of ssl do not name the file
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    try:
        server.load_cert_chain(certificate, key, password=_no_password)
        client.load_verify_locations(certificate)
        ends = _shake_hands(server, client)
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
    moment = datetime.fromtimestamp(ssl.cert_time_to_seconds(ends), UTC)
    return CertificateSeen(str(certificate), int(moment.timestamp()) * 1_000_000)


def _no_password() -> str:
    return ""


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> str:
    """When the certificate of a server ends, by the client that has just accepted it."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    there = server.wrap_bio(up, down, server_side=True)
    here = client.wrap_bio(down, up)
    for _ in range(8):  # as many flights as any handshake has
        for side in (here, there):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    known = here.getpeercert() or {}
    return str(known["notAfter"])


def look_at_disk(what: str, path: Path) -> DiskSeen:
    """The file system that a folder is on, or will be."""
    while not path.exists() and path != path.parent:
        path = path.parent
    usage = shutil.disk_usage(path)
    files = os.statvfs(path)
    return DiskSeen(
        what=what,
        path=str(path),
        device=path.stat().st_dev,
        free_bytes=usage.free,
        total_bytes=usage.total,
        has_free_files=files.f_files == 0 or files.f_favail > 0,
    )


def look_at_temporary_folder() -> DiskSeen:
    """The file system of temporary files; raises if nothing can be written there."""
    with tempfile.TemporaryFile() as file:
        file.write(b"probe")
    return look_at_disk("temporary files", Path(tempfile.gettempdir()))
