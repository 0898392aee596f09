"""DataFrames of rows in memory, of partial results that add up, and of a time range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakebed.model.time import TimeRange
from lakebed.model.view_set import ViewSet
from lakebed.query.planning.content import choose_bounds
from lakebed.query.spark.text import quote_for_any_session

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def make_frame(
    session: SparkSession, schema: StructType, tables: Sequence[pa.Table] = ()
) -> DataFrame:
    """Return a DataFrame of exactly these rows."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if not tables:
        return session.createDataFrame([], schema)
    rows = _whole(tables).cast(to_arrow_schema(schema, timezone="UTC"))
    return session.createDataFrame(rows, schema)


def merge_parts(
    session: SparkSession, parts: DataFrame, view_set: ViewSet, schema: StructType, merge_sql: str
) -> DataFrame:
    """Return partial results added up, in the columns of the view set. The session may be the
    caller's: it may take names in double quotes for texts, and no view is left in it."""
    from pyspark.sql import functions

    merge = quote_for_any_session(merge_sql).replace("{", "{{").replace("}", "}}")
    sql = f"WITH `{view_set.name}` AS (SELECT * FROM {{parts}}) SELECT * FROM (\n{merge}\n)"
    columns = (
        functions.col(f"`{field.name}`").cast(field.dataType).alias(field.name) for field in schema
    )
    return session.sql(sql, parts=parts).select(*columns)


def keep_range(frame: DataFrame, view_set: ViewSet, within: TimeRange | None) -> DataFrame:
    """Return the rows whose time is in a range that may be open."""
    from pyspark.sql import functions

    begin, end = choose_bounds(view_set, within)
    time = functions.col(f"`{view_set.time_column}`")
    if begin is not None:
        frame = frame.where(time >= functions.timestamp_micros(functions.lit(begin)))
    if end is not None:
        frame = frame.where(time < functions.timestamp_micros(functions.lit(end)))
    return frame


def _whole(tables: Sequence[pa.Table]) -> pa.Table:
    """Return the tables as one that is not a slice of others: pyspark cannot split lists and maps
    in slices that have NULLs."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    with pa.ipc.open_stream(sink.getvalue()) as reader:
        return reader.read_all()
