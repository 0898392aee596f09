"""Statements that the engine cannot stop: they are given up in time, and those that come after them
are answered, or given up in time as well.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import os, sys, time
import lakebed
from lakebed.errors import TimedOut

lake = lakebed.init(sys.argv[1])
many = "range(3000000)"
without_pause = f"SELECT count(*) FROM {many} a, {many} b WHERE a.value * b.value = 7"

def is_computing():
    '''Return True as soon as the process has used half a second of CPU time while this waits.'''
    cpu, end = time.process_time(), time.monotonic() + 20
    while time.process_time() - cpu < 0.5 and time.monotonic() < end:
        time.sleep(0.05)
    return time.process_time() - cpu >= 0.5

def give_up_after(seconds):
    try:
        lake.query(without_pause, timeout=seconds).to_arrow()
    except TimedOut:
        pass

for _ in range(max(2, os.cpu_count())):
    give_up_after(0.5)
seconds = 1.0
while not is_computing():  # on a busy machine the time limit may end the planning
    give_up_after(seconds)
    seconds *= 2
try:
    print(lake.query("SELECT 1 AS one", timeout=float(sys.argv[2])).to_arrow().to_pylist())
except TimedOut:
    print("given up")
lake.close()
"""


INTERRUPTED = """
import asyncio, signal, sys, threading, time
from lakebed.opening import init_lake
from lakebed.query.embedded.running.streams import _loop

def interrupt():
    while not asyncio.all_tasks(_loop()):
        time.sleep(0.01)
    busy = threading.Event()
    _loop().call_soon_threadsafe(lambda: (busy.set(), time.sleep(0.5)))
    busy.wait()
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

lake = init_lake(sys.argv[1])
lake.query("SELECT 1").to_arrow()
threading.Thread(target=interrupt).start()
try:
    lake.query("SELECT value FROM generate_series(1, 1000000000000) WHERE value < 0").to_arrow()
except KeyboardInterrupt:
    print("interrupted")
"""


ALL_AT_ONCE = """
import threading
from lakebed.query.embedded.running.streams import _loop

gate, found = threading.Barrier(16), []

def ask():
    gate.wait()
    found.append(_loop())

threads = [threading.Thread(target=ask) for _ in range(16)]
for each in threads:
    each.start()
for each in threads:
    each.join()
print(len(set(found)))
"""


def test_the_first_statements_of_a_process_share_one_loop() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ALL_AT_ONCE],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout == "1\n", done.stderr


def test_an_interrupted_process_has_nothing_more_to_say(tmp_path: Path) -> None:
    """Its loop, busy until then, is told to cancel and to end in one breath."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path / "lake")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.stdout, done.stderr) == ("interrupted\n", "")


@pytest.mark.parametrize(
    ("threads", "seconds", "said"), [(None, "300", "[{'one': 1}]"), ("1", "0.5", "given up")]
)
def test_statements_after_runaways(
    tmp_path: Path, threads: str | None, seconds: str, said: str
) -> None:
    """In a process of their own, which they would keep busy for hours."""
    environment = dict(os.environ)
    environment.pop("TOKIO_WORKER_THREADS", None)
    if threads is not None:
        environment["TOKIO_WORKER_THREADS"] = threads
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(tmp_path / "lake"), seconds],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env=environment,
    )
    assert done.stdout == f"{said}\n", done.stderr
    assert done.returncode == 0
