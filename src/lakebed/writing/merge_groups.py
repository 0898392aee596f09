"""Group neighbouring partitions that are to be merged into one. Pure functions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from lakebed.model.partition import Partition


def fill(run: Sequence[Partition], most_bytes: int, most_rows: int) -> Iterator[list[Partition]]:
    """Yield groups of neighbours within the limits, the oldest first."""
    group: list[Partition] = []
    size = rows = 0
    for partition in run:
        size += partition.file_size
        rows += partition.num_rows
        if group and (size > most_bytes or rows > most_rows):
            yield group
            group, size, rows = [], partition.file_size, partition.num_rows
        group.append(partition)
    if group:
        yield group


def find_worthwhile(
    group: Sequence[Partition], weigh: Callable[[Partition], int], cheap: int = 0
) -> Iterator[Sequence[Partition]]:
    """Yield the parts of a group that are worth rewriting: the whole group if that is cheap, or if
    no partition outweighs all others; otherwise the parts before and after that one. Each row is
    so rewritten a few times only, independent of the number of merges."""
    if len(group) < 2:
        return
    weights = [weigh(partition) for partition in group]
    if sum(weights) <= cheap or 2 * max(weights) <= sum(weights):
        yield group
        return
    at = weights.index(max(weights))
    yield from find_worthwhile(group[:at], weigh, cheap)
    yield from find_worthwhile(group[at + 1 :], weigh, cheap)
