"""FlightSQL beside what it stands on: a small statement over a connection and in the process, a
result of a million rows and a bare Flight server that sends the same batches from memory, and
many clients at once.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

import pyarrow as pa
import pyarrow.flight as flight

import lakebed
from benchmarks.bare import bare_server, lakebed_server
from benchmarks.harness import (
    EPOCH,
    MINUTE,
    READINGS,
    Places,
    Result,
    median_ms,
    percentile_ms,
    readings,
    stopwatch,
)
from lakebed.errors import LakebedError
from lakebed.lake import Lake
from lakebed.storage.local import LocalStore

TITLE = "FlightSQL beside the process itself, and a bare Flight server"
_MOST_EXTRA_MS, _LEAST_SHARE, _CLIENTS = 5.0, 0.6, 32
_SMALL = (
    "SELECT status, count(*) AS n FROM readings WHERE time < to_timestamp_micros({0}) GROUP BY 1"
)
_LARGE = "SELECT * FROM readings"


def run(places: Places) -> list[Result]:
    minutes, rows, times, seconds = (4, 25_000, 5, 10) if places.quick else (20, 50_000, 15, 60)
    with ExitStack() as stack:
        lake = stack.enter_context(places.new_lake("sqlite"))
        lake.views.register(READINGS)
        for minute in range(minutes):
            begin = EPOCH + minute * MINUTE
            lake.partitions.publish("readings", begin, begin + MINUTE, readings(minute, rows))
        _, port = stack.enter_context(lakebed_server(lake.catalog.url))
        address = f"grpc://127.0.0.1:{port}"
        client = stack.enter_context(lakebed.connect(address))
        return [
            *_measure_small(lake, client, times * 20),
            *_measure_large(places, lake, client, times),
            _measure_many(address, seconds),
        ]


def _measure_small(lake: Lake, client: lakebed.Client, times: int) -> list[Result]:
    sql = _SMALL.format(EPOCH + 1_000_000)
    ways = {"a small statement, in the process": lake, "over FlightSQL": client}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(times + 10):
        for name, each in ways.items():
            taken = stopwatch(lambda each=each: each.query(sql).to_arrow())  # type: ignore[misc]
            if number >= 10:  # the first ones learn what there is
                seconds[name].append(taken)
    inside, outside = (median_ms(each) for each in seconds.values())
    figures = {
        name: {"median ms": median_ms(each), "p99 ms": percentile_ms(each, 99)}
        for name, each in seconds.items()
    }
    extra = outside - inside
    figures["over FlightSQL"]["ms more"] = extra
    targets = {"over FlightSQL": {f"≤ {_MOST_EXTRA_MS:.0f} ms more": extra <= _MOST_EXTRA_MS}}
    return [Result(name, {**figures[name]}, targets.get(name, {})) for name in ways]


def _measure_large(places: Places, lake: Lake, client: lakebed.Client, times: int) -> list[Result]:
    batches = list(client.query(_LARGE))
    rows, size = sum(b.num_rows for b in batches), sum(b.nbytes for b in batches)
    file = str(places.new_folder() / "batches.arrow")
    with pa.ipc.new_file(file, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    bare_name, own_name = "bare Flight, from memory", f"{rows:,} rows over FlightSQL"
    scan_name = "bare Flight, the same engine and files"
    local = lake.store
    assert isinstance(local, LocalStore)
    files = [str(local.locate(str(each.file_path))) for each in lake.partitions.list_partitions()]
    with (
        bare_server("flight", file) as port,
        bare_server("scan", *files) as scan_port,
        flight.connect(f"grpc://127.0.0.1:{port}") as bare,
        flight.connect(f"grpc://127.0.0.1:{scan_port}") as scan,
    ):
        ways: dict[str, Callable[[], int]] = {
            bare_name: lambda: bare.do_get(flight.Ticket(b"")).read_all().num_rows,
            scan_name: lambda: scan.do_get(flight.Ticket(b"")).read_all().num_rows,
            own_name: lambda: sum(batch.num_rows for batch in client.query(_LARGE)),
            "the same rows, in the process": lambda: sum(b.num_rows for b in lake.query(_LARGE)),
        }
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(times):
            for name, read in ways.items():
                begun = time.perf_counter()
                found = read()
                seconds[name].append(time.perf_counter() - begun)
                if found != rows:
                    raise RuntimeError(f"{name} gave {found} rows of {rows}")
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    shares = {
        f"≥ {_LEAST_SHARE}x {name}": medians[each] / medians[own_name] >= _LEAST_SHARE
        for name, each in (("bare", bare_name), ("bare engine", scan_name))
    }
    return [
        Result(
            name,
            {
                "median ms": taken * 1000,
                "rows/s": rows / taken,
                "MB/s": size / taken / 1e6,
                "x bare": medians[bare_name] / taken,
                "x bare engine": medians[scan_name] / taken,
            },
            shares if name == own_name else {},
        )
        for name, taken in medians.items()
    ]


def _measure_many(address: str, seconds: int) -> Result:
    """Clients that ask all the while; an error is counted, and the client goes on."""
    sql = _SMALL.format(EPOCH + 1_000_000)
    stop = threading.Event()
    taken: list[float] = []
    errors: list[str] = []

    def ask() -> None:
        with lakebed.connect(address) as client:
            while not stop.is_set():
                begun = time.perf_counter()
                try:
                    client.query(sql).to_arrow()
                except LakebedError as error:
                    errors.append(str(error))
                taken.append(time.perf_counter() - begun)

    clients = [threading.Thread(target=ask) for _ in range(_CLIENTS)]
    for each in clients:
        each.start()
    stop.wait(seconds)
    stop.set()
    for each in clients:
        each.join()
    return Result(
        f"{_CLIENTS} clients for {seconds} s",
        {
            "statements/s": len(taken) / seconds,
            "median ms": median_ms(taken),
            "p99 ms": percentile_ms(taken, 99),
            "errors": len(errors),
        },
        {"no error": not errors},
    )
