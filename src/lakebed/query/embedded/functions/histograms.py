"""Histograms in SQL: made from values by an aggregate, added by another, read by functions.
A histogram is a struct, so a query can give it out, a view can store it, and the histograms of
many minutes, added, are the histogram of the hour.

NULL, NaN and infinite values are in no histogram: they change neither ``count`` nor any other
field. A value below ``start`` counts in the first bin, one at or above ``end`` in the last.
``min`` and ``max`` are those of the values themselves, NULL while there are none. Over no rows at
all the bins are unknown, and both aggregates return NULL, as ``sum`` does.

Each group takes 8 bytes for each bin, in every partition of the plan, in memory that the engine
does not count.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import Accumulator, AggregateUDF, ScalarUDF, udaf, udf

from lakebed.errors import BadInput

HISTOGRAM = pa.struct(
    [
        ("start", pa.float64()),
        ("end", pa.float64()),
        ("min", pa.float64()),
        ("max", pa.float64()),
        ("sum", pa.float64()),
        ("sum_sq", pa.float64()),
        ("count", pa.uint64()),
        ("bins", pa.list_(pa.uint64())),
    ]
)
MAX_BINS = 1_000_000

_MANY_VALUES = 500
_ENOUGH_VALUES = 8192
_ALWAYS_SET = ("start", "end", "sum", "sum_sq", "count", "bins")


def functions() -> list[ScalarUDF | AggregateUDF]:
    """Return every function of this module, to be registered with a session.

    ``make_histogram(start, end, bins, value)`` and ``sum_histograms(h)`` aggregate.
    ``quantile_from_histogram(h, q)``, ``variance_from_histogram(h)`` (of a sample),
    ``count_from_histogram(h)`` and ``sum_from_histogram(h)`` read one, and return NULL for NULL.
    """
    number = pa.float64()
    made_of = [number, number, pa.int64(), number]
    return [
        udaf(_Make, made_of, HISTOGRAM, [HISTOGRAM], "immutable", "make_histogram"),
        udaf(_Sum, [HISTOGRAM], HISTOGRAM, [HISTOGRAM], "immutable", "sum_histograms"),
        udf(_quantiles, [HISTOGRAM, number], number, "immutable", "quantile_from_histogram"),
        udf(_variances, [HISTOGRAM], number, "immutable", "variance_from_histogram"),
        udf(_counts, [HISTOGRAM], pa.uint64(), "immutable", "count_from_histogram"),
        udf(_sums, [HISTOGRAM], number, "immutable", "sum_from_histogram"),
    ]


@dataclass(frozen=True, slots=True)
class _Shape:
    """The start, end and number of bins, which histograms must share to be added."""

    start: float
    end: float
    bins: int

    def __str__(self) -> str:
        return f"{self.start} to {self.end} in {self.bins} bins"

    @property
    def bin_width(self) -> float:
        return (self.end - self.start) / self.bins

    def check(self) -> None:
        """Raise `BadInput` if no histogram can have this shape."""
        if not (math.isfinite(self.start) and math.isfinite(self.end)):
            raise BadInput(
                f"a histogram needs a finite start and end, not {self.start} and {self.end}"
            )
        if self.start >= self.end:
            raise BadInput(
                f"a histogram needs a start below its end, not {self.start} and {self.end}"
            )
        if not 1 <= self.bins <= MAX_BINS:
            raise BadInput(f"a histogram needs 1 to {MAX_BINS} bins, not {self.bins}")
        if not 0 < self.bin_width < math.inf:
            raise BadInput(f"the bins of {self} are too wide or too narrow for a double")


class _Histogram(Accumulator):
    """A histogram that grows; it has no shape until the first row gives it one.

    Its state is the histogram itself, so merging partitions adds histograms.
    """

    def __init__(self) -> None:
        self._shape: _Shape | None = None
        self._min = math.inf
        self._max = -math.inf
        self._sum = 0.0
        self._sum_sq = 0.0
        self._count = 0
        self._bins = array("Q")

    def state(self) -> list[pa.Scalar]:
        return [self.evaluate()]

    def merge(self, states: list[pa.Array]) -> None:
        self._add_histograms(states[0])

    def evaluate(self) -> pa.Scalar:
        if self._shape is None:
            return pa.scalar(None, HISTOGRAM)
        smallest, largest = (self._min, self._max) if self._count else (None, None)
        fields = {
            "start": self._shape.start,
            "end": self._shape.end,
            "min": smallest,
            "max": largest,
            "sum": self._sum,
            "sum_sq": self._sum_sq,
            "count": self._count,
            "bins": self._bins,
        }
        return pa.scalar(fields, HISTOGRAM)

    def _add_few(self, shape: _Shape, values: Iterable[float]) -> None:
        finite = [value for value in values if math.isfinite(value)]
        if not finite:
            return
        self._widen(min(finite), max(finite))
        self._sum += sum(finite)
        self._sum_sq += sum(value * value for value in finite)
        self._count += len(finite)
        start, end, width, last = shape.start, shape.end, shape.bin_width, shape.bins - 1
        for value in finite:
            self._bins[min(int((min(max(value, start), end) - start) / width), last)] += 1

    def _add_many(self, shape: _Shape, values: pa.Array) -> None:
        """Add values; `_add_few` does the same faster for a few."""
        values = values.filter(pc.is_finite(values))
        if not len(values):
            return
        extremes = pc.min_max(values).as_py()
        self._widen(extremes["min"], extremes["max"])
        self._sum += pc.sum(values).as_py()
        self._sum_sq += pc.sum(pc.multiply(values, values)).as_py()
        self._count += len(values)
        inside = pc.min_element_wise(pc.max_element_wise(values, shape.start), shape.end)
        bins = pc.floor(pc.divide(pc.subtract(inside, shape.start), shape.bin_width))
        bins = pc.min_element_wise(bins.cast(pa.int64()), shape.bins - 1)
        numbers, counts = pc.value_counts(bins).flatten()
        for number, count in zip(numbers.to_pylist(), counts.to_pylist(), strict=True):
            self._bins[number] += count

    def _add_histograms(self, histograms: pa.StructArray) -> None:
        histograms = histograms.drop_null()
        if not len(histograms):
            return
        columns = _columns(histograms)
        counts = columns["bins"].flatten()
        if counts.null_count or any(columns[name].null_count for name in _ALWAYS_SET):
            raise BadInput("a histogram needs all its fields: only min and max may be NULL")
        lengths = pc.list_value_length(columns["bins"])
        for shape in _shapes(columns["start"], columns["end"], lengths):
            self._set_shape(shape)
        self._widen(pc.min(columns["min"]).as_py(), pc.max(columns["max"]).as_py())
        self._sum += pc.sum(columns["sum"]).as_py()
        self._sum_sq += pc.sum(columns["sum_sq"]).as_py()
        self._count += pc.sum(columns["count"]).as_py()
        total = _add_rows(counts, len(histograms))
        self._bins = array("Q", _bytes_of(pc.add(_as_arrow(self._bins, pa.uint64()), total)))

    def _set_shape(self, shape: _Shape) -> None:
        """Set the shape. `BadInput` if it is impossible, or not the one set before."""
        if self._shape is None:
            shape.check()
            self._shape = shape
            self._bins = array("Q", bytes(8 * shape.bins))
        elif self._shape != shape:
            raise BadInput(
                f"histograms of {self._shape} and of {shape} cannot be added:"
                " start, end and bins must be the same"
            )

    def _widen(self, smallest: float | None, largest: float | None) -> None:
        self._min = self._min if smallest is None else min(self._min, smallest)
        self._max = self._max if largest is None else max(self._max, largest)


class _Make(_Histogram):
    """The aggregate. Values wait until there are many: a group may get two or three at a time, and
    a call of Arrow costs as much for two as for a thousand."""

    def __init__(self) -> None:
        super().__init__()
        self._arguments = (b"", b"", b"")
        self._waiting = array("d")

    def update(self, *values: pa.Array) -> None:
        *arguments, numbers = values
        if not len(numbers):
            return
        if not self._repeats_arguments(arguments):
            self._take_arguments(arguments)
        if numbers.null_count:
            numbers = numbers.drop_null()
        self._waiting.frombytes(_bytes_of(numbers))
        if len(self._waiting) >= _ENOUGH_VALUES:
            self._add_waiting()

    def evaluate(self) -> pa.Scalar:
        self._add_waiting()
        return super().evaluate()

    def _repeats_arguments(self, arguments: list[pa.Array]) -> bool:
        """Return True if all rows certainly have the arguments of the row before."""
        return all(
            not argument.null_count and _bytes_of(argument) == previous * len(argument)
            for argument, previous in zip(arguments, self._arguments, strict=True)
        )

    def _take_arguments(self, arguments: list[pa.Array]) -> None:
        start, end, bins = arguments
        for shape in _shapes(start, end, bins):
            self._set_shape(shape)
        self._arguments = (
            _bytes_of(start.slice(0, 1)),
            _bytes_of(end.slice(0, 1)),
            _bytes_of(bins.slice(0, 1)),
        )

    def _add_waiting(self) -> None:
        if self._shape is None:
            return
        if len(self._waiting) < _MANY_VALUES:
            self._add_few(self._shape, self._waiting)
        else:
            self._add_many(self._shape, _as_arrow(self._waiting, pa.float64()))
        self._waiting = array("d")


class _Sum(_Histogram):
    def update(self, *values: pa.Array) -> None:
        self._add_histograms(values[0])


def _shapes(start: pa.Array, end: pa.Array, bins: pa.Array) -> list[_Shape]:
    """Return the distinct shapes among these rows, one or more; `BadInput` if a part is missing."""
    if start.null_count or end.null_count or bins.null_count:
        raise BadInput("start, end and bins of a histogram must not be NULL")
    parts = [pc.unique(part).to_pylist() for part in (start, end, bins)]
    if any(len(part) > 1 for part in parts):
        parts = [part.to_pylist() for part in (start, end, bins)]
    return list(dict.fromkeys(_Shape(*part) for part in zip(*parts, strict=True)))


def _add_rows(values: pa.Array, rows: int) -> pa.Array:
    """Return the sum of so many rows of equal length that lie one after another."""
    width = len(values) // rows
    while rows > 1:
        half = rows // 2
        upper, lower = values.slice(0, half * width), values.slice(half * width, half * width)
        remainder = values.slice(2 * half * width)
        values = pc.add(upper, lower)
        if len(remainder):
            values = pa.concat_arrays([values, remainder])
        rows -= half
    return values


def _as_arrow(numbers: array[Any], type_: pa.DataType) -> pa.Array:
    """Return the same memory as an array of Arrow's."""
    return pa.Array.from_buffers(type_, len(numbers), [None, pa.py_buffer(numbers)])


