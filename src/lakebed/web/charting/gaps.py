"""Gaps in lines, where values are missing. Pure.

A step without a value is a gap only if one was due: a sender with one point a minute leaves most
steps of ten seconds empty. So gaps are measured by the interval of the series, if it is regular.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

Points = Sequence[tuple[float, float]]

_LATE = 1.5
"""The ratio to the usual distance from which on a point of a regular series is missing."""
_VERY_LATE = 4.0
"""The same for irregular series, where some points always come late."""


def break_line(xs: Sequence[float], points: Points, *, of_steps: bool = False) -> list[Points]:
    """Return the pieces of a line, all of whose points are in order, as are the positions ``xs``
    where it could have some. Of steps: if those are regular and its points are not, each step
    without a point is a gap, for example where rows are counted and zero is not."""
    max_distance = _find_longest(xs, points, of_steps=of_steps)
    pieces: list[list[tuple[float, float]]] = []
    for point in points:
        if pieces and point[0] - pieces[-1][-1][0] <= max_distance:
            pieces[-1].append(point)
        else:
            pieces.append([point])
    return list(pieces)


def _find_longest(xs: Sequence[float], points: Points, *, of_steps: bool) -> float:
    """Return the largest distance between two neighbours of a line without a gap."""
    steps, distances = _measure(xs), _measure([x for x, _ in points])
    is_grid = _is_regular(steps)
    nothing_between = _LATE * _quartiles(steps)[1] if is_grid else max(steps, default=0.0)
    if len(distances) < 2 or (of_steps and is_grid and not _is_regular(distances)):
        return nothing_between
    usual = _quartiles(distances)[1]
    if _is_regular(distances):
        return _LATE * usual
    return max(nothing_between, _VERY_LATE * usual)


def _measure(xs: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(xs) if after > before]


def _quartiles(distances: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(distances) or [0.0]
    last = len(ordered) - 1
    return ordered[last // 4], ordered[last * 3 // 4]


def _is_regular(distances: Sequence[float]) -> bool:
    low, high = _quartiles(distances)
    return high <= _LATE * low
