"""Names for tasks to write under, and publishing what they wrote."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lakebed.catalog import blocks, failures, journal
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.failures import BuildFailure
from lakebed.errors import Conflict, LakebedError, LeaseLost, OutcomeUnknown, UnknownTable
from lakebed.model.partition import Partition, add_source_hashes, hash_sources
from lakebed.model.time import find_gaps
from lakebed.model.user_table import is_table
from lakebed.model.view_set import GLOBAL, ViewSet
from lakebed.pipeline.steps import Build, Fold, Merge, Query, Step
from lakebed.storage.parquet import WrittenFile
from lakebed.tables.fold.fold_rows import fold_partitions
from lakebed.tables.rows.row_reader import RowReader
from lakebed.tables.rows.table_publisher import FOLDER, TablePublisher
from lakebed.views.dependencies import Sources
from lakebed.writing.name_reservations import NamePool
from lakebed.writing.publish import Publisher, WrittenPartition

_SPARE = 7
"""Names beyond the first, for attempts after the first; tasks of a wave share them, because
creating a file is exclusive."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one step."""

    step: Step
    partition: Partition | None = None
    failed_blocks: int = 0
    fallbacks: int = 0
    problem: str | None = None
    overtaken: str | None = None
    """Why nothing of it was published although nothing is wrong: it is planned again."""


@dataclass(slots=True)
class TaskNames:
    """The names that the tasks of one build may use."""

    pool: NamePool
    lease: str = ""
    _own: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    _spare: dict[str, list[str]] = field(default_factory=dict)
    _doubtful: list[str] = field(default_factory=list)

    def take(self, view_set: str) -> tuple[str, ...]:
        """A name for a step's first attempt, and more for others, all of one lease."""
        while not self._own[view_set] or view_set not in self._spare:
            # Each taking may find that the lease was lost: then what was there before is gone.
            if view_set not in self._spare:
                self._spare[view_set] = self._take(view_set, _SPARE)
            if not self._own[view_set]:
                self._reserve(view_set, 1)
        return (self._own[view_set].pop(), *self._spare[view_set])

    def prepare(self, view_set: str, count: int) -> None:
        """Reserve names for many steps at once."""
        missing = count - len(self._own[view_set])
        if missing > 0:
            self._reserve(view_set, missing)

    def _reserve(self, view_set: str, count: int) -> None:
        names = self._take(view_set, count)  # first: it may throw away what is there
        self._own[view_set] += names

    def _take(self, view_set: str, count: int) -> list[str]:
        lease, names = self.pool.take(view_set, FOLDER if is_table(view_set) else GLOBAL, count)
        if lease != self.lease:  # names of a lost lease are lost with it
            self._own.clear()
            self._spare.clear()
            self._doubtful.clear()
            self.lease = lease
        return names

    def forget(self, path: str) -> None:
        """The file under this name was published: it is no spare name any more."""
        for names in (*self._spare.values(), self._doubtful):
            if path in names:
                names.remove(path)

    def renew(self) -> None:
        """Some of the spare names were taken by attempts that are lost: the next steps get others,
        or there would be none left one day."""
        self._doubtful += [name for names in self._spare.values() for name in names]
        self._spare.clear()

    def close(self, given_out: Sequence[str], *, retried: bool) -> None:
        """Give back what no task can have used, and give up what one may still write under: the
        names of steps that were not published and, if any task was tried again, the spare ones."""
        spare = [name for names in self._spare.values() for name in names]
        unused = [name for names in self._own.values() for name in names]
        given_up = [*given_out, *self._doubtful, *(spare if retried else ())]
        if not retried:
            unused += spare
        if given_up:
            self.pool.give_up(given_up)
        if unused:
            self.pool.release(unused)


def attempt(step: Step, publish: Callable[[], Partition]) -> Outcome:
    """What becomes of a step that is to be published: that the lake has changed is no problem."""
    try:
        return Outcome(step, publish())
    except OutcomeUnknown:
        raise
    except (Conflict, UnknownTable) as error:
        return Outcome(step, overtaken=str(error))
    except LakebedError as error:
        return Outcome(step, problem=str(error))


def fold_here(step: Fold, reader: RowReader, publisher: TablePublisher) -> Outcome:
    """Fold partitions of a table in this process."""

    def fold() -> Partition:
        rows = fold_partitions(reader, step.table, step.replaces, step.marks_from)
        replacements = [(step.replaces, rows)]
        (made,) = publisher.replace_all(step.table, replacements, reason=step.reason)
        return made

    return attempt(step, fold)


class StepPublisher:
    """Publishes the results of steps, one transaction each."""

    def __init__(
        self,
        catalog: Catalog,
        publisher: Publisher,
        tables: TablePublisher,
        names: NamePool,
        tick: int,
    ) -> None:
        self._catalog = catalog
        self._publisher = publisher
        self._tables = tables
        self._names = names
        self._tick = tick

    def publish(
        self, step: Step, file: WrittenFile | None, lease: str, sources: Sources
    ) -> Outcome:
        """Publish a step's file, or that its range gave no rows."""

        def publish() -> Partition:
            try:
                return self._publish(step, file, lease, sources)
            except LeaseLost:
                self._names.forget(lease)  # taken for dead: the next names get a new lease
                raise

        return attempt(step, publish)

    def _publish(
        self, step: Step, file: WrittenFile | None, lease: str, sources: Sources
    ) -> Partition:
        if isinstance(step, Fold):
            (folded,) = self._tables.replace_written(
                step.table, [(step.replaces, file)], lease=lease, reason=step.reason
            )
            return folded
        written = WrittenPartition(
            step.view_set, step.insert_range, GLOBAL, self._source_hash(step, sources), file
        )
        (partition,) = self._publisher.publish_written(
            [written],
            lease=lease,
            replaces=step.replaces,
            read_at=self._tick,
            reason=step.reason,
        )
        return partition

    def _source_hash(self, step: Build | Merge | Query, sources: Sources) -> bytes:
        match step:
            case Build():
                return hash_sources(block.block_id for block in step.blocks)
            case Merge():
                return add_source_hashes(each.source_hash for each in step.replaces)
            case Query():
                # What is replaced has its sum, also of blocks that are gone.
                replaced = [each.insert_range for each in step.replaces]
                with self._catalog.read() as connection:
                    wanted = None if sources.every else sources.encodings
                    landed = [
                        block.block_id
                        for gap in find_gaps(step.insert_range, replaced)
                        for block in blocks.list_blocks(connection, gap, wanted)
                    ]
                known = [each.source_hash for each in step.replaces]
                return add_source_hashes([*known, hash_sources(landed)])

    def record_failures(self, step: Build, found: Sequence[tuple[str, str]]) -> None:
        """Remember which blocks of a step could not be decoded: the next plan goes around them."""
        times = {block.block_id: block.insert_time for block in step.blocks}
        view_set: ViewSet = step.view_set
        failed = [
            BuildFailure(view_set.name, view_set.schema_hash, block_id, times[block_id], reason)
            for block_id, reason in found
        ]
        with self._catalog.write() as transaction:
            failures.insert_many(transaction.connection, failed, transaction.tick)
            journal.append(
                transaction,
                [
                    journal.Entry(
                        "build failure",
                        each.reason,
                        view_set=view_set.name,
                        detail={"block_id": each.block_id},
                    )
                    for each in failed
                ],
            )
