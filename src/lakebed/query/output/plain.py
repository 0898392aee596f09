"""Arrow values as the few kinds that text formats know: numbers, booleans, strings, lists, objects.

Times become RFC 3339 in UTC, with the digits of their column and never fewer than microseconds;
bytes become hex; decimals become strings, so that no reader rounds them; NaN and the infinities,
which JSON has no numbers for, become strings; a time without a zone is read as UTC, as the engine
does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Convert = Callable[[Any], Any]

_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def name_columns(schema: pa.Schema) -> list[str]:
    """Return a name for each column, none twice: ``time``, ``time_2``."""
    names: list[str] = []
    used_names = set(schema.names)
    for index, name in enumerate(schema.names):
        unique, number = name, 1
        if name in schema.names[:index]:
            while unique in used_names:
                number += 1
                unique = f"{name}_{number}"
        used_names.add(unique)
        names.append(unique)
    return names


def to_objects(batch: pa.RecordBatch, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return rows as JSON has them."""
    columns = [to_values(column) for column in batch.columns]
    if not columns:
        return [{} for _ in range(batch.num_rows)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def to_values(column: pa.Array) -> list[Any]:
    """Return a column's values as JSON has them; None where there is none."""
    column = _unwrap(column)
    kind = column.type
    if pa.types.is_timestamp(kind):
        texts = format_times(column)
        return list(texts.to_pylist())
    if pa.types.is_floating(kind):
        return _to_floats(column)
    if pa.types.is_decimal(kind):
        return list(column.cast(pa.string()).to_pylist())
    convert = _converter(kind)
    raw = _with_counts(kind)
    values = (column if raw == kind else column.cast(raw)).to_pylist()
    return values if convert is None else [convert(value) for value in values]


def format_times(column: pa.Array) -> pa.Array:
    """Return a column of timestamps as strings."""
    kind = column.type
    counts = column.cast(pa.timestamp(kind.unit))
    if kind.unit in ("s", "ms"):
        try:
            counts = counts.cast(pa.timestamp("us"))
        except pa.ArrowInvalid:  # beyond the calendar
            return pa.array(_format_each(column), pa.string())
    texts = counts.cast(pa.string())
    if pc.any(pc.starts_with(texts, "<")).as_py():
        return pa.array(_format_each(column), pa.string())
    with_t = pc.replace_substring(texts, " ", "T", max_replacements=1)
    return pc.binary_join_element_wise(with_t, "Z", "")


def _format_each(column: pa.Array) -> list[str | None]:
    unit = column.type.unit
    return [
        None if count is None else _format_time(count, unit)
        for count in column.cast(pa.int64()).to_pylist()
    ]


def _format_time(count: int, unit: str) -> str:
    """Return a time as text, like the columnar code; an instant beyond the calendar as its
    number."""
    seconds, fraction = divmod(count, _PER_SECOND[unit])
    try:
        moment = _EPOCH + timedelta(seconds=seconds)
    except OverflowError:
        return f"{count}{unit}"
    digits = 9 if unit == "ns" else 6
    fraction = fraction * 10**digits // _PER_SECOND[unit]
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{fraction:0{digits}}Z".rjust(digits + 21, "0")


def _to_floats(column: pa.Array) -> list[Any]:
    if column.type != pa.float64():  # the shortest number that reads back the same
        column = column.cast(pa.string()).cast(pa.float64())
    values = column.to_pylist()
    if pc.all(pc.is_finite(column)).as_py() is False:
        return [_to_finite(value) for value in values]
    return list(values)


def _to_finite(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _unwrap(column: pa.Array) -> pa.Array:
    """Return values without an encoding around them."""
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _unwrap(column.storage)
    if pa.types.is_dictionary(kind):
        return _unwrap(column.cast(kind.value_type))
    if pa.types.is_run_end_encoded(kind):
        return _unwrap(pc.run_end_decode(column))
    return column


def _with_counts(kind: pa.DataType) -> pa.DataType:
    """Return the type with times as numbers, of which Python's own types cannot hold all."""

    def field(member: pa.Field) -> pa.Field:
        return member.with_type(_with_counts(member.type))

    if pa.types.is_timestamp(kind) or pa.types.is_time64(kind) or pa.types.is_duration(kind):
        return pa.int64()
    if pa.types.is_time32(kind) or pa.types.is_date32(kind):
        return pa.int32()
    if pa.types.is_date64(kind):
        return pa.int64()
    if pa.types.is_dictionary(kind):
        return _with_counts(kind.value_type)
    if pa.types.is_float16(kind):
        return pa.float32()
    if pa.types.is_struct(kind):
        return pa.struct([field(kind.field(index)) for index in range(kind.num_fields)])
    if pa.types.is_map(kind):
        return pa.map_(field(kind.key_field), field(kind.item_field))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(field(kind.value_field), kind.list_size)
    if pa.types.is_large_list(kind):
        return pa.large_list(field(kind.value_field))
    if pa.types.is_list(kind):
        return pa.list_(field(kind.value_field))
    return kind


def _converter(kind: pa.DataType) -> Convert | None:
    """Return a function that turns a value of this type, read with its times as numbers, into a
    plain one; None if it is plain already."""
    convert = _converter_of_some(kind)
    if convert is None:
        return None
    convert_value = convert
    return lambda value: None if value is None else convert_value(value)


def _converter_of_some(kind: pa.DataType) -> Convert | None:
    if pa.types.is_dictionary(kind):
        return _converter_of_some(kind.value_type)
    if (
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_null(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
    ):
        return None
    if pa.types.is_floating(kind):
        return _to_finite
    if (
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    ):
        return bytes.hex
    return _converter_of_times(kind) or _converter_of_nested(kind) or str


def _converter_of_times(kind: pa.DataType) -> Convert | None:
    if pa.types.is_timestamp(kind):
        return lambda count: _format_time(count, kind.unit)
    if pa.types.is_date32(kind):
        return _format_date
    if pa.types.is_date64(kind):
        return lambda count: _format_date(count // 86_400_000)
    if pa.types.is_time(kind):
        return lambda count: _format_time(count, kind.unit)[len("1970-01-01T") : -1]
    if pa.types.is_duration(kind):
        return lambda count: _format_duration(0, 0, count * 10**9 // _PER_SECOND[kind.unit])
    if pa.types.is_interval(kind):
        return lambda value: _format_duration(value.months, value.days, value.nanoseconds)
    return None


def _format_date(days: int) -> str:
    try:
        return (date(1970, 1, 1) + timedelta(days=days)).isoformat()
    except OverflowError:
        return f"{days}d"


def _format_duration(months: int, days: int, nanoseconds: int) -> str:
    """Return a duration in ISO 8601, e.g. ``PT0.25S`` or ``P1M2DT3S``."""
    sign = "-" if nanoseconds < 0 else ""
    seconds, rest_ns = divmod(abs(nanoseconds), 10**9)
    fraction = f".{rest_ns:09}".rstrip("0") if rest_ns else ""
    text = "".join(
        [f"{months}M" if months else "", f"{days}D" if days else ""],
    )
    if nanoseconds or not text:
        text += f"T{sign}{seconds}{fraction}S"
    return f"P{text}"


def _converter_of_nested(kind: pa.DataType) -> Convert | None:
    if pa.types.is_struct(kind):
        members = {
            kind.field(index).name: _converter(kind.field(index).type)
            for index in range(kind.num_fields)
        }
        return lambda row: {
            name: value if (convert := members[name]) is None else convert(value)
            for name, value in row.items()
        }
    if pa.types.is_map(kind):
        key, item = _converter(kind.key_type), _converter(kind.item_type)
        return lambda pairs: {
            _to_key(name if key is None else key(name)): value if item is None else item(value)
            for name, value in pairs
        }
    if (
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    ):
        convert_item = _converter(kind.value_type)
        return (
            list
            if convert_item is None
            else lambda values: [convert_item(value) for value in values]
        )
    return None


def _to_key(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else str(value)
