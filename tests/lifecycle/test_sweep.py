"""Sweeping: bounded, resumable, and never of something that anybody may still want."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import sqlalchemy as sa

from lakebed.catalog import journal, leases
from lakebed.catalog.leases import Lease, LeaseKind
from lakebed.catalog.records import files, footers
from lakebed.catalog.schema import lake_clock, partitions, temporary_files
from lakebed.errors import Conflict, LeaseLost, Refused, UnknownFooter, UnknownPartition
from lakebed.lake import Lake
from lakebed.lifecycle.sweep import LeaseObserver, Sweeper
from lakebed.model.partition import FileState
from lakebed.opening import open_lake
from lakebed.storage.objects import put
from tests.conftest import NewLake
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, readings, stored_files


@pytest.fixture
def lake(new_lake: NewLake) -> Lake:
    lake = new_lake(grace="0s")
    lake.views.register(readings())
    return lake


def _retire_all(lake: Lake) -> None:
    lake.retirement.retire_partitions(
        "readings", T0, T0 + 1000 * HOUR, confirmed=["readings"], hold=False
    )


def _jump(lake: Lake, micros: int) -> None:
    with lake.catalog.write() as transaction:
        later = sa.update(lake_clock).values(now=lake_clock.c.now + micros)
        transaction.connection.execute(later)


def _dead_observer() -> LeaseObserver:
    """Sees every lease stand still for ages between two looks."""
    times = iter(range(0, 10**9, 10**6))
    return LeaseObserver(lambda: float(next(times)))


def test_files_footers_and_rows_go_together(lake: Lake) -> None:
    kept, gone, empty = publish_hour(lake, 0), publish_hour(lake, 1), publish_hour(lake, 2, 0)
    lake.retirement.retire_partitions("readings", T0 + HOUR, T0 + 3 * HOUR, confirmed=["readings"])
    result = lake.sweeper.run()
    assert (result.files, result.empty_partitions, result.bytes) == (1, 1, gone.file_size)
    assert stored_files(lake) == {kept.file_path}
    assert lake.partitions.list_partitions(include_retired=True) == [kept]
    with lake.catalog.read() as connection, pytest.raises(UnknownFooter):
        footers.get(connection, gone.file_path or "")
    assert empty.is_empty
    assert lake.checker.run().findings == []
    with pytest.raises(UnknownPartition):
        lake.retirement.restore(gone.partition_id)


def test_the_grace_period_protects(new_lake: NewLake) -> None:
    lake = new_lake(grace="1h")
    lake.views.register(readings())
    publish_hour(lake, 0)
    publish_hour(lake, 1, 0)
    _retire_all(lake)
    plan = lake.sweeper.plan()
    assert plan.is_empty
    assert plan.waiting == 1
    assert lake.sweeper.run().files == 0
    _jump(lake, 2 * HOUR)
    assert len(lake.sweeper.plan().files) == 1
    result = lake.sweeper.run()
    assert (result.files, result.empty_partitions) == (1, 1)


def test_held_partitions_are_never_swept(lake: Lake) -> None:
    held, empty = publish_hour(lake, 0), publish_hour(lake, 1, 0)
    lake.retirement.retire_partitions("readings", T0, T0 + 2 * HOUR, hold=True)
    _jump(lake, 10**6 * HOUR)
    result = lake.sweeper.run()
    assert (result.files, result.empty_partitions) == (0, 0)
    for each in (held, empty):
        lake.retirement.restore(each.partition_id)
    assert sum(numbers_in(lake).values()) == 3


def test_the_plan_is_what_a_sweep_does(lake: Lake) -> None:
    for hour in range(4):
        publish_hour(lake, hour)
    _retire_all(lake)
    before = stored_files(lake)
    plan = lake.sweeper.plan()
    assert stored_files(lake) == before, "a plan changes nothing"
    assert {file.file_path for file in plan.files} == before
    assert lake.sweeper.run().files == len(plan.files)


def test_plan_protects_what_a_reader_may_still_use(lake: Lake) -> None:
    """The reader's own tick included: what is retired at it or before is not in its snapshot."""
    partition = publish_hour(lake, 0)
    early = publish_hour(lake, 1)
    empty = publish_hour(lake, 2, 0)
    lake.retirement.retire_partitions("readings", T0 + HOUR, T0 + 2 * HOUR, confirmed=["readings"])
    with lake.partitions.snapshot("readings") as snapshot:
        lake.leases.beat()
        _retire_all(lake)
        plan = lake.sweeper.plan()
        assert [file.file_path for file in plan.expired] == [early.file_path]
        assert (plan.protected, plan.empty) == (1, ())
        assert plan.oldest_overdue is not None
        assert lake.sweeper.run().files == 1
        assert snapshot.read(partition).num_rows == 3
    lake.leases.beat()
    plan = lake.sweeper.plan()
    assert [file.file_path for file in plan.expired] == [partition.file_path]
    assert (plan.protected, len(plan.empty)) == (0, 1)
    assert plan.empty[0].partition_id == empty.partition_id


