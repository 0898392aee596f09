"""Percentiles from buckets: in the bucket of the true one, and exactly where it can be told."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.web.charting.percentiles import (
    Bucket,
    Counts,
    confine,
    explicit_buckets,
    exponential_buckets,
    find_percentile,
    read_buckets,
    subtract,
)

INF = math.inf
percents = st.sampled_from((1, 50, 90, 95, 99))
numbers = st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=1, max_size=60)
bounds = st.lists(st.floats(-1e6, 1e6), max_size=12, unique=True).map(sorted)
magnitudes = st.floats(1e-9, 1e9)
signed = st.lists(
    st.one_of(magnitudes, magnitudes, magnitudes.map(lambda each: -each), st.just(0.0)),
    min_size=1,
    max_size=60,
)


def true_percentile(values: list[float], percent: int) -> float:
    """The least value that so many of a hundred do not exceed."""
    return sorted(values)[max(0, -(-len(values) * percent // 100) - 1)]


def counted(values: list[float], limits: list[float]) -> list[int]:
    """How many values a sender counts into each bucket, which has its upper bound."""
    edges = [-INF, *limits, INF]
    return [sum(low < each <= high for each in values) for low, high in pairwise(edges)]


def explicit(values: list[float], limits: list[float]) -> Counts:
    found = explicit_buckets(limits, counted(values, limits))
    assert found is not None
    return found


def index_of(value: float, scale: int) -> int:
    """The bucket of a positive value: it is above the lower edge, and not above the upper."""
    index = math.ceil(math.log2(value) * 2.0**scale) - 1
    while 2.0 ** (index * 2.0**-scale) >= value:
        index -= 1
    while 2.0 ** ((index + 1) * 2.0**-scale) < value:
        index += 1
    return index


def exponential(values: list[float], scale: int) -> Counts:
    sides: list[tuple[int, list[int]]] = []
    for sign in (1, -1):
        found = Counter(index_of(sign * each, scale) for each in values if sign * each > 0)
        first = min(found, default=0)
        sides.append((first, [found[n] for n in range(first, max(found, default=-1) + 1)]))
    return exponential_buckets(scale, values.count(0.0), 0.0, sides[0], sides[1])


def holding(value: float, buckets: Counts) -> Bucket:
    """The bucket that a value was counted into; negative ones have their lower edge."""
    return next(
        (low, high)
        for low, high in buckets
        if low < value <= high or low == value == high or (value < 0 and low <= value < high)
    )


@given(numbers, bounds, percents)
def test_an_estimate_is_in_the_bucket_of_the_truth(
    values: list[float], limits: list[float], percent: int
) -> None:
    found = find_percentile(explicit(values, limits), percent)
    if not limits:
        assert found is None
        return
    low, high = holding(true_percentile(values, percent), explicit(values, limits))
    assert found is not None
    if high == INF:
        assert found == low
    else:
        assert low <= found <= high


@given(numbers, bounds, percents)
def test_the_least_and_the_greatest_bound_an_estimate(
    values: list[float], limits: list[float], percent: int
) -> None:
    buckets = confine(explicit(values, limits), min(values), max(values))
    found = find_percentile(buckets, percent)
    truth = true_percentile(values, percent)
    low, high = holding(truth, explicit(values, limits))
    assert found is not None
    assert max(low, min(values)) <= found <= min(high, max(values))


@given(signed, st.integers(-2, 6), percents)
def test_an_exponential_estimate_is_as_near_as_its_scale(
    values: list[float], scale: int, percent: int
) -> None:
    truth = true_percentile(values, percent)
    found = find_percentile(exponential(values, scale), percent)
    assert found is not None
    if truth == 0:
        assert found == 0
        return
    size = abs(truth)
    low, high = (2.0 ** ((index_of(size, scale) + more) * 2.0**-scale) for more in (0, 1))
    assert low <= abs(found) <= high
    assert math.copysign(1, found) == math.copysign(1, truth)


@given(signed, signed, st.integers(-2, 6), st.integers(0, 3))
def test_a_coarser_scale_is_no_restart(
    first: list[float], more: list[float], scale: int, coarser: int
) -> None:
    before = exponential(first, scale)
    after = exponential(first + more, scale - coarser)
    assert subtract(after, before) == exponential(more, scale - coarser)


@given(numbers, numbers, bounds, bounds)
def test_other_bounds_are_compared_where_they_can_be(
    first: list[float], more: list[float], old: list[float], new: list[float]
) -> None:
    grown = subtract(explicit(first + more, new), explicit(first, old))
    assert grown is not None
    assert grown == {(low, high): sum(low < each <= high for each in more) for low, high in grown}
    assert sum(grown.values()) == len(more)
    if old == new:
        assert grown == explicit(more, new)


@given(numbers, numbers, bounds, bounds)
def test_a_restart_is_seen(
    first: list[float], more: list[float], old: list[float], new: list[float]
) -> None:
    assert subtract(explicit(first, new), explicit(first + more, old)) is None


@pytest.mark.parametrize(
    ("buckets", "percent", "expected"),
    [
        ({(10, 20): 10, (20, 30): 10}, 50, 20),
        ({(10, 20): 10, (20, 30): 10}, 25, 15),
        ({(10, 20): 10, (20, 30): 10}, 90, 28),
        ({(10, 20): 2, (40, 50): 2}, 50, 20),
        ({(10, 20): 2, (40, 50): 2}, 75, 45),
        ({(0, 10): 10, (5, 15): 10}, 50, 7.5),  # 5 below 5, 15 below 10
        ({(0, 0): 6, (0, 8): 4}, 50, 0),
        ({(0, 0): 6, (0, 8): 4}, 80, 4),
        ({(-8, 0): 5, (0, 0): 5}, 60, 0),
        ({(0, 10): 4, (4, 4): 4}, 50, 4),  # 1.6 are below the four
        ({(-INF, 10): 10}, 50, 5),  # from zero, as none is said to be negative
        ({(-INF, -10): 10}, 50, -10),
        ({(10, INF): 10}, 50, 10),
        ({(0, 10): 99, (10, INF): 1}, 99, 10),
        ({(-1.7e308, 1.7e308): 2}, 50, 0),
        ({(-INF, INF): 10}, 50, None),
        ({}, 50, None),
    ],
)
def test_values_lie_evenly_in_their_bucket(
    buckets: Counts, percent: int, expected: float | None
) -> None:
    assert find_percentile(buckets, percent) == (
        None if expected is None else pytest.approx(expected, abs=1e-9)
    )


def test_what_contradicts_itself_has_no_buckets_or_bounds() -> None:
    assert explicit_buckets([1, 2], [1, 2]) is None
    assert explicit_buckets([2, 1], [1, 2, 3]) is None
    assert explicit_buckets([1, math.nan], [1, 2, 3]) is None
    assert explicit_buckets([1, INF], [1, 2, 0]) == {(-INF, 1): 1, (1, INF): 2}
    assert confine({(0, 10): 1}, 7, 3) == confine({(0, 10): 1}, math.nan, None) == {(0, 10): 1}
    assert confine({(0, 10): 1, (10, 20): 2}, 12, 18) == {(12, 12): 1, (12, 18): 2}
    assert read_buckets({"kind": "histogram", "bucket_counts": []}) is None


@pytest.mark.parametrize("scale", [-(1 << 31), -20, 20, (1 << 31) - 1])
def test_no_scale_is_too_much(scale: int) -> None:
    """Whatever a sender says, its values are in some bucket."""
    far = (1 << 31) - 1
    buckets = exponential_buckets(scale, 2, -1.0, (-far, [1, 1]), (far, [1, 1]))
    assert sum(buckets.values()) == 6
    assert all(low <= high for low, high in buckets)
    find_percentile(buckets, 99)


def test_values_near_zero_have_the_sign_of_the_others() -> None:
    assert exponential_buckets(0, 3, 0.5, (1, [1]), (0, [])) == {(0, 0.5): 3, (2, 4): 1}
    assert exponential_buckets(0, 3, 0.5, (0, []), (1, [1])) == {(-4, -2): 1, (-0.5, 0): 3}
    assert exponential_buckets(0, 3, 0.5, (0, []), (0, [])) == {(-0.5, 0.5): 3}
