"""The outcomes of steps: the files that their tasks wrote are published, and failures are
recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from lakebed.catalog import journal
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.records import blocks, failures
from lakebed.catalog.records.failures import BuildFailure
from lakebed.errors import Conflict, LakebedError, OutcomeUnknown, UnknownTable
from lakebed.model.partition import Partition, add_source_hashes, hash_sources
from lakebed.model.time import find_gaps
from lakebed.model.view_set import GLOBAL
from lakebed.pipeline.steps import Build, Fold, Merge, Query, Step
from lakebed.pipeline.writing import TaskResult
from lakebed.tables.fold.fold_rows import fold_partitions
from lakebed.tables.rows.row_reader import RowReader
from lakebed.tables.rows.table_publisher import TablePublisher
from lakebed.views.dependencies import Sources
from lakebed.writing.name_reservations import NamePool
from lakebed.writing.publish import Publisher, WrittenPartition


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one step."""

    step: Step
    partition: Partition | None = None
    failed_blocks: int = 0
    fallbacks: int = 0
    problem: str | None = None
    overtaken: str | None = None
    """The reason why nothing of it was published although nothing failed: it is planned again."""


class StepPublisher:
    """Publishes the results of steps, one transaction each."""

    def __init__(
        self, catalog: Catalog, publisher: Publisher, tables: TablePublisher, names: NamePool
    ) -> None:
        self.catalog = catalog
        self.names = names
        self._publisher = publisher
        self._tables = tables

    def fold(self, step: Fold, reader: RowReader) -> Outcome:
        """Fold partitions of a table in this process."""

        def publish() -> Partition:
            rows = fold_partitions(reader, step.table, step.replaces, step.marks_from)
            replacements = [(step.replaces, rows)]
            return self._tables.replace_all(step.table, replacements, reason=step.reason)[0]

        return _attempt(step, publish)

    def publish(
        self, step: Step, result: TaskResult, lease: str, tick: int, sources: Sources
    ) -> Outcome:
        """Publish a step's file, or that its range gave no rows; or record the failure. ``tick``
        is that of the plan, and ``lease`` reserved the names of the files."""
        if result.error is not None:
            return Outcome(step, problem=result.error)
        if result.failures:
            assert isinstance(step, Build)  # noqa: S101
            return self._record_failures(step, result.failures)

        def publish() -> Partition:
            with self.names.using(lease, ()):  # a lost lease is forgotten
                if isinstance(step, Fold):
                    replacements = [(step.replaces, result.file)]
                    return self._tables.replace_written(
                        step.table, replacements, lease=lease, reason=step.reason
                    )[0]
                source_hash = self._source_hash(step, sources)
                written = WrittenPartition(
                    step.view_set, step.insert_range, GLOBAL, source_hash, result.file
                )
                return self._publisher.publish_written(
                    [written],
                    lease=lease,
                    replaces=step.replaces,
                    read_at=tick,
                    reason=step.reason,
                )[0]

        return replace(_attempt(step, publish), fallbacks=result.fallbacks)

    def _source_hash(self, step: Build | Merge | Query, sources: Sources) -> bytes:
        replaced = [partition.source_hash for partition in step.replaces]
        match step:
            case Build():
                return hash_sources(block.block_id for block in step.blocks)
            case Merge():
                return add_source_hashes(replaced)
            case Query():
                # What is replaced has its sum, also of blocks that are gone.
                gaps = find_gaps(step.insert_range, [old.insert_range for old in step.replaces])
                encodings = None if sources.every else sources.encodings
                with self.catalog.read() as connection:
                    landed = [
                        block.block_id
                        for gap in gaps
                        for block in blocks.list_blocks(connection, gap, encodings)
                    ]
                return add_source_hashes([*replaced, hash_sources(landed)])

    def _record_failures(self, step: Build, failed: Sequence[tuple[str, str]]) -> Outcome:
        """Record the blocks of a step that could not be decoded: the next plan leaves them out."""
        times = {block.block_id: block.insert_time for block in step.blocks}
        name, schema_hash = step.view_set.name, step.view_set.schema_hash
        records = [
            BuildFailure(name, schema_hash, block_id, times[block_id], reason)
            for block_id, reason in failed
        ]
        entries = [
            journal.Entry("build failure", reason, view_set=name, detail={"block_id": block_id})
            for block_id, reason in failed
        ]
        with self.catalog.write() as transaction:
            failures.insert_many(transaction.connection, records, transaction.tick)
            journal.append(transaction, entries)
        more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
        problem = f"block {failed[0][0]}{more} could not be decoded: {failed[0][1]}"
        return Outcome(step, failed_blocks=len(failed), problem=problem)


def _attempt(step: Step, publish: Callable[[], Partition]) -> Outcome:
    """Return the outcome of a publication. A conflict with a change of the lake meanwhile is not
    a failure."""
    try:
        return Outcome(step, publish())
    except OutcomeUnknown:
        raise
    except (Conflict, UnknownTable) as error:
        return Outcome(step, overtaken=str(error))
    except LakebedError as error:
        return Outcome(step, problem=str(error))
