"""Making ``spark.read.format("lakebed")`` known to a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.model.arguments import checked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@checked
def register(spark: SparkSession) -> None:
    """Register the data source with a session."""
    from lakebed.spark.source import LakebedSource

    spark.dataSource.register(LakebedSource)
