"""Building from SQL, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed import admin
from tests.parts.building import land, tick
from tests.parts.data import HOUR

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lakebed.lake import Lake


def test_sql_builds_a_view_set_and_what_it_reads(lake: Lake, spark: SparkSession) -> None:
    land(lake)
    sql = (
        "SELECT * FROM materialize_partitions('log_stats', now() - interval '1 day',"
        " now() + interval '1 day', 3600)"
    )
    lake.query(f"EXPLAIN {sql}").to_arrow()
    assert lake.partitions.list_partitions() == []
    table = lake.query(sql).to_arrow()
    assert table.column_names == ["time", "msg"]
    said = table["msg"].to_pylist()
    assert said[-1].startswith("published 2 partitions with ")
    assert all(line.startswith("SUCCESS: ") for line in said[:-1])
    built = lake.partitions.list_partitions()
    assert [each.view_set for each in built] == ["log_entries", "log_stats"]
    assert built[0].num_rows == 20
    now = tick(lake)
    report = admin.materialize_partitions(lake, "log_stats", now - HOUR, now + HOUR, spark=spark)
    assert report.outcomes == []
