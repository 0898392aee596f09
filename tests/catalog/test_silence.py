"""Transactions on PostgreSQL that would hang: because the server does not respond, or because a
process keeps the lake's clock locked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import psycopg
import pytest
import sqlalchemy as sa

from lakebed.catalog import clock
from lakebed.catalog.catalog import Catalog, Transaction
from lakebed.catalog.connections import dialects, silence
from lakebed.errors import Unavailable
from tests.parts.freezing import Freezer


@pytest.fixture
def catalog(freezer: Freezer) -> Iterator[Catalog]:
    catalog = Catalog(freezer.url, actor="test")
    yield catalog
    catalog.close()


def read_clock(catalog: Catalog) -> int:
    with catalog.read() as connection:
        return clock.upcoming(connection)


def run(catalog: Catalog, sql: str) -> object:
    with catalog.read() as connection:
        return connection.exec_driver_sql(sql).scalar()


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for a condition; the limit only ends a test that would hang."""
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)


def read_clock_once_available(catalog: Catalog) -> int:
    """Read the clock, however long a busy machine takes to connect to the server again."""
    deadline = time.monotonic() + 300
    while True:
        try:
            return read_clock(catalog)
        except Unavailable:
            assert time.monotonic() < deadline


def test_frozen_server_is_unavailable_until_it_responds_again(
    catalog: Catalog, freezer: Freezer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_clock(catalog)
    with monkeypatch.context() as impatience:
        impatience.setattr(silence, "SILENT_SECONDS", 0.2)
        freezer.freeze()
        with pytest.raises(Unavailable, match="does not answer"):
            read_clock(catalog)
    freezer.thaw()
    assert read_clock_once_available(catalog) >= before


def test_slow_statement_is_not_an_outage(
    freezer: Freezer, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is short only once the server works on the statement, which waits for a lock."""
    patient_url = sa.make_url(freezer.url).update_query_dict({"connect_timeout": "300"})
    catalog = Catalog(patient_url.render_as_string(hide_password=False), actor="test")
    database = sa.make_url(postgres_url).set(database=patient_url.database)
    direct = psycopg.connect(database.render_as_string(hide_password=False), autocommit=True)
    direct.execute("SELECT pg_advisory_lock(7)")
    waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with ThreadPoolExecutor(1) as pool:
        statement = pool.submit(run, catalog, "SELECT 1 FROM pg_advisory_lock(7)")
        wait_until(lambda: direct.execute(waiting).fetchone() == (1,))
        connections = freezer.connections
        with monkeypatch.context() as impatience:
            impatience.setattr(silence, "SILENT_SECONDS", 0.05)
            wait_until(lambda: freezer.connections >= connections + 3)
        direct.execute("SELECT pg_advisory_unlock(7)")
        assert statement.result() == 1
    direct.close()
    catalog.close()


def test_nobody_waits_for_another_writer_without_end(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialects, "_ENDED", "SELECT set_config('lock_timeout', '200ms', true)")
    with (
        catalog.write(),
        pytest.raises(Unavailable, match="stayed locked"),
        catalog.write(),
    ):
        pass
    with catalog.write() as transaction:
        assert transaction.tick > 0


def test_what_an_address_says_of_a_connection_goes_before(catalog: Catalog) -> None:
    with catalog.engine.connect() as connection:
        parameters = connection.connection.driver_connection.info.get_parameters()
    assert parameters["connect_timeout"] == "2"
    assert parameters["tcp_user_timeout"] == "30000"


def test_a_connection_that_is_dead_alone_is_given_up(
    catalog: Catalog, freezer: Freezer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers everybody else, and does not know that this one waits."""
    before = read_clock(catalog)
    with monkeypatch.context() as impatience:
        impatience.setattr(silence, "SILENT_SECONDS", 0.2)
        freezer.forget()
        with pytest.raises(Unavailable, match=r"dead|does not answer"):
            read_clock(catalog)
    assert read_clock_once_available(catalog) >= before


def test_write_transaction_has_a_time_limit(catalog: Catalog) -> None:
    with catalog.write() as transaction:
        limit = transaction.connection.exec_driver_sql("SHOW transaction_timeout").scalar()
    assert limit == "5min"


def test_hanging_writer_is_ended_and_another_writer_commits(catalog: Catalog) -> None:
    """Only the hanging transaction has a short limit, so that a busy machine ends no other one."""
    ticks: list[int] = []

    def write() -> None:
        with catalog.write() as transaction:
            ticks.append(transaction.tick)

    def hang(transaction: Transaction) -> None:
        for limit in ("0", "100ms"):  # PostgreSQL 17 starts the limit anew only after a zero
            transaction.connection.exec_driver_sql(f"SET LOCAL transaction_timeout = '{limit}'")
        other = threading.Thread(target=write)
        other.start()
        other.join()

    with pytest.raises(Unavailable, match="nothing was committed"):
        catalog.commit(hang, lambda _connection, _result: False)
    assert len(ticks) == 1


@pytest.mark.parametrize("messages", range(1, 9))
def test_a_server_that_falls_silent_while_it_is_connected_to_is_unavailable(
    freezer: Freezer, monkeypatch: pytest.MonkeyPatch, messages: int
) -> None:
    """SQLAlchemy asks a few things first, on a connection that is not finished."""
    monkeypatch.setattr(silence, "SILENT_SECONDS", 0.2)
    catalog = Catalog(freezer.url, actor="test")
    freezer.freeze_after(messages)
    with pytest.raises(Unavailable):
        for _ in range(9):
            read_clock(catalog)
    catalog.close()


class GaveUp(Exception):
    """The watched connection was given up."""


class ScriptedConnection(silence._Attentive):
    """A connection without a server, whose probes find what a script says."""

    def __init__(self, probes: Sequence[silence._Probe]) -> None:
        self.probes = list(probes)

    def __del__(self, *_arguments: object) -> None:
        """Close nothing."""

    def _probe(self) -> silence._Probe:
        return self.probes.pop(0)

    def _give_up(self, reason: str) -> NoReturn:
        raise GaveUp(reason)


REFUSED, WORKING, IDLE = silence._Probe.REFUSED, silence._Probe.WORKING, silence._Probe.IDLE
ANSWER = None
"""In a script: the server answers, and no probe is made."""


@pytest.mark.parametrize(
    ("script", "end"),
    [
        ([REFUSED] * 3 + [WORKING], None),
        ([REFUSED] * 4, "accepts no connections"),
        ([REFUSED] * 3 + [WORKING] + [REFUSED] * 3, None),
        ([REFUSED] * 3 + [WORKING] + [REFUSED] * 4, "accepts no connections"),
        ([REFUSED] * 3 + [ANSWER] + [REFUSED] * 3, None),
        ([REFUSED] * 3 + [ANSWER] + [REFUSED] * 4, "accepts no connections"),
        ([IDLE, WORKING, IDLE, ANSWER, IDLE], None),
        ([IDLE, IDLE], "the connection is dead"),
        ([IDLE, WORKING, IDLE, IDLE], "the connection is dead"),
        ([IDLE, ANSWER, IDLE, IDLE], "the connection is dead"),
    ],
)
def test_connection_is_given_up_after_repeated_probes_without_an_answer_between(
    script: list[silence._Probe | None], end: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "SILENT_SECONDS", -1.0)
    connection = ScriptedConnection([probe for probe in script if probe is not None])

    def wait_for_server() -> Generator[Any, Any, str]:
        for _ in range(len(script) + 1):
            yield "socket"
        return "result"

    watched = connection._watched(wait_for_server())
    next(watched)
    for probe in script[:-1]:
        watched.send(probe is ANSWER)
    if end is None:
        watched.send(False)
        with pytest.raises(StopIteration, match="result"):
            watched.send(True)
    else:
        with pytest.raises(GaveUp, match=end):
            watched.send(False)
    assert connection.probes == []
