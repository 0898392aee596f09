"""Lookups by event time and by past tick agree with plain Python at every bound of the lake: at the
first and last event of each partition and at each tick, one before, on it, and one after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest

from lakebed.catalog import clock
from lakebed.catalog.catalog import Connection
from lakebed.catalog.lookups import coverage, listing, overview, partition_search
from lakebed.catalog.lookups.overview import Piece
from lakebed.catalog.lookups.partition_search import FileScan, PartitionFilter
from lakebed.catalog.records import blocks, tables
from lakebed.errors import SnapshotExpired
from lakebed.lake import Lake
from lakebed.model.partition import Partition, hash_sources
from lakebed.model.time import SECOND, TimeRange
from tests.parts.data import HOUR, T0, publish_hour, publish_rebuildable_hour, readings

VIEW_SET = readings()
HASH = VIEW_SET.schema_hash
WIDTHS = (1, 2, 5, 8, 9)
"""Rows of each partition, a microsecond apart: the catalog rounds the span up to a power of two, so
these are at, below and above one."""


def around(instants: Iterable[int]) -> list[int]:
    """Return each instant, the one before and the one after."""
    return sorted({instant + offset for instant in instants for offset in (-1, 0, 1)})


@dataclass(frozen=True)
class History:
    """A lake's partitions, retired ones too, as plain values."""

    partitions: list[Partition]

    def live_at(self, tick: int | None) -> list[Partition]:
        if tick is None:
            return [partition for partition in self.partitions if partition.is_live]
        return [
            partition
            for partition in self.partitions
            if partition.published_at <= tick
            and (partition.retired_at is None or partition.retired_at > tick)
        ]

    def ticks(self) -> list[int]:
        """Return every tick at which something changed, with its neighbours."""
        changes = {partition.published_at for partition in self.partitions}
        changes |= {p.retired_at for p in self.partitions if p.retired_at is not None}
        return around(changes)

    def event_ranges(self) -> list[TimeRange]:
        """Return ranges that begin, end, or begin and end at a bound of a partition's events."""
        events = [p.events for p in self.partitions if p.events is not None]
        bounds = around({e.earliest for e in events} | {e.latest for e in events})
        ranges = [TimeRange(bound, bound + 1) for bound in bounds]
        ranges += [TimeRange(bound, bounds[-1] + HOUR) for bound in bounds]
        return ranges + [TimeRange(bounds[0] - HOUR, bound) for bound in bounds]


def with_events(partitions: Iterable[Partition], events: TimeRange) -> set[str]:
    """Return the ids of the partitions that have events in a range."""
    return {
        partition.partition_id
        for partition in partitions
        if partition.events is not None
        and partition.events.earliest < events.end
        and partition.events.latest >= events.begin
    }


def ids(partitions: Iterable[Partition | listing.Stretch]) -> set[str]:
    return {partition.partition_id for partition in partitions}


@pytest.fixture
def history(lake: Lake) -> History:
    """Partitions of several widths, an empty one, a replaced one and a retired one."""
    lake.views.register(VIEW_SET)
    for hour, count in enumerate(WIDTHS):
        publish_hour(lake, hour, count)
    publish_hour(lake, len(WIDTHS), 0)
    replaced = publish_hour(lake, 7, 4)
    publish_hour(lake, 7, 3, replaces=[replaced])
    publish_hour(lake, 8, 2)
    lake.retirement.retire_partitions(
        "readings", T0 + 8 * HOUR, T0 + 9 * HOUR, confirmed=["readings"]
    )
    publish_hour(lake, 9, 1)
    return History(lake.partitions.list_partitions(include_retired=True))


def find_files(connection: Connection, events: TimeRange | None, as_of: int | None) -> set[str]:
    wanted = [FileScan("readings", HASH, None if events is None else [events])]
    spans = partition_search.list_spans(connection, wanted)
    return ids(partition_search.find_files(connection, wanted, spans, as_of).get("readings", []))


