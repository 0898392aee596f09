"""Making ``spark.read.format("lakebed")`` known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Register the data source with a session, and let Spark tell it about filters, by which it
    prunes: both are per session."""
    from lakebed.spark.source import LakebedSource

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    spark.dataSource.register(LakebedSource)
