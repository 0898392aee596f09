"""How long it takes to commit one partition of 1,000 rows, a thousand times in a row: whether that
stays the same as the lake grows, and how it compares with the peers and with the least that a
durable commit must do: sync one file and one row.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
from collections import defaultdict
from collections.abc import Sequence
from functools import partial

import pyarrow.parquet as pq

from benchmarks.harness import (
    Places,
    Result,
    median_ms,
    percentile_ms,
    readings,
    stopwatch,
)
from benchmarks.systems import (
    DeltaSystem,
    IcebergSystem,
    LakebedSystem,
    System,
    Writer,
    sync,
)
from lakebed.catalog.connections.dialects import SqliteDialect

TITLE = "Committing one partition of 1,000 rows, 1,000 times in a row"
_LAKEBED, _LAKEBED_SHARED = "Lakebed on SQLite", "Lakebed on PostgreSQL"
_PEERS = ("deltalake", "deltalake, then synced", "pyiceberg")
_FLOOR = "floor: a synced file and a synced row"
_FOOTER_BYTES = 10_000
_MOST_GROWTH = 1.5


class Floor:
    """The least that a durable commit of a file and a catalog row must do."""

    name = _FLOOR

    def __init__(self, places: Places) -> None:
        self._folder = places.new_folder()
        sample = self._folder / "sample.parquet"
        pq.write_table(readings(0), sample, compression="zstd")
        self._file = sample.read_bytes()
        self._footer = os.urandom(_FOOTER_BYTES)
        dialect = SqliteDialect(self._folder / "catalog.sqlite3")
        self._connection = dialect.module.connect(str(dialect.path), isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE footers (minute INTEGER PRIMARY KEY, footer BLOB)")

    def commit(self, minute: int, rows: object) -> None:  # noqa: ARG002
        path = self._folder / f"{minute}.parquet"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(descriptor, self._file)
        os.fsync(descriptor)
        os.close(descriptor)
        sync(self._folder)
        self._connection.execute("INSERT INTO footers VALUES (?, ?)", (minute, self._footer))

    def close(self) -> None:
        self._connection.close()


def run(places: Places) -> list[Result]:
    commits, batch = (50, 10) if places.quick else (1000, 25)
    seconds = _measure(places, commits, batch)
    return _results(seconds, edge=min(100, commits // 5))


def _measure(places: Places, commits: int, batch: int) -> dict[str, list[float]]:
    """The seconds of every commit. Systems take turns, in another order each time, so that noise
    and what a neighbour left behind hit all alike."""
    systems: list[System] = [
        LakebedSystem.create(places, "sqlite"),
        LakebedSystem.create(places, "postgresql"),
        DeltaSystem.create(places),
        DeltaSystem.create(places, synced=True),
        IcebergSystem.create(places, tidy=True),
    ]
    seconds: dict[str, list[float]] = defaultdict(list)
    with contextlib.ExitStack() as stack:
        floor = Floor(places)
        stack.callback(floor.close)
        writers: dict[str, Floor | Writer] = {floor.name: floor}
        for system in systems:
            writers[system.name] = system.open()
            stack.callback(writers[system.name].close)
        names = list(writers)
        rng = random.Random(commits)
        for begin in range(0, commits, batch):
            rows = {minute: readings(minute) for minute in range(begin, begin + batch)}
            for name in rng.sample(names, len(names)):
                os.sync()  # or a commit that syncs would pay for the bytes of those that do not
                for minute, each in rows.items():
                    work = writers[name].commit
                    seconds[name].append(stopwatch(partial(work, minute, each)))
    return seconds


def _results(seconds: dict[str, list[float]], edge: int) -> list[Result]:
    medians = {name: median_ms(each) for name, each in seconds.items()}
    order = [_LAKEBED, _LAKEBED_SHARED, *sorted(seconds.keys() - {_LAKEBED, _LAKEBED_SHARED})]
    return [
        Result(
            name,
            {
                "commits": len(seconds[name]),
                "median ms": medians[name],
                "mean ms": statistics.mean(seconds[name]) * 1000,
                "p10 ms": percentile_ms(seconds[name], 10),
                "p95 ms": percentile_ms(seconds[name], 95),
                f"first {edge} ms": median_ms(seconds[name][:edge]),
                f"last {edge} ms": median_ms(seconds[name][-edge:]),
                "last/first": _growth(seconds[name], edge),
                "x floor": medians[name] / medians[_FLOOR],
            },
            _judge(name, medians, _growth(seconds[name], edge)),
        )
        for name in order
    ]


def _growth(seconds: Sequence[float], edge: int) -> float:
    return median_ms(seconds[-edge:]) / median_ms(seconds[:edge])


def _judge(name: str, medians: dict[str, float], growth: float) -> dict[str, bool]:
    if name not in (_LAKEBED, _LAKEBED_SHARED):
        return {}
    return {
        f"last/first at most {_MOST_GROWTH}": growth <= _MOST_GROWTH,
        **{f"median below {peer}": medians[name] < medians[peer] for peer in _PEERS},
    }
