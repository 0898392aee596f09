"""Snapshots: one consistent view, in a constant number of queries, readable while it is held."""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa

from lakebed.catalog import journal
from lakebed.catalog.schema import lake_clock, partition_metadata
from lakebed.errors import BadInput, DamagedFile, LeaseLost, ReadOnly, SnapshotExpired
from lakebed.lake import Lake
from lakebed.lifecycle.sweep import LeaseObserver, Sweeper
from lakebed.opening import init_lake, open_lake
from lakebed.reading.leases import Pin
from tests.conftest import NewLake
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, readings
from tests.proof.seams import Recorder, hook_engine


@pytest.fixture
def lake(new_lake: NewLake) -> Lake:
    lake = new_lake(grace="0s")
    lake.views.register(readings())
    return lake


def _sweep(lake: Lake) -> None:
    Sweeper(lake.catalog, lake.store).run()


def test_a_held_snapshot_survives_replace_retire_and_sweep(lake: Lake) -> None:
    old = [publish_hour(lake, hour) for hour in range(3)]
    with lake.partitions.snapshot("readings") as snapshot:
        before = sorted(snapshot.read_all("readings")["number"].to_pylist())
        publish_hour(lake, 0, replaces=[old[0]])
        lake.retirement.retire_partitions(
            "readings", T0 + HOUR, T0 + 3 * HOUR, confirmed=["readings"]
        )
        _sweep(lake)
        assert sorted(snapshot.read_all("readings")["number"].to_pylist()) == before
    lake.leases.beat()
    _sweep(lake)
    assert len([listed for listed in lake.store.list() if listed.path.endswith(".parquet")]) == 1
    with pytest.raises(SnapshotExpired, match="was closed"):
        snapshot.read_all("readings")


@pytest.mark.parametrize("count", [1, 40])
def test_a_snapshot_takes_a_constant_number_of_queries(lake: Lake, count: int) -> None:
    lake.views.register(readings(name="other"))
    for hour in range(count):
        publish_hour(lake, hour, 1)
    numbers_in(lake)
    recorder = Recorder()
    hook_engine(lake.catalog.engine, recorder)
    with lake.partitions.snapshot("readings", "other") as snapshot:
        assert len(snapshot.partitions) == count
        assert all(
            snapshot.stored_footer(partition) is not None for partition in snapshot.partitions
        )
    selects = [event for event in recorder.events if event.startswith("sql SELECT")]
    assert len(selects) == 4  # the lease; the clock, the view sets, partitions with footers


def test_partitions_are_found_by_the_time_of_their_events(lake: Lake) -> None:
    for hour in range(5):
        publish_hour(lake, hour, 3)
    publish_hour(lake, 5, 0)

    def hours(begin: int, end: int) -> list[int]:
        with lake.partitions.snapshot("readings", events=(begin, end)) as snapshot:
            return [
                (partition.insert_range.begin - T0) // HOUR for partition in snapshot.partitions
            ]

    assert hours(T0, T0 + HOUR) == [0]
    assert hours(T0 + 2, T0 + 3) == [0]  # the last event is included
    assert hours(T0 + 3, T0 + HOUR) == []
    assert hours(T0 + 2, T0 + HOUR + 1) == [0, 1]
    assert hours(T0 - HOUR, T0) == []  # the end is not
    assert hours(T0 - HOUR, T0 + 10 * HOUR) == [0, 1, 2, 3, 4]
    with lake.partitions.snapshot("readings", inserted=(T0 + HOUR, T0 + 2 * HOUR)) as snapshot:
        assert len(snapshot.partitions) == 1


def test_the_past_is_read_as_it_was_until_it_is_swept(lake: Lake) -> None:
    first = publish_hour(lake, 0)
    then = numbers_in(lake)
    second = publish_hour(lake, 0, replaces=[first])
    lake.retirement.retire_partitions("readings", T0, T0 + HOUR, confirmed=["readings"])
    assert numbers_in(lake, as_of=first.published_at) == then
    assert numbers_in(lake, as_of=second.published_at) != then
    assert sum(numbers_in(lake, as_of=first.published_at - 1).values()) == 0
    lake.leases.beat()
    _sweep(lake)
    with pytest.raises(SnapshotExpired, match="has been swept"):
        lake.partitions.snapshot("readings", as_of=first.published_at)
    with pytest.raises(SnapshotExpired, match="future"):
        lake.partitions.snapshot("readings", as_of=T0 * 2)


def test_a_pinned_past_is_not_swept(lake: Lake) -> None:
    first = publish_hour(lake, 0)
    then = numbers_in(lake)
    publish_hour(lake, 0, replaces=[first])
    with lake.partitions.snapshot("readings", as_of=first.published_at) as snapshot:
        _sweep(lake)
        assert sorted(snapshot.read_all("readings")["number"].to_pylist()) == sorted(then)


def test_a_reader_taken_for_dead_is_told_and_never_given_less(lake: Lake) -> None:
    old = publish_hour(lake, 0)
    with open_lake(lake.catalog.url) as reader:
        with reader.partitions.snapshot("readings") as snapshot:
            times = iter([0.0, 0.0, 1e6, 1e6, 1e6])
            sweeper = Sweeper(lake.catalog, lake.store, observer=LeaseObserver(lambda: next(times)))
            publish_hour(lake, 0, replaces=[old])
            sweeper.plan()
            assert sweeper.run().files == 0
            assert sweeper.run().files == 1
            with pytest.raises(SnapshotExpired, match="outlived its lease"):
                snapshot.read_all("readings")
        with reader.partitions.snapshot("readings") as again:
            assert again.read_all("readings").num_rows == 3


