"""Spark's JVM is killed, as the kernel does when memory runs out: the next build starts another.
In a process of its own, because the tests share a JVM that others need.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import lakebed
from lakebed.pipeline import jvm
from lakebed.samples.generator import Generator


def build_twice(folder: Path, *, keep: bool) -> None:
    """Build, kill the JVM, and build again."""
    from pyspark import SparkContext

    with lakebed.init(folder) as lake:
        for seed in (1, 2):
            lake.telemetry.land("logs", Generator(seed).serialized("logs", 50))
            report = lake.pipeline.build("log_entries", keep_session=keep)
            assert report.problems == []
            process = SparkContext._gateway.proc  # type: ignore[union-attr]
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
        built = lake.partitions.list_partitions("log_entries")
        assert sum(each.num_rows for each in built) == 100


@pytest.mark.campaign
@pytest.mark.parametrize("keep", [True, False])
def test_a_build_outlives_its_jvm(tmp_path: Path, keep: bool) -> None:
    program = (
        "from pathlib import Path; from tests.pipeline.test_lost_jvm import build_twice; "
        f"build_twice(Path({str(tmp_path / 'lake')!r}), keep={keep})"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr


class _Gone:
    """A session whose JVM is not there any more."""

    @property
    def sparkContext(self) -> _Gone:  # noqa: N802  (as Spark calls it)
        return self

    def cancelAllJobs(self) -> None:  # noqa: N802
        raise ConnectionRefusedError

    def setLogLevel(self, _level: str) -> None:  # noqa: N802
        raise ConnectionRefusedError


def test_a_jvm_that_is_gone_has_nothing_to_cancel() -> None:
    """Else a server that is stopped together with its JVM would never come to its end."""
    jvm.cancel_jobs(_Gone())  # type: ignore[arg-type]
    jvm.silence(_Gone())  # type: ignore[arg-type]
