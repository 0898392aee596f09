"""Convert one column's values, from Python or Arrow, to the Arrow array that its table stores.

The fast path converts the column as a whole and fails if any value does not fit. The exact path,
`convert_values`, then converts value by value and reports those that do not fit.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any

from lakebed.errors import BadInput
from lakebed.model.tables.schema import FIRST_INSTANT, LAST_INSTANT, UNITS, Column
from lakebed.model.time_text import FULL_TIME
from lakebed.tables.insert.convert_values import (
    NO_ZONE,
    YEARS,
    Misfit,
    Unreadable,
    read_json_text,
    reader_of,
)

if TYPE_CHECKING:
    import pyarrow as pa

_PYTHON: dict[str, set[type]] = {
    "int": {int},
    "float": {int, float},
    "string": {str},
    "bool": {bool},
}
_EXTENSION = b"ARROW:extension:name"
_TOLD_BY_STORAGE = ("arrow.json",)
_LONGEST_IN_UTC = len("2026-11-16T05:00:00.123456Z")


@dataclass(slots=True)
class Converted:
    """A column as it is stored, with NULL for what does not fit."""

    values: pa.Array
    bad: dict[int, tuple[str, Any]] = field(default_factory=dict)
    """By index: the expectation, and the original value."""


def convert(values: list[Any] | pa.Array, column: Column) -> Converted:
    """Return the values in the column's Arrow type; None and NULL fit every type."""
    if column.is_array:
        return _convert_lists(values, column)
    return _convert_items(values, column)


# ---- lists --------------------------------------------------------------------------------------


def _convert_lists(values: list[Any] | pa.Array, column: Column) -> Converted:
    """Convert lists: convert all items as one long column and cut it into lists again."""
    import pyarrow as pa
    import pyarrow.compute as pc

    bad: dict[int, tuple[str, Any]] = {}
    items: list[Any] | pa.Array
    if isinstance(values, list):
        lists = [value if isinstance(value, list | tuple) else None for value in values]
        items = list(chain.from_iterable(entry for entry in lists if entry is not None))
        absent = [entry is None for entry in lists]
        lengths = [0 if entry is None else len(entry) for entry in lists]
        for index, value in enumerate(values):
            if absent[index] and value is not None:
                bad[index] = (column.type, value)
    else:
        values = unwrap(values)
        if not is_list(values.type):
            return _convert_lists(as_values(values), column)
        items = pc.list_flatten(values)
        absent = values.is_null().to_pylist()
        lengths = pc.list_value_length(values).fill_null(0).to_pylist()
    converted = _convert_items(items, column)
    offsets = [0, *accumulate(lengths)]
    for index, (expected, value) in converted.bad.items():
        parent = bisect_right(offsets, index) - 1
        bad.setdefault(parent, (f"{expected} at [{index - offsets[parent]}]", value))
    lists_array = pa.ListArray.from_arrays(
        pa.array(offsets, pa.int32()),
        converted.values,
        type=column.arrow,
        mask=pa.array(absent, pa.bool_()),
    )
    return Converted(lists_array, dict(sorted(bad.items())))


def is_list(kind: pa.DataType) -> bool:
    """Return True for every Arrow list type."""
    import pyarrow as pa

    types = pa.types
    return bool(
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
        or types.is_list_view(kind)
        or types.is_large_list_view(kind)
    )


# ---- the two ways -------------------------------------------------------------------------------


def _convert_items(values: list[Any] | pa.Array, column: Column) -> Converted:
    if isinstance(values, list):
        quick = _take_quickly(values, column)
        return _take_each(values, reader_of(column), column) if quick is None else Converted(quick)
    import pyarrow as pa

    values = unwrap(values)
    if column.item_type == "datetime" and pa.types.is_date(values.type):
        values = values.cast(pa.timestamp("ms", "UTC"))
    if column.item_type == "datetime" and pa.types.is_timestamp(values.type):
        return _take_timestamps(values)
    quick = _cast_quickly(values, column)
    if quick is not None:
        return Converted(quick)
    is_json_text = column.item_type == "json" and is_text(values.type)
    read = read_json_text if is_json_text else reader_of(column)
    return _take_each(as_values(values), read, column)


