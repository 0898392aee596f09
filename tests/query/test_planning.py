"""The pure parts of planning, at their bounds: how large a statement is, which intervals a
condition leaves, and which partitions and blocks may hold an answer.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakebed.errors import BadSql
from lakebed.model.block import Block
from lakebed.model.partition import NO_SOURCE, EventRange, Identity, Partition
from lakebed.model.tables.table import UserTable
from lakebed.model.time import TimeRange
from lakebed.query.planning import conditions, content
from lakebed.query.planning.conditions import EVER, Interval, Scan
from lakebed.query.request import statement_limits as statement
from lakebed.query.snapshot import coverage_cache, user_tables
from lakebed.query.snapshot import view_tables as table_views
from lakebed.views.builtin import built_in
from tests.parts.data import T0


def tokens(sql: str) -> list[tuple[str, str]]:
    return list(statement._tokens(sql))


@pytest.mark.parametrize(
    ("sql", "levels"),
    [
        ("select 1", 0),
        ("select (1)", 1),
        ("select ((1)), (2)", 2),
        ("select [1], {2}", 1),
        ("select case when (1) then 2 end, (3)", 2),
        ("select not a", 0),
        ("select not not a", 3),
        ("select not a, not b", 0),
        ("select not (a)", 4),
        ("select ---1", 0),
        ("select + + + + a", 1),
        ("select - - (a)", 3),
        ("select ) (1)", 1),
        ("select (1", 1),
    ],
)
def test_measure_nesting_counts_levels_and_prefixes(sql: str, levels: int) -> None:
    assert statement._measure_nesting(tokens(sql)) == levels


@pytest.mark.parametrize(
    ("sql", "uses"),
    [
        ("select 1", 0),
        ("with a as (select 1) select 2", 0),
        ("with a as (select 1) select * from a", 1),
        ("with a as (select 1) select * from a, (select * from a) as b", 2),
        ("with a as (select 1), b as (select * from a, a) select * from b, b", 6),
        ("with a as (select (1)), b as (select (2) from a) select * from b", 2),
        ("with a as (select 1), b as (with c as (select * from a) select * from c) table b", 3),
        ("select a as (1) from a", 1),
    ],
)
def test_count_expanded_multiplies_named_subqueries(sql: str, uses: int) -> None:
    assert statement._count_expanded(tokens(sql)) == uses


@pytest.mark.parametrize(
    ("sql", "growth"),
    [
        ("select a", 1),
        ("select a || b", 2),
        ("select a || b || c", 3),
        ("select (a || b) || (c || d || e)", 6),
        ("select (a || b), (c || d)", 2),
        ("select (((a || b)))", 2),
        ("select concat(a, b, c)", 4),
        ("select concat(a, f(b, c))", 3),
        ("select concat", 1),
        ("select concat(a", 2),
        ("select replace(a, b, c)", 8),
        ("select replace(replace(a, b, c), d, e)", 64),
        ("with x as (select a || b as v) select v || v from x", 4),
        ("with x as (select a || b as v) select v from x", 2),
        ("with x as (select a || b), x as (select a) select * from x", 2),
        ("with x as (select a || b as v), y as (select v || v from x) select v || v from y", 8),
        ("select a || (b || c", 4),
        ("select ) a || b", 2),
    ],
)
def test_measure_growth_multiplies_joined_texts(sql: str, growth: int) -> None:
    assert statement._measure_growth(tokens(sql), longest=7) == growth


@pytest.mark.parametrize(
    ("sql", "limit"),
    [
        (lambda n: f"select {'+'.join('1' * (n + 1))}", statement._MOST_OPERATORS),
        (lambda n: " union all ".join(["select 1"] * n), statement._MOST_SELECTS),
        (lambda n: f"select 1 from a{' join b using (c)' * n}", statement._MOST_JOINS),
        (lambda n: f"select {'(' * n}1{')' * n}", statement._MOST_NESTED),
        (lambda n: f"with a as (select 1) select b in ({','.join('a' * n)})", 1000),
        (lambda n: f'select "{"x" * n}"', statement._LONGEST_WORD),
    ],
)
def test_check_statement_takes_what_is_at_a_limit_and_refuses_one_more(
    sql: object, limit: int
) -> None:
    make = sql
    assert callable(make)
    statement.check_statement(make(limit))
    with pytest.raises(BadSql, match=r"at most|more than"):
        statement.check_statement(make(limit + 1))


def test_check_statement_limits_characters_and_growth() -> None:
    limit = statement._MOST_CHARACTERS
    statement.check_statement("select 1".ljust(limit))
    with pytest.raises(BadSql, match=f"has {limit + 1} characters"):
        statement.check_statement("select 1".ljust(limit + 1))
    joined = "select (a || b) from x where c = recursive"
    with pytest.raises(BadSql, match="a recursion that joins texts"):
        statement.check_statement(joined)
    statement.check_statement("select a from x where c = recursive")
    for bad in ("select \0", "select '\ud800'", "select '\udfff'"):
        with pytest.raises(BadSql, match="no text"):
            statement.check_statement(bad)
    statement.check_statement("select '\ue000'")


A: list[Interval] = [(1, 5), (8, None)]


@pytest.mark.parametrize(
    ("other", "both"),
    [
        ([(None, None)], [(1, 5), (8, None)]),
        ([(5, 8)], [(5, 5), (8, 8)]),
        ([(6, 7)], []),
        ([(None, 1)], [(1, 1)]),
        ([(None, 0)], []),
        ([(9, 9), (2, 3)], [(2, 3), (9, 9)]),
        ([], []),
    ],
)
def test_intersect_keeps_values_in_both(other: list[Interval], both: list[Interval]) -> None:
    assert conditions.intersect(A, other) == both
    assert sorted(conditions.intersect(other, A), key=str) == sorted(both, key=str)


def test_combine_and_choose_either_of_conditions() -> None:
    one, other = {"a": [(1, 5)], "b": [(1, 1)]}, {"a": [(5, 9)], "c": [(2, 2)]}
    assert conditions.combine(one, other) == {"a": [(5, 5)], "b": [(1, 1)], "c": [(2, 2)]}
    assert conditions.choose_either(one, other) == {"a": [(1, 5), (5, 9)]}


@pytest.mark.parametrize(
    ("intervals", "expected"),
    [
        (None, EVER),
        ([], None),
        ([(3, 3)], TimeRange(3, 4)),
        ([(3, 5), (9, 9)], TimeRange(3, 10)),
        ([(3, None)], TimeRange(3, EVER.end)),
        ([(None, 3)], TimeRange(EVER.begin, 4)),
        ([(None, None)], EVER),
        ([(4, 3)], None),
        ([(EVER.begin - 1, EVER.end + 1)], EVER),
        ([(EVER.end, None)], None),
    ],
)
def test_time_range_includes_both_ends(
    intervals: list[Interval] | None, expected: TimeRange | None
) -> None:
    scan = Scan("t", {} if intervals is None else {"time": intervals})
    assert conditions.time_range(scan, "time") == expected
    ranges = table_views.event_ranges([scan, Scan("t", {"time": [(7, 7)]})], "time")
    if expected == EVER:
        assert ranges is None
    else:
        assert ranges == sorted({TimeRange(7, 8), *([expected] if expected else [])})


def partition(
    events: tuple[int, int] | None = (10, 20),
    size: int = 1,
    instance: str = "a",
    **statistics: object,
) -> Partition:
    """Return a partition as the catalog describes it."""
    return Partition(
        partition_id=f"{events}{size}{instance}",
        identity=Identity("t", instance, TimeRange(T0, T0 + 1), b"h"),
        events=None if events is None else EventRange(*events),
        file_path="f",
        file_size=size,
        num_rows=1,
        source_hash=NO_SOURCE,
        sort_order=(),
        format_version=1,
        statistics={name: list(bounds) for name, bounds in statistics.items()},  # type: ignore[call-overload]
        published_at=1,
    )


@pytest.mark.parametrize(
    ("column", "interval", "matches"),
    [
        ("time", (20, None), True),
        ("time", (21, None), False),
        ("time", (None, 10), True),
        ("time", (None, 9), False),
        ("time", (None, None), True),
        ("n", (5, 5), True),
        ("n", (6, 9), False),
        ("n", (1, 2), False),
        ("n", (1, 3), True),
        ("n", ("x", None), True),
        ("n", (None, "x"), True),
        ("other", (1, 1), True),
    ],
)
def test_may_match_includes_the_smallest_and_largest_value(
    column: str, interval: Interval, matches: bool
) -> None:
    scan, candidate = Scan("t", {column: [interval]}), partition(n=(3, 5))
    assert conditions.may_match(scan, candidate, "time") is matches
    blocking = conditions.find_blocking_column([scan], candidate, "time")
    assert blocking == (None if matches else column)
    both = Scan("t", {"n": [(4, 4)], column: [interval, (1000, 0)]})
    assert conditions.may_match(both, candidate, "time") is matches
    everything = Scan("t")
    assert conditions.find_blocking_column([scan, everything], candidate, "time") is None
    assert conditions.may_match(scan, partition(None), "time") is True


BLOCK = Block("b", "s", "p", 50, 10, 20, 1, "otlp/logs+protobuf", b"d", "path", 0, 1)


@pytest.mark.parametrize(
    ("begin", "end", "has_events"),
    [
        (20, 21, True),
        (21, 22, False),
        (9, 10, False),
        (10, 11, True),
        (9, 11, True),
        (50, 51, True),
        (51, 52, False),
        (49, 50, False),
        (0, 100, True),
    ],
)
def test_block_has_events_from_its_first_to_its_last_and_when_it_landed(
    begin: int, end: int, has_events: bool
) -> None:
    within = TimeRange(begin, end)
    assert table_views._has_events(BLOCK, "logs", within) is has_events
    assert table_views._has_events(BLOCK, "blocks", within) is (begin <= 50 < end)
    for unknown in (replace(BLOCK, begin_time=None), replace(BLOCK, end_time=None)):
        assert table_views._has_events(unknown, "logs", within) is True


def test_subtract_leaves_what_no_other_range_covers() -> None:
    def subtract(*covered: TimeRange) -> list[TimeRange]:
        ranges = [TimeRange(0, 10), TimeRange(20, 30), TimeRange(100, 110)]
        return table_views._subtract(ranges, covered, TimeRange(5, 100))

    assert subtract() == [TimeRange(5, 10), TimeRange(20, 30)]
    assert subtract(TimeRange(9, 21)) == [TimeRange(5, 9), TimeRange(21, 30)]
    assert subtract(TimeRange(5, 10), TimeRange(24, 25)) == [TimeRange(20, 24), TimeRange(25, 30)]


def test_join_and_at_most_of_ranges() -> None:
    ranges = [TimeRange(0, 2), TimeRange(2, 4), TimeRange(3, 9), TimeRange(5, 6), TimeRange(10, 11)]
    assert coverage_cache.join(ranges) == [TimeRange(0, 9), TimeRange(10, 11)]
    assert coverage_cache.join([]) == []
    assert coverage_cache.at_most(5, ranges) == ranges
    assert coverage_cache.at_most(4, ranges) == [TimeRange(0, 11)]


def test_split_by_size_fills_memory_with_the_smallest() -> None:
    sizes = [3, 1, 2]
    small, large = user_tables._split_by_size([partition(size=size) for size in sizes], 3)
    assert ([p.file_size for p in small], [p.file_size for p in large]) == ([1, 2], [3])
    small, large = user_tables._split_by_size([partition(size=size) for size in sizes], 2)
    assert ([p.file_size for p in small], [p.file_size for p in large]) == ([1], [2, 3])
    limit = user_tables._SMALL_BYTES
    parts = [partition(size=limit), partition(size=limit + 1)]
    small, large = user_tables._split_by_size(parts, 10 * limit)
    assert [p.file_size for p in small] == [limit]
    assert [p.file_size for p in large] == [limit + 1]


class KeyedTable:
    """The part of a table's definition that these functions read."""

    def __init__(self, *key: str) -> None:
        self.key = key
        self.time_column = "time"