def find_partitions(
    connection: Connection, events: TimeRange | None, as_of: int | None
) -> set[str]:
    wanted = PartitionFilter([("readings", [HASH])], events=events, as_of=as_of)
    return ids(partition_search.search(connection, wanted))


def find_of_any_schema(
    connection: Connection, events: TimeRange | None, as_of: int | None
) -> set[str]:
    return ids(
        partition_search.search(
            connection, PartitionFilter([("readings", None)], events=events, as_of=as_of)
        )
    )


def list_of_table(connection: Connection, events: TimeRange | None, as_of: int | None) -> set[str]:
    within = None if events is None else (events.begin, events.end - 1)
    return ids(tables.list_partitions(connection, "readings", as_of=as_of, within=within))


LOOKUPS: dict[str, Callable[[Connection, TimeRange | None, int | None], set[str]]] = {
    "files of a statement": find_files,
    "partitions of a schema": find_partitions,
    "partitions of any schema": find_of_any_schema,
    "partitions of a table": list_of_table,
}


@pytest.mark.parametrize("name", LOOKUPS)
def test_lookup_by_events_returns_partitions_at_every_bound(
    lake: Lake, history: History, name: str
) -> None:
    past = max(p.published_at for p in history.partitions)
    with lake.catalog.read() as connection:
        for events in history.event_ranges():
            for as_of in (None, past):
                expected = with_events(history.live_at(as_of), events)
                assert LOOKUPS[name](connection, events, as_of) == expected, (events, as_of)


@pytest.mark.parametrize("name", LOOKUPS)
def test_lookup_of_the_past_returns_partitions_at_every_tick(
    lake: Lake, history: History, name: str
) -> None:
    with lake.catalog.read() as connection:
        for tick in history.ticks():
            live = history.live_at(tick)
            if name == "files of a statement":
                live = [partition for partition in live if not partition.is_empty]
            assert LOOKUPS[name](connection, None, tick) == ids(live), tick


def test_list_spans_returns_the_spans_of_live_partitions(lake: Lake, history: History) -> None:
    wanted = [FileScan("readings", HASH, [TimeRange(T0, T0 + 1)])]
    with lake.catalog.read() as connection:
        spans = partition_search.list_spans(connection, wanted)
    events = [p.events for p in history.live_at(None) if p.events is not None]
    widths = {1 << (e.latest - e.earliest).bit_length() for e in events}
    assert spans == {("readings", HASH): sorted(widths)}


def test_find_files_returns_partitions_in_any_of_several_ranges(
    lake: Lake, history: History
) -> None:
    starts = [partition.insert_range.begin for partition in history.live_at(None)]
    ranges = [TimeRange(starts[1], starts[1] + 1), TimeRange(starts[3], starts[3] + 1)]
    past = max(p.published_at for p in history.partitions)
    wanted = [FileScan("readings", HASH, ranges)]
    expected = with_events(history.live_at(None), ranges[0]) | with_events(
        history.live_at(None), ranges[1]
    )
    assert len(expected) == 2
    with lake.catalog.read() as connection:
        spans = partition_search.list_spans(connection, wanted)
        for as_of in (None, past):
            assert (
                ids(partition_search.find_files(connection, wanted, spans, as_of)["readings"])
                == expected
            )


def test_count_partitions_counts_at_every_tick(lake: Lake, history: History) -> None:
    with lake.catalog.read() as connection:
        for tick in [None, *history.ticks()]:
            live = history.live_at(tick)
            empty = sum(partition.is_empty for partition in live)
            counts = partition_search.count_partitions(
                connection, [FileScan("readings", HASH)], tick
            )
            assert counts == ({"readings": (len(live), empty)} if live else {}), tick


