"""Declaring and altering the columns of a table: a schema is checked whole, with every problem
named.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import datetime
from typing import Any

from lakebed.errors import BadInput, BadSchema
from lakebed.model.tables.schema import (
    BUCKET_COLUMN,
    FIRST_INSTANT,
    LAST_INSTANT,
    MOST_COLUMNS,
    OUT_OF_RANGE,
    TYPES,
    UNITS,
    Column,
    TableSchema,
    as_number,
)
from lakebed.model.time import format_instant, to_instant

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}")
_INT64 = 1 << 63


def parse_schema(value: Any) -> TableSchema:
    """Return the schema that a mapping, or its JSON text, declares. `BadSchema` with all problems.

    ``{"columns": {name: spec, …} or [{"name": name, …}, …], "out_of_range": "reject" or "flag"}``,
    or only ``{name: spec, …}``. A spec has the fields of `Column`, or is a type's name alone.
    """
    problems: list[str] = []
    declared, out_of_range = _unwrap(value, problems)
    columns = [_parse_column(name, spec, problems) for name, spec in declared]
    problems += _check_names([name for name, _ in declared])
    valid_columns = [column for column in columns if column is not None]
    if not declared and not problems:
        problems.append("a table needs columns")
    if len(declared) > MOST_COLUMNS:
        problems.append(f"{len(declared)} columns are more than the {MOST_COLUMNS} allowed")
    if declared:
        valid_columns = _find_time(valid_columns, problems, sure=len(valid_columns) == len(columns))
    problems += _check_required(declared, valid_columns)
    if problems:
        raise BadSchema(problems)
    return TableSchema(tuple(valid_columns), out_of_range)


def plan_alteration(
    old: TableSchema,
    *,
    add: Mapping[str, Any] | None = None,
    widen: Sequence[str] = (),
    relax: Sequence[str] = (),
    **unsupported: Any,
) -> TableSchema:
    """Return the schema with optional columns added, int columns widened to float and required
    columns made optional: changes that every row written before still fits. `BadSchema` with all
    problems, including any other change that was requested."""
    problems = [
        f"{change}: only add, widen and relax are known; anything else would make stored rows wrong"
        for change in unsupported
    ]
    columns = {column.name: column for column in old.columns}
    if not isinstance(add, Mapping | None):
        problems.append(f"add: an object of columns with their types, not {_show(add)}")
        add = None
    for name in _names(widen, "widen", problems):
        if column := _find_alterable(columns, name, "widened", problems):
            if column.item_type == "int":
                columns[name] = _widened(column)
            else:
                problems.append(f"{name}: only int can be widened, to float; it is {column.type}")
    for name in _names(relax, "relax", problems):
        if column := _find_alterable(columns, name, "made optional", problems):
            if column.required:
                columns[name] = replace(column, required=False)
            else:
                problems.append(f"{name}: is optional already")
    added = dict(add or {})
    for name, spec in added.items():
        column = _parse_column(name, spec, problems)
        if column is None:
            continue
        for what in ("unique", "time", "required"):
            if getattr(column, what):
                problems.append(f"{name}: rows already written have no value, so not {what}")
                break
        columns.setdefault(name, column)
    problems += _check_names([*old.names, *added])
    if len(columns) > MOST_COLUMNS:
        problems.append(f"{len(columns)} columns are more than the {MOST_COLUMNS} allowed")
    if problems:
        raise BadSchema(problems)
    return replace(old, columns=tuple(columns.values()))


def _find_alterable(
    columns: Mapping[str, Column], name: str, how: str, problems: list[str]
) -> Column | None:
    column = columns.get(name)
    if column is None:
        problems.append(f"{name}: is no column and cannot be {how}")
    elif column.unique or column.time:
        problems.append(f"{name}: is {_part_of(column)} and cannot be {how}")
        return None
    return column


def _widened(column: Column) -> Column:
    low, high = column.bounds
    return replace(
        column,
        type=column.type.replace("int", "float"),
        min=None if low is None else float(low),
        max=None if high is None else float(high),
    )


def _names(value: Any, what: str, problems: list[str]) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        problems.append(f"{what}: names of columns, not {_show(value)}")
        return []
    return list(dict.fromkeys(names))


# ---- the parts of a declaration -----------------------------------------------------------------


def _unwrap(value: Any, problems: list[str]) -> tuple[list[tuple[Any, Any]], str]:
    """Return names and specs in order, and the rule for values out of range."""
    if isinstance(value, str | bytes):
        value = _read_json(value, problems)
    if not isinstance(value, Mapping):
        if not problems:
            problems.append(f"a schema is an object of columns, not {_show(value)}")
        return [], OUT_OF_RANGE[0]
    columns = value.get("columns")
    if not isinstance(columns, Mapping | list | tuple):
        return list(value.items()), OUT_OF_RANGE[0]
    for name in value:
        if name not in ("columns", "out_of_range"):
            problems.append(f"{name}: is no part of a schema; columns and out_of_range are")
    out_of_range = value.get("out_of_range", OUT_OF_RANGE[0])
    if out_of_range not in OUT_OF_RANGE:
        problems.append(f"out_of_range is reject or flag, not {_show(out_of_range)}")
    if isinstance(columns, Mapping):
        return list(columns.items()), out_of_range
    declared = []
    for index, spec in enumerate(columns):
        if isinstance(spec, Mapping) and "name" in spec:
            declared.append((spec["name"], {k: v for k, v in spec.items() if k != "name"}))
        else:
            problems.append(f"column {index}: expected an object with a name, not {_show(spec)}")
    return declared, out_of_range


def _read_json(text: str | bytes, problems: list[str]) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        mapping = dict(pairs)
        if len(mapping) < len(pairs):
            twice = {name for name, _ in pairs if [key for key, _ in pairs].count(name) > 1}
            problems.extend(f"{name}: is given twice" for name in sorted(twice))
        return mapping

    try:
        return json.loads(text, object_pairs_hook=unique)
    except (ValueError, RecursionError) as error:
        problems.append(f"the schema is not JSON: {error}")
        return None


def _check_names(names: Sequence[Any]) -> list[str]:
    problems = []
    names_by_lower: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            problems.append(
                f"{_show(name)} is not a column name: use letters, digits and _, at most 63, "
                "beginning with a letter"
            )
        elif name.lower() == BUCKET_COLUMN:
            problems.append(f"{name}: is the name of the column that shows a row's bucket")
        elif (other := names_by_lower.get(name.lower())) is not None:
            same = other == name
            problems.append(
                f"{name}: {'is there already' if same else f'differs from {other} only in case'}"
            )
        else:
            names_by_lower[name.lower()] = name
    return problems


def _parse_column(name: Any, spec: Any, problems: list[str]) -> Column | None:
    """Return the column, or None if not even its type is valid."""
    if isinstance(spec, str):
        spec = {"type": spec}
    if not isinstance(spec, Mapping):
        problems.append(f"{name}: expected a type or an object, not {_show(spec)}")
        return None
    spec = {key: value for key, value in spec.items() if value is not None}
    kind = spec.get("type")
    if kind not in TYPES:
        problems.append(f"{name}: {_describe_unknown_type(kind)}")
    options = [field.name for field in fields(Column) if field.name != "name"]
    for key in spec:
        if key not in options:
            problems.append(f"{name}: has no {_show(key)}; it can have {', '.join(options)}")
    for what in ("required", "unique", "time"):
        if not isinstance(spec.get(what, False), bool):
            problems.append(f"{name}: {what} is true or false, not {_show(spec[what])}")
    if not _is_text(spec.get("description", "")):
        problems.append(f"{name}: description is a text, not {_show(spec['description'])}")
    if kind not in TYPES:
        return None
    if spec.get("unique") is True and kind not in ("int", "string", "bool", "datetime"):
        problems.append(f"{name}: unique works for int, string, bool and datetime, not {kind}")
    if spec.get("time") is True and kind != "datetime":
        problems.append(f"{name}: the time column must be a datetime, not {kind}")
    if "unit" in spec and kind.removesuffix("[]") != "datetime":
        problems.append(f"{name}: unit works only for datetime, not {kind}")
    elif spec.get("unit", "s") not in (*UNITS,):
        problems.append(f"{name}: unit is one of {', '.join(UNITS)}, not {_show(spec['unit'])}")
    low, high = (_parse_bound(name, what, kind, spec.get(what), problems) for what in BOUNDS)
    numbers = as_number(low), as_number(high)
    if numbers[0] is not None and numbers[1] is not None and numbers[0] > numbers[1]:
        problems.append(f"{name}: min {low} is above max {high}")
    return Column(
        name=name,
        type=kind,
        required=spec.get("required") is True,
        unique=spec.get("unique") is True,
        min=low,
        max=high,
        unit=spec.get("unit"),
        time=spec.get("time") is True,
        description=spec.get("description", ""),
    )


BOUNDS = ("min", "max")


def _describe_unknown_type(kind: Any) -> str:
    if kind is None:
        return f"has no type; it can be {', '.join(TYPES)}"
    near = difflib.get_close_matches(kind, TYPES, 1, 0.5) if isinstance(kind, str) else []
    guess = f"did you mean {near[0]}? " if near else ""
    return f"unknown type {_show(kind)}; {guess}it can be {', '.join(TYPES)}"


def _parse_bound(
    name: Any, what: str, kind: str, value: Any, problems: list[str]
) -> int | float | str | None:
    if value is None:
        return None
    if kind not in ("int", "float", "datetime"):
        problems.append(f"{name}: {what} works for int, float and datetime, not {kind}")
        return None
    read = {"int": _as_int, "float": _as_float, "datetime": _as_time_text}[kind](value)
    if read is None:
        example = ", like 2026-11-16T00:00:00Z" if kind == "datetime" else ""
        problems.append(f"{name}: {what} must be of type {kind}{example}, not {_show(value)}")
    return read


def _as_int(value: Any) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    fits = isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64
    return value if fits else None


def _as_float(value: Any) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _as_time_text(value: Any) -> str | None:
    if not isinstance(value, str | datetime):
        return None
    try:
        instant = to_instant(value, "down")
    except BadInput:
        return None
    return format_instant(instant) if FIRST_INSTANT <= instant <= LAST_INSTANT else None


def _find_time(columns: list[Column], problems: list[str], *, sure: bool) -> list[Column]:
    """Return the columns with exactly one marked as the time. If some columns are invalid, one
    of them may be the time."""
    times = [column for column in columns if column.time]
    datetimes = [column for column in columns if column.type == "datetime"]
    if len(times) > 1:
        names = ", ".join(str(column.name) for column in times)
        problems.append(f"only one column can be the time, not {names}")
    elif not times and len(datetimes) == 1:
        return [
            replace(column, time=True) if column is datetimes[0] else column for column in columns
        ]
    elif not times and datetimes:
        names = ", ".join(str(column.name) for column in datetimes)
        problems.append(f"mark the one that is the time with time: true, of {names}")
    elif not times and sure:
        problems.append("no column is the time; declare one of type datetime")
    return columns


def _check_required(declared: Sequence[tuple[Any, Any]], columns: Sequence[Column]) -> list[str]:
    """Return a problem for each key or time column that is declared optional: it always has a
    value."""
    optional = [
        name
        for name, spec in declared
        if isinstance(spec, Mapping) and spec.get("required") is False
    ]
    return [
        f"{column.name}: is {_part_of(column)} and always required; leave required out"
        for column in columns
        if (column.unique or column.time) and column.name in optional
    ]


def _part_of(column: Column) -> str:
    return "the key" if column.unique else "every row's time"


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(value.encode() or True)
    except UnicodeEncodeError:  # half of a surrogate pair, which nothing can store
        return False


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:79]}…"
