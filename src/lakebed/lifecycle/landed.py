"""Retire blocks, which have a retention of their own. When blocks are gone, the partitions built
from them stay and are frozen: they can be queried, and never rebuilt. Blocks are retired from
the oldest on, in whole segments, and only when every view set that reads them has been built;
unbuilt blocks would be lost and need explicit permission.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lakebed.catalog import clock, journal
from lakebed.catalog.catalog import Catalog, Connection, Transaction
from lakebed.catalog.lookups import partition_search
from lakebed.catalog.lookups.partition_search import PartitionFilter
from lakebed.catalog.records import blocks, failures, files, lakes, partitions, view_sets
from lakebed.catalog.records.blocks import Segment
from lakebed.catalog.records.files import TemporaryFile
from lakebed.catalog.times import resolve
from lakebed.errors import BadInput, StalePlan
from lakebed.model.arguments import checked_methods
from lakebed.model.partition import FileState, Partition
from lakebed.model.time import Instant, TimeRange, find_gaps, format_instant, to_instant
from lakebed.model.view_set import GLOBAL, ViewSet
from lakebed.views.dependencies import find_sources


@dataclass(frozen=True, slots=True)
class Unbuilt:
    """Blocks that a view set reads and that are in none of its partitions."""

    view_set: str
    blocks: int
    first: int


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """A plan to retire all blocks before a tick."""

    before: int
    segments: tuple[Segment, ...]
    blocks: int
    reason: str
    unbuilt: tuple[Unbuilt, ...] = ()
    """Unbuilt blocks that keep old ones from being retired or, if loss is allowed, would be
    lost."""
    allow_loss: bool = False

    @property
    def bytes(self) -> int:
        return sum(segment.file_size for segment in self.segments)


@checked_methods
class BlockRetirement:
    """The operations that retire landed bytes."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    def keep(self, keep_us: int | None) -> int | None:
        """Set the retention of this lake's blocks, None for ever. Return the stored value.
        Nothing is retired by this alone: upkeep does."""
        with self._catalog.write() as transaction:
            lakes.keep_blocks(transaction.connection, keep_us)
            duration_text = "for ever" if keep_us is None else f"for {keep_us} us"
            journal.append(transaction, [journal.Entry("keep blocks", duration_text)])
        return self.find_keep()

    def find_keep(self) -> int | None:
        """Return the retention of this lake's blocks in microseconds; None for ever."""
        with self._catalog.read() as connection:
            return lakes.get(connection).keep_blocks_us

    def plan_expired(self, *, allow_loss: bool = False, keep_us: int | None = None) -> BlockPlan:
        """Plan for every block that is older than the lake's retention, or than ``keep_us``."""
        with self._catalog.read() as connection:
            if keep_us is None:
                keep_us = lakes.get(connection).keep_blocks_us
            if keep_us is None:
                raise BadInput(
                    "this lake keeps its blocks for ever",
                    hint="say for how long: lakebed blocks keep 30d",
                )
            before = clock.upcoming(connection) - keep_us
            return _plan(connection, before, allow_loss=allow_loss)

    def plan_before(self, before: Instant, *, allow_loss: bool = False) -> BlockPlan:
        """Plan for every block that landed before an instant."""
        before = resolve(self._catalog, before)
        with self._catalog.read() as connection:
            return _plan(connection, to_instant(before), allow_loss=allow_loss)

    def shorten(self, plan: BlockPlan, most_segments: int) -> BlockPlan:
        """Return a plan for at most so many segments, the oldest."""
        if len(plan.segments) <= most_segments:
            return plan
        behind = sorted(segment.insert_time for segment in plan.segments)[most_segments]
        return self.plan_before(behind, allow_loss=plan.allow_loss)

    def carry_out(self, plan: BlockPlan) -> BlockPlan:
        """Retire all of a plan in one transaction, or nothing: `StalePlan` if a partition of
        these blocks was retired meanwhile. Segments keep a grace period for current readers; the
        blocks themselves cannot be restored."""
        if not plan.segments:
            return plan

        def work(transaction: Transaction) -> None:
            connection, tick = transaction.connection, transaction.tick
            now = _plan(connection, plan.before, allow_loss=plan.allow_loss)
            if now.segments != plan.segments:
                raise StalePlan(
                    "what these blocks were built into has changed since",
                    hint="make the plan again",
                )
            clock.raise_blocks_from(connection, plan.before)
            clock.raise_blocks_horizon(connection, _built_since(connection, plan.before))
            failures.forget_before(connection, plan.before)
            blocks.delete_before(connection, plan.before)
            expiration = tick + lakes.get(connection).grace_us
            retired = [
                TemporaryFile(
                    segment.segment_path,
                    segment.file_size,
                    FileState.RETIRED,
                    expiration,
                    retired_at=tick,
                )
                for segment in plan.segments
            ]
            files.insert_many(connection, retired)
            entries = [
                journal.Entry(
                    "retire blocks",
                    plan.reason,
                    file_path=segment.segment_path,
                    bytes=segment.file_size,
                )
                for segment in plan.segments
            ]
            journal.append(transaction, entries)

        def happened(connection: Connection, _result: None) -> bool:
            return clock.blocks_from(connection) >= plan.before

        self._catalog.commit(work, happened)
        return plan