def _bytes_of(numbers: pa.Array) -> bytes:
    """Return the memory of 8-byte numbers, none of them NULL."""
    if not len(numbers):
        return b""
    view = memoryview(numbers.buffers()[1])
    return view[8 * numbers.offset : 8 * (numbers.offset + len(numbers))].tobytes()


def _columns(histograms: pa.StructArray) -> dict[str, pa.Array]:
    return dict(zip(HISTOGRAM.names, histograms.flatten(), strict=True))


def _counts(histograms: pa.StructArray) -> pa.Array:
    return pc.struct_field(histograms, "count")


def _sums(histograms: pa.StructArray) -> pa.Array:
    return pc.struct_field(histograms, "sum")


_NOISE = 2.0**-46
"""The largest rounding error of a square, as a share of it."""


def _variances(histograms: pa.StructArray) -> pa.Array:
    """Return sample variances, as SQL does. NULL if there are fewer than two values, their squares
    are beyond a double, or the values are so much larger than their differences that rounding hides
    those."""
    columns = _columns(histograms)
    count = columns["count"].cast(pa.float64(), safe=False)
    mean = pc.divide(columns["sum"], count)
    variance = pc.subtract(pc.divide(columns["sum_sq"], count), pc.multiply(mean, mean))
    variance = pc.multiply(variance, pc.divide(count, pc.subtract(count, 1.0)))
    exact = pc.greater(variance, pc.multiply(pc.multiply(mean, mean), _NOISE))
    all_same = pc.and_(pc.equal(columns["min"], columns["max"]), pc.greater(count, 1.0))
    reliable = pc.if_else(pc.and_(exact, pc.is_finite(variance)), variance, None)
    return pc.if_else(all_same, 0.0, reliable)


