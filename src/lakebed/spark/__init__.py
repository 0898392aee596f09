"""Lakebed for people who work in pyspark: read a lake as DataFrames, write DataFrames into it.

    import lakebed.spark

    with lakebed.spark.reader(spark, lake) as reader:        # one snapshot, held
        reader.create_temp_views()
        spark.sql("SELECT level, count(*) FROM log_entries GROUP BY level").show()
    lakebed.spark.read(spark, "log_entries", begin, end, lake=lake)
    lakebed.spark.write(frame, lake, "readings", begin, end)
    lakebed.spark.insert(frame, lake, "home.heart_rate")
    lakebed.spark.register(spark)                            # spark.read.format("lakebed")

Executors import this package, so it loads nothing before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakebed.pipeline.frames.types import spark_schema
    from lakebed.pipeline.sessions.executors import ship
    from lakebed.pipeline.sessions.session import open_session
    from lakebed.spark.frames import SparkReader, create_temp_views, read, reader
    from lakebed.spark.inserting import insert
    from lakebed.spark.registration import register
    from lakebed.spark.writing import write

__all__ = [
    "SparkReader",
    "create_temp_views",
    "insert",
    "open_session",
    "read",
    "reader",
    "register",
    "ship",
    "spark_schema",
    "write",
]

_HOMES = {
    "SparkReader": "lakebed.spark.frames",
    "create_temp_views": "lakebed.spark.frames",
    "insert": "lakebed.spark.inserting",
    "open_session": "lakebed.pipeline.sessions.session",
    "read": "lakebed.spark.frames",
    "reader": "lakebed.spark.frames",
    "register": "lakebed.spark.registration",
    "ship": "lakebed.pipeline.sessions.executors",
    "spark_schema": "lakebed.pipeline.frames.types",
    "write": "lakebed.spark.writing",
}


def __getattr__(name: str) -> Any:
    """Public names are loaded when first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'lakebed.spark' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
