"""A server waits for its PostgreSQL, so that start order does not matter; but only if waiting can
help, and not longer than it may.
"""

from __future__ import annotations

import multiprocessing
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from multiprocessing.synchronize import Event

import pytest
import sqlalchemy as sa

from lakebed.catalog.catalog import Catalog
from lakebed.catalog.connections.waiting import wait_until_reachable
from lakebed.cli.main import TERMINATED, run
from lakebed.errors import BadInput, Unavailable
from lakebed.opening import connect, init_lake
from tests.parts import servers
from tests.parts.freezing import freezing_postgres

SERVE = [sys.executable, "-m", "lakebed", "serve", "--port", "0"]
ANY_PORTS = ["--otlp-port", "0", "--flight-port", "0", "--telemetry-seconds", "0"]
REFUSED = "cannot reach the catalog PostgreSQL postgresql://ada:***@127.0.0.1:"


@pytest.fixture
def refusing() -> Iterator[socket.socket]:
    """A port that refuses connections until something listens on it."""
    with socket.socket() as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(("127.0.0.1", 0))
        yield bound


def _url(bound: socket.socket) -> str:
    return f"postgresql://ada:secret@127.0.0.1:{bound.getsockname()[1]}/lake"


def _serve(url: str) -> subprocess.Popen[str]:
    command = [*SERVE, "--lake", url, *ANY_PORTS]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


class Clock:
    """Time that passes only during a sleep."""

    def __init__(self, wake: Callable[[float], None] = lambda _now: None) -> None:
        self.now = 0.0
        self.notices: list[str] = []
        self._wake = wake

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._wake(self.now)

    def wait(self, url: str, seconds: float = 30.0) -> None:
        with closing(Catalog(url, actor="test")) as catalog:
            wait_until_reachable(
                catalog, seconds, self.notices.append, sleep=self.sleep, now=lambda: self.now
            )


def test_serve_waits_until_postgresql_accepts_connections(
    postgres_url: str, migrated_postgres: str, refusing: socket.socket, tmp_path: object
) -> None:
    url = servers.new_database(postgres_url, migrated_postgres)
    init_lake(catalog=url, store=f"file://{tmp_path}/store").close()
    port = refusing.getsockname()[1]
    proxied = sa.make_url(url).set(host="127.0.0.1", port=port).difference_update_query(["host"])
    with _serve(proxied.render_as_string(hide_password=False)) as process:
        assert process.stderr is not None
        first = process.stderr.readline()
        assert first.startswith("cannot reach the catalog PostgreSQL")
        assert first.endswith("waiting for 300 s at most\n")
        refusing.listen()
        with freezing_postgres(url, refusing):
            lines = iter(process.stderr.readline, "")
            assert next(line for line in lines if "responds" in line)
            assert next(line for line in lines if line.startswith("serving http://"))
            process.send_signal(signal.SIGTERM)
            assert process.stderr.read().splitlines()[-1] == "stopped"
            assert process.wait(300) == 0
    servers.drop_database(url)


def test_serve_ends_on_sigterm_while_it_waits(refusing: socket.socket) -> None:
    with _serve(_url(refusing)) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith(REFUSED)
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == TERMINATED
        assert process.stderr.read() == "interrupted\n"


def test_serve_does_not_wait_if_told_so(
    refusing: socket.socket, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "--lake", _url(refusing), "--wait-seconds", "0"]) == 69
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {REFUSED}")


def test_wait_ends_when_connections_are_accepted(
    postgres_url: str, migrated_postgres: str, refusing: socket.socket
) -> None:
    url = servers.new_database(postgres_url, migrated_postgres)
    port = refusing.getsockname()[1]
    proxied = sa.make_url(url).set(host="127.0.0.1", port=port).difference_update_query(["host"])
    with ExitStack() as stack:

        def wake(now: float) -> None:
            if now == 12:
                refusing.listen()
                stack.enter_context(freezing_postgres(url, refusing))

        clock = Clock(wake)
        clock.wait(proxied.render_as_string(hide_password=False))
    assert clock.now == 12
    assert [notice.rpartition("; ")[2] for notice in clock.notices] == [
        "waiting for 30 s at most",
        "waiting for 20 s at most",
        "the catalog responds after 12 s",
    ]
    servers.drop_database(url)