def test_list_runs_joins_partitions_that_touch_at_every_tick(lake: Lake, history: History) -> None:
    with lake.catalog.read() as connection:
        for tick in [None, *history.ticks()]:
            expected: list[TimeRange] = []
            for live in sorted(p.insert_range for p in history.live_at(tick)):
                if expected and expected[-1].end == live.begin:
                    expected[-1] = TimeRange(expected[-1].begin, live.end)
                else:
                    expected.append(live)
            runs = coverage.list_runs(connection, ["readings"], tick)
            assert [run.covered for run in runs] == expected, tick
            assert not any(run.held for run in runs)


def test_list_partitions_returns_those_that_touch_an_insert_range(
    lake: Lake, history: History
) -> None:
    live = history.live_at(None)
    bounds = around({p.insert_range.begin for p in live} | {p.insert_range.end for p in live})
    with lake.catalog.read() as connection:
        for bound in bounds:
            for inserted in (
                TimeRange(bound, bound + 1),
                TimeRange(T0 - HOUR, bound),
                TimeRange(bound, T0 + 99 * HOUR),
            ):
                expected = ids(p for p in live if p.insert_range.overlaps(inserted))
                wanted = PartitionFilter([("readings", [HASH])], inserted=inserted)
                assert ids(partition_search.search(connection, wanted)) == expected, inserted


@pytest.mark.parametrize("horizon", ["sweep", "blocks"])
def test_the_past_is_readable_from_the_horizon_to_the_last_tick(lake: Lake, horizon: str) -> None:
    raise_horizon = {"sweep": clock.raise_sweep_horizon, "blocks": clock.raise_blocks_horizon}
    with lake.catalog.write(ticks=10) as transaction:
        raise_horizon[horizon](transaction.connection, transaction.tick - 5)
    oldest, last = transaction.tick - 5, transaction.tick
    with lake.catalog.read() as connection:
        for tick in (oldest, oldest + 1, last - 1, last):
            clock.require_readable(connection, tick)
        with pytest.raises(SnapshotExpired, match="has been swept"):
            clock.require_readable(connection, oldest - 1)
        with pytest.raises(SnapshotExpired, match="is in the future"):
            clock.require_readable(connection, last + 1)


def test_a_horizon_never_goes_back(lake: Lake) -> None:
    with lake.catalog.write() as transaction:
        for raise_horizon in (
            clock.raise_sweep_horizon,
            clock.raise_blocks_horizon,
            clock.raise_blocks_from,
        ):
            raise_horizon(transaction.connection, 7)
            raise_horizon(transaction.connection, 6)
        assert clock.sweep_horizon(transaction.connection) == 7
        assert clock.blocks_from(transaction.connection) == 7
        with pytest.raises(SnapshotExpired):
            clock.require_readable(transaction.connection, 6)
        clock.require_readable(transaction.connection, 7)


def insert_ranges(history: History) -> list[TimeRange]:
    """Return ranges that begin, end, or begin and end at a bound of a partition's insert range."""
    ranges = [partition.insert_range for partition in history.partitions]
    bounds = around({r.begin for r in ranges} | {r.end for r in ranges})
    result = [TimeRange(bound, bound + 1) for bound in bounds]
    result += [TimeRange(bound, bounds[-1] + HOUR) for bound in bounds]
    return result + [TimeRange(bounds[0] - HOUR, bound) for bound in bounds]


def test_pieces_of_the_overview_touch_an_insert_range_at_every_bound(
    lake: Lake, history: History
) -> None:
    with lake.catalog.read() as connection:
        pieces = overview.list_pieces(connection)
        expected_pieces = {
            Piece(
                "readings",
                p.insert_range.begin,
                p.insert_range.end,
                HASH,
                p.num_rows,
                p.file_size,
                p.partition_id,
                p.published_at,
                p.retired_at,
                p.replaced,
            )
            for p in history.partitions
        }
        assert set(pieces) == expected_pieces
        assert pieces == sorted(pieces, key=lambda piece: (piece.begin, piece.published_at))
        for within in insert_ranges(history):
            touching = ids(p for p in history.partitions if p.insert_range.overlaps(within))
            pieces = overview.list_pieces(connection, within)
            assert {piece.partition_id for piece in pieces} == touching, within


