"""Defining, redefining and dropping SQL view sets, on both catalogs. The embedded engine stands in
for Spark, whose answers are tested in tests/pipeline/test_sql_views.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa
import pytest

from lakebed.errors import BadDefinition, BadInput, Refused, StalePlan
from lakebed.lake import Lake
from lakebed.model.source import SqlSource
from lakebed.model.view_set import ViewSet
from lakebed.query.embedded import small
from lakebed.views.builtin import built_in
from lakebed.views.registry import Change
from lakebed.views.sql.analysis import Engines
from lakebed.views.sql.declaration import SqlView
from lakebed.views.sql.definitions import Definition, plan_definitions
from tests.parts.data import readings

ERRORS = SqlView(
    "errors",
    "SELECT date_trunc('minute', time) AS minute, target, count(*) AS n FROM log_entries "
    "WHERE level <= 2 GROUP BY date_trunc('minute', time), target",
    "minute",
    "SELECT minute, target, sum(n) AS n FROM errors GROUP BY minute, target",
    ("minute",),
)
HOURLY = SqlView(
    "hourly",
    "SELECT date_trunc('hour', minute) AS hour, sum(n) AS n FROM errors "
    "GROUP BY date_trunc('hour', minute)",
    "hour",
    "SELECT hour, sum(n) AS n FROM hourly GROUP BY hour",
)
DAILY = SqlView(
    "daily",
    "SELECT date_trunc('day', hour) AS day, sum(n) AS n FROM hourly GROUP BY 1",
    "day",
    "SELECT day, sum(n) AS n FROM daily GROUP BY day",
)
BUILT_IN = {each.name: each for each in built_in()}


def columns_of(text: str, tables: Mapping[str, ViewSet]) -> pa.Schema:
    return small.columns_of(text, {name: each.schema for name, each in tables.items()})


def unasked(*_: object) -> pa.Schema:
    raise AssertionError("no engine needs to be asked")


ENGINES = Engines(columns_of, small.columns_of, small.run)
UNASKED = Engines(unasked, unasked, unasked)


def define(lake: Lake, *views: SqlView, engines: Engines = ENGINES) -> list[Definition]:
    active = lake.views.list_view_sets()
    plan = plan_definitions(
        views, {each.view_set.name: each.view_set for each in active}, BUILT_IN, engines
    )
    lake.views.apply(
        [(each.view_set, each.change) for each in plan],
        {each.view_set.name: each.schema_hash for each in active},
    )
    return plan


def said(plan: list[Definition]) -> list[tuple[str, int, str, str | None]]:
    return [
        (each.view_set.name, each.view_set.version, str(each.change), each.because_of)
        for each in plan
    ]


def problems(lake: Lake, *views: SqlView, engines: Engines = ENGINES) -> list[str]:
    before = lake.views.list_view_sets()
    with pytest.raises(BadDefinition) as caught:
        define(lake, *views, engines=engines)
    assert lake.views.list_view_sets() == before, "nothing changes on error"
    return list(caught.value.problems)


def test_declarations_may_refer_to_each_other_in_any_order(lake: Lake) -> None:
    plan = define(lake, DAILY, HOURLY, ERRORS)
    assert [each.view_set.name for each in plan] == ["errors", "hourly", "daily"]
    assert {each.change for each in plan} == {Change.CREATED}
    view_set = lake.views.get("hourly").view_set
    assert view_set.schema.names == ["hour", "n"]
    assert isinstance(view_set.source, SqlSource)
    assert view_set.source.reads == (("errors", lake.views.get("errors").schema_hash),)


def test_the_same_definition_again_changes_nothing_and_asks_nobody(lake: Lake) -> None:
    define(lake, ERRORS, HOURLY)
    before = lake.views.list_view_sets()
    plan = define(lake, ERRORS, HOURLY, engines=UNASKED)
    assert {each.change for each in plan} == {Change.UNCHANGED}
    assert lake.views.list_view_sets() == before


def test_what_is_no_sql_is_amended_in_place(lake: Lake) -> None:
    define(lake, ERRORS)
    other = replace(ERRORS, retention="30d", target_size="1MiB", sort_order=(), description="bad")
    assert said(define(lake, other, engines=UNASKED)) == [("errors", 1, "amended", None)]
    view_set = lake.views.get("errors").view_set
    assert SqlView.of(view_set) == other
    assert view_set.schema_hash == lake.views.get("errors").schema_hash


@pytest.mark.parametrize(
    "change",
    [
        {"sql": ERRORS.sql.replace("<= 2", "<= 3")},
        {"merge_sql": ERRORS.merge_sql.replace("sum(n)", "sum( n)")},
        {"sql": ERRORS.sql.replace("AS minute", "AS minute, max(time) AS last", 1),
         "merge_sql": ERRORS.merge_sql.replace("sum(n)", "max(last) AS last, sum(n)")},
    ],
)  # fmt: skip
def test_other_sql_is_a_new_version_with_a_new_hash(lake: Lake, change: dict[str, str]) -> None:
    define(lake, ERRORS)
    old = lake.views.get("errors").schema_hash
    plan = define(lake, replace(ERRORS, **change))  # type: ignore[arg-type]
    assert said(plan) == [("errors", 2, "evolved", None)]
    assert lake.views.get("errors").schema_hash != old


def test_another_time_column_is_a_new_version(lake: Lake) -> None:
    sql = ERRORS.sql.replace("AS minute", "AS minute, max(time) AS last", 1)
    merge = ERRORS.merge_sql.replace("sum(n)", "max(last) AS last, sum(n)")
    view = replace(ERRORS, sql=sql, merge_sql=merge)
    define(lake, view)
    plan = define(lake, replace(view, time_column="last"))
    assert said(plan) == [("errors", 2, "evolved", None)]
    assert lake.views.get("errors").view_set.time_column == "last"


def test_what_reads_a_changed_view_set_changes_with_it(lake: Lake) -> None:
    define(lake, ERRORS, HOURLY, DAILY)
    plan = define(lake, replace(ERRORS, sql=ERRORS.sql.replace("<= 2", "<= 3")))
    assert said(plan) == [
        ("errors", 2, "evolved", None),
        ("hourly", 2, "evolved", "errors"),
        ("daily", 2, "evolved", "hourly"),
    ]
    for reader, read in (("hourly", "errors"), ("daily", "hourly")):
        source = lake.views.get(reader).view_set.source
        assert isinstance(source, SqlSource)
        assert source.reads == ((read, lake.views.get(read).schema_hash),)


def test_what_would_break_a_reader_is_refused_and_names_it(lake: Lake) -> None:
    define(lake, ERRORS, HOURLY, DAILY)
    renamed = replace(
        ERRORS,
        sql=ERRORS.sql.replace("AS n", "AS bad"),
        merge_sql=ERRORS.merge_sql.replace("sum(n) AS n", "sum(bad) AS bad"),
    )
    (problem,) = problems(lake, renamed)
    assert problem.startswith("hourly: reads errors and would not work any more: spark refuses sql")
    both = replace(HOURLY, sql=HOURLY.sql.replace("sum(n)", "sum(bad)"))
    assert [each[:3] for each in said(define(lake, renamed, both))] == [
        ("errors", 2, "evolved"),
        ("hourly", 2, "evolved"),
        ("daily", 2, "evolved"),
    ]


def test_a_star_follows_what_it_reads(lake: Lake) -> None:
    kept = SqlView("kept", "SELECT * FROM errors", "minute", "SELECT * FROM kept")
    # What is only kept must not be what is added up: the same minute may be in two ranges.
    assert "sql does not add up" in problems(lake, ERRORS, kept)[0]
    plain = SqlView("plain", "SELECT time, msg FROM log_entries", "time", "SELECT * FROM plain")
    kept = replace(kept, sql="SELECT * FROM plain", time_column="time")
    define(lake, plain, kept)
    define(lake, replace(plain, sql="SELECT time, msg, level FROM log_entries"))
    assert lake.views.get("kept").view_set.schema.names == ["time", "msg", "level"]


def test_dropping_and_defining_again(lake: Lake) -> None:
    define(lake, ERRORS)
    first = lake.views.get("errors").schema_hash
    lake.views.remove("errors")
    assert said(define(lake, replace(ERRORS, sql=ERRORS.sql.replace("<= 2", "<= 3")))) == [
        ("errors", 1, "created", None)
    ]
    assert lake.views.get("errors").schema_hash != first
    lake.views.remove("errors")
    define(lake, ERRORS)
    assert lake.views.get("errors").schema_hash == first, "the same rows as before"


def test_what_is_read_is_not_dropped(lake: Lake) -> None:
    define(lake, ERRORS, HOURLY)
    for remove in (lake.views.check_removal, lake.views.remove):
        with pytest.raises(Refused, match="view set errors is read by hourly"):
            remove("errors")
    lake.views.remove("hourly")
    lake.views.remove("errors")
    assert lake.views.list_registered() == []


@pytest.mark.parametrize("name", BUILT_IN)
def test_what_is_built_in_is_neither_dropped_nor_redefined(lake: Lake, name: str) -> None:
    lake.views.ensure(built_in())
    with pytest.raises(Refused, match=f"view set {name} is built in"):
        lake.views.remove(name)
    (problem,) = problems(
        lake, replace(ERRORS, name=name, merge_sql=f"SELECT * FROM {name}", sql="SELECT * FROM x")
    )[:1]
    assert problem.startswith(f"{name}: is built in, and programs count on its columns")


def test_what_programs_publish_is_neither_redefined_nor_read(lake: Lake) -> None:
    lake.views.register(readings())
    (problem,) = problems(
        lake, replace(ERRORS, name="readings", merge_sql="SELECT * FROM readings")
    )
    assert problem.startswith("readings: exists, and programs publish its rows")
    (problem,) = problems(lake, replace(ERRORS, sql="SELECT time AS minute FROM readings"))
    assert problem.startswith("errors: sql reads readings, whose rows programs publish")


def test_everything_wrong_with_every_declaration_is_said(lake: Lake) -> None:
    found = problems(
        lake,
        replace(ERRORS, sql="SELECT rand() AS minute FROM nothing", retention="soon"),
        replace(HOURLY, sql="DROP TABLE errors", merge_sql="SELECT * FROM errors"),
    )
    assert [problem.split(";")[0] for problem in found] == [
        "errors: cannot read 'soon' as a duration",
        "errors: sql uses rand(), which is random",
        "hourly: sql must be a SELECT, not DROP",
        "hourly: merge_sql must read hourly itself and only that, not errors",
    ]


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        ([ERRORS, ERRORS], "errors: is declared twice"),
        (
            [replace(ERRORS, sql="SELECT time AS minute FROM logs")],
            "errors: sql reads logs, which is no view set; there are blocks, log_entries, "
            "log_stats, measures, processes, spans, streams",
        ),
        ([replace(ERRORS, sql="SELECT minute FROM errors")], "errors: sql reads errors itself"),
        ([replace(ERRORS, sql="SELECT minute FROM Errors")], "errors: sql reads errors itself"),
        ([replace(ERRORS, sql="SELECT 1 AS minute")], "errors: sql reads no view set"),
        (
            [replace(ERRORS, sql="WITH spans AS (SELECT * FROM log_entries) SELECT * FROM spans")],
            "errors: sql calls a part of itself spans, which is a view set",
        ),
        (
            [replace(ERRORS, merge_sql="WITH errors AS (SELECT 1 AS a) SELECT a FROM errors")],
            "errors: merge_sql calls a part of itself errors, which is a view set",
        ),
        (
            [replace(ERRORS, merge_sql="SELECT minute FROM errors JOIN spans USING (a)")],
            "errors: merge_sql must read errors itself and only that, not errors, spans",
        ),
        (
            [replace(ERRORS, merge_sql="SELECT '\\' AS x FROM errors")],
            "errors: merge_sql has a \\ in it",
        ),
        (
            [replace(ERRORS, sql=ERRORS.sql.replace("log_entries", "hourly")), HOURLY],
            "view sets read each other in a circle: errors → hourly → errors",
        ),
    ],
)
def test_what_needs_no_engine(lake: Lake, views: list[SqlView], expected: str) -> None:
    assert any(each.startswith(expected) for each in problems(lake, *views, engines=UNASKED))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"sql": "SELECT nothing FROM log_entries"}, "spark refuses sql: Schema error"),
        ({"time_column": "n"}, "time_column n is int64, not a timestamp with a zone"),
        ({"time_column": "at"}, "time_column is at, but sql gives minute, target, n"),
        ({"sort_order": ("at",)}, "sort_order has at, but sql gives minute, target, n"),
        (
            {"merge_sql": "SELECT minute, n FROM errors"},
            "merge_sql gives minute, n on spark, but sql gives minute, target, n",
        ),
        (
            {"merge_sql": ERRORS.merge_sql.replace("sum(n)", "avg(n)")},
            "merge_sql gives n as double on the embedded engine, but sql gives int64",
        ),
        (
            {"merge_sql": ERRORS.merge_sql.replace("sum(n)", "nothing(n)")},
            "the embedded engine refuses merge_sql: Error during planning: Invalid function",
        ),
        ({"merge_sql": ERRORS.merge_sql.replace("sum", "count")}, "merge_sql does not add up"),
        ({"merge_sql": ERRORS.merge_sql.replace("sum", "max")}, "sql does not add up"),
    ],
)
def test_what_engines_refuse(lake: Lake, change: dict[str, str], expected: str) -> None:
    found = problems(lake, replace(ERRORS, **change))  # type: ignore[arg-type]
    assert any(each.startswith(f"errors: {expected}") for each in found)


def test_sql_that_spark_refuses_says_so(lake: Lake) -> None:
    def refuse(text: str, tables: Mapping[str, ViewSet]) -> pa.Schema:
        if text == ERRORS.merge_sql:
            raise BadInput("no such thing")
        return columns_of(text, tables)

    engines = Engines(refuse, small.columns_of, small.run)
    assert problems(lake, ERRORS, HOURLY, engines=engines) == [
        "errors: spark refuses merge_sql: no such thing"
    ]


def test_columns_that_differ_in_case_are_the_same_column(lake: Lake) -> None:
    def twice(text: str, tables: Mapping[str, ViewSet]) -> pa.Schema:
        return pa.schema([*columns_of(text, tables), ("Minute", pa.int64())])

    engines = Engines(twice, small.columns_of, small.run)
    assert problems(lake, ERRORS, engines=engines) == ["errors: sql gives the column minute twice"]


def test_view_sets_that_changed_meanwhile_are_noticed(lake: Lake) -> None:
    define(lake, ERRORS)
    planned_on = {each.view_set.name: each.schema_hash for each in lake.views.list_view_sets()}
    define(lake, HOURLY)
    before = lake.views.list_view_sets()
    later = replace(lake.views.get("errors").view_set, version=2)
    with pytest.raises(StalePlan, match="changed meanwhile"):
        lake.views.apply([(later, Change.EVOLVED)], planned_on)
    assert lake.views.list_view_sets() == before
