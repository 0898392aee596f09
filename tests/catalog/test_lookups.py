"""Each lookup of the catalog selects and orders exactly what it says: one row below a limit, one at
it and one above, and rows of other names beside them.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import sqlalchemy as sa

from lakebed.catalog import journal, leases, rules
from lakebed.catalog.catalog import Catalog, Connection
from lakebed.catalog.connections.health import examine
from lakebed.catalog.expressions import catalog_clock
from lakebed.catalog.leases import Lease, LeaseKind
from lakebed.catalog.lookups import coverage, overview, rounds
from lakebed.catalog.migrate import HEAD
from lakebed.catalog.records import blocks, failures, files, inserts, partitions
from lakebed.catalog.records.duties import DutyState
from lakebed.catalog.records.failures import BuildFailure
from lakebed.catalog.records.files import TemporaryFile
from lakebed.catalog.records.inserts import KnownInsert
from lakebed.catalog.schema import lake_clock
from lakebed.lake import Lake
from lakebed.model.block import Block
from lakebed.model.partition import FileState
from lakebed.model.time import TimeRange
from tests.parts.building import land
from tests.parts.data import HOUR, T0, publish_hour, readings
from tests.tables.parts import LOOSE, make


def paths(listed: list[TemporaryFile]) -> list[str]:
    return [file.file_path for file in listed]


def test_expired_files_are_those_up_to_now_in_the_order_of_their_ends(lake: Lake) -> None:
    states = (FileState.RETIRED, FileState.DELETING)
    with lake.catalog.write() as transaction:
        connection = transaction.connection
        for state in states:
            files.insert_many(
                connection,
                [
                    TemporaryFile(f"{state}/{name}", 1, state, expiration)
                    for name, expiration in (("d", 9), ("c", 10), ("b", 10), ("a", 11), ("e", None))
                    if expiration is not None or state is FileState.RETIRED
                ],
            )
        assert paths(files.list_expired(connection, 10, 99, 9)) == [
            "retired/d", "retired/b", "retired/c"
        ]  # fmt: skip
        assert paths(files.list_expired(connection, 10, 99, 2)) == ["retired/d", "retired/b"]
        assert paths(files.list_claimed(connection, 10, 9)) == [
            "deleting/b", "deleting/c", "deleting/d"
        ]  # fmt: skip
        assert paths(files.list_claimed(connection, 10, 2)) == ["deleting/b", "deleting/c"]
        assert files.list_abandoned(connection, 9) == []


def test_expired_files_that_a_reader_may_use_stay(lake: Lake) -> None:
    """A file retired after the reader's tick is in its snapshot; one retired at the tick is not."""
    with lake.catalog.write() as transaction:
        connection = transaction.connection
        for name, retired_at in (("a", 19), ("b", 20), ("c", 21), ("d", None)):
            file = TemporaryFile(name, 1, FileState.RETIRED, 5, retired_at=retired_at)
            files.insert_many(connection, [file])
        assert paths(files.list_expired(connection, 10, 20, 9)) == ["a", "b", "d"]


def test_expired_partitions_that_a_reader_may_use_stay(lake: Lake) -> None:
    lake.views.register(readings())
    for hour, count in enumerate((2, 0)):
        publish_hour(lake, hour, count)
    lake.retirement.retire_partitions("readings", T0, T0 + 2 * HOUR, confirmed=["readings"])
    with_file, empty = lake.partitions.list_partitions(include_retired=True)
    retired_at, end = empty.retired_at or 0, empty.expiration or 0
    with lake.catalog.write() as transaction:
        connection = transaction.connection
        for now, protected_from, expected in (
            (end, retired_at, True),
            (end - 1, retired_at, False),
            (end, retired_at - 1, False),
            (end + 1, retired_at + 1, True),
        ):
            listed = partitions.list_expired_empty(connection, now, protected_from, 9)
            assert listed == ([empty] if expected else [])
            expired = files.list_expired(connection, now, protected_from, 9)
            assert paths(expired) == ([with_file.file_path] if expected else [])
        assert partitions.list_expired_empty(connection, end, retired_at, 0) == []
        assert partitions.delete_by_id(connection, [empty.partition_id]) == 1
        assert partitions.delete_by_id(connection, [empty.partition_id]) == 0


