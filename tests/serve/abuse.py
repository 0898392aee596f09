"""What hostile callers say to a server, and how their answers are judged: a refusal with the right
status, nothing stored, nothing told of the inside.
"""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import grpc
import sqlalchemy as sa

from lakebed.catalog.records import blocks
from lakebed.lake import Lake
from tests.parts.data import stored_files
from tests.serve.parts import Answer, Served

HOSTILE_NAMES = (
    "..",
    "../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e",
    "..\\..\\windows",
    "/etc/passwd",
    "rings; DROP TABLE partitions",
    "rings' OR '1'='1",
    'rings" OR ""="',
    "rings'); DELETE FROM blocks; --",
    "rings\x00",
    "rings\n",
    "a" * 5000,
    "rings$(reboot)",
    "${jndi:ldap://x/y}",
    "{{7*7}}",
    "CON",
    "\u202egnir",
    "rings ",
    "%",
    "_",
    "",
)


_COUNTED = (
    "journal",
    "blocks",
    "segments",
    "streams",
    "view_sets",
    "lakehouse_partitions",
    "temporary_files",
    "databases",
    "tables",
    "table_versions",
    "table_inserts",
    "api_keys",
)


@dataclass
class Judge:
    """Looks at every answer, and at the lake between them."""

    lake: Lake
    secrets: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)

    def look(self, said: bytes | str, what: object) -> None:
        """Nothing of the inside may be told."""
        text = said if isinstance(said, bytes) else said.encode(errors="replace")
        inside = [b"Traceback", b'File "', b".py", b"site-packages", b"sqlalchemy", b"psycopg"]
        inside += [b"sqlite3.", b"0x7f", b"inside the server"]
        inside += [each.encode() for each in (*self.secrets, self._place)]
        for each in inside:
            assert each not in text, f"{each!r} in the answer {text[:500]!r} to {what!r:.500}"

    def judge(self, answer: Answer, what: object, *statuses: int) -> None:
        """An answer of HTTP."""
        self.counts[f"HTTP {answer.status}"] += 1
        assert answer.status in statuses, f"{answer.status} {answer.body[:500]!r} to {what!r:.500}"
        self.look(answer.body + str(dict(answer.headers)).encode(), what)

    @property
    def _place(self) -> str:
        return self.lake.catalog.url.partition("///")[2].rpartition("/")[0]

    def state(self, *, files: bool = True) -> tuple[object, ...]:
        """What the lake has: a change of anything would be seen here. Not its tick, which also goes
        on when a reader takes a lease."""
        with self.lake.catalog.read() as connection:
            return (
                blocks.last_insert_time(connection),
                *(
                    connection.execute(sa.text(f"SELECT count(*) FROM {each}")).scalar()
                    for each in _COUNTED
                ),
                frozenset(stored_files(self.lake) if files else ()),
            )

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[None]:
        before = self.state()
        yield
        after = self.state()
        assert after == before, [
            (old, new) for old, new in zip(before, after, strict=True) if old != new
        ]


def make_rng() -> random.Random:
    seed = int(os.environ.get("LAKEBED_FUZZ_SEED") or random.SystemRandom().getrandbits(32))
    print(f"repeat with LAKEBED_FUZZ_SEED={seed}")  # noqa: T201
    return random.Random(seed)


def say(served: Served, *pieces: bytes, then_close: bool = False) -> bytes:
    """Bytes as they are; whatever comes back until the server hangs up or says nothing more."""
    with socket.create_connection(("127.0.0.1", served.port), timeout=300) as connection:
        with contextlib.suppress(ConnectionError):  # it hung up, and has said why
            for piece in pieces:
                connection.sendall(piece)
        if then_close:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_WR)
        said = b""
        with contextlib.suppress(ConnectionError):
            while part := connection.recv(65536):
                said += part
                if b"\r\n\r\n" in said and not then_close:
                    break
        return said


def status_of(said: bytes) -> int:
    """The status of an answer; 0 if there is none."""
    return int(said.split(b" ", 2)[1]) if said.startswith(b"HTTP/1.1 ") else 0


def call(
    channel: grpc.Channel,
    method: str,
    requests: Iterable[bytes] | bytes,
    headers: Iterable[tuple[str, str]] = (),
    **options: object,
) -> tuple[grpc.StatusCode, str, list[bytes]]:
    """One call with messages as they are: its status, what was said, and its answers."""
    sent = [requests] if isinstance(requests, bytes) else list(requests)
    stub = channel.stream_stream(method)
    answers = []
    try:
        for each in stub(iter(sent), metadata=tuple(headers), timeout=300, **options):
            answers.append(each)
    except grpc.RpcError as error:
        trailers = str(error.trailing_metadata())
        return error.code(), f"{error.details()} {trailers}", answers
    return grpc.StatusCode.OK, "", answers
