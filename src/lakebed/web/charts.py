"""The geometry of charts, in the units of an SVG's view box. Pure; templates draw it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 1000, 120


@dataclass(frozen=True, slots=True)
class Bar:
    """One rectangle."""

    x: float
    y: float
    width: float
    height: float
    kind: str


def stack(columns: Sequence[Mapping[str, int]], order: Sequence[str]) -> list[list[Bar]]:
    """Columns side by side over the whole width, each with its kinds on top of each other, the
    first of the order at the bottom. What is there is always visible."""
    highest = max((sum(each.values()) for each in columns), default=0)
    width = WIDTH / max(1, len(columns))
    drawn = []
    for place, column in enumerate(columns):
        bars = []
        top = float(HEIGHT)
        for kind in order:
            if column.get(kind):
                height = max(1.5, column[kind] / highest * HEIGHT)
                top -= height
                bars.append(
                    Bar(
                        round(place * width + width * 0.08, 2),
                        round(max(0.0, top), 2),
                        round(width * 0.84, 2),
                        round(height, 2),
                        kind,
                    )
                )
        drawn.append(bars)
    return drawn


def find_ceiling(value: float) -> float:
    """A round number at or above a value: 1, 2 or 5 with zeros."""
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value)
