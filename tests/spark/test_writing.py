"""Writing a DataFrame publishes once, whatever happens to the tasks, and leaves no name staged."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lakebed.spark
from lakebed.catalog.records import files
from lakebed.errors import BadInput, Overlap, StalePlan, Unavailable
from lakebed.lake import Lake
from lakebed.model.partition import FileState
from lakebed.pipeline.sessions.executors import StoreAddress
from lakebed.pipeline.writing import RESULT, read_results, write_task
from lakebed.views.builtin import built_in
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, readings, rows, stored_files

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def lake(lake: Lake) -> Lake:
    lake.views.register(readings())
    return lake


@pytest.fixture
def dialect() -> str:
    return "sqlite"


def frame_of(spark: SparkSession, count: int = 10) -> DataFrame:
    """Rows in several partitions, out of order."""
    return spark.range(count, 0, -1, 3).selectExpr(
        f"timestamp_micros({T0} + id) AS time", "id AS number"
    )


def staged(lake: Lake) -> list[str]:
    with lake.catalog.read() as connection:
        return [each.file_path for each in files.list_files(connection, [FileState.STAGED])]


def test_a_written_frame_is_one_sorted_partition(lake: Lake, spark: SparkSession) -> None:
    partition = lakebed.spark.write(frame_of(spark), lake, "readings", T0, T0 + HOUR)
    assert partition.num_rows == 10
    assert partition.statistics["number"] == [1, 10]
    with lake.partitions.snapshot("readings") as snapshot:
        assert snapshot.read_all("readings")["number"].to_pylist() == list(range(1, 11))
    assert lake.checker.run().is_clean
    assert staged(lake) == []


@pytest.mark.parametrize("name", ["blocks", "log_entries", "log_stats"])
def test_view_sets_that_builds_make_take_no_frames(
    lake: Lake, spark: SparkSession, name: str
) -> None:
    lake.views.ensure(built_in())
    frame = lakebed.spark.read(spark, name, lake=lake)
    with pytest.raises(BadInput, match=f"view set {name} takes no rows") as refused:
        lakebed.spark.write(frame, lake, name, T0, T0 + HOUR, completed_empty=True)
    assert "a view set of your own" in (refused.value.hint or "")
    assert lake.partitions.list_partitions(name) == []


def test_columns_may_come_in_any_order(lake: Lake, spark: SparkSession) -> None:
    frame = frame_of(spark).select("number", "time")
    assert lakebed.spark.write(frame, lake, "readings", T0, T0 + HOUR).num_rows == 10


def test_no_rows_are_an_error_unless_stated(lake: Lake, spark: SparkSession) -> None:
    nothing = frame_of(spark).where("number < 0")
    with pytest.raises(BadInput, match="no rows"):
        lakebed.spark.write(nothing, lake, "readings", T0, T0 + HOUR)
    partition = lakebed.spark.write(nothing, lake, "readings", T0, T0 + HOUR, completed_empty=True)
    assert partition.is_empty
    assert staged(lake) == []


def test_what_does_not_fit_is_refused_before_a_job_runs(lake: Lake, spark: SparkSession) -> None:
    def refused(frame: DataFrame) -> str:
        with pytest.raises(BadInput) as error:
            lakebed.spark.write(frame, lake, "readings", T0, T0 + HOUR)
        return str(error.value)

    frame = frame_of(spark)
    assert "missing number" in refused(frame.drop("number"))
    assert "unexpected more" in refused(frame.selectExpr("*", "1 AS more"))
    assert "is bigint, not int" in refused(frame.selectExpr("time", "int(number) AS number"))
    assert stored_files(lake) == set()


def test_what_only_the_task_can_see_is_refused_too(lake: Lake, spark: SparkSession) -> None:
    frame = frame_of(spark).selectExpr("nullif(time, time) AS time", "number")
    with pytest.raises(BadInput, match="must not be null"):
        lakebed.spark.write(frame, lake, "readings", T0, T0 + HOUR)
    assert staged(lake) == []


def test_conflicts_are_found_before_and_after_the_rows_are_written(
    lake: Lake, spark: SparkSession
) -> None:
    first = publish_hour(lake, 0, 3)
    with pytest.raises(Overlap):
        lakebed.spark.write(frame_of(spark), lake, "readings", T0, T0 + HOUR)
    new = lakebed.spark.write(frame_of(spark), lake, "readings", T0, T0 + HOUR, replaces=[first])
    with pytest.raises(StalePlan):
        lakebed.spark.write(frame_of(spark), lake, "readings", T0, T0 + HOUR, replaces=[first])
    with pytest.raises(BadInput, match="ends after"):
        lakebed.spark.write(frame_of(spark), lake, "readings", T0, T0 + HOUR, read_at=T0)
    assert sum(numbers_in(lake).values()) == new.num_rows
    assert staged(lake) == []
    lake.sweeper.run()
    assert lake.checker.run().is_clean


def test_a_frame_that_fails_publishes_nothing(lake: Lake, spark: SparkSession) -> None:
    frame = frame_of(spark).selectExpr("time", "number + int(raise_error('broken')) AS number")
    with pytest.raises(Unavailable, match=r"could not write the rows of readings: .*broken"):
        lakebed.spark.write(frame, lake, "readings", T0, T0 + HOUR)
    assert lake.partitions.list_partitions() == []
    assert staged(lake) == []


NAMES = [f"partitions/readings/global/2026-01/{n:036}.parquet" for n in range(3)]


def test_an_attempt_that_was_killed_leaves_its_name_to_the_dead(
    lake: Lake, spark: SparkSession
) -> None:
    write = write_task(StoreAddress.of(lake.store), readings().definition(), NAMES)

    def die_after_writing(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        done = list(write(batches))
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        yield from done

    frame = frame_of(spark).repartition(1).mapInArrow(die_after_writing, RESULT)
    file = read_results(frame.collect())[0].file
    assert file is not None
    assert file.path == NAMES[1]
    assert stored_files(lake) == set(NAMES[:2])


def test_an_attempt_of_a_repeated_stage_takes_the_next_free_name(lake: Lake) -> None:
    write = write_task(StoreAddress.of(lake.store), readings().definition(), NAMES)
    for name in NAMES:  # every attempt counts from zero again
        (batch,) = write(iter(rows(3).to_batches()))
        file = read_results(batch.to_pylist())[0].file
        assert file is not None
        assert file.path == name
    with pytest.raises(Exception, match="all 3 names"):
        list(write(iter(rows(3).to_batches())))


def test_a_task_without_rows_says_nothing(lake: Lake) -> None:
    write = write_task(StoreAddress.of(lake.store), readings().definition(), NAMES)
    empty = pa.RecordBatch.from_pylist([], schema=readings().schema)
    assert list(write(iter([empty]))) == []
