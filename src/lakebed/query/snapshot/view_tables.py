"""What one table of a statement is made of, and what it lacks: insert times that no partition
covers, the blocks in them, and what cannot be shown.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from lakebed.catalog import blocks
from lakebed.catalog.catalog import Connection
from lakebed.catalog.coverage import Run
from lakebed.catalog.failures import BuildFailure
from lakebed.catalog.view_sets import ActiveViewSet
from lakebed.model.block import Block
from lakebed.model.partition import Partition
from lakebed.model.source import BlockSource, SqlSource
from lakebed.model.time import SECOND, TimeRange, find_gaps
from lakebed.model.view_set import ViewSet
from lakebed.query.planning import conditions
from lakebed.query.planning.conditions import EVER, Scan
from lakebed.query.snapshot.tail import Tail
from lakebed.views.dependencies import find_sources, list_encodings

_FEW_RANGES = 16
_BUILT_WITHIN_US = 60 * SECOND


@dataclass(slots=True)
class TableView:
    """What one table of a statement is made of."""

    view_set: ViewSet
    files: Sequence[Partition] = ()
    tail: Tail | None = None
    hidden: Sequence[TimeRange] = ()
    """Insert times of which only partitions of another schema exist: their rows are not seen."""
    frozen: Sequence[TimeRange] = ()
    """Those of them that cannot be built again."""
    built_until: int | None = None
    """Of SQL view sets, which have no tail: the insert time up to which they are built."""
    unbuilt: TimeRange | None = None
    """Of SQL view sets: insert times of which they lack something that landed a while ago."""
    failed_blocks: int = 0
    pruned: dict[str, int] = field(default_factory=dict)
    considered: int | None = None
    """How many partitions there are, in explained statements; else nobody counted them."""


def look_for_gaps(
    views: Mapping[str, TableView],
    chosen: Mapping[str, ActiveViewSet],
    runs: Mapping[str, Sequence[Run]],
    failed: Sequence[BuildFailure],
    tick: int,
) -> dict[str, list[TimeRange]]:
    """The insert times that are not built, of tables that are made of blocks; and what each table
    cannot show."""
    gaps: dict[str, list[TimeRange]] = {}
    for name, table in views.items():
        each = chosen[name]
        visible = [run.covered for run in runs[name] if _is_visible(run, each)]
        others = [run.covered for run in runs[name] if not _is_visible(run, each) and not run.held]
        held = [run.covered for run in runs[name] if run.held]
        within = TimeRange(max(each.retained_from, 0), tick + 1)
        table.hidden = _subtract(others, [*visible, *held], within)
        if each.view_set.source is None:
            continue
        if isinstance(each.view_set.source, SqlSource):
            table.built_until = max((run.end for run in visible), default=None)
            continue
        mine = [
            row for row in failed if (row.view_set, row.schema_hash) == (name, each.schema_hash)
        ]
        table.failed_blocks = len(mine)
        skipped = [TimeRange(row.insert_time, row.insert_time + 1) for row in mine]
        gaps[name] = find_gaps(within, [*visible, *others, *held, *skipped])
    return gaps


def _is_visible(run: Run, active: ActiveViewSet) -> bool:
    return run.schema_hash == active.schema_hash and not run.held


def _subtract(
    ranges: Sequence[TimeRange], others: Sequence[TimeRange], within: TimeRange
) -> list[TimeRange]:
    """What of the ranges the others leave."""
    return [
        gap
        for each in ranges
        if each.overlaps(within)
        for gap in find_gaps(each.intersect(within), others)
    ]


def find_unbuilt(
    connection: Connection,
    views: Mapping[str, TableView],
    active: Mapping[str, ActiveViewSet],
    runs: Mapping[str, Sequence[Run]],
    failed: Sequence[BuildFailure],
    tick: int,
) -> None:
    """Say of SQL view sets what they lack: what was never built, or is a hole since a damaged
    partition was set aside. What landed just now will be built in a moment."""
    definitions = {name: each.view_set for name, each in active.items()}
    for name, table in views.items():
        if not isinstance(table.view_set.source, SqlSource):
            continue
        until = tick + 1 - (_BUILT_WITHIN_US if runs[name] else 0)
        covered = [run.covered for run in runs[name]]
        covered += [TimeRange(row.insert_time, row.insert_time + 1) for row in failed]
        begin = max(active[name].retained_from, 0)
        gaps = find_gaps(TimeRange(begin, until), covered) if until > begin else []
        sources = find_sources(table.view_set, definitions)
        wanted = None if sources.every else sources.encodings
        for gap in gaps[:_FEW_RANGES]:
            first = blocks.find_first(connection, gap, wanted)
            if first is not None:
                table.unbuilt = TimeRange(first, gap.end)
                break


def add_tails(
    connection: Connection,
    views: Mapping[str, TableView],
    gaps: Mapping[str, Sequence[TimeRange]],
    landed: Sequence[Block],
    by_table: Mapping[str, Sequence[Scan]],
) -> None:
    """For each table with gaps the blocks in them, which are to be decoded."""
    for name, some in gaps.items():
        view_set = views[name].view_set
        chosen = _choose(landed, view_set, some, by_table[name])
        tail = Tail(view_set, chosen)
        if chosen and _decoder(view_set) == "blocks":
            within = TimeRange(chosen[0].insert_time, chosen[-1].insert_time + 1)
            processes, streams = blocks.list_senders(connection, within)
            tail = replace(tail, processes=processes, streams=streams)
        views[name].tail = tail


def event_ranges(scans: Sequence[Scan], time_column: str) -> list[TimeRange] | None:
    """The event times that a table is asked for; None for all."""
    ranges = [conditions.time_range(scan, time_column) for scan in scans]
    known = sorted({each for each in ranges if each is not None})
    return None if EVER in known else known


def _choose(
    landed: Sequence[Block],
    view_set: ViewSet,
    gaps: Sequence[TimeRange],
    scans: Sequence[Scan],
) -> list[Block]:
    """The blocks in a view set's gaps that may hold what the scans ask for."""
    decoder = _decoder(view_set)
    encodings = list_encodings(view_set)
    ranges = event_ranges(scans, view_set.time_column)
    chosen: list[Block] = []
    for gap in gaps:
        first = bisect_left(landed, gap.begin, key=_insert_time)
        last = bisect_left(landed, gap.end, key=_insert_time)
        chosen += (
            block
            for block in landed[first:last]
            if (encodings is None or block.encoding in encodings)
            and (ranges is None or any(_has_events(block, decoder, each) for each in ranges))
        )
    return chosen


def _insert_time(block: Block) -> int:
    return block.insert_time


def _has_events(block: Block, decoder: str, wanted: TimeRange) -> bool:
    """Whether a block may hold events in a range; records without a time happened on landing."""
    if wanted.begin <= block.insert_time < wanted.end:
        return True
    if decoder == "blocks":
        return False
    if block.begin_time is None or block.end_time is None:
        return True
    return block.begin_time < wanted.end and block.end_time >= wanted.begin


def _decoder(view_set: ViewSet) -> str:
    assert isinstance(view_set.source, BlockSource)  # noqa: S101
    return view_set.source.decoder
