"""Lookups by event time and by past tick agree with plain Python at every bound of the lake: at the
first and last event of each partition and at each tick, one before, on it, and one after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import pytest

from lakebed.catalog import clock, coverage, finding, search, tables
from lakebed.catalog.catalog import Connection
from lakebed.catalog.finding import Search
from lakebed.catalog.search import Wanted
from lakebed.errors import SnapshotExpired
from lakebed.lake import Lake
from lakebed.model.partition import Partition
from lakebed.model.time import TimeRange
from tests.parts.data import HOUR, T0, publish_hour, readings

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


def ids(partitions: Iterable[Partition]) -> set[str]:
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
    wanted = [Wanted("readings", HASH, None if events is None else [events])]
    spans = search.list_spans(connection, wanted)
    return ids(search.find_files(connection, wanted, spans, as_of).get("readings", []))


def find_partitions(
    connection: Connection, events: TimeRange | None, as_of: int | None
) -> set[str]:
    wanted = Search([("readings", [HASH])], events=events, as_of=as_of)
    return ids(finding.search(connection, wanted))


def find_of_any_schema(
    connection: Connection, events: TimeRange | None, as_of: int | None
) -> set[str]:
    return ids(finding.search(connection, Search([("readings", None)], events=events, as_of=as_of)))


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
    wanted = [Wanted("readings", HASH, [TimeRange(T0, T0 + 1)])]
    with lake.catalog.read() as connection:
        spans = search.list_spans(connection, wanted)
    events = [p.events for p in history.live_at(None) if p.events is not None]
    widths = {1 << (e.latest - e.earliest).bit_length() for e in events}
    assert spans == {("readings", HASH): sorted(widths)}


def test_find_files_returns_partitions_in_any_of_several_ranges(
    lake: Lake, history: History
) -> None:
    starts = [partition.insert_range.begin for partition in history.live_at(None)]
    ranges = [TimeRange(starts[1], starts[1] + 1), TimeRange(starts[3], starts[3] + 1)]
    past = max(p.published_at for p in history.partitions)
    wanted = [Wanted("readings", HASH, ranges)]
    expected = with_events(history.live_at(None), ranges[0]) | with_events(
        history.live_at(None), ranges[1]
    )
    assert len(expected) == 2
    with lake.catalog.read() as connection:
        spans = search.list_spans(connection, wanted)
        for as_of in (None, past):
            assert ids(search.find_files(connection, wanted, spans, as_of)["readings"]) == expected


def test_count_partitions_counts_at_every_tick(lake: Lake, history: History) -> None:
    with lake.catalog.read() as connection:
        for tick in [None, *history.ticks()]:
            live = history.live_at(tick)
            empty = sum(partition.is_empty for partition in live)
            counts = search.count_partitions(connection, [Wanted("readings", HASH)], tick)
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
                wanted = Search([("readings", [HASH])], inserted=inserted)
                assert ids(finding.search(connection, wanted)) == expected, inserted


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
