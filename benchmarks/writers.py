"""How many commits four processes get through together when all of them write to the same table,
and how many of those commits fail.
"""

from __future__ import annotations

import multiprocessing
import statistics
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from threading import Barrier

from benchmarks.harness import Figure, Places, Result, readings
from benchmarks.systems import DeltaSystem, IcebergSystem, LakebedSystem, System

TITLE = "Four processes, each committing 1,000 rows 100 times to the same table"
_PROCESSES = 4
_LONGEST_WAIT = 120


@dataclass(frozen=True, slots=True)
class Work:
    """What one process did, in seconds of the clock that all of them share."""

    begin: float
    end: float
    commits: int
    failures: tuple[str, ...]


def run(places: Places) -> list[Result]:
    rounds, commits = (1, 5) if places.quick else (3, 100)
    makers: list[Callable[[], System]] = [
        lambda: LakebedSystem.create(places, "sqlite"),
        lambda: LakebedSystem.create(places, "postgresql"),
        lambda: DeltaSystem.create(places),
        lambda: IcebergSystem.create(places, tidy=False),
    ]
    measured: dict[str, list[list[Work]]] = defaultdict(list)
    for turn in range(rounds):  # systems take turns, so that noise hits all alike
        for make in makers[turn:] + makers[:turn]:
            system = make()
            if isinstance(system, IcebergSystem) and turn:
                continue  # one round takes it longer than all rounds take the others
            measured[system.name].append(_write_together(system, commits))
    return [_result(name, measured[name]) for name in sorted(measured)]


def _write_together(system: System, commits: int) -> list[Work]:
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        barrier = manager.Barrier(_PROCESSES)
        with ProcessPoolExecutor(_PROCESSES, mp_context=context) as pool:
            futures = [
                pool.submit(_write, system, number, commits, barrier)
                for number in range(_PROCESSES)
            ]
            return [future.result() for future in futures]


def _write(system: System, number: int, commits: int, barrier: Barrier) -> Work:
    """Commit to ranges of one's own; what fails is counted and not tried again, beyond what the
    system itself does by default."""
    minutes = range(number * commits, (number + 1) * commits)
    rows = [readings(minute) for minute in minutes]
    writer = system.open()
    failures = []
    barrier.wait(_LONGEST_WAIT)
    begin = time.monotonic()
    for minute, each in zip(minutes, rows, strict=True):
        try:
            writer.commit(minute, each)
        except Exception as error:  # noqa: BLE001
            failures.append(type(error).__name__)
            writer.recover()
    end = time.monotonic()
    writer.close()
    return Work(begin, end, commits - len(failures), tuple(failures))


def _result(name: str, rounds: list[list[Work]]) -> Result:
    rates = [
        sum(work.commits for work in each)
        / (max(work.end for work in each) - min(work.begin for work in each))
        for each in rounds
    ]
    works = [work for each in rounds for work in each]
    failures = [failure for work in works for failure in work.failures]
    figures: dict[str, Figure] = {
        "commits/s": statistics.median(rates),
        "slowest round": min(rates),
        "fastest round": max(rates),
        "committed": sum(work.commits for work in works),
        "failed": len(failures),
        "failed as": ", ".join(sorted(set(failures))),
    }
    if not name.startswith("Lakebed"):
        return Result(name, figures)
    return Result(name, figures, {"none fails": not failures})
