"""One trace by its id among millions of spans, as anybody would ask for it. Partitions are sorted
by trace id, so that each has at most one row group, and few pages of it, that may hold the trace.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import duckdb
import pyarrow.parquet as pq

from benchmarks.harness import Places, Result, median_ms, percentile_ms
from lakebed.ingest.segments import Receipt
from lakebed.lake import Lake
from lakebed.pipeline.sessions.session import open_session
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
        return _measure(lake, built, times)
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


def _measure(lake: Lake, built: float, times: int) -> list[Result]:
    partitions = [each for each in lake.partitions.list_partitions() if each.file_path is not None]
    spans = [each for each in partitions if each.view_set == "spans"]
    rng = random.Random(5)
    wanted = [_some_trace(lake, rng.choice(spans).file_path or "", rng) for _ in range(times)]
    listed = [str(lake.store.locate(str(each.file_path))) for each in spans]  # type: ignore[attr-defined]
    peer = duckdb.connect()
    peer.execute("SET TimeZone = 'UTC'")
    ways: dict[str, Callable[[str], int]] = {
        "lake.query": lambda trace: (
            lake.query(f"SELECT * FROM spans WHERE trace_id = '{trace}'").to_arrow().num_rows
        ),
        "DuckDB on the list of files": lambda trace: (
            peer.sql(f"SELECT * FROM read_parquet({listed}) WHERE trace_id = '{trace}'")
            .to_arrow_table()
            .num_rows
        ),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    found: dict[str, int] = dict.fromkeys(ways, 0)
    for trace in wanted:
        for name, ask in ways.items():
            begun = time.perf_counter()
            found[name] += ask(trace)
            seconds[name].append(time.perf_counter() - begun)
    if len(set(found.values())) != 1:
        raise RuntimeError(f"different spans were found: {found}")
    return [
        Result(
            name,
            {
                "spans": sum(each.num_rows for each in spans),
                "partitions": len(spans),
                "built in s": built,
                "queries": times,
                "spans found": found[name] / times,
                "median ms": median_ms(taken),
                "p95 ms": percentile_ms(taken, 95),
            },
        )
        for name, taken in seconds.items()
    ]


def _some_trace(lake: Lake, path: str, rng: random.Random) -> str:
    with lake.store.open(path) as source:
        column = pq.read_table(source, columns=["trace_id"])["trace_id"]
    return str(column[rng.randrange(len(column))])
