"""The steps of a build as plain values: the same plan is shown and run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from lakebed.model.block import Block
from lakebed.model.partition import Partition
from lakebed.model.tables.table import UserTable
from lakebed.model.time import TimeRange
from lakebed.model.view_set import ViewSet
from lakebed.tables.fold.fold_rows import Run

_SMALL_ROWS = 20_000
_SMALL_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Build:
    """Decode blocks into one partition."""

    view_set: ViewSet
    insert_range: TimeRange
    blocks: tuple[Block, ...]
    reason: str

    @property
    def name(self) -> str:
        return self.view_set.name

    @property
    def replaces(self) -> tuple[Partition, ...]:
        return ()

    @property
    def reads_rows(self) -> int:
        return sum(block.nb_objects for block in self.blocks)

    @property
    def reads_bytes(self) -> int:
        return sum(block.payload_size for block in self.blocks)

    def describe(self) -> str:
        blocks = "1 block" if len(self.blocks) == 1 else f"{len(self.blocks):,} blocks"
        records = "1 record" if self.reads_rows == 1 else f"{self.reads_rows:,} records"
        return f"build {blocks} with {records}"


@dataclass(frozen=True, slots=True)
class Query:
    """Run a view set's SQL over the partitions that it reads, into one partition."""

    view_set: ViewSet
    insert_range: TimeRange
    inputs: Mapping[str, tuple[Partition, ...]]
    replaces: tuple[Partition, ...]
    reason: str

    @property
    def name(self) -> str:
        return self.view_set.name

    @property
    def reads_rows(self) -> int:
        return sum(
            partition.num_rows for partitions in self.inputs.values() for partition in partitions
        )

    @property
    def reads_bytes(self) -> int:
        return sum(
            partition.file_size for partitions in self.inputs.values() for partition in partitions
        )

    def describe(self) -> str:
        count = sum(len(partitions) for partitions in self.inputs.values())
        what = "partition" if count == 1 else "partitions"
        return f"query {count:,} {what} of {', '.join(self.inputs)}"


@dataclass(frozen=True, slots=True)
class Merge:
    """Make one partition of small neighbours that tile its range."""

    view_set: ViewSet
    insert_range: TimeRange
    replaces: tuple[Partition, ...]
    reason: str

    @property
    def name(self) -> str:
        return self.view_set.name

    @property
    def reads_rows(self) -> int:
        return sum(partition.num_rows for partition in self.replaces)

    @property
    def reads_bytes(self) -> int:
        return sum(partition.file_size for partition in self.replaces)

    def describe(self) -> str:
        return f"merge {len(self.replaces):,} partitions with {self.reads_rows:,} rows"


@dataclass(frozen=True, slots=True)
class Fold:
    """Make one partition of those of a bucket of a user's table, with one row for each key."""

    table: UserTable
    run: Run
    marks_from: int | None
    """The version from which on delete marks are kept: an older row may be in another partition."""
    reason: str

    @property
    def name(self) -> str:
        return self.table.full_name

    @property
    def view_set(self) -> ViewSet:
        return self.table.view_set

    @property
    def insert_range(self) -> TimeRange:
        return self.run.insert_range

    @property
    def replaces(self) -> tuple[Partition, ...]:
        return self.run.partitions

    @property
    def reads_rows(self) -> int:
        return sum(partition.num_rows for partition in self.replaces)

    @property
    def reads_bytes(self) -> int:
        return self.run.bytes

    def describe(self) -> str:
        size = f"{self.reads_bytes / (1 << 20):.1f} MiB"
        if self.reads_bytes < 1 << 20:
            size = f"{self.reads_bytes / (1 << 10):.1f} KiB"
        return f"fold {self.run.instance}: {len(self.replaces):,} partitions of {size} into one"


@dataclass(frozen=True, slots=True)
class Skip:
    """A range that will not be built, and the reason."""

    view_set: ViewSet
    insert_range: TimeRange
    reason: str

    @property
    def name(self) -> str:
        return self.view_set.name

    def describe(self) -> str:
        return "skip"


Step = Build | Query | Merge | Fold


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that are due, as of one tick. What SQL reads is built before it, so that a plan
    is one round: the next one finds what this one made possible."""

    tick: int
    steps: tuple[Step, ...]
    skipped: tuple[Skip, ...]
    fold_here_bytes: int = 0

    def as_of(self, tick: int) -> Plan:
        """Return the plan without the steps that are due only because of changes after a tick."""
        return replace(self, steps=tuple(step for step in self.steps if _was_due(step, tick)))

    @property
    def is_small(self) -> bool:
        """Return True if starting Spark takes longer than the steps themselves; then its JVM may
        compile less. The measure is what is read, not the number of steps: one step may read
        hundreds of megabytes, and SQL over many rows runs several times slower in such a JVM, which
        costs far more than it saves at the start. Input that several steps read counts once for
        each of them."""
        steps = [step for step in self.steps if not self.is_done_here(step)]
        rows = sum(step.reads_rows for step in steps)
        return rows <= _SMALL_ROWS and sum(step.reads_bytes for step in steps) <= _SMALL_BYTES

    def is_done_here(self, step: Step) -> bool:
        """Return True for folds small enough to run in this process, because Spark would take
        longer to start."""
        return isinstance(step, Fold) and step.reads_bytes <= self.fold_here_bytes


def _was_due(step: Step, tick: int) -> bool:
    match step:
        case Build(blocks=blocks) if blocks:
            return any(block.insert_time < tick for block in blocks)
        case Merge():
            return step.insert_range.end <= tick + 1
    return step.insert_range.begin < tick