def test_a_snapshot_that_is_read_for_too_long_expires(new_lake: NewLake) -> None:
    lake = new_lake(grace="0s", longest_read="1h")
    lake.views.register(readings())
    old = publish_hour(lake, 0)
    with lake.partitions.snapshot("readings") as snapshot:
        publish_hour(lake, 0, replaces=[old])
        with lake.catalog.write() as transaction:
            later = sa.update(lake_clock).values(now=lake_clock.c.now + 2 * HOUR)
            transaction.connection.execute(later)
        _sweep(lake)
        with pytest.raises(SnapshotExpired):
            snapshot.read_all("readings")


def test_a_missing_file_is_damage_and_not_fewer_rows(lake: Lake) -> None:
    partition = publish_hour(lake, 0)
    lake.store.delete([partition.file_path or ""])
    snapshot = lake.partitions.snapshot("readings")
    with snapshot, pytest.raises(DamagedFile, match="is missing"):
        snapshot.read_all("readings")


def test_a_damaged_stored_footer_falls_back_to_the_files_own(lake: Lake) -> None:
    publish_hour(lake, 0)
    with lake.catalog.write() as transaction:
        transaction.connection.execute(sa.update(partition_metadata).values(metadata=b"garbage"))
    with lake.partitions.snapshot("readings") as snapshot:
        assert snapshot.read_all("readings").num_rows == 3
        assert snapshot.footer_fallbacks == 1
    with lake.catalog.read() as connection:
        entry = journal.list_entries(connection, limit=1)[0]
    assert entry.operation == "footer fallback"
    assert "does not match its digest" in str(entry.reason)
    assert [finding.kind for finding in lake.checker.run().findings] == ["stored footer"]


def test_columns_can_be_chosen(lake: Lake) -> None:
    publish_hour(lake, 0)
    publish_hour(lake, 1, 0)
    with lake.partitions.snapshot("readings") as snapshot:
        assert snapshot.read_all("readings", ["number"]).column_names == ["number"]


@pytest.mark.parametrize("bad", ["2026-01-01T00:00:00", "yesterday", None, 1.5, True])
def test_instants_without_a_zone_or_sense_are_refused(lake: Lake, bad: object) -> None:
    with pytest.raises(BadInput):
        lake.partitions.snapshot("readings", events=(bad, T0))  # type: ignore[arg-type]


def test_read_only_lakes_are_read_without_a_lease(lake: Lake) -> None:
    publish_hour(lake, 0)
    lake.leases.close()
    with (
        open_lake(lake.catalog.url, read_only=True) as reader,
        reader.partitions.snapshot("readings") as snapshot,
    ):
        assert snapshot.read_all("readings").num_rows == 3
        assert not snapshot.is_leased
    with lake.catalog.read() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM leases")) == 0


def test_an_embedded_lake_can_be_moved(tmp_path: Path) -> None:
    with init_lake(tmp_path / "here") as lake:
        lake.views.register(readings())
        publish_hour(lake, 0)
    (tmp_path / "here").rename(tmp_path / "there")
    with open_lake(tmp_path / "there") as again:
        assert sum(numbers_in(again).values()) == 3
        assert again.checker.run().is_clean


@pytest.mark.parametrize("read_only", [False, True])
def test_a_past_that_is_swept_while_it_is_looked_up_is_told(lake: Lake, read_only: bool) -> None:
    """A sweep comes between the pin and the look; without telling, rows would be missing."""
    first = publish_hour(lake, 0)
    publish_hour(lake, 0, replaces=[first])
    with open_lake(lake.catalog.url, read_only=read_only) as reader:
        pin = reader.leases.pin

        def pin_and_stall(as_of: int | None = None) -> Pin:
            pinned = pin(as_of)
            times = iter([0.0, 1e6, 2e6, 3e6])
            sweeper = Sweeper(lake.catalog, lake.store, observer=LeaseObserver(lambda: next(times)))
            sweeper.plan()
            sweeper.run()
            return pinned

        reader.leases.pin = pin_and_stall  # type: ignore[method-assign]
        with pytest.raises(SnapshotExpired, match="has been swept"):
            reader.partitions.snapshot("readings", as_of=first.published_at)
    with pytest.raises(SnapshotExpired):
        lake.partitions.list_partitions(as_of=first.published_at)


def test_a_closed_lake_lets_nobody_read_or_write(lake: Lake) -> None:
    publish_hour(lake, 0)
    with open_lake(lake.catalog.url) as other:
        snapshot = other.partitions.snapshot("readings")
    with pytest.raises(SnapshotExpired):
        snapshot.read_all("readings")
    with pytest.raises(LeaseLost):
        other.partitions.snapshot("readings")


def test_a_lake_opened_for_reading_changes_nothing(lake: Lake) -> None:
    with open_lake(lake.catalog.url, read_only=True) as reader, pytest.raises(ReadOnly):
        publish_hour(reader, 0)
    assert lake.partitions.list_partitions() == []


@pytest.mark.parametrize("columns", [[], ["nope"], ["number", "number"]])
def test_columns_that_make_no_sense_are_refused(lake: Lake, columns: list[str]) -> None:
    publish_hour(lake, 0)
    publish_hour(lake, 1, 0)
    with lake.partitions.snapshot("readings") as snapshot, pytest.raises(BadInput):
        snapshot.read_all("readings", columns)
