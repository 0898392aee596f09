"""Lines break where something is missing, and only there."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.web.charting.gaps import break_line
from lakebed.web.charting.lines import draw_lines


def pieces(values: str, *, of_steps: bool = False) -> list[str]:
    """Which of a row of steps belong together; a dot has no value."""
    there = [(float(n), 1.0) for n, each in enumerate(values) if each != "."]
    found = break_line([float(n) for n in range(len(values))], there, of_steps=of_steps)
    return ["".join(values[int(x)] for x, _ in piece) for piece in found]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ("abcdef", ["abcdef"]),
        ("abc.efg", ["abc", "efg"]),
        ("ab..ef", ["ab", "ef"]),
        ("abc...g...klm", ["abc", "g", "klm"]),
        ("....e....", ["e"]),
        ("a......h", ["a", "h"]),
        ("...de", ["de"]),
        ("......", []),
    ],
)
def test_a_line_breaks_at_missing_steps(values: str, expected: list[str]) -> None:
    assert pieces(values) == expected
    assert pieces(values, of_steps=True) == expected


def test_steps_between_regular_points_are_no_gaps() -> None:
    assert pieces("a.....b.....c.....d") == ["abcd"]
    assert pieces("a.....b....c......d.....e") == ["abcde"]
    assert pieces("a.....b.....c...........d.....e.....f") == ["abc", "def"]


def test_points_at_irregular_times_are_no_gaps_but_long_silence_is() -> None:
    irregular = "ab...c........d.e.....fg..h.......i"
    assert pieces(irregular) == ["abcdefghi"]
    assert pieces(irregular + "." * 40 + "xy") == ["abcdefghi", "xy"]
    xs = [0.0, 1.0, 1.2, 4.0, 4.5, 9.0, 9.1, 10.0]
    for of_steps in (False, True):
        assert len(break_line(xs, [(x, 1.0) for x in xs], of_steps=of_steps)) == 1


def test_what_is_counted_now_and_then_has_gaps_between() -> None:
    assert pieces("a..bc......d.e....fg", of_steps=True) == ["a", "bc", "d", "e", "fg"]
    assert pieces("a.b.c.d.e", of_steps=True) == ["abcde"]


def test_each_series_has_its_own_gaps() -> None:
    whole: Sequence[float | None] = [1, 2, 3, 4, 5, 6, 7]
    broken: Sequence[float | None] = [1, 2, 3, None, 5, 6, float("nan")]
    drawn = draw_lines(list(range(7)), [whole, broken, [None] * 7])
    assert [[len(piece) for piece in line] for line in drawn.lines] == [[7], [3, 2], []]


@given(st.lists(st.one_of(st.none(), st.floats(-9, 9)), max_size=40), st.booleans())
def test_no_point_is_lost(values: list[float | None], of_steps: bool) -> None:
    points = [(float(n), each) for n, each in enumerate(values) if each is not None]
    found = break_line([float(n) for n in range(len(values))], points, of_steps=of_steps)
    assert [point for piece in found for point in piece] == points
