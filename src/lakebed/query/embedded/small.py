"""SQL over a few small tables in memory, for checking declarations of SQL view sets and for finding
rows to delete. It may read the given tables, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakebed.errors import BadInput

if TYPE_CHECKING:
    import pyarrow as pa
    from datafusion import DataFrame


def columns_of(sql: str, tables: Mapping[str, pa.Schema]) -> pa.Schema:
    """Return the columns of a SELECT over tables of these schemas, without running it. `BadInput`
    with the engine's first line if it cannot be planned."""
    return _plan(sql, {name: schema.empty_table() for name, schema in tables.items()}).schema()


def run(sql: str, tables: Mapping[str, pa.Table], *, with_properties: bool = False) -> pa.Table:
    """Return the rows of a SELECT over these tables; `with_properties` allows our functions for
    properties. `BadInput` if it cannot be planned or fails."""
    frame = _plan(sql, tables, with_properties=with_properties)
    try:
        return frame.to_arrow_table()
    except Exception as error:
        raise BadInput(_first_line(error)) from error


def _plan(sql: str, tables: Mapping[str, pa.Table], *, with_properties: bool = False) -> DataFrame:
    import pyarrow as pa
    from datafusion import SessionConfig, SessionContext, SQLOptions

    only_read = SQLOptions().with_allow_ddl(False).with_allow_dml(False)
    config = SessionConfig().with_target_partitions(1)
    try:
        context = SessionContext(config)
        if with_properties:
            from lakebed.query.embedded.functions import properties

            for function in properties.functions():
                context.register_udf(function)
        for name, table in tables.items():
            batches = table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]
            context.register_record_batches(name, [batches])
        return context.sql_with_options(sql, only_read.with_allow_statements(False))
    except Exception as error:
        raise BadInput(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
