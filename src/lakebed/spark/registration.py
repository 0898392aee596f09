"""Making ``spark.read.format("lakebed")`` known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register the data source with a session."""
    from lakebed.spark.source import LakebedSource

    spark.dataSource.register(LakebedSource)
