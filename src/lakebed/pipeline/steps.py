"""What a build does, as plain values: the plan that is shown, and the plan that is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakebed.model.block import Block
from lakebed.model.partition import Partition
from lakebed.model.time import TimeRange
from lakebed.model.view_set import ViewSet


@dataclass(frozen=True, slots=True)
class Build:
    """Decode blocks into one partition."""

    view_set: ViewSet
    insert_range: TimeRange
    blocks: tuple[Block, ...]
    reason: str

    @property
    def replaces(self) -> tuple[Partition, ...]:
        return ()

    def describe(self) -> str:
        records = sum(block.nb_objects for block in self.blocks)
        return f"build {len(self.blocks):,} blocks with {records:,} records"


@dataclass(frozen=True, slots=True)
class Query:
    """Run a view set's SQL over the partitions that it reads, into one partition."""

    view_set: ViewSet
    insert_range: TimeRange
    inputs: Mapping[str, tuple[Partition, ...]]
    replaces: tuple[Partition, ...]
    reason: str

    def describe(self) -> str:
        count = sum(len(each) for each in self.inputs.values())
        return f"query {count:,} partitions of {', '.join(self.inputs)}"


@dataclass(frozen=True, slots=True)
class Merge:
    """Make one partition of small neighbours that tile its range."""

    view_set: ViewSet
    insert_range: TimeRange
    replaces: tuple[Partition, ...]
    reason: str

    def describe(self) -> str:
        rows = sum(each.num_rows for each in self.replaces)
        return f"merge {len(self.replaces):,} partitions with {rows:,} rows"


@dataclass(frozen=True, slots=True)
class Skip:
    """Something that will not be built, and why."""

    view_set: ViewSet
    insert_range: TimeRange
    reason: str

    def describe(self) -> str:
        return "skip"


Step = Build | Query | Merge


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that are due, as of one tick. What SQL reads is built before it, so that a plan
    is one round: the next one finds what this one made possible."""

    tick: int
    steps: tuple[Step, ...]
    skipped: tuple[Skip, ...]
