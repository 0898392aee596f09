"""The results of retiring, by partition and summed up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakebed.model.partition import Partition


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one partition."""

    partition: Partition
    succeeded: bool
    message: str


@dataclass(frozen=True, slots=True)
class IncompatibleSummary:
    """The result of retiring incompatible partitions of one view-set instance."""

    view_set: str
    instance: str
    partitions_retired: int
    partitions_failed: int
    storage_freed_bytes: int
    messages: tuple[str, ...]

    def as_row(self) -> dict[str, object]:
        """Return it with the names of columns that every door shows."""
        return {
            "view_set_name": self.view_set,
            "view_instance_id": self.instance,
            "partitions_retired": self.partitions_retired,
            "partitions_failed": self.partitions_failed,
            "storage_freed_bytes": self.storage_freed_bytes,
            "retirement_messages": list(self.messages),
        }


def summarize(outcomes: Sequence[Outcome]) -> list[IncompatibleSummary]:
    """Return the results by view-set instance."""
    groups: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        key = (outcome.partition.view_set, outcome.partition.instance)
        groups.setdefault(key, []).append(outcome)
    return [
        IncompatibleSummary(
            view_set,
            instance,
            sum(outcome.succeeded for outcome in group),
            sum(not outcome.succeeded for outcome in group),
            sum(outcome.partition.file_size for outcome in group if outcome.succeeded),
            tuple(outcome.message for outcome in group),
        )
        for (view_set, instance), group in groups.items()
    ]


def describe_success(partition: Partition) -> str:
    """Return the message of a partition that was retired; programs read how it begins."""
    return f"SUCCESS: Retired {_describe(partition)}"


def describe_restored(partition: Partition) -> str:
    """Return the message of a partition that was restored, with its new id."""
    return f"SUCCESS: Restored {_describe(partition)} as {partition.partition_id}"


def _describe(partition: Partition) -> str:
    kind = "empty partition" if partition.is_empty else "partition"
    return f"{kind} {partition.view_set}/{partition.instance} {partition.insert_range}"
