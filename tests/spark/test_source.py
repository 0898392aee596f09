"""``spark.read.format("lakebed")``: planned on the driver, read through the store, pruned by time;
also on S3, where Spark's own reader cannot go.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakebed.spark
from lakebed.errors import BadInput
from lakebed.lake import Lake
from lakebed.pipeline.sessions.jvm import logging_no_errors
from lakebed.spark.source import group_files
from lakebed.views.builtin import built_in
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, readings
from tests.parts.environments import make_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def dialect() -> str:
    return "sqlite"


def folder_of(lake: Lake) -> str:
    return str(Path(lake.catalog.url.removeprefix("sqlite:///")).parent)


def load(spark: SparkSession, lake: Lake, **options: Any) -> DataFrame:
    lakebed.spark.register(spark)
    wanted = {"lake": folder_of(lake), "view": "readings", **options}
    return spark.read.format("lakebed").options(**wanted).load()


def test_a_load_has_all_rows_in_every_action(lake: Lake, spark: SparkSession) -> None:
    lake.views.register(readings())
    assert load(spark, lake).count() == 0
    for hour in range(3):
        publish_hour(lake, hour, 4)
    frame = load(spark, lake)
    # A plan that is kept with the filters of the first action would miss rows from here on.
    assert frame.where("time >= timestamp'2026-01-01T02:00:00Z'").count() == 4
    assert sum(row[0] for row in frame.select("number").collect()) == sum(numbers_in(lake))
    assert frame.where("number < 0").union(frame).count() == 12


def test_options_take_relative_times(lake: Lake, spark: SparkSession) -> None:
    lake.views.register(readings())
    publish_hour(lake, 0, 4)
    assert load(spark, lake, begin="2026-01-01", end="now").count() == 4
    assert load(spark, lake, begin="1h", as_of="now").count() == 0


def test_options_prune_files_by_time(lake: Lake, spark: SparkSession) -> None:
    lake.views.register(readings())
    gone = publish_hour(lake, 0, 4)
    publish_hour(lake, 1, 4)
    lake.store.delete([gone.file_path or ""])  # whoever opens it fails
    assert load(spark, lake, begin=str(T0 + HOUR + 1)).count() == 3
    assert load(spark, lake, begin="2026-01-01T01:00Z", end=str(T0 + HOUR + 1)).count() == 1
    assert load(spark, lake, begin="2027-01-01T00:00Z").count() == 0
    frame = load(spark, lake)
    with pytest.raises(Exception, match="is gone: it was retired and swept"):
        frame.count()


def test_wrong_options_are_named(lake: Lake, spark: SparkSession) -> None:
    lake.views.register(readings())
    with pytest.raises(Exception, match="table is not an option of the lakebed format"):
        load(spark, lake, table="readings")
    with pytest.raises(Exception, match="needs the option view"):
        load(spark, lake, view="")
    with pytest.raises(Exception, match="nothing"):
        load(spark, lake, view="nothing")


def test_load_takes_the_lake_as_path(lake: Lake, spark: SparkSession) -> None:
    lake.views.register(readings())
    publish_hour(lake, 0, 4)
    lakebed.spark.register(spark)
    source = spark.read.format("lakebed").option("view", "readings")
    assert source.load(folder_of(lake)).count() == 4


def test_sql_reads_the_view_set_through_a_view_and_names_it_for_a_table(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    lake.views.register(readings())
    publish_hour(lake, 0, 4)
    lakebed.spark.register(spark)
    options = f"lake '{folder_of(lake)}', view 'readings'"
    spark.sql(f"CREATE TEMPORARY VIEW lakebed_view USING lakebed OPTIONS ({options})")
    path = f"path '{tmp_path / 'table'}'"
    spark.sql(f"CREATE TABLE lakebed_table USING lakebed OPTIONS ({options}, {path})")
    try:
        assert spark.sql("SELECT * FROM lakebed_view").count() == 4
        with pytest.raises(Exception, match="use CREATE TEMPORARY VIEW"):
            spark.sql("SELECT * FROM lakebed_table").count()
    finally:
        spark.sql("DROP TABLE lakebed_table")
        spark.sql("DROP VIEW lakebed_view")


def test_write_is_refused_with_the_functions_that_write(lake: Lake, spark: SparkSession) -> None:
    lake.views.register(readings())
    frame = load(spark, lake)
    spark.createDataFrame([], "n int")  # makes this session the JVM's active one, where others ran
    with pytest.raises(Exception, match=r"df\.write cannot write the lakebed format") as refused:
        frame.write.format("lakebed").option("lake", folder_of(lake)).mode("append").save()
    assert "lakebed.spark.write(" in str(refused.value)
    assert "lakebed.spark.insert(" in str(refused.value)


def test_streams_are_refused_with_what_to_do(
    lake: Lake, spark: SparkSession, tmp_path: Path
) -> None:
    lake.views.register(readings())
    lakebed.spark.register(spark)
    stream = spark.readStream.format("lakebed")
    frame = stream.options(lake=folder_of(lake), view="readings").load()
    spark.createDataFrame([], "n int")  # as above
    rate = spark.readStream.format("rate").load()
    for kind, writer, reason in (
        ("read", frame.writeStream.format("noop"), "spark.readStream cannot read the lakebed"),
        ("write", rate.writeStream.format("lakebed"), "df.writeStream cannot write the lakebed"),
    ):
        with logging_no_errors():
            query = writer.option("checkpointLocation", str(tmp_path / kind)).start()
            with pytest.raises(Exception, match=reason) as refused:
                query.processAllAvailable()
        assert "UnboundLocalError" not in str(refused.value)


def test_register_names_the_variable_when_workers_are_another_python(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = make_environment(tmp_path / "other")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(other))
    with pytest.raises(BadInput, match=f"spark starts {other} for its Python workers") as refused:
        lakebed.spark.register(spark)
    assert refused.value.hint == f"set PYSPARK_PYTHON={sys.executable} before spark is started"


def test_small_files_share_a_task() -> None:
    small = [(f"s{n}", 1000) for n in range(100)]
    assert [len(group) for group in group_files(small)] == [63, 37]
    assert group_files([("a", 1 << 30), ("b", 1 << 30)]) == [["a"], ["b"]]
    assert group_files([]) == []


def test_a_bucket_is_read_and_written_without_hadoop(
    new_lake: Any, s3_bucket: str, spark: SparkSession
) -> None:
    lake: Lake = new_lake(store=f"s3://{s3_bucket}/lake")
    lake.views.register(readings())
    publish_hour(lake, 0, 4)
    frame = load(spark, lake, pass_credentials="true")
    assert frame.count() == 4
    written = lakebed.spark.write(
        frame, lake, "readings", T0 + HOUR, T0 + 2 * HOUR, pass_credentials=True
    )
    assert written.num_rows == 4
    assert lake.checker.run().is_clean


def test_sparks_own_reader_says_in_one_line_that_it_has_no_s3(
    new_lake: Any, s3_bucket: str, spark: SparkSession
) -> None:
    lake: Lake = new_lake(store=f"s3://{s3_bucket}/lake")
    lake.views.register(readings())
    assert lakebed.spark.read(spark, "readings", lake=lake).count() == 0
    publish_hour(lake, 0, 4)
    with pytest.raises(BadInput, match="no S3 file system") as refused:
        lakebed.spark.read(spark, "readings", lake=lake)
    assert 'format("lakebed")' in (refused.value.hint or "")


def test_partial_results_of_sql_are_refused(lake: Lake, spark: SparkSession) -> None:
    lake.views.ensure(built_in())
    with pytest.raises(Exception, match="log_stats is made by SQL: its files hold partial results"):
        load(spark, lake, view="log_stats")
