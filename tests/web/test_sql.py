"""The page of SQL: rows, chart, what was pruned, downloads, and errors beside the editor."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.web.charting.lines import HEIGHT, WIDTH, draw_lines, find_ceiling
from lakebed.web.pages.sql import EXAMPLE, plan_chart
from tests.parts.building import build, land
from tests.serve.parts import Served
from tests.web.parts import see, showing

MARKUP = "<script>alert(1)</script>"
LEVELS = "SELECT level, count(*) AS n FROM log_entries GROUP BY level ORDER BY level"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Logs, half of them built; a table."""
    with init_lake(tmp_path_factory.mktemp("web") / "lake") as lake:
        land(lake, "logs", seed=1, size=100)
        build(lake, "log_entries")
        land(lake, "logs", seed=2, size=50)
        lake.tables.create_database("home")
        draft = lake.tables.propose_schema([{"time": "2026-11-16T05:00:00Z", "bpm": 61}])
        lake.tables.create_table("home", "heart_rate", draft)
        yield lake


@pytest.fixture(scope="module")
def served(lake: Lake) -> Iterator[Served]:
    with showing(lake) as served:
        yield served


def address(sql: str, path: str = "/sql", **more: str) -> str:
    return f"{path}?{urlencode({'sql': sql, **more})}"


def data_of(served: Served, sql: str, **more: str) -> Any:
    answer = served.ask("GET", address(sql, "/sql.json", **more))
    assert answer.status == 200, answer.body
    return answer.json()


def test_a_plan_is_shown_like_rows(served: Served) -> None:
    page = see(served.ask("GET", address(f"EXPLAIN {LEVELS}")))
    assert "logical_plan" in page.text
    assert "physical_plan" in page.text


def test_no_rows_lead_to_why(served: Served) -> None:
    nothing = "SELECT * FROM log_entries WHERE msg = 'no such thing'"
    page = see(served.ask("GET", address(nothing, begin="1h")))
    assert "No rows" in page.text
    assert address(nothing) in [each.replace("%20", "+") for each in page.links]
    (why,) = (each for each in page.links if "explain_empty" in each)
    assert "the last day" in page.text
    answer = served.ask("GET", why.replace("/sql", "/sql.json", 1)).json()["answer"]
    assert "reason" in [each["name"] for each in answer["columns"]]
    page = see(served.ask("GET", address("SELECT * FROM home.heart_rate")))
    assert "No rows" in page.text
    assert not [each for each in page.links if "explain_empty" in each]


def test_rows_are_what_the_lake_answers(served: Served, lake: Lake) -> None:
    truth = [list(row.values()) for row in lake.query(LEVELS).to_arrow().to_pylist()]
    answer = data_of(served, LEVELS)["answer"]
    assert answer["rows"] == truth
    assert sum(n for _, n in truth) == 150
    assert [each["name"] for each in answer["columns"]] == ["level", "n"]
    page = see(served.ask("GET", address(LEVELS)))
    for level, count in truth:
        assert f"{level} {count}" in page.text
    assert len(page.all("svg", class_="compare")) == len(truth)
    cut = data_of(served, "SELECT msg FROM log_entries", rows="7")["answer"]
    assert (len(cut["rows"]), cut["is_cut"]) == (7, True)


def test_wide_results_show_fewer_rows_unless_asked_for(served: Served) -> None:
    wide = ", ".join(f"value + {place} AS c{place}" for place in range(60))
    sql = f"SELECT {wide} FROM range(400)"
    shown = data_of(served, sql)["answer"]
    assert (len(shown["rows"]), shown["is_cut"]) == (100, True)
    assert "100 rows, and there are more" in see(served.ask("GET", address(sql))).text
    assert len(data_of(served, sql, rows="500")["answer"]["rows"]) == 400


def test_values_are_shown_as_sql_has_them(served: Served) -> None:
    sql = "SELECT true AS yes, NULL AS nothing, [1, 2] AS list, '<b>' AS text, 1.5 AS number"
    page = see(served.ask("GET", address(sql)))
    assert "true NULL [1,2] <b> 1.5" in page.text
    assert len(page.all("td", class_="num")) == 1


def test_what_was_pruned_is_told(served: Served) -> None:
    all_read = data_of(served, "SELECT count(*) FROM log_entries")["answer"]["tables"]
    assert [(each["partitions_read"], each["tail_rows"]) for each in all_read] == [(1, 50)]
    none = data_of(
        served,
        "SELECT count(*) FROM log_entries",
        begin="2020-01-01T00:00:00Z",
        end="2020-01-02T00:00:00Z",
    )["answer"]["tables"]
    assert none[0]["partitions_read"] == 0
    assert sum(none[0]["partitions_pruned"].values()) == 1
    page = see(served.ask("GET", address("SELECT count(*) FROM log_entries")))
    assert "50 rows in" in page.text


def test_the_schema_is_beside_it(served: Served) -> None:
    page = see(served.ask("GET", "/sql"))
    assert EXAMPLE in page.html.replace("&#39;", "'")
    for name in ("log_entries", "spans", "measures", "home.heart_rate", "severity_text", "bpm"):
        assert name in page.text
    assert served.ask("GET", "/sql.json").json()["answer"] is None


def test_rows_can_be_downloaded(served: Served, lake: Lake) -> None:
    sql = "SELECT time, level, msg, properties FROM log_entries ORDER BY time, msg"
    truth = lake.query(sql).to_arrow()
    parquet = served.ask("GET", address(sql, "/sql/rows.parquet"))
    assert 'filename="rows.parquet"' in parquet.headers["content-disposition"]
    assert pq.read_table(io.BytesIO(parquet.body))["msg"].equals(truth["msg"])
    rows = json.loads(served.ask("GET", address(sql, "/sql/rows.json")).body)
    assert [each["msg"] for each in rows] == truth["msg"].to_pylist()
    text = served.ask("GET", address(sql, "/sql/rows.csv")).body.decode()
    assert len(list(csv.reader(io.StringIO(text, newline="")))) == 151
    see(served.ask("GET", address(sql, "/sql/rows.exe")), 404)
    see(served.ask("GET", address("SELEC", "/sql/rows.csv")), 400)


