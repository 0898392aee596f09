"""Charts hold all their values, whatever they are, and show how those change."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from lakebed.model.time import format_instant
from lakebed.web.charting.lines import (
    HEIGHT,
    WIDTH,
    draw_lines,
    find_ceiling,
    find_limits,
    find_top,
)
from lakebed.web.times import mark_durations, mark_times

finite = st.floats(allow_nan=False, allow_infinity=False)


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
@example(5e-324)
@example(1e23)
@example(math.nextafter(1000, 0))
@example(1.7e308)
def test_a_ceiling_is_above_and_near(value: float) -> None:
    assert value <= find_ceiling(value)
    if 1e-300 < value < 1e300:
        assert find_ceiling(value) <= 1.6 * value


@given(st.lists(finite, min_size=1, max_size=5), st.booleans())
def test_all_values_are_in_the_picture(values: list[float], from_zero: bool) -> None:
    drawn = draw_lines(list(range(len(values))), [values], from_zero=from_zero)
    for x, y in (point for piece in drawn.lines[0] for point in piece):
        assert 0 <= x <= WIDTH
        assert -0.01 <= y <= HEIGHT + 0.01
    assert not from_zero or drawn.low <= 0 <= drawn.high


def test_limits_come_near_where_they_may() -> None:
    assert find_limits(36.1, 36.9, from_zero=True) == (0, 40)
    low, high = find_limits(36.1, 36.9, from_zero=False)
    assert 35.8 <= low <= 36.1
    assert 36.9 <= high <= 37.2
    assert find_limits(1, 90, from_zero=False) == (0, 100)
    assert find_limits(-37, -36, from_zero=False)[1] < 0
    assert find_limits(5, 5, from_zero=False) == (0, 5)
    assert find_limits(-3, 4, from_zero=False) == (-3, 4)
    assert find_limits(0, 0, from_zero=False) == (0, 1)


def test_the_top_of_columns_is_a_whole_round_number() -> None:
    assert [find_top([{"a": n}]) for n in (0, 1, 2, 7, 13, 101)] == [1, 1, 2, 8, 15, 150]
    assert find_top([]) == 1


def test_marks_are_at_round_times() -> None:
    hour = mark_times("2026-11-15T12:03:00Z", "2026-11-15T13:03:00Z")
    assert [each.text for each in hour] == ["12:10", "12:20", "12:30", "12:40", "12:50", "13:00"]
    assert hour[2].percent == 45.0
    night = mark_times("2026-11-15T21:00:00Z", "2026-11-16T03:00:00Z")
    assert [each.text for each in night] == ["22:00", "23:00", "11-16", "01:00", "02:00"]
    moment = mark_times("2026-11-15T12:00:00.000100Z", "2026-11-15T12:00:00.000500Z")
    assert moment[0].text == "12:00:00.000200"
    years = mark_times("1990-01-01T00:00:00Z", "2026-01-01T00:00:00Z")
    assert years[0].text == "1999-11-25"
    assert mark_times("9999-12-31T00:00:00Z", format_instant(10**18)) == []


@given(st.integers(0, 10**16), st.integers(1, 10**16))
def test_marks_are_few_and_inside(begin: int, length: int) -> None:
    marks = mark_times(format_instant(begin), format_instant(begin + length))
    assert len(marks) <= 7
    assert all(3.9 <= each.percent <= 96.1 for each in marks) or length < 1000
    assert len(marks) >= 2 or length < 10


@given(st.integers(1, 10**18))
def test_marks_of_durations_are_few_and_inside(nanoseconds: int) -> None:
    marks = mark_durations(nanoseconds)
    assert len(marks) <= 5
    assert all(0 < percent <= 93 for percent, _at in marks) or nanoseconds < 1000
    assert len(marks) >= 1 or nanoseconds < 3
    assert mark_durations(1_000_000) == [
        (20.0, 200_000),
        (40.0, 400_000),
        (60.0, 600_000),
        (80.0, 800_000),
    ]