def test_stretches_touch_an_insert_range_at_every_bound(lake: Lake, history: History) -> None:
    last = max(history.ticks())
    with lake.catalog.read() as connection:
        for within in insert_ranges(history):
            live, gone = listing.list_stretches(connection, "readings", within, last)
            touching = [p for p in history.partitions if p.insert_range.overlaps(within)]
            assert ids(gone) == ids(p for p in touching if not p.is_live), within
            covered = sum(stretch.within.end - stretch.within.begin for stretch in live)
            expected = [p.insert_range for p in touching if p.is_live]
            assert covered == sum(each.end - each.begin for each in expected), within
            rows = sum(p.num_rows for p in touching if p.is_live)
            assert sum(stretch.num_rows for stretch in live) == rows, within


def test_stretches_are_live_or_retired_at_every_tick(lake: Lake, history: History) -> None:
    everything = TimeRange(T0 - HOUR, T0 + 99 * HOUR)
    with lake.catalog.read() as connection:
        for tick in history.ticks():
            live, gone = listing.list_stretches(connection, "readings", everything, tick)
            retired = [
                p for p in history.partitions if p.retired_at is not None and p.retired_at <= tick
            ]
            assert ids(gone) == ids(retired), tick
            rows = sum(partition.num_rows for partition in history.live_at(tick))
            assert sum(stretch.num_rows for stretch in live) == rows, tick


def test_stretches_join_neighbours_that_are_alike(lake: Lake) -> None:
    """Of one schema, both empty or both not, both frozen or both not, and without a gap."""
    lake.views.register(VIEW_SET)
    first = publish_hour(lake, 0, 1)
    publish_hour(lake, 1, 2)
    empty = publish_hour(lake, 2, 0)
    publish_hour(lake, 3, 0)
    rebuildable = publish_rebuildable_hour(lake, 4)
    publish_rebuildable_hour(lake, 5)
    frozen = publish_hour(lake, 6, 1)
    after_gap = publish_hour(lake, 8, 1)
    lake.views.register(readings(2))
    other_schema = publish_hour(lake, 9, 1, version=2)
    publish_hour(lake, 10, 1, version=2, instance="another")
    lake.retirement.retire_partitions("readings", T0 + 8 * HOUR, T0 + 9 * HOUR, hold=True)
    everything = TimeRange(T0 - HOUR, T0 + 99 * HOUR)
    with lake.catalog.read() as connection:
        last = clock.now(connection)
        live, gone = listing.list_stretches(connection, "readings", everything, last)
    found = {
        stretch.partition_id: (
            (stretch.within.begin - T0) // HOUR,
            (stretch.within.end - T0) // HOUR,
            stretch.num_rows,
            stretch.is_frozen,
        )
        for stretch in live
    }
    assert found == {
        first.partition_id: (0, 2, 3, True),
        empty.partition_id: (2, 4, 0, False),
        rebuildable.partition_id: (4, 6, 6, False),
        frozen.partition_id: (6, 7, 1, True),
        other_schema.partition_id: (9, 10, 1, True),
    }
    (held,) = gone
    assert (held.partition_id, held.held, held.retired_at) == (after_gap.partition_id, True, last)
    assert (held.is_empty, held.replaced) == (False, False)


def test_listed_columns_are_those_of_live_partitions_at_every_tick(
    lake: Lake, history: History
) -> None:
    with lake.catalog.read() as connection:
        for tick in [None, *history.ticks()]:
            *_, partition_ids = listing.list_columns(connection, ["readings"], tick)
            assert set(partition_ids) == ids(history.live_at(tick)), tick


