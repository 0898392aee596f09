"""Publishing: atomic, exact about what it replaces, and never by accident empty."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest

from lakebed.catalog import clock, journal, leases
from lakebed.catalog.records import files, lakes, partitions, view_sets
from lakebed.errors import (
    BadInput,
    Conflict,
    LeaseLost,
    Outdated,
    Overlap,
    StalePlan,
    UnknownFooter,
    UnknownViewSet,
)
from lakebed.lake import Lake
from lakebed.model.partition import NO_SOURCE, FileState, add_source_hashes, hash_sources
from lakebed.model.time import TimeRange
from lakebed.model.view_set import ViewSet
from lakebed.opening import open_lake
from lakebed.storage import footer as footers
from lakebed.storage import parquet
from lakebed.views.registry import Change
from lakebed.writing.publish import NewPartition, WrittenPartition, retire_rows
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, readings, rows, stored_files


@pytest.fixture(autouse=True)
def _view_set(lake: Lake) -> None:
    lake.views.register(readings())


def test_published_rows_are_read_back(lake: Lake) -> None:
    table = rows(5)
    partition = lake.partitions.publish("readings", T0, T0 + HOUR, table)
    with lake.partitions.snapshot("readings") as snapshot:
        assert snapshot.partitions == (partition,)
        assert snapshot.read_all("readings").equals(table)
    assert partition.num_rows == 5
    assert partition.events is not None
    assert (partition.events.earliest, partition.events.latest) == (T0, T0 + 4)
    assert partition.statistics["number"] == [
        min(table["number"].to_pylist()),
        max(table["number"].to_pylist()),
    ]


def test_an_empty_partition_is_a_row_without_a_file(lake: Lake) -> None:
    partition = lake.partitions.publish_completed_empty("readings", T0, T0 + HOUR)
    assert (partition.is_empty, partition.num_rows, partition.events) == (True, 0, None)
    assert stored_files(lake) == set()
    with lake.partitions.snapshot("readings") as snapshot:
        assert snapshot.read_all("readings").num_rows == 0
        assert snapshot.stored_footer(partition) is None


def test_no_rows_are_an_error_unless_completion_is_stated(lake: Lake) -> None:
    with pytest.raises(BadInput, match="there are no rows") as refused:
        lake.partitions.publish("readings", T0, T0 + HOUR, rows(0))
    assert "completed_empty" in str(refused.value.hint)
    assert lake.partitions.list_partitions() == []


def test_replacing_retires_exactly_what_was_read(lake: Lake) -> None:
    old = [publish_hour(lake, 0), publish_hour(lake, 1, 0), publish_hour(lake, 2)]
    other = publish_hour(lake, 3)
    new = lake.partitions.publish("readings", T0, T0 + 3 * HOUR, rows(9), replaces=old)
    assert lake.partitions.list_partitions() == [new, other]
    retired = [e for e in lake.partitions.list_partitions(include_retired=True) if not e.is_live]
    assert {partition.partition_id for partition in retired} == {
        partition.partition_id for partition in old
    }
    assert {partition.retired_at for partition in retired} == {new.published_at}


def test_replacing_something_that_changed_does_nothing(lake: Lake) -> None:
    old = publish_hour(lake, 0)
    publish_hour(lake, 0, replaces=[old])
    before = lake.partitions.list_partitions(include_retired=True)
    with pytest.raises(StalePlan):
        publish_hour(lake, 0, replaces=[old])
    assert lake.partitions.list_partitions(include_retired=True) == before


def test_replacing_must_not_open_a_gap(lake: Lake) -> None:
    old = [publish_hour(lake, 0), publish_hour(lake, 1)]
    with pytest.raises(BadInput, match="do not cover what they replace"):
        publish_hour(lake, 0, replaces=old)
    assert lake.partitions.list_partitions() == old


def test_an_overlap_with_something_not_read_does_nothing(lake: Lake) -> None:
    old = publish_hour(lake, 0)
    newcomer = publish_hour(lake, 1)
    with pytest.raises(Overlap, match="readings/global"):
        lake.partitions.publish("readings", T0, T0 + 2 * HOUR, rows(3), replaces=[old])
    assert lake.partitions.list_partitions() == [old, newcomer]


def test_many_partitions_are_published_together_or_not_at_all(lake: Lake) -> None:
    existing = publish_hour(lake, 2)
    view_set = readings()
    new = [
        NewPartition.of_rows(view_set, T0 + h * HOUR, T0 + (h + 1) * HOUR, rows(2, h))
        for h in range(3)
    ]
    with pytest.raises(Overlap):
        lake.partitions.publish_many(new)
    assert lake.partitions.list_partitions() == [existing]
    published = lake.partitions.publish_many(new[:2])
    assert len({partition.published_at for partition in published}) == 1


def test_new_partitions_must_not_overlap_each_other(lake: Lake) -> None:
    new = NewPartition.completed_empty(readings(), T0, T0 + HOUR)
    with pytest.raises(BadInput, match="two of the new partitions overlap"):
        lake.partitions.publish_many([new, new])


def test_instances_are_separate(lake: Lake) -> None:
    publish_hour(lake, 0, instance="a")
    publish_hour(lake, 0, instance="b")
    assert len(lake.partitions.list_partitions(instance="a")) == 1
    with lake.partitions.snapshot("readings", instance="b") as snapshot:
        assert [partition.instance for partition in snapshot.partitions] == ["b"]


def test_only_ranges_that_have_ended_are_published(lake: Lake) -> None:
    future = T0 + 100 * 365 * 24 * HOUR
    with pytest.raises(BadInput, match="ends after"):
        lake.partitions.publish_completed_empty("readings", future, future + HOUR)
    with pytest.raises(BadInput, match="ends after"):
        publish_hour(lake, 0, read_at=T0 + HOUR - 1)
    assert lake.partitions.list_partitions() == []
    publish_hour(lake, 0, read_at=T0 + HOUR)
    publish_hour(lake, 1, read_at=T0 + 2 * HOUR, reason="a correction")
    with lake.catalog.read() as connection:
        entries = journal.list_entries(connection, operations=["publish"])
    assert [entry.reason for entry in entries] == ["a correction", None]


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("replaced", [False, True])
def test_retired_rows_give_their_files_a_grace_period_and_are_in_the_journal(
    lake: Lake, hold: bool, replaced: bool
) -> None:
    filled, unconfirmed = publish_hour(lake, 0), publish_hour(lake, 1)
    empty = publish_hour(lake, 2, 0)
    every = [filled, unconfirmed, empty]
    with lake.catalog.write() as transaction:
        retire_rows(
            transaction,
            every,
            operation="retire",
            reason="a test",
            hint="",
            hold=hold,
            replaced=replaced,
            unconfirmed=[unconfirmed.partition_id],
        )
        tick = transaction.tick
    with lake.catalog.read() as connection:
        expiration = None if hold else tick + lakes.get(connection).grace_us
        rows_by_id = {
            row.partition_id: row
            for row in partitions.list_by_id(connection, [p.partition_id for p in every])
        }
        retired = files.list_files(connection, [FileState.RETIRED])
        entries = journal.list_entries(connection, operations=["retire"])
        marked = journal.list_unconfirmed(connection, 0)
    for partition in every:
        row = rows_by_id[partition.partition_id]
        assert (row.retired_at, row.expiration) == (tick, expiration)
        assert (row.held, row.replaced) == (hold, replaced)
    assert {file.file_path: (file.state, file.file_size, file.expiration) for file in retired} == {
        partition.file_path: (FileState.RETIRED, partition.file_size, expiration)
        for partition in (filled, unconfirmed)
    }
    assert {(entry.partition_id, entry.reason) for entry in entries} == {
        (partition.partition_id, "a test") for partition in every
    }
    assert [entry.partition_id for entry in marked] == [unconfirmed.partition_id]


def test_rows_of_an_inactive_version_are_refused(lake: Lake) -> None:
    assert lake.views.register(readings(2)) is Change.EVOLVED
    with pytest.raises(Outdated, match="active in version 2"):
        lake.partitions.publish(readings(1), T0, T0 + HOUR, rows(1))
    with pytest.raises(Outdated):
        lake.views.register(readings(1))
    assert lake.partitions.list_partitions() == []


def test_nothing_is_written_before_it_is_clear_that_it_may_be_published(lake: Lake) -> None:
    lake.views.register(readings(2))
    with pytest.raises(Outdated):
        lake.partitions.publish(readings(1), T0, T0 + HOUR, rows(5))
    assert stored_files(lake) == set()


def test_a_schema_changes_only_with_its_version(lake: Lake) -> None:
    changed = readings(2)
    with pytest.raises(BadInput, match="differs from its active version 1") as refused:
        lake.views.register(type(changed)("readings", 1, changed.schema, "time"))
    assert refused.value.hint == "declare it as version 2"


def test_an_unknown_view_set_is_named(lake: Lake) -> None:
    with pytest.raises(UnknownViewSet, match="'nope'"):
        lake.partitions.publish("nope", T0, T0 + HOUR, rows(1))
    with pytest.raises(UnknownViewSet, match="'nope'"):
        lake.partitions.snapshot("nope")


def test_a_held_range_stays_away_until_restored(lake: Lake) -> None:
    old = publish_hour(lake, 0)
    lake.retirement.retire_partitions("readings", T0, T0 + HOUR, hold=True)
    with pytest.raises(Overlap, match="is held"):
        publish_hour(lake, 0)
    lake.views.register(readings(2))
    with pytest.raises(Overlap, match="is held"):
        publish_hour(lake, 0, version=2)
    lake.retirement.restore(old.partition_id)
    publish_hour(lake, 0, version=2)


def test_what_is_live_beside_a_held_twin_can_be_replaced(lake: Lake) -> None:
    old = publish_hour(lake, 0)
    lake.views.register(readings(2))
    live = publish_hour(lake, 0, version=2)
    lake.retirement.retire_partition_by_metadata(
        "readings", "global", T0, T0 + HOUR, old.schema_hash, hold=True
    )
    publish_hour(lake, 0, count=5, version=2, replaces=[live])
    assert len(numbers_in(lake)) == 5
    lake.retirement.retire_partitions("readings", T0, T0 + HOUR, confirmed=["readings"])
    with pytest.raises(Overlap, match="is held"):
        publish_hour(lake, 0, version=2)


def test_what_retention_forgot_is_not_published_again(lake: Lake) -> None:
    with lake.catalog.read() as connection:
        half_past_one = clock.upcoming(connection) - T0 - HOUR - HOUR // 2
    lake.views.register(readings(retention_us=half_past_one))
    publish_hour(lake, 0)
    plan = lake.retirement.plan_by_retention("readings")
    assert len(lake.retirement.carry_out(plan)) == 1
    with pytest.raises(Conflict, match="keeps nothing from before"):
        publish_hour(lake, 0)
    publish_hour(lake, 1)


def test_footers_are_stored_exactly_as_in_the_file(lake: Lake) -> None:
    partition = publish_hour(lake, 0)
    path = partition.file_path or ""
    own = parquet.read_footer(lake.store, path, partition.file_size)
    lake.store.delete([path])
    assert lake.partitions.get_footer(path) == own
    assert footers.parse(own, path=path).num_rows == partition.num_rows
    with pytest.raises(UnknownFooter):
        lake.partitions.get_footer("partitions/readings/global/2026-01/none.parquet")


def test_source_hashes_add_up() -> None:
    assert add_source_hashes([hash_sources("ab"), hash_sources("c")]) == hash_sources("cba")
    assert add_source_hashes([]) == NO_SOURCE
    assert hash_sources(["a"]) != hash_sources(["b"])


def test_reservations_are_given_back_on_close(lake: Lake) -> None:
    with open_lake(lake.catalog.url) as other:
        for hour in range(5):
            publish_hour(other, hour)
    with lake.catalog.read() as connection:
        assert files.list_files(connection) == []
        assert leases.list_leases(connection) == []
    assert sum(numbers_in(lake).values()) == 15


def test_a_new_time_column_needs_a_new_version(lake: Lake) -> None:
    schema = pa.schema([("time", pa.timestamp("us", "UTC")), ("seen", pa.timestamp("us", "UTC"))])
    lake.views.register(ViewSet("events", 1, schema, "time"))
    with pytest.raises(BadInput, match="finds its partitions by the column time"):
        lake.views.register(ViewSet("events", 1, schema, "seen"))
    assert lake.views.register(ViewSet("events", 2, schema, "seen")) is Change.EVOLVED


@pytest.mark.parametrize("instance", ["../../x", "", "a/b", ".hidden", "_x", "a=b", None, "ü"])
def test_an_instance_that_is_no_name_reserves_nothing(lake: Lake, instance: str) -> None:
    with pytest.raises(BadInput, match="not an instance"):
        NewPartition(readings(), TimeRange(T0, T0 + HOUR), rows(1), instance)
    with lake.catalog.read() as connection:
        assert files.list_files(connection) == []


def test_publish_over_a_held_range_is_refused_unless_all_of_it_is_replaced(lake: Lake) -> None:
    held = lake.partitions.publish("readings", T0, T0 + 2 * HOUR, rows(4))
    lake.views.register(readings(2))
    first = publish_hour(lake, 0, version=2)
    lake.retirement.retire_partition_by_metadata(
        "readings", "global", T0, T0 + 2 * HOUR, held.schema_hash, hold=True
    )
    two_hours = NewPartition.of_rows(readings(2), T0, T0 + 2 * HOUR, rows(4, version=2))
    with pytest.raises(Overlap, match="is held"):
        lake.partitions.publish_many([two_hours], replaces=[first])
    assert lake.partitions.list_partitions() == [first]
    publish_hour(lake, 0, version=2, replaces=[first])


def test_publish_is_refused_up_to_and_including_the_end_of_retention(lake: Lake) -> None:
    with lake.catalog.write() as transaction:
        view_sets.raise_floor(transaction.connection, "readings", T0 + HOUR)
    with pytest.raises(Conflict, match="keeps nothing from before"):
        publish_hour(lake, 0)
    with pytest.raises(Conflict, match="keeps nothing from before"):
        lake.partitions.publish("readings", T0, T0 + HOUR - 1, rows(1))
    assert lake.partitions.list_partitions() == []
    lake.partitions.publish("readings", T0, T0 + HOUR + 1, rows(1))


def test_publish_written_is_refused_when_its_reservation_was_lost(lake: Lake) -> None:
    """A sweep may have claimed the name: the file must never become live."""
    publisher = lake.partitions._publisher
    view_set, within = readings(), TimeRange(T0, T0 + HOUR)
    lease, [path, other] = lake._names.take("readings", "global", 2)
    file = parquet.write(lake.store, path, rows(2), view_set)
    written = [WrittenPartition(view_set, within, "global", NO_SOURCE, file)]
    with pytest.raises(LeaseLost, match="a reservation was lost"):
        publisher.publish_written(written, lease="another")
    with lake.catalog.write() as transaction:
        files.claim(transaction.connection, [path])
    with pytest.raises(LeaseLost, match="a reservation was lost"):
        publisher.publish_written(written, lease=lease)
    file = parquet.write(lake.store, other, rows(2), view_set)
    later = WrittenPartition(
        view_set, TimeRange(T0 + HOUR, T0 + 2 * HOUR), "global", NO_SOURCE, file
    )
    with pytest.raises(LeaseLost, match="a reservation was lost"):  # one of two
        publisher.publish_written([*written, later], lease=lease)
    assert lake.partitions.list_partitions(include_retired=True) == []
    assert publisher.publish_written([later], lease=lease)[0].file_path == other


def test_retire_rows_names_a_partition_that_is_not_live(lake: Lake) -> None:
    old = [publish_hour(lake, 0), publish_hour(lake, 1)]
    lake.retirement.retire_partitions("readings", T0 + HOUR, T0 + 2 * HOUR, confirmed=["readings"])
    new = NewPartition.completed_empty(readings(), T0, T0 + 2 * HOUR)
    with pytest.raises(StalePlan, match=re.escape(f"{old[1].describe()} is not live")):
        lake.partitions.publish_many([new], replaces=old)
    assert lake.partitions.list_partitions() == old[:1]
