"""Reserved names: of one lease, and lost with it and with no other."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import sqlalchemy as sa

from lakebed.catalog.records import files
from lakebed.lake import Lake
from lakebed.lifecycle.sweep import LeaseObserver, Sweeper
from lakebed.model.partition import FileState
from lakebed.pipeline.task_names import TaskNames
from tests.parts.data import publish_hour, readings


def take_for_dead(lake: Lake) -> None:
    """Take over the reservations like a sweep that missed the heartbeats of this process."""
    seconds = itertools.count(step=1_000_000.0)
    observer = LeaseObserver(lambda: next(seconds))
    sweeper = Sweeper(lake.catalog, lake.store, observer=observer)
    sweeper.plan()
    sweeper.run()


def staged(lake: Lake) -> set[str]:
    with lake.catalog.read() as connection:
        return {file.file_path for file in files.list_files(connection, [FileState.STAGED])}


def test_names_after_a_lost_lease_belong_to_a_new_one(lake: Lake) -> None:
    names = lake._names
    lost, before = names.take("readings", "global", 3)
    names.take("readings", "global", 1)  # more are reserved ahead now
    take_for_dead(lake)
    names.forget(lost)
    lease, after = names.take("readings", "global", 3)
    assert lease != lost
    assert not set(before) & set(after)
    assert set(after) <= staged(lake)


def test_losing_a_lease_takes_nothing_from_a_newer_one(lake: Lake) -> None:
    """Two threads lose the same lease; the second says so after the first has taken a new one."""
    names = lake._names
    lost, _ = names.take("readings", "global", 1)
    take_for_dead(lake)
    names.forget(lost)
    newer, first = names.take("readings", "global", 1)  # and one more was reserved ahead
    reserved = staged(lake)
    names.forget(lost)
    again, second = names.take("readings", "global", 1)
    assert again == newer
    assert staged(lake) == reserved, "what was reserved ahead is used"
    assert not set(first) & set(second)


def test_all_names_of_a_wave_are_of_one_lease(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lease may be lost between the reservations for two view sets."""
    pool = lake._names
    lost, _ = pool.take("readings", "global", 1)
    take_names = pool.take

    def lose_lease_before_second(view_set: str, instance: str, count: int) -> Any:
        reservation = take_names(view_set, instance, count)
        if view_set == "readings" and reservation[0] == lost:
            take_for_dead(lake)
            pool.forget(lost)
        return reservation

    monkeypatch.setattr(pool, "take", lose_lease_before_second)
    names = TaskNames.reserve(pool, ["readings", "others"])
    assert names.lease != lost
    assert {*names.take("readings"), *names.take("others")} <= staged(lake)


def test_interrupt_at_the_commit_reaches_the_caller(lake: Lake) -> None:
    """Names are not given up in an interrupted transaction: they end with the lease."""
    lake.views.register(readings())
    publish_hour(lake, 0)
    interrupts = iter([KeyboardInterrupt()])

    def interrupt(_connection: object) -> None:
        for error in interrupts:
            raise error

    sa.event.listen(lake.catalog.engine, "commit", interrupt)
    with pytest.raises(KeyboardInterrupt):
        publish_hour(lake, 1)
    assert len(lake.partitions.list_partitions("readings")) == 1
