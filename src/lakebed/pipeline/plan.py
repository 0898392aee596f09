"""Plan builds and merges. Pure: blocks, live partitions and a tick go in, steps with their reasons
come out.

Ranges that are built are closed: no block can land in them any more. So a plan depends on coverage
only, and planning again after everything was built gives no steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lakebed.model.block import Block
from lakebed.model.partition import Partition
from lakebed.model.source import SqlSource
from lakebed.model.tables.table import UserTable
from lakebed.model.time import TimeRange, find_gaps
from lakebed.model.view_set import ViewSet
from lakebed.pipeline.steps import Build, Fold, Merge, Query, Skip
from lakebed.tables.fold import fold_rows
from lakebed.tables.fold.fold_rows import find_marks_from
from lakebed.writing.merge_groups import fill, find_worthwhile


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one step, so that it fits the memory of a task."""

    build_bytes: int = 128 << 20
    build_records: int = 250_000
    merge_rows: int = 500_000
    query_bytes: int = 256 << 20
    fold_bytes: int = fold_rows.MOST_BYTES
    fold_rows: int = fold_rows.MOST_ROWS
    fold_here_bytes: int = 64 << 20
    """Tables whose partitions have no more than this are folded without Spark."""


@dataclass(frozen=True, slots=True)
class Failed:
    """A block that the view set's decoder could not read."""

    block_id: str
    insert_time: int
    reason: str


@dataclass(frozen=True, slots=True)
class State:
    """The catalog's state of one view set, which a plan is made from."""

    view_set: ViewSet
    live: Sequence[Partition]
    """Live partitions of the active schema, by insert range."""
    held: Sequence[TimeRange] = ()
    failed: Sequence[Failed] = ()
    retained_from: int = 0

    def find_gaps(self, within: TimeRange) -> list[TimeRange]:
        """Return the ranges that are neither built, held, known to fail, nor forgotten."""
        covered = [partition.insert_range for partition in self.live]
        covered += self.held
        covered += [TimeRange(block.insert_time, block.insert_time + 1) for block in self.failed]
        if self.retained_from > within.begin:
            covered.append(TimeRange(within.begin, self.retained_from))
        return find_gaps(within, covered)


def plan_builds(
    state: State, within: TimeRange, blocks: Sequence[Block], limits: Limits
) -> list[Build]:
    """Return steps for the blocks that no partition covers; a gap without blocks needs none yet.

    Each step begins where the one before ended, also across time in which nothing landed: so
    partitions tile, and neighbours can be merged. The last one ends with its last block.
    """
    steps = []
    ordered = sorted(blocks, key=lambda block: block.insert_time)
    at = 0
    for gap in state.find_gaps(within):
        while at < len(ordered) and ordered[at].insert_time < gap.begin:
            at += 1
        inside = []
        while at < len(ordered) and ordered[at].insert_time < gap.end:
            inside.append(ordered[at])
            at += 1
        is_last = gap.end == within.end
        reason = "landed since the last build" if is_last else "not built, or retired"
        groups = list(_cut(inside, limits))
        for index, group in enumerate(groups):
            begin = gap.begin if index == 0 else group[0].insert_time
            if index + 1 < len(groups):
                end = groups[index + 1][0].insert_time
            else:
                end = group[-1].insert_time + 1 if is_last else gap.end
            steps.append(Build(state.view_set, TimeRange(begin, end), tuple(group), reason))
    return steps


def _cut(blocks: Sequence[Block], limits: Limits) -> Iterator[list[Block]]:
    """Yield groups of consecutive blocks that one task can take; a larger block is a group of
    its own."""
    group: list[Block] = []
    size = records = 0
    for block in blocks:
        size += block.payload_size
        records += block.nb_objects
        if group and (size > limits.build_bytes or records > limits.build_records):
            yield group
            group, size, records = [], block.payload_size, block.nb_objects
        group.append(block)
    if group:
        yield group


