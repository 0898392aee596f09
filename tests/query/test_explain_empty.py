"""Why there are no rows: every reason, from SQL, and the whole range accounted for."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed import admin
from lakebed.catalog.lookups.listing import Stretch
from lakebed.catalog.records import failures, view_sets
from lakebed.catalog.records.failures import BuildFailure
from lakebed.catalog.records.view_sets import ActiveViewSet
from lakebed.errors import UnknownViewSet
from lakebed.lake import Lake
from lakebed.model.time import TimeRange, format_instant, to_instant
from lakebed.query.snapshot.emptiness import RangeFacts, Reason, explain
from lakebed.views.builtin import built_in
from tests.parts.building import build, land, tick
from tests.parts.data import HOUR, T0, publish_hour, readings


def ask(
    lake: Lake, view_set: str, begin: int, end: int, **options: Any
) -> list[tuple[int, int, str]]:
    """The answer's ranges and reasons."""
    return [
        (to_instant(row["begin"]), to_instant(row["end"]), row["reason"])
        for row in rows_of(lake, view_set, begin, end, **options)
    ]


def rows_of(lake: Lake, view_set: str, begin: int, end: int, **options: Any) -> list[Any]:
    sql = (
        f"SELECT * FROM explain_empty('{view_set}', '{format_instant(begin)}',"
        f" '{format_instant(end)}')"
    )
    return lake.query(sql, **options).to_arrow().to_pylist()


def hours(begin: float, end: float) -> tuple[int, int]:
    return T0 + int(begin * HOUR), T0 + int(end * HOUR)


@pytest.fixture
def published(lake: Lake) -> Lake:
    """Hours of readings: rows, empty, nothing, rows."""
    lake.views.register(readings())
    for hour, count in ((0, 3), (1, 0), (3, 2)):
        publish_hour(lake, hour, count)
    return lake


def test_ranges_with_rows_are_left_out(published: Lake) -> None:
    assert ask(published, "readings", *hours(0, 1)) == []
    assert ask(published, "readings", *hours(-1, 4)) == [
        (*hours(-1, 0), "no data landed"),
        (*hours(1, 2), "processed and empty"),
        (*hours(2, 3), "no data landed"),
    ]
    assert ask(published, "readings", *hours(1.25, 1.5)) == [
        (*hours(1.25, 1.5), "processed and empty")
    ]


def test_retired_and_held_ranges(published: Lake) -> None:
    first = published.partitions.list_partitions("readings")[0]
    published.retirement.retire_partitions("readings", *hours(0, 1), confirmed=["readings"])
    published.retirement.retire_partitions("readings", *hours(3, 4), hold=True)
    gone, _, _, held = rows_of(published, "readings", *hours(0, 4))
    assert (gone["reason"], held["reason"]) == ("retired", "retired")
    assert gone["hint"] == f"lakebed partitions restore {first.partition_id}"
    assert "was retired at" in gone["detail"]
    assert "is held back" in held["detail"]


def test_restoring_is_not_advised_for_a_retired_partition_of_another_schema(
    published: Lake,
) -> None:
    """Queries would not see what was restored."""
    published.retirement.retire_partitions("readings", *hours(0, 1), confirmed=["readings"])
    published.views.register(readings(2))
    (retired,) = rows_of(published, "readings", *hours(0, 1))
    assert retired["reason"] == "retired"
    assert retired["hint"] == "publish the rows again"
    assert "which is not the active one" in retired["detail"]


def test_the_past_did_not_know_of_what_came_later(published: Lake) -> None:
    before = tick(published)
    published.retirement.retire_partitions("readings", *hours(0, 1), confirmed=["readings"])
    publish_hour(published, 2, 0)
    assert ask(published, "readings", *hours(0, 3), as_of=before) == [
        (*hours(1, 2), "processed and empty"),
        (*hours(2, 3), "no data landed"),
    ]
    assert ask(published, "readings", *hours(0, 3)) == [
        (*hours(0, 1), "retired"),
        (*hours(1, 3), "processed and empty"),
    ]


