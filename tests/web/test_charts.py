"""Charts hold all their values, whatever they are, and show how those change."""

from __future__ import annotations

import math

from hypothesis import example, given
from hypothesis import strategies as st

from lakebed.web.charts import HEIGHT, WIDTH, draw_lines, find_ceiling, find_limits

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
    for x, y in drawn.lines[0]:
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
