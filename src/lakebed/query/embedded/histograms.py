"""Histograms in SQL: made from values by an aggregate, added by another, read by functions.
A histogram is a struct that a query can give out, store in a view and add up again later:
the parts of an hour, added, are the histogram of the hour.

NULL, NaN and infinite values are in no histogram: they change neither ``count`` nor any other
field. A value below ``start`` counts in the first bin, one at or above ``end`` in the last.
``min`` and ``max`` are those of the values themselves, NULL while there are none. Over no rows at
all nobody said how wide the histogram is, and the aggregates give NULL, as ``sum`` does.

A group takes 8 bytes for each bin, in every partition of the plan, outside the engine's memory
pool. An error of an aggregate reaches the caller as its one sentence.
"""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass

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

_ALWAYS_SET = ("start", "end", "sum", "sum_sq", "count", "bins")


def functions() -> list[ScalarUDF | AggregateUDF]:
    """Every function of this module, to be registered with a session by its own name.

    ``make_histogram(start, end, bins, value)`` and ``sum_histograms(h)`` aggregate;
    ``quantile_from_histogram(h, q)``, ``variance_from_histogram(h)``, ``count_from_histogram(h)``
    and ``sum_from_histogram(h)`` read, and give NULL for NULL.
    """
    number, size = pa.float64(), pa.uint64()
    return [
        udaf(
            _MakeHistogram,
            [number, number, pa.int64(), number],
            HISTOGRAM,
            [HISTOGRAM],
            "immutable",
            "make_histogram",
        ),
        udaf(
            _SumHistograms, [HISTOGRAM], HISTOGRAM, [HISTOGRAM], "immutable", "sum_histograms"
        ),
        udf(_quantiles, [HISTOGRAM, number], number, "immutable", "quantile_from_histogram"),
        udf(_variances, [HISTOGRAM], number, "immutable", "variance_from_histogram"),
        udf(_counts, [HISTOGRAM], size, "immutable", "count_from_histogram"),
        udf(_sums, [HISTOGRAM], number, "immutable", "sum_from_histogram"),
    ]


@dataclass(frozen=True, slots=True)
class _Shape:
    """What histograms must share to be added."""

    start: float
    end: float
    bins: int

    def __str__(self) -> str:
        return f"{self.start} to {self.end} in {self.bins} bins"

    @property
    def bin_width(self) -> float:
        return (self.end - self.start) / self.bins

    def check(self) -> None:
        """`BadInput` if no histogram can be like this."""
        if not (math.isfinite(self.start) and math.isfinite(self.end)):
            raise BadInput(f"start and end must be finite numbers, not {self.start} and {self.end}")
        if self.start >= self.end:
            raise BadInput(f"start must be less than end, not {self.start} and {self.end}")
        if not 1 <= self.bins <= MAX_BINS:
            raise BadInput(f"bins must be 1 to {MAX_BINS}, not {self.bins}")
        if not (math.isfinite(self.bin_width) and self.start + self.bin_width > self.start):
            raise BadInput(f"{self} are not bins that a double can tell apart")


class _Histogram(Accumulator):
    """A histogram that grows. Without a shape until the first row, or the first histogram."""

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
        self.add_histograms(states[0])

    def evaluate(self) -> pa.Scalar:
        if self._shape is None:
            return pa.scalar(None, HISTOGRAM)
        some = self._count > 0
        numbers: list[float | None] = [
            self._shape.start,
            self._shape.end,
            self._min if some else None,
            self._max if some else None,
            self._sum,
            self._sum_sq,
        ]
        columns = [pa.array([number], pa.float64()) for number in numbers]
        columns.append(pa.array([self._count], pa.uint64()))
        columns.append(pa.ListArray.from_arrays([0, len(self._bins)], _as_arrow(self._bins)))
        return pa.StructArray.from_arrays(columns, fields=list(HISTOGRAM))[0]

    def be_shaped(self, shape: _Shape) -> None:
        """Take this shape, or keep it. `BadInput` if there is another, or it is impossible."""
        if self._shape is None:
            shape.check()
            self._shape = shape
            self._bins = array("Q", bytes(8 * shape.bins))
        elif self._shape != shape:
            raise BadInput(f"a histogram of {shape} cannot be added to one of {self._shape}")

    def add_values(self, shape: _Shape, values: pa.Array) -> None:
        self.be_shaped(shape)
        values = values.filter(pc.is_finite(values))
        if not len(values):
            return
        self._widen(pc.min_max(values).as_py())
        self._sum += pc.sum(values).as_py()
        self._sum_sq += pc.sum(pc.multiply(values, values)).as_py()
        self._count += len(values)
        inside = pc.min_element_wise(pc.max_element_wise(values, shape.start), shape.end)
        bins = pc.floor(pc.divide(pc.subtract(inside, shape.start), shape.bin_width))
        bins = pc.min_element_wise(bins.cast(pa.int64()), shape.bins - 1)
        numbers, counts = pc.value_counts(bins).flatten()
        for number, count in zip(numbers.to_pylist(), counts.to_pylist(), strict=True):
            self._bins[number] += count

    def add_histograms(self, histograms: pa.StructArray) -> None:
        histograms = histograms.drop_null()
        if not len(histograms):
            return
        columns = dict(zip(HISTOGRAM.names, histograms.flatten(), strict=True))
        counts = columns["bins"].flatten()
        if counts.null_count or any(columns[name].null_count for name in _ALWAYS_SET):
            raise BadInput("a histogram must have all its fields; only min and max may be NULL")
        for shape in _shapes(columns):
            self.be_shaped(shape)
        self._widen({"min": pc.min(columns["min"]).as_py(), "max": pc.max(columns["max"]).as_py()})
        self._sum += pc.sum(columns["sum"]).as_py()
        self._sum_sq += pc.sum(columns["sum_sq"]).as_py()
        self._count += pc.sum(columns["count"]).as_py()
        total = pc.add(_as_arrow(self._bins), _add_rows(counts, len(histograms)))
        self._bins = array("Q", total.buffers()[1].to_pybytes()[: 8 * len(total)])

    def _widen(self, extremes: dict[str, float | None]) -> None:
        least, greatest = extremes["min"], extremes["max"]
        if least is not None:
            self._min = min(self._min, least)
        if greatest is not None:
            self._max = max(self._max, greatest)


class _MakeHistogram(_Histogram):
    def update(self, *values: pa.Array) -> None:
        start, end, bins, numbers = values
        if not len(numbers):
            return
        shapes = dict.fromkeys(zip(*(pc.unique(a).to_pylist() for a in (start, end, bins))))
        ...


class _SumHistograms(_Histogram):
    def update(self, *values: pa.Array) -> None:
        self.add_histograms(values[0])
