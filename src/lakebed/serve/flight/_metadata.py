"""Metadata of the lake for clients: catalogs, schemas, tables, kinds of tables and abilities of the
server, as tables of the shapes that FlightSQL prescribes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from lakebed import __version__
from lakebed.model.view_set import ViewSet
from lakebed.query.embedded.tables import CATALOG, SCHEMA
from lakebed.serve.flight._encoding import encode_schema

_KIND = "TABLE"
_INFO_VALUES = pa.dense_union(
    [
        pa.field("string_value", pa.string()),
        pa.field("bool_value", pa.bool_()),
        pa.field("bigint_value", pa.int64()),
        pa.field("int32_bitmask", pa.int32()),
        pa.field("string_list", pa.list_(pa.string())),
        pa.field(
            "int32_to_int32_list_map",
            pa.map_(pa.int32(), pa.list_(pa.int32())),
        ),
    ]
)
_INFO: Mapping[int, Any] = {
    0: "Lakebed",  # name of the server
    1: __version__,
    2: "1.3",  # of Arrow's format
    3: True,  # read only
    4: True,  # SQL
    5: False,  # Substrait
    8: 0,  # no transactions
    9: True,  # cancel
    503: '"',  # quotes of names
    504: '"',
    529: "schema",
    531: "catalog",
    532: True,  # the catalog comes first in a name
}
_INT32_INFO = (8,)


def catalogs() -> pa.Table:
    """Return the one catalog."""
    return pa.table({"catalog_name": [CATALOG]}, schema=_required("catalog_name"))


def schemas(tables: Mapping[str, ViewSet], command: Any) -> pa.Table:
    """Return the schema of view sets, and one for each database."""
    names = sorted({SCHEMA, *(_split(name)[0] for name in tables)})
    if command.HasField("catalog") and command.catalog != CATALOG:
        names = []
    if command.HasField("db_schema_filter_pattern"):
        names = [name for name in names if _matches(name, command.db_schema_filter_pattern)]
    schema = pa.schema(
        [pa.field("catalog_name", pa.string()), pa.field("db_schema_name", pa.string(), False)]
    )
    return pa.table(
        {"catalog_name": [CATALOG] * len(names), "db_schema_name": names}, schema=schema
    )


def list_tables(tables: Mapping[str, ViewSet], command: Any) -> pa.Table:
    """Return the tables that match, with their columns if those are asked for."""
    rows = []
    for full_name, view_set in sorted(tables.items()):
        schema, name = _split(full_name)
        if command.HasField("catalog") and command.catalog != CATALOG:
            continue
        if command.HasField("db_schema_filter_pattern") and not _matches(
            schema, command.db_schema_filter_pattern
        ):
            continue
        if command.HasField("table_name_filter_pattern") and not _matches(
            name, command.table_name_filter_pattern
        ):
            continue
        if command.table_types and _KIND not in command.table_types:
            continue
        rows.append((schema, name, view_set))
    columns: dict[str, Sequence[Any]] = {
        "catalog_name": [CATALOG] * len(rows),
        "db_schema_name": [schema for schema, _, _ in rows],
        "table_name": [name for _, name, _ in rows],
        "table_type": [_KIND] * len(rows),
    }
    fields = [
        pa.field("catalog_name", pa.string()),
        pa.field("db_schema_name", pa.string()),
        pa.field("table_name", pa.string(), False),
        pa.field("table_type", pa.string(), False),
    ]
    if command.include_schema:
        columns["table_schema"] = [encode_schema(view_set.schema) for _, _, view_set in rows]
        fields.append(pa.field("table_schema", pa.binary(), False))
    return pa.table(columns, schema=pa.schema(fields))


def table_types() -> pa.Table:
    """Return the one kind of tables."""
    return pa.table({"table_type": [_KIND]}, schema=_required("table_type"))


def primary_keys() -> pa.Table:
    """Return an empty table: view sets have no keys that FlightSQL could list."""
    return pa.schema(
        [
            pa.field("catalog_name", pa.string()),
            pa.field("db_schema_name", pa.string()),
            pa.field("table_name", pa.string(), False),
            pa.field("column_name", pa.string(), False),
            pa.field("key_name", pa.string()),
            pa.field("key_sequence", pa.int32(), False),
        ]
    ).empty_table()


def sql_info(requested: Sequence[int]) -> pa.Table:
    """Return the abilities of the server that are requested; all if none is named."""
    numbers = [number for number in _INFO if not requested or number in requested]
    kinds, offsets = [], []
    values: list[list[Any]] = [[] for _ in range(_INFO_VALUES.num_fields)]
    for number in numbers:
        value = _INFO[number]
        kind = 3 if number in _INT32_INFO else {str: 0, bool: 1, int: 2}[type(value)]
        kinds.append(kind)
        offsets.append(len(values[kind]))
        values[kind].append(value)
    children = [
        pa.array(column, _INFO_VALUES.field(index).type) for index, column in enumerate(values)
    ]
    union = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()),
        pa.array(offsets, pa.int32()),
        children,
        [_INFO_VALUES.field(index).name for index in range(_INFO_VALUES.num_fields)],
    )
    schema = pa.schema(
        [pa.field("info_name", pa.uint32(), False), pa.field("value", union.type, False)]
    )
    return pa.table([pa.array(numbers, pa.uint32()), union], schema=schema)


def _required(name: str) -> pa.Schema:
    return pa.schema([pa.field(name, pa.string(), False)])


def _split(full_name: str) -> tuple[str, str]:
    database, _, name = full_name.rpartition(".")
    return database or SCHEMA, name


def _matches(name: str, pattern: str) -> bool:
    """Return True if a name is like an SQL pattern: % for anything, _ for one character. In time
    that grows with both and no faster, which regular expressions do not promise."""
    reached = {0}  # positions in the pattern that the name so far can reach
    for character in [*name, None]:
        places = sorted(reached)
        for position in places:
            if pattern[position : position + 1] == "%" and position + 1 not in reached:
                reached.add(position + 1)
                places.append(position + 1)
        if character is None:
            break
        reached = {
            position + (pattern[position] != "%")
            for position in reached
            if position < len(pattern) and pattern[position] in (character, "_", "%")
        }
    return len(pattern) in reached