def test_a_wrong_statement_stays_in_the_editor(served: Served) -> None:
    wrong = f"SELECT nothing, '{MARKUP}' FROM log_entries"
    page = see(served.ask("GET", address(wrong)), 400)
    assert "nothing" in page.text
    assert MARKUP in page.text
    assert MARKUP not in page.html
    assert "log_entries" in page.text
    assert served.ask("GET", address(wrong, "/sql.json")).status == 400
    assert see(served.ask("GET", address("SELECT 1", rows="no")), 400)


def test_markup_in_rows_and_names_is_text(served: Served) -> None:
    page = see(served.ask("GET", address(f"SELECT '{MARKUP}' AS \"{MARKUP}\", NULL AS gone")))
    assert MARKUP not in page.html
    assert page.text.count(MARKUP) >= 3
    assert "NULL" in page.text


def test_an_address_cannot_change_the_lake(served: Served, lake: Lake) -> None:
    before = lake.partitions.list_partitions()
    each = before[0]
    sql = f"""SELECT * FROM retire_partitions('{each.view_set}', 'global',
        '2020-01-01T00:00:00Z', '2030-01-01T00:00:00Z')"""
    page = see(served.ask("GET", address(sql)), 403)
    assert "this page only reads" in page.text  # also to administrators
    assert "on the page Admin" in page.text
    assert "needs the admin role" not in page.text
    assert served.ask("GET", address(sql, "/sql/rows.csv")).status == 403
    assert lake.partitions.list_partitions() == before


def test_charts_show_the_numbers() -> None:
    times = pa.array([0, 0, 60_000_000, 60_000_000], pa.timestamp("us", "UTC"))
    table = pa.table({"t": times, "service": ["a", "b", "a", "b"], "n": [1, 2, 3, None]})
    chart = plan_chart(table)
    assert chart is not None
    assert chart.kind == "lines"
    assert {each.name: list(each.values) for each in chart.series} == {"a": [1, 3], "b": [2, None]}
    bars = plan_chart(pa.table({"name": ["x", "y"], "n": [5, -2]}))
    assert bars is not None
    assert (bars.kind, bars.labels, bars.series[0].values) == ("bars", ["x", "y"], [5, -2])
    assert plan_chart(pa.table({"n": [1, 2]})) is None
    assert plan_chart(pa.table({"name": ["x"], "n": [1]})) is None
    assert plan_chart(pa.table({"name": ["x", "y"]})) is None
    grouped = {"service": ["x", "y"], "text": ["a", "b"], "level": [4, 2], "n": [5, 7]}
    bars = plan_chart(pa.table(grouped))
    assert bars is not None
    assert (bars.labels, bars.series[0].values) == (["x · a", "y · b"], [5, 7])
    assert chart.title == "n over t"
    twice = pa.Table.from_arrays(
        [pa.array(["x", "y"]), pa.array([1, 2]), pa.array([3, 4])], names=["a", "b", "b"]
    )
    assert plan_chart(twice) is not None


def test_a_line_is_named_by_all_that_it_is_grouped_by() -> None:
    times = pa.array([0, 0, 60_000_000, 60_000_000], pa.timestamp("us", "UTC"))
    by = {"service": ["x"] * 4, "kind": ["c"] * 4, "name": ["a", "b", "a", "b"]}
    lines = plan_chart(pa.table({"t": times, **by, "n": [1, 2, 3, 4]}))
    assert lines is not None
    found = {each.name: list(each.values) for each in lines.series}
    assert found == {"x · c · a": [1, 3], "x · c · b": [2, 4]}


def test_rows_that_make_no_lines_are_not_drawn_as_if_they_did() -> None:
    times = pa.array([0, 0, 60_000_000, 60_000_000], pa.timestamp("us", "UTC"))
    assert plan_chart(pa.table({"t": times, "bpm": [60, 70, 61, 71]})) is None  # of two rings
    every = {"t": times, "span_id": ["a", "b", "c", "d"], "n": [1, 2, 3, 4]}
    assert plan_chart(pa.table(every)) is None


def test_lines_stay_inside() -> None:
    drawn = draw_lines([0, 5, 10], [[1, None, 90], [-3, float("nan"), 4]])
    assert (drawn.low, drawn.high) == (-3, 100)
    assert Counter(len(piece) for line in drawn.lines for piece in line) == {1: 4}
    for x, y in (point for line in drawn.lines for piece in line for point in piece):
        assert 0 <= x <= WIDTH
        assert 0 <= y <= HEIGHT
    assert draw_lines([], []).lines == []
    assert [find_ceiling(value) for value in (0, 1, 1.6, 3, 7, 99)] == [1, 1, 2, 3, 8, 100]


def test_a_series_without_a_row_in_a_bucket_has_a_gap(served: Served) -> None:
    minutes = {"calm": range(12), "rare": (0, 1, 4, 11)}
    rows = ", ".join(
        f"(timestamp '2026-11-15 12:{minute:02}:00', '{name}', 3)"
        for name, found in minutes.items()
        for minute in found
    )
    page = see(served.ask("GET", address(f"SELECT * FROM (VALUES {rows}) AS t(minute, name, n)")))
    drawn = Counter(each["class"] for each in page.all("polyline"))
    assert drawn == {"c-0": 1, "c-1": 1, "c-1 dot": 2}