def test_plan_protects_nothing_of_a_reader_that_is_dead_or_reads_for_too_long(
    new_lake: NewLake,
) -> None:
    lake = new_lake(grace="0s", longest_read="1h")
    lake.views.register(readings())
    publish_hour(lake, 0)
    pin = lake.leases.pin()
    lake.leases.beat()
    _retire_all(lake)
    assert lake.sweeper.plan().protected == 1
    sweeper = Sweeper(lake.catalog, lake.store, observer=_dead_observer())
    assert sweeper.plan().protected == 1
    plan = sweeper.plan()
    assert (plan.protected, len(plan.expired)) == (0, 1)
    assert {lease.kind for lease in plan.dead_leases} == {LeaseKind.READER, LeaseKind.WRITER}
    _jump(lake, HOUR // 2)
    assert lake.sweeper.plan().protected == 1
    _jump(lake, HOUR)
    assert lake.sweeper.plan().protected == 0
    lake.leases.unpin(pin)


def test_many_files_go_in_bounded_batches(lake: Lake) -> None:
    for hour in range(7):
        publish_hour(lake, hour, 1)
    _retire_all(lake)
    seen: list[int] = []
    sweeper = Sweeper(lake.catalog, lake.store, batch_files=3)
    sweeper.run(lambda result: seen.append(result.files))
    assert seen == [3, 6, 7]


@pytest.mark.parametrize(
    ("batches", "files", "has_more"),
    [(0, 0, True), (1, 3, True), (2, 6, True), (3, 6, False), (None, 6, False)],
)
def test_sweep_that_ends_after_its_last_full_batch_says_that_there_may_be_more(
    lake: Lake, batches: int | None, files: int, has_more: bool
) -> None:
    for hour in range(6):
        publish_hour(lake, hour, 1)
    _retire_all(lake)
    sweeper = Sweeper(lake.catalog, lake.store, batch_files=3)
    result = sweeper.run(most_batches=batches)
    assert (result.files, result.has_more) == (files, has_more)


def test_a_sweep_goes_on_where_another_stopped(lake: Lake) -> None:
    partition = publish_hour(lake, 0)
    _retire_all(lake)
    with lake.catalog.write() as transaction:
        files.claim(transaction.connection, [partition.file_path or ""])
    with pytest.raises(Conflict, match="being swept"):
        lake.retirement.restore(partition.partition_id)
    assert [file.file_path for file in lake.sweeper.plan().unfinished] == [partition.file_path]
    lake.store.delete([partition.file_path or ""])
    assert lake.sweeper.run().files == 1
    assert {finding.kind for finding in lake.checker.run().findings} <= {"empty directory"}


def test_reservations_of_dead_writers_are_swept_and_of_living_ones_not(lake: Lake) -> None:
    with open_lake(lake.catalog.url) as writer:
        lease, [path] = writer._names.take("readings", "global", 1)
        put(writer.store, path, b"half a file")
        assert lake.sweeper.run().names_released == 0
        assert path in stored_files(lake)
        writer.leases.beat()
        sweeper = Sweeper(lake.catalog, lake.store, observer=_dead_observer())
        sweeper.plan()
        assert sweeper.run().leases_ended == 1
        assert path not in stored_files(lake)
        # The writer was only slow: what it writes under the lost name is never published …
        with lake.catalog.read() as connection:
            assert leases.find(connection, lease) is None
            assert files.find_file(connection, path).state is FileState.DELETING  # type: ignore[union-attr]
        put(writer.store, path, b"too late")
        # … and deleted by a later sweep, because its name stays claimed.
        lake.sweeper.run()
        assert path not in stored_files(lake)
        publish_hour(writer, 0)
    _jump(lake, 30 * HOUR)
    lake.sweeper.run()
    with lake.catalog.read() as connection:
        assert files.list_files(connection) == []


def test_a_lease_that_beats_is_not_dead(lake: Lake) -> None:
    times = iter([0.0, 29.0, 58.0, 87.0])
    observer = LeaseObserver(lambda: next(times))
    with open_lake(lake.catalog.url) as other:
        other.leases.writer()

        def look() -> int:
            with lake.catalog.read() as connection:
                return len(observer.observe(leases.list_leases(connection)))

        assert look() == 0
        other.leases.beat()
        assert look() == 0  # it beat meanwhile
        assert look() == 0  # 29 s of 30 s
        assert look() == 1


@pytest.mark.parametrize(("offset", "is_dead"), [(-1, False), (0, True), (1, True)])
def test_lease_is_dead_when_it_stood_still_for_exactly_its_time_to_live(
    offset: int, is_dead: bool
) -> None:
    lease = Lease("id", LeaseKind.READER, "holder", beats=0, ttl_us=5_000_000, acquired_at=0)
    times = iter([0.0, (5_000_000 + offset) / 1_000_000])
    observer = LeaseObserver(lambda: next(times))
    assert observer.observe([lease]) == []
    assert observer.observe([lease]) == ([lease] if is_dead else [])


@pytest.mark.parametrize(("offset", "is_overdue"), [(-1, True), (0, True), (1, False)])
def test_plan_counts_a_file_as_overdue_from_its_expiration_on(
    lake: Lake, offset: int, is_overdue: bool
) -> None:
    publish_hour(lake, 0)
    publish_hour(lake, 1, 0)
    _retire_all(lake)
    _jump(lake, 10**6 * HOUR)  # ahead of the real time, so that the next tick is the last plus one
    with lake.catalog.write() as transaction:
        next_tick = transaction.tick + 1
        for table in (temporary_files, partitions):
            expire = sa.update(table).values(expiration=next_tick + offset)
            transaction.connection.execute(expire)
    plan = lake.sweeper.plan()
    assert (len(plan.expired), len(plan.empty), plan.waiting) == (
        (1, 1, 0) if is_overdue else (0, 0, 1)
    )
    assert plan.oldest_overdue == (next_tick + offset if is_overdue else None)
    result = lake.sweeper.run(most_batches=1)
    assert (result.files, result.empty_partitions) == ((1, 1) if is_overdue else (0, 0))


def test_one_builder_at_a_time_until_it_is_dead(lake: Lake) -> None:
    with open_lake(lake.catalog.url) as other, other.leases.building("readings") as lease:
        with pytest.raises(Conflict, match="builds readings"), lake.leases.building("readings"):
            pass
        sweeper = Sweeper(lake.catalog, lake.store, observer=_dead_observer())
        sweeper.plan()
        sweeper.run()
        with pytest.raises(LeaseLost):
            other.leases.require_builder(lease)
        with lake.leases.building("readings") as mine:
            lake.leases.require_builder(mine)


@pytest.mark.parametrize("path", ["../outside", "/etc/passwd", "partitions/../../x"])
def test_a_path_outside_the_store_stops_the_whole_sweep(lake: Lake, path: str) -> None:
    publish_hour(lake, 0)
    _retire_all(lake)
    with lake.catalog.write() as transaction:
        stray = {"file_path": path, "file_size": 1, "expiration": 0, "state": "retired"}
        transaction.connection.execute(sa.insert(temporary_files), stray)
    before = stored_files(lake)
    with pytest.raises(Refused, match="nothing was swept"):
        lake.sweeper.run()
    assert stored_files(lake) == before


def test_a_live_file_stops_the_whole_sweep(lake: Lake) -> None:
    live = publish_hour(lake, 0)
    with lake.catalog.write() as transaction:
        wrong = {"file_path": live.file_path, "file_size": 1, "expiration": 0, "state": "retired"}
        transaction.connection.execute(sa.insert(temporary_files), wrong)
    with pytest.raises(Refused, match="live and listed as temporary"):
        lake.sweeper.run()
    assert stored_files(lake) == {live.file_path}


def test_another_lakes_store_is_not_swept(lake: Lake) -> None:
    publish_hour(lake, 0)
    _retire_all(lake)
    with lake.catalog.write() as transaction:
        transaction.connection.execute(sa.text("UPDATE lake SET lake_id = 'another'"))
    before = stored_files(lake)
    with pytest.raises(Refused, match="belongs to lake"):
        lake.sweeper.run()
    assert stored_files(lake) == before


def test_old_journal_entries_are_dropped(lake: Lake) -> None:
    publish_hour(lake, 0)
    _jump(lake, 100 * 24 * HOUR)
    assert lake.sweeper.run().journal_entries_dropped > 0
    with lake.catalog.read() as connection:
        assert journal.list_entries(connection) == []


def test_empty_partitions_go_in_batches_to_the_last(lake: Lake) -> None:
    for hour in range(7):
        publish_hour(lake, hour, 0)
    _retire_all(lake)
    assert Sweeper(lake.catalog, lake.store, batch_files=2).run().empty_partitions == 7


def test_files_of_refused_publishes_are_swept(lake: Lake) -> None:
    kept = publish_hour(lake, 0)
    for _ in range(3):
        with pytest.raises(Conflict):
            publish_hour(lake, 0)
    lake.sweeper.run()
    assert stored_files(lake) == {kept.file_path}


def test_looking_at_leases_at_the_same_time_disturbs_nobody() -> None:
    """Another thread looks, and does not see the lease any more, before this look ends."""
    observer = LeaseObserver(lambda: 0.0)
    lease = Lease("id", LeaseKind.READER, "holder", 1, 1, 1)

    class Seen(list[Lease]):
        def __iter__(self) -> Iterator[Lease]:
            observer.observe([])
            yield from super().__iter__()

    assert observer.observe(Seen([lease])) == []


def test_lease_is_dead_once_it_stood_still_for_exactly_its_time_to_live() -> None:
    now = 100.0
    observer = LeaseObserver(lambda: now)
    lease = Lease("a", LeaseKind.WRITER, "a host", 4, 3_000_000, 1)
    assert observer.observe([lease]) == []
    now = 102.999
    assert observer.observe([lease]) == []
    now = 103.0
    assert observer.observe([lease]) == [lease]
    beaten = replace(lease, beats=5)
    assert observer.observe([beaten]) == []
    now = 105.999
    assert observer.observe([beaten]) == []
    now = 106.0
    assert observer.observe([beaten]) == [beaten]
    assert observer.observe([]) == []
    assert observer.observe([beaten]) == [], "it was gone in between"


def test_plan_waits_for_held_files_and_journal_names_what_was_swept(lake: Lake) -> None:
    publish_hour(lake, 0)
    swept, empty = publish_hour(lake, 1), publish_hour(lake, 2, 0)
    lake.retirement.retire_partitions("readings", T0, T0 + HOUR, hold=True)
    lake.retirement.retire_partitions("readings", T0 + HOUR, T0 + 3 * HOUR, confirmed=["readings"])
    plan = lake.sweeper.plan()
    assert [file.file_path for file in plan.expired] == [swept.file_path]
    assert (plan.waiting, plan.protected) == (1, 0)
    assert (plan.bytes, plan.is_empty) == (swept.file_size, False)
    lake.sweeper.run()
    with lake.catalog.read() as connection:
        entries = journal.list_entries(connection, operations=["sweep"])
    assert [(e.file_path, e.bytes, e.partition_id) for e in entries] == [
        (swept.file_path, swept.file_size, None),
        (None, 0, empty.partition_id),
    ]
    assert lake.sweeper.plan().is_empty


def test_run_stops_after_so_many_batches_and_says_whether_there_is_more(lake: Lake) -> None:
    for hour in range(5):
        publish_hour(lake, hour, 1)
    _retire_all(lake)
    sweeper = Sweeper(lake.catalog, lake.store, batch_files=2)
    assert len(sweeper.plan().expired) == 2
    first = sweeper.run(most_batches=1)
    assert (first.files, first.has_more) == (2, True)
    second = sweeper.run(most_batches=2)
    assert (second.files, second.has_more) == (3, False)
    assert sweeper.run(most_batches=1).has_more is False