def _take_each(values: list[Any], read: Callable[[Any], Any], column: Column) -> Converted:
    """Convert value by value: slow, but reports exactly the values that do not fit."""
    import pyarrow as pa

    stored: list[Any] = []
    bad: dict[int, tuple[str, Any]] = {}
    for index, value in enumerate(values):
        if value is None:
            stored.append(None)
            continue
        try:
            stored.append(read(value))
        except Misfit as misfit:
            stored.append(None)
            bad[index] = (str(misfit), value)
    if column.item_type == "datetime":
        return Converted(pa.array(stored, pa.int64()).cast(_item_type(column)), bad)
    return Converted(pa.array(stored, _item_type(column)), bad)


def _item_type(column: Column) -> pa.DataType:
    return column.arrow.value_type if column.is_array else column.arrow


def _take_quickly(values: list[Any], column: Column) -> pa.Array | None:
    """Return the values as an array, or None if some might not fit.

    What pyarrow would bend, such as True in a float column or bytes in a string column, never
    reaches it: the values' exact types are looked at first.
    """
    import pyarrow as pa

    types = set(map(type, values)) - {type(None)}
    kind = column.item_type
    stored = _item_type(column)
    try:
        if not types:
            return pa.nulls(len(values), stored)
        if kind == "json":
            return _encode_quickly(values)
        if kind == "datetime":
            arrow_types = {str: pa.string(), int: pa.int64(), float: pa.float64()}
            if len(types) > 1 or not types <= arrow_types.keys():
                return None
            return _cast_quickly(pa.array(values, arrow_types[types.pop()]), column)
        if kind == "int" and float in types and types <= _PYTHON["float"]:
            return pa.array(values, pa.float64()).cast(stored)
        return pa.array(values, stored) if types <= _PYTHON[kind] else None
    except (pa.ArrowException, OverflowError, UnicodeEncodeError):
        return None


def _cast_quickly(values: pa.Array, column: Column) -> pa.Array | None:
    """Return an Arrow array cast to the column's type, or None if some values might not fit."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind, source_type = column.item_type, values.type
    stored = _item_type(column)
    integer, floating = pa.types.is_integer(source_type), pa.types.is_floating(source_type)
    try:
        if pa.types.is_null(source_type):
            return pa.nulls(len(values), stored)
        if kind == "int" and (integer or floating):
            return values.cast(stored)
        if kind == "float" and (integer or floating):
            return values.cast(stored, safe=False)
        if kind == "bool" and pa.types.is_boolean(source_type):
            return values
        if is_text(source_type) and kind in ("string", "datetime"):
            values.validate(full=True)
            texts = values.cast(pa.string())
            return texts if kind == "string" else _parse_quickly(texts)
        if kind == "datetime" and column.unit is not None and (integer or floating):
            if integer and column.unit != "ns":
                numbers, many = values.cast(pa.int64()), UNITS[column.unit]
                near = are_all_between(numbers, FIRST_INSTANT // many, LAST_INSTANT // many)
                return pc.multiply(numbers, many).cast(stored) if near else None
            exact = pa.int64() if integer else pa.float64()
            instants, fits = _count_instants(values.cast(exact), column.unit)
            return instants.cast(stored) if fits.true_count == len(fits) else None
    except pa.ArrowException:
        return None
    return None


def unwrap(values: pa.Array) -> pa.Array:
    """Return the array without dictionary, run-end or extension encoding."""
    import pyarrow as pa
    import pyarrow.compute as pc

    while True:
        if isinstance(values, pa.ExtensionArray) and find_foreign(values.type) is None:
            values = values.storage
        elif pa.types.is_dictionary(values.type):
            if is_text(values.type.value_type):  # of views there is no decoding
                texts = values.dictionary.cast(pa.large_string())
                values = pa.DictionaryArray.from_arrays(values.indices, texts)
            values = values.dictionary_decode()
        elif pa.types.is_run_end_encoded(values.type):
            values = pc.run_end_decode(values)
        else:
            return values


def is_text(kind: pa.DataType) -> bool:
    """Return True for every Arrow string type."""
    import pyarrow as pa

    types = pa.types
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def find_foreign(
    data_type: pa.DataType, metadata: Mapping[bytes, bytes] | None = None
) -> str | None:
    """Return the name of an extension type whose storage does not define its meaning, or None. For
    a type that is not registered with pyarrow the name comes from the field's metadata."""
    import pyarrow as pa

    if isinstance(data_type, pa.BaseExtensionType):
        name = data_type.extension_name
    else:
        name = (metadata or {}).get(_EXTENSION, b"").decode(errors="replace")
    return name if name and name not in _TOLD_BY_STORAGE else None