def _plan(connection: Connection, before: int, *, allow_loss: bool) -> BlockPlan:
    boundary = blocks.find_boundary(connection, min(before, clock.now(connection)))
    unbuilt = tuple(_list_unbuilt(connection, boundary))
    if unbuilt and not allow_loss:
        boundary = blocks.find_boundary(
            connection, min(view_set_blocks.first for view_set_blocks in unbuilt)
        )
    last = blocks.last_insert_time(connection, boundary)
    end = clock.blocks_from(connection) if last is None else last + 1
    return BlockPlan(
        end,
        tuple(blocks.list_segments_before(connection, end)),
        blocks.count_before(connection, end),
        f"landed before {format_instant(before)}",
        unbuilt,
        allow_loss,
    )


def _list_unbuilt(connection: Connection, before: int) -> Iterator[Unbuilt]:
    """Yield, for each view set, the blocks before a tick that it reads and has not been built
    from."""
    first = blocks.first_insert_time(connection)
    if first is None or first >= before:
        return
    within = TimeRange(first, before)
    active = {entry.view_set.name: entry for entry in view_sets.list_active(connection)}
    definitions = {name: entry.view_set for name, entry in active.items()}
    for name, entry in active.items():
        if entry.view_set.source is None:
            continue
        covered = [
            partition.insert_range for partition in _list_built(connection, entry.view_set, within)
        ]
        held = partitions.list_held(connection, name, GLOBAL, within)
        covered += [partition.insert_range for partition in held]
        if entry.retained_from > within.begin:
            covered.append(TimeRange(within.begin, entry.retained_from))
        sources = find_sources(entry.view_set, definitions)
        encodings = None if sources.every else sources.encodings
        missing = [
            block.insert_time
            for gap in find_gaps(within, covered)
            for block in blocks.list_blocks(connection, gap, encodings)
        ]
        if missing:
            yield Unbuilt(name, len(missing), missing[0])


def _list_built(connection: Connection, view_set: ViewSet, within: TimeRange) -> list[Partition]:
    search = PartitionFilter(
        view_sets=[(view_set.name, [view_set.schema_hash])], instance=GLOBAL, inserted=within
    )
    return partition_search.search(connection, search)


def _built_since(connection: Connection, before: int) -> int:
    """Return the tick from which on partitions hold the rows of these blocks. Reading the lake
    as of an earlier tick would need the blocks themselves, so it is refused from now on."""
    first = blocks.first_insert_time(connection)
    if first is None or first >= before:
        return 0
    within = TimeRange(first, before)
    built = [
        partition.published_at
        for active in view_sets.list_active(connection)
        if active.view_set.source is not None
        for partition in _list_built(connection, active.view_set, within)
    ]
    return max(built, default=0)