def test_wait_raises_the_last_error_after_its_limit(refusing: socket.socket) -> None:
    clock = Clock()
    with pytest.raises(Unavailable, match="cannot reach the catalog"):
        clock.wait(_url(refusing), seconds=25)
    assert clock.now == 25
    assert len(clock.notices) == 3


_SSL, _GSS = struct.pack("!i", 80877103), struct.pack("!i", 80877104)
_ASK_PASSWORD = b"R" + struct.pack("!ii", 8, 3)


def _refusal(code: str, message: str) -> bytes:
    fields = f"SFATAL\0VFATAL\0C{code}\0M{message}\0\0".encode()
    return b"E" + struct.pack("!i", len(fields) + 4) + fields


def _answer(near: socket.socket, answers: Sequence[bytes]) -> None:
    while near.recv(4096)[4:8] in (_SSL, _GSS):
        near.sendall(b"N")
    for message in answers:
        near.sendall(message)
        if message[:1] == b"R":
            near.recv(4096)  # the password


def _answer_all(listening: socket.socket, answers: Sequence[bytes], ready: Event) -> None:
    ready.set()
    while True:
        near, _ = listening.accept()
        with near, suppress(OSError):  # the caller went away
            _answer(near, answers)


@contextmanager
def _answering(*answers: bytes) -> Iterator[str]:
    """A server that gives every connection these messages of PostgreSQL's protocol, and ends it. It
    is a process, because psycopg's ping keeps other threads of its process from running."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        context = multiprocessing.get_context("spawn")
        ready = context.Event()
        server = context.Process(target=_answer_all, args=(listening, answers, ready), daemon=True)
        server.start()
        try:
            ready.wait()
            yield _url(listening)
        finally:
            server.kill()
            server.join()


def test_wait_goes_on_while_the_server_starts() -> None:
    starting = _refusal("57P03", "the database system is starting up")
    clock = Clock()
    with _answering(starting) as url, pytest.raises(Unavailable, match="is starting up"):
        clock.wait(url, seconds=5)
    assert clock.now == 5


@pytest.mark.parametrize(
    "answers",
    [
        [_ASK_PASSWORD, _refusal("28P01", 'password authentication failed for user "ada"')],
        [_refusal("28000", 'role "ada" does not exist')],
    ],
)
def test_wait_raises_at_once_for_a_wrong_password_or_role(answers: list[bytes]) -> None:
    clock = Clock()
    with _answering(*answers) as url, pytest.raises(Unavailable, match="ada"):
        clock.wait(url)
    assert (clock.now, clock.notices) == (0, [])


def test_wait_raises_at_once_for_a_database_that_does_not_exist(postgres_url: str) -> None:
    url = sa.make_url(postgres_url).set(database="missing").render_as_string(hide_password=False)
    clock = Clock()
    with pytest.raises(Unavailable, match='"missing" does not exist'):
        clock.wait(url)
    assert (clock.now, clock.notices) == (0, [])


def test_wait_raises_at_once_for_an_unknown_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def resolve(*_arguments: object, **_options: object) -> object:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    clock = Clock()
    with pytest.raises(Unavailable, match="Name or service not known"):
        clock.wait("postgresql://db.example/lake")
    assert clock.now == 0


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("postgresql://127.0.0.1/lake?bogus=1", "cannot use the address of the catalog: .*bogus"),
        ("postgresql://127.0.0.1:99999/lake", "99999 is not a port"),
    ],
)
def test_address_that_no_server_can_have_is_bad_input(url: str, message: str) -> None:
    with pytest.raises(BadInput, match=message), closing(connect(url)) as catalog:
        catalog.find_revision()


def test_embedded_lake_is_not_waited_for(tmp_path: object) -> None:
    init_lake(f"{tmp_path}/lake").close()
    with closing(connect(f"{tmp_path}/lake")) as catalog:
        wait_until_reachable(catalog, 30, pytest.fail, sleep=pytest.fail)
