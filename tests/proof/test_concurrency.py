"""Eight processes commit to overlapping ranges of one view set while readers loop: no row is lost
or doubled, and no reader ever meets an error.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from typing import Any

import pytest

from lakebed.errors import Conflict
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.opening import open_lake
from tests.conftest import CAMPAIGN, NewLake
from tests.parts.data import HOUR, T0, numbers_in, readings, rows
from tests.parts.processes import PROCESSES

WRITERS = 8
ROUNDS = 60 if CAMPAIGN else 6
HOURS = 6


def _write(url: str, writer: int, seed: int, start: Any, results: Any) -> None:
    """Append new numbers by replacing whatever covers a random range with itself and more."""
    chance = random.Random(seed * 100 + writer)
    committed: list[int] = []
    conflicts = 0
    with open_lake(url) as lake:
        start.wait()
        for round_ in range(ROUNDS):
            mine = [writer * 1_000_000 + round_ * 10 + i for i in range(3)]
            while True:
                first = chance.randrange(HOURS)
                last = chance.randrange(first, HOURS)
                try:
                    _add(lake, first, last, mine)
                except Conflict:
                    conflicts += 1
                    continue
                committed += mine
                break
            if chance.random() < 0.3:
                lake.sweeper.run()
    results.put((committed, conflicts))


def _add(lake: Lake, first: int, last: int, mine: list[int]) -> None:
    begin, end = T0 + first * HOUR, T0 + (last + 1) * HOUR
    with lake.partitions.snapshot("readings", inserted=(begin, end)) as snapshot:
        old = list(snapshot.partitions)
        begin = min([begin, *(each.insert_range.begin for each in old)])
        end = max([end, *(each.insert_range.end for each in old)])
        numbers = snapshot.read_all("readings")["number"].to_pylist() + mine
        lake.partitions.publish(
            "readings", begin, end, rows(0, numbers=numbers), replaces=old, read_at=snapshot.tick
        )


def _read(url: str, start: Any, stop: Any, results: Any) -> None:
    """Snapshots never shrink and never show a number twice."""
    problems: list[str] = []
    seen: set[int] = set()
    reads = 0
    with open_lake(url) as lake:
        start.wait()
        while not stop.is_set():
            try:
                numbers = numbers_in(lake)
            except Exception as error:  # noqa: BLE001  (any error of a reader is a failure)
                problems.append(f"{type(error).__name__}: {error}")
                continue
            reads += 1
            if any(count > 1 for count in numbers.values()):
                problems.append("a number was doubled")
            if not seen <= set(numbers):
                problems.append("a number was lost")
            seen = set(numbers)
    results.put((reads, problems[:5]))


def test_no_row_is_lost_or_doubled_and_no_reader_fails(new_lake: NewLake) -> None:
    lake = new_lake(grace="0s")
    lake.views.register(readings())
    seed = random.SystemRandom().randrange(10**6)
    sys.stdout.write(f"seed {seed}\n")
    start, stop = PROCESSES.Event(), PROCESSES.Event()
    written, read = PROCESSES.Queue(), PROCESSES.Queue()
    url = lake.catalog.url
    writers = [
        PROCESSES.Process(target=_write, args=(url, n, seed, start, written))
        for n in range(WRITERS)
    ]
    readers = [PROCESSES.Process(target=_read, args=(url, start, stop, read)) for _ in range(2)]
    for process in writers + readers:
        process.start()
    start.set()
    committed, conflicts = [], 0
    for _ in writers:
        numbers, lost = written.get(timeout=240)
        committed += numbers
        conflicts += lost
    stop.set()
    reports = [read.get(timeout=300) for _ in readers]
    for process in writers + readers:
        process.join()
    assert [process.exitcode for process in writers + readers] == [0] * 10
    assert [problems for _, problems in reports] == [[], []]
    assert all(reads > 0 for reads, _ in reports)
    assert len(committed) == WRITERS * ROUNDS * 3
    assert numbers_in(lake) == Counter(committed)
    assert lake.checker.run(Level.PAGES).is_clean
    sys.stdout.write(f"{WRITERS * ROUNDS} commits, {conflicts} conflicts, reads {reports}\n")
    assert conflicts > 0, "the writers never met: this proved nothing"


@pytest.mark.parametrize("process_count", [4])
def test_writers_of_separate_ranges_never_conflict(new_lake: NewLake, process_count: int) -> None:
    lake = new_lake()
    lake.views.register(readings())
    start, results = PROCESSES.Event(), PROCESSES.Queue()
    processes = [
        PROCESSES.Process(target=_append, args=(lake.catalog.url, n, start, results))
        for n in range(process_count)
    ]
    for process in processes:
        process.start()
    start.set()
    failures = [results.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    assert failures == [None] * process_count
    assert len(lake.partitions.list_partitions()) == process_count * 10


def _append(url: str, writer: int, start: Any, results: Any) -> None:
    try:
        with open_lake(url) as lake:
            start.wait()
            for i in range(10):
                hour = writer * 100 + i
                begin = T0 + hour * HOUR
                lake.partitions.publish("readings", begin, begin + HOUR, rows(5, hour))
        results.put(None)
    except Exception as error:  # noqa: BLE001
        results.put(f"{type(error).__name__}: {error}")
