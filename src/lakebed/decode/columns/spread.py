"""Rows that share their parent's values: the columns of a block, resource, scope or metric are
repeated for each of its rows. That multiplies bytes, so memory is copied whole, and within a
budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.decode.columns.arrays import int32_view, offsets_of

MOST_BYTES = (1 << 31) - 1
"""The limit for the shared columns of one block. A large resource or many rows are fine; a large
resource with many rows is an attack or a mistake, and no array holds more bytes.
"""
_CARELESS_BYTES = 1 << 24
_CACHED_BYTES = 1 << 16


class TooLarge(ValueError):
    """The rows would take an absurd amount of memory."""


@dataclass(slots=True)
class Budget:
    """A limit on the bytes of decoded values."""

    free: int = MOST_BYTES

    def spend(self, size: int) -> None:
        self.free -= size
        if self.free < 0:
            raise TooLarge(
                f"the rows would take {MOST_BYTES - self.free:,} bytes or more, too many for one "
                "block: they are very many, or they share very long attributes or names"
            )


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

    def spread(self, values: pa.Array, budget: Budget) -> pa.Array:
        """The parents' values, given to each of their rows; raises `TooLarge`."""
        if pa.types.is_string(values.type):
            longest = pc.max(pc.binary_length(values)).as_py() or 0
            if longest * len(self.parents) > _CARELESS_BYTES:
                budget.spend(pc.sum(pc.binary_length(values).take(self.parents)).as_py() or 0)
        return values.take(self.parents)

    def spread_maps(self, maps: StringMaps, budget: Budget) -> pa.Array:
        """The parents' maps, given to each of their rows: memory is copied run by run.

        Raises `TooLarge` if that takes more than the budget has left.
        """
        offsets = int32_view(maps.offsets).tolist()
        spans = [(offsets[parent], offsets[parent + 1], rows) for parent, rows in self.runs]
        keys = _repeat(maps.keys, spans, budget)
        items = _repeat(maps.items, spans, budget)
        sizes = pc.subtract(maps.offsets.slice(1), maps.offsets.slice(0, len(maps.offsets) - 1))
        lengths = sizes.take(self.parents)
        ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
        return StringMaps(ends, keys, items).array()


Spans = list[tuple[int, int, int]]
"""The begin and the end of each piece, and the number of its repetitions."""


def _repeat(strings: pa.Array, spans: Spans, budget: Budget) -> pa.Array:
    """The strings of each span, so many times over."""
    starts = int32_view(offsets_of(strings)).tolist()
    places = [(starts[begin], starts[end], times) for begin, end, times in spans]
    entries = sum((end - begin) * times for begin, end, times in spans)
    budget.spend(4 * entries + sum((end - begin) * times for begin, end, times in places))
    lengths = pc.fill_null(pc.binary_length(strings), 0)
    sizes = _repeat_bytes(lengths.buffers()[1], [(4 * b, 4 * e, times) for b, e, times in spans], 4)
    ends = pc.cumulative_sum(pa.Array.from_buffers(pa.int32(), entries + 1, [None, sizes]))
    valid = None
    if strings.null_count:
        flags = _repeat_bytes(strings.is_valid().cast(pa.uint8()).buffers()[1], spans, 0)
        flags = pa.Array.from_buffers(pa.uint8(), entries, [None, flags])
        valid = pc.equal(flags, 1).buffers()[1]
    data = _repeat_bytes(strings.buffers()[2], places, 0)
    return pa.Array.from_buffers(pa.string(), entries, [valid, ends.buffers()[1], data])


def _repeat_bytes(source: pa.Buffer | None, places: Spans, zeros: int) -> pa.Buffer:
    """Return so many zeros, then each piece of the source repeated. The memory is of Arrow's
    pool, which reuses it."""
    buffer = pa.allocate_buffer(zeros + sum((end - begin) * times for begin, end, times in places))
    target = memoryview(buffer).cast("B")
    target[:zeros] = bytes(zeros)
    raw = memoryview(b"" if source is None else source)
    filled = zeros
    for begin, end, times in places:
        size = end - begin
        if not size:
            continue
        together = min(times, 1 + _CACHED_BYTES // size)
        chunk = bytes(raw[begin:end]) * together
        while times >= together:
            target[filled : filled + len(chunk)] = chunk
            filled += len(chunk)
            times -= together
        target[filled : filled + times * size] = chunk[: times * size]
        filled += times * size
    return buffer
