"""How often a statement is planned: once to learn what it needs, which is remembered, and once over
the files of its snapshot.
"""

from __future__ import annotations

from typing import Any

import pytest

from lakebed.lake import Lake
from tests.parts.data import HOUR, T0, publish_hour, readings


@pytest.fixture
def planned(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> tuple[Lake, list[str]]:
    """A lake with three rows, and the statements that its engine plans."""
    lake.views.register(readings())
    publish_hour(lake, 0)
    engine = lake.queries._embedded()
    plan = engine._plan
    plans: list[str] = []

    def count(sql: str, planning: Any) -> Any:
        plans.append(sql)
        return plan(sql, planning)

    monkeypatch.setattr(engine, "_plan", count)
    return lake, plans


def test_statement_that_was_described_is_planned_once_more_to_run(
    planned: tuple[Lake, list[str]],
) -> None:
    lake, plans = planned
    sql = "SELECT count(*) AS n FROM readings"
    schema = lake.queries.describe(sql)
    assert plans == [sql]
    for number in (2, 3):
        result = lake.query(sql)
        assert result.schema.equals(schema)
        assert result.to_arrow()["n"].to_pylist() == [3]
        assert len(plans) == number
    assert lake.query(sql, begin=T0 + HOUR).to_arrow()["n"].to_pylist() == [0]
    assert len(plans) == 4, "the plan of the analysis is run where there is nothing to read"


def test_statement_that_reads_the_clock_is_analysed_each_time(
    planned: tuple[Lake, list[str]],
) -> None:
    lake, plans = planned
    sql = "SELECT count(*) AS n FROM readings WHERE time < NOW()"
    lake.queries.describe(sql)
    assert lake.query(sql).to_arrow()["n"].to_pylist() == [3]
    assert len(plans) == 3


def test_analysis_is_not_kept_beyond_a_change_of_the_table(
    planned: tuple[Lake, list[str]],
) -> None:
    lake, plans = planned
    sql = "SELECT * FROM readings"
    assert lake.queries.describe(sql).names == ["time", "number"]
    lake.views.register(readings(version=2))
    assert lake.queries.describe(sql).names == ["time", "number", "extra_2"]
    assert len(plans) == 2


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT table_name FROM information_schema.tables WHERE table_name = 'readings'",
        "SHOW TABLES",
        "EXPLAIN SELECT * FROM readings",
        "SELECT view_set_name FROM list_view_sets()",
    ],
)
def test_statement_about_the_engine_is_planned_for_what_it_shows_now(
    planned: tuple[Lake, list[str]], sql: str
) -> None:
    lake, plans = planned
    expected = lake.query(sql).to_arrow()
    count = len(plans)
    lake.query("SELECT 1").to_arrow()
    before = len(plans)
    assert lake.query(sql).to_arrow().equals(expected)
    assert len(plans) - before == count
