"""Arrow arrays handled whole: texts out of bytes, ids in hex, rows that share a parent's values.

No function here loops over rows in Python, except over distinct values that are out of order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

TIME = pa.timestamp("us", "UTC")
STRING_MAP = pa.map_(pa.string(), pa.string())

_MARKERS = (
    "bad_utf8",
    "bad_id_length",
    "absurd_time",
    "absurd_count",
    "duplicate_key",
)


def list_of(kind: pa.DataType) -> pa.DataType:
    """A list as view sets declare it."""
    return pa.list_(pa.field("element", kind))


class TooLarge(ValueError):
    """The rows would take an absurd amount of memory."""


@dataclass(slots=True)
class Marks:
    """Which rows could not be represented as they were sent, by kind of problem."""

    rows: int
    masks: dict[str, pa.Array] = field(default_factory=dict)

    def add(self, marker: str, mask: pa.Array) -> None:
        """Mark the rows where the mask is true; a null is no mark."""
        mask = pc.fill_null(mask, False)
        before = self.masks.get(marker)
        self.masks[marker] = mask if before is None else pc.or_(before, mask)

    def add_all(self, other: Marks) -> None:
        """Take over marks of the same rows."""
        for marker, mask in other.masks.items():
            self.add(marker, mask)

    def spread(self, parents: pa.Array) -> Marks:
        """The marks of the parents as marks of their children."""
        spread = Marks(len(parents))
        for marker, mask in self.masks.items():
            spread.add(marker, mask.take(parents))
        return spread

    def gather(self, parents: pa.Array, rows: int) -> Marks:
        """The marks of children as marks of their parents, of which there are so many."""
        gathered = Marks(rows)
        if self.masks:
            every = counting(rows)
            for marker, mask in self.masks.items():
                gathered.add(marker, pc.is_in(every, parents.filter(mask)))
        return gathered

    def column(self) -> pa.Array:
        """The markers of each row, separated by commas; NULL where there are none."""
        found = [marker for marker in _MARKERS if marker in self.masks]
        code = None
        for bit, marker in enumerate(found):
            part = pc.multiply(self.masks[marker].cast(pa.int32()), pa.scalar(1 << bit, pa.int32()))
            code = part if code is None else pc.add(code, part)
        if code is None:
            return pa.nulls(self.rows, pa.string())
        spelled = [
            ",".join(marker for bit, marker in enumerate(found) if number >> bit & 1) or None
            for number in range(1 << len(found))
        ]
        return pa.array(spelled, pa.string()).take(code)


def counting(count: int) -> pa.Array:
    """0, 1, 2 …"""
    return pa.arange(0, count)


def offsets_of(array: pa.Array) -> pa.Array:
    """Where each value of a string or binary array begins in its data, and where the last ends."""
    return pa.Array.from_buffers(
        pa.int32(), len(array) + 1, [None, array.buffers()[1]], offset=array.offset
    )


def data_of(array: pa.Array) -> memoryview:
    """The data that `offsets_of` points into."""
    data = array.buffers()[2]
    return memoryview(b"") if data is None else memoryview(data)


def int32_view(array: pa.Array) -> memoryview:
    """The numbers of an int32 array without nulls."""
    return memoryview(array.buffers()[1]).cast("i")[array.offset : array.offset + len(array)]


def null_where_empty(texts: pa.Array) -> pa.Array:
    """Without presence on the wire, empty and absent are the same: NULL."""
    some = pc.greater(pc.binary_length(texts), 0)
    if texts.offset or texts.null_count or not len(texts):
        return pc.if_else(some, texts, None)
    buffers = [some.buffers()[1], *texts.buffers()[1:]]
    return pa.Array.from_buffers(texts.type, len(texts), buffers)


def text(raw: pa.Array, marks: Marks) -> pa.Array:
    """Bytes as strings. Where they are not UTF-8, U+FFFD stands in and the row is marked."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return each_distinct(raw, _replace_bad_utf8, marks)


def _replace_bad_utf8(value: bytes) -> tuple[str, bool]:
    shown = value.decode("utf-8", "replace")
    return shown, shown.encode() != value


def each_distinct(
    raw: pa.Array, convert: Callable[[bytes], tuple[str, bool]], marks: Marks
) -> pa.Array:
    """Convert each distinct value in Python; the second result says whether its UTF-8 was bad."""
    encoded = raw.dictionary_encode()
    converted = [convert(value) for value in encoded.dictionary.to_pylist()]
    if any(bad for _, bad in converted):
        bad = pa.array([bad for _, bad in converted], pa.bool_())
        marks.add("bad_utf8", bad.take(encoded.indices))
    return pa.array([shown for shown, _ in converted], pa.string()).take(encoded.indices)


def optional_text(raw: pa.Array, marks: Marks) -> pa.Array:
    """Bytes as strings, NULL where empty."""
    return null_where_empty(text(raw, marks))


