"""Increases as lines of the amount that was added per second. Pure.

An increase belongs to the time in which it grew, which is rarely that of one step: exporters send
every minute, independent of the steps of a chart. So it is spread over the steps that it touches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lakebed.model.time import SECOND
from lakebed.web.charting.lines import Line, make_line
from lakebed.web.times import Bins

_Shares = dict[int, float]
"""Amounts by the number of a bin."""


@dataclass(frozen=True, slots=True)
class Growth:
    """The amount that one series added between two instants."""

    label: str
    series: str
    since: int
    until: int
    amount: float
    is_first: bool = False
    """True if the series is known not to have existed before."""

    @property
    def length(self) -> int:
        """The duration in microseconds."""
        return self.until - self.since


def draw_rates(growths: Iterable[Growth], bins: Bins, *, is_cumulative: bool) -> list[Line]:
    """Return a line for each label: in each bin the amount that its series added there, by the part
    of the bin in which they were observed to grow. Senders of deltas send nothing when there is
    nothing to add, so theirs is the whole bin, between the first and the last of all."""
    by_label: dict[str, list[Growth]] = defaultdict(list)
    for growth in growths:
        by_label[growth.label].append(growth)
    hulls: list[tuple[int, int]] = []
    if not is_cumulative and by_label:
        hulls = [_find_hull(growth for group in by_label.values() for growth in group)]
    lines = []
    for label, group in by_label.items():
        aligned = _align(group) if is_cumulative else group
        added = _spread(aligned, bins)
        spans = hulls or _unite(aligned)
        covered = _spread((Growth(label, "", *span, span[1] - span[0]) for span in spans), bins)
        lines.append(
            make_line(
                label,
                [
                    added[number] / (covered.get(number) or bins.width) * SECOND
                    if number in added
                    else None
                    for number in range(bins.count)
                ],
            )
        )
    return lines


def _find_hull(growths: Iterable[Growth]) -> tuple[int, int]:
    listed = list(growths)
    return min(growth.since for growth in listed), max(growth.until for growth in listed)


def _align(growths: Sequence[Growth]) -> list[Growth]:
    """Return the same, but series whose points arrive at different moments of a minute begin and
    end together: until its next point is due, and as long before its first one, a series is assumed
    to grow at the same rate. Else every chart of several would begin and end with a slope."""
    begin, end = _find_hull(growths)
    by_series: dict[str, list[Growth]] = defaultdict(list)
    for growth in sorted(growths, key=lambda growth: growth.until):
        by_series[growth.series].append(growth)
    for group in by_series.values():
        first, last = group[0], group[-1]
        if not first.is_first and 0 < first.since - begin <= first.length:
            group[0] = _stretch(group[0], since=begin)
        if 0 < end - last.until <= last.length:
            group[-1] = _stretch(group[-1], until=end)
    return [growth for group in by_series.values() for growth in group]


def _stretch(growth: Growth, *, since: int | None = None, until: int | None = None) -> Growth:
    since = growth.since if since is None else since
    until = growth.until if until is None else until
    amount = growth.amount * (until - since) / growth.length
    return replace(growth, since=since, until=until, amount=amount)


def _spread(growths: Iterable[Growth], bins: Bins) -> _Shares:
    """Return the amount in each bin, in proportion; amounts outside of all bins are left out."""
    shares: _Shares = defaultdict(float)
    for growth in growths:
        for number, part in _cut(growth, bins):
            shares[number] += growth.amount * part
    return shares


def _cut(growth: Growth, bins: Bins) -> Iterator[tuple[int, float]]:
    """Yield the bins that it touches, with the part of it that is in each."""
    if growth.length <= 0:
        if 0 <= bins.find(growth.until) < bins.count:
            yield bins.find(growth.until), 1.0
        return
    first = max(0, bins.find(growth.since))
    last = min(bins.count - 1, bins.find(growth.until - 1))
    for number in range(first, last + 1):
        begin = max(growth.since, bins.begin_of(number))
        end = min(growth.until, bins.begin_of(number + 1))
        yield number, (end - begin) / growth.length


def _unite(growths: Iterable[Growth]) -> list[tuple[int, int]]:
    """Return the times in which any of them grew, without overlaps."""
    merged: list[tuple[int, int]] = []
    for since, until in sorted((growth.since, growth.until) for growth in growths):
        if merged and since <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], until)
        else:
            merged.append((since, until))
    return merged
