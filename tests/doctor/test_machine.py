"""Looks at a real machine: free and taken ports, certificates, hangs."""

from __future__ import annotations

import datetime
import http.server
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lakebed.doctor import machine
from lakebed.doctor.checks import Status, attempt, check_certificate, run_check
from lakebed.doctor.machine import Port
from lakebed.errors import BadInput, Unavailable

HERE = "127.0.0.1"
DAY = 24 * 3600 * 1_000_000


def find_listener(number: int, host: str = HERE, service: str = "HTTP") -> str | None:
    return machine.find_listener(Port(service, "serve_port", host, number))


@pytest.fixture
def web_server() -> Iterator[int]:
    """The port of a web server that is not ours."""
    with http.server.HTTPServer((HERE, 0), http.server.BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_free_port_stays_free() -> None:
    with socket.create_server((HERE, 0)) as listener:
        port = listener.getsockname()[1]
    assert find_listener(port) is None
    assert find_listener(port) is None


def test_listener_of_taken_port_is_named(web_server: int) -> None:
    assert (find_listener(web_server) or "").startswith("a web server (BaseHTTP")
    assert find_listener(web_server, "0.0.0.0")
    assert (find_listener(web_server, service="OTLP") or "").startswith("a web server (BaseHTTP")


def test_address_of_another_machine_is_refused() -> None:
    for host, reason in (("192.0.2.1", "assign"), ("no-such-host.invalid", "")):
        with pytest.raises(BadInput, match=f"cannot listen on {host}:4318: .*{reason}") as refused:
            find_listener(4318, host)
        assert refused.value.hint == "choose another with serve_host or serve_port"


def make_certificate(folder: Path, name: str, *, days: int) -> tuple[Path, Path]:
    """A certificate for `days` from now (before now if negative) and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    called = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(called)
        .issuer_name(called)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=30))
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / f"{name}.pem", folder / f"{name}.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def test_certificate_is_checked_with_its_key(tmp_path: Path) -> None:
    good, its_key = make_certificate(tmp_path, "good", days=90)
    old, old_key = make_certificate(tmp_path, "old", days=-1)
    end_us = machine.find_certificate_end(good, its_key)
    assert end_us is not None
    seconds = end_us / 1e6 - datetime.datetime.now(datetime.UTC).timestamp()
    assert 89 < seconds / 86400 <= 90
    assert "good.pem and its key fit" in check_certificate(good, its_key, end_us - 8 * DAY)
    with pytest.raises(BadInput, match="and its key fit") as ending:
        check_certificate(good, its_key, end_us - 6 * DAY)
    assert ending.value.hint == "renew it, and start the server again"
    assert machine.find_certificate_end(None, None) is None
    with pytest.raises(BadInput, match="expired"):
        machine.find_certificate_end(old, old_key)
    with pytest.raises(BadInput, match="do not make a TLS server"):
        machine.find_certificate_end(good, old_key)
    with pytest.raises(BadInput, match="only one is configured"):
        machine.find_certificate_end(good, None)
    with pytest.raises(FileNotFoundError):
        machine.find_certificate_end(good, tmp_path / "nowhere")
    (tmp_path / "text").write_text("no certificate")
    with pytest.raises(BadInput, match="not PEM"):
        machine.find_certificate_end(tmp_path / "text", its_key)


def test_a_disk_is_that_of_the_folder_or_of_what_is_above_it(tmp_path: Path) -> None:
    seen = machine.look_at_disk("store", tmp_path / "not" / "yet")
    assert seen.path == str(tmp_path)
    assert 0 < seen.free_bytes <= seen.total_bytes
    assert machine.look_at_temporary_folder().total_bytes > 0


def test_look_that_hangs_is_unavailable() -> None:
    never = threading.Event()
    with pytest.raises(Unavailable, match="the store gave no answer") as failure:
        attempt("the store", never.wait, 0.01)
    assert failure.value.hint is not None
    assert failure.value.hint.startswith("check that it runs")
    never.set()
    assert attempt("the store", never.wait, 300) is True


@pytest.mark.parametrize(
    ("error", "found", "advice"),
    [
        (Unavailable("away\nfor now", hint="wait"), "away for now", "wait"),
        (SystemExit("enough"), "unexpected SystemExit: enough", "look"),
        (FileNotFoundError(2, "No such file", "/x"), "/x: no such file", "look"),
        (TimeoutError(110, "Timed out"), "it: timed out", "look"),
    ],
)
def test_failure_of_look_is_finding(error: BaseException, found: str, advice: str) -> None:
    def fail() -> str:
        raise error

    finding = run_check("catalog", lambda: attempt("it", fail, 300), "look")
    assert (finding.status, finding.found, finding.advice) == (Status.BAD, found, advice)


def test_spark_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(BadInput, match="JAVA_HOME is /nowhere"):
        machine.describe_java()