def hex_ids(raw: pa.Array, length: int, marks: Marks) -> pa.Array:
    """Ids as lowercase hex, NULL where empty; other lengths than the expected are marked."""
    offsets = offsets_of(raw)
    begin, end = offsets[0].as_py(), offsets[-1].as_py()
    digits = data_of(raw)[begin:end].hex().encode()
    doubled = pc.multiply(pc.subtract(offsets, offsets[0]), pa.scalar(2, pa.int32()))
    lengths = pc.binary_length(raw)
    some = pc.greater(lengths, 0)
    wrong = pc.and_(some, pc.not_equal(lengths, length))
    if pc.any(wrong).as_py():
        marks.add("bad_id_length", wrong)
    buffers = [some.buffers()[1], doubled.buffers()[1], pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.string(), len(raw), buffers)


def instants(nanoseconds: pa.Array, marks: Marks) -> pa.Array:
    """Exact nanoseconds: NULL where absent (0) or, marked, where past the year 2262."""
    if pc.any(pc.less(nanoseconds, 0)).as_py():
        marks.add("absurd_time", pc.less(nanoseconds, 0))
    return pc.if_else(pc.greater(nanoseconds, 0), nanoseconds, None)


def counts(numbers: pa.Array, marks: Marks) -> pa.Array:
    """Counts: NULL, and marked, where they do not fit into 63 bits."""
    if not pc.any(pc.less(numbers, 0)).as_py():
        return numbers
    marks.add("absurd_count", pc.less(numbers, 0))
    return pc.if_else(pc.less(numbers, 0), None, numbers)


def microseconds(nanoseconds: pa.Array) -> pa.Array:
    """Exact nanoseconds as the timestamps that Spark reads."""
    return pc.divide(nanoseconds, 1000).cast(TIME)


@dataclass(frozen=True, slots=True)
class StringMaps:
    """Maps of strings, one per row, as the arrays they are made of."""

    offsets: pa.Array
    """int32, one more than there are rows, beginning at 0."""
    keys: pa.Array
    items: pa.Array

    def array(self) -> pa.Array:
        return pa.MapArray.from_arrays(self.offsets, self.keys, self.items)


@dataclass(frozen=True, slots=True)
class Family:
    """Rows and the parents they belong to; children of one parent stand together."""

    parents: pa.Array
    """For each row, the index of its parent."""
    runs: tuple[tuple[int, int], ...]
    """Parents in the order of their rows, and how many rows each has there."""

    @classmethod
    def of(cls, parents: pa.Array) -> Family:
        runs = pc.run_end_encode(parents)
        ends = [0, *runs.run_ends.to_pylist()]
        lengths = [end - begin for begin, end in pairwise(ends)]
        return cls(parents, tuple(zip(runs.values.to_pylist(), lengths, strict=True)))

    def spread(self, values: pa.Array) -> pa.Array:
        """The parents' values, given to each of their rows."""
        return values.take(self.parents)

    def spread_maps(self, maps: StringMaps, most_bytes: int) -> pa.Array:
        """The parents' maps, given to each of their rows: memory is copied run by run.

        Raises `TooLarge` if that takes more than so many bytes.
        """
        offsets = int32_view(maps.offsets)
        spans = [(offsets[parent], offsets[parent + 1], rows) for parent, rows in self.runs]
        sizes = pc.subtract(maps.offsets.slice(1), maps.offsets.slice(0, len(maps.offsets) - 1))
        keys = _repeat(maps.keys, spans, most_bytes)
        items = _repeat(maps.items, spans, most_bytes)
        lengths = sizes.take(self.parents)
        ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
        return StringMaps(ends, keys, items).array()


def _repeat(strings: pa.Array, spans: list[tuple[int, int, int]], most_bytes: int) -> pa.Array:
    """The strings of each span, so many times over."""
    starts = int32_view(offsets_of(strings))
    total = sum(
        (starts[end] - starts[begin] + 4 * (end - begin)) * times for begin, end, times in spans
    )
    if total > most_bytes:
        raise TooLarge(f"attributes that all rows share would take {total:,} bytes")
    if strings.null_count:
        entries = b"".join(
            memoryview(pa.array(range(begin, end), pa.int32()).buffers()[1]).tobytes() * times
            for begin, end, times in spans
            if end > begin
        )
        return strings.take(_int32_array(entries))
    data = data_of(strings)
    lengths = memoryview(pc.binary_length(strings).buffers()[1]) if len(strings) else b""
    pieces = [data[starts[begin] : starts[end]].tobytes() * times for begin, end, times in spans]
    sizes = [
        bytes(4),
        *(bytes(lengths[4 * begin : 4 * end]) * times for begin, end, times in spans),
    ]
    offsets = pc.cumulative_sum(_int32_array(b"".join(sizes)))
    buffers = [None, offsets.buffers()[1], pa.py_buffer(b"".join(pieces))]
    return pa.Array.from_buffers(pa.string(), len(offsets) - 1, buffers)


def _int32_array(raw: bytes) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(raw) // 4, [None, pa.py_buffer(raw)])


def first_valid(arrays: list[pa.Array], otherwise: Any) -> pa.Array:
    """For each row, the value of the first array that has one."""
    merged = arrays[-1] if arrays else otherwise
    for array in reversed(arrays[:-1]):
        merged = pc.if_else(array.is_valid(), array, merged) if array.null_count else array
    return merged
