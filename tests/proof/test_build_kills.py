"""Builds whose parts are killed at random moments: a Python worker, an executor, the JVM, the
driver. What was published stays, what was not is built by the next run, and no row is lost or
doubled.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.opening import open_lake
from lakebed.samples.generator import Generator
from lakebed.settings import Settings
from tests.conftest import CAMPAIGN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
VICTIMS = ("worker", "executor", "jvm", "driver")
KILLS_EACH = 13 if CAMPAIGN else 1
REQUESTS, RECORDS, STEP_RECORDS = 20, 100, 300
PATIENCE_SECONDS = 1.0
MOST_MISSES = 12
"""Each halves the delay; after so many, a victim is killed as soon as it is there."""


def _kills() -> list[tuple[str, str]]:
    """Which catalog, and what is killed; an executor of its own takes long to start."""
    if not CAMPAIGN:
        return [("sqlite", "worker"), ("sqlite", "jvm"), ("postgresql", "driver")]
    return [(dialect, victim) for dialect in ("sqlite", "postgresql") for victim in VICTIMS]


@pytest.mark.parametrize(("dialect", "victim"), _kills())
def test_a_build_survives_what_is_killed(new_lake: Any, spark: SparkSession, victim: str) -> None:
    seed = int(os.environ.get("LAKEBED_SEED", int.from_bytes(os.urandom(4), "big")))
    sys.stdout.write(f"seed {seed}; replay with LAKEBED_SEED={seed}\n")
    rng = random.Random(seed)
    killed = misses = 0
    latest = 1.0 if victim == "worker" else 2.5
    while killed < KILLS_EACH:
        lake: Lake = new_lake()
        truth = _land(lake, rng)
        when = rng.uniform(0, latest)
        if victim == "worker":  # the session gets over it: the one that is there will do
            hit, said = _build_here_and_kill(lake, spark, when, rng)
        else:
            hit, said = _build_and_kill(lake, victim, when, rng)
        what = f"{victim} killed {when:.2f} s after it was there, seed {seed}"
        if victim in ("worker", "executor"):  # Spark gets over these by itself
            assert said is not None, what
            assert said["problems"] == [], what
            assert _held(lake) == truth, what
        _finish(lake, spark, truth, what)
        killed += hit
        if not hit:  # the build was over: this one is quicker than the moments that were drawn
            latest /= 2
            misses += 1
            assert misses <= MOST_MISSES, f"no {victim} was there to be killed, seed {seed}"
    sys.stdout.write(f"{victim}: {killed} killed while building\n")


def _land(lake: Lake, rng: random.Random) -> Counter[tuple[str, int]]:
    generator = Generator(rng.getrandbits(32))
    truth: Counter[tuple[str, int]] = Counter()
    for body in (generator.logs(RECORDS) for _ in range(REQUESTS)):
        lake.telemetry.land("logs", body.SerializeToString())
        for resource in body.resource_logs:
            for scope in resource.scope_logs:
                truth.update((scope.scope.name, each.time_unix_nano) for each in scope.log_records)
    return truth


def _build_here_and_kill(
    lake: Lake, spark: SparkSession, when: float, rng: random.Random
) -> tuple[bool, dict[str, Any] | None]:
    """Whether a Python worker was killed while the build was going on, and what the build said."""

    def build() -> dict[str, Any]:
        with open_lake(_url(lake), settings=Settings(lease_seconds=PATIENCE_SECONDS)) as own:
            own.pipeline.limits = replace(own.pipeline.limits, build_records=STEP_RECORDS)
            report = own.pipeline.build("log_stats", spark=spark)
        return {"problems": [each.problem for each in report.problems]}

    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(build)
        hit = _kill_one(os.getpid(), "worker", building.done, when, rng)
        return hit, building.result()


def _build_and_kill(
    lake: Lake, victim: str, when: float, rng: random.Random
) -> tuple[bool, dict[str, Any] | None]:
    """Whether the victim was found alive and killed while the build was going on, and what the
    build had to say at its end."""
    master = "local-cluster[2,1,1024]" if victim == "executor" else "local[2]"
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.proof.building", _url(lake), master, str(STEP_RECORDS)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        env={**os.environ, "LAKEBED_LEASE_SECONDS": str(PATIENCE_SECONDS)},
    )
    assert child.stdout is not None
    try:
        assert child.stdout.readline() == "building\n"
        hit = _kill_one(child.pid, victim, lambda: child.poll() is not None, when, rng)
        said = child.stdout.read()
        child.wait(timeout=300)
        return hit, json.loads(said) if said else None
    finally:
        for process in (*_family(child.pid), child.pid):
            _kill(process)
        child.wait()
        child.stdout.close()


def _kill_one(
    driver: int, victim: str, is_over: Callable[[], bool], delay: float, rng: random.Random
) -> bool:
    """Wait for a victim, and after the delay kill one; return False if the build was over first."""
    while not is_over() and not any(_find(driver, victim)):
        time.sleep(0.05)
    time.sleep(delay)
    victims = list(_find(driver, victim))
    if is_over() or not victims:
        return False
    try:
        os.kill(rng.choice(victims), signal.SIGKILL)
    except ProcessLookupError:  # it ended by itself in between
        return False
    return True


def _url(lake: Lake) -> str:
    return lake.catalog.url


_session_workers: set[tuple[int, int]] = set()
"""Python workers of the session in this process, by id and start time. When their daemon is killed,
those that run are nobody's children, and the session goes on to use them."""


