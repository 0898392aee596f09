"""One trace by its id among millions of spans: a snapshot's files, each asked for the row group
that may hold it. Partitions are sorted by trace id, so that is at most one of each.
"""

from __future__ import annotations

import random
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.harness import Places, Result, median_ms, percentile_ms, stopwatch
from lakebed.ingest.segments import Receipt
from lakebed.lake import Lake
from lakebed.pipeline.session import open_session
from lakebed.samples.generator import Generator

TITLE = "One trace by its id among many spans (stated, no target)"
_REQUEST_SPANS = 1000


def run(places: Places) -> list[Result]:
    count, times = (20_000, 5) if places.quick else (10_000_000, 40)
    lake = places.new_lake("sqlite")
    spark = open_session(cores=2)
    try:
        _land(lake, count)
        begun = time.perf_counter()
        lake.pipeline.build("spans", spark=spark)
        built = time.perf_counter() - begun
        return [_measure(lake, built, times)]
    finally:
        spark.stop()
        lake.close()


def _land(lake: Lake, spans: int) -> None:
    stream = Generator(11).stream("traces", requests=spans // _REQUEST_SPANS, size=_REQUEST_SPANS)
    waiting: deque[Future[Receipt]] = deque()
    with ThreadPoolExecutor(8) as senders:
        for body in stream:
            waiting.append(senders.submit(lake.telemetry.land, "traces", body))
            if len(waiting) > 64:
                waiting.popleft().result()
        for each in waiting:
            each.result()


def _measure(lake: Lake, built: float, times: int) -> Result:
    with lake.partitions.snapshot("spans") as snapshot:
        partitions = [each for each in snapshot.partitions if each.file_path is not None]
        rng = random.Random(5)
        wanted = [
            _some_trace(lake, rng.choice(partitions).file_path or "", rng) for _ in range(times)
        ]
        found: list[int] = []
        seconds = [
            stopwatch(lambda one=trace: found.append(_find(lake, one)))  # type: ignore[misc]
            for trace in wanted
        ]
    rows = sum(each.num_rows for each in partitions)
    return Result(
        "snapshot, then its files",
        {
            "spans": rows,
            "partitions": len(partitions),
            "built in s": built,
            "queries": times,
            "spans found": sum(found) / times,
            "median ms": median_ms(seconds),
            "p95 ms": percentile_ms(seconds, 95),
        },
        {},
    )


def _some_trace(lake: Lake, path: str, rng: random.Random) -> str:
    with lake.store.open(path) as source:
        column = pq.read_table(source, columns=["trace_id"])["trace_id"]
    return str(column[rng.randrange(len(column))])


def _find(lake: Lake, trace_id: str) -> int:
    """All spans of one trace: row groups are chosen by the footers' statistics."""
    with lake.partitions.snapshot("spans") as snapshot:
        tables = []
        for partition in snapshot.partitions:
            path = partition.file_path
            if path is None:
                continue
            with lake.store.open(path) as source:
                fragment = ds.ParquetFileFormat().make_fragment(source)
                groups = fragment.subset(pc.field("trace_id") == trace_id)
                tables.append(groups.to_table(filter=pc.field("trace_id") == trace_id))
    return pa.concat_tables(tables).num_rows
