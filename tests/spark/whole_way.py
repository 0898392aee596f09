"""A script for sessions that need a process of their own: reads and writes a lake in every way and
prints what it found. Arguments: the lake's folder, ``master`` or ``remote``, and its value.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark

import lakebed
import lakebed.spark
from lakebed.errors import BadInput
from lakebed.lake import Lake
from lakebed.pipeline.sessions.build_sessions import own_session
from lakebed.pipeline.sessions.session import is_remote
from lakebed.samples.generator import Generator
from tests.parts.data import HOUR, T0, publish_hour, readings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def main(folder: str, kind: str, value: str) -> None:
    spark = lakebed.spark.open_session(**{kind: value}, quick=True)
    lakebed.spark.ship(spark, always=True)
    lakebed.spark.register(spark)
    with lakebed.init(folder) as lake:
        lake.views.register(readings())
        for hour in range(3):
            publish_hour(lake, hour, 2)
        frame = lakebed.spark.read(spark, "readings", lake=lake)
        later = (
            spark.read.format("lakebed").option("lake", folder).option("view", "readings").load()
        ).where("time >= timestamp'2026-01-01T02:00:00Z'")
        lake.views.register(readings(name="copies"))
        partition = lakebed.spark.write(frame, lake, "copies", T0, T0 + HOUR)
        with lake.partitions.snapshot("copies") as snapshot:
            numbers = snapshot.read_all("copies")["number"].to_pylist()
        found = {
            "remote": is_remote(spark),
            "shipped": look_where_executors_have_lakebed_from(spark),
            "native": frame.count(),
            "source": later.count(),
            "written": partition.num_rows,
            "sum": sum(numbers),
        }
        generator = Generator(1)
        for _ in range(3):
            lake.telemetry.land("logs", generator.serialized("logs", 40))
        report = lake.pipeline.build("log_stats", spark=spark)
        assert report.problems == [], report.problems
        with lake.partitions.snapshot("log_entries", "log_stats") as snapshot:
            found["built"] = snapshot.read_all("log_entries").num_rows
            found["counted"] = sum(snapshot.read_all("log_stats")["count"].to_pylist())
        assert lake.checker.run().is_clean
        lake.telemetry.land("logs", generator.serialized("logs", 10))
        sql = "SELECT time, msg, properties FROM log_entries ORDER BY time"
        found["queried"] = lake.query(sql, engine="spark", spark=spark).to_arrow().num_rows
        big = lake.query(
            "SELECT a.msg FROM log_entries a CROSS JOIN log_entries b", engine="spark", spark=spark
        )
        found["streamed"] = sum(batch.num_rows for batch in big)
        failing = "SELECT raise_error(cast(number AS string)) FROM readings"
        try:  # told to whoever asked, and not on stderr
            lake.query(failing, engine="spark", spark=spark).to_arrow()
        except BadInput as error:
            found["refused"] = str(error) != ""
        found["table"] = go_with_a_table(lake, spark)
    application = str(spark.conf.get("spark.app.id"))
    spark.stop()
    # The executors of local-cluster work inside the installed pyspark and leave that behind.
    work = Path(pyspark.__file__).with_name("work")
    shutil.rmtree(work / application, ignore_errors=True)
    json.dump(found, sys.stdout)


def look_where_executors_have_lakebed_from(spark: SparkSession) -> bool:
    """Whether it is what was sent to them, also in a session beside."""

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        import lakebed

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"file": [lakebed.__file__] * batch.num_rows})

    with own_session(spark) as own:
        rows = own.range(0, 4, 1, 4).mapInArrow(look, "file string").collect()
    return all(".zip/lakebed/" in row[0] for row in rows)


def go_with_a_table(lake: Lake, spark: SparkSession) -> list[int]:
    """Insert into a table, read it, fold it and read it again; how many rows and partitions."""
    schema = {
        "id": {"type": "int", "unique": True},
        "time": {"type": "datetime", "unit": "us"},
        "number": "int",
    }
    lake.tables.create_database("home")
    table = lake.tables.create_table("home", "copies", schema)
    for turn in range(2):  # the second moves half of the keys to another day
        frame = spark.range(0, 10, turn + 1, 2).selectExpr(
            "id", f"timestamp_micros({T0 + turn * 24 * HOUR}) AS time", f"{turn} AS number"
        )
        lakebed.spark.insert(frame, lake, "home.copies")
        table.insert([{"id": turn, "time": T0, "number": 7}])
    sql = "SELECT id, number, partition_date FROM home.copies ORDER BY id"
    expected = lake.query(sql).to_arrow()
    lake.pipeline.limits = replace(lake.pipeline.limits, fold_here_bytes=-1)
    counts = []
    for turn in range(2):
        found = lake.query(sql, engine="spark", spark=spark).to_arrow()
        assert found.to_pylist() == expected.to_pylist()
        counts += [lakebed.spark.read(spark, "home.copies", lake=lake).count()]
        counts += [len(table.partitions())]
        if not turn:
            report = lake.pipeline.build("home.copies", spark=spark)
            assert report.problems == [], report.problems
    assert lake.checker.run().is_clean
    return counts


if __name__ == "__main__":
    main(*sys.argv[1:])
