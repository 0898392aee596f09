"""Detect a PostgreSQL server that hangs: its machine or disk is frozen, or the network lost a
connection. Nothing closes the connection then, and a statement would wait without end. The other
direction too: if a client machine disappears in the middle of a transaction, the server must notice
soon, because the transaction locks the lake's clock.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from enum import Enum, auto
from typing import Any, NoReturn

import psycopg
import sqlalchemy as sa
from psycopg.abc import PQGen

from lakebed.errors import BadInput

SILENT_SECONDS = 10.0
"""A statement waits this long for an answer before a second connection probes the server."""
_MOST_REFUSALS = 3
"""A server may refuse this many probes in a row, as one with too many connections does."""
_KEEPALIVES = """SELECT pg_backend_pid(), set_config('tcp_keepalives_idle', '15', false),
set_config('tcp_keepalives_interval', '5', false), set_config('tcp_keepalives_count', '3', false)"""
"""The server notices within half a minute that a machine is gone, and not after two hours."""
_IS_IDLE = "SELECT state LIKE 'idle%%' FROM pg_stat_activity WHERE pid = %s"
"""True if the server works on no statement of a connection."""


def notice_silence(engine: sa.Engine) -> None:
    """Make statements of a PostgreSQL engine fail if the server hangs."""
    sa.event.listen(engine, "do_connect", _connect)


def _connect(_dialect: object, _record: object, arguments: Any, options: Any) -> _Attentive:
    try:
        connection = _Attentive.connect(*arguments, **options)
    except psycopg.ProgrammingError as error:
        reason = " ".join(str(error).split())
        raise BadInput(f"cannot use the address of the catalog: {reason}") from None
    connection.address = options
    row = connection.execute(_KEEPALIVES).fetchone()
    connection.is_direct = row is not None and row[0] == connection.info.backend_pid
    return connection


class _Probe(Enum):
    """The state of a connection that waits for its server, as seen from a second connection."""

    WORKING = auto()
    IDLE = auto()
    """The server waits for this connection, or has closed it."""
    REFUSED = auto()
    """The server accepts no second connection, for example because it has too many."""


class _Attentive(psycopg.Connection[Any]):
    """A connection that fails instead of waiting for a dead server. A slow statement does not fail:
    a second connection asks the server every `SILENT_SECONDS` whether it still works on it."""

    address: dict[str, Any]
    is_direct = False
    """False behind a connection pooler, where the server knows another process id."""

    def wait(self, gen: PQGen[Any], *args: Any, **options: Any) -> Any:
        """Run one of psycopg's generators, and watch how long it waits."""
        return super().wait(self._watched(gen), *args, **options)

    def _watched(self, gen: PQGen[Any]) -> Generator[Any, Any, Any]:
        """Raise if the server is dead. One idle probe proves nothing, because the answer may arrive
        during the probe: the connection is dead if a second probe finds it idle as well."""
        last_answer, refusals, was_idle = time.monotonic(), 0, False
        try:
            awaited = next(gen)
            while True:
                ready = yield awaited
                if ready:
                    last_answer, refusals, was_idle = time.monotonic(), 0, False
                elif was_idle or time.monotonic() - last_answer > SILENT_SECONDS:
                    probe = self._probe()
                    if probe is _Probe.IDLE and was_idle:
                        self._give_up("the connection is dead, though the server answers others")
                    was_idle = probe is _Probe.IDLE
                    refusals = refusals + 1 if probe is _Probe.REFUSED else 0
                    if refusals > _MOST_REFUSALS:
                        self._give_up("the server accepts no connections")
                    last_answer = time.monotonic()
                awaited = gen.send(ready)
        except StopIteration as end:
            return end.value

    def _probe(self) -> _Probe:
        """Ask the server about this connection. Raise if it does not respond at all."""
        try:
            with _Attentive.connect(**self.address) as second:
                second.address = self.address  # the server may hang at this moment
                row = second.execute(_IS_IDLE, [self.info.backend_pid]).fetchone()
        except psycopg.errors.ConnectionTimeout:
            self._give_up("the server does not answer")
        except psycopg.Error:
            return _Probe.REFUSED
        if self.is_direct and (row is None or row[0]):
            return _Probe.IDLE
        return _Probe.WORKING

    def _give_up(self, reason: str) -> NoReturn:
        self.pgconn.finish()
        raise psycopg.OperationalError(reason)
