"""Users' tables as DataFrames: read like view sets, and written in one transaction."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import pyarrow.parquet as pq
import pytest

import lakebed.spark
from lakebed.catalog import clock
from lakebed.errors import BadInput, SnapshotExpired, UnknownDatabase, UnknownTable
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.pipeline.sessions.executors import StoreAddress
from lakebed.pipeline.writing import RESULT, read_results
from lakebed.spark.insert_task import InsertOrder, insert_task
from lakebed.tables.table import Table
from tests.parts.building import tick
from tests.parts.data import stored_files
from tests.pipeline.test_folds import written_and_staged

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FIRST = datetime(2026, 11, 16, 23, tzinfo=UTC)
SCHEMA = {
    "id": {"type": "int", "unique": True},
    "time": "datetime",
    "bpm": {"type": "int", "min": 20, "max": 250},
    "note": "string",
}


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def lake(new_lake: Any) -> Lake:
    lake: Lake = new_lake(grace="0s")
    lake.tables.create_database("home")
    return lake


@pytest.fixture
def table(lake: Lake) -> Table:
    """Three days; row 1 was moved from the first to the third, and row 2 deleted."""
    table = lake.tables.create_table("home", "heart_rate", SCHEMA)
    table.insert([row(each, each % 2) for each in range(6)])
    table.insert([row(1, 2, bpm=99)])
    table.delete_rows("id = 2")
    return table


def row(number: int, days: int, bpm: int = 60) -> dict[str, Any]:
    return {"id": number, "time": FIRST + timedelta(days=days), "bpm": bpm}


def rows_of(table: Table) -> list[dict[str, Any]]:
    return list(table.query(f"SELECT * FROM {table.name} ORDER BY id").to_arrow().to_pylist())


def collect(frame: DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = frame.orderBy("id").toArrow().to_pylist()
    return rows


# ---- reading ------------------------------------------------------------------------------------


def test_a_table_is_read_like_a_view_set(lake: Lake, table: Table, spark: SparkSession) -> None:
    def read(*bounds: Any, **options: Any) -> list[int]:
        frame = lakebed.spark.read(spark, "home.heart_rate", *bounds, lake=lake, **options)
        return [each["id"] for each in collect(frame)]

    expected = rows_of(table)
    frame = lakebed.spark.read(spark, "home.heart_rate", lake=lake)
    assert collect(frame) == expected
    assert frame.schema == lakebed.spark.spark_schema(table.definition.shown)
    assert read(FIRST + timedelta(days=1)) == [1, 3, 5]
    assert read(FIRST, FIRST + timedelta(days=1)) == [0, 4]
    assert read(instance="2026-11-18") == [1]
    assert read(instance=None) == [0, 1, 3, 4, 5]
    with pytest.raises(BadInput, match="not the name of a bucket"):
        read(instance="November")
    with pytest.raises(UnknownTable):
        lakebed.spark.read(spark, "home.nothing", lake=lake)
    with pytest.raises(UnknownDatabase):
        lakebed.spark.read(spark, "nowhere.heart_rate", lake=lake)


def test_a_reader_is_of_one_snapshot_for_as_long_as_it_is_held(
    lake: Lake, table: Table, spark: SparkSession
) -> None:
    expected = rows_of(table)
    with lakebed.spark.reader(spark, lake) as reader:
        frame = reader.read("home.heart_rate")
        table.insert([row(7, 0)])
        table.alter(add={"more": "float"})
        table.fold()
        lake.sweeper.run()
        later = lake.tables.create_table("home", "later", SCHEMA)
        assert collect(frame) == expected
        assert collect(reader.read("home.heart_rate")) == expected
        with pytest.raises(SnapshotExpired, match="made after this snapshot"):
            reader.read("home.later")
    assert later.count() == 0
    with pytest.raises(SnapshotExpired, match="was closed"):
        reader.read("home.heart_rate")


def test_the_past_is_read_as_it_was(lake: Lake, table: Table, spark: SparkSession) -> None:
    with lakebed.spark.reader(spark, lake):  # nothing is swept that it may read
        then = tick(lake)
        expected = rows_of(table)
        table.insert([row(7, 0)])
        table.fold()
        frame = lakebed.spark.read(spark, "home.heart_rate", lake=lake, as_of=then)
        assert collect(frame) == expected


def test_buckets_are_in_utc_whatever_the_session_says(
    lake: Lake, table: Table, spark: SparkSession
) -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        frame = lakebed.spark.read(spark, "home.heart_rate", lake=lake)
        found = {each["id"]: each["partition_date"] for each in frame.collect()}
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    assert found == {each["id"]: each["partition_date"] for each in rows_of(table)}


def test_views_of_tables_are_named_in_backticks(
    lake: Lake, table: Table, spark: SparkSession
) -> None:
    before = {each.name for each in spark.catalog.listTables()}
    try:
        with lakebed.spark.reader(spark, lake) as reader:
            assert reader.create_temp_views() == ["home.heart_rate"], "and nothing that was refused"
            asked = spark.sql("SELECT h.id, h.bpm FROM `home.heart_rate` h WHERE h.bpm > 90")
            assert [tuple(each) for each in asked.collect()] == [(1, 99)]
            assert reader.create_temp_views(["home.heart_rate_rejects"])
    finally:
        for each in spark.catalog.listTables():
            if each.name not in before:
                spark.catalog.dropTempView(f"`{each.name}`")


def test_the_format_says_that_it_reads_no_tables(
    lake: Lake, table: Table, spark: SparkSession
) -> None:
    lakebed.spark.register(spark)
    folder = str(Path(lake.catalog.url.removeprefix("sqlite:///")).parent)
    source = spark.read.format("lakebed").options(lake=folder, view="home.heart_rate")
    with pytest.raises(Exception, match="reads view sets, not tables"):
        source.load().count()


# ---- inserting ----------------------------------------------------------------------------------


def frame_of(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    return spark.createDataFrame(
        [(each["id"], each["time"], each["bpm"]) for each in rows],
        "id bigint, time timestamp, bpm int",
    ).repartition(3)


def test_a_frame_is_inserted_at_one_tick(lake: Lake, table: Table, spark: SparkSession) -> None:
    expected = {each["id"]: each for each in rows_of(table)}
    new = [row(each, each, bpm=100) for each in (1, 2, 9)]
    done = lakebed.spark.insert(frame_of(spark, new), lake, "home.heart_rate")
    assert (done.rows, done.rejected, done.repeated) == (3, 0, False)
    assert done.buckets == ("2026-11-17", "2026-11-18", "2026-11-25")
    found = {each["id"]: each for each in rows_of(table)}
    assert found.keys() == expected.keys() | {1, 2, 9}
    assert all(found[each["id"]]["bpm"] == 100 for each in new)
    assert {each.insert_range.begin for each in table.partitions()} >= {done.tick}
    assert written_and_staged(lake) == set()
    assert lake.checker.run(Level.PAGES).is_clean


def test_bad_rows_refuse_all_or_are_kept(lake: Lake, table: Table, spark: SparkSession) -> None:
    before = rows_of(table)
    frame = frame_of(spark, [row(10, 0), row(11, 0, bpm=1000)])
    with pytest.raises(BadInput, match=r"1 of 2 records are bad\n.*bpm: expected at most 250"):
        lakebed.spark.insert(frame, lake, "home.heart_rate")
    assert rows_of(table) == before
    assert written_and_staged(lake) == set()
    done = lakebed.spark.insert(frame, lake, "home.heart_rate", on_error="keep")
    assert (done.rows, done.rejected) == (1, 1)
    assert [each["id"] for each in rows_of(table)] == [*(each["id"] for each in before), 10]
    (refused,) = lake.query("SELECT reasons FROM home.heart_rate_rejects").to_arrow().to_pylist()
    assert refused["reasons"] == "bpm: expected at most 250, got 1000"
    assert lake.checker.run(Level.PAGES).is_clean


def test_what_makes_no_sense_is_one_clear_line(
    lake: Lake, table: Table, spark: SparkSession
) -> None:
    frame = frame_of(spark, [row(10, 0), row(10, 1)])

    def refused(frame: DataFrame, name: str = "home.heart_rate", **options: Any) -> str:
        with pytest.raises(BadInput) as error:
            lakebed.spark.insert(frame, lake, name, **options)
        return str(error.value)

    before = stored_files(lake)
    assert "1 rows for home.heart_rate have the key of another one" in refused(frame)
    assert "more: expected a column of the table" in refused(frame.selectExpr("*", "1 AS more"))
    assert "id: expected a value" in refused(frame.drop("id"))
    assert "occurs twice" in refused(frame.selectExpr("*", "1 AS id"))
    assert "'heart_rate' is not the name of a table" in refused(frame, "heart_rate")
    assert "nobody inserts there" in refused(frame, "home.heart_rate_rejects")
    assert "on_error is 'maybe'" in refused(frame, on_error="maybe")
    with pytest.raises(UnknownTable):
        lakebed.spark.insert(frame, lake, "home.nothing")
    assert stored_files(lake) == before


def test_spark_timestamps_without_a_zone_are_bad_rows(
    lake: Lake, table: Table, spark: SparkSession
) -> None:
    naive = frame_of(spark, [row(10, 0)]).selectExpr(
        "id", "CAST(time AS TIMESTAMP_NTZ) AS time", "bpm"
    )
    with pytest.raises(BadInput, match="time: expected datetime with a zone"):
        lakebed.spark.insert(naive, lake, "home.heart_rate")


def test_no_rows_are_no_insert(lake: Lake, table: Table, spark: SparkSession) -> None:
    before = len(table.partitions())
    done = lakebed.spark.insert(frame_of(spark, []), lake, "home.heart_rate")
    assert (done.rows, done.buckets) == (0, ())
    assert len(table.partitions()) == before


def test_any_number_of_buckets_is_one_insert(lake: Lake, spark: SparkSession) -> None:
    table = lake.tables.create_table("home", "wide", SCHEMA, "hour")
    rows = [{**row(each, 0), "time": FIRST + timedelta(hours=each)} for each in range(40)]
    done = lakebed.spark.insert(frame_of(spark, rows), lake, "home.wide")
    assert (done.rows, len(done.buckets)) == (40, 40)
    assert {each.insert_range.begin for each in table.partitions()} == {done.tick}
    assert table.count() == 40
    assert written_and_staged(lake) == set()


def test_a_table_that_is_altered_meanwhile_is_inserted_into_again(
    lake: Lake, table: Table, spark: SparkSession
) -> None:
    altered = []
    frame: Any = frame_of(spark, [row(10, 0)])
    rename = frame.toDF

    def alter_and_rename(*columns: str) -> DataFrame:
        """Alter the table once, after it was looked up and before anything is written."""
        if not altered:
            altered.append(table.alter(add={"more": "float"}))
        return rename(*columns)

    frame.toDF = alter_and_rename
    assert lakebed.spark.insert(frame, lake, "home.heart_rate").rows == 1
    assert altered
    assert rows_of(table)[-1]["more"] is None
    lake.sweeper.run()
    assert written_and_staged(lake) == set()


def order_for(lake: Lake, table: Table) -> InsertOrder:
    rejects = lake.tables.definitions.get("home", f"{table.name}_rejects")
    with lake.catalog.read() as connection:
        now = clock.upcoming(connection)
    of = table.definition
    names = [
        tuple(f"partitions/{each}/rows/2026-11/{n:036}.parquet" for n in range(24))
        for each in (of.stored_as, rejects.stored_as)
    ]
    return InsertOrder(of, rejects, ("id", "time", "bpm"), True, now, *names)


def test_an_attempt_that_was_killed_leaves_its_names_to_the_dead(
    lake: Lake, table: Table, spark: SparkSession
) -> None:
    before = stored_files(lake)
    order = order_for(lake, table)
    write = insert_task(StoreAddress.of(lake.store), order)

    def die_after_writing(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        done = list(write(batches))
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from done

    frame = frame_of(spark, [row(each, each) for each in range(3)])
    rows = frame.repartition(1).mapInArrow(die_after_writing, RESULT).collect()
    paths = [result.file.path for result in read_results(rows).values() if result.file]
    assert paths == list(order.names[3:6])
    assert stored_files(lake) - before == set(order.names[:6])


def test_executors_need_nothing_but_the_address_of_the_store(
    lake: Lake, table: Table, tmp_path: Path
) -> None:
    order = order_for(lake, table)
    pickled = tmp_path / "task"
    pickled.write_bytes(cloudpickle.dumps(insert_task(StoreAddress.of(lake.store), order)))
    code = (
        "import datetime, pickle, sys, pyarrow as pa\n"
        "for name in ('sqlalchemy', 'datafusion', 'sqlglot'): sys.modules[name] = None\n"
        "time = pa.array([0, 1], pa.timestamp('us', 'UTC'))\n"
        "rows = pa.RecordBatch.from_pydict({'a': [1, 2], 'b': time, 'c': [60, 1000]})\n"
        "said = list(pickle.load(open(sys.argv[1], 'rb'))(iter([rows])))\n"
        "assert len(said) == 2, said\n"
    )
    catalog = Path(lake.catalog.url.removeprefix("sqlite:///"))
    hidden = catalog.with_suffix(".hidden")
    catalog.rename(hidden)
    try:
        subprocess.run([sys.executable, "-c", code, str(pickled)], check=True)
    finally:
        hidden.rename(catalog)
    for name, expected in ((order.names[0], 1), (order.reject_names[0], 1)):
        with lake.store.open(name) as source:
            assert pq.read_table(source).num_rows == expected
