"""One statement, one snapshot: its tables agree with each other, its files stay while it is read,
and the catalog is asked a constant number of questions.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pyarrow as pa
import pytest
import sqlalchemy as sa

from lakebed.catalog import leases
from lakebed.catalog.leases import LeaseKind
from lakebed.errors import DamagedFile, LakebedError, SnapshotExpired
from lakebed.lake import Lake
from lakebed.model.partition import Partition
from lakebed.opening import open_lake
from lakebed.query.planning.conditions import Scan
from lakebed.settings import Settings
from lakebed.writing.publish import NewPartition
from tests.conftest import NewLake
from tests.parts.building import build, land, tick
from tests.parts.data import HOUR, T0, publish_hour, readings, rows


@contextmanager
def counted(lake: Lake) -> Iterator[list[str]]:
    """Every statement that reaches the catalog."""
    seen: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        seen.append(statement)

    sa.event.listen(lake.catalog.engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(lake.catalog.engine, "before_cursor_execute", note)


def _wait_until_versions_are_stable(lake: Lake) -> None:
    """Wait until no file is so new that every statement verifies it again."""
    paths = [p.file_path for p in lake.partitions.list_partitions() if p.file_path]
    while any(lake.store.version(path) != lake.store.version(path) for path in paths):
        time.sleep(0.005)


def questions(lake: Lake, sql: str) -> int:
    _wait_until_versions_are_stable(lake)
    lake.query(sql).to_arrow()  # leases and the like are taken once
    with counted(lake) as seen:
        lake.query(sql).to_arrow()
    return len(seen)


def test_number_of_catalog_statements_does_not_depend_on_the_contents(new_lake: NewLake) -> None:
    """A long lease: its heartbeat, which drops an unused lease, is not due during the test."""
    lake = new_lake(settings=Settings(lease_seconds=86_400))
    lake.views.register(readings())
    land(lake, seed=1)
    build(lake)
    land(lake, seed=7)
    publish_hour(lake, 0)
    one = questions(lake, "SELECT * FROM readings WHERE time > '2020-01-01'")
    for hour in range(1, 30):
        publish_hour(lake, hour)
    assert questions(lake, "SELECT * FROM readings WHERE time > '2020-01-01'") == one
    blocks_before = questions(lake, "SELECT * FROM log_entries WHERE time > '2020-01-01'")
    for seed in range(2, 6):
        land(lake, seed=seed)
        build(lake, begin=tick(lake) - 5, end=tick(lake) + 1)
        land(lake, seed=100 + seed)
    assert questions(lake, "SELECT * FROM log_entries WHERE time > '2020-01-01'") == blocks_before
    several = questions(
        lake,
        "SELECT count(*) FROM log_entries l, spans s, measures m, readings r "
        "WHERE l.time > '2020-01-01' AND s.time > '2020-01-01' AND r.time > '2020-01-01'",
    )
    assert several <= blocks_before + 1
    assert several <= 13  # three of them begin transactions


def test_all_tables_of_a_statement_are_of_one_tick(lake: Lake) -> None:
    """Two view sets are always replaced together; no statement sees one of them changed."""
    first, second = readings(), readings(name="copies")
    for each in (first, second):
        lake.views.register(each)
    from lakebed.writing.publish import NewPartition

    def pair(number: int) -> list[NewPartition]:
        return [
            NewPartition.of_rows(each, T0, T0 + HOUR, rows(3, numbers=[number] * 3))
            for each in (first, second)
        ]

    live = lake.partitions.publish_many(pair(0))
    done = threading.Event()
    problems: list[object] = []

    def replace() -> None:
        nonlocal live
        try:
            for number in range(1, 40):
                live = lake.partitions.publish_many(pair(number), replaces=live)
        except BaseException as error:  # noqa: BLE001
            problems.append(error)
        finally:
            done.set()

    writer = threading.Thread(target=replace)
    writer.start()
    looks = 0
    sql = (
        "SELECT (SELECT max(number) FROM readings) AS a, (SELECT max(number) FROM copies) AS b, "
        "(SELECT count(*) FROM readings) AS n"
    )
    while not done.is_set() or not looks:
        row = lake.query(sql).to_arrow().to_pylist()[0]
        assert row["a"] == row["b"]
        assert row["n"] == 3
        looks += 1
    writer.join()
    assert not problems


def test_a_result_stays_readable_while_everything_around_it_goes(new_lake: NewLake) -> None:
    """Read slowly, from several threads, while partitions are merged, split, retired and swept."""
    lake = new_lake(grace="1us")
    lake.views.register(readings())
    for hour in range(4):
        publish_hour(lake, hour, count=500)
    stop = threading.Event()
    problems: list[object] = []
    swept: list[int] = []

    def put(first: int, behind: int) -> None:
        """Rows of some hours as one partition, in place of those that cover them."""
        begin, end = T0 + first * HOUR, T0 + behind * HOUR
        old = [each for each in lake.partitions.list_partitions() if _within(each, begin, end)]
        again = pa.concat_tables([rows(500, hour=hour) for hour in range(first, behind)])
        lake.partitions.publish("readings", begin, end, again, replaces=old)

    def churn() -> None:
        try:
            while not stop.is_set():
                for first, behind in ((0, 2), (2, 4), (0, 4)):  # merged, again and again
                    put(first, behind)
                gone = publish_hour(lake, 9, count=5)
                within = gone.insert_range
                lake.retirement.retire_partition_by_metadata(
                    "readings", gone.instance, within.begin, within.end, confirmed=["readings"]
                )
                (whole,) = lake.partitions.list_partitions()
                parts = [
                    NewPartition.of_rows(
                        readings(), T0 + hour * HOUR, T0 + (hour + 1) * HOUR, rows(500, hour=hour)
                    )
                    for hour in range(4)
                ]
                lake.partitions.publish_many(parts, replaces=[whole])
                lake.leases.beat()  # says what is still read here
                swept.append(lake.sweeper.run().files)
                if (len(swept) > 2 and sum(swept)) or len(swept) > 100:
                    stop.set()
        except BaseException as error:  # noqa: BLE001
            problems.append(error)
            stop.set()

    def read() -> None:
        try:
            while not stop.is_set():
                sql = "SELECT * FROM readings WHERE time < '2026-01-01T04:00:00Z'"
                with lake.query(sql) as result:
                    seen = 0
                    for batch in result:
                        time.sleep(0.05)
                        seen += batch.num_rows
                assert seen == 2000
        except BaseException as error:  # noqa: BLE001
            problems.append(error)

    churning = threading.Thread(target=churn)
    readers = [threading.Thread(target=read) for _ in range(3)]
    for thread in [churning, *readers]:
        thread.start()
    for thread in [churning, *readers]:
        thread.join()
    assert not problems
    assert sum(swept) > 0
    assert not lake.leases._pins


def _within(partition: Partition, begin: int, end: int) -> bool:
    return begin <= partition.insert_range.begin and partition.insert_range.end <= end


def test_results_let_go_of_their_snapshot(lake: Lake) -> None:
    lake.views.register(readings())
    publish_hour(lake, 0)
    result = lake.query("SELECT * FROM readings")
    assert lake.leases._pins
    result.to_arrow()
    assert not lake.leases._pins
    with lake.query("SELECT * FROM readings"):
        assert lake.leases._pins
    assert not lake.leases._pins
    with pytest.raises(LakebedError):
        lake.query("SELECT nothing FROM readings")
    with pytest.raises(LakebedError):
        lake.query("SELECT * FROM readings", as_of="2101-01-01T00:00:00Z")
    assert not lake.leases._pins


def test_the_past_is_read_as_it_was(lake: Lake) -> None:
    lake.views.register(readings())
    old = publish_hour(lake, 0, count=3)
    then = tick(lake)
    publish_hour(lake, 0, count=5, replaces=[old])
    sql = "SELECT count(*) AS n FROM readings WHERE time >= '2026-01-01T00:00:00Z'"
    assert lake.query(sql, as_of=then).to_arrow()["n"].to_pylist() == [3]
    assert lake.query(sql).to_arrow()["n"].to_pylist() == [5]
    with pytest.raises(SnapshotExpired):
        lake.query(sql, as_of=tick(lake) + 10**9)


def test_what_is_built_is_looked_up_again_after_a_change_elsewhere(lake: Lake) -> None:
    """Another process builds, retires and restores; this one must not go by what it remembers."""
    land(lake)
    sql = "SELECT count(*) AS n FROM log_entries"
    assert lake.query(sql).to_arrow()["n"].to_pylist() == [20]
    with open_lake(lake.catalog.url) as other:
        partition = build(other)
        assert lake.query(sql).to_arrow()["n"].to_pylist() == [20]
        other.retirement.carry_out(
            other.retirement.plan_by_file(str(partition.file_path), hold=True)
        )
        assert lake.query(sql).to_arrow()["n"].to_pylist() == [0]
        other.retirement.restore(partition.partition_id)
        assert lake.query(sql).to_arrow()["n"].to_pylist() == [20]
        land(other, seed=9)
        assert lake.query(sql).to_arrow()["n"].to_pylist() == [40]


def test_statement_that_began_before_a_build_reads_the_lake_as_it_began(lake: Lake) -> None:
    """Another statement has learned of the build meanwhile; its knowledge is of a later lake."""
    land(lake, requests=2)
    queries = lake.queries
    with queries._taker.begin() as beginning:
        partition = build(lake)
        with queries._taker.begin() as later, closing(later.take([Scan("log_entries")])) as after:
            assert after.files == [partition]
        with closing(beginning.take([Scan("log_entries")])) as before:
            assert before.files == []
            assert queries._read_tails(before)["log_entries"].num_rows == partition.num_rows
    with queries._taker.begin() as last, closing(last.take([Scan("log_entries")])) as after:
        assert after.files == [partition]
        assert queries._read_tails(after)["log_entries"].num_rows == 0


def test_statement_of_the_past_reads_every_tick_of_a_build_and_a_replacement(lake: Lake) -> None:
    """One tick before, at, and after each change."""
    land(lake, requests=2)
    first = build(lake)
    second = lake.partitions.publish(
        lake.partitions.definition("log_entries"),
        first.insert_range.begin,
        first.insert_range.end,
        lake.query("SELECT * FROM log_entries").to_arrow(),
        replaces=[first],
        source_hash=first.source_hash,
    )
    tick(lake)
    with lake.catalog.write(ticks=5):
        pass
    for at in (first.published_at, second.published_at):
        for as_of in (at - 1, at, at + 1):
            rows_then = lake.query("SELECT count(*) AS n FROM log_entries", as_of=as_of).to_arrow()
            assert rows_then["n"].to_pylist() == [first.num_rows], as_of - at


def test_no_statement_builds_on_a_lease_that_was_ended(lake: Lake) -> None:
    """What was read before is lost; the next one takes a new lease before it looks."""
    lake.views.register(readings())
    publish_hour(lake, 0)
    slow = lake.query("SELECT * FROM readings")
    with lake.catalog.write() as transaction:
        (ended,) = [
            each
            for each in leases.list_leases(transaction.connection)
            if each.kind is LeaseKind.READER
        ]
        leases.remove(transaction.connection, ended.lease_id)
    with lake.query("SELECT count(*) AS n FROM readings") as result:
        with lake.catalog.read() as connection:
            held = leases.list_leases(connection)
        readers = [each.lease_id for each in held if each.kind is LeaseKind.READER]
        assert len(readers) == 1
        assert readers != [ended.lease_id]
        assert result.to_arrow().num_rows == 1
    assert all(not each.lost for each in lake.leases._pins)
    slow.close()


def test_a_snapshot_whose_lease_was_lost_is_expired_and_not_damaged(lake: Lake) -> None:
    lake.views.register(readings())
    for hour in range(2):
        publish_hour(lake, hour)
    doomed = str(lake.partitions.list_partitions("readings")[0].file_path)
    result = lake.query("SELECT number FROM readings")
    lake.store.delete([doomed])
    with pytest.raises(DamagedFile):
        result.to_arrow()
    result = lake.query("SELECT count(*) AS n FROM readings WHERE time >= '2026-01-01T01:00:00Z'")
    assert result.to_arrow()["n"].to_pylist() == [3]
    other = str(lake.partitions.list_partitions("readings")[1].file_path)
    result = lake.query("SELECT number FROM readings WHERE time >= '2026-01-01T01:00:00Z'")
    with lake.catalog.write() as transaction:
        for each in leases.list_leases(transaction.connection):
            leases.remove(transaction.connection, each.lease_id)
    lake.store.delete([other])
    with pytest.raises(SnapshotExpired):
        result.to_arrow()


def test_a_look_that_ends_badly_holds_nothing(new_lake: NewLake) -> None:
    """Also if its snapshot was taken already: nobody got it, and nobody would close it."""
    lake = new_lake()
    taker, pins = lake.queries._taker, lake.leases._pins
    before = set(pins)
    for with_snapshot in (False, True):
        with pytest.raises(RuntimeError), taker.begin() as beginning:
            if with_snapshot:
                beginning.take([])
            raise RuntimeError
        assert set(pins) == before
    with taker.begin() as beginning:
        snapshot = beginning.take([])
    assert set(pins) != before
    snapshot.close()
    assert set(pins) == before
