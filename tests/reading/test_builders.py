"""The right to build: one holder at a time, and none that is dead."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from lakebed.catalog import leases
from lakebed.errors import Cancelled, Conflict
from lakebed.lake import Lake
from lakebed.reading.leases import LeaseKeeper

TTL_US = 400_000


@pytest.fixture
def other(lake: Lake) -> Iterator[LeaseKeeper]:
    """Another process's leases, which beat only when told to."""
    keeper = LeaseKeeper(lake.catalog, holder="another", ttl_us=TTL_US)
    keeper._start = lambda: None  # type: ignore[method-assign]
    yield keeper
    keeper.close()


def test_a_dead_builder_is_replaced(lake: Lake, other: LeaseKeeper) -> None:
    noticed = []
    with other.building("log_entries"):
        with pytest.raises(Conflict, match="another builds log_entries"), _building(lake):
            pass
        assert not lake.leases.end_dead_builders(["log_entries"], notice=noticed.append)
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
            assert lake.leases.end_dead_builders(["log_entries", "spans"]) == {"log_entries"}
        finally:
            stop.set()
            thread.join()
        with pytest.raises(Conflict), _building(lake):
            pass


@pytest.mark.parametrize("beats", [0, 1, 2])
def test_right_to_build_ends_with_the_block_however_often_it_was_renewed(
    lake: Lake, other: LeaseKeeper, beats: int
) -> None:
    with other.building("log_entries") as lease_id:
        for _ in range(beats):
            other.beat()
        other.require_builder(lease_id)
    with lake.catalog.read() as connection:
        assert leases.find(connection, lease_id) is None
    with _building(lake):
        pass


def test_nobody_needs_to_be_replaced(lake: Lake) -> None:
    assert not lake.leases.end_dead_builders(["log_entries"])


def test_several_of_the_dead_take_no_longer_than_one(lake: Lake, other: LeaseKeeper) -> None:
    names = ["log_entries", "spans", "measures", "blocks"]
    looks = 0

    def count() -> None:
        nonlocal looks
        looks += 1

    with ExitStack() as stack:
        for name in names:
            stack.enter_context(other.building(name))
        assert not lake.leases.end_dead_builders(names, require_wanted=count)
        assert not lake.leases.end_dead_builders(names)
    assert looks <= 6, "a quarter of the time-to-live each, for all of them together"


def test_who_is_not_wanted_any_more_does_not_wait(lake: Lake, other: LeaseKeeper) -> None:
    def refuse() -> None:
        raise Cancelled("it is over")

    with other.building("log_entries"):
        with pytest.raises(Cancelled):
            lake.leases.end_dead_builders(["log_entries"], require_wanted=refuse)
        with pytest.raises(Conflict), _building(lake):
            pass


def _building(lake: Lake):  # type: ignore[no-untyped-def]
    return lake.leases.building("log_entries")
