"""Percentiles from the buckets of histograms. Pure.

A histogram only has the number of values between two edges. They are assumed to be spread evenly in
a bucket, so the error of an estimate is at most the width of its bucket. Buckets of several
histograms may overlap, because the bounds differ or an exponential histogram changed its scale:
everything here works on buckets by their edges.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

Bucket = tuple[float, float]
"""The edges; a bucket whose edges are the same holds exactly that value."""
Counts = Mapping[Bucket, int]
"""The number of values in each bucket that has any."""

_BEYOND = 1024
"""Powers of two from here on are beyond a double."""
_COARSEST = 40
"""At this scale every bucket but two reaches from zero or to infinity, and also beyond it."""


def read_buckets(row: Mapping[str, Any]) -> Counts | None:
    """Return the buckets of a row of ``measures``; None if it has none, or they contradict each
    other."""
    if row["kind"] == "exponential_histogram":
        if row["scale"] is None:
            return None
        return exponential_buckets(
            row["scale"],
            row["zero_count"] or 0,
            float(row["zero_threshold"] or 0.0),
            (row["positive_offset"] or 0, row["positive_bucket_counts"] or ()),
            (row["negative_offset"] or 0, row["negative_bucket_counts"] or ()),
        )
    if not row["bucket_counts"]:
        return None
    return explicit_buckets(
        [float(bound) for bound in row["explicit_bounds"]], row["bucket_counts"]
    )


def explicit_buckets(bounds: Sequence[float], counts: Sequence[int]) -> Counts | None:
    """Return buckets between bounds, the first and the last of which are open."""
    edges = [-math.inf, *bounds, math.inf]
    ascending = all(low < high for low, high in pairwise(bounds))
    if len(counts) != len(bounds) + 1 or not ascending or any(map(math.isnan, bounds)):
        return None
    pairs = pairwise(edges)
    return {bucket: count for bucket, count in zip(pairs, counts, strict=True) if count}


def exponential_buckets(
    scale: int,
    zero_count: int,
    zero_threshold: float,
    positive: tuple[int, Sequence[int]],
    negative: tuple[int, Sequence[int]],
) -> Counts:
    """Return buckets whose edges are powers of 2 to the power of 2^-scale; offsets with their
    counts."""
    near = zero_threshold if 0 < zero_threshold < math.inf else 0.0
    with_negative, with_positive = any(negative[1]), any(positive[1])
    buckets: dict[Bucket, int] = {}

    def add(low: float, high: float, count: int | None) -> None:
        if count:
            buckets[low, high] = buckets.get((low, high), 0) + count

    for index, count in enumerate(negative[1], start=negative[0]):
        add(-_power(index + 1, scale), -_power(index, scale), count)
    # If all others are positive, values near zero are not counted as negative, and vice versa.
    one_sign = with_negative != with_positive
    add(
        0.0 if one_sign and with_positive else -near,
        0.0 if one_sign and with_negative else near,
        zero_count,
    )
    for index, count in enumerate(positive[1], start=positive[0]):
        add(_power(index, scale), _power(index + 1, scale), count)
    return buckets


def _power(index: int, scale: int) -> float:
    exponent = math.ldexp(index, min(-scale, _COARSEST))
    return 2.0**exponent if exponent < _BEYOND else math.inf


def subtract(after: Counts, before: Counts) -> Counts | None:
    """Return the increase of a cumulative histogram; None if it has less than before, so that it
    must have begun anew. Where the buckets differ, those that both can distinguish are compared."""
    if before.keys() <= after.keys():
        increase = {bucket: count - before.get(bucket, 0) for bucket, count in after.items()}
    else:
        edges = _shared_edges(after, before)
        increase = {}
        for counts, sign in ((after, 1), (before, -1)):
            for (low, high), count in counts.items():
                wider = edges[bisect_right(edges, low) - 1], edges[bisect_left(edges, high)]
                increase[wider] = increase.get(wider, 0) + sign * count
    if any(count < 0 for count in increase.values()):
        return None
    return {bucket: count for bucket, count in increase.items() if count}


def _shared_edges(one: Counts, other: Counts) -> list[float]:
    """Return the edges that go through no bucket of either."""
    edges = sorted({edge for counts in (one, other) for bucket in counts for edge in bucket})
    inside: set[float] = set()
    for low, high in (*one, *other):
        inside.update(edges[bisect_right(edges, low) : bisect_left(edges, high)])
    return [edge for edge in edges if edge not in inside]


def confine(counts: Counts, smallest: float | None, largest: float | None) -> dict[Bucket, int]:
    """Return the same values, none of which is below the smallest or above the largest."""
    low = -math.inf if smallest is None or math.isnan(smallest) else smallest
    high = math.inf if largest is None or math.isnan(largest) else largest
    if low > high:
        low, high = -math.inf, math.inf
    confined: dict[Bucket, int] = {}
    for (begin, end), count in counts.items():
        bucket = min(max(begin, low), high), max(min(end, high), low)
        confined[bucket] = confined.get(bucket, 0) + count
    return confined


def find_percentile(counts: Counts, percent: int) -> float | None:
    """Return the value that so many of a hundred values do not exceed; None if there are none.

    Of a bucket without an upper edge only its lower edge is known. One without a lower edge begins
    at zero if it reaches above it; otherwise only its upper edge is known.
    """
    closed_counts: dict[Bucket, int] = {}
    for bucket, count in counts.items():
        closed_bucket = _close(bucket)
        if closed_bucket is not None:
            closed_counts[closed_bucket] = closed_counts.get(closed_bucket, 0) + count
    if not closed_counts:
        return None
    rank = sum(closed_counts.values()) * percent / 100
    edges = sorted({edge for bucket in closed_counts for edge in bucket})
    index = bisect_left(edges, rank, key=lambda edge: _count_until(closed_counts, edge))
    upper = edges[min(index, len(edges) - 1)]
    if index == 0:
        return upper
    lower = edges[index - 1]
    at_it = sum(count for bucket, count in closed_counts.items() if bucket == (upper, upper))
    count_below = _count_until(closed_counts, lower)
    count_reached = _count_until(closed_counts, upper) - at_it
    if rank >= count_reached:
        return upper
    share = (rank - count_below) / (count_reached - count_below)
    return min(max(lower * (1 - share) + upper * share, lower), upper)


def _close(bucket: Bucket) -> Bucket | None:
    low, high = bucket
    if math.isfinite(low) and math.isfinite(high):
        return bucket
    if math.isfinite(low):
        return low, low
    if math.isfinite(high):
        return (0.0, high) if high > 0 else (high, high)
    return None


def _count_until(counts: Counts, value: float) -> float:
    """Return how many values are at or below one, if those of a bucket lie evenly in it."""
    total = 0.0
    for (low, high), count in counts.items():
        if high <= value:
            total += count
        elif low < value:
            total += count * ((value / 2 - low / 2) / (high / 2 - low / 2))  # none beyond a double
    return total
