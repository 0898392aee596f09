"""The Spark session of builds: the caller's, a new one, or one that is kept for the next build."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.pipeline.sessions import jvm
from lakebed.pipeline.sessions.executors import StoreAddress, require_executors, ship, ship_beside
from lakebed.pipeline.sessions.session import is_remote, use_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The session that a build runs on: the caller's, or one that is started."""

    spark: SparkSession | None = None
    master: str | None = None
    remote: str | None = None
    quick: bool | None = None
    """For a JVM that compiles less and starts sooner; None lets the amount of work decide."""
    keep: bool = False
    """Leave the session to the next build."""


class BuildSessions:
    """The session that builds keep, and the one in which a build works."""

    def __init__(self) -> None:
        self._kept: tuple[SparkSession, ExitStack] | None = None
        self._is_ours = False
        self._at_work: SparkSession | None = None

    @contextmanager
    def use(
        self, request: SessionRequest, address: StoreAddress, *, is_small: bool
    ) -> Iterator[SparkSession]:
        """Yield the session of a build. A kept one is closed if the build fails."""
        if not request.keep:
            quick = is_small if request.quick is None else request.quick
            with _open(request, address, quick=quick) as session:
                yield session
            return
        if self._kept is not None and jvm.is_dead():
            self.close()
        if self._kept is None:
            stack = ExitStack()
            session = stack.enter_context(_open(request, address, quick=bool(request.quick)))
            self._kept = (session, stack)
            self._is_ours = request.spark is None
        try:
            yield self._kept[0]
        except BaseException:
            self.close()
            raise

    @contextmanager
    def work_beside(self, session: SparkSession) -> Iterator[SparkSession]:
        """Yield a session beside another one; `cancel` ends its jobs."""
        try:
            with own_session(session) as own:
                self._at_work = own
                yield own
        finally:
            self._at_work = None

    def cancel(self) -> None:
        """End the jobs of the build that works now."""
        session = self._at_work
        if session is None:
            return
        self._silence()
        if is_remote(session):
            session.interruptAll()
        else:
            jvm.cancel_jobs(session)

    def close(self) -> None:
        """Stop the session that was kept, if there is one."""
        self._silence()
        session, self._kept = self._kept, None
        if session is not None:
            session[1].close()

    def _silence(self) -> None:
        """Let the kept session print nothing about tasks that are cut off, unless it is shared."""
        if self._kept is not None and self._is_ours and not is_remote(self._kept[0]):
            jvm.silence(self._kept[0])


@contextmanager
def _open(request: SessionRequest, address: StoreAddress, *, quick: bool) -> Iterator[SparkSession]:
    """Yield a session whose executors have this package, its dependencies and the store."""
    with use_session(
        request.spark, master=request.master, remote=request.remote, quick=quick
    ) as session:
        ship(session)
        require_executors(session, address)
        yield session


@contextmanager
def own_session(session: SparkSession) -> Iterator[SparkSession]:
    """Yield a session beside the caller's, in which names in double quotes are columns. The
    connection to a Connect server is closed: pyspark asks open ones at exit, for minutes if the
    server is gone. A classic session must not be stopped: that stops them all."""
    own = session.newSession()
    ship_beside(session, own)
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.ansi.enabled", "true")
    own.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    try:
        yield own
    finally:
        if is_remote(own):
            own.client.close()
        else:
            jvm.forget_jobs(own)
