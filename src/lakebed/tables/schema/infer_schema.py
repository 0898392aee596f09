"""A first draft of a table's schema from sample records, for a person to read and improve.

It has only types and required columns: no key, no ranges.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any

from lakebed.errors import BadInput
from lakebed.model.tables.declaration import parse_schema
from lakebed.model.tables.schema import UNITS
from lakebed.model.time import to_instant
from lakebed.tables.insert.convert_columns import as_values
from lakebed.tables.insert.convert_values import NO_ZONE, Misfit, read_datetime
from lakebed.tables.insert.records import read_records

if TYPE_CHECKING:
    import pyarrow as pa

_TIME_NAMES = ("time", "timestamp", "ts", "datetime", "date", "at", "t")
"""Names of time columns, the most likely first."""
_MAY_BE_TIME = re.compile(r"(?i:time|date)|(?i:(?<![a-z])ts(?![a-z]))|(?<=[a-z])Ts(?![a-z])|^[tT]$")
_FIRST = to_instant("2000-01-01T00:00:00Z")
_LAST = to_instant("2100-01-01T00:00:00Z")
_INT64 = 1 << 63


def propose_schema(samples: Any) -> dict[str, Any]:
    """Return a draft for `parse_schema`, from samples in any form that can be inserted.

    Raise `BadInput` if no column of the samples holds times; `BadSchema` if their names cannot be
    those of columns.
    """
    records = _list_records(samples)
    names = list(dict.fromkeys(chain.from_iterable(records)))
    columns = {name: _propose_column(name, records) for name in names}
    times = [name for name, spec in columns.items() if spec["type"] == "datetime"]
    if not times:
        hint = "a table needs one, such as 2026-11-16T05:00:00Z or a number of seconds"
        naive = [
            name for name in names if _has_naive_time([record.get(name) for record in records])
        ]
        if naive:
            hint = f"the times of {naive[0]} have no zone: add Z for UTC, or an offset as +02:00"
        raise BadInput("no column of the samples holds a time", hint=hint)
    columns[min(times, key=lambda name: _rank(name, columns[name]))]["time"] = True
    draft = {"columns": columns, "out_of_range": "reject"}
    parse_schema(draft)
    return draft


def _list_records(samples: Any) -> list[Mapping[Any, Any]]:
    read = read_records(samples)
    if not isinstance(read, list):
        columns = [_as_samples(column) for column in read.columns]
        rows = zip(*columns, strict=True)
        read = [dict(zip(read.column_names, row, strict=True)) for row in rows]
    for index, record in enumerate(read):
        if not isinstance(record, Mapping):
            raise BadInput(f"sample {index} is no object but {type(record).__name__}")
    if not read:
        raise BadInput("there are no samples to propose a schema from")
    return read


def _as_samples(column: pa.ChunkedArray) -> list[Any]:
    import pyarrow as pa

    if pa.types.is_timestamp(column.type):  # Python has no nanoseconds
        column = column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return as_values(column.combine_chunks())


def _propose_column(name: Any, records: list[Mapping[Any, Any]]) -> dict[str, Any]:
    values = [record.get(name) for record in records]
    present = [value for value in values if value is not None]
    spec: dict[str, Any] = dict(_propose_type(str(name), present))
    if len(present) == len(values):
        spec["required"] = True
    return spec


def _propose_type(name: str, values: list[Any]) -> dict[str, str]:
    """Return the type of values, and the unit of numbers that are times; JSON if no other fits."""
    kinds = {_kind_of(value) for value in values}
    if kinds == {"list"}:
        items = _propose_type(name, [item for item in chain(*values) if item is not None])
        is_flat = not items["type"].endswith("[]")
        return {**items, "type": f"{items['type']}[]"} if is_flat else {"type": "json[]"}
    if kinds and kinds <= {"int", "float"}:
        unit = _find_unit(values) if _MAY_BE_TIME.search(name) else None
        if unit is not None:
            return {"type": "datetime", "unit": unit}
        return {"type": "float" if "float" in kinds else "int"}
    if kinds and kinds <= {"string", "datetime"} and _are_times(values):
        return {"type": "datetime"}
    return {"type": kinds.pop() if len(kinds) == 1 else "json"}


def _kind_of(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if -_INT64 <= value < _INT64 else "json"
    if isinstance(value, list | tuple):
        return "list"
    for kind, python in (("float", float), ("string", str), ("datetime", datetime)):
        if isinstance(value, python):
            return kind
    return "json"


def _are_times(values: list[Any]) -> bool:
    try:
        for value in values:
            read_datetime(value, None)
    except Misfit:
        return False
    return True


def _has_naive_time(values: list[Any]) -> bool:
    """Return True if one of the values is a time without a zone."""
    for value in values:
        try:
            read_datetime(value, None)
        except Misfit as misfit:
            if str(misfit) == NO_ZONE:
                return True
    return False


def _find_unit(numbers: list[Any]) -> str | None:
    """Return the unit in which all numbers are times of this century, or None."""
    for unit in UNITS:
        try:
            instants = [read_datetime(number, unit) for number in numbers]
        except Misfit:
            continue
        if all(_FIRST <= instant < _LAST for instant in instants):
            return unit
    return None


def _rank(name: Any, spec: Mapping[str, Any]) -> tuple[bool, int]:
    """Return a sort key: the smaller, the more a column looks like the time. Required columns come
    first, because a row without a time cannot be stored."""
    lowered = str(name).lower()
    position = _TIME_NAMES.index(lowered) if lowered in _TIME_NAMES else len(_TIME_NAMES)
    return not spec.get("required", False), position
