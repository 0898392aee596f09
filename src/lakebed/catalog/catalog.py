"""A connection to the catalog database. Every change of the lake happens inside `Catalog.write`,
which first takes a tick of the lake's clock. Every read happens inside `Catalog.read`, one
repeatable snapshot, or, for a single query, inside `Catalog.glance`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import sqlalchemy as sa

from lakebed.catalog import clock
from lakebed.catalog.acting import name_actor
from lakebed.catalog.connections.dialects import GLANCE, WRITE, Dialect, find_dialect
from lakebed.catalog.connections.statement_log import log_statements
from lakebed.catalog.connections.trips import settle
from lakebed.catalog.migrate import current_revision, migrate, require_head
from lakebed.errors import BadInput, OutcomeUnknown, ReadOnly, Unavailable
from lakebed.logs import Operation

Connection = sa.Connection
"""An open transaction, which the functions of this package take; only they call its methods."""

T = TypeVar("T")
_log = logging.getLogger(__name__)
_CONFIRM_TRIES = 5


@dataclass(frozen=True, slots=True)
class Transaction:
    """A write in progress: nothing else in the lake commits between its tick and its commit."""

    connection: sa.Connection
    tick: int
    actor: str


class Catalog:
    """One lake's catalog. Cheap to open; safe to share between threads."""

    def __init__(self, url: str, *, actor: str, read_only: bool = False) -> None:
        self.url = url
        self.actor = actor
        self.read_only = read_only
        self.dialect: Dialect = find_dialect(url, read_only=read_only)
        self.engine = self.dialect.create_engine()
        log_statements(self.engine)
        self._glancer = self.engine.execution_options(**{GLANCE: True})
        self._writer = self.engine.execution_options(**{WRITE: True})

    def require_current(self) -> None:
        """Raise unless the catalog exists and has this program's shape."""
        with self.read() as connection:
            require_head(connection, self.dialect.name_database())

    def find_revision(self) -> str | None:
        """Return the catalog's revision, or None if the database has no catalog. Raise
        `ForeignCatalog` if the database belongs to another program."""
        with self.read() as connection:
            return current_revision(connection, self.dialect.name_database())

    def migrate(self, progress: Callable[[str], None] = lambda _line: None) -> list[str]:
        """Bring the catalog to this program's shape and return the revisions that ran."""
        database = self.dialect.name_database()
        with Operation(_log, "migrate", catalog=database) as operation:
            with self._translated():
                revisions = migrate(self.engine, database=database, progress=progress)
            operation.add(revisions=revisions)
        return revisions

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """One consistent view of everything committed; nothing in it changes while it is open."""
        with self._translated(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def glance(self) -> Iterator[sa.Connection]:
        """Open a connection without a snapshot: each statement may see another state of the lake
        and is one round trip. For a single query, or for values that a write reads again."""
        with self._translated(), self._glancer.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def write(self, ticks: int = 1) -> Iterator[Transaction]:
        """Open a transaction on the lake's clock. It commits if the block ends without an error. A
        broken connection during commit raises `OutcomeUnknown`; any other error means that nothing
        was committed."""
        self._require_writable()
        with self._translated(), self._writer.connect() as connection:
            transaction = connection.begin()
            try:
                tick = clock.advance(connection, ticks)
                yield Transaction(connection, tick, name_actor(self.actor))
                settle(connection)
            except BaseException:
                transaction.rollback()
                raise
            try:
                transaction.commit()
            except sa.exc.DBAPIError as error:
                connection.invalidate()
                raise OutcomeUnknown("the connection to the catalog broke during commit") from error

    @contextmanager
    def beat(self) -> Iterator[sa.Connection]:
        """Open a small write that the lake's clock does not order, for heartbeats of leases."""
        self._require_writable()
        with self._translated(), self._writer.begin() as connection:
            yield connection

    def _require_writable(self) -> None:
        if self.read_only:
            raise ReadOnly("the lake was opened for reading only", hint="open it for writing")

    def commit(
        self,
        work: Callable[[Transaction], T],
        happened: Callable[[sa.Connection, T], bool],
        ticks: int = 1,
    ) -> T:
        """Run ``work`` in a write. If its outcome is unknown, call ``happened`` after another tick,
        so that the lost commit can no longer arrive."""
        result: list[T] = []
        try:
            with self.write(ticks) as transaction:
                result.append(work(transaction))
        except OutcomeUnknown as unknown:
            if not self._confirm(lambda connection: happened(connection, result[0])):
                raise Unavailable(
                    "the connection to the catalog broke and nothing was committed",
                    hint="repeat the operation",
                ) from unknown
        return result[0]

    def _confirm(self, happened: Callable[[sa.Connection], bool]) -> bool:
        for attempt in range(_CONFIRM_TRIES):
            time.sleep(0.2 * attempt)
            try:
                with self.write() as transaction:
                    return happened(transaction.connection)
            except Unavailable:
                continue
        raise OutcomeUnknown(
            "the connection broke during commit and the catalog cannot be asked what happened",
            hint="look with `lakebed journal` once it is reachable again",
        )

    def close(self) -> None:
        """Close every idle connection; a connection in use is closed when it is returned."""
        sa.event.listen(self.engine, "checkin", _close)
        self.engine.dispose()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except sa.exc.DBAPIError as error:
            translated = self.dialect.translate(error)
            if translated is None:
                raise
            raise translated from error
        except UnicodeEncodeError as error:  # half of a surrogate pair in a name
            raise BadInput(
                f"the catalog cannot hold a value: {error.object!r} is not valid unicode"
            ) from error
        except sa.exc.TimeoutError as error:
            raise Unavailable("too many catalog connections are in use") from error


def _close(_connection: object, record: sa.pool.ConnectionPoolEntry) -> None:
    """Close a connection instead of returning it to the pool."""
    record.invalidate()
