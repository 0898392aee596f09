"""The right to build: one holder at a time, and none that is dead."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest

from lakebed.errors import Conflict
from lakebed.lake import Lake
from lakebed.partitions.leases import LeaseKeeper

TTL_US = 400_000


@pytest.fixture
def other(lake: Lake) -> Iterator[LeaseKeeper]:
    """Another process's leases, which beat only when told to."""
    keeper = LeaseKeeper(
        lake.catalog, holder="another", ttl_us=TTL_US, new_id=lambda: str(uuid.uuid4())
    )
    keeper._start = lambda: None  # type: ignore[method-assign]
    yield keeper
    keeper.close()


def test_a_dead_builder_is_replaced(lake: Lake, other: LeaseKeeper) -> None:
    noticed = []
    with other.building("log_entries"):
        with pytest.raises(Conflict, match="another builds log_entries"), _building(lake):
            pass
        assert lake.leases.end_dead_builder("log_entries", notice=noticed.append)
        with _building(lake):
            pass
    assert [lease.holder for lease in noticed] == ["another"]


def test_a_living_builder_is_left_alone(lake: Lake, other: LeaseKeeper) -> None:
    stop = threading.Event()

    def live() -> None:
        while not stop.wait(0.05):
            other.beat()

    with other.building("log_entries"):
        thread = threading.Thread(target=live)
        thread.start()
        try:
            assert not lake.leases.end_dead_builder("log_entries")
        finally:
            stop.set()
            thread.join()
        with pytest.raises(Conflict), _building(lake):
            pass


def test_nobody_needs_to_be_replaced(lake: Lake) -> None:
    assert lake.leases.end_dead_builder("log_entries")


def _building(lake: Lake):  # type: ignore[no-untyped-def]
    return lake.leases.building("log_entries")