def as_values(values: pa.Array) -> list[Any]:
    """Return the array's values in Python; `Unreadable` for those that Python cannot hold."""
    import pyarrow as pa

    if isinstance(values, pa.ExtensionArray):
        return [as_value(scalar) for scalar in values]
    try:
        return list(values.to_pylist())
    except (ValueError, OverflowError):  # a year beyond the calendar, or text that is not UTF-8
        return [as_value(scalar) for scalar in values]


def as_value(scalar: pa.Scalar) -> Any:
    """Return one value in Python, or `Unreadable`."""
    try:
        value = scalar.as_py()
        foreign = None if value is None else find_foreign(scalar.type)
        return value if foreign is None else Unreadable(f"{foreign} {value}")
    except (ValueError, OverflowError):
        return Unreadable(f"{scalar.type} {getattr(scalar, 'value', '')}".strip())


# ---- taking many at once ------------------------------------------------------------------------


def _encode_quickly(values: list[Any]) -> pa.Array | None:
    """Canonical texts of values that are the same after a round trip, which only JSON's own are."""
    import msgspec
    import pyarrow as pa

    encode = msgspec.json.Encoder(order="deterministic").encode
    try:
        if msgspec.json.decode(encode(values)) != values:
            return None
        texts = [None if value is None else encode(value) for value in values]
    except (TypeError, ValueError, RecursionError):
        return None
    return pa.array(texts, pa.binary()).cast(pa.string())


def _parse_quickly(texts: pa.Array) -> pa.Array | None:
    """Return the timestamps of these texts, or None if some might not be one."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not _holds_for_all(pc.match_substring_regex(texts, rf"^{FULL_TIME}$")):
        return None
    # Arrow's parser knows neither dots in dates nor digits finer than microseconds.
    dashed = pc.binary_replace_slice(texts.cast(pa.binary()), 4, 5, "-")
    texts = pc.binary_replace_slice(dashed, 7, 8, "-").cast(pa.string())
    if (pc.max(pc.binary_length(texts)).as_py() or 0) > _LONGEST_IN_UTC:
        texts = pc.replace_substring_regex(texts, r"(\.[0-9]{6})[0-9]+", r"\1")
    times = texts.cast(pa.timestamp("us", "UTC"))
    instants = times.cast(pa.int64())
    return times if are_all_between(instants, FIRST_INSTANT, LAST_INSTANT) else None


def _take_timestamps(values: pa.Array) -> Converted:
    """Return timestamps of any unit and zone as they are stored; without a zone none fits."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if values.type.tz is None:
        indexes = pc.indices_nonzero(values.is_valid()).to_pylist()
        naive = {index: (NO_ZONE, as_value(values[index])) for index in indexes}
        return Converted(pa.nulls(len(values), pa.timestamp("us", "UTC")), naive)
    instants, fits = _count_instants(values.cast(pa.int64()), values.type.unit)
    bad = {}
    for index in pc.indices_nonzero(pc.invert(fits)).to_pylist():
        bad[index] = (YEARS, as_value(values[index]))
    return Converted(instants.cast(pa.timestamp("us", "UTC")), bad)