def _quantiles(histograms: pa.StructArray, q: pa.Array) -> pa.Array:
    """Return the value that the fraction q of the values do not exceed, as if those of a bin were
    spread evenly over it; never below min or above max. NULL if there are no values. `BadInput` if
    q is not 0 to 1."""
    _refuse_no_fraction(q)
    num_rows = len(histograms)
    if not num_rows:
        return pa.array([], pa.float64())
    columns = _columns(histograms)
    answerable = pc.and_(pc.greater(columns["count"], 0), pc.greater_equal(q, 0))
    row = pc.indices_nonzero(
        pc.and_(answerable, pc.greater(pc.list_value_length(columns["bins"]), 0))
    )
    columns = _columns(histograms.take(row))

    bin_counts = columns["bins"].flatten()
    bin_row = pc.list_parent_indices(columns["bins"])
    first = columns["bins"].offsets.slice(0, len(row))
    count_below = pc.subtract(pc.cumulative_sum(bin_counts), bin_counts)
    count_below = pc.subtract(count_below, count_below.take(first).take(bin_row)).cast(
        pa.float64(), safe=False
    )
    bin_counts = bin_counts.cast(pa.float64(), safe=False)
    rank = pc.multiply(q.take(row), columns["count"].cast(pa.float64(), safe=False)).take(bin_row)
    # One bin of a row: the first whose values reach the rank. Rank 0 is in the first with any.
    reaches_rank = pc.and_(
        pc.greater(bin_counts, 0), pc.less_equal(rank, pc.add(count_below, bin_counts))
    )
    missed_before = pc.or_(pc.less(count_below, rank), pc.equal(count_below, 0))
    hits = pc.indices_nonzero(pc.and_(reaches_rank, missed_before))

    owner = bin_row.take(hits)
    share = pc.divide(pc.subtract(rank.take(hits), count_below.take(hits)), bin_counts.take(hits))
    number = pc.subtract(hits.cast(pa.int64()), first.take(owner).cast(pa.int64()))
    start, end, smallest, largest = (columns[n].take(owner) for n in ("start", "end", "min", "max"))
    lengths = pc.list_value_length(columns["bins"]).take(owner).cast(pa.float64())
    width = pc.divide(pc.subtract(end, start), lengths)
    # Of the outer bins, which take what is beyond them, and of all others what min and max leave.
    at = number.cast(pa.float64())
    low = pc.max_element_wise(pc.add(start, pc.multiply(width, at)), smallest)
    low = pc.if_else(pc.equal(at, 0.0), smallest, low)
    high = pc.min_element_wise(pc.add(start, pc.multiply(width, pc.add(at, 1.0))), largest)
    high = pc.if_else(pc.equal(pc.add(at, 1.0), lengths), largest, high)
    value = pc.add(low, pc.multiply(pc.subtract(high, low), share))
    value = pc.min_element_wise(pc.max_element_wise(value, smallest), largest)
    row_order = pc.inverse_permutation(row.take(owner).cast(pa.int64()), max_index=num_rows - 1)
    return value.take(row_order)


def _refuse_no_fraction(q: pa.Array) -> None:
    fraction = pc.and_(pc.greater_equal(q, 0), pc.less_equal(q, 1))
    wrong = pc.index(fraction, False).as_py()
    if wrong >= 0:
        raise BadInput(f"a quantile is asked for by a number from 0 to 1, not {q[wrong].as_py()}")
