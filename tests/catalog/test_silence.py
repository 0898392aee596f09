"""Transactions on PostgreSQL that would wait without end: for a server that says nothing, or for a
process that does not let go of the lake's clock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from lakebed.catalog import clock, dialects, silence
from lakebed.catalog.catalog import Catalog
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


def test_a_server_that_says_nothing_is_unavailable(
    catalog: Catalog, freezer: Freezer, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = read_clock(catalog)
    monkeypatch.setattr(silence, "SILENT_SECONDS", 0.2)
    freezer.freeze()
    with pytest.raises(Unavailable, match="does not answer"):
        read_clock(catalog)
    freezer.thaw()
    assert read_clock(catalog) >= before


def test_a_slow_answer_is_not_taken_for_none(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "SILENT_SECONDS", 0.05)
    with catalog.read() as connection:
        assert connection.exec_driver_sql("SELECT 1 FROM pg_sleep(0.5)").scalar() == 1


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
    monkeypatch.setattr(silence, "SILENT_SECONDS", 0.2)
    freezer.forget()
    with pytest.raises(Unavailable, match="dead"):
        read_clock(catalog)
    assert read_clock(catalog) >= before


def test_a_writer_that_stands_still_is_ended(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else writes in the middle of its transaction, which has not happened."""
    ended = dialects._ENDED.replace("300s", "300ms")
    assert ended != dialects._ENDED
    monkeypatch.setattr(dialects, "_ENDED", ended)
    ticks: list[int] = []

    def write() -> None:
        with catalog.write() as transaction:
            ticks.append(transaction.tick)

    def stand_still(_transaction: object) -> None:
        other = threading.Thread(target=write)
        other.start()
        other.join(60)

    with pytest.raises(Unavailable, match="nothing was committed"):
        catalog.commit(stand_still, lambda _connection, _result: False)
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
