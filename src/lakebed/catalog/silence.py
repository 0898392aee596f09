"""A PostgreSQL that neither answers nor goes away: its machine is frozen, or its disk is. Nothing
closes the connection then, and a statement would wait for as long as that lasts. And the other way
round: a process whose machine is gone in the middle of a transaction would keep the lake's clock
from all others until the server notices.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import psycopg
import sqlalchemy as sa
from psycopg.abc import PQGen

SILENT_SECONDS = 10.0
"""How long a statement goes without an answer before the server is asked whether it is there."""
_LET_GO = """SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5;
SET tcp_keepalives_count = 3"""
"""The server notices within half a minute that a machine is gone, and not after two hours."""


def notice_silence(engine: sa.Engine) -> None:
    """Let statements of an engine for PostgreSQL fail if the server does not answer anybody."""
    sa.event.listen(engine, "do_connect", _connect)


def _connect(_dialect: object, _record: object, given: Any, options: Any) -> _Attentive:
    connection = _Attentive.connect(*given, **options)
    connection.address = options
    connection.execute(_LET_GO)
    return connection


class _Attentive(psycopg.Connection[Any]):
    """A connection that does not take a slow answer for none: whoever waits looks, every so often,
    whether the server talks to newcomers."""

    address: dict[str, Any]

    def wait(self, gen: PQGen[Any], *args: Any, **options: Any) -> Any:
        """Do what a generator needs of the connection."""
        return super().wait(self._watched(gen), *args, **options)

    def _watched(self, gen: PQGen[Any]) -> Generator[Any, Any, Any]:
        heard = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready:
                    heard = time.monotonic()
                elif time.monotonic() - heard > SILENT_SECONDS:
                    self._require_answer()
                    heard = time.monotonic()
                wanted = gen.send(ready)
        except StopIteration as end:
            return end.value

    def _require_answer(self) -> None:
        try:
            psycopg.Connection.connect(**self.address).close()
        except psycopg.errors.ConnectionTimeout:
            self.pgconn.finish()
            raise psycopg.OperationalError("the server does not answer") from None
        except psycopg.Error:
            return  # which is an answer, if not a kind one