def test_live_partitions_are_never_deleted(lake: Lake) -> None:
    lake.views.register(readings())
    live = publish_hour(lake, 0)
    with lake.catalog.write() as transaction:
        connection = transaction.connection
        assert partitions.delete_by_id(connection, [live.partition_id]) == 0
        assert partitions.delete_by_path(connection, [str(live.file_path)]) == 0
        assert partitions.list_live_among(connection, [str(live.file_path), "other"]) == [
            live.file_path
        ]
    assert lake.partitions.list_partitions() == [live]


def test_reservations_are_taken_by_path_state_and_lease(lake: Lake) -> None:
    with lake.catalog.write() as transaction:
        connection = transaction.connection
        for name, state, lease in (
            ("a", FileState.STAGED, "own"),
            ("b", FileState.STAGED, "another"),
            ("c", FileState.RETIRED, None),
        ):
            expiration = 5 if state is FileState.RETIRED else None
            file = TemporaryFile(name, 1, state, expiration, lease)
            files.insert_many(connection, [file])
        assert paths(files.list_abandoned(connection, 9)) == ["a", "b"]
        assert paths(files.list_abandoned(connection, 1)) == ["a"]
        leases.insert(connection, Lease("own", LeaseKind.WRITER, "host", 0, 1000, 1))
        assert paths(files.list_abandoned(connection, 9)) == ["b"]
        assert files.take_staged(connection, ["a", "b", "c", "d"], "own") == 1
        assert files.list_paths(connection, list(FileState)) == {"b", "c"}
        files.discard(connection, ["b", "c"], "own", 7)
        assert files.list_paths(connection, [FileState.DELETING]) == set()
        files.discard(connection, ["b", "c"], "another", 7)
        assert files.list_paths(connection, [FileState.DELETING]) == {"b"}
        assert files.take(connection, ["b", "c"], [FileState.RETIRED]) == 1
        assert files.list_paths(connection, list(FileState)) == {"b"}


def test_leases_are_listed_the_oldest_first(lake: Lake) -> None:
    with lake.catalog.write() as transaction:
        connection = transaction.connection
        for name, tick in (("a", 3), ("c", 1), ("b", 1)):
            leases.insert(connection, Lease(name, LeaseKind.WRITER, "host", 0, 1000, tick))
        assert [lease.lease_id for lease in leases.list_leases(connection)] == ["b", "c", "a"]


def test_look_knows_whether_view_sets_changed_after_an_entry(lake: Lake) -> None:
    lake.views.register(readings())
    publish_hour(lake, 0)

    def look(since: int, lease_id: str | None = None) -> coverage.Look:
        with lake.catalog.read() as connection:
            return coverage.look(connection, since, lease_id)

    last = look(0).last
    assert look(0).changed, "nothing was known"
    assert not look(last).changed
    assert look(last - 1).changed
    pin = lake.leases.pin()
    assert (look(last, pin.lease_id).leased, look(last, "other").leased) == (True, False)
    assert not look(last).leased
    with lake.catalog.write() as transaction:
        journal.prune(transaction, transaction.tick + 1, last - 1)
    assert not look(last).changed, "the first entry is the last that was known"
    publish_hour(lake, 1)
    assert look(last).changed
    with lake.catalog.write() as transaction:
        journal.prune(transaction, transaction.tick + 1, 1)
    assert look(last).changed, "entries after it may have been dropped"
    assert not look(look(0).last).has_failures
    with lake.catalog.write() as transaction:
        failure = BuildFailure("readings", b"h", "block", 5, "damaged")
        failures.insert_many(transaction.connection, [failure], transaction.tick)
    assert look(last).has_failures


