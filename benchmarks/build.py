"""Landed OTLP logs to published partitions on two cores, all columns, beside an ordinary PySpark
job over the same blocks: OpenTelemetry's classes, Python loops, `df.write.parquet`. The job sorts
nothing and syncs nothing; Lakebed does both, and validates and publishes.
"""

from __future__ import annotations

import os
import resource
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Figure, Places, Result
from lakebed.catalog.records import blocks
from lakebed.ingest.segments import Receipt
from lakebed.lake import Lake
from lakebed.model.block import Block, encodings_of
from lakebed.model.signal import Signal
from lakebed.model.time import TimeRange
from lakebed.pipeline.sessions.session import open_session
from lakebed.samples.generator import Generator

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

TITLE = "Building OTLP logs on local[2], landed blocks to published partitions, all columns"
_LEAST_RECORDS, _LEAST_RATIO = 200_000, 3
_CORES = 2
_REQUEST_RECORDS = 1000


def run(places: Places) -> list[Result]:
    sizes = [20_000] if places.quick else [1_000_000, *_more_sizes()]
    spark = open_session(cores=_CORES)
    try:
        _warm_up(places, spark)
        results = []
        for size in sizes:
            lake = places.new_lake("sqlite")
            try:
                sent = land_logs(lake, size)
                loops = _measure_loops(places, lake, spark) if size == sizes[0] else None
                results += _measure(lake, spark, size, sent, loops)
            finally:
                lake.close()
        return results
    finally:
        spark.stop()


def _more_sizes() -> list[int]:
    return [3_000_000, 10_000_000] + ([30_000_000] if os.environ.get("LAKEBED_CAMPAIGN") else [])


def land_logs(lake: Lake, records: int) -> int:
    """Land generated logs; how many bytes."""
    stream = Generator(7).stream(
        "logs", requests=records // _REQUEST_RECORDS, size=_REQUEST_RECORDS
    )
    sent = 0
    waiting: deque[Future[Receipt]] = deque()
    with ThreadPoolExecutor(8) as senders:
        for body in stream:
            sent += len(body)
            waiting.append(senders.submit(lake.telemetry.land, "logs", body))
            if len(waiting) > 64:
                waiting.popleft().result()
        for each in waiting:
            each.result()
    return sent


def _warm_up(places: Places, spark: SparkSession) -> None:
    """Start the workers and import what both ways need."""
    lake = places.new_lake("sqlite")
    try:
        land_logs(lake, 4_000)
        lake.pipeline.build("log_entries", spark=spark)
        _run_loops(lake, spark, places.new_folder() / "warm")
    finally:
        lake.close()


def _measure(
    lake: Lake, spark: SparkSession, size: int, sent: int, loops: float | None
) -> list[Result]:
    with _PeakMemory() as memory:
        begun = time.perf_counter()
        report = lake.pipeline.build("log_entries", spark=spark)
        seconds = time.perf_counter() - begun
    if report.problems or _count(lake) != size:
        raise AssertionError(f"the build lost or invented records: {report.problems[:3]}")
    begun = time.perf_counter()
    again = lake.pipeline.build("log_entries", spark=spark)
    replan_ms = (time.perf_counter() - begun) * 1000
    if again.outcomes:
        raise AssertionError("building again was not a no-op")
    figures: dict[str, Figure] = {
        "records": size,
        "seconds": seconds,
        "records/s": int(size / seconds),
        "MB/s in": sent / seconds / 1e6,
        "partitions": len(report.published),
        "slow way": report.fallbacks,
        "peak MiB a worker": memory.peak >> 20,
        "again ms": replan_ms,
    }
    targets = {f"{_LEAST_RECORDS:,} records/s": size / seconds >= _LEAST_RECORDS}
    rows = []
    if loops is not None:
        figures["× job"] = loops / seconds
        targets[f"{_LEAST_RATIO}× the job"] = loops / seconds >= _LEAST_RATIO
        job: dict[str, Figure] = {
            "records": size,
            "seconds": loops,
            "records/s": int(size / loops),
            "MB/s in": sent / loops / 1e6,
            "× job": 1.0,
        }
        rows.append(Result("a PySpark job with loops", job, {}))
    return [Result("lakebed build", figures, targets), *rows]


def _count(lake: Lake) -> int:
    return sum(each.num_rows for each in lake.partitions.list_partitions("log_entries"))


class _PeakMemory:
    """The largest memory of any Python worker below this process while it is measured."""

    def __enter__(self) -> _PeakMemory:
        self.peak = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        page = resource.getpagesize()
        while not self._stop.wait(0.1):
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    command = (folder / "cmdline").read_bytes()
                    pages = int((folder / "statm").read_text().split()[1])
                except (OSError, IndexError):
                    continue
                if b"pyspark" in command and b"python" in command and b"java" not in command[:64]:
                    self.peak = max(self.peak, pages * page)


def _measure_loops(places: Places, lake: Lake, spark: SparkSession) -> float:
    begun = time.perf_counter()
    _run_loops(lake, spark, places.new_folder() / "loops")
    return time.perf_counter() - begun


def _run_loops(lake: Lake, spark: SparkSession, folder: Path) -> None:
    """The ordinary job: each task reads its blocks, decodes record by record, yields Arrow."""
    from lakebed.decode.logs import SCHEMA
    from lakebed.model.view_set import ViewSet
    from lakebed.pipeline.frames.types import spark_schema
    from lakebed.pipeline.sessions.executors import StoreAddress

    with lake.catalog.read() as connection:
        landed = blocks.list_blocks(connection, TimeRange(0, 1 << 60), encodings_of(Signal.LOGS))
    address = StoreAddress.of(lake.store)
    tasks = _CORES * 4
    groups = [(index, landed[index::tasks]) for index in range(tasks) if landed[index::tasks]]
    schema = spark_schema(ViewSet("log_entries", 1, SCHEMA, "time"))

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import msgspec

        from benchmarks.otlp_loops import decode_logs
        from lakebed.reading.block_reader import read_blocks

        store = address.open()
        for batch in batches:
            for work in batch.column("work").to_pylist():
                mine = msgspec.msgpack.decode(work, type=list[Block])
                for begin in range(0, len(mine), 50):
                    payloads, _ = read_blocks(store, mine[begin : begin + 50])
                    yield from decode_logs(payloads).to_batches()

    work = spark.createDataFrame(_encode(groups))
    frame = work.repartition(len(groups), "step").mapInArrow(decode, schema)
    frame.write.option("compression", "zstd").parquet(folder.as_uri())


def _encode(groups: list[tuple[int, list[Block]]]) -> Any:
    import msgspec
    import pyarrow as pa

    return pa.table(
        {
            "step": pa.array([index for index, _ in groups], pa.int64()),
            "work": pa.array([msgspec.msgpack.encode(mine) for _, mine in groups], pa.binary()),
        }
    )
