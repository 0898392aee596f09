"""One Spark for all tests of a process: two cores, four attempts for each task, and an environment
that reaches the S3 server of the tests, as executors would have it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.parts import servers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def spark(s3_endpoint: str) -> Iterator[SparkSession]:
    """A session on this machine, started once; tests/parts/schedule.py names who uses it."""
    from lakebed.pipeline.sessions.session import open_session

    with pytest.MonkeyPatch.context() as environment:
        for name, value in servers.s3_environment(s3_endpoint).items():
            environment.setenv(name, value)
        session = open_session(cores=2, quick=True)
    yield session
    session.stop()


def run_script(
    script: Path, *arguments: object, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a file beside the tests in a process of its own, where warnings are errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", str(script), *map(str, arguments)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=1800,
        env={**os.environ, "PYTHONPATH": str(_ROOT), **(environment or {})},
    )


def result_of(done: subprocess.CompletedProcess[str]) -> Any:
    """What a script printed, as JSON; it must have said nothing else."""
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


def path_without_java(folder: Path) -> str:
    """A PATH with what Spark's scripts need, and no Java."""
    for name in ("bash", "sh", "env", "dirname", "ps", "uname", "nice", "mv", "rm"):
        found = shutil.which(name)
        if found is not None:
            (folder / name).symlink_to(found)
    return str(folder)
