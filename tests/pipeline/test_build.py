"""From landed blocks to published partitions on a real Spark: every record once, whatever happens
in between, and nothing to do when nothing changed.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakebed.catalog.records import files
from lakebed.errors import Cancelled, Conflict
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.model.partition import FileState, hash_sources
from lakebed.model.time import TimeRange
from lakebed.pipeline.runner import Runner, one_task_each
from lakebed.pipeline.sessions.build_sessions import own_session
from lakebed.pipeline.steps import Build
from lakebed.pipeline.task_names import TaskNames
from lakebed.pipeline.tasks import BuildOrder, carry_out
from lakebed.samples.generator import Generator
from lakebed.storage.local import LocalStore
from lakebed.views.builtin import COLUMNS, built_in
from tests.conftest import NewLake

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUILT_IN = tuple(COLUMNS)


def land(lake: Lake, seed: int, requests: int = 2, records: int = 30) -> dict[str, Any]:
    """Land some requests of every signal; what was sent."""
    generator = Generator(seed)
    sent = {
        signal: [generator.make(signal, records) for _ in range(requests)]
        for signal in ("logs", "metrics", "traces")
    }
    for signal, bodies in sent.items():
        for body in bodies:
            lake.telemetry.land(signal, body.SerializeToString())
    return sent


def read(lake: Lake, view_set: str) -> pa.Table:
    with lake.partitions.snapshot(view_set) as snapshot:
        return snapshot.read_all(view_set)


def messages(lake: Lake) -> Counter[tuple[Any, ...]]:
    """Every log entry, with what tells it from others."""
    table = read(lake, "log_entries").select(["block_id", "time_unix_nano", "msg", "span_id"])
    return Counter(tuple(row.values()) for row in table.to_pylist())


def records_of(request: Any) -> int:
    return sum(len(scope.log_records) for one in request.resource_logs for scope in one.scope_logs)


def test_everything_that_landed_is_built_once(lake: Lake, spark: SparkSession) -> None:
    sent = land(lake, 1)
    report = lake.pipeline.build(spark=spark)
    assert report.problems == []
    with lake.catalog.read() as connection:
        from lakebed.catalog.records import blocks

        landed = blocks.list_blocks(connection, TimeRange(0, 1 << 60))
    by_signal = Counter(each.encoding for each in landed for _ in range(each.nb_objects))
    assert read(lake, "log_entries").num_rows == by_signal["otlp/logs+protobuf"]
    assert read(lake, "log_entries").num_rows == sum(map(records_of, sent["logs"]))
    assert read(lake, "measures").num_rows == by_signal["otlp/metrics+protobuf"]
    assert read(lake, "spans").num_rows == by_signal["otlp/traces+protobuf"]
    assert Counter(read(lake, "blocks")["block_id"].to_pylist()) == Counter(
        each.block_id for each in landed
    )
    assert set(read(lake, "processes")["process_id"].to_pylist()) == {
        each.process_id for each in landed
    }
    assert set(read(lake, "streams")["stream_id"].to_pylist()) == {
        each.stream_id for each in landed
    }
    counted = sum(read(lake, "log_stats")["count"].to_pylist())
    assert counted == by_signal["otlp/logs+protobuf"]
    assert lake.checker.run(Level.PAGES).is_clean


@pytest.mark.parametrize("dialect", ["sqlite"])
def test_a_cancelled_build_keeps_what_it_published(lake: Lake, spark: SparkSession) -> None:
    """It ends with the wave that it is at, and the next one goes on."""
    sent = land(lake, 3, requests=20, records=10)["logs"]
    lake.pipeline.limits = replace(lake.pipeline.limits, build_records=1)
    with pytest.raises(Cancelled):
        lake.pipeline.build(
            "log_entries", spark=spark, progress=lambda at: at.done and lake.pipeline.cancel()
        )
    wanted = sum(map(records_of, sent))
    assert 0 < read(lake, "log_entries").num_rows < wanted
    assert lake.checker.run(Level.PAGES).is_clean
    report = lake.pipeline.build("log_entries", spark=spark)
    assert report.problems == []
    assert read(lake, "log_entries").num_rows == wanted


@pytest.mark.parametrize("dialect", ["sqlite"])
def test_a_job_that_runs_is_cancelled_from_another_thread(
    new_lake: NewLake, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = new_lake()
    land(lake, 4)
    asked = threading.Event()

    def ask_for_ever(runner: Runner, _orders: Any) -> Any:
        asked.set()
        frame = runner._session.range(0, 1 << 40, numPartitions=2)
        return frame.selectExpr("sum(hash(id))").collect()

    monkeypatch.setattr(Runner, "_ask", ask_for_ever)
    with ThreadPoolExecutor(1) as thread:
        building = thread.submit(lake.pipeline.build, "log_entries", spark=spark)
        assert asked.wait(300)
        while not building.done():
            lake.pipeline.cancel()  # again: the job may not have begun
            time.sleep(0.05)
        with pytest.raises(Cancelled):
            building.result()
    monkeypatch.undo()
    assert lake.pipeline.build("log_entries", spark=spark).problems == []


def test_a_partition_carries_the_hash_of_its_blocks(lake: Lake, spark: SparkSession) -> None:
    land(lake, 2)
    lake.pipeline.build("log_stats", spark=spark)
    ids = set(read(lake, "log_entries")["block_id"].to_pylist())
    for name in ("log_entries", "log_stats"):
        (partition,) = lake.partitions.list_partitions(name)
        assert partition.source_hash == hash_sources(ids)


def test_building_again_is_a_no_op_without_spark(lake: Lake, spark: SparkSession) -> None:
    land(lake, 3)
    lake.pipeline.build(spark=spark)
    before = lake.partitions.list_partitions()
    assert lake.pipeline.plan().steps == ()
    report = lake.pipeline.build(master="spark://nobody.invalid:1")  # would fail if it were used
    assert (report.rounds, report.outcomes) == (0, [])
    assert lake.partitions.list_partitions() == before


def test_what_lands_later_is_built_later_and_merged(lake: Lake, spark: SparkSession) -> None:
    seen: Counter[tuple[Any, ...]] = Counter()
    for seed in range(4):
        land(lake, 10 + seed, requests=1)
        lake.pipeline.build("log_stats", spark=spark)
        now = messages(lake)
        assert seen <= now
        assert sum(now.values()) == 30 * (seed + 1)
        seen = now
    assert len(lake.partitions.list_partitions("log_entries")) < 4
    counted = sum(read(lake, "log_stats")["count"].to_pylist())
    assert counted == 120
    assert lake.checker.run(Level.PAGES).is_clean


def test_only_what_is_asked_for_and_what_it_reads_is_built(lake: Lake, spark: SparkSession) -> None:
    land(lake, 4)
    lake.pipeline.build("log_stats", spark=spark)
    built = {each.view_set for each in lake.partitions.list_partitions()}
    assert built == {"log_entries", "log_stats"}


def test_a_range_can_be_built_by_itself(lake: Lake, spark: SparkSession) -> None:
    land(lake, 5, requests=1)
    with lake.catalog.write() as transaction:
        middle = transaction.tick
    land(lake, 6, requests=1)
    lake.pipeline.build("log_entries", end=middle, spark=spark)
    assert sum(messages(lake).values()) == 30
    lake.pipeline.build("log_entries", begin=middle, spark=spark)
    assert sum(messages(lake).values()) == 60


def test_a_retired_range_is_built_again(lake: Lake, spark: SparkSession) -> None:
    land(lake, 7)
    lake.pipeline.build("log_stats", spark=spark)
    before = messages(lake)
    (old,) = lake.partitions.list_partitions("log_entries")
    lake.retirement.retire_partitions(
        "log_entries", old.insert_range.begin, old.insert_range.end, confirmed=["log_entries"]
    )
    assert sum(messages(lake).values()) == 0
    (step,) = lake.pipeline.plan("log_stats").steps
    assert step.insert_range == old.insert_range
    lake.pipeline.build("log_stats", spark=spark)
    assert messages(lake) == before


def test_a_held_range_stays_away(lake: Lake, spark: SparkSession) -> None:
    land(lake, 8)
    lake.pipeline.build("log_entries", spark=spark)
    (old,) = lake.partitions.list_partitions("log_entries")
    lake.retirement.retire_partitions(
        "log_entries",
        old.insert_range.begin,
        old.insert_range.end,
        hold=True,
        confirmed=["log_entries"],
    )
    report = lake.pipeline.build("log_entries", spark=spark)
    assert report.outcomes == []
    assert [each.reason for each in report.skipped] == ["held until it is restored"]
    lake.retirement.restore(old.partition_id)
    assert sum(messages(lake).values()) == 60


def test_a_changed_schema_is_built_beside_the_old_one(lake: Lake, spark: SparkSession) -> None:
    land(lake, 9)
    lake.pipeline.build("log_stats", spark=spark)
    before = messages(lake)
    old = next(each for each in built_in() if each.name == "log_entries")
    # A later program may add a meaning without changing a column: the version says so.
    lake.views.register(replace(old, version=2))
    assert sum(messages(lake).values()) == 0
    report = lake.pipeline.build("log_stats", spark=spark)
    assert {each.step.view_set.name for each in report.published} == {"log_entries", "log_stats"}
    assert messages(lake) == before
    incompatible = lake.retirement.list_incompatible_partitions()
    assert {each.partition.view_set for each in incompatible} == {"log_entries", "log_stats"}
    assert all(each.can_be_rebuilt for each in incompatible)
    lake.retirement.retire_incompatible_partitions()
    assert lake.retirement.list_incompatible_partitions() == []
    assert messages(lake) == before


def change_a_byte(lake: Lake, block: Any) -> bytes:
    """Damage one block's bytes in its segment; what they were."""
    assert isinstance(lake.store, LocalStore)
    path = Path(lake.store.locate(block.segment_path))
    before = path.read_bytes()
    changed = bytearray(before)
    changed[block.segment_offset + block.payload_size // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(changed)
    return before


def test_a_block_that_cannot_be_decoded_stops_no_other(lake: Lake, spark: SparkSession) -> None:
    from lakebed.catalog.records import blocks
    from lakebed.model.block import encodings_of
    from lakebed.model.signal import Signal

    land(lake, 11, requests=3)
    with lake.catalog.read() as connection:
        landed = blocks.list_blocks(connection, TimeRange(0, 1 << 60), encodings_of(Signal.LOGS))
    bad = landed[len(landed) // 2]
    before = change_a_byte(lake, bad)
    report = lake.pipeline.build("log_entries", spark=spark)
    assert len(report.problems) == 1
    assert "have changed" in (report.problems[0].problem or "")
    assert sum(messages(lake).values()) == 90 - bad.nb_objects
    (failure,) = lake.pipeline.list_failures()
    assert (failure.view_set, failure.block_id) == ("log_entries", bad.block_id)
    assert [skip.reason for skip in report.skipped] == [
        f"block {bad.block_id} could not be decoded: {failure.reason}"
    ]
    assert lake.pipeline.plan("log_entries").steps == ()
    assert isinstance(lake.store, LocalStore)
    Path(lake.store.locate(bad.segment_path)).write_bytes(before)
    assert lake.pipeline.retry_failures("log_entries") == 1
    report = lake.pipeline.build("log_entries", spark=spark)
    assert report.problems == []
    assert sum(messages(lake).values()) == 90


def test_two_builders_do_not_work_on_one_view_set(lake: Lake, spark: SparkSession) -> None:
    land(lake, 12)
    with (
        lake.leases.building("log_entries"),
        pytest.raises(Conflict, match="builds log_entries since"),
    ):
        lake.leases.beat()
        _build_beside_a_living_builder(lake, spark)


def _build_beside_a_living_builder(lake: Lake, spark: SparkSession) -> None:
    import threading

    stop = threading.Event()

    def live() -> None:
        while not stop.wait(0.2):
            lake.leases.beat()

    thread = threading.Thread(target=live)
    thread.start()
    try:
        lake.pipeline.build("log_entries", spark=spark)
    finally:
        stop.set()
        thread.join()


def test_one_step_is_one_task(lake: Lake, spark: SparkSession) -> None:
    lake.pipeline.limits = replace(lake.pipeline.limits, build_records=20)
    land(lake, 13, requests=6, records=60)
    assert len(lake.pipeline.plan("log_entries").steps) > 8
    context = spark.sparkContext
    context.setJobGroup("one task each", "")
    try:
        report = lake.pipeline.build("log_entries", spark=spark)
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
    assert report.problems == []
    tracker = context.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("one task each")]
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    assert sum(stage.numTasks for stage in stages if stage) == len(report.published)
    assert sum(messages(lake).values()) == 360


def test_large_orders_are_a_task_each_too(spark: SparkSession) -> None:
    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        for batch in batches:
            place = TaskContext.get().partitionId()  # type: ignore[union-attr]
            yield pa.RecordBatch.from_pydict({"task": [place] * batch.num_rows})

    orders = pa.table({"work": [b"an order"] * 5})
    with own_session(spark) as own:
        own.conf.set("spark.sql.execution.arrow.localRelationThreshold", "1")  # all are large
        with one_task_each(own, 5):
            rows = own.createDataFrame(orders).mapInArrow(tell, "task long").collect()
    assert sorted(row[0] for row in rows) == [0, 1, 2, 3, 4]


def test_names_of_lost_attempts_stay_claimed_and_are_not_used_again(lake: Lake) -> None:
    lake.views.ensure(built_in())
    names = TaskNames.reserve(lake._names, ["log_entries"] * 2)
    first, second = names.take("log_entries"), names.take("log_entries")
    assert first[1:] == second[1:]
    assert first[0] != second[0]
    names.close([first[0]], repeated=True)
    later = TaskNames.reserve(lake._names, ["log_entries"]).take("log_entries")
    assert len(later) == len(first)
    assert set(later) & {*first, *second} == set()
    with lake.catalog.read() as connection:
        claimed = {file.file_path for file in files.list_files(connection, [FileState.DELETING])}
    assert claimed == {*first[1:], second[0]}


def test_names_that_no_task_used_are_returned(lake: Lake) -> None:
    lake.views.ensure(built_in())
    names = TaskNames.reserve(lake._names, ["log_entries"] * 2)
    used = names.take("log_entries")
    names.close([used[0]], repeated=False)
    lake._names.close()
    with lake.catalog.read() as connection:
        staged = files.list_files(connection, [FileState.STAGED])
    assert [file.file_path for file in staged] == [used[0]], "it was published by the test only"


def test_what_a_task_does_twice_is_published_once(lake: Lake, spark: SparkSession) -> None:
    """As with speculative execution, or an attempt that was taken for lost."""
    land(lake, 17)
    plan = lake.pipeline.plan("log_entries")
    (step,) = plan.steps
    assert isinstance(step, Build)
    names = TaskNames.reserve(lake._names, ["log_entries"])
    order = BuildOrder(step.view_set.definition(), names.take("log_entries"), step.blocks)
    results = [carry_out(lake.store, order, attempt) for attempt in (0, 1, 0)]
    assert len({result.file.path for result in results if result.file}) == 3
    names.close([], repeated=True)
    assert lake.pipeline.build("log_entries", spark=spark).problems == []
    assert sum(messages(lake).values()) == 60
    lake.sweeper.run()
    assert lake.checker.run(Level.PAGES).is_clean


def test_no_name_is_left_behind(lake: Lake, spark: SparkSession) -> None:
    land(lake, 14)
    lake.pipeline.build(spark=spark)
    lake._names.close()
    with lake.catalog.read() as connection:
        assert files.list_files(connection, [FileState.STAGED, FileState.DELETING]) == []


@pytest.mark.parametrize(
    "dialect", ["postgresql", pytest.param("sqlite", marks=pytest.mark.campaign)], indirect=True
)
def test_the_whole_pipeline_works_on_a_bucket(
    new_lake: Any, s3_bucket: str, spark: SparkSession
) -> None:
    """Spark itself has no S3 file system here: segments and partitions are read through ours."""
    lake: Lake = new_lake(store=f"s3://{s3_bucket}/lakes/telemetry")
    for seed in (15, 16):
        land(lake, seed)
        report = lake.pipeline.build("log_stats", "spans", spark=spark, pass_credentials=True)
        assert report.problems == []
    assert sum(messages(lake).values()) == 120
    assert sum(read(lake, "log_stats")["count"].to_pylist()) == 120
    assert read(lake, "spans").num_rows == 120
    for name, count in (("log_entries", 120), ("spans", 120)):
        result = lake.query(f"SELECT span_id FROM {name}", engine="spark", spark=spark)
        assert result.to_arrow().num_rows == count
    assert lake.checker.run(Level.PAGES).is_clean


@pytest.mark.parametrize("dialect", ["sqlite"])
def test_a_build_ends_although_more_lands_all_the_while(lake: Lake, spark: SparkSession) -> None:
    """It builds what was there when it began; the next one what came since."""
    generator = Generator(5)

    def land_more(_at: Any) -> None:
        lake.telemetry.land("logs", generator.serialized("logs", 3))

    land_more(None)
    report = lake.pipeline.build(spark=spark, progress=land_more)
    assert report.problems == []
    assert report.rounds <= 3
    assert read(lake, "log_entries").num_rows == 3
    assert lake.pipeline.build(spark=spark).problems == []
    landed = lake.query("SELECT count(*) AS n FROM log_entries").to_arrow()["n"][0].as_py()
    assert read(lake, "log_entries").num_rows == landed > 3
