"""Rows that share what their parent has: the columns of a block, resource, scope or metric are
given to each of its rows. That multiplies bytes, so memory is copied whole, and within a budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.decode.arrays import data_of, int32_view, offsets_of

MOST_BYTES = (1 << 31) - 1
"""What the shared columns of one block may take. A large resource or many rows are fine; a large
resource with many rows is an attack or a mistake, and no array holds more bytes than that."""
_CARELESS_BYTES = 1 << 24


class TooLarge(ValueError):
    """The rows would take an absurd amount of memory."""


@dataclass(slots=True)
class Budget:
    """How many bytes may still be used."""

    left: int = MOST_BYTES

    def spend(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise TooLarge(
                f"the rows would take {MOST_BYTES - self.left:,} bytes or more, because they share "
                f"long attributes or names; at most {MOST_BYTES:,} are allowed"
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
        offsets = int32_view(maps.offsets)
        spans = [(offsets[parent], offsets[parent + 1], rows) for parent, rows in self.runs]
        sizes = pc.subtract(maps.offsets.slice(1), maps.offsets.slice(0, len(maps.offsets) - 1))
        keys = _repeat(maps.keys, spans, budget)
        items = _repeat(maps.items, spans, budget)
        lengths = sizes.take(self.parents)
        ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
        return StringMaps(ends, keys, items).array()


def _repeat(strings: pa.Array, spans: list[tuple[int, int, int]], budget: Budget) -> pa.Array:
    """The strings of each span, so many times over."""
    starts = int32_view(offsets_of(strings))
    budget.spend(
        sum(
            (starts[end] - starts[begin] + 4 * (end - begin)) * times for begin, end, times in spans
        )
    )
    lengths = pc.fill_null(pc.binary_length(strings), 0)
    sizes = [(_slice(lengths, begin, end), times) for begin, end, times in spans]
    repeated = _repeat_bytes([(bytes(4), 1), *sizes])
    rows = repeated.size // 4 - 1
    ends = pc.cumulative_sum(pa.Array.from_buffers(pa.int32(), rows + 1, [None, repeated]))
    data = data_of(strings)
    pieces = [(data[starts[begin] : starts[end]], times) for begin, end, times in spans]
    buffers = [_repeat_valid(strings, spans), ends.buffers()[1], _repeat_bytes(pieces)]
    return pa.Array.from_buffers(pa.string(), rows, buffers)


def _repeat_valid(strings: pa.Array, spans: list[tuple[int, int, int]]) -> pa.Buffer | None:
    """Which of the repeated strings are valid, as a bitmap; None if all are."""
    if not strings.null_count:
        return None
    valid = strings.is_valid().cast(pa.uint8())
    repeated = _repeat_bytes([(_slice(valid, begin, end), times) for begin, end, times in spans])
    whole = pa.Array.from_buffers(pa.uint8(), repeated.size, [None, repeated])
    return pc.equal(whole, 1).buffers()[1]


def _slice(numbers: pa.Array, begin: int, end: int) -> memoryview | bytes:
    """The bytes of some numbers of a freshly made array."""
    if begin == end:
        return b""
    width = numbers.type.byte_width
    return memoryview(numbers.buffers()[1])[width * begin : width * end]


def _repeat_bytes(pieces: Sequence[tuple[memoryview | bytes, int]]) -> pa.Buffer:
    """Each piece so many times over, in memory of Arrow's pool, which uses it again and again."""
    buffer = pa.allocate_buffer(sum(len(piece) * times for piece, times in pieces))
    target = memoryview(buffer).cast("B")
    begin = 0
    for piece, times in pieces:
        end = begin + len(piece) * times
        target[begin:end] = bytes(piece) * times
        begin = end
    return buffer
