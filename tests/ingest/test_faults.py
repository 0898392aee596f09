"""Landing on disks that fail, over connections that break, with leases and answers that get lost:
a clear error or a landed request, and what is left is known and swept.
"""

from __future__ import annotations

import errno

import pytest

from lakebed.errors import AlreadyThere, OutcomeUnknown, Unavailable
from lakebed.ingest.segments import Receipt
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level, Severity
from lakebed.lifecycle.sweep import LeaseObserver, Sweeper
from lakebed.storage.disk import Disk
from lakebed.storage.local import LocalStore
from tests.ingest.parts import count_rows, disturb, landed, request_of, unaccounted_files
from tests.parts.data import stored_files
from tests.parts.faults import FailingDisk, break_commit

FIRST, SECOND = request_of(("a", "first")), request_of(("a", "second"))


def _is_sound(lake: Lake) -> bool:
    findings = lake.checker.run(Level.PAGES).findings
    return all(each.severity is Severity.NOTE for each in findings) and not unaccounted_files(lake)


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ("create", errno.EROFS),
        ("write", errno.ENOSPC),
        ("sync", errno.EIO),
        ("sync_directory", errno.EIO),
    ],
)
def test_a_failing_disk_acknowledges_nothing_and_its_leftovers_are_swept(
    lake: Lake, operation: str, code: int
) -> None:
    assert isinstance(lake.store, LocalStore)
    lake.telemetry.land("logs", FIRST)
    (kept,) = stored_files(lake)
    lake.store.disk = FailingDisk(operation, code)
    with pytest.raises(Unavailable):
        lake.telemetry.land("logs", SECOND)
    lake.store.disk = Disk()
    assert len(landed(lake)) == 1
    assert _is_sound(lake)
    lake.sweeper.run()  # while this process lives: a full disk must not stay full
    assert stored_files(lake) == {kept}
    assert lake.telemetry.land("logs", SECOND).blocks == 1
    assert _is_sound(lake)


def test_a_commit_that_arrived_although_the_connection_broke_counts(lake: Lake) -> None:
    lake.telemetry.land("logs", FIRST)
    broken = break_commit(lake, after=True)
    assert lake.telemetry.land("logs", SECOND).blocks == 1
    assert broken() == 1
    assert len(landed(lake)) == 2
    assert _is_sound(lake)


def test_a_commit_that_was_lost_is_reported_as_not_done(lake: Lake) -> None:
    lake.telemetry.land("logs", FIRST)
    broken = break_commit(lake, after=False)
    with pytest.raises(Unavailable, match="nothing was committed") as lost:
        lake.telemetry.land("logs", SECOND)
    assert not isinstance(lost.value, OutcomeUnknown)
    assert broken() == 1
    assert len(landed(lake)) == 1
    assert lake.telemetry.land("logs", SECOND).blocks == 1
    assert _is_sound(lake)


def _dead_observer() -> LeaseObserver:
    times = iter(range(0, 10**9, 10**6))
    return LeaseObserver(lambda: float(next(times)))


def _take_for_dead(lake: Lake) -> None:
    """A sweep elsewhere sees every lease of this process stand still, and ends it."""
    sweeper = Sweeper(lake.catalog, lake.store, observer=_dead_observer())
    sweeper.plan()
    sweeper.run()


def test_a_process_that_was_taken_for_dead_lands_under_another_name(lake: Lake) -> None:
    lake.telemetry.land("logs", FIRST)
    left = [lambda: _take_for_dead(lake)]
    disturb(lake, after=lambda: left.pop()() if left else None)
    assert lake.telemetry.land("logs", SECOND) == Receipt(1, 1, len(SECOND), 0)
    assert not left
    assert count_rows(lake, "segments") == 2
    assert _is_sound(lake)
    lake.sweeper.run()
    assert len(stored_files(lake)) == 2


def test_a_put_whose_answer_was_lost_is_written_again_under_another_name(lake: Lake) -> None:
    left = [AlreadyThere("it exists already")]

    def lose_the_answer() -> None:
        if left:
            raise left.pop()

    disturb(lake, after=lose_the_answer)
    assert lake.telemetry.land("logs", FIRST).blocks == 1
    assert len(stored_files(lake)) == 2
    assert _is_sound(lake)
    lake.sweeper.run()
    assert len(stored_files(lake)) == 1
    assert _is_sound(lake)


def test_a_store_that_stays_broken_is_reported(lake: Lake) -> None:
    def refuse() -> None:
        raise AlreadyThere("it exists already")

    disturb(lake, before=refuse)
    with pytest.raises(AlreadyThere):
        lake.telemetry.land("logs", FIRST)
    assert landed(lake) == []
