"""The keeper of leases among many readers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from lakebed.catalog import clock, leases
from lakebed.errors import LeaseLost, OutcomeUnknown, SnapshotExpired
from lakebed.lake import Lake
from lakebed.opening import open_lake
from lakebed.reading.leases import LeaseKeeper


def build(keeper: LeaseKeeper) -> None:
    with keeper.building("log_entries"):
        pytest.fail("the right to build was never returned")


TAKERS: dict[str, Callable[[LeaseKeeper], Any]] = {
    "reader": LeaseKeeper.pin,
    "reader of the past": LeaseKeeper.pin_all,
    "writer": LeaseKeeper.writer,
    "builder": build,
}


@pytest.mark.parametrize("end", [KeyboardInterrupt, OutcomeUnknown])
@pytest.mark.parametrize("name", TAKERS)
def test_a_lease_whose_taker_never_heard_of_it_is_given_back(
    lake: Lake, name: str, end: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next heartbeat does, or closing."""
    committed = lake.catalog.write

    @contextmanager
    def write(ticks: int = 1) -> Iterator[Any]:
        with committed(ticks) as transaction:
            yield transaction
        raise end("right after the commit")

    def list_leases() -> list[leases.Lease]:
        with lake.catalog.read() as connection:
            return leases.list_leases(connection)

    keeper = lake.leases
    for give_back in (keeper.beat, keeper.close):
        with monkeypatch.context() as patch:
            patch.setattr(lake.catalog, "write", write)
            with pytest.raises(end):
                TAKERS[name](keeper)
        assert len(list_leases()) == (0 if name == "builder" else 1)
        give_back()
        assert not list_leases()


def test_readers_go_on_while_a_heartbeat_waits_for_a_connection(lake: Lake) -> None:
    """Readers have all connections there are: if they waited for the heartbeat, nobody went on."""
    pin = lake.leases.pin()
    pool = lake.catalog.engine.pool
    with ExitStack() as readers:
        for _ in range(pool.size() + pool._max_overflow):  # type: ignore[attr-defined]
            readers.enter_context(lake.catalog.engine.connect())
        beating = threading.Thread(target=lake.leases.beat)
        beating.start()
        deadline = time.monotonic() + 300
        while lake.leases._lock.acquire(blocking=False) and time.monotonic() < deadline:
            lake.leases._lock.release()
            time.sleep(0.01)
        done = threading.Thread(
            target=lambda: (lake.leases.raise_pin(pin, pin.tick + 1), lake.leases.unpin(pin))
        )
        done.start()
        done.join(300)
        assert not done.is_alive()
    beating.join(300)
    assert not beating.is_alive()


def find_lease(lake: Lake, lease_id: str | None) -> leases.Lease | None:
    with lake.catalog.read() as connection:
        return leases.find(connection, lease_id or "")


def test_pin_keeps_the_oldest_tick_when_a_newer_past_is_pinned(lake: Lake) -> None:
    with lake.catalog.write(ticks=10) as transaction:
        last = transaction.tick
    older = lake.leases.pin(last - 5)
    newer = lake.leases.pin(last - 1)
    assert older.lease_id == newer.lease_id
    lease = find_lease(lake, older.lease_id)
    assert lease is not None
    assert lease.oldest_tick == last - 5
    lake.leases.unpin(older)
    lake.leases.beat()
    lease = find_lease(lake, older.lease_id)
    assert lease is not None
    assert lease.oldest_tick == last - 1


def test_pin_reaches_back_when_an_older_past_is_pinned(lake: Lake) -> None:
    with lake.catalog.write(ticks=10) as transaction:
        last = transaction.tick
    newer = lake.leases.pin(last - 1)
    since = find_lease(lake, newer.lease_id).pinned_at  # type: ignore[union-attr]
    lake.leases.pin(last - 5)
    lease = find_lease(lake, newer.lease_id)
    assert lease is not None
    assert (lease.oldest_tick, lease.pinned_at) == (last - 5, since)


