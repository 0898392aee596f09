"""Reaching a server: with which key, over TLS, and what is said when it does not work."""

from __future__ import annotations

import datetime
import ipaddress
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.flight as flight
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

import lakebed
from lakebed import admin
from lakebed.access import keys as access
from lakebed.access.keys import Role
from lakebed.client.address import is_server
from lakebed.client.client import Client, connect
from lakebed.errors import (
    BadInput,
    BadRecords,
    BadSchema,
    Denied,
    LakebedError,
    OutcomeUnknown,
    Refused,
    TimedOut,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.serve.limits import ServerSettings
from lakebed.wire.error_codec import decode_error, encode_error
from tests.parts.data import T0, publish_hour, readings
from tests.query.test_result import ENDLESS
from tests.serve.parts import Served, serving


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "lake")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = folder / "lake.pem", folder / "lake.key"
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with init_lake(tmp_path_factory.mktemp("connecting") / "lake") as lake:
        lake.views.register(readings())
        publish_hour(lake, 0)
        yield lake


@pytest.fixture(scope="module")
def keys(lake: Lake) -> dict[Role, str]:
    return {role: lake.keys.create(role.value, [role]).secret for role in Role}


@pytest.fixture(scope="module")
def served(lake: Lake, keys: object) -> Iterator[Served]:
    with serving(lake) as served:
        yield served


def test_a_key_is_given_or_in_the_environment(
    served: Served, keys: dict[Role, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with lakebed.connect(served.flight, key=keys[Role.READ]) as client:
        assert client.query("SELECT 1 AS n").to_arrow().to_pylist() == [{"n": 1}]
        assert keys[Role.READ] not in repr(client) + str(vars(client))
    with pytest.raises(Unauthenticated, match="a key is needed"):
        connect(served.flight)
    monkeypatch.setenv("LAKEBED_KEY", keys[Role.READ])
    connect(served.flight).close()
    with pytest.raises(Unauthenticated):
        connect(served.flight, key="lakebed_000000000000_" + "x" * 43)
    with pytest.raises(Denied, match="the key of ingest is not for this"):
        connect(served.flight, key=keys[Role.INGEST])
    for wrong in ("a b", "a\nb", "ä"):
        with pytest.raises(BadInput, match="this is no key") as refused:
            connect(served.flight, key=wrong)
        assert wrong not in f"{refused.value} {refused.value.hint}"


def test_a_revoked_key_ends_at_once_and_a_lost_server_is_named(
    lake: Lake, keys: dict[Role, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "_CACHE_SECONDS", 0.0)
    made = lake.keys.create("guest", [Role.READ])
    with serving(lake) as served:
        client = connect(served.flight, key=made.secret)
        result = client.query("SELECT * FROM readings")
        lake.keys.revoke(made.key.key_id)
        with pytest.raises(Unauthenticated, match="not known, or was revoked"):
            client.query("SELECT 1")
        assert result.to_arrow().num_rows == 3  # what was begun is ended
    with client, pytest.raises(Unavailable, match="no server answers at grpc://127") as absent:
        client.query("SELECT 1")
    assert "lakebed serve" in str(absent.value.hint)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("http://localhost:4318", "no address of a server"),
        ("grpc://", "no address of a server"),
        ("grpc://localhost:x", "no URI"),
        ("grpc://localhost/lake", "no address of a server"),
        ("grpc://me:secret@localhost", "key does not belong into the address"),
        ("shop", "no address of a server"),
        ("grpc://a b", "no address of a server"),
    ],
)
def test_addresses_that_are_none_are_refused(uri: str, words: str) -> None:
    with pytest.raises(BadInput, match=words) as refused:
        connect(uri)
    assert "secret" not in str(refused.value)


def test_other_places_are_told_apart(served: Served, keys: dict[Role, str]) -> None:
    assert is_server("grpc+tls://x")
    assert not is_server("grpc")
    assert not is_server("postgresql://x")
    with pytest.raises(BadInput, match="does not speak FlightSQL"):
        connect(f"grpc://{served.otlp}")
    with pytest.raises(Unavailable, match="does not speak TLS"):
        connect(served.flight.replace("grpc:", "grpc+tls:"), key=keys[Role.READ])
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        with pytest.raises(Unavailable, match="no server answers"):
            connect(f"grpc://127.0.0.1:{nobody.getsockname()[1]}")


class Other(flight.FlightServerBase):  # type: ignore[misc]
    """A server that is none of ours: it tells neither classes of errors nor where rows come from,
    and breaks down in the middle."""

    vendor = "Other"

    def do_get(self, context: object, ticket: flight.Ticket) -> flight.FlightDataStream:
        if b"SqlInfo" in ticket.ticket:
            return flight.RecordBatchStream(pa.table({"value": [self.vendor]}))
        if b"SELEC " in ticket.ticket:
            raise pa.ArrowInvalid("bad")
        return flight.GeneratorStream(pa.schema([("n", pa.int64())]), self._break_down())

    def _break_down(self) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"n": [1, 2]})
        raise flight.FlightUnavailableError("gone")


def test_the_server_of_somebody_else_is_no_lake() -> None:
    with Other("grpc://127.0.0.1:0") as other:
        address = f"grpc://127.0.0.1:{other.port}"
        with pytest.raises(BadInput, match="is no lake"):
            connect(address)
        other.vendor = "Lakebed"
        with connect(address) as client:
            with pytest.raises(BadInput, match=r"answers: .*bad"):
                client.query("SELEC 1")
            rows = iter(client.query("SELECT 1"))
            assert next(rows).to_pydict() == {"n": [1, 2]}
            with pytest.raises(Unavailable, match="went away before all rows were there"):
                next(rows)


