"""Neighbouring partitions in groups, each of which is to become one partition. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from lakebed.model.partition import Partition


def fill(run: Sequence[Partition], most_bytes: int, most_rows: int) -> Iterator[list[Partition]]:
    """Neighbours that are one partition together, the oldest first."""
    group: list[Partition] = []
    size = rows = 0
    for each in run:
        size += each.file_size
        rows += each.num_rows
        if group and (size > most_bytes or rows > most_rows):
            yield group
            group, size, rows = [], each.file_size, each.num_rows
        group.append(each)
    if group:
        yield group


def find_worthwhile(
    group: Sequence[Partition], weigh: Callable[[Partition], int], cheap: int = 0
) -> Iterator[Sequence[Partition]]:
    """What of a group is worth being written again: all of it if that is cheap, or if none weighs
    more than all others; otherwise what is before and after that one. So each row is written a few
    times only, however often this is done."""
    if len(group) < 2:
        return
    weights = [weigh(each) for each in group]
    if sum(weights) <= cheap or 2 * max(weights) <= sum(weights):
        yield group
        return
    at = weights.index(max(weights))
    yield from find_worthwhile(group[:at], weigh, cheap)
    yield from find_worthwhile(group[at + 1 :], weigh, cheap)
