"""Looking at a real machine: ports with and without somebody on them, certificates, hangs."""

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
from lakebed.doctor.attempts import Attempt
from lakebed.doctor.facts import PortState, Trouble
from lakebed.errors import BadInput, Unavailable

HERE = "127.0.0.1"


def look(port: int, host: str = HERE, *, is_http: bool = True) -> tuple[PortState, str]:
    seen = machine.look_at_port("HTTP", "serve_port", host, port, is_http=is_http)
    return seen.state, seen.reason or seen.answer


@pytest.fixture
def web_server() -> Iterator[int]:
    """The port of a web server that is not ours."""
    with http.server.HTTPServer((HERE, 0), http.server.BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_a_free_port_stays_free() -> None:
    with socket.create_server((HERE, 0)) as known:
        port = known.getsockname()[1]
    assert look(port) == (PortState.FREE, "")
    assert look(port) == (PortState.FREE, "")
    assert look(0) == (PortState.ANY, "")


def test_who_is_on_a_port_is_told(web_server: int) -> None:
    state, answer = look(web_server)
    assert state is PortState.TAKEN
    assert answer.startswith("a web server (BaseHTTP")
    assert look(web_server, "0.0.0.0")[0] is PortState.TAKEN
    assert look(web_server, is_http=False)[1].startswith("a web server (BaseHTTP")


def test_an_address_of_another_machine_is_refused() -> None:
    state, reason = look(4318, "192.0.2.1")
    assert state is PortState.REFUSED
    assert "assign" in reason
    assert look(4318, "no-such-host.invalid")[0] is PortState.REFUSED


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


def test_a_certificate_is_tried_with_its_key(tmp_path: Path) -> None:
    good, its_key = make_certificate(tmp_path, "good", days=90)
    old, old_key = make_certificate(tmp_path, "old", days=-1)
    seen = machine.look_at_certificate(good, its_key)
    assert seen is not None
    left = seen.not_after_us / 1e6 - datetime.datetime.now(datetime.UTC).timestamp()
    assert 89 < left / 86400 <= 90
    assert machine.look_at_certificate(None, None) is None
    with pytest.raises(BadInput, match="expired"):
        machine.look_at_certificate(old, old_key)
    with pytest.raises(BadInput, match="do not make a TLS server"):
        machine.look_at_certificate(good, old_key)
    with pytest.raises(BadInput, match="only one is configured"):
        machine.look_at_certificate(good, None)
    with pytest.raises(FileNotFoundError):
        machine.look_at_certificate(good, tmp_path / "nowhere")
    (tmp_path / "text").write_text("no certificate")
    with pytest.raises(BadInput, match="not PEM"):
        machine.look_at_certificate(tmp_path / "text", its_key)


def test_a_disk_is_that_of_the_folder_or_of_what_is_above_it(tmp_path: Path) -> None:
    seen = machine.look_at_disk("store", tmp_path / "not" / "yet")
    assert seen.path == str(tmp_path)
    assert 0 < seen.free_bytes <= seen.total_bytes
    assert machine.look_at_temporary_folder().total_bytes > 0


def test_what_hangs_or_breaks_is_a_trouble() -> None:
    never = threading.Event()
    hanging = Attempt("the store", never.wait)
    assert hanging.wait(0.01) == Trouble(
        "the store gave no answer within 0.01 s",
        "check that it runs, that the network reaches it, and that nobody holds its locks",
    )
    never.set()
    assert hanging.wait(300) is True

    def fail(error: BaseException) -> None:
        raise error

    def trouble(error: BaseException) -> Trouble | None:
        return Attempt("it", lambda: fail(error)).wait(300)

    assert trouble(Unavailable("away\nfor now", hint="wait")) == Trouble("away for now", "wait")
    assert trouble(SystemExit("enough")) == Trouble("unexpected SystemExit: enough")
    assert trouble(FileNotFoundError(2, "No such file", "/x")) == Trouble("/x: no such file")


def test_a_spark_that_cannot_start_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(BadInput, match="JAVA_HOME is /nowhere") as refused:
        machine.try_workers()
    assert refused.value.hint is not None