DYING = """
import os
import pyarrow as pa
import pyarrow.flight as flight

class Dying(flight.FlightServerBase):
    def do_get(self, context, ticket):
        return flight.RecordBatchStream(pa.table({"value": ["Lakebed"]}))

    def do_action(self, context, action):
        os._exit(1)

with Dying("grpc://127.0.0.1:0") as server:
    print(server.port, flush=True)
    server.serve()
"""


def test_a_server_that_dies_may_have_done_what_it_was_asked_for() -> None:
    with subprocess.Popen([sys.executable, "-c", DYING], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with connect(f"grpc://127.0.0.1:{int(process.stdout.readline())}") as client:
            with pytest.raises(OutcomeUnknown, match="broke before it had answered"):
                admin.restore_partition(client, "x")
            process.wait(300)
            with pytest.raises(Unavailable) as absent:
                admin.restore_partition(client, "x")
    assert type(absent.value) is Unavailable


def test_tls_needs_a_certificate_that_is_trusted(
    lake: Lake, keys: dict[Role, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, private_key = make_certificate(tmp_path)
    with serving(lake, certificate=certificate, private_key=private_key) as served:
        address, key = served.flight.replace("grpc:", "grpc+tls:"), keys[Role.READ]
        with pytest.raises(Refused, match="is not trusted") as refused:
            connect(address, key=key)
        assert "LAKEBED_CERTIFICATE" in str(refused.value.hint)
        with connect(address, key=key, certificate=certificate) as client:
            assert client.query("SELECT 1").to_arrow().num_rows == 1
        monkeypatch.setenv("LAKEBED_CERTIFICATE", str(certificate))
        connect(address, key=key).close()
        with pytest.raises(Unavailable, match="no server answers") as plain:
            connect(served.flight, key=key)
        assert "grpc+tls://" in str(plain.value.hint)
        with pytest.raises(Refused, match="is for another name"):
            connect(address.replace("127.0.0.1", "localhost"), key=key)
        with pytest.raises(BadInput, match="cannot read the certificate"):
            connect(address, key=key, certificate=tmp_path / "none.pem")
        with pytest.raises(BadInput, match="holds no certificate"):
            connect(address, key=key, certificate=__file__)


def test_callers_may_ask_for_less_time_than_the_server_gives_not_for_more(
    lake: Lake, keys: dict[Role, str]
) -> None:
    sql = f"SELECT count(*) FROM ({ENDLESS})"
    with (
        serving(lake, settings=ServerSettings(query_seconds=0.05)) as served,
        connect(served.flight, key=keys[Role.READ]) as client,
        pytest.raises(TimedOut, match=r"longer than 0\.05 s"),
    ):
        client.query(sql, timeout=300).to_arrow()


def actions(client: Client) -> set[str]:
    listed = client._transport._client.list_actions(client._transport._options({}, None))
    return {each.type.removeprefix("lakebed.") for each in listed if "lakebed." in each.type}


def test_changes_are_for_administrators_who_alone_are_told_of_them(
    served: Served, lake: Lake, keys: dict[Role, str]
) -> None:
    with connect(served.flight, key=keys[Role.READ]) as reader:
        reading = ("list", "explain", "find", "validate")
        assert actions(reader) == {name for name in admin.__all__ if name.startswith(reading)}
        assert admin.list_partitions(reader, "readings").num_rows == 1
        for call in (
            lambda: admin.retire_partitions(
                reader, "readings", None, T0, T0 + 1, confirmed=["readings"]
            ),
            lambda: admin.restore_partition(reader, "x"),
            lambda: admin.retire_incompatible_partitions(reader),
        ):
            with pytest.raises(Denied, match="needs the admin role"):
                call()
        with pytest.raises(Unsupported, match="there is no action"):
            reader.act("lakebed.__init__", b"")
    with connect(served.flight, key=keys[Role.ADMIN]) as boss:
        assert actions(boss) == {*admin.__all__} - {"materialize_partitions"}
        with pytest.raises(Unsupported, match="needs the lake itself"):
            admin.materialize_partitions(boss, "readings", T0, T0 + 1)
        for body in (b"\xff", b"\x80", b"\x81\xa4what\x01"):
            with pytest.raises(BadInput, match="not understood"):
                boss.act("lakebed.restore_partition", body)
        with pytest.raises(BadInput, match="cannot be sent"):
            admin.restore_partition(boss, object())  # type: ignore[arg-type]


def test_errors_survive_the_way() -> None:
    told = decode_error(encode_error(BadSchema(["one", "two"]), 3))
    assert isinstance(told, BadSchema)
    assert told.problems == ("one", "two")
    assert type(decode_error(encode_error(BadRecords([1], 2), 3))) is BadInput

    class Own(Unavailable):
        pass

    hinted = decode_error(encode_error(Own("x" * 9000, hint="wait"), 14))
    assert type(hinted) is Unavailable
    assert hinted.hint == "wait"
    assert len(str(hinted)) < 2000
    assert decode_error(b"\xff") is None
    assert decode_error(b"") is None
    assert issubclass(Own, LakebedError)
