"""Spark's JVM is killed, as the kernel does when memory runs out: the next build starts another.
In a process of its own, because the tests share a JVM that others need.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

import lakebed
from lakebed.errors import Unavailable
from lakebed.pipeline.pipeline import Progress
from lakebed.pipeline.sessions import jvm
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


def kill_in_a_build(folder: Path) -> None:
    """Build with the `lakebed` command; its JVM is killed once a step is done and others are not.
    Then build again."""
    from pyspark import SparkContext

    from lakebed.cli.data import build
    from lakebed.cli.main import run

    killed: list[int] = []

    def kill(at: Progress) -> None:
        if at.done and not killed:
            process = SparkContext._gateway.proc  # type: ignore[union-attr]
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            killed.append(process.pid)

    with lakebed.init(folder) as lake:
        lake.telemetry.land("logs", Generator(1).serialized("logs", 50))
    build.show_progress = lambda: nullcontext(kill)  # type: ignore[assignment,return-value]
    assert run(["build", "--lake", str(folder)]) == Unavailable.exit_code
    assert killed
    assert run(["build", "--lake", str(folder)]) == 0
    with lakebed.open(folder) as lake:
        assert lake.query("SELECT sum(count) AS n FROM log_stats").to_arrow().to_pylist() == [
            {"n": 50}
        ]


@pytest.mark.campaign
def test_a_build_whose_jvm_is_killed_says_so_in_a_line_and_the_next_goes_on(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path; from tests.pipeline.test_lost_jvm import kill_in_a_build; "
        f"kill_in_a_build(Path({str(tmp_path / 'lake')!r}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr
    (said,) = done.stderr.splitlines()
    assert said.startswith("error: spark's JVM is gone")


def test_pyspark_has_the_private_parts_that_are_used(spark: SparkSession) -> None:
    """A new version of pyspark that renames one needs a new look at `jvm`."""
    for name in ("_gateway", "_jvm", "_active_spark_context"):
        assert getattr(SparkContext, name) is not None
    for name in ("_instantiatedSession", "_activeSession"):
        assert hasattr(SparkSession, name)
    assert SparkContext._gateway is not None
    assert SparkContext._gateway.proc.poll() is None
    assert callable(spark.sparkContext._accumulatorServer.handle_error)
    assert spark._jsparkSession.sessionJobTag()
    assert spark.sparkContext._jsc.sc().dagScheduler().activeQueryToJobs().isEmpty() in (
        True,
        False,
    )


@pytest.mark.campaign
def test_pyspark_alone_starts_no_second_jvm() -> None:
    """SPARK-48711. If this fails, `jvm.forget_if_dead` can go."""
    program = (
        "from pyspark.sql import SparkSession; from pyspark import SparkContext\n"
        "from lakebed.pipeline.sessions.session import open_session\n"
        "first = open_session(cores=1, quick=True)\n"
        "process = SparkContext._gateway.proc; process.kill(); process.wait()\n"
        "SparkSession.builder.master('local[1]').getOrCreate().range(1).count()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode != 0
    assert "onnection refused" in done.stderr


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(), EOFError(), Py4JNetworkError("Answer from Java is empty")]
)
def test_what_fails_without_a_jvm_is_unavailable(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    from pyspark import SparkContext

    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        gateway = SimpleNamespace(proc=process)
        monkeypatch.setattr(SparkContext, "_gateway", gateway)
        process.kill()
        with pytest.raises(Unavailable, match="JVM is gone"), jvm.naming_its_end():
            raise error
    gateway.proc = None  # a Spark that somebody else started
    with pytest.raises(type(error)), jvm.naming_its_end():
        raise error


def test_what_java_answers_is_passed_on_without_waiting_for_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyspark import SparkContext

    def wait(_seconds: float) -> None:
        pytest.fail("it lives, and would be waited for in vain")

    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=SimpleNamespace(wait=wait)))
    error = Py4JJavaError("cancelled", SimpleNamespace(_target_id="o1", _gateway_client=None))
    with pytest.raises(Py4JJavaError) as passed_on, jvm.naming_its_end():
        raise error
    assert passed_on.value is error


class _Gone:
    """A session whose JVM is not there any more."""

    @property
    def sparkContext(self) -> _Gone:  # noqa: N802  (as Spark calls it)
        return self

    def cancelAllJobs(self) -> None:  # noqa: N802
        raise ConnectionRefusedError

    @property
    def _jsparkSession(self) -> _Gone:  # noqa: N802
        return self

    def sessionJobTag(self) -> str:  # noqa: N802
        raise ConnectionRefusedError

    def setLogLevel(self, _level: str) -> None:  # noqa: N802
        raise ConnectionRefusedError


def test_a_jvm_that_is_gone_has_nothing_to_cancel() -> None:
    """Else a server that is stopped together with its JVM would never come to its end."""
    jvm.cancel_jobs(_Gone())  # type: ignore[arg-type]
    jvm.silence(_Gone())  # type: ignore[arg-type]
    jvm.forget_jobs(_Gone())  # type: ignore[arg-type]
