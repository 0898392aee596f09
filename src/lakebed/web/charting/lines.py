"""Lines, and the geometry of charts in the units of an SVG's view box. Pure; templates draw it."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakebed.web.charting.gaps import Points, break_line

WIDTH, HEIGHT = 1000, 120
_TINIEST = 1e-300
"""Powers of ten much below this one are zero to a double."""
_FLAT = 1e-9
"""The part of a number below which differences are those of arithmetic."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line over time: a number for each bin, or none."""

    name: str
    values: Sequence[float | None]
    latest: float | None


def make_line(name: str, values: Sequence[float | None]) -> Line:
    """Return a line with its latest number."""
    latest = next((value for value in reversed(values) if value is not None), None)
    return Line(name, values, latest)


def by_size(line: Line) -> tuple[float, str]:
    """Return a sort key that puts the largest line first."""
    return -sum(abs(value) for value in line.values if value), line.name


@dataclass(frozen=True, slots=True)
class Bar:
    """One rectangle."""

    x: float
    y: float
    width: float
    height: float
    kind: str


def stack(columns: Sequence[Mapping[str, int]], order: Sequence[str]) -> list[list[Bar]]:
    """Return columns side by side over the whole width, each with its kinds stacked, the first of
    the order at the bottom, below a round number. Even the smallest part is visible."""
    highest = find_top(columns)
    width = WIDTH / max(1, len(columns))
    stacks = []
    for index, column in enumerate(columns):
        bars = []
        top = float(HEIGHT)
        for kind in order:
            if column.get(kind):
                height = max(1.5, column[kind] / highest * HEIGHT)
                top -= height
                bars.append(
                    Bar(
                        round(index * width + width * 0.08, 2),
                        round(max(0.0, top), 2),
                        round(width * 0.84, 2),
                        round(height, 2),
                        kind,
                    )
                )
        stacks.append(bars)
    return stacks


def find_top(columns: Sequence[Mapping[str, int]]) -> int:
    """Return a round number that no column is higher than."""
    return max(1, round(find_ceiling(max((sum(column.values()) for column in columns), default=0))))


def find_ceiling(value: float) -> float:
    """Return a round number at or above a value: few digits with zeros."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(max(value, _TINIEST)))
    steps = (step * power for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10, 15))
    return min(next(step for step in steps if step >= value), sys.float_info.max)


@dataclass(frozen=True, slots=True)
class Drawn:
    """Lines in the view box, and what its edges mean."""

    lines: Sequence[Sequence[Points]]
    """The points of the pieces of each series, between which it has gaps."""
    low: float
    high: float


def draw_lines(
    xs: Sequence[float],
    series: Sequence[Sequence[float | None]],
    height: float = HEIGHT,
    *,
    from_zero: bool = True,
    of_steps: bool = False,
) -> Drawn:
    """Return lines through values over the whole width, between round numbers, one of which is
    zero; or, not from zero, as near to the values as is needed to see how they change. A missing
    number makes a gap in a line; of steps, every missing one, unless the series regularly leaves
    out the same."""
    numbers = [y for ys in series for y in ys if y is not None and math.isfinite(y)]
    low, high = find_limits(min(numbers, default=0.0), max(numbers, default=1.0), from_zero)
    first_x, last_x = min(xs, default=0.0), max(xs, default=0.0)
    wide, half = (last_x - first_x) or 1.0, (high / 2 - low / 2) or 1.0  # their sum may be infinite
    places = sorted(xs)
    lines = []
    for ys in series:
        points = sorted(
            (x, y) for x, y in zip(xs, ys, strict=True) if y is not None and math.isfinite(y)
        )
        lines.append(
            [
                [
                    (
                        round((x - first_x) / wide * WIDTH, 2),
                        round(height - (y / 2 - low / 2) / half * height, 2),
                    )
                    for x, y in piece
                ]
                for piece in break_line(places, points, of_steps=of_steps)
            ]
        )
    return Drawn(lines, low, high)


def find_limits(smallest: float, largest: float, from_zero: bool) -> tuple[float, float]:
    """Return round numbers around all values."""
    if smallest == largest == 0:
        return 0.0, 1.0
    size = max(abs(smallest), abs(largest))
    spread = largest - smallest
    if from_zero or smallest <= 0 <= largest or not _FLAT * size < spread < size / 2:
        high = find_ceiling(largest) if largest > 0 else 0.0
        return (-find_ceiling(-smallest) if smallest < 0 else 0.0), high
    step = find_ceiling(spread / 4)
    return math.floor(smallest / step) * step, math.ceil(largest / step) * step
