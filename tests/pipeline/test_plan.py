"""Plans are pure, so they can be tried on thousands of lakes that never existed."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.model.block import Block
from lakebed.model.partition import (
    EventRange,
    Identity,
    Partition,
    add_source_hashes,
    hash_sources,
)
from lakebed.model.source import BlockSource, SqlSource
from lakebed.model.time import TimeRange, find_gaps
from lakebed.model.view_set import GLOBAL, ViewSet
from lakebed.pipeline.plan import (
    Failed,
    Limits,
    State,
    plan_builds,
    plan_merges,
    plan_queries,
    plan_skips,
    plan_waiting,
)
from lakebed.pipeline.steps import Build, Merge, Plan, Query

TIME = pa.timestamp("us", "UTC")
LOGS = ViewSet(
    "logs",
    1,
    pa.schema([("time", TIME), ("insert_time", TIME)]),
    "time",
    source=BlockSource("logs"),
    target_bytes=10_000_000,
)
STATS = ViewSet(
    "stats",
    1,
    pa.schema([("time", TIME), ("count", pa.int64())]),
    "time",
    source=SqlSource("SELECT", "SELECT", (("logs", LOGS.schema_hash),)),
)
DAILY = replace(
    STATS, name="daily", source=SqlSource("SELECT", "SELECT", (("stats", STATS.schema_hash),))
)
LIMITS = Limits(build_bytes=1000, build_records=100, merge_rows=2000, query_bytes=1_000_000)


def block(insert_time: int, size: int = 100, records: int = 10) -> Block:
    name = f"block-{insert_time}"
    return Block(
        name, "stream", "process", insert_time, None, None, records, "", b"", "segment", 0, size
    )


def partition(
    begin: int, end: int, size: int = 1000, view_set: ViewSet = LOGS, source: bytes = bytes(32)
) -> Partition:
    return Partition(
        partition_id=str(uuid.uuid4()),
        identity=Identity(view_set.name, GLOBAL, TimeRange(begin, end), view_set.schema_hash),
        events=EventRange(begin, end) if size else None,
        file_path=f"{begin}-{end}" if size else None,
        file_size=size,
        num_rows=size // 100,
        source_hash=source,
        sort_order=(),
        format_version=2,
        statistics={},
        published_at=end,
    )


def ranges(steps: list[Build] | list[Merge] | list[Query]) -> list[tuple[int, int]]:
    return [(step.insert_range.begin, step.insert_range.end) for step in steps]


def builds(state: State, blocks: list[Block]) -> list[Build]:
    return plan_builds(state, TimeRange(0, 1000), blocks, LIMITS)


def test_what_landed_is_built_up_to_the_last_block() -> None:
    (step,) = builds(State(LOGS, []), [block(10), block(20)])
    assert step.insert_range == TimeRange(0, 21)
    assert [each.insert_time for each in step.blocks] == [10, 20]


def test_nothing_is_due_where_nothing_landed() -> None:
    assert builds(State(LOGS, [partition(0, 500)]), []) == []
    assert builds(State(LOGS, [partition(0, 500)]), [block(10)]) == []


def test_a_step_begins_where_the_last_partition_ended() -> None:
    (step,) = builds(State(LOGS, [partition(0, 500)]), [block(800)])
    assert step.insert_range == TimeRange(500, 801)


@pytest.mark.parametrize(("size", "records"), [(400, 1), (1, 40)])
def test_too_much_for_one_task_is_cut_between_blocks(size: int, records: int) -> None:
    steps = builds(State(LOGS, []), [block(at, size, records) for at in (10, 20, 30, 40, 50)])
    assert ranges(steps) == [(0, 30), (30, 50), (50, 51)]


def test_one_block_too_large_for_the_limit_stands_alone() -> None:
    steps = builds(State(LOGS, []), [block(10), block(20, 5000), block(30)])
    assert [len(step.blocks) for step in steps] == [1, 1, 1]


def test_a_retired_range_is_built_again() -> None:
    state = State(LOGS, [partition(0, 200), partition(400, 1000)])
    (step,) = builds(state, [block(100), block(300), block(500)])
    assert step.insert_range == TimeRange(200, 400)
    assert step.reason == "not built, or retired"


def test_held_failed_and_forgotten_ranges_stay_away() -> None:
    state = State(
        LOGS,
        [],
        held=[TimeRange(100, 200)],
        failed=[Failed("block-250", 250, "bad")],
        retained_from=50,
    )
    steps = builds(state, [block(at) for at in (20, 60, 150, 220, 250, 300)])
    assert ranges(steps) == [(50, 100), (200, 250), (251, 301)]
    assert [each.insert_time for step in steps for each in step.blocks] == [60, 220, 300]
    assert [skip.reason for skip in plan_skips(state, TimeRange(0, 1000))] == [
        "block block-250 could not be decoded: bad",
        "held until it is restored",
    ]


def test_small_neighbours_are_merged() -> None:
    state = State(LOGS, [partition(0, 10), partition(10, 20), partition(20, 30)])
    (step,) = plan_merges(state, TimeRange(0, 1000), LIMITS)
    assert step.insert_range == TimeRange(0, 30)
    assert len(step.replaces) == 3


def test_a_gap_is_never_merged_over() -> None:
    state = State(LOGS, [partition(0, 10), partition(11, 20)])
    assert plan_merges(state, TimeRange(0, 1000), LIMITS) == []


def test_a_large_partition_is_not_rewritten_for_a_small_one() -> None:
    state = State(LOGS, [partition(0, 10, 190_000), partition(10, 20), partition(20, 30)])
    (step,) = plan_merges(state, TimeRange(0, 1000), LIMITS)
    assert step.insert_range == TimeRange(10, 30)


def test_empty_partitions_are_merged_too() -> None:
    state = State(LOGS, [partition(0, 10, 0), partition(10, 20, 0)])
    (step,) = plan_merges(state, TimeRange(0, 1000), LIMITS)
    assert step.insert_range == TimeRange(0, 20)


def test_what_is_near_its_target_stays() -> None:
    state = State(LOGS, [partition(0, 10, 110_000), partition(10, 20, 110_000)])
    assert plan_merges(state, TimeRange(0, 1000), LIMITS) == []


def test_sql_waits_for_what_it_reads() -> None:
    sources = {"logs": State(LOGS, [partition(0, 10), partition(10, 20), partition(30, 40)])}
    own = State(STATS, [partition(0, 10, view_set=STATS)])
    steps = plan_queries(own, TimeRange(0, 1000), sources, LIMITS)
    assert ranges(steps) == [(10, 20), (30, 40)]


def test_sql_reads_a_part_of_a_merged_source_if_its_rows_say_when_they_landed() -> None:
    sources = {"logs": State(LOGS, [partition(0, 30)])}
    own = State(STATS, [partition(0, 10, view_set=STATS)])
    (step,) = plan_queries(own, TimeRange(0, 1000), sources, LIMITS)
    assert step.insert_range == TimeRange(10, 30)
    assert step.replaces == ()


def test_otherwise_it_grows_to_whole_partitions_and_replaces_its_own() -> None:
    sources = {"stats": State(STATS, [partition(0, 30, view_set=STATS)])}
    own = State(DAILY, [partition(0, 10, view_set=DAILY)])
    (step,) = plan_queries(own, TimeRange(0, 1000), sources, LIMITS)
    assert step.insert_range == TimeRange(0, 30)
    assert step.replaces == tuple(own.live)


def test_it_never_grows_over_what_its_sources_lack() -> None:
    """A range that is covered is not looked at again: what is missing in it would stay away."""
    stats = [partition(0, 50, view_set=STATS), partition(60, 100, view_set=STATS)]
    sources = {"stats": State(STATS, stats)}
    daily = [partition(0, 40, view_set=DAILY), partition(45, 100, view_set=DAILY)]
    own = State(DAILY, daily)
    within = TimeRange(0, 1000)
    assert plan_queries(own, within, sources, LIMITS) == []
    (skip,) = plan_waiting(own, within, sources, LIMITS)
    assert skip.insert_range == TimeRange(0, 100)
    assert skip.reason == f"waits for stats of {TimeRange(50, 60)}"
    stats.insert(1, partition(50, 60, view_set=STATS))
    (step,) = plan_queries(own, within, sources, LIMITS)
    assert (step.insert_range, step.replaces) == (TimeRange(0, 100), tuple(daily))
    assert plan_waiting(own, within, sources, LIMITS) == []


def test_a_join_waits_for_both_sides() -> None:
    other = replace(LOGS, name="other")
    both = replace(STATS, source=SqlSource("", "", (("logs", b""), ("other", b""))), name="both")
    sources = {
        "logs": State(LOGS, [partition(0, 50)]),
        "other": State(other, [partition(20, 80, view_set=other)]),
    }
    (step,) = plan_queries(State(both, []), TimeRange(0, 1000), sources, LIMITS)
    assert step.insert_range == TimeRange(20, 50)


def test_a_plan_is_small_by_what_it_reads() -> None:
    """However few steps: one may take long in SQL. However many: they may be next to nothing."""
    within = TimeRange(0, 1000)
    many = builds(State(LOGS, []), [block(at, size=600) for at in range(40)])
    assert len(many) == 40
    assert Plan(1000, tuple(many), ()).is_small
    for large in (block(0, records=100_000), block(0, size=64 << 20)):
        assert not Plan(1000, tuple(builds(State(LOGS, []), [large])), ()).is_small
    sources = {"logs": State(LOGS, [partition(0, 30, 64 << 20)])}
    queries = plan_queries(State(STATS, []), within, sources, LIMITS)
    assert not Plan(1000, tuple(queries), ()).is_small
    merges = plan_merges(State(LOGS, [partition(0, 10), partition(10, 20)]), within, LIMITS)
    assert len(merges) == 1
    assert Plan(1000, tuple(merges), ()).is_small
    assert Plan(1000, (), ()).is_small


@dataclass
class Lake:
    """A lake of plain values, which carries out plans."""

    tick: int = 1
    blocks: list[Block] = field(default_factory=list)
    live: dict[str, list[Partition]] = field(
        default_factory=lambda: {"logs": [], "stats": [], "daily": []}
    )
    rewritten: dict[str, int] = field(default_factory=dict)

    def state(self, view_set: ViewSet) -> State:
        ordered = sorted(self.live[view_set.name], key=lambda each: each.insert_range)
        return State(view_set, ordered)

    def step(self) -> bool:
        """One round; whether anything was due."""
        within = TimeRange(0, self.tick)
        logs, stats, daily = self.state(LOGS), self.state(STATS), self.state(DAILY)
        steps = [
            *plan_builds(logs, within, self.blocks, LIMITS),
            *plan_merges(logs, within, LIMITS),
            *plan_queries(stats, within, {"logs": logs}, LIMITS),
            *plan_queries(daily, within, {"stats": stats}, LIMITS),
        ]
        taken = {each.partition_id for step in steps for each in step.replaces}
        steps += [
            step
            for own in (stats, daily)
            for step in plan_merges(own, within, LIMITS)
            if not any(each.partition_id in taken for each in step.replaces)
        ]
        for step in steps:
            self.publish(step)
        return bool(steps)

    def publish(self, step: Build | Merge | Query) -> None:
        live = self.live[step.view_set.name]
        for old in step.replaces:
            live.remove(old)
        if isinstance(step, Merge):
            assert find_gaps(step.insert_range, [p.insert_range for p in step.replaces]) == []
            for each in self.inside(step.insert_range):
                key = f"{step.view_set.name} {each.block_id}"
                self.rewritten[key] = self.rewritten.get(key, 0) + 1
        if isinstance(step, Query):
            for inputs in step.inputs.values():
                assert find_gaps(step.insert_range, [p.insert_range for p in inputs]) == []
        sizes = [each.payload_size for each in self.inside(step.insert_range)]
        source = hash_sources(each.block_id for each in self.inside(step.insert_range))
        if isinstance(step, Build):
            assert source == hash_sources(each.block_id for each in step.blocks)
        if isinstance(step, Merge):
            assert source == add_source_hashes(each.source_hash for each in step.replaces)
        for other in live:
            assert not other.insert_range.overlaps(step.insert_range)
        live.append(
            partition(
                step.insert_range.begin, step.insert_range.end, sum(sizes), step.view_set, source
            )
        )

    def inside(self, within: TimeRange) -> list[Block]:
        return [each for each in self.blocks if within.begin <= each.insert_time < within.end]


OPERATIONS = st.one_of(
    st.tuples(st.just("land"), st.integers(1, 5), st.integers(1, 700)),
    st.tuples(st.just("build"), st.just(0), st.just(0)),
    st.tuples(st.just("round"), st.just(0), st.just(0)),
    st.tuples(st.just("retire logs"), st.integers(0, 50), st.just(0)),
    st.tuples(st.just("retire stats"), st.integers(0, 50), st.just(0)),
    st.tuples(st.just("retire daily"), st.integers(0, 50), st.just(0)),
    st.tuples(st.just("wait"), st.integers(1, 100), st.just(0)),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(OPERATIONS, max_size=40))
def test_any_history_ends_with_everything_built_once(history: list[tuple[str, int, int]]) -> None:
    lake = Lake()
    for what, number, size in history:
        if what == "land":
            for _ in range(number):
                lake.blocks.append(block(lake.tick, size))
                lake.tick += 1
        elif what == "wait":
            lake.tick += number
        elif what == "round":
            lake.step()
        elif what == "build":
            rounds = 0
            while lake.step():
                rounds += 1
                assert rounds < 60
        else:
            live = lake.live[what.split()[1]]
            if live:
                live.pop(number % len(live))
    while lake.step():
        pass
    for live in lake.live.values():
        covered = [each.insert_range for each in live]
        for each in lake.blocks:
            holding = [r for r in covered if r.begin <= each.insert_time < r.end]
            assert len(holding) == 1
    assert not lake.step()


def test_a_slow_trickle_rewrites_each_row_a_logarithmic_number_of_times() -> None:
    lake = Lake()
    for _ in range(512):
        lake.blocks.append(block(lake.tick, 200))
        lake.tick += 1
        while lake.step():
            pass
    assert max(lake.rewritten.values()) <= 12
    assert len(lake.live["logs"]) <= 12
