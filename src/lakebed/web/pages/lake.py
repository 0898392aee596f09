"""The lake's own page: for each view set and table a map of insert time that shows the state of
every range, and its size.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from lakebed.catalog import clock
from lakebed.catalog.lookups import overview
from lakebed.catalog.lookups.overview import Piece
from lakebed.catalog.records import failures, tables
from lakebed.lake import Lake
from lakebed.model.source import describe_source
from lakebed.model.tables.table import is_table
from lakebed.model.time import SECOND, TimeRange, find_gaps, format_instant, parse_moment
from lakebed.views.active import list_view_sets
from lakebed.views.dependencies import find_sources

CELLS = 160
_MOST_BLOCKS = 20


class State(StrEnum):
    """States of a stretch of insert time; of several the first is shown."""

    FAILED = "failed"
    INCOMPATIBLE = "incompatible"
    RETIRED = "retired"
    WAITING = "not yet built"
    MERGED = "merged"
    BUILT = "built"
    EMPTY = "empty"


_RANK = {state: rank for rank, state in enumerate(State)}


@dataclass(frozen=True, slots=True)
class Cell:
    """Neighbouring cells of a map that show the same."""

    place: int
    width: int
    state: State
    begin: str
    end: str
    partitions: int
    rows: int
    blocks: int
    """The number of them that are in no partition."""
    partition_id: str | None = None
    """The partition, if there is just one."""


@dataclass(frozen=True, slots=True)
class StuckBlock:
    """A block that is in no partition."""

    block_id: str
    encoding: str
    landed: str
    state: State
    reason: str | None = None
    """The reason why it could not be built."""


@dataclass(slots=True)
class Layer:
    """One view set or table."""

    name: str
    kind: str
    made_of: str
    partitions: int = 0
    rows: int = 0
    bytes: int = 0
    states: dict[str, int] = field(default_factory=dict)
    """Numbers of partitions, and of blocks that are not built or failed."""
    lag_seconds: float | None = None
    """The age of the oldest block that is not built."""
    cells: list[Cell] = field(default_factory=list)
    stuck: list[StuckBlock] = field(default_factory=list)
    """The first blocks that are in no partition; without a requested range, only those that
    failed."""
    stuck_left_out: int = 0


@dataclass(frozen=True, slots=True)
class LakePage:
    """The data of the page."""

    lake_id: str
    tick: str
    begin: str | None
    end: str | None
    asked: Mapping[str, str]
    blocks: int
    layers: Sequence[Layer]
    is_new: bool


@dataclass(frozen=True, slots=True)
class Fact:
    """The state of one stretch of insert time: of a partition's, or of a block's instant."""

    begin: int
    end: int
    state: State
    rows: int = 0
    partition_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Contents:
    """The partitions, failures and blocks of one view set or table in a range."""

    pieces: Sequence[Piece]
    schemas: Collection[bytes]
    merges: Collection[tuple[str, int]]
    failed: Mapping[int, str] = field(default_factory=dict)
    """Insert times of blocks that could not be built, with the reasons."""
    landed: Sequence[int] | None = None
    """Insert times of the blocks that it is made of; None if it is not made of blocks."""


def read_lake(lake: Lake, query: Mapping[str, str], now: int) -> LakePage:
    """Return the map of a range of insert time, or of all of it, from one snapshot."""
    fields = {name: query[name] for name in ("begin", "end") if query.get(name)}
    with lake.catalog.read() as connection:
        tick = clock.now(connection)
        upcoming = clock.upcoming(connection)
        extent = overview.find_extent(connection)
        active = {entry.view_set.name: entry for entry in list_view_sets(connection)}
        users = tables.list_tables(connection)
        within = _read_range(fields, extent, now)
        if within is None or extent is None:
            return LakePage(lake.lake_id, format_instant(tick), None, None, fields, 0, [], True)
        pieces = overview.list_pieces(connection, within)
        merges = overview.list_merges(connection)
        failed = failures.list_failures(connection)
        landed = overview.list_landed(connection, within)
    by_name: dict[str, list[Piece]] = {}
    for piece in pieces:
        by_name.setdefault(piece.view_set, []).append(piece)
    definitions = {name: entry.view_set for name, entry in active.items()}
    layers: list[Layer] = []
    stuck: list[tuple[Layer, _Contents, Sequence[Fact]]] = []
    for name, entry in active.items():
        sources = find_sources(entry.view_set, definitions)
        made_of = None
        if entry.view_set.source is not None:
            made_of = [
                insert_time
                for insert_time, encoding in landed
                if (sources.every or encoding in sources.encodings)
                and insert_time >= entry.retained_from
            ]
        contents = _Contents(
            by_name.pop(name, []),
            {entry.schema_hash},
            merges,
            {
                failure.insert_time: failure.reason
                for failure in failed
                if failure.view_set == name and failure.schema_hash == entry.schema_hash
            },
            made_of,
        )
        layer = Layer(name, "view set", describe_source(entry.view_set.source) or "")
        facts = _fill_layer(layer, contents, within, upcoming)
        stuck.append((layer, contents, _choose_stuck(facts, with_waiting=bool(fields))))
        layers.append(layer)
    for table in users:
        contents = _Contents(by_name.pop(table.stored_as, []), set(table.stored), merges)
        layer = Layer(table.full_name, "table", "records")
        _fill_layer(layer, contents, within, upcoming)
        layers.append(layer)
    for name, orphaned_pieces in by_name.items():
        if not is_table(name):  # deleted tables are on their own page
            layer = Layer(name, "view set", "not defined any more")
            _fill_layer(layer, _Contents(orphaned_pieces, (), merges), within, upcoming)
            layers.append(layer)
    _add_stuck_blocks(lake, stuck)
    return LakePage(
        lake.lake_id,
        format_instant(tick),
        format_instant(within.begin),
        format_instant(within.end),
        fields,
        len(landed),
        layers,
        is_new=False,
    )


def _read_range(query: Mapping[str, str], extent: TimeRange | None, now: int) -> TimeRange | None:
    low = parse_moment(query["begin"], now) if "begin" in query else None
    high = parse_moment(query["end"], now) if "end" in query else None
    if extent is None:
        return None
    if low is None:
        low = extent.begin if high is None else min(extent.begin, high - 1)
    return TimeRange(low, max(extent.end, low + 1) if high is None else high)


def _fill_layer(layer: Layer, contents: _Contents, within: TimeRange, now: int) -> list[Fact]:
    """Count and draw what is known; the facts that were drawn."""
    facts = _find_facts(contents, within)
    for piece in contents.pieces:
        if piece.retired_at is None and piece.schema_hash in contents.schemas:
            layer.partitions += 1
            layer.rows += piece.num_rows
            layer.bytes += piece.file_size
    for fact in facts:
        layer.states[fact.state] = layer.states.get(fact.state, 0) + 1
    waiting = [fact.begin for fact in facts if fact.state is State.WAITING]
    layer.lag_seconds = (now - min(waiting)) / SECOND if waiting else None
    layer.cells = plan_cells(facts, within)
    return facts


def _choose_stuck(facts: Iterable[Fact], *, with_waiting: bool) -> list[Fact]:
    """Return the blocks that are in no partition; those that failed come first."""
    states = (State.FAILED, State.WAITING) if with_waiting else (State.FAILED,)
    stuck = (fact for fact in facts if fact.state in states)
    return sorted(stuck, key=lambda fact: (_RANK[fact.state], fact.begin))


def _add_stuck_blocks(
    lake: Lake, layers: Iterable[tuple[Layer, _Contents, Sequence[Fact]]]
) -> None:
    """Set for each layer the blocks that are in no partition, and why."""
    times = [fact.begin for _, _, stuck in layers for fact in stuck[:_MOST_BLOCKS]]
    if not times:
        return
    with lake.catalog.read() as connection:
        blocks = overview.name_blocks(connection, times)
    for layer, contents, stuck in layers:
        layer.stuck_left_out = max(0, len(stuck) - _MOST_BLOCKS)
        layer.stuck = [
            StuckBlock(
                *blocks[fact.begin],
                format_instant(fact.begin),
                fact.state,
                contents.failed.get(fact.begin),
            )
            for fact in stuck[:_MOST_BLOCKS]
            if fact.begin in blocks  # unless it was deleted meanwhile
        ]


def _find_facts(contents: _Contents, within: TimeRange) -> list[Fact]:
    """Return the stretches to show: partitions that queries see, those that they do not see and
    whose range nothing else covers, and blocks that are in none."""
    visible: list[Piece] = []
    unseen: list[Piece] = []
    for piece in contents.pieces:
        is_seen = piece.retired_at is None and piece.schema_hash in contents.schemas
        (visible if is_seen else unseen).append(piece)
    facts = [
        Fact(piece.begin, piece.end, _name(piece, contents), piece.num_rows, piece.partition_id)
        for piece in visible
    ]
    gaps = find_gaps(within, [TimeRange(piece.begin, piece.end) for piece in visible])
    for piece in unseen:
        if piece.replaced or not _touches(gaps, piece.begin, piece.end):
            continue
        state = State.INCOMPATIBLE if piece.retired_at is None else State.RETIRED
        facts.append(Fact(piece.begin, piece.end, state, piece.num_rows, piece.partition_id))
    failed = [time for time in contents.failed if within.begin <= time < within.end]
    facts += [Fact(time, time + 1, State.FAILED) for time in failed]
    missed = set(failed)
    for gap in gaps if contents.landed is not None else ():
        times = contents.landed or ()
        for time in times[bisect_left(times, gap.begin) : bisect_left(times, gap.end)]:
            if time not in missed:
                facts.append(Fact(time, time + 1, State.WAITING))
    return facts


def _name(piece: Piece, contents: _Contents) -> State:
    if piece.num_rows == 0:
        return State.EMPTY
    merged = (piece.view_set, piece.published_at) in contents.merges
    return State.MERGED if merged else State.BUILT


def _touches(gaps: Sequence[TimeRange], begin: int, end: int) -> bool:
    """Return True if a range shares an instant with one of the gaps, which are in order."""
    index = bisect_right(gaps, begin, key=lambda gap: gap.begin) - 1
    return (index >= 0 and gaps[index].end > begin) or (
        index + 1 < len(gaps) and gaps[index + 1].begin < end
    )


def plan_cells(facts: Iterable[Fact], within: TimeRange) -> list[Cell]:
    """Return the cells of a map. Everything that a cell shows is in its range."""
    return list(_join(_assign_cells(facts, within), within))


def _assign_cells(facts: Iterable[Fact], within: TimeRange) -> dict[int, list[Fact]]:
    """Return the facts that each cell of the map shows."""
    length = within.end - within.begin
    cells: dict[int, list[Fact]] = {}
    for fact in facts:
        first = max(0, (fact.begin - within.begin) * CELLS // length)
        last = min(CELLS - 1, (fact.end - 1 - within.begin) * CELLS // length)
        for index in range(first, last + 1):
            cells.setdefault(index, []).append(fact)
    return cells


def _join(cells: Mapping[int, list[Fact]], within: TimeRange) -> Iterable[Cell]:
    """Yield cells in order; neighbours that show the same partitions are one."""
    length = within.end - within.begin
    places = sorted(cells)
    index = 0
    while index < len(places):
        first, cell_facts = places[index], cells[places[index]]
        width = 1
        while cells.get(first + width) == cell_facts:
            width += 1
        index += width
        ids = [fact.partition_id for fact in cell_facts if fact.partition_id is not None]
        # An instant belongs to the cell that its own place, rounded down, is in: cells begin and
        # end at the first instant after their edges. A very short map has cells without any.
        end = within.begin + -(-length * (first + width) // CELLS)
        begin = min(within.begin + -(-length * first // CELLS), end - 1)
        yield Cell(
            first,
            width,
            min((fact.state for fact in cell_facts), key=_RANK.__getitem__),
            format_instant(begin),
            format_instant(end),
            len(ids),
            sum(fact.rows for fact in cell_facts),
            len(cell_facts) - len(ids),
            ids[0] if len(ids) == len(cell_facts) == 1 else None,
        )
