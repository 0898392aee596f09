"""The small job that shows whether Spark's Python workers start, on the session of the tests."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from lakebed.doctor import machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_spark_job_returns_python_of_worker(spark: SparkSession) -> None:
    assert machine.run_spark_job() == (spark.version, platform.python_version())
