"""``spark.read.format("lakebed")``: planned on the driver, read through the store, pruned by time;
also on S3, where Spark's own reader cannot go.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lakebed.spark
from lakebed.errors import BadInput
from lakebed.lake import Lake
from lakebed.spark.source import group_files
from lakebed.views.builtin import built_in
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, readings

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
