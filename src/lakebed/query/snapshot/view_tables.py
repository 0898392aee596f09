"""The view sets of a statement: the files and blocks of each, and the rows that it lacks. Deciding
only; `snapshot` reads the catalog.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakebed.catalog.lookups.coverage import Run
from lakebed.catalog.records.failures import BuildFailure
from lakebed.catalog.records.view_sets import ActiveViewSet
from lakebed.errors import SnapshotExpired
from lakebed.model.block import Block
from lakebed.model.partition import Partition
from lakebed.model.source import BlockSource, SqlSource
from lakebed.model.time import SECOND, TimeRange, find_gaps, format_instant
from lakebed.model.view_set import ViewSet
from lakebed.query.planning import conditions
from lakebed.query.planning.conditions import EVER, Scan
from lakebed.query.snapshot.tail import Tail
from lakebed.views.dependencies import list_encodings

_BUILT_WITHIN_US = 60 * SECOND
"""Blocks younger than this are about to be built."""


@dataclass(slots=True)
class TableView:
    """The files and landed blocks of one view set that a statement reads."""

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
    """Of SQL view sets: insert times of older blocks that they lack."""
    failed_blocks: int = 0
    pruned: dict[str, int] = field(default_factory=dict)
    considered: int | None = None
    """The number of partitions, in explained statements; otherwise they are not counted."""


def look_for_gaps(
    views: Mapping[str, TableView],
    active: Mapping[str, ActiveViewSet],
    runs: Mapping[str, Sequence[Run]],
    failed: Sequence[BuildFailure],
    tick: int,
) -> dict[str, list[TimeRange]]:
    """Return the insert times that are not built, of tables that are made of blocks; set the rows
    that each table lacks."""
    gaps: dict[str, list[TimeRange]] = {}
    for name, table in views.items():
        active_set = active[name]
        visible = [run.covered for run in runs[name] if _is_visible(run, active_set)]
        invisible = [
            run.covered for run in runs[name] if not _is_visible(run, active_set) and not run.held
        ]
        held = [run.covered for run in runs[name] if run.held]
        within = TimeRange(max(active_set.retained_from, 0), tick + 1)
        table.hidden = _subtract(invisible, [*visible, *held], within)
        if active_set.view_set.source is None:
            continue
        if isinstance(active_set.view_set.source, SqlSource):
            table.built_until = max((run.end for run in visible), default=None)
            continue
        own_failures = [
            row
            for row in failed
            if (row.view_set, row.schema_hash) == (name, active_set.schema_hash)
        ]
        table.failed_blocks = len(own_failures)
        skipped = [TimeRange(row.insert_time, row.insert_time + 1) for row in own_failures]
        gaps[name] = find_gaps(within, [*visible, *invisible, *held, *skipped])
    return gaps


def _is_visible(run: Run, active: ActiveViewSet) -> bool:
    return run.schema_hash == active.schema_hash and not run.held


def _subtract(
    ranges: Sequence[TimeRange], covered: Sequence[TimeRange], within: TimeRange
) -> list[TimeRange]:
    """Return the parts of the ranges that are not covered."""
    return [
        gap
        for range_ in ranges
        if range_.overlaps(within)
        for gap in find_gaps(range_.intersect(within), covered)
    ]


def find_gaps_of_sql(
    active: ActiveViewSet, runs: Sequence[Run], failed: Sequence[BuildFailure], tick: int
) -> list[TimeRange]:
    """Return the insert times that an SQL view set lacks: never built, or a hole since a damaged
    partition was set aside."""
    until = tick + 1 - (_BUILT_WITHIN_US if runs else 0)
    covered = [run.covered for run in runs]
    covered += [TimeRange(failure.insert_time, failure.insert_time + 1) for failure in failed]
    begin = max(active.retained_from, 0)
    return find_gaps(TimeRange(begin, until), covered) if until > begin else []


def require_same_definition(
    views: Mapping[str, TableView], active: Mapping[str, ActiveViewSet], as_of: int
) -> None:
    """Raise if a view set had another definition then: its past is read by today's."""
    for name, table in views.items():
        if table.hidden and active[name].activated_at > as_of:
            since = format_instant(active[name].activated_at)
            raise SnapshotExpired(
                f"{name} was defined anew at {since}, and what it was before cannot be read",
                hint="ask for a time since then",
            )


def keep_usable(scan: Scan, view_set: ViewSet) -> Scan:
    """Return the scan without conditions on columns whose statistics are in another unit."""
    import pyarrow as pa

    def is_usable(name: str) -> bool:
        if name == view_set.time_column:
            return True
        kind = view_set.schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        plain = pa.types.is_integer(kind) or pa.types.is_string(kind)
        return bool(plain or (pa.types.is_timestamp(kind) and kind.unit == "us"))

    names = set(view_set.schema.names)
    return Scan(
        scan.table,
        {
            name: intervals
            for name, intervals in scan.columns.items()
            if name in names and is_usable(name)
        },
    )


def prune(
    partitions: Sequence[Partition], scans: Sequence[Scan], view_set: ViewSet
) -> tuple[list[Partition], dict[str, int]]:
    """Return the partitions that some scan may need, and how many others each column ruled out."""
    matching = []
    pruned: dict[str, int] = {}
    for partition in partitions:
        if any(conditions.may_match(scan, partition, view_set.time_column) for scan in scans):
            matching.append(partition)
        else:
            column = conditions.find_blocking_column(scans, partition, view_set.time_column)
            reason = "time" if column in (view_set.time_column, None) else f"statistics: {column}"
            pruned[reason] = pruned.get(reason, 0) + 1
    return matching, pruned


def event_ranges(scans: Sequence[Scan], time_column: str) -> list[TimeRange] | None:
    """Return the event times of a table's scans; None for all."""
    ranges = [conditions.time_range(scan, time_column) for scan in scans]
    distinct = sorted({event_range for event_range in ranges if event_range is not None})
    return None if EVER in distinct else distinct


def choose_blocks(
    landed: Sequence[Block],
    view_set: ViewSet,
    gaps: Sequence[TimeRange],
    scans: Sequence[Scan],
) -> list[Block]:
    """Return the blocks in a view set's gaps that may have rows for the scans."""
    decoder = get_decoder(view_set)
    encodings = list_encodings(view_set)
    ranges = event_ranges(scans, view_set.time_column)
    matching_blocks: list[Block] = []
    for gap in gaps:
        first = bisect_left(landed, gap.begin, key=_insert_time)
        last = bisect_left(landed, gap.end, key=_insert_time)
        matching_blocks += (
            block
            for block in landed[first:last]
            if (encodings is None or block.encoding in encodings)
            and (
                ranges is None
                or any(_has_events(block, decoder, event_range) for event_range in ranges)
            )
        )
    return matching_blocks


def _insert_time(block: Block) -> int:
    return block.insert_time


def _has_events(block: Block, decoder: str, within: TimeRange) -> bool:
    """Return True if a block may hold events in a range; records without a time happened on
    landing."""
    if within.begin <= block.insert_time < within.end:
        return True
    if decoder == "blocks":
        return False
    if block.begin_time is None or block.end_time is None:
        return True
    return block.begin_time < within.end and block.end_time >= within.begin


def get_decoder(view_set: ViewSet) -> str:
    assert isinstance(view_set.source, BlockSource)  # noqa: S101
    return view_set.source.decoder
