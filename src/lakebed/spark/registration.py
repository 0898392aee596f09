"""Making ``spark.read.format("lakebed")`` known to a session."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import lakebed
from lakebed.errors import BadInput
from lakebed.model.arguments import checked
from lakebed.pipeline.sessions.session import find_worker_python, is_remote, runs_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS = 60
_VERSIONS = (
    "import sys, lakebed; print(sys.version_info[0], sys.version_info[1], lakebed.__version__)"
)


@checked
def register(spark: SparkSession) -> None:
    """Register the data source with a session.

    `BadInput` if Spark's Python workers on this machine are another Python that cannot run it.
    """
    from lakebed.spark.source import LakebedSource

    if not is_remote(spark) and not runs_this_python(spark):
        _require_lakebed(find_worker_python(spark))
    spark.dataSource.register(LakebedSource)


def _require_lakebed(program: str) -> None:
    """Raise unless a Python has this version of lakebed and is of this version itself."""
    expected = f"{sys.version_info[0]} {sys.version_info[1]} {lakebed.__version__}"
    try:
        done = subprocess.run(  # noqa: S603  (the Python that Spark starts anyway)
            [program, "-c", _VERSIONS],
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        answer = done.stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        answer = ""
    if answer != expected:
        raise BadInput(
            f"spark starts {program} for its Python workers, which is another Python than this one "
            "and does not have this lakebed",
            hint=f"set PYSPARK_PYTHON={sys.executable} before spark is started",
        )
