"""Whether partial results add up, tried on made-up rows with the embedded engine."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.model.source import SqlSource
from lakebed.model.view_set import ViewSet
from lakebed.query.embedded import small
from lakebed.views.builtin import built_in
from lakebed.views.sql import rules as sql
from lakebed.views.sql.merge_check import find_merge_problem, find_sql_problem
from lakebed.views.sql.sample_rows import make_rows
from lakebed.views.sql.type_fit import fits

UTC = pa.timestamp("us", "UTC")
KNOWN = {each.name: each for each in built_in()}
BY_SQL = [each for each in KNOWN.values() if isinstance(each.source, SqlSource)]


def make(sql_text: str, merge_sql: str, **columns: pa.DataType) -> ViewSet:
    schema = pa.schema([("minute", UTC), *columns.items()])
    source = SqlSource(sql_text, merge_sql, (("log_entries", b""),))
    return ViewSet("v", 1, schema, "minute", source=source)


def merge_problem(view_set: ViewSet) -> str | None:
    assert isinstance(view_set.source, SqlSource)
    return find_merge_problem(view_set, sql.parse(view_set.source.merge_sql), small.run)


def sql_problem(view_set: ViewSet, source: ViewSet) -> str | None:
    assert isinstance(view_set.source, SqlSource)
    made, merged = sql.parse(view_set.source.sql), sql.parse(view_set.source.merge_sql)
    return find_sql_problem(view_set, source, made, merged, small.run)


@pytest.mark.parametrize("view_set", BY_SQL, ids=lambda each: each.name)
def test_what_is_built_in_adds_up(view_set: ViewSet) -> None:
    assert isinstance(view_set.source, SqlSource)
    assert sql.parse(view_set.source.sql).problems == ()
    assert sql.parse(view_set.source.merge_sql).problems == ()
    assert merge_problem(view_set) is None
    assert sql_problem(view_set, KNOWN[view_set.source.names[0]]) is None


@pytest.mark.parametrize(
    ("aggregate", "kind"),
    [
        ("sum(x)", pa.int64()),
        ("sum(x)", pa.float64()),
        ("sum(x)", pa.decimal128(20, 3)),
        ("min(x)", pa.string()),
        ("max(x)", UTC),
        ("bit_or(x)", pa.int32()),
        ("first_value(x)", pa.map_(pa.string(), pa.string())),
        ("any_value(x)", pa.struct([("a", pa.int8())])),
        ("array_sort(flatten(array_agg(x)))", pa.list_(pa.int64())),
    ],
)
def test_aggregates_that_add_up(aggregate: str, kind: pa.DataType) -> None:
    merge = f"SELECT minute, {aggregate} AS x FROM v GROUP BY minute"
    assert merge_problem(make("", merge, x=kind)) is None


def test_a_weighted_mean_adds_up() -> None:
    merge = "SELECT minute, sum(n) AS n, sum(mean * n) / sum(n) AS mean FROM v GROUP BY minute"
    assert merge_problem(make("", merge, n=pa.int64(), mean=pa.float64())) is None


@pytest.mark.parametrize("merge", ["SELECT * FROM v", "SELECT DISTINCT minute, x FROM v"])
def test_rows_that_are_only_kept_add_up(merge: str) -> None:
    assert merge_problem(make("", merge, x=pa.int64())) is None


@pytest.mark.parametrize(
    "aggregate",
    ["count(*)", "count(x)", "avg(x)", "sum(x) + 1", "sum(DISTINCT x)", "count(DISTINCT x)"],
)
def test_aggregates_that_do_not_add_up(aggregate: str) -> None:
    merge = f"SELECT minute, {aggregate} AS x FROM v GROUP BY minute"
    assert "does not add up" in (merge_problem(make("", merge, x=pa.float64())) or "")


def test_a_row_out_of_nothing_is_refused() -> None:
    merge = "SELECT max(minute) AS minute, sum(x) AS x FROM v"
    said = merge_problem(make("", merge, x=pa.int64()))
    assert said == "gives rows where there are none; group by a column"


def test_merge_sql_that_fails_is_refused() -> None:
    merge = "SELECT minute, sum(x / (x - x)) AS x FROM v GROUP BY minute"
    said = merge_problem(make("", merge, x=pa.int64()))
    assert said is not None
    assert said.startswith("fails on made-up rows: ")


SQL = (
    "SELECT date_trunc('minute', time) AS minute, {} AS x FROM log_entries {} "
    "GROUP BY date_trunc('minute', time) {}"
)


@pytest.mark.parametrize(
    ("parts", "merged", "adds_up"),
    [
        (("count(*)", "", ""), "sum", True),
        (("count(*)", "WHERE level <= 2", ""), "sum", True),
        (("max(level)", "", ""), "max", True),
        (("count(DISTINCT msg)", "", ""), "sum", False),
        (("count(*)", "", "HAVING count(*) > 5"), "sum", False),
        (("count(*)", "", ""), "max", False),
        (("least(count(*), 100)", "", ""), "sum", False),
        (("CASE WHEN count(*) > 100 THEN 1 ELSE 0 END", "", ""), "max", False),
        (("min(level)", "", ""), "max", False),
        (("function_of_spark_alone(level)", "", ""), "sum", True),  # not known, so not refused
    ],
)
def test_sql_and_merge_sql_belong_together(
    parts: tuple[str, str, str], merged: str, adds_up: bool
) -> None:
    merge = f"SELECT minute, {merged}(x) AS x FROM v GROUP BY minute"
    said = sql_problem(make(SQL.format(*parts), merge, x=pa.int64()), KNOWN["log_entries"])
    if adds_up:
        assert said is None
    else:
        assert said is not None
        assert said.startswith("does not add up with merge_sql")


def test_what_is_read_of_a_sql_view_set_was_merged() -> None:
    """The same minute may be in two ranges, so its rows must not be counted."""
    merge = "SELECT minute, sum(x) AS x FROM v GROUP BY minute"
    summed = "SELECT time_bin AS minute, {} AS x FROM log_stats GROUP BY time_bin"
    counts = make(summed.format("count(*)"), merge, x=pa.int64())
    sums = make(summed.format("sum(count)"), merge, x=pa.int64())
    assert sql_problem(sums, KNOWN["log_stats"]) is None
    assert "does not add up" in (sql_problem(counts, KNOWN["log_stats"]) or "")


@pytest.mark.parametrize("view_set", KNOWN.values(), ids=lambda each: each.name)
def test_made_up_rows_fit_every_schema(view_set: ViewSet) -> None:
    rows = make_rows(view_set.schema, 30, 7, {view_set.time_column})
    rows.validate(full=True)
    assert rows.schema == view_set.schema
    assert len(rows[view_set.time_column].unique()) == 1
    assert rows.equals(make_rows(view_set.schema, 30, 7, {view_set.time_column}))
    assert not rows.equals(make_rows(view_set.schema, 30, 8, {view_set.time_column}))
    assert make_rows(view_set.schema, 0, 7).num_rows == 0


def test_made_up_rows_meet_in_every_group() -> None:
    schema = KNOWN["log_entries"].schema
    rows = [tuple(map(str, row.values())) for row in make_rows(schema, 20, 1).to_pylist()]
    assert len(set(rows)) < len(rows)


@pytest.mark.parametrize(
    ("got", "declared", "expected"),
    [
        (pa.int32(), pa.int64(), True),
        (pa.int64(), pa.int32(), True),
        (pa.int64(), pa.float64(), True),
        (pa.float64(), pa.int64(), False),
        (pa.decimal128(20, 0), pa.int64(), True),
        (pa.decimal128(20, 2), pa.int64(), False),
        (pa.decimal128(30, 2), pa.decimal128(20, 2), True),
        (pa.string_view(), pa.string(), True),
        (pa.dictionary(pa.int8(), pa.string()), pa.string(), True),
        (pa.string(), pa.int64(), False),
        (pa.int64(), pa.string(), False),
        (pa.binary(), pa.string(), False),
        (pa.binary_view(), pa.binary(), True),
        (pa.timestamp("ns", "UTC"), UTC, True),
        (pa.timestamp("us"), UTC, False),
        (pa.date32(), UTC, False),
        (pa.date64(), pa.date32(), True),
        (pa.bool_(), pa.int8(), False),
        (pa.null(), pa.int8(), True),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), True),
        (pa.large_list(pa.string()), pa.list_(pa.int64()), False),
        (pa.map_(pa.string(), pa.int32()), pa.map_(pa.string(), pa.int64()), True),
        (pa.map_(pa.string(), pa.string()), pa.map_(pa.string(), pa.int64()), False),
        (pa.struct([("a", pa.int8())]), pa.struct([("a", pa.int64())]), True),
        (pa.struct([("b", pa.int8())]), pa.struct([("a", pa.int8())]), False),
    ],
)
def test_which_types_fit(got: pa.DataType, declared: pa.DataType, expected: bool) -> None:
    assert fits(got, declared) is expected