def test_other_schemas_are_incompatible_until_they_are_built_again(published: Lake) -> None:
    published.views.register(readings(2))
    publish_hour(published, 0, version=2)
    rows = rows_of(published, "readings", *hours(0, 4))
    assert [row["reason"] for row in rows] == ["incompatible", "no data landed", "incompatible"]
    assert rows[0]["detail"].startswith("nothing in schema ")
    assert rows[2]["detail"].startswith("2 rows in schema ")


def test_below_the_floor_rows_have_expired(published: Lake) -> None:
    with published.catalog.write() as transaction:
        view_sets.raise_floor(transaction.connection, "readings", T0 + 5 * HOUR // 2)
    assert ask(published, "readings", *hours(-1, 3)) == [
        (*hours(-1, 0), "expired"),
        (*hours(1, 2), "processed and empty"),
        (*hours(2, 2.5), "expired"),
        (*hours(2.5, 3), "no data landed"),
    ]


def test_the_future_is_told_apart(published: Lake) -> None:
    now = tick(published)
    (past, future) = rows_of(published, "readings", now - HOUR, now + HOUR)
    assert past["detail"] == "nobody published anything"
    assert to_instant(future["begin"]) > now
    assert future["detail"].startswith("the lake's clock stands at ")


def test_blocks_that_are_not_built_are_rows_of_the_tail_unless_it_is_left_out(lake: Lake) -> None:
    before = tick(lake)
    land(lake)
    first, last = [
        to_instant(
            lake.query(f"SELECT {which}(insert_time) AS t FROM blocks").to_arrow()["t"][0].as_py()
        )
        for which in ("min", "max")
    ]
    after = tick(lake)
    outside = [(before, first, "no data landed")]
    if after > last:
        outside.append((last + 1, after, "no data landed"))
    assert ask(lake, "log_entries", before, after) == outside
    unbuilt = (first, min(last + 1, after), "not built yet")
    assert ask(lake, "log_entries", before, after, stale=True) == sorted([*outside, unbuilt])
    # View sets made by SQL have no tail.
    assert ask(lake, "log_stats", before, after) == sorted([*outside, unbuilt])
    (row,) = [
        r for r in rows_of(lake, "log_stats", before, after) if r["reason"] == "not built yet"
    ]
    assert row["hint"] == "lakebed build log_stats"
    # Nothing landed that measures are made of.
    assert ask(lake, "measures", before, after) == [(before, after, "no data landed")]
    build(lake)
    assert unbuilt not in ask(lake, "log_entries", before, after, stale=True)


def test_blocks_that_cannot_be_decoded_have_failed(lake: Lake) -> None:
    land(lake)
    build(lake, "measures")
    at = to_instant(
        lake.query("SELECT max(insert_time) AS t FROM blocks").to_arrow()["t"][0].as_py()
    )
    logs = next(each for each in built_in() if each.name == "log_entries")
    with lake.catalog.write() as transaction:
        failure = BuildFailure("log_entries", logs.schema_hash, "b1", at, "cut short")
        failures.insert_many(transaction.connection, [failure], transaction.tick)
    for name in ("log_entries", "log_stats"):
        (row,) = [r for r in rows_of(lake, name, at, at + 1) if r["reason"] == "failed"]
        assert row["detail"] == "log_entries cannot read block b1: cut short"
        assert row["hint"] == f"lakebed build {name} --retry-failed"
    assert ask(lake, "measures", at, at + 1) == [(at, at + 1, "processed and empty")]


@pytest.fixture
def pulse(lake: Lake) -> Lake:
    """A table with rows at hours 0, 1 and 3."""
    lake.tables.create_database("home")
    draft = {"time": {"type": "datetime", "time": True}, "bpm": "int"}
    lake.tables.create_table("home", "pulse", draft, bucket="hour")
    for hour in (0, 1, 3):
        lake.tables.insert("home", "pulse", [{"time": format_instant(T0 + hour * HOUR), "bpm": 6}])
    return lake


def test_empty_times_of_a_table_are_explained(pulse: Lake) -> None:
    first, second, last = (T0 + hour * HOUR for hour in (0, 1, 3))
    assert ask(pulse, "home.pulse", first, last + 1) == [
        (first + 1, second, "no data landed"),
        (second + 1, last, "no data landed"),
    ]
    (row,) = rows_of(pulse, "home.pulse", last + 1, last + 2)
    assert row["detail"] == "no rows of home.pulse are of it"
    table = admin.explain_empty(pulse, "home.pulse", last + 1, last + 2)
    assert table.to_pylist() == [row]
    with pytest.raises(UnknownViewSet):
        ask(pulse, "home.other", first, last)


def test_rows_of_a_table_that_went_are_explained(pulse: Lake) -> None:
    first, second, last = (T0 + hour * HOUR for hour in (0, 1, 3))
    pulse.tables.delete_rows("home", "pulse", f"time = '{format_instant(first)}'")
    stored = pulse.tables.definitions.get("home", "pulse").stored_as
    retired_one = next(
        partition
        for partition in pulse.partitions.list_partitions(stored)
        if partition.events is not None and partition.events.earliest == second
    )
    pulse.retirement.retire_partition_by_metadata(
        stored,
        retired_one.instance,
        retired_one.insert_range.begin,
        retired_one.insert_range.end,
        confirmed=[stored],
    )
    deleted, _, retired, _ = rows_of(pulse, "home.pulse", first, last)
    assert (deleted["reason"], retired["reason"]) == ("deleted or replaced", "retired")
    assert deleted["hint"].startswith("read the past with as_of, from before ")
    assert retired["hint"] == f"lakebed partitions restore {retired_one.partition_id}"
    assert ask(pulse, "home.pulse", first, first + 1) == [(first, first + 1, "deleted or replaced")]


def test_times_of_a_table_before_its_retention_have_expired(pulse: Lake) -> None:
    pulse.tables.definitions.set_retention("home", "pulse", "1h")
    first = T0 - HOUR
    assert ask(pulse, "home.pulse", first, T0) == [(first, T0, "expired")]
    (row,) = rows_of(pulse, "home.pulse", first, T0)
    assert row["detail"] == "rows are kept for 1h"


@st.composite
def knowledge(draw: st.DrawFn) -> tuple[RangeFacts, TimeRange, list[int]]:
    """A few partitions, failures and blocks in the first hundred instants."""
    edges = st.integers(0, 100)
    active = readings() if draw(st.booleans()) else built_in()[1]
    hashes = [active.schema_hash, b"other"]
    retired, live = [], []
    for number in range(draw(st.integers(0, 6))):
        begin, end = sorted((draw(edges), draw(edges)))
        count = draw(st.integers(0, 1))
        gone = draw(st.booleans())
        each = Stretch(
            TimeRange(begin, end + 1),
            draw(st.sampled_from(hashes)),
            count,
            str(number),
            retired_at=1 if gone else None,
            held=gone and draw(st.booleans()),
        )
        (retired if gone else live).append(each)
    failed = [
        BuildFailure(active.name, active.schema_hash, "b", at, "broken")
        for at in draw(st.lists(edges, max_size=2))
    ]
    floor, now = draw(st.integers(0, 30)), draw(st.integers(60, 110))
    known = RangeFacts(
        ActiveViewSet(active, active.schema_hash, 0, floor),
        now,
        live,
        retired,
        failed,
        draw(st.booleans()),
    )
    begin, end = sorted((draw(edges), draw(edges)))
    landed = sorted(draw(st.sets(edges, max_size=4)))
    return known, TimeRange(begin, end + 1), [at for at in landed if at <= now]


@given(knowledge())
def test_every_instant_has_rows_or_one_reason(
    given: tuple[RangeFacts, TimeRange, list[int]],
) -> None:
    known, within, landed = given
    found = explain(known, within, landed)
    assert [each.within for each in found] == sorted(each.within for each in found)
    for one, other in pairwise(found):
        assert one.within.end <= other.within.begin
    for instant in range(within.begin, within.end):
        here = [each for each in found if each.within.begin <= instant < each.within.end]
        here_rows = any(
            each.within.begin <= instant < each.within.end
            for each in known.live
            if each.schema_hash == known.active.schema_hash and not each.is_empty
        )
        assert len(here) <= 1
        if here_rows:
            assert here == []
        if not here and not here_rows:
            # What is left has rows in the tail: between two blocks that are not built.
            assert known.tail_is_read
            assert known.active.view_set.source is not None
            assert landed[0] <= instant <= landed[-1]
        if here and here[0].reason is Reason.NO_DATA:
            assert not any(
                each.within.begin <= instant < each.within.end
                for each in (*known.live, *known.retired)
            )
