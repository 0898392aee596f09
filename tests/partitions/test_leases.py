"""The keeper of leases among many readers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from lakebed.catalog import leases
from lakebed.errors import OutcomeUnknown
from lakebed.lake import Lake
from lakebed.partitions.leases import LeaseKeeper


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
