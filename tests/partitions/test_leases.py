"""The keeper of leases among many readers."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

from lakebed.lake import Lake


def test_readers_go_on_while_a_heartbeat_waits_for_a_connection(lake: Lake) -> None:
    """Readers have all connections there are: if they waited for the heartbeat, nobody went on."""
    pin = lake.leases.pin()
    pool = lake.catalog.engine.pool
    with ExitStack() as readers:
        for _ in range(pool.size() + pool._max_overflow):  # type: ignore[attr-defined]
            readers.enter_context(lake.catalog.engine.connect())
        beating = threading.Thread(target=lake.leases.beat)
        beating.start()
        deadline = time.monotonic() + 10
        while lake.leases._lock.acquire(blocking=False) and time.monotonic() < deadline:
            lake.leases._lock.release()
            time.sleep(0.01)
        done = threading.Thread(
            target=lambda: (lake.leases.raise_pin(pin, pin.tick + 1), lake.leases.unpin(pin))
        )
        done.start()
        done.join(10)
        assert not done.is_alive()
    beating.join(30)
    assert not beating.is_alive()
