"""Grouping of neighbouring partitions at the limits of bytes, rows and weight."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from lakebed.model.partition import Identity, Partition
from lakebed.model.time import TimeRange
from lakebed.writing.merge_groups import fill, find_worthwhile


def make_run(sizes: Sequence[int], rows: Sequence[int] | None = None) -> list[Partition]:
    """Return neighbours of these sizes, of as many rows as bytes unless rows are given."""
    return [
        Partition(
            partition_id=str(index),
            identity=Identity("readings", "global", TimeRange(index, index + 1), b"schema"),
            events=None,
            file_path=str(index),
            file_size=size,
            num_rows=size if rows is None else rows[index],
            source_hash=b"",
            sort_order=(),
            format_version=1,
            statistics={},
            published_at=index,
        )
        for index, size in enumerate(sizes)
    ]


def list_sizes(groups: object) -> list[list[int]]:
    return [[partition.file_size for partition in group] for group in groups]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([5], [[5]]),
        ([11], [[11]]),
        ([5, 5], [[5, 5]]),
        ([5, 6], [[5], [6]]),
        ([5, 4, 1, 1], [[5, 4, 1], [1]]),
        ([11, 1, 11], [[11], [1], [11]]),
        ([9, 2, 8, 1], [[9], [2, 8], [1]]),
        ([4, 4, 4, 4, 4], [[4, 4], [4, 4], [4]]),
    ],
)
def test_groups_are_filled_up_to_a_limit(sizes: list[int], groups: list[list[int]]) -> None:
    by_bytes = fill(make_run(sizes, [0] * len(sizes)), 10, 0)
    assert list_sizes(by_bytes) == groups
    by_rows = fill(make_run(sizes), 1000, 10)
    assert list_sizes(by_rows) == groups


@pytest.mark.parametrize(
    ("weights", "groups"),
    [
        ([], []),
        ([1], []),
        ([1, 1], [[1, 1]]),
        ([2, 1], []),
        ([1, 2], []),
        ([2, 1, 1], [[2, 1, 1]]),
        ([3, 1, 1], [[1, 1]]),
        ([1, 1, 3], [[1, 1]]),
        ([1, 1, 9, 1, 1], [[1, 1], [1, 1]]),
        ([1, 9, 1], []),
        ([1, 0], []),
        ([9, 4, 1, 1], [[1, 1]]),
        ([4, 2, 2], [[4, 2, 2]]),
    ],
)
def test_group_is_worthwhile_unless_one_weighs_more_than_all_others(
    weights: list[int], groups: list[list[int]]
) -> None:
    run = make_run(weights)
    assert list_sizes(find_worthwhile(run, lambda partition: partition.file_size)) == groups


@pytest.mark.parametrize(("cheap", "groups"), [(9, []), (10, [[9, 1]]), (11, [[9, 1]])])
def test_group_is_worthwhile_if_all_of_it_is_cheap(cheap: int, groups: list[list[int]]) -> None:
    run = make_run([9, 1])
    assert list_sizes(find_worthwhile(run, lambda partition: partition.file_size, cheap)) == groups
    beside = make_run([100, 9, 1])
    worthwhile = find_worthwhile(beside, lambda partition: partition.file_size, cheap)
    assert list_sizes(worthwhile) == groups
    before = make_run([9, 1, 100])
    worthwhile = find_worthwhile(before, lambda partition: partition.file_size, cheap)
    assert list_sizes(worthwhile) == groups
