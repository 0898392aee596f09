"""Row numbers that pandas adds to a frame whose rows were filtered, sorted or concatenated: an
index without a name. They are not data and are dropped.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import pyarrow as pa

_UNNAMED = re.compile(r"__index_level_\d+__")


def list_row_numbers(schema: pa.Schema) -> list[str]:
    """Return the names of such index columns, from pandas' metadata in the schema."""
    noted = (schema.metadata or {}).get(b"pandas")
    if noted is None or not any(map(_UNNAMED.fullmatch, schema.names)):
        return []
    try:
        indexes = msgspec.json.decode(noted).get("index_columns", [])
    except (msgspec.DecodeError, UnicodeDecodeError, AttributeError):  # not written by pandas
        return []
    return [name for name in schema.names if _UNNAMED.fullmatch(name) and name in indexes]


def without_row_numbers(rows: pa.Table) -> pa.Table:
    """Return the rows without the index columns that pandas adds."""
    return rows.drop_columns(list_row_numbers(rows.schema))
