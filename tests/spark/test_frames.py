"""DataFrames hold exactly a snapshot's rows, for as long as it is held, and never fewer."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lakebed.spark
from lakebed.errors import BadInput, SnapshotExpired, UnknownViewSet
from lakebed.lake import Lake
from lakebed.model.view_set import ViewSet
from lakebed.opening import init_lake
from lakebed.query.spark.text import quote_for_any_session
from lakebed.views.builtin import built_in
from tests.parts.building import land
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, readings, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def dialect() -> str:
    return "sqlite"


@pytest.fixture
def lake(new_lake: Any) -> Lake:
    """A lake with readings, whose retired files may be swept at once."""
    lake: Lake = new_lake(grace="0s")
    lake.views.register(readings())
    return lake


def numbers(frame: DataFrame) -> Counter[int]:
    return Counter(row[0] for row in frame.select("number").collect())


def test_a_frame_has_exactly_the_rows_of_the_snapshot(lake: Lake, spark: SparkSession) -> None:
    for hour in range(3):
        publish_hour(lake, hour, 4)
    publish_hour(lake, 3, 0)
    frame = lakebed.spark.read(spark, "readings", lake=lake)
    expected = numbers_in(lake)
    publish_hour(lake, 4, 1)
    assert numbers(frame) == expected
    assert frame.schema == lakebed.spark.spark_schema(readings())


def test_time_bounds_drop_files_and_rows(lake: Lake, spark: SparkSession) -> None:
    for hour in range(3):
        publish_hour(lake, hour, 4)

    def count(begin: int | None, end: int | None) -> tuple[int, int]:
        frame = lakebed.spark.read(spark, "readings", begin, end, lake=lake)
        return frame.count(), len(frame.inputFiles())

    assert count(T0 + HOUR + 1, T0 + HOUR + 3) == (2, 1)
    assert count(T0 + HOUR, None) == (8, 2)
    assert count(None, T0 + HOUR + 1) == (5, 2)
    assert count(T0 + 50 * HOUR, None) == (0, 0)
    with pytest.raises(BadInput, match="runs backwards"):
        count(T0 + 1, T0)


def test_a_lake_without_rows_is_a_frame_without_rows(lake: Lake, spark: SparkSession) -> None:
    frame = lakebed.spark.read(spark, "readings", lake=lake)
    assert frame.count() == 0
    assert frame.columns == ["time", "number"]


def test_instances_are_read_one_by_one_or_together(lake: Lake, spark: SparkSession) -> None:
    publish_hour(lake, 0, 2)
    publish_hour(lake, 0, 3, instance="other")
    with lakebed.spark.reader(spark, lake) as reader:
        assert reader.read("readings").count() == 2
        assert reader.read("readings", instance="other").count() == 3
        assert reader.read("readings", instance=None).count() == 5


def test_what_is_replaced_stays_readable_until_the_reader_is_closed(
    lake: Lake, spark: SparkSession
) -> None:
    first = publish_hour(lake, 0, 3)
    expected = numbers_in(lake)
    with lakebed.spark.reader(spark, lake) as reader:
        frame = reader.read("readings")
        publish_hour(lake, 0, 5, replaces=[first])
        lake.sweeper.run()
        assert numbers(frame) == expected
        assert numbers(reader.read("readings")) == expected  # the same snapshot, asked again
    lake.leases.beat()
    lake.sweeper.run()
    with pytest.raises(SnapshotExpired, match="was closed"):
        reader.read("readings")
    with pytest.raises(Exception, match=first.file_path):  # Spark's own error, not fewer rows
        frame.collect()


def test_files_that_spark_may_ignore_elsewhere_are_missed_here(
    lake: Lake, spark: SparkSession
) -> None:
    partition = publish_hour(lake, 0, 3)
    publish_hour(lake, 1, 3)
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        frame = lakebed.spark.read(spark, "readings", lake=lake)
        lake.store.delete([partition.file_path or ""])
        with pytest.raises(Exception, match=partition.file_path):
            frame.collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


def test_a_lost_lease_ends_the_reader(lake: Lake, spark: SparkSession) -> None:
    reader = lakebed.spark.reader(spark, lake)
    lake.leases.close()
    with pytest.raises(SnapshotExpired, match="outlived its lease"):
        reader.read("readings")


def test_views_are_all_of_one_snapshot(lake: Lake, spark: SparkSession) -> None:
    lake.views.register(readings(name="others"))
    nanos = pa.schema([("time", pa.timestamp("ns", "UTC"))])
    lake.views.register(ViewSet("too_fine", 1, nanos, "time"))
    publish_hour(lake, 0, 3)
    with lakebed.spark.reader(spark, lake) as reader:
        publish_hour(lake, 1, 3)
        assert reader.create_temp_views() == ["others", "readings"]
        joined = spark.sql("SELECT count(*) FROM readings LEFT ANTI JOIN others USING (number)")
        assert joined.collect()[0][0] == 3
        with pytest.raises(BadInput, match="nanosecond"):
            reader.create_temp_views(["too_fine"])
    assert lakebed.spark.create_temp_views(spark, lake, ["readings"]) == ["readings"]
    assert spark.table("readings").count() == 6


def test_the_past_and_the_unknown(lake: Lake, spark: SparkSession) -> None:
    first = publish_hour(lake, 0, 3)
    publish_hour(lake, 1, 3)
    frame = lakebed.spark.read(spark, "readings", lake=lake, as_of=first.published_at)
    assert frame.count() == 3
    with pytest.raises(UnknownViewSet):
        lakebed.spark.read(spark, "nothing", lake=lake)


def test_partitions_of_older_versions_are_not_read(lake: Lake, spark: SparkSession) -> None:
    publish_hour(lake, 0, 3)
    lake.views.register(readings(2))
    publish_hour(lake, 1, 2, version=2)
    frame = lakebed.spark.read(spark, "readings", lake=lake)
    assert frame.columns == ["time", "number", "extra_2"]
    assert frame.count() == 2


@pytest.mark.parametrize("name", ["[x]{a}?*", "a=b c%20#é:'"])
def test_folders_may_have_any_name(name: str, tmp_path: Path, spark: SparkSession) -> None:
    with init_lake(tmp_path / name) as lake:
        lake.views.register(readings())
        for hour in range(2):
            publish_hour(lake, hour, 3)
        assert lakebed.spark.read(spark, "readings", lake=lake).count() == 6


A_SECOND_IN = datetime(1970, 1, 1, 0, 0, 1)  # noqa: DTZ001  (as pyspark gives all times)

KINDS: dict[str, tuple[pa.DataType, Any, Any]] = {
    # name: Arrow type, a value, what Spark says
    "bool": (pa.bool_(), True, True),
    "int8": (pa.int8(), -128, -128),
    "uint8": (pa.uint8(), 255, 255),
    "uint16": (pa.uint16(), 65_535, 65_535),
    "uint32": (pa.uint32(), 2**32 - 1, 2**32 - 1),
    "uint64": (pa.uint64(), 2**64 - 1, Decimal(2**64 - 1)),
    "int64": (pa.int64(), -(2**63), -(2**63)),
    "float32": (pa.float32(), 0.5, 0.5),
    "text": (pa.large_string(), "grün", "grün"),
    "level": (pa.dictionary(pa.int32(), pa.string()), "warn", "warn"),
    "bytes": (pa.large_binary(), b"\x00\xff", b"\x00\xff"),
    "id": (pa.binary(4), b"abcd", b"abcd"),
    "day": (pa.date32(), date(2026, 1, 2), date(2026, 1, 2)),
    "price": (pa.decimal128(12, 3), Decimal("1.250"), Decimal("1.250")),
    "millis": (pa.timestamp("ms", "UTC"), 1_000, A_SECOND_IN),
    "local": (pa.timestamp("us"), 1_000_000, A_SECOND_IN),
    "took": (pa.duration("us"), 7, 7),
    "list": (pa.list_(pa.uint8()), [1, None], [1, None]),
    "map": (pa.map_(pa.string(), pa.large_string()), [("k", "v")], {"k": "v"}),
    "nested": (pa.struct([("a", pa.struct([("b", pa.uint16())]))]), {"a": {"b": 3}}, ((3,),)),
}


def test_every_kind_of_column_comes_and_goes(lake: Lake, spark: SparkSession) -> None:
    fields = [("time", pa.timestamp("us", "UTC")), *((name, KINDS[name][0]) for name in KINDS)]
    view_set = ViewSet("kinds", 1, pa.schema(fields), "time", ("int64",))
    lake.views.register(view_set)
    first = {"time": T0, **{name: value for name, (_, value, _) in KINDS.items()}}
    nulls: dict[str, Any] = {"time": T0 + 1, **dict.fromkeys(KINDS)}
    table = pa.Table.from_pylist([first, nulls], schema=view_set.schema)
    lake.partitions.publish("kinds", T0, T0 + HOUR, table)

    native = lakebed.spark.read(spark, "kinds", lake=lake)
    lakebed.spark.register(spark)
    folder = str(Path(lake.catalog.url.removeprefix("sqlite:///")).parent)
    source = spark.read.format("lakebed").options(lake=folder, view="kinds").load()
    for frame in (native, source):
        row = frame.orderBy("time").collect()[0].asDict()
        assert row.pop("time") == datetime.fromtimestamp(T0 // 1_000_000, UTC).replace(tzinfo=None)
        assert row == {name: said for name, (_, _, said) in KINDS.items()}

    lakebed.spark.write(native, lake, "kinds", T0 + HOUR, T0 + 2 * HOUR)
    with lake.partitions.snapshot("kinds") as snapshot:
        before, after = (snapshot.read(each) for each in snapshot.partitions)
    assert after.sort_by("time").equals(before.sort_by("time"))


def test_values_that_do_not_fit_are_refused(lake: Lake, spark: SparkSession) -> None:
    fields = [("time", pa.timestamp("us", "UTC")), ("small", pa.uint8())]
    lake.views.register(ViewSet("small", 1, pa.schema(fields), "time"))
    frame = spark.sql("SELECT timestamp_micros(0) AS time, -1S AS small")
    with pytest.raises(BadInput, match="column small does not fit"):
        lakebed.spark.write(frame, lake, "small", T0, T0 + HOUR)


def test_rows_are_what_other_readers_read(lake: Lake, spark: SparkSession) -> None:
    lake.partitions.publish("readings", T0, T0 + HOUR, rows(1000))
    total = lakebed.spark.read(spark, "readings", lake=lake).selectExpr("sum(number)").collect()
    assert total[0][0] == sum(numbers_in(lake))


def test_partial_results_of_sql_are_added_up(lake: Lake, spark: SparkSession) -> None:
    lake.views.ensure(built_in())
    stats = lake.partitions.definition("log_stats")
    for hour in range(3):
        time_bin = T0 + (hour // 2) * HOUR
        part = {"time_bin": time_bin, "process_id": "p", "level": 2, "target": "t", "count": 5}
        begin = T0 + hour * HOUR
        rows = pa.Table.from_pylist([part], stats.schema)
        lake.partitions.publish("log_stats", begin, begin + HOUR, rows)
    frame = lakebed.spark.read(spark, "log_stats", lake=lake)
    assert sorted(row["count"] for row in frame.collect()) == [5, 10]
    assert frame.schema == lakebed.spark.spark_schema(stats)
    before = {each.name for each in spark.catalog.listTables()}
    first = lakebed.spark.read(spark, "log_stats", T0, T0 + HOUR, lake=lake)
    assert [row["count"] for row in first.collect()] == [10]
    assert {each.name for each in spark.catalog.listTables()} == before
    with lakebed.spark.reader(spark, lake) as reader:
        reader.create_temp_views(["log_stats"])
        assert spark.sql("SELECT sum(count), count(*) FROM log_stats").collect() == [(15, 2)]
    spark.catalog.dropTempView("log_stats")


def test_what_happened_before_a_range_counts_for_rows_that_sum_up(
    lake: Lake, spark: SparkSession
) -> None:
    for requests in (1, 2):  # the first of two is known already
        land(lake, requests=requests, size=3)
        assert lake.pipeline.build("processes", spark=spark).problems == []
    last = lake.query("SELECT last_update_time AS t FROM processes ORDER BY 1 DESC").to_arrow()
    begin = last["t"][0].as_py()
    columns = ["process_id", "insert_time", "last_update_time", "exe"]
    sql = f"SELECT {', '.join(columns)} FROM processes ORDER BY process_id"
    ours = lake.query(sql, begin=begin).to_arrow()
    frame = lakebed.spark.read(spark, "processes", begin, lake=lake).orderBy("process_id")
    assert frame.select(*columns).toArrow().to_pylist() == ours.to_pylist()
    assert ours.num_rows


def test_names_in_double_quotes_are_names_in_any_session() -> None:
    sql = """SELECT "a.b", 'say "x"', `c` FROM t -- "d"\n"""
    assert quote_for_any_session(sql) == """SELECT `a.b`, 'say "x"', `c` FROM t -- "d"\n"""


def test_without_a_lake_the_one_of_the_settings_is_read(
    lake: Lake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish_hour(lake, 0, 4)
    monkeypatch.setenv("LAKEBED_LAKE", lake.catalog.url)
    assert lakebed.spark.read(spark, "readings", "1h").count() == 0
    assert lakebed.spark.read(spark, "readings").count() == 4
    lakebed.spark.create_temp_views(spark, names=["readings"])
    assert spark.table("readings").count() == 4
    spark.catalog.dropTempView("readings")
