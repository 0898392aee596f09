"""Rows of a user's table that match a condition in SQL, for tables without a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakebed.errors import BadInput
from lakebed.model.tables.schema import BUCKET_COLUMN
from lakebed.model.tables.table import UserTable

if TYPE_CHECKING:
    import pyarrow as pa

_PLACE = "_place"


def match_rows(rows: pa.Table, table: UserTable, condition: str) -> pa.Table:
    """Return those of some rows of a table for which a condition is true. The condition cannot read
    the whole table: these are only some of its rows."""
    import pyarrow as pa

    from lakebed.query.embedded import small

    candidates = rows.append_column(BUCKET_COLUMN, table.bucket.name_all(rows[table.time_column]))
    candidates = candidates.append_column(_PLACE, pa.array(range(rows.num_rows), pa.int64()))
    sql = f"SELECT {_PLACE} FROM {_PLACE} AS {table.name} WHERE ({condition}\n) ORDER BY 1"
    try:
        matching = small.run(sql, {_PLACE: candidates}, with_properties=True)
    except BadInput as error:
        raise BadInput(
            f"cannot tell which rows the condition means: {error}",
            hint="of a table without a key, it can only speak of the columns of one row",
        ) from error
    return rows.take(matching[_PLACE])