def test_journal_is_selected_by_tick_operation_and_view_set(lake: Lake) -> None:
    ticks = []
    for operation, view_set in (("x", "one"), ("y", "one"), ("x", "two"), ("x", "one")):
        with lake.catalog.write() as transaction:
            entry = journal.Entry(operation, view_set=view_set, file_path=f"{view_set}.parquet")
            journal.append(transaction, [entry])
            ticks.append(transaction.tick)
    with lake.catalog.read() as connection:
        entries = journal.list_entries(connection, operations=["x"], view_set="one")
        assert [entry.tick for entry in entries] == [ticks[3], ticks[0]]
        since = journal.list_entries(connection, since=ticks[2])
        assert [entry.tick for entry in since] == [ticks[3], ticks[2]]
        assert [entry.tick for entry in journal.list_entries(connection, limit=1)] == ticks[3:]
        assert journal.find_last(connection, "one.parquet") == ticks[3]
        assert journal.find_last(connection, "two.parquet") == ticks[2]
        assert journal.find_last(connection, "three.parquet") is None
        for after, expected in ((ticks[1] - 1, True), (ticks[1], False)):
            assert journal.has_happened(connection, "one", ["y"], after) is expected
        assert not journal.has_happened(connection, "two", ["y"], 0)
    with lake.catalog.write() as transaction:
        older = len(journal.list_entries(transaction.connection)) - 4
        assert journal.prune(transaction, ticks[1], older + 9) == older + 1
        assert journal.prune(transaction, ticks[3] + 1, 1) == 1
        entries = journal.list_entries(transaction.connection)
        assert [entry.tick for entry in entries] == [ticks[3], ticks[2]]


def test_inserts_are_remembered_by_table_and_key_until_a_tick(lake: Lake) -> None:
    one, two = make(lake, LOOSE).definition, make(lake, LOOSE).definition
    remembered = {
        key: KnownInsert(key.encode(), tick, rows, rejected)
        for key, tick, rows, rejected in (("k1", 9, 1, 2), ("k2", 10, 3, 4), ("other", 9, 5, 6))
    }
    with lake.catalog.write() as transaction:
        connection = transaction.connection
        for key, insert in remembered.items():
            inserts.record(connection, one.table_id, key, insert)
        inserts.record(connection, one.table_id, f"{inserts.ADOPTED}k", remembered["k1"])
        assert inserts.find(connection, one.table_id, "k1") == remembered["k1"]
        assert inserts.find(connection, one.table_id, "k3") is None
        assert inserts.find(connection, two.table_id, "k1") is None
        assert inserts.is_known(connection, one.table_id, "k2")
        assert not inserts.is_known(connection, two.table_id, "k2")
        listed = inserts.list_beginning(connection, one.table_id, ["k"])
        assert [item for item in listed if item[0] in remembered] == [
            ("k1", remembered["k1"]),
            ("k2", remembered["k2"]),
        ]
        assert inserts.list_beginning(connection, two.table_id, ["k"]) == []
        assert inserts.list_beginning(connection, one.table_id, []) == []
        assert inserts.forget(connection, 10) == 2
        assert inserts.find(connection, one.table_id, "k1") is None
        assert inserts.find(connection, one.table_id, "k2") == remembered["k2"]
        assert inserts.is_known(connection, one.table_id, f"{inserts.ADOPTED}k")
    lake.tables.delete_table("d", one.name)
    with lake.catalog.read() as connection:
        assert inserts.find(connection, one.table_id, "k2") is None
        assert inserts.is_known(connection, one.table_id, "k2")


@pytest.fixture
def landed(lake: Lake) -> list[Block]:
    """Two segments of three blocks and one each."""
    land(lake, requests=1, size=20)
    land(lake, "metrics", seed=2)
    land(lake, seed=3)
    with lake.catalog.read() as connection:
        return blocks.list_blocks(connection, TimeRange(0, 1 << 60))


