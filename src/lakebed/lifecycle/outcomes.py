"""What retiring did, partition by partition and summed up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.model.partition import Partition


@dataclass(frozen=True, slots=True)
class Outcome:
    """What happened to one partition."""

    partition: Partition
    succeeded: bool
    message: str


@dataclass(frozen=True, slots=True)
class IncompatibleSummary:
    """What retiring incompatible partitions did to one view-set instance."""

    view_set: str
    instance: str
    partitions_retired: int
    partitions_failed: int
    storage_freed_bytes: int
    messages: tuple[str, ...]


def summarize(outcomes: Sequence[Outcome]) -> list[IncompatibleSummary]:
    """What happened, by view-set instance."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        key = (outcome.partition.view_set, outcome.partition.instance)
        groups.setdefault(key, []).append(outcome)
    return [
        IncompatibleSummary(
            view_set,
            instance,
            sum(each.succeeded for each in group),
            sum(not each.succeeded for each in group),
            sum(each.partition.file_size for each in group if each.succeeded),
            tuple(each.message for each in group),
        )
        for (view_set, instance), group in groups.items()
    ]