def _count_instants(numbers: pa.Array, unit: str) -> tuple[pa.Array, pa.Array]:
    """Return numbers in a unit as microseconds, NULL where they are outside of the calendar, and a
    mask of those inside. Raise `ArrowInvalid` for floats that cannot be rounded to an integer."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(numbers.type):
        scaled = pc.divide(numbers, 1_000.0) if unit == "ns" else pc.multiply(numbers, UNITS[unit])
        rounded = pc.round(scaled, ndigits=0, round_mode="half_to_even")
        counted = rounded.cast(pa.int64())
    elif unit == "ns":
        cut = pc.less(pc.remainder(numbers, 1_000), 0).cast(pa.int64())
        counted = pc.subtract(pc.divide(numbers, 1_000), cut)
    else:
        # In this unit, so that nothing is multiplied that would not fit.
        near = _are_between(numbers, FIRST_INSTANT // UNITS[unit], LAST_INSTANT // UNITS[unit])
        counted = pc.multiply(pc.if_else(near, numbers, None), UNITS[unit])
    inside = _are_between(counted, FIRST_INSTANT, LAST_INSTANT).fill_null(False)
    return pc.if_else(inside, counted, None), pc.or_(inside, numbers.is_null())


def is_naive(kind: pa.DataType) -> bool:
    """Return True for timestamps without a zone, also inside lists and dictionaries."""
    import pyarrow as pa

    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind) or is_list(kind):
        return is_naive(kind.value_type)
    return bool(types.is_timestamp(kind) and kind.tz is None)


def check_zone(zone: str) -> str:
    """Return the name of a time zone, if there is one of this name."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.assume_timezone(pa.array([0], pa.timestamp("s")), zone)
    except (pa.ArrowException, TypeError):
        raise BadInput(
            f"unknown time zone {zone!r}",
            hint="write UTC, an offset such as +02:00, or a name such as Europe/Berlin",
        ) from None
    return zone


def assume_zone(values: pa.ChunkedArray, zone: str) -> pa.ChunkedArray:
    """Return timestamps without a zone, or lists of them, as times in this zone. `Misfit` if a time
    occurs twice or never in it, as when clocks change."""
    import pyarrow as pa

    try:
        return pa.chunked_array([_assume_zone(unwrap(chunk), zone) for chunk in values.chunks])
    except pa.ArrowInvalid as error:
        raise Misfit(str(error).splitlines()[0]) from None


def _assume_zone(values: pa.Array, zone: str) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_list(values.type):
        return pc.assume_timezone(values, zone)
    lengths = pc.list_value_length(values).fill_null(0).to_pylist()
    items = _assume_zone(unwrap(pc.list_flatten(values)), zone)
    offsets = pa.array([0, *accumulate(lengths)], pa.int32())
    return pa.ListArray.from_arrays(offsets, items, mask=values.is_null())


def are_all_between(numbers: pa.Array, low: float | None, high: float | None) -> bool:
    """Return True if no integer is out of bounds; NULL never is. Faster than listing them."""
    import pyarrow.compute as pc

    bounds = pc.min_max(numbers).as_py()
    if bounds["min"] is None:
        return True
    return (low is None or bounds["min"] >= low) and (high is None or bounds["max"] <= high)


def _are_between(numbers: pa.Array, low: int, high: int) -> pa.Array:
    import pyarrow.compute as pc

    return pc.and_(pc.greater_equal(numbers, low), pc.less_equal(numbers, high))


def _holds_for_all(answers: pa.Array) -> bool:
    import pyarrow.compute as pc

    return bool(pc.all(answers, min_count=0).as_py())
