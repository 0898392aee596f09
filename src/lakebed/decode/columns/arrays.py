"""Operations on whole Arrow arrays: texts from bytes, ids in hex, rows that share a parent's
values. No function here loops over rows in Python, except over distinct values that are not
well-formed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
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
    """Return the type of a list as view sets declare it."""
    return pa.list_(pa.field("element", kind))


@dataclass(slots=True)
class Marks:
    """The rows that could not be represented as they were sent, by kind of problem."""

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
        """Return the marks of the parents as marks of their children."""
        spread = Marks(len(parents))
        for marker, mask in self.masks.items():
            spread.add(marker, mask.take(parents))
        return spread

    @classmethod
    def joined(cls, parts: Sequence[Marks]) -> Marks:
        """Return the marks of concatenated rows."""
        joined = cls(sum(part.rows for part in parts))
        for marker in dict.fromkeys(marker for part in parts for marker in part.masks):
            masks = [part.masks.get(marker, pa.repeat(False, part.rows)) for part in parts]
            joined.add(marker, pa.concat_arrays(masks))
        return joined

    def gather(self, parents: pa.Array, rows: int) -> Marks:
        """Return the marks of children as marks of their parents, of which there are `rows`."""
        gathered = Marks(rows)
        if self.masks:
            every = counting(rows)
            for marker, mask in self.masks.items():
                gathered.add(marker, pc.is_in(every, parents.filter(mask)))
        return gathered

    def column(self) -> pa.Array:
        """The markers of each row, separated by commas; NULL where there are none."""
        present = [marker for marker in _MARKERS if marker in self.masks]
        code = None
        for bit, marker in enumerate(present):
            part = pc.multiply(self.masks[marker].cast(pa.int32()), pa.scalar(1 << bit, pa.int32()))
            code = part if code is None else pc.add(code, part)
        if code is None:
            return pa.nulls(self.rows, pa.string())
        spelled = [
            ",".join(marker for bit, marker in enumerate(present) if number >> bit & 1) or None
            for number in range(1 << len(present))
        ]
        return pa.array(spelled, pa.string()).take(code)


def counting(count: int) -> pa.Array:
    """0, 1, 2 …"""
    return pa.arange(0, count)


def offsets_of(array: pa.Array) -> pa.Array:
    """Return each value's offset in the data of a string or binary array, and the end."""
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
    non_empty = pc.greater(pc.binary_length(texts), 0)
    if texts.offset or texts.null_count or not len(texts):
        return pc.if_else(non_empty, texts, None)
    buffers = [non_empty.buffers()[1], *texts.buffers()[1:]]
    return pa.Array.from_buffers(texts.type, len(texts), buffers)


def text(raw: pa.Array, marks: Marks) -> pa.Array:
    """Bytes as strings. Where they are not UTF-8, U+FFFD stands in and the row is marked."""
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:
        return each_distinct(raw, _replace_bad_utf8, marks)


def _replace_bad_utf8(value: bytes) -> tuple[str, Collection[str]]:
    text = value.decode("utf-8", "replace")
    return text, () if text.encode() == value else ("bad_utf8",)


def each_distinct(
    raw: pa.Array, convert: Callable[[bytes], tuple[str, Collection[str]]], marks: Marks
) -> pa.Array:
    """Convert each distinct value in Python; the second result has its markers."""
    encoded = raw.dictionary_encode()
    converted = [convert(value) for value in encoded.dictionary.to_pylist()]
    for marker in {marker for _, markers in converted for marker in markers}:
        marked = pa.array([marker in markers for _, markers in converted], pa.bool_())
        marks.add(marker, marked.take(encoded.indices))
    return pa.array([text for text, _ in converted], pa.string()).take(encoded.indices)


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
    non_empty = pc.greater(lengths, 0)
    wrong = pc.and_(non_empty, pc.not_equal(lengths, length))
    if pc.any(wrong).as_py():
        marks.add("bad_id_length", wrong)
    buffers = [non_empty.buffers()[1], doubled.buffers()[1], pa.py_buffer(digits)]
    return pa.Array.from_buffers(pa.string(), len(raw), buffers)


def instants(nanoseconds: pa.Array, marks: Marks) -> pa.Array:
    """Exact nanoseconds: NULL where absent (0) or, marked, where past the year 2262."""
    minimum = pc.min(nanoseconds).as_py()
    if minimum is None or minimum > 0:
        return nanoseconds
    if minimum < 0:
        marks.add("absurd_time", pc.less(nanoseconds, 0))
    return pc.if_else(pc.greater(nanoseconds, 0), nanoseconds, None)


def counts(numbers: pa.Array, marks: Marks) -> pa.Array:
    """Counts: NULL, and marked, where they do not fit into 63 bits."""
    minimum = pc.min(numbers).as_py()
    if minimum is None or minimum >= 0:
        return numbers
    marks.add("absurd_count", pc.less(numbers, 0))
    return pc.if_else(pc.less(numbers, 0), None, numbers)


def microseconds(nanoseconds: pa.Array) -> pa.Array:
    """Exact nanoseconds as the timestamps that Spark reads."""
    return pc.divide(nanoseconds, 1000).cast(TIME)


def first_valid(arrays: list[pa.Array], otherwise: Any) -> pa.Array:
    """For each row, the value of the first array that has one."""
    merged = arrays[-1] if arrays else otherwise
    for array in reversed(arrays[:-1]):
        merged = pc.if_else(array.is_valid(), array, merged) if array.null_count else array
    return merged


def enum_text(numbers: pa.Array, names: list[str | None]) -> pa.Array:
    """The names of an enum's numbers; what has none is the number itself."""
    has_name = pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, len(names)))
    named = pa.array(names, pa.string()).take(pc.if_else(has_name, numbers, 0))
    if pc.all(has_name).as_py() is not False:
        return named
    return pc.if_else(has_name, named, numbers.cast(pa.string()))


def relist(lists: pa.Array, values: pa.Array) -> pa.Array:
    """The same lists around other values, one for each of the flattened old ones."""
    offsets = lists.offsets
    if offsets[0].as_py():
        offsets = pc.subtract(offsets, offsets[0])
    mask = lists.is_null() if lists.null_count else None
    return pa.ListArray.from_arrays(offsets, values, type=list_of(values.type), mask=mask)


def relist_structs(
    lists: pa.Array, columns: list[pa.Array], kind: pa.DataType, item_marks: Marks, marks: Marks
) -> pa.Array:
    """Lists of structs made of these columns; problems inside a list mark its row."""
    if item_marks.masks:
        marks.add_all(item_marks.gather(pc.list_parent_indices(lists), len(lists)))
    return relist(lists, pa.StructArray.from_arrays(columns, fields=list(kind)))