def test_beat_keeps_the_oldest_tick_and_the_oldest_begin_of_all_pins(lake: Lake) -> None:
    with lake.catalog.write(ticks=10) as transaction:
        last = transaction.tick
    first = lake.leases.pin(last - 1)
    second = lake.leases.pin(last - 5)
    lake.leases.beat()
    lease = find_lease(lake, first.lease_id)
    assert lease is not None
    assert (lease.oldest_tick, lease.pinned_at) == (last - 5, first.since)
    assert second.since > first.since
    for pin in (first, second):
        lake.leases.unpin(pin)
    lake.leases.beat()
    assert find_lease(lake, first.lease_id) is None


def test_pin_of_the_past_outside_the_readable_range_is_refused(lake: Lake) -> None:
    with lake.catalog.write(ticks=10) as transaction:
        clock.raise_sweep_horizon(transaction.connection, transaction.tick - 5)
        last = transaction.tick
    lake.leases.pin(last - 5)
    with pytest.raises(SnapshotExpired):
        lake.leases.pin(last - 6)
    assert lake.leases.pin_all().tick == last - 5


def test_remove_returns_false_for_a_lease_that_has_beaten_since(lake: Lake) -> None:
    lease_id = lake.leases.writer()
    lease = find_lease(lake, lease_id)
    assert lease is not None
    lake.leases.beat()
    with lake.catalog.beat() as connection:
        assert not leases.remove(connection, lease_id, lease.beats)
        assert not leases.remove(connection, lease_id, lease.beats + 2)
        assert leases.find(connection, lease_id) is not None
        assert leases.remove(connection, lease_id, lease.beats + 1)
        assert leases.find(connection, lease_id) is None
        assert not leases.remove(connection, lease_id)


def test_builder_that_beats_after_the_last_look_keeps_its_lease(lake: Lake) -> None:
    with lake.leases.building("log_entries") as lease_id, open_lake(lake.catalog.url) as other:
        lease = find_lease(lake, lease_id)
        assert lease is not None
        lake.leases.beat()
        assert not other.leases._end(lease)
        lake.leases.require_builder(lease_id)
        lease = find_lease(lake, lease_id)
        assert lease is not None
        assert other.leases._end(lease)
        with pytest.raises(LeaseLost):
            lake.leases.require_builder(lease_id)


def test_remove_overaged_readers_keeps_those_pinned_at_the_limit(lake: Lake) -> None:
    pin = lake.leases.pin()
    lease = find_lease(lake, pin.lease_id)
    assert lease is not None
    assert lease.pinned_at is not None
    with lake.catalog.beat() as connection:
        assert leases.remove_overaged_readers(connection, lease.pinned_at) == []
        assert leases.remove_overaged_readers(connection, lease.pinned_at + 1) == [lease]
        assert leases.find(connection, lease.lease_id) is None


def test_oldest_read_tick_is_that_of_the_oldest_reader(lake: Lake) -> None:
    with lake.catalog.write(ticks=10) as transaction:
        last = transaction.tick
    with lake.catalog.read() as connection:
        assert leases.oldest_read_tick(connection) is None
    lake.leases.writer()
    lake.leases.pin(last - 1)
    with open_lake(lake.catalog.url) as other:
        other.leases.pin(last - 5)
        with lake.catalog.read() as connection:
            assert leases.oldest_read_tick(connection) == last - 5


def test_pin_of_the_past_on_a_read_only_lake_checks_the_horizon(lake: Lake) -> None:
    with lake.catalog.write(ticks=10) as transaction:
        clock.raise_sweep_horizon(transaction.connection, transaction.tick - 5)
        last = transaction.tick
    with open_lake(lake.catalog.url, read_only=True) as reader:
        for tick in (last - 5, last):
            pin = reader.leases.pin(tick)
            assert (pin.tick, pin.leased) == (tick, False)
        assert reader.leases.pin().tick == last
        assert reader.leases.pin_all().tick == last - 5
        for tick in (last - 6, last + 1):
            with pytest.raises(SnapshotExpired):
                reader.leases.pin(tick)


def test_beginning_that_takes_nothing_lets_go_of_its_pin(lake: Lake) -> None:
    with lake.queries._taker.begin():
        pass
    lake.leases.beat()
    with lake.catalog.read() as connection:
        assert leases.list_leases(connection) == []