def plan_merges(state: State, within: TimeRange, limits: Limits) -> list[Merge]:
    """Return steps that merge runs of small neighbours into partitions near the target size.

    Half the target, or half of what a merge can take, is near enough. A run is merged only if none
    of its members makes up more than half of it: so each row is rewritten a logarithmic number of
    times, however slowly partitions arrive.
    """
    target = state.view_set.target_bytes
    small = [
        partition
        for partition in state.live
        if within.contains(partition.insert_range)
        and 2 * partition.file_size < target
        and 2 * partition.num_rows < limits.merge_rows
    ]
    steps = []
    for run in _split_where(small, lambda a, b: a.insert_range.end != b.insert_range.begin):
        for group in fill(run, target, limits.merge_rows):
            for worthwhile in find_worthwhile(group, _weigh):
                whole = TimeRange(worthwhile[0].insert_range.begin, worthwhile[-1].insert_range.end)
                reason = f"{len(worthwhile)} neighbours far below {target >> 20} MiB"
                steps.append(Merge(state.view_set, whole, tuple(worthwhile), reason))
    return steps


def _weigh(partition: Partition) -> int:
    return partition.num_rows + 1  # rows add up; bytes have footers among them


def plan_queries(
    state: State, within: TimeRange, sources: Mapping[str, State], limits: Limits
) -> list[Query]:
    """Return steps for the ranges that all sources of a SQL view set cover and it does not cover
    itself.

    No step covers a range of which a source lacks a part, because a block could not be decoded or
    something was retired: covered ranges are not planned again, so that part would stay missing.
    """
    steps = _list_queries(state, within, sources, limits)
    return _without_overlaps(step for step in steps if not _find_lacking(step))


def plan_waiting(
    state: State, within: TimeRange, sources: Mapping[str, State], limits: Limits
) -> list[Skip]:
    """Return a skip for each range whose rebuilding waits for rows that a source lacks."""
    skips = {}
    for step in _list_queries(state, within, sources, limits):
        for name, gap in _find_lacking(step)[:1]:
            skips[step.insert_range] = Skip(
                state.view_set, step.insert_range, f"waits for {name} of {gap}"
            )
    return list(skips.values())


def _list_queries(
    state: State, within: TimeRange, sources: Mapping[str, State], limits: Limits
) -> list[Query]:
    if not isinstance(state.view_set.source, SqlSource):
        return []
    covered = [[partition.insert_range for partition in source.live] for source in sources.values()]
    return [
        _query(state, piece, sources)
        for gap in state.find_gaps(within)
        for ready in _intersect([_clip(ranges, gap) for ranges in covered])
        for piece in _cut_inputs(ready, sources, limits)
    ]


def _find_lacking(step: Query) -> list[tuple[str, TimeRange]]:
    """Return the parts of a step's range that its sources lack, by source."""
    return [
        (name, gap)
        for name, partitions in step.inputs.items()
        for gap in find_gaps(
            step.insert_range, [partition.insert_range for partition in partitions]
        )
    ]


def _query(state: State, piece: TimeRange, sources: Mapping[str, State]) -> Query:
    """Return the step for one range. Sources without insert times in their rows cannot be read
    in part: then the range grows to whole partitions, and the step replaces its own partitions
    in that range."""
    while True:
        inputs = {
            name: tuple(
                partition for partition in source.live if partition.insert_range.overlaps(piece)
            )
            for name, source in sources.items()
        }
        whole = [
            partition.insert_range
            for name, partitions in inputs.items()
            if not tells_insert_time(sources[name].view_set)
            for partition in partitions
        ]
        replaced = tuple(
            partition for partition in state.live if partition.insert_range.overlaps(piece)
        )
        whole += [partition.insert_range for partition in replaced]
        grown = TimeRange(
            min([piece.begin, *(time_range.begin for time_range in whole)]),
            max([piece.end, *(time_range.end for time_range in whole)]),
        )
        if grown == piece:
            reason = "its sources were built" if not replaced else "its sources were merged"
            return Query(state.view_set, piece, inputs, replaced, reason)
        piece = grown


