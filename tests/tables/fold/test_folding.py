"""Folding: of each key the last version, marks for as long as something older may come back, and
runs that leave room for what may. And that the tests of tables would notice if it were not so.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lakebed.catalog.records import tables as catalog_tables
from lakebed.errors import LakebedError
from lakebed.lake import Lake
from lakebed.model.partition import NO_SOURCE, EventRange, Identity, Partition
from lakebed.model.tables.declaration import parse_schema
from lakebed.model.tables.schema import Bucket
from lakebed.model.tables.table import DELETED, VERSION, UserTable
from lakebed.model.time import TimeRange
from lakebed.query.embedded.user_tables import UserTables
from lakebed.query.planning import conditions
from lakebed.query.snapshot import user_tables
from lakebed.tables import delete
from lakebed.tables.fold import fold_rows
from lakebed.tables.fold.fold_rows import find_marks_from, fold, is_due, plan_folds, plan_small_fold
from tests.conftest import SQLITE_FIRST, NewLake
from tests.tables.delete import test_deleting
from tests.tables.insert import test_upserts
from tests.tables.parts import (
    BY_ID,
    BY_TIME,
    LOOSE,
    NOON,
    damage,
    make,
    partitions_of,
    retire,
    rows_of,
    values_of,
)

# ---- the fold itself -----------------------------------------------------------------------------

KeyVersion = tuple[str, int, bool]
"""A key, a version, and whether it is a mark."""
key_versions = st.lists(
    st.tuples(st.sampled_from("abc"), st.integers(1, 9), st.booleans()), unique=True, max_size=12
)


def as_table(versions: Sequence[KeyVersion]) -> pa.Table:
    return pa.table(
        {
            "key": pa.array([key for key, _, _ in versions], pa.string()),
            VERSION: pa.array([version for _, version, _ in versions], pa.int64()),
            DELETED: pa.array([True if mark else None for _, _, mark in versions], pa.bool_()),
        }
    )


def last_of(versions: Sequence[KeyVersion]) -> dict[str, KeyVersion]:
    """Return the last version by key; a mark is newer than a row of its own version."""
    return {
        version[0]: version
        for version in sorted(versions, key=lambda version: (version[1], version[2]))
    }


@given(key_versions, st.integers(0, 4), st.none() | st.integers(0, 10))
def test_the_last_version_of_each_key_is_left(
    versions: list[KeyVersion], parts: int, marks_from: int | None
) -> None:
    split = [versions[part :: parts + 1] for part in range(parts + 1)]
    folded = fold([as_table(part_versions) for part_versions in split], ["key"], marks_from)
    remaining = {
        (key, version, bool(mark))
        for key, version, mark in zip(
            *(column.to_pylist() for column in folded.columns), strict=True
        )
    }
    expected = {
        version
        for version in last_of(versions).values()
        if not version[2] or (marks_from is not None and version[1] >= marks_from)
    }
    assert remaining == expected


def a_table(schema: Any) -> UserTable:
    return UserTable("t" * 16, "d", "t", Bucket.DAY, (parse_schema(schema),))


def a_partition(
    begin: int,
    end: int,
    instance: str = "x",
    size: int = 1000,
    rows: int = 1,
    statistics: dict[str, Any] | None = None,
) -> Partition:
    return Partition(
        f"{instance} {begin} {end}",
        Identity("table_t", instance, TimeRange(begin, end), b"h"),
        EventRange(0, 1),
        f"{instance}-{begin}.parquet",
        size,
        rows,
        NO_SOURCE,
        (),
        2,
        statistics or {},
        end,
    )


units = st.lists(
    st.tuples(
        st.sampled_from(["x", "y"]),
        st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 3)), max_size=3),
        st.booleans(),
        st.booleans(),
    ),
    min_size=2,
    max_size=6,
)


A_ROW, ITS_MARK, ANOTHER = ("a", False, 0), ("a", True, 0), ("b", False, 0)


@given(units, st.integers(0, 5), st.integers(2, 4), st.booleans())
@example(
    [
        ("x", [ANOTHER], False, True),
        ("y", [A_ROW], False, True),
        ("x", [ITS_MARK], False, True),
    ],
    *(0, 2, True),
)
def test_no_mark_that_is_left_out_is_ever_missed(
    unit_samples: list[Any], first: int, count: int, moves: bool
) -> None:
    """Units of two buckets at ticks 10, 20, 30…; marks may be a little older than their unit. Some
    are retired, and of some the catalog knows the bounds of the keys. If marks are left out by a
    fold, no combination of restored units may show the difference."""
    table = a_table(BY_ID if moves else BY_TIME)
    drawn_units = []
    for index, (instance, changes, retired, has_bounds) in enumerate(unit_samples):
        begin = 10 * (index + 1)
        versions = [
            (key if moves else instance + key, begin - back if mark else begin, mark)
            for key, mark, back in changes
        ]
        keys = [key for key, _, _ in versions]
        bounds = {table.key[0]: [min(keys), max(keys)]} if has_bounds and keys else {}
        unit = a_partition(begin, begin + 1, instance, statistics=bounds)
        drawn_units.append((unit, versions, retired))
    buckets = [
        candidate
        for candidate in drawn_units
        if candidate[0].instance == drawn_units[0][0].instance and not candidate[2]
    ]
    barriers = [
        p for p, _, retired in drawn_units if retired and p.instance == drawn_units[0][0].instance
    ]
    live = [partition for partition, _, _ in buckets]
    runs = plan_folds(live, barriers, is_requested=True)
    for run in runs:
        inputs = list(run.partitions)[first % 2 : count + first % 2]
        if len(inputs) < 2:
            continue
        marks_from = find_marks_from(table, inputs, [partition for partition, _, _ in drawn_units])
        input_versions = [
            version for p, versions, _ in drawn_units if p in inputs for version in versions
        ]
        folded = [
            version
            for version in last_of(input_versions).values()
            if not version[2] or (marks_from is not None and version[1] >= marks_from)
        ]
        other_units = [candidate for candidate in drawn_units if candidate[0] not in inputs]
        always = [
            version for _, versions, retired in other_units if not retired for version in versions
        ]
        gone = [versions for _, versions, retired in other_units if retired]
        for size in range(len(gone) + 1):
            for back in itertools.combinations(gone, size):
                rest = [*always, *(version for versions in back for version in versions)]
                before = {k: v for k, v in last_of([*input_versions, *rest]).items() if not v[2]}
                after = {k: v for k, v in last_of([*folded, *rest]).items() if not v[2]}
                assert before == after


def test_marks_go_when_no_older_partition_can_have_their_keys() -> None:
    def unit(begin: int, instance: str, **bounds: list[Any]) -> Partition:
        return a_partition(begin, begin + 1, instance, statistics=bounds)

    table = a_table(BY_ID)
    inputs = [unit(20, "x", id=[1, 5]), unit(30, "x", id=[3, 3])]
    elsewhere = [unit(1, "y", id=[6, 9]), unit(2, "y", id=[-4, 0])]
    assert find_marks_from(table, inputs, [*inputs, *elsewhere]) is None
    assert find_marks_from(table, inputs, [*elsewhere, unit(3, "y", id=[5, 9])]) == 3
    assert find_marks_from(table, inputs, [*elsewhere, unit(3, "y")]) == 3, "it may have any key"
    unknown = [*inputs, unit(40, "x")]
    assert find_marks_from(table, unknown, elsewhere) == 1, "there may be a mark of any key"


def test_marks_of_a_key_without_time_are_folded_away(lake: Lake) -> None:
    """Rows of other keys in another bucket, also those that may be restored, are none of theirs."""
    table = make(lake, BY_ID)
    table.insert(
        [{"id": number, "time": "2026-03-01T12:00:00Z", "value": number} for number in (1, 2)]
    )
    table.insert([{"id": number, "time": NOON, "value": number} for number in (3, 4)])
    table.delete_rows("value > 2")
    table.fold()
    march = {partition.instance: partition for partition in table.partitions()}
    assert march["2026-03-02"].is_empty
    assert values_of(table) == [1, 2]
    table.insert({"id": 2, "time": NOON, "value": 5})
    table.delete_rows("value = 5")
    table.fold()
    assert values_of(table) == [1]
    assert [partition.num_rows for partition in table.partitions()] == [2, 1], (
        "the mark hides a row"
    )
    hidden = table.partitions()[0]
    retire(lake, hidden)
    table.insert({"id": 2, "time": NOON, "value": 6})
    table.delete_rows("value = 6")
    table.fold()
    lake.retirement.restore(hidden.partition_id)
    assert values_of(table) == [1]


# ---- what is folded ------------------------------------------------------------------------------


@given(
    st.lists(st.sampled_from(["live", "retired", "nothing"]), max_size=12),
    st.integers(1, 3000),
)
def test_runs_leave_room_for_what_may_come_back(kinds: list[str], most_bytes: int) -> None:
    every = [a_partition(10 * number, 10 * number + 5) for number in range(len(kinds))]
    live = [partition for partition, kind in zip(every, kinds, strict=True) if kind == "live"]
    gone = [partition for partition, kind in zip(every, kinds, strict=True) if kind == "retired"]
    for limit in (most_bytes, fold_rows.MOST_BYTES):
        runs = plan_folds(live, gone, is_requested=True, most_bytes=limit)
        for run in runs:
            assert len(run.partitions) > 1
            assert not any(run.insert_range.overlaps(partition.insert_range) for partition in gone)
            inside = [
                partition for partition in live if run.insert_range.contains(partition.insert_range)
            ]
            assert list(run.partitions) == inside, "a neighbour was passed over"
        folded = [partition for run in runs for partition in run.partitions]
        assert len({partition.partition_id for partition in folded}) == len(folded)
    if live and not gone:
        assert len(plan_folds(live, gone, is_requested=True)) == (len(live) > 1)


@pytest.mark.parametrize("size", [2_000, 20_000, 100_000, 900_000, 3_000_000])
def test_inserts_fold_little_at_once_and_each_row_a_few_times(size: int) -> None:
    """However many there are: a bucket keeps few small partitions, and what an insert folds is
    either cheap or in proportion to what was inserted."""
    bucket: list[Partition] = []
    inserts, written = 2500, 0
    for number in range(inserts):
        bucket.append(a_partition(number, number + 1, size=size, rows=size // 20))
        due = is_due("2026-03-02", len(bucket), size // 20)
        if due and (run := plan_small_fold(bucket, [])) is not None:
            assert run.bytes <= max(fold_rows.SMALL_BYTES, 16 * size)
            written += run.bytes
            begin = bucket.index(run.partitions[0])
            end = begin + len(run.partitions)
            assert tuple(bucket[begin:end]) == run.partitions, "a neighbour was passed over"
            rows = sum(partition.num_rows for partition in run.partitions)
            whole = run.insert_range
            folded = a_partition(whole.begin, whole.end, size=run.bytes, rows=rows)
            bucket[begin:end] = [folded]
        small = [
            partition for partition in bucket if partition.file_size < fold_rows.SMALL_BYTES // 4
        ]
        assert len(small) <= 3 * fold_rows.MANY_PARTITIONS
    cheap = inserts / fold_rows.MANY_PARTITIONS * fold_rows.SMALL_BYTES / 8
    assert written <= max(cheap, 4 * size * inserts)


def test_folds_and_restores_take_turns(lake: Lake) -> None:
    """A partition retired from the middle is restored in its place, and folded after that."""
    for schema in (LOOSE, BY_ID, BY_TIME):
        table = make(lake, schema)
        for value in range(5):
            whole = {"id": value, "device": f"d{value}", "time": NOON, "value": value}
            table.insert({n: v for n, v in whole.items() if n in table.schema.names})
        middle = table.partitions()[2]
        retire(lake, middle)
        table.fold()
        assert len(table.partitions()) == 2
        assert values_of(table) == [0, 1, 3, 4]
        lake.retirement.restore(middle.partition_id)
        assert values_of(table) == [0, 1, 2, 3, 4]
        table.fold()
        assert len(table.partitions()) == 1
        assert table.fold() == []
        (whole_bucket,) = table.partitions()
        retire(lake, whole_bucket)
        assert values_of(table) == []
        assert table.fold() == []
        lake.retirement.restore(whole_bucket.partition_id)
        assert values_of(table) == [0, 1, 2, 3, 4]
        table.delete_rows("true")
        table.fold()
        assert values_of(table) == []
        assert [partition.is_empty for partition in table.partitions()] == [True]
    assert damage(lake) == []


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_whole_numbers_beyond_the_reach_of_fractions_are_folded(lake: Lake) -> None:
    table = make(lake, LOOSE | {"numbers": "int[]"})
    large = (1 << 53) + 1
    table.insert([{"time": NOON, "value": large, "numbers": [large]}])
    table.alter(widen=["value", "numbers"])
    for value in range(fold_rows.MANY_PARTITIONS + 6):
        table.insert([{"time": NOON, "value": value + 0.5}])
    assert table.count() == fold_rows.MANY_PARTITIONS + 7
    table.fold()
    assert len(table.partitions()) == 1
    (row,) = rows_of(table, "value > 1000")
    assert (row["value"], row["numbers"]) == (float(large), [float(large)])


def test_an_insert_is_no_failure_if_folding_is(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    table = make(lake, LOOSE)
    table.insert([{"time": NOON, "value": 1}])
    monkeypatch.setattr(fold_rows, "plan_small_fold", fail)
    many = pa.table({"time": [NOON] * fold_rows.LARGE_ROWS, "value": [2] * fold_rows.LARGE_ROWS})
    table.insert(many)
    assert table.count() == fold_rows.LARGE_ROWS + 1
    assert "could not fold" in caplog.text


def test_a_bucket_of_many_inserts_has_few_partitions(lake: Lake) -> None:
    table = make(lake, BY_ID)
    for value in range(60):
        table.insert({"id": value % 7, "time": NOON, "value": value})
    assert len(table.partitions()) <= 2 * fold_rows.MANY_PARTITIONS
    assert values_of(table) == list(range(53, 60))
    folded = [partition for partition in partitions_of(lake, table) if partition.replaced]
    assert len(folded) > 40


# ---- negative controls --------------------------------------------------------------------------


def _keep_first(original: Callable[..., pa.Table]) -> Callable[..., pa.Table]:
    def keep_first(rows: pa.Table, key: Any) -> pa.Table:
        backwards = pa.array(range(rows.num_rows - 1, -1, -1), pa.int64())
        return original(rows.take(backwards), key)

    return keep_first


def _prune_by_any_column(
    table: UserTable, scan: Any, partition: Partition, *, by_time: bool
) -> bool:
    return conditions.may_match(scan, partition, table.time_column)


def _without_compare(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, frame, content: original(self, frame, replace(content, compares=False))


def _all_large(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(user_tables, "_SMALL_BYTES", 0)


def _not_compared(patch: pytest.MonkeyPatch) -> None:
    _all_large(patch)
    patch.setattr(UserTables, "_hide", _without_compare(UserTables._hide))


def _others_not_asked(patch: pytest.MonkeyPatch) -> None:
    original = user_tables._choose_by_key
    patch.setattr(
        user_tables,
        "_choose_by_key",
        lambda view, requested, _other_buckets: original(view, requested, []),
    )


def _folded_over(patch: pytest.MonkeyPatch) -> None:
    original = fold_rows.plan_folds
    patch.setattr(fold_rows, "plan_folds", lambda live, _gone, **more: original(live, [], **more))


def _changes_not_minded(patch: pytest.MonkeyPatch) -> None:
    original = catalog_tables.find_ground

    def find_ground(*arguments: Any) -> Any:
        ground = original(*arguments)
        return ground and replace(ground, changed_at=0)

    patch.setattr(catalog_tables, "find_ground", find_ground)


Break = Callable[[pytest.MonkeyPatch], None]
Notice = Callable[[Lake], None]
BROKEN: dict[str, tuple[Break, Notice]] = {
    "the first version wins": (
        lambda patch: patch.setattr(fold_rows, "keep_last", _keep_first(fold_rows.keep_last)),
        test_upserts.test_the_last_insert_wins,
    ),
    "marks are taken in the order of their partitions": (
        lambda patch: patch.setattr(fold_rows, "_in_order", lambda rows: rows),
        lambda lake: test_deleting.check_what_is_inserted_meanwhile_stays(lake, BY_ID),
    ),
    "partitions of all buckets are taken to follow each other": (
        lambda patch: patch.setattr(fold_rows, "follow_each_other", lambda *_anything: True),
        lambda lake: test_upserts.check_a_key_that_moves_stays_one_row(lake, "hour"),
    ),
    "marks are dropped at once": (
        lambda patch: patch.setattr(fold_rows, "find_marks_from", lambda *_anything: None),
        lambda lake: test_deleting.check_a_deleted_row_stays_deleted_through_any_order(lake, BY_ID),
    ),
    "marks are dropped although their row is in another bucket": (
        lambda patch: patch.setattr(UserTable, "key_has_time", True),
        lambda lake: test_upserts.check_a_key_that_moves_stays_one_row(lake, "hour"),
    ),
    "what may come back is folded over": (_folded_over, test_folds_and_restores_take_turns),
    "partitions are pruned by columns that change": (
        lambda patch: patch.setattr(user_tables, "_may_have", _prune_by_any_column),
        test_upserts.test_a_value_that_was_replaced_is_not_found,
    ),
    "buckets that nobody asked for are not looked at": (
        _others_not_asked,
        lambda lake: test_upserts.check_a_key_that_moves_stays_one_row(lake, "day"),
    ),
    "versions are not compared": (_not_compared, test_upserts.test_the_last_insert_wins),
    "a delete ignores newer rows": (
        lambda patch: patch.setattr(delete, "_as_marks", _mark_all(delete._as_marks)),
        lambda lake: test_deleting.check_what_is_inserted_meanwhile_stays(lake, BY_ID),
    ),
    "a table may change during an insert that ignores": (
        _changes_not_minded,
        test_upserts.test_ignoring_minds_what_comes_meanwhile,
    ),
}


def _mark_all(original: Callable[..., Any]) -> Callable[..., Any]:
    return lambda doomed, table, _tick: original(doomed, table, 1 << 60)


@pytest.mark.parametrize("name", BROKEN)
@pytest.mark.parametrize("dialect", ["sqlite"])
def test_what_is_broken_on_purpose_is_noticed(new_lake: NewLake, name: str) -> None:
    """The test that should notice fails then, and only then."""
    break_it, notice = BROKEN[name]
    notice(new_lake())
    with pytest.MonkeyPatch.context() as patch:
        break_it(patch)
        with pytest.raises((AssertionError, LakebedError)):
            notice(new_lake())
