"""The small job that tells whether Spark's Python workers start, on the session of the tests."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from lakebed.doctor import trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_trial_runs_in_a_worker(spark: SparkSession) -> None:
    this = platform.python_version()
    assert trial.run() == {"spark": spark.version, "worker_python": this, "driver_python": this}
