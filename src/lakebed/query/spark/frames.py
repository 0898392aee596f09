"""Rows in memory as DataFrames."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


def make_frame(
    session: SparkSession, schema: StructType, tables: Sequence[pa.Table] = ()
) -> DataFrame:
    """A DataFrame of exactly these rows."""
    from pyspark.sql.pandas.types import to_arrow_schema

    if not tables:
        return session.createDataFrame([], schema)
    rows = _whole(tables).cast(to_arrow_schema(schema, timezone="UTC"))
    return session.createDataFrame(rows, schema)


def _whole(tables: Sequence[pa.Table]) -> pa.Table:
    """The tables as one that is no slice of others: pyspark cannot take lists and maps apart in
    slices that have NULLs."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, tables[0].schema) as writer:
        for table in tables:
            writer.write_table(table)
    with pa.ipc.open_stream(sink.getvalue()) as reader:
        return reader.read_all()