def _find(driver: int, victim: str) -> Iterator[int]:
    """List the running processes of one kind that belong to a driver."""
    if victim == "driver":
        yield driver
    elif driver != os.getpid():
        yield from _find_below(driver, victim)
    else:
        workers = _find_below(driver, victim)
        _session_workers.update((process, _start_time(process)) for process in workers)
        for process, started in _session_workers:
            if _start_time(process) == started and _command(process):
                yield process


def _find_below(driver: int, victim: str) -> Iterator[int]:
    """List the processes of one kind below a driver."""
    for process in _family(driver):
        command = _command(process)
        is_java = b"java" in command.split(b"\0")[0]
        is_executor = b"CoarseGrainedExecutorBackend" in command
        kinds = {
            "worker": not is_java and b"pyspark" in command and b"daemon" in command,
            "executor": is_executor,
            "jvm": is_java and not is_executor and b"SparkSubmit" in command,
        }
        if kinds[victim]:
            yield process


def _family(ancestor: int) -> list[int]:
    """Every process below one, however deep."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found, waiting = [], [ancestor]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def _start_time(process: int) -> int:
    """Return when a process started, in ticks since the machine did; 0 if it has ended."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def _command(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""


def _kill(process: int) -> None:
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return


def _finish(lake: Lake, spark: SparkSession, truth: Counter[tuple[str, int]], what: str) -> None:
    """What is there is sound and not doubled; building again makes it whole."""
    settings = Settings(lease_seconds=PATIENCE_SECONDS)
    assert _held(lake) <= truth, what
    with open_lake(_url(lake), settings=settings) as again:
        again.pipeline.limits = replace(again.pipeline.limits, build_records=STEP_RECORDS)
        report = again.pipeline.build("log_stats", spark=spark)
        assert report.problems == [], what
        assert _held(again) == truth, what
        with again.partitions.snapshot("log_stats") as snapshot:
            counts = snapshot.read_all("log_stats", ["count"])["count"].to_pylist()
        assert sum(counts) == sum(truth.values()), what
        # Until those of the killed are dead; the test's own have the usual time to live.
        again.sweeper.watch_leases(lambda _seconds: time.sleep(PATIENCE_SECONDS + 0.1))
        again.sweeper.run()
        checked = again.checker.run(Level.PAGES)
        assert checked.is_clean, (what, checked.findings)
        assert [each for each in checked.findings if each.severity != "note"] == [], what


def _held(lake: Lake) -> Counter[tuple[str, int]]:
    if "log_entries" not in {entry.view_set.name for entry in lake.views.list_registered()}:
        return Counter()
    with lake.partitions.snapshot("log_entries") as snapshot:
        rows = snapshot.read_all("log_entries", ["target", "time_unix_nano"])
    return Counter((row["target"], row["time_unix_nano"] or 0) for row in rows.to_pylist())