def test_blocks_are_selected_by_insert_time_at_every_bound(lake: Lake, landed: list[Block]) -> None:
    times = [block.insert_time for block in landed]
    assert len(times) >= 3
    assert times == sorted(times)
    bounds = sorted({time + offset for time in times for offset in (-1, 0, 1)})
    encoding = landed[-1].encoding
    with lake.catalog.read() as connection:
        for begin in bounds:
            for end in (begin + 1, times[-1] + 2):
                within = TimeRange(begin, end)
                expected = [block for block in landed if begin <= block.insert_time < end]
                check_blocks(connection, within, expected, encoding)
            before = [time for time in times if time < begin]
            assert blocks.count_before(connection, begin) == len(before)
            assert blocks.last_insert_time(connection, begin) == max(before, default=None)
            boundary = blocks.find_boundary(connection, begin)
            newer = {block.segment_path for block in landed if block.insert_time >= boundary}
            older = {block.segment_path for block in landed if block.insert_time < boundary}
            assert boundary <= begin
            assert not newer & older
            old = [
                segment.segment_path
                for segment in blocks.list_segments_before(connection, boundary)
            ]
            assert old == sorted(older)
        assert blocks.first_insert_time(connection) == times[0]
        assert blocks.last_insert_time(connection) == times[-1]
        assert blocks.count_blocks(connection) == len(times)
        ranges = [TimeRange(times[0], times[0] + 1), TimeRange(times[-1], times[-1] + 1)]
        assert blocks.list_blocks_in(connection, ranges) == [landed[0], landed[-1]]
        assert blocks.list_blocks_in(connection, []) == []


def check_blocks(
    connection: Connection, within: TimeRange, expected: list[Block], encoding: str
) -> None:
    assert blocks.list_blocks(connection, within) == expected
    assert blocks.list_blocks_in(connection, [within]) == expected
    landed = [(block.insert_time, block.encoding) for block in expected]
    assert overview.list_landed(connection, within) == landed
    names = {block.insert_time: (block.block_id, block.encoding) for block in expected}
    assert overview.name_blocks(connection, [time for time, _ in landed]) == names
    encoded = [block for block in expected if block.encoding == encoding]
    assert blocks.list_blocks(connection, within, [encoding]) == encoded
    first = expected[0].insert_time if expected else None
    assert blocks.find_first(connection, within) == first
    first = encoded[0].insert_time if encoded else None
    assert blocks.find_first(connection, within, [encoding]) == first
    processes, streams = blocks.list_senders(connection, within)
    assert set(processes) == {block.process_id for block in expected}
    assert set(streams) == {block.stream_id for block in expected}


def test_blocks_before_a_boundary_are_deleted_with_their_segments(
    lake: Lake, landed: list[Block]
) -> None:
    times = [block.insert_time for block in landed]
    with lake.catalog.write() as transaction:
        connection = transaction.connection
        boundary = blocks.find_boundary(connection, times[-1])
        blocks.delete_before(connection, boundary)
        newer = [block for block in landed if block.insert_time >= boundary]
        assert blocks.list_blocks(connection, TimeRange(0, 1 << 60)) == newer
        segments = {segment.segment_path for segment in blocks.list_segments(connection)}
        assert segments == {block.segment_path for block in newer}


def test_failures_are_selected_and_forgotten_by_view_set_schema_and_time(lake: Lake) -> None:
    every = [
        BuildFailure(name, schema, f"{name}{schema!r}{time}", time, "damaged", 3)
        for name in ("one", "two")
        for schema in (b"a", b"b")
        for time in (9, 10)
    ]
    with lake.catalog.write() as transaction:
        connection = transaction.connection
        failures.insert_many(connection, [*every, every[0]], 3)
        failures.insert_many(connection, every[:1], 4)
        assert set(failures.list_failures(connection)) == set(every)
        assert failures.list_failures(connection, "one", b"a") == every[:2]
        assert set(failures.list_failures(connection, "one")) == set(every[:4])
        assert set(failures.list_failures_of(connection, ["two"])) == set(every[4:])
        assert failures.list_failures_of(connection, []) == []
        assert failures.forget(connection, "two", [every[0].block_id]) == 0
        assert failures.forget(connection, "one", [every[0].block_id]) == 1
        failures.forget_before(connection, 10)
        assert {failure.insert_time for failure in failures.list_failures(connection)} == {10}