def test_stretches_of_a_table_have_times_in_a_range_at_every_bound_and_tick(lake: Lake) -> None:
    lake.tables.create_database("home")
    table = lake.tables.create_table("home", "pulse", {"time": "datetime", "bpm": "int"})
    for day in (1, 2, 3):
        table.insert([{"time": f"2026-01-0{day}T05:00:0{second}Z", "bpm": 1} for second in (0, 1)])
    table.delete_rows("time < '2026-01-02'")
    stored_as = table.definition.stored_as
    listed = lake.partitions.list_partitions(include_retired=True)
    history = History([p for p in listed if p.view_set == stored_as and p.events is not None])
    last = max(history.ticks())
    assert any(not partition.is_live for partition in history.partitions)
    with lake.catalog.read() as connection:
        for within in history.event_ranges():
            live, gone = listing.list_table_stretches(connection, stored_as, within, last)
            touching = with_events(history.partitions, within)
            assert ids([*live, *gone]) == touching, within
        for tick in history.ticks():
            everything = TimeRange(0, 1 << 60)
            live, gone = listing.list_table_stretches(connection, stored_as, everything, tick)
            assert ids(live) == ids(history.live_at(tick)), tick
            retired = [p for p in history.partitions if (p.retired_at or last + 1) <= tick]
            assert ids(gone) == ids(retired), tick
            assert all(stretch.replaced for stretch in gone)
    first = min(live, key=lambda stretch: stretch.within)
    assert first.within.end - first.within.begin == SECOND + 1
    assert first.is_frozen


def test_frozen_ranges_are_those_of_other_schemas_with_rows_that_cannot_be_rebuilt(
    lake: Lake,
) -> None:
    lake.views.register(VIEW_SET)
    publish_rebuildable_hour(lake, 0)
    lost = publish_hour(lake, 1)
    publish_hour(lake, 2, 0)
    retired = publish_hour(lake, 3)
    lake.views.register(readings(2))
    publish_hour(lake, 4, version=2)
    lake.retirement.retire_partitions(
        "readings", T0 + 3 * HOUR, T0 + 4 * HOUR, confirmed=["readings"]
    )
    new_hash = readings(2).schema_hash
    with lake.catalog.read() as connection:
        now = listing.list_frozen(connection, "readings", new_hash)
        then = listing.list_frozen(connection, "readings", new_hash, retired.published_at)
    assert now == [lost.insert_range]
    assert then == [lost.insert_range, retired.insert_range]


def test_rows_are_frozen_without_any_block(lake: Lake) -> None:
    lake.views.register(VIEW_SET)
    made_of_blocks = publish_hour(lake, 0, source_hash=hash_sources(["block"]))
    with lake.catalog.read() as connection:
        frozen = listing.list_frozen(connection, "readings", b"another")
        assert blocks.list_rebuildable(connection, [made_of_blocks]) == set()
    assert frozen == [made_of_blocks.insert_range]


def test_rows_of_no_blocks_are_frozen_beside_blocks(lake: Lake) -> None:
    lake.views.register(VIEW_SET)
    rebuildable = publish_rebuildable_hour(lake, 0)
    lake.retirement.retire_partitions("readings", T0, T0 + HOUR)
    of_no_blocks = publish_hour(lake, 0)
    empty = publish_hour(lake, 1, 0)
    with lake.catalog.read() as connection:
        frozen = listing.list_frozen(connection, "readings", b"another")
        every = [rebuildable, of_no_blocks, empty]
        assert blocks.list_rebuildable(connection, every) == ids([rebuildable, empty])
    assert frozen == [of_no_blocks.insert_range]


def test_rows_are_frozen_if_their_range_begins_before_the_oldest_block(lake: Lake) -> None:
    lake.views.register(VIEW_SET)
    partitions = [publish_rebuildable_hour(lake, hour) for hour in range(3)]
    with lake.catalog.write() as transaction:
        clock.raise_blocks_from(transaction.connection, T0 + HOUR)
    with lake.catalog.read() as connection:
        frozen = listing.list_frozen(connection, "readings", b"another")
        rebuildable = blocks.list_rebuildable(connection, partitions)
    assert frozen == [partitions[0].insert_range]
    assert rebuildable == ids(partitions[1:])