def tells_insert_time(view_set: ViewSet) -> bool:
    """Return True if each row has the insert time of its block, so that a partition can be read in
    part."""
    return not isinstance(view_set.source, SqlSource) and "insert_time" in view_set.schema.names


def _without_overlaps(steps: Iterable[Query]) -> list[Query]:
    """Return the steps without those that overlap an earlier one; the next plan has them. Grown
    ranges may overlap."""
    separate: list[Query] = []
    for step in steps:
        if not any(step.insert_range.overlaps(other.insert_range) for other in separate):
            separate.append(step)
    return separate


def _clip(ranges: Sequence[TimeRange], gap: TimeRange) -> list[TimeRange]:
    """Return the ranges inside a gap, neighbours joined."""
    joined: list[TimeRange] = []
    for time_range in sorted(
        time_range.intersect(gap) for time_range in ranges if time_range.overlaps(gap)
    ):
        if joined and joined[-1].end >= time_range.begin:
            joined[-1] = TimeRange(joined[-1].begin, max(joined[-1].end, time_range.end))
        else:
            joined.append(time_range)
    return joined


def _intersect(covers: Sequence[Sequence[TimeRange]]) -> list[TimeRange]:
    """Return the ranges that are in all of the covers."""
    common = list(covers[0]) if covers else []
    for cover in covers[1:]:
        common = [a.intersect(b) for a in common for b in cover if a.overlaps(b)]
    return common


def _cut_inputs(
    ready: TimeRange, sources: Mapping[str, State], limits: Limits
) -> Iterator[TimeRange]:
    """Yield pieces of a range whose inputs fit one step, cut where a partition of each source
    ends."""
    inside = [
        partition
        for source in sources.values()
        for partition in source.live
        if partition.insert_range.overlaps(ready)
    ]
    ends = [
        {partition.insert_range.end for partition in source.live} for source in sources.values()
    ]
    begin, size = ready.begin, 0
    for partition in sorted(inside, key=lambda partition: partition.insert_range.end):
        end = partition.insert_range.end
        size += partition.file_size
        if size >= limits.query_bytes and begin < end < ready.end and all(end in e for e in ends):
            yield TimeRange(begin, end)
            begin, size = end, 0
    yield TimeRange(begin, ready.end)


@dataclass(frozen=True, slots=True)
class TableState:
    """The catalog's state of one user's table, which a plan is made from."""

    table: UserTable
    live: Sequence[Partition]
    restorable: Sequence[Partition] = ()
    """Retired partitions that no other partition replaced."""


def plan_folds(
    state: TableState, within: TimeRange, limits: Limits, *, is_requested: bool
) -> list[Fold]:
    """Return steps that fold partitions of a bucket, of those that were inserted in a range: all
    that can be folded on request, else those that are worthwhile."""
    runs = fold_rows.plan_folds(
        [partition for partition in state.live if within.contains(partition.insert_range)],
        state.restorable,
        is_requested=is_requested,
        most_bytes=limits.fold_bytes,
        most_rows=limits.fold_rows,
    )
    every = [*state.live, *state.restorable]
    reason = "asked for" if is_requested else f"more than one partition of a {state.table.bucket}"
    return [
        Fold(state.table, run, find_marks_from(state.table, run.partitions, every), reason)
        for run in runs
    ]


def plan_skips(state: State, within: TimeRange) -> list[Skip]:
    """Return a skip for each block that could not be decoded and each held range."""
    skips = [
        Skip(
            state.view_set,
            TimeRange(block.insert_time, block.insert_time + 1),
            f"block {block.block_id} could not be decoded: {block.reason}",
        )
        for block in state.failed
        if within.begin <= block.insert_time < within.end
    ]
    return skips + [
        Skip(state.view_set, held.intersect(within), "held until it is restored")
        for held in state.held
        if held.overlaps(within)
    ]


def _split_where(
    items: Sequence[Partition], is_break: Callable[[Partition, Partition], bool]
) -> Iterator[list[Partition]]:
    run = list(items[:1])
    for before, after in pairwise(items):
        if is_break(before, after):
            yield run
            run = []
        run.append(after)
    if run:
        yield run