def test_rounds_go_from_path_to_path(lake: Lake) -> None:
    lake.views.register(readings())
    for hour in range(3):
        publish_hour(lake, hour)
    publish_hour(lake, 3, 0)
    land(lake)
    land(lake, seed=2)
    with lake.catalog.read() as connection:
        live = rounds.list_partitions(connection, "", 99)
        names = [str(partition.file_path) for partition in live]
        assert names == sorted(names)
        assert len(names) == 3
        assert rounds.list_partitions(connection, names[0], 1) == live[1:2]
        assert rounds.list_partitions(connection, names[2], 9) == []
        landed = rounds.list_segments(connection, "", 99)
        assert [segment.segment_path for segment in landed] == sorted(
            s.segment_path for s in landed
        )
        assert len(landed) == 2
        assert rounds.list_segments(connection, landed[0].segment_path, 9) == landed[1:]
        assert rounds.list_segments(connection, "", 1) == landed[:1]
        assert rounds.list_at(connection, [names[1], landed[1].segment_path]) == (
            live[1:2],
            landed[1:],
        )
        size = sum(p.file_size for p in live) + sum(s.file_size for s in landed)
        assert rounds.weigh(connection) == (5, size)


@pytest.mark.parametrize(
    ("next_run", "made_at", "overdue"),
    [(10, 5, 90), (100, 5, 0), (99, 5, 1), (101, 5, 0), (0, 40, 60), (0, 100, 0)],
)
def test_duty_is_overdue_since_its_next_run_or_since_there_is_a_lake(
    next_run: int, made_at: int, overdue: int
) -> None:
    assert DutyState("sweep", next_run=next_run).overdue_us(100, made_at) == overdue


def test_retired_files_are_overdue_from_their_expiration_on(lake: Lake) -> None:
    with lake.catalog.write() as transaction:
        later = sa.update(lake_clock).values(now=lake_clock.c.now + 10**15)
        transaction.connection.execute(later)
    with lake.catalog.write() as transaction:
        assert rules.count_overdue(transaction.connection) == 0
        assert rules.oldest_overdue(transaction.connection) is None
        next_tick = transaction.tick + 1
        states = {FileState.RETIRED: (-2, -1, 0, 1), FileState.DELETING: (-9,)}
        files.insert_many(
            transaction.connection,
            [
                TemporaryFile(f"{state} {offset}", 1, state, next_tick + offset)
                for state, offsets in states.items()
                for offset in offsets
            ],
        )
    with lake.catalog.read() as connection:
        assert rules.count_overdue(connection) == 3
        assert rules.oldest_overdue(connection) == ("retired -2", next_tick - 2)


def test_health_compares_the_clocks_of_catalog_lake_and_machine(lake: Lake, dialect: str) -> None:
    with lake.catalog.read() as connection:
        moment = connection.scalar(sa.select(catalog_clock()))
    times = iter([moment - 1000, moment + 3000])
    health = examine(lake.catalog, lambda: next(times))
    assert health.software.startswith("SQLite 3." if dialect == "sqlite" else "PostgreSQL ")
    assert health.revision == health.needed_revision == HEAD
    assert health.is_known_revision
    assert health.give_or_take_us == 2000
    assert health.ahead_us >= -1000
    assert health.ticks_ahead_us is not None
    assert health.ticks_ahead_us <= 0
    assert (health.journal_mode is None) == (dialect == "postgresql")


def test_health_of_a_database_without_a_catalog_has_no_revision_and_no_ticks(
    new_catalog: Callable[..., str],
) -> None:
    catalog = Catalog(new_catalog(blank=True), actor="test")
    health = examine(catalog, lambda: 0)
    catalog.close()
    assert (health.revision, health.ticks_ahead_us, health.is_known_revision) == (None, None, True)
    assert health.ahead_us > 0
