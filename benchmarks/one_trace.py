"""One trace by its id among millions of spans: a snapshot's files, each asked for the row group
that may hold it. Partitions are sorted by trace id, so that is at most one of each.
"""

from __future__ import annotations

import random
import time
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.harness import Places, Result, median_ms, percentile_ms, stopwatch
from lakebed.decode import spans
from lakebed.ingest.segments import Receipt
from lakebed.lake import Lake
from lakebed.pipeline.session import open_session
from lakebed.samples.generator import Generator
from lakebed.storage import footer

TITLE = "One trace by its id among many spans (stated, no target)"
_REQUEST_SPANS = 1000
_TRACE_COLUMN = spans.SCHEMA.names.index("trace_id")
"""Columns before it are not nested, so that its place in the schema is its place in a file."""


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


def _land(lake: Lake, count: int) -> None:
    stream = Generator(11).stream("traces", requests=count // _REQUEST_SPANS, size=_REQUEST_SPANS)
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
    """All spans of one trace. Row groups are chosen by the statistics in the stored footers, then
    by the one column; only those that have the trace are read."""
    found = 0
    with lake.partitions.snapshot("spans") as snapshot:
        for partition in snapshot.partitions:
            stored = snapshot.stored_footer(partition)
            if stored is None:
                continue
            metadata = footer.parse(stored.metadata, path=stored.file_path, trusted=True)
            groups = [g for g in range(metadata.num_row_groups) if _may_have(metadata, g, trace_id)]
            if not groups:
                continue
            with lake.store.open(stored.file_path) as source:
                file = pq.ParquetFile(source, metadata=metadata)
                for group in groups:
                    ids = file.read_row_group(group, ["trace_id"])["trace_id"]
                    if pc.any(pc.equal(ids, trace_id)).as_py():
                        rows = file.read_row_group(group)
                        found += rows.filter(pc.equal(rows["trace_id"], trace_id)).num_rows
    return found


def _may_have(metadata: pq.FileMetaData, group: int, trace_id: str) -> bool:
    bounds = metadata.row_group(group).column(_TRACE_COLUMN).statistics
    return bounds is None or not bounds.has_min_max or bounds.min <= trace_id <= bounds.max
