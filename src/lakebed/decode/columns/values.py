"""OTLP's AnyValue and attribute lists as strings and maps of strings.

Strings stay as they are, ints are decimal, doubles are what Arrow's cast to string makes of them,
bools ``true`` or ``false``, bytes base64; arrays and key-value lists are compact JSON with 64-bit
ints as numbers, bytes as base64 strings and NaN or infinities as strings. A value that holds
nothing is NULL. Of several attributes with the same key the last counts, and the row is marked; so
it is in key-value lists.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Collection
from functools import cache, partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.decode.columns.arrays import (
    Marks,
    counting,
    each_distinct,
    first_valid,
    offsets_of,
    text,
)
from lakebed.decode.columns.columnar import CannotRead, ReadMode, attribute_reader, parse, read
from lakebed.decode.columns.spread import StringMaps
from lakebed.decode.descriptors import relaxed_pool

KINDS = ("string", "bool", "int", "double", "array", "kvlist", "bytes")
"""The kinds of AnyValue, in the order of its fields."""


def render(values: pa.Array, marks: Marks) -> pa.Array:
    """An array of AnyValue as strings.

    Raises `CannotRead` if a value is of several kinds at once, which only the slow way resolves, or
    if a nested value is no protobuf.
    """
    return _render(_members(values), marks)


def render_with_kinds(values: pa.Array, marks: Marks) -> tuple[pa.Array, pa.Array]:
    """An array of AnyValue as strings, and which kind each is; NULL where it holds nothing."""
    members = _members(values)
    return _render(members, marks), _kinds(members)


def _members(values: pa.Array) -> list[pa.Array]:
    """Return an array for each kind of value, with NULL where the value is of another kind."""
    return [
        _only(member) if pa.types.is_list(member.type) else member for member in values.flatten()
    ]


def _only(lists: pa.Array) -> pa.Array:
    """The one element of each list, or NULL; raises `CannotRead` if there are several."""
    elements = lists.flatten()
    if not len(elements):
        return pa.nulls(len(lists), elements.type)
    sizes = pc.fill_null(pc.list_value_length(lists), 0)
    if pc.max(sizes).as_py() > 1:
        raise CannotRead("a nested value is given in several parts")
    offsets = offsets_of(elements).take(pc.subtract(lists.offsets, lists.offsets[0]))
    buffers = [pc.equal(sizes, 1).buffers()[1], offsets.buffers()[1], elements.buffers()[2]]
    return pa.Array.from_buffers(elements.type, len(lists), buffers)


def _render(members: list[pa.Array], marks: Marks) -> pa.Array:
    rendered = [
        _RENDERERS[kind](member, marks)
        for kind, member in zip(KINDS, members, strict=True)
        if member.null_count < len(member)
    ]
    merged = first_valid(rendered, pa.nulls(len(members[0]), pa.string()))
    if sum(len(texts) - texts.null_count for texts in rendered) > len(merged) - merged.null_count:
        raise CannotRead("a value is of several kinds at once")
    return merged


def _kinds(members: list[pa.Array]) -> pa.Array:
    codes = pa.nulls(len(members[0]), pa.int32())
    for code, member in enumerate(members):
        if member.null_count < len(member):
            codes = pc.if_else(member.is_valid(), pa.scalar(code, pa.int32()), codes)
    return pa.array(KINDS, pa.string()).take(codes)


def string_maps(lists: pa.Array, marks: Marks, mode: ReadMode) -> StringMaps:
    """Lists of KeyValue, as bytes, as maps of strings with unique keys.

    Senders repeat themselves: each distinct pair of key and value is read once.
    """
    offsets = lists.offsets
    if offsets[0].as_py():
        offsets = pc.subtract(offsets, offsets[0])
    pairs = lists.flatten().dictionary_encode()
    raw_keys, raw_values = read(attribute_reader(), pairs.dictionary, mode).columns
    pair_marks = Marks(len(raw_keys))
    keys = text(raw_keys, pair_marks)
    items = render(raw_values, pair_marks)
    if pair_marks.masks:
        parents = pc.list_parent_indices(lists)
        marks.add_all(pair_marks.spread(pairs.indices).gather(parents, len(lists)))
    codes = keys.dictionary_encode().indices
    offsets, entries = _last_of_each_key(offsets, codes, pairs.indices, marks)
    return StringMaps(offsets, keys.take(entries), items.take(entries))


def _last_of_each_key(
    offsets: pa.Array, codes: pa.Array, entry_pairs: pa.Array, marks: Marks
) -> tuple[pa.Array, pa.Array]:
    """The offsets and entries that remain when each row keeps the last entry of each key.

    `codes` has a number for the key of each pair, `entry_pairs` the pair of each entry.
    """
    rows = len(offsets) - 1
    entry_codes = codes.take(entry_pairs)
    # Each row's key codes, seen as one binary value: few distinct ones stand for many rows.
    places = pc.multiply(offsets, pa.scalar(4, pa.int32()))
    buffers = [None, places.buffers()[1], entry_codes.buffers()[1]]
    shapes = pa.Array.from_buffers(pa.binary(), rows, buffers).dictionary_encode()
    twins = pa.array([_has_twins(shape) for shape in shapes.dictionary.to_pylist()], pa.bool_())
    if not pc.any(twins).as_py():
        return offsets, entry_pairs
    affected = twins.take(shapes.indices)
    marks.add("duplicate_key", affected)
    earlier = _earlier_twins(offsets, entry_codes, affected)
    hits = pc.scatter(pa.repeat(True, len(earlier)), earlier, max_index=len(entry_pairs) - 1)
    is_kept = pc.is_null(hits)
    kept_counts = pc.cumulative_sum(is_kept.cast(pa.int32()))
    ends = pa.concat_arrays([pa.array([0], pa.int32()), kept_counts]).take(offsets)
    return ends, entry_pairs.filter(is_kept)


def _earlier_twins(offsets: pa.Array, codes: pa.Array, affected: pa.Array) -> pa.Array:
    """Return the entries of the affected rows whose key a later entry of the same row has too."""
    lists = pa.ListArray.from_arrays(offsets, codes)
    begins = offsets.slice(0, len(lists)).filter(affected)
    lists = lists.filter(affected)
    row = pc.list_parent_indices(lists)
    first = lists.offsets.take(row)
    entry = pc.add(pc.subtract(counting(len(row)), first), begins.take(row))
    entries = pa.table({"row": row, "code": lists.flatten(), "entry": entry})
    groups = entries.group_by(["row", "code"], use_threads=False)
    last = groups.aggregate([("entry", "max")])["entry_max"].combine_chunks()
    return entry.filter(pc.invert(pc.is_in(entry, last)))


def _has_twins(shape: bytes) -> bool:
    codes = memoryview(shape).cast("i")
    return len(set(codes)) < len(codes)


def _base64(value: bytes) -> tuple[str, Collection[str]]:
    return base64.b64encode(value).decode(), ()


def _json(value: bytes, message: str) -> tuple[str, Collection[str]]:
    parsed = parse(_message_class(message), value)
    markers: set[str] = set()
    plain = (
        _plain_list(parsed, markers) if message == "ArrayValue" else _plain_object(parsed, markers)
    )
    return json.dumps(plain, ensure_ascii=False, separators=(",", ":")), markers


def _plain_list(array: Any, markers: set[str]) -> list[Any]:
    return [_plain(value, markers) for value in array.values]


def _plain_object(pairs: Any, markers: set[str]) -> dict[str, Any]:
    plain = {_plain_text(pair.key, markers): _plain(pair.value, markers) for pair in pairs.values}
    if len(plain) < len(pairs.values):
        markers.add("duplicate_key")
    return plain


def _plain_text(raw: bytes, markers: set[str]) -> str:
    text = raw.decode("utf-8", "replace")
    if text.encode() != raw:
        markers.add("bad_utf8")
    return text


def _plain(value: Any, markers: set[str]) -> Any:
    match value.WhichOneof("value"):
        case "string_value":
            return _plain_text(value.string_value, markers)
        case "bool_value":
            return value.bool_value
        case "int_value":
            return value.int_value
        case "double_value":
            number = value.double_value
            return number if math.isfinite(number) else str(number)
        case "array_value":
            return _plain_list(value.array_value, markers)
        case "kvlist_value":
            return _plain_object(value.kvlist_value, markers)
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
    return None


@cache
def _message_class(name: str) -> Any:
    from google.protobuf import message_factory  # type: ignore[import-untyped]

    pool = relaxed_pool()
    descriptor = pool.FindMessageTypeByName(f"opentelemetry.proto.common.v1.{name}")
    return message_factory.GetMessageClass(descriptor)


def _cast(values: pa.Array, marks: Marks) -> pa.Array:  # noqa: ARG001
    return values.cast(pa.string())


def _each(
    convert: Callable[[bytes], tuple[str, Collection[str]]],
) -> Callable[[pa.Array, Marks], pa.Array]:
    return lambda raw, marks: each_distinct(raw, convert, marks)


_RENDERERS: dict[str, Callable[[pa.Array, Marks], pa.Array]] = {
    "string": text,
    "bool": _cast,
    "int": _cast,
    "double": _cast,
    "array": _each(partial(_json, message="ArrayValue")),
    "kvlist": _each(partial(_json, message="KeyValueList")),
    "bytes": _each(_base64),
}
