"""Increases as lines of what was added per second. Pure.

An increase belongs to the time in which it grew, which is rarely that of one step: exporters speak
every minute, whatever the steps of a chart are. So it is spread over the steps that it touches.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from lakebed.model.time import SECOND
from lakebed.web.charting.lines import Line, make_line
from lakebed.web.times import Bins

_Shares = dict[int, float]
"""By number of a bin, what is in it."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What one series added between two instants."""

    label: str
    series: str
    since: int
    until: int
    amount: float
    is_first: bool = False
    """Whether its series is known not to have been there before."""

    @property
    def length(self) -> int:
        """How long it took."""
        return self.until - self.since


def draw_rates(growths: Iterable[Growth], bins: Bins, *, is_cumulative: bool) -> list[Line]:
    """A line for each label: in each bin what its series added there, by the part of the bin in
    which they were seen to grow. Senders of deltas are silent when there is nothing to add, so
    theirs is the whole bin, between the first and the last of all."""
    by_label: dict[str, list[Growth]] = defaultdict(list)
    for each in growths:
        by_label[each.label].append(each)
    known: list[tuple[int, int]] = []
    if not is_cumulative and by_label:
        known = [_find_hull(each for found in by_label.values() for each in found)]
    lines = []
    for label, found in by_label.items():
        grown = _align(found) if is_cumulative else found
        added = _spread(grown, bins)
        seen = known or _unite(grown)
        covered = _spread((Growth(label, "", *each, each[1] - each[0]) for each in seen), bins)
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
    found = list(growths)
    return min(each.since for each in found), max(each.until for each in found)


def _align(growths: Sequence[Growth]) -> list[Growth]:
    """The same, where series that are heard of at different moments of a minute begin and end
    together: until its next point is due, and as long before its first one, a series is taken to
    grow as it does. Else every chart of several would begin and end with a slope."""
    begin, end = _find_hull(growths)
    by_series: dict[str, list[Growth]] = defaultdict(list)
    for each in sorted(growths, key=lambda each: each.until):
        by_series[each.series].append(each)
    for found in by_series.values():
        first, last = found[0], found[-1]
        if not first.is_first and 0 < first.since - begin <= first.length:
            found[0] = _stretch(found[0], since=begin)
        if 0 < end - last.until <= last.length:
            found[-1] = _stretch(found[-1], until=end)
    return [each for found in by_series.values() for each in found]


def _stretch(growth: Growth, *, since: int | None = None, until: int | None = None) -> Growth:
    since = growth.since if since is None else since
    until = growth.until if until is None else until
    amount = growth.amount * (until - since) / growth.length
    return replace(growth, since=since, until=until, amount=amount)


def _spread(growths: Iterable[Growth], bins: Bins) -> _Shares:
    """What is in each bin, in proportion; what lies outside of all is left out."""
    shares: _Shares = defaultdict(float)
    for each in growths:
        for number, part in _cut(each, bins):
            shares[number] += each.amount * part
    return shares


def _cut(growth: Growth, bins: Bins) -> Iterator[tuple[int, float]]:
    """The bins that it touches, with the part of it that is there."""
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
    """When any of them grew, without overlaps."""
    united: list[tuple[int, int]] = []
    for since, until in sorted((each.since, each.until) for each in growths):
        if united and since <= united[-1][1]:
            united[-1] = united[-1][0], max(united[-1][1], until)
        else:
            united.append((since, until))
    return united
