"""A PostgreSQL that neither answers nor goes away: its machine or its disk is frozen, or what is
between lost a connection. Nothing closes it then, and a statement would wait without end. And the
other way round: a process whose machine is gone in the middle of a transaction would keep the
lake's clock from all others until the server notices.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, NoReturn

import psycopg
import sqlalchemy as sa
from psycopg.abc import PQGen

SILENT_SECONDS = 10.0
"""How long a statement goes without an answer before the server is asked whether it is there."""
_MOST_REFUSALS = 3
"""How often newcomers may be refused, as by a server with too many of them, while one waits."""
_LET_GO = """SELECT pg_backend_pid(), set_config('tcp_keepalives_idle', '15', false),
set_config('tcp_keepalives_interval', '5', false), set_config('tcp_keepalives_count', '3', false)"""
"""The server notices within half a minute that a machine is gone, and not after two hours."""
_WAITS = "SELECT state LIKE 'idle%%' FROM pg_stat_activity WHERE pid = %s"
"""Whether the server waits for what a connection says next."""


def notice_silence(engine: sa.Engine) -> None:
    """Let statements of an engine for PostgreSQL fail if the server does not answer them."""
    sa.event.listen(engine, "do_connect", _connect)


def _connect(_dialect: object, _record: object, given: Any, options: Any) -> _Attentive:
    connection = _Attentive.connect(*given, **options)
    connection.address = options
    row = connection.execute(_LET_GO).fetchone()
    connection.is_direct = row is not None and row[0] == connection.info.backend_pid
    return connection


class _Attentive(psycopg.Connection[Any]):
    """A connection that does not take a slow answer for none: whoever waits looks, every so often,
    whether the server talks to newcomers, and what it knows of this connection."""

    address: dict[str, Any]
    is_direct = False
    """Whether the server itself is at the other end, and nobody who shares connections out."""

    def wait(self, gen: PQGen[Any], *args: Any, **options: Any) -> Any:
        """Do what a generator needs of the connection."""
        return super().wait(self._watched(gen), *args, **options)

    def _watched(self, gen: PQGen[Any]) -> Generator[Any, Any, Any]:
        heard, refusals = time.monotonic(), 0
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard, refusals = time.monotonic(), 0
                elif time.monotonic() - heard > SILENT_SECONDS:
                    refusals = 0 if self._require_answer() else refusals + 1
                    if refusals > _MOST_REFUSALS:
                        self._give_up("the server lets nobody in")
                    heard = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value

    def _require_answer(self) -> bool:
        """Give up if the server answers nobody, or does not know that it is waited for; whether it
        answers newcomers."""
        try:
            with _Attentive.connect(**self.address) as newcomer:
                newcomer.address = self.address  # the server may fall silent at this moment
                row = newcomer.execute(_WAITS, [self.info.backend_pid]).fetchone()
        except psycopg.errors.ConnectionTimeout:
            self._give_up("the server does not answer")
        except psycopg.Error:
            return False
        if self.is_direct and (row is None or row[0]):
            self._give_up("the connection is dead, though the server answers others")
        return True

    def _give_up(self, reason: str) -> NoReturn:
        self.pgconn.finish()
        raise psycopg.OperationalError(reason)