@pytest.mark.parametrize(
    ("bounds", "shares"),
    [((5, 7), True), ((6, 7), False), ((1, 3), True), ((1, 2), False), (None, True)],
)
def test_partitions_share_keys_if_their_bounds_touch(
    bounds: tuple[int, int] | None, shares: bool
) -> None:
    table: UserTable = KeyedTable("id")  # type: ignore[assignment]
    other = partition() if bounds is None else partition(id=bounds)
    assert user_tables._shares_keys(table, other, [partition(id=(3, 5))]) is shares
    assert user_tables._shares_keys(table, other, [partition(id=(50, 51)), partition()]) is True
    assert user_tables._shares_keys(table, other, []) is (bounds is None)


@pytest.mark.parametrize(
    ("key", "column", "by_time", "may_have"),
    [
        (("id",), "id", True, False),
        (("id",), "value", True, True),  # another version may have the value
        ((), "value", True, False),
        (("id",), "time", True, False),
        (("id",), "time", False, True),
        (("id", "time"), "time", False, True),
        ((), "partition_date", True, False),
        (("id",), "partition_date", False, True),
    ],
)
def test_partition_of_a_table_may_have_rows_unless_its_key_time_or_bucket_rules_it_out(
    key: tuple[str, ...], column: str, by_time: bool, may_have: bool
) -> None:
    table: UserTable = KeyedTable(*key)  # type: ignore[assignment]
    candidate = partition((10, 20), instance="b", id=(3, 5), value=(3, 5))
    outside: Interval = ("c", None) if column == "partition_date" else (30, None)
    inside: Interval = ("b", "b") if column == "partition_date" else (None, None)
    for interval, expected in ((outside, may_have), (inside, True)):
        scan = Scan("t", {column: [interval]})
        assert user_tables._may_have(table, scan, candidate, by_time=by_time) is expected
    if column == "partition_date":
        scan = Scan("t", {column: [(None, "a")]})
        assert user_tables._may_have(table, scan, candidate, by_time=by_time) is may_have


def test_tables_are_named_with_and_without_their_database() -> None:
    class Named:
        def __init__(self, database: str, name: str) -> None:
            self.database, self.name, self.full_name = database, name, f"{database}.{name}"

    one, other = Named("a", "x"), Named("b", "y")
    listed: list[UserTable] = [one, other]  # type: ignore[list-item]
    assert user_tables.by_name(listed) == {"a.x": one, "b.y": other}
    assert user_tables.by_name(listed, "b") == {"a.x": one, "b.y": other, "y": other}


def test_only_processes_and_streams_sum_up_events_of_several_moments() -> None:
    summing = {"processes", "streams"}
    assert {view.name for view in built_in() if not content.has_events(view)} == summing
    assert {view.name for view in built_in() if not content.keeps_times(view)} == summing
    within = TimeRange(5, 9)
    for view in built_in():
        end = None if view.name in summing else 9
        assert content.choose_bounds(view, within) == (5, end)
        assert content.choose_bounds(view, None) == (None, None)
        assert content.choose_bounds(view, EVER) == (None, None)
