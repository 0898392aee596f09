"""Run tests against mutants, each in a forked process with a copy of the package.

The parent imports the slow third-party libraries once and never the package itself, so that a fork
starts with them and imports the changed package. A fork that outlives its time limit is killed with
all its children.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.operators import Mutant

KILLED, SURVIVED, TIMEOUT, UNTESTED = "killed", "survived", "timeout", "not executed by any test"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one mutant: a state, the test that failed, and the seconds that it took."""

    mutant: Mutant
    state: str
    test: str = ""
    seconds: float = 0.0
    tests: int = 0


@dataclass(frozen=True, slots=True)
class Job:
    """One mutant and the tests that may notice it, in the order to run them."""

    mutant: Mutant
    tests: Sequence[str]
    limit_seconds: float


class Worker:
    """Runs one job at a time against a copy of the package of its own."""

    def __init__(self, root: Path, package: str, folder: Path, environment: dict[str, str]) -> None:
        self._folder = folder
        self._environment = environment
        self._copy = folder / "src" / package
        shutil.copytree(root / package, self._copy)
        self._job: Job | None = None
        self._original = b""
        self._process = 0
        self._begin = 0.0
        self._log = folder / "output.txt"

    @property
    def is_free(self) -> bool:
        return self._job is None

    def start(self, job: Job) -> None:
        """Fork a process that runs the tests of a job."""
        file = self._copy / job.mutant.path
        self._original = file.read_bytes()
        file.write_bytes(job.mutant.apply(self._original))
        for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            stale.unlink()
        self._job, self._begin = job, time.monotonic()
        sys.stdout.flush()
        self._process = os.fork()
        if self._process == 0:
            self._run_child(job)

    def _run_child(self, job: Job) -> None:
        code = 70
        try:
            os.setsid()
            log = os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(log, stream)
            os.environ.update(self._environment)
            os.environ["PYTHONPATH"] = str(self._folder / "src")
            os.environ["TMPDIR"] = tempfile.tempdir = str(self._folder / "temporary")
            shutil.rmtree(tempfile.tempdir, ignore_errors=True)
            Path(tempfile.tempdir).mkdir()
            sys.dont_write_bytecode = True
            sys.path.insert(0, str(self._folder / "src"))
            import pytest

            import lakebed

            folder = Path(str(lakebed.__file__)).resolve()
            assert folder.is_relative_to(self._folder.resolve()), folder
            base = f"--basetemp={self._folder}/temporary/pytest"
            options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=line", base]
            code = int(pytest.main([*options, *job.tests]))
        except BaseException:  # noqa: BLE001  (a fork must never return to the campaign)
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            os._exit(code)

    def poll(self) -> Outcome | None:
        """Return the outcome of the job if it has ended; end it if its time is over."""
        assert self._job is not None
        seconds = time.monotonic() - self._begin
        ended, status = os.waitpid(self._process, os.WNOHANG)
        if not ended and seconds < self._job.limit_seconds:
            return None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process, signal.SIGKILL)
        if not ended:
            os.waitpid(self._process, 0)
        job, self._job = self._job, None
        (self._copy / job.mutant.path).write_bytes(self._original)
        if not ended:
            return Outcome(job.mutant, TIMEOUT, "", seconds, len(job.tests))
        passed = os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0
        state = SURVIVED if passed else KILLED
        test = "" if passed else _find_failure(self._log.read_text(errors="replace"))
        return Outcome(job.mutant, state, test, seconds, len(job.tests))


def _find_failure(output: str) -> str:
    """Return the first failure that pytest lists, or the last line of its output."""
    lines = [line for line in output.splitlines() if line.strip()]
    failures = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    return (failures or lines[-1:] or ["no output"])[0][:300]


def run_jobs(
    jobs: Sequence[Job],
    workers: Sequence[Worker],
    report: Callable[[Outcome], None],
    *,
    end: float | None = None,
    clean: Callable[[int], None] = lambda _worker: None,
) -> int:
    """Run all jobs; return how many were not begun before ``end`` on the monotonic clock."""
    waiting = list(reversed(jobs))
    while True:
        for number, worker in enumerate(workers):
            if worker.is_free:
                if waiting and (end is None or time.monotonic() < end):
                    worker.start(waiting.pop())
                continue
            outcome = worker.poll()
            if outcome is not None:
                clean(number)
                report(outcome)
        if all(worker.is_free for worker in workers) and (
            not waiting or (end is not None and time.monotonic() >= end)
        ):
            return len(waiting)
        time.sleep(0.05)
