"""The pages of tables: rows, figures and what was refused are those that were sent."""

from __future__ import annotations

import html
import io
import random
import re
import shlex
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import mean
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from lakebed.cli.main import run
from lakebed.lake import Lake
from lakebed.model.time import format_instant, to_instant
from lakebed.opening import init_lake
from tests.serve.parts import Served, serving
from tests.web.forms import Browser
from tests.web.parts import Page, see, showing

MARKUP = "<script>alert(1)</script>"
SCHEMA: dict[str, Any] = {
    "time": {"type": "datetime", "time": True},
    "device": {"type": "string", "unique": True, "description": MARKUP},
    "bpm": {"type": "int", "min": 20, "max": 250},
    "note": {"type": "json"},
}
WALKS: dict[str, Any] = {
    "at": {"type": "datetime", "time": True},
    "Who": "string",
    "steps": "int",
    "outside": "bool",
    "grade": "float",
    "tags": "string[]",
    "since": "datetime",
}


def make_walks() -> list[dict[str, Any]]:
    """Rows of a table without a key: many at one instant, some quite the same, some with gaps."""
    chance = random.Random(20261116)
    begin = datetime(2026, 11, 10, tzinfo=UTC)
    rows = [
        {
            "at": format_instant(to_instant(begin + timedelta(minutes=13 * (number // 7)))),
            "Who": chance.choice(
                ("ann", "ben's", MARKUP, "dora", "eve", "finn", "gus", "hal", None)
            ),
            "steps": chance.choice((None, -(2**63), *range(20))) if number else 7,
            "outside": chance.choice((True, False, None)),
            "grade": chance.choice((None, chance.uniform(-9, 9))),
            "tags": chance.choice((None, [], ["hill", "rain"])),
            "since": f"2026-11-0{chance.randint(1, 9)}T00:00:00.000000Z",
        }
        for number in range(400)
    ]
    return rows + rows[:25]


ALL_WALKS = make_walks()


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """180 rows of three days, of which 5 came again, and 2 were refused."""
    with init_lake(tmp_path_factory.mktemp("web") / "lake") as lake:
        lake.tables.create_database("home")
        lake.tables.create_table("home", "heart_rate", SCHEMA, retention="4000w")
        rows = [
            {
                "time": f"2026-11-{day}T05:{minute:02}:00Z",
                "device": f"ring-{day}-{minute}",
                "bpm": 60 + minute,
                "note": {"text": MARKUP},
            }
            for day in (12, 13, 14)
            for minute in range(60)
        ]
        lake.tables.insert("home", "heart_rate", rows)
        lake.tables.insert("home", "heart_rate", [each | {"bpm": 99} for each in rows[:5]])
        bad = [{"time": "2026-11-14T06:00:00Z", "device": MARKUP, "bpm": bpm} for bpm in (1, 999)]
        lake.tables.insert("home", "heart_rate", bad, on_error="keep")
        lake.tables.create_table("home", "walks", WALKS)
        lake.tables.insert("home", "walks", ALL_WALKS)
        lake.tables.create_table("home", "gone", SCHEMA)
        lake.tables.delete_table("home", "gone")
        yield lake


@pytest.fixture(scope="module")
def served(lake: Lake) -> Iterator[Served]:
    with showing(lake) as served:
        yield served


def test_the_list_has_every_table(served: Served, lake: Lake) -> None:
    data = served.ask("GET", "/tables.json").json()
    found = {f"{each['database']}.{each['name']}": each for each in data["tables"]}
    rate = found["home.heart_rate"]
    live = lake.tables.get("home", "heart_rate").partitions()
    assert rate["partitions"] == len(live)
    assert rate["bytes"] == sum(each.file_size for each in live)
    assert rate["stored_rows"] == sum(each.num_rows for each in live) >= 180
    assert (rate["key"], rate["bucket"], rate["columns"]) == (["device"], "day", 4)
    assert found["home.heart_rate_rejects"]["is_rejects"]
    assert [each["full_name"] for each in data["deleted"]] == ["home.gone"]
    page = see(served.ask("GET", "/tables"))
    assert "/tables/home/heart_rate" in page.links
    assert "lakebed tables restore home.gone" in page.text


def test_one_table_shows_rows_and_what_was_refused(served: Served) -> None:
    data = served.ask("GET", "/tables/home/heart_rate.json").json()
    figures = data["figures"]
    assert (figures["rows"], figures["buckets"], figures["rejected"]) == (180, 3, 2)
    assert data["earliest"] == "2026-11-12T05:00:00.000000Z"
    assert data["latest"] == "2026-11-14T05:59:00.000000Z"
    assert [each["bpm"] for each in rows_of(data)] == [119 - number for number in range(50)]
    assert len(data["rejects"]) == 2
    page = see(served.ask("GET", "/tables/home/heart_rate"))
    assert "180 rows" in page.text or "rows 180" in page.text
    assert "20 … 250" in page.text
    assert MARKUP not in page.html
    assert page.text.count(MARKUP) > 50
    more = served.ask("GET", "/tables/home/heart_rate.json?rows=200").json()
    assert len(rows_of(more)) == 180
    assert {each["bpm"] for each in rows_of(more)[-5:]} == {99}


def rows_of(data: Any) -> list[dict[str, Any]]:
    found = data["found"]
    return [dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]


def data_of(served: Served, table: str = "walks", **asked: str) -> Any:
    answer = served.ask("GET", f"/tables/home/{table}.json?{urlencode(asked)}")
    assert answer.status == 200, answer.body
    return answer.json()


def seen(rows: list[dict[str, Any]]) -> list[str]:
    """Rows in an order of their own, to be compared."""
    return sorted(repr([row[name] for name in WALKS]) for row in rows)


def test_pages_have_every_row_once_while_newer_ones_come(served: Served, lake: Lake) -> None:
    lake.tables.create_table("home", "walked", WALKS)
    lake.tables.insert("home", "walked", ALL_WALKS)
    address: str | None = "/tables/home/walked?rows=100&begin=2026-11-10T00:13:00Z"
    pages, back = [], []
    while address is not None:
        path, _, asked = address.partition("?")
        pages.append(rows_of(served.ask("GET", f"{path}.json?{asked}").json()))
        page = see(served.ask("GET", address))
        back.append(next(iter(page.all("a", rel="prev")), {}).get("href"))
        address = next(iter(page.all("a", rel="next")), {}).get("href")
        if len(pages) == 3:
            late = ALL_WALKS[0] | {"at": "2026-11-16T00:00:00Z"}
            lake.tables.insert("home", "walked", [late])
    walked = [row for page in pages for row in page]
    wanted = [row for row in ALL_WALKS if row["at"] >= "2026-11-10T00:13"]
    assert seen(walked) == seen(wanted)
    assert {len(page) for page in pages[:-1]} == {100}
    times = [row["at"] for row in walked]
    assert times == sorted(times, reverse=True)
    assert back[:2] == [None, back[1]]
    path, _, asked = str(back[3]).partition("?")
    assert rows_of(served.ask("GET", f"{path}.json?{asked}").json()) == pages[2]
    newest = data_of(served, "walked")
    assert rows_of(newest)[0]["at"] == "2026-11-16T00:00:00.000000Z"


@pytest.mark.parametrize(
    ("where", "op", "value", "fits"),
    [
        ("Who", "eq", MARKUP, lambda each: each == MARKUP),
        ("Who", "", "ben's", lambda each: each == "ben's"),
        ("Who", "ne", "ann", lambda each: each not in ("ann", None)),
        ("Who", "contains", "N", lambda each: each is not None and "n" in each),
        ("Who", "missing", "", lambda each: each is None),
        ("steps", "ge", "15", lambda each: each is not None and each >= 15),
        ("steps", "lt", str(2 - 2**63), lambda each: each == -(2**63)),
        ("outside", "eq", "false", lambda each: each is False),
        ("grade", "le", "-1.5e0", lambda each: each is not None and each <= -1.5),
        ("since", "gt", "2026-11-05T00:00:00Z", lambda each: each > "2026-11-05T00:00:00.0Z"),
        ("since", "lt", "0001-01-01T00:00:00Z", lambda _: False),
        ("tags", "present", "", lambda each: each is not None),
    ],
)
def test_rows_are_chosen_by_a_column(
    served: Served, where: str, op: str, value: str, fits: Callable[[Any], bool]
) -> None:
    """And the statement that the page leads to gives the same rows."""
    asked = {"where": where, "op": op, "value": value, "rows": "1000"}
    data = data_of(served, **asked)
    assert seen(rows_of(data)) == seen([row for row in ALL_WALKS if fits(row[where])])
    page = see(served.ask("GET", f"/tables/home/walks?{urlencode(asked)}"))
    assert MARKUP not in page.html
    (link,) = [link for link in page.links if link.startswith("/sql?")]
    answer = served.ask("GET", link.replace("/sql?", "/sql.json?") + "&rows=1000").json()["answer"]
    assert answer["rows"] == data["found"]["rows"]


def test_the_example_of_the_docs_is_answered(served: Served) -> None:
    page = (Path(__file__).parents[2] / "docs" / "web.md").read_text()
    (example,) = re.findall(r"(/tables/home/heart_rate.json[?][^']+)'", page)
    data = served.ask("GET", example).json()
    assert {each["bpm"] >= 100 for each in rows_of(data)} == {True}
    assert data["plot"]["way"] == "max"


WAYS: dict[str, Callable[[list[tuple[str, float]]], float]] = {
    "mean": lambda points: mean(value for _, value in points),
    "min": lambda points: min(value for _, value in points),
    "max": lambda points: max(value for _, value in points),
    "count": len,
    "last": lambda points: max(points)[1],
}


@pytest.mark.parametrize(
    ("way", "column", "by", "more"),
    [
        ("mean", "grade", None, {}),
        ("mean", "outside", "steps", {}),
        ("min", "steps", "Who", {"where": "grade", "op": "gt", "value": "0"}),
        ("max", "grade", "Who", {"begin": "2026-11-10T03:00:00Z"}),
        ("count", "steps", "outside", {"end": "2026-11-10T08:00:01Z"}),
        ("last", "grade", "Who", {}),
        ("max", "steps", "steps", {}),
    ],
)
def test_a_column_is_drawn_over_time(
    served: Served, way: str, column: str, by: str | None, more: dict[str, str]
) -> None:
    asked = {"plot": column, "way": way, "by": by or "", **more}
    plot = data_of(served, **asked)["plot"]
    begins = plot["bins"]
    values: dict[str, dict[int, list[tuple[str, float]]]] = defaultdict(lambda: defaultdict(list))
    for row in ALL_WALKS:
        wanted = more.get("begin", "") <= row["at"] < more.get("end", "9")
        wanted = wanted and (not more.get("where") or (row["grade"] or 0) > 0)
        if wanted and row[column] is not None:
            label = column if by is None else "none" if row[by] is None else as_text(row[by])
            place = bisect_right(begins, row["at"]) - 1
            values[label][place].append((row["at"], float(row[column])))
    truth = {
        label: {place: WAYS[way](points) for place, points in by_bin.items()}
        for label, by_bin in values.items()
    }
    largest = sorted(truth, key=lambda label: -sum(map(abs, truth[label].values())))
    shown = {each["name"]: each["values"] for each in plot["lines"]}
    assert set(shown) == set(largest[:6])
    assert plot["lines_left_out"] == len(largest) - len(shown)
    for label, line in shown.items():
        otherwise = 0 if way == "count" else None
        expected = [truth[label].get(place, otherwise) for place in range(len(begins))]
        assert line == [each if each is None else pytest.approx(each) for each in expected]
    page = see(served.ask("GET", f"/tables/home/walks?{urlencode(asked)}"))
    drawn = {str(each["class"]).removesuffix(" dot") for each in page.all("polyline")}
    assert drawn == {f"c-{number}" for number in range(len(shown))}
    assert MARKUP not in page.html
    link = next(link for link in page.links if link.startswith("/sql?") and "micros" in link)
    rows = served.ask("GET", link.replace("/sql?", "/sql.json?")).json()["answer"]["rows"]
    assert len(rows) == sum(len(truth[label]) for label in shown)


def as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"plot": "<b>"}, "at, Who, steps"),
        ({"plot": "Who"}, "steps, outside, grade"),
        ({"plot": "steps", "by": "grade"}, "Who, steps, outside"),
        ({"plot": "steps", "by": '"; DROP'}, "at, Who, steps"),
        ({"plot": "steps", "way": "<b>"}, "mean, min, max, count, last"),
        ({"where": 'Who" = 1 OR 1 = 1 --', "value": "1"}, "at, Who, steps"),
        ({"where": "Who", "op": "= ''"}, "eq, ne"),
        ({"where": "tags", "op": "eq", "value": "1"}, "missing, present"),
        ({"where": "steps", "value": "<b>"}, "write it like 60"),
        ({"where": "steps", "value": "9" * 5000}, "write it like 60"),
        ({"where": "steps", "value": str(2**63)}, "beyond"),
        ({"where": "grade", "value": "nan"}, "write it like 36.6"),
        ({"where": "outside", "value": "1"}, "true or false"),
        ({"where": "since", "value": "soon"}, "2026-11-15T12:00:00Z"),
        ({"where": "steps"}, "give a value"),
        ({"value": "7"}, "choose a column"),
        ({"page": "0"}, "from 1 to"),
        ({"until": "<b>"}, "2026-11-15T12:00:00Z"),
        ({"begin": "1h", "end": "2h"}, "begin must be before end"),
    ],
)
def test_what_cannot_be_asked_is_said(served: Served, asked: dict[str, str], said: str) -> None:
    page = see(served.ask("GET", f"/tables/home/walks?{urlencode(asked)}"), 400)
    assert said in page.text
    assert "<b>" not in page.html
    (value,) = page.all("input", name="value")
    assert value["value"] == asked.get("value", ""), "it need not be typed again"


def test_nothing_found_leads_back(served: Served) -> None:
    asked = {"where": "steps", "op": "gt", "value": "100", "plot": "steps"}
    page = see(served.ask("GET", f"/tables/home/walks?{urlencode(asked)}"))
    assert "No row that is asked for has a value in steps" in page.text
    assert page.links.count("/tables/home/walks") == 2


def test_what_does_not_exist_is_said(served: Served, tmp_path: Path) -> None:
    see(served.ask("GET", "/tables/home/gone"), 404)
    lost = see(served.ask("GET", "/tables/home/%22%3Cb%3E"), 404)
    assert "<b>" not in lost.html


def test_what_the_empty_pages_say_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands and the call of the list, then the call of a table without rows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBED_LAKE", "lake")

    def call(said: str) -> tuple[str, bytes]:
        words = shlex.split(next(line for line in said.splitlines() if "curl" in line))
        body = words[words.index("-d") + 1]
        path = urlsplit(next(word for word in words if word.startswith("http"))).path
        return path, body.encode()

    with (
        init_lake("lake") as lake,
        serving(lake, otlp_port=None, flight_port=None, roles=("web", "ingest")) as served,
    ):
        said = code_of(see(served.ask("GET", "/tables")))
        for line in said.splitlines():
            if line.startswith("echo"):
                _, text, _, file = shlex.split(line)
                Path(file).write_text(text)
            elif line.startswith("lakebed"):
                run_into_file(line)
        assert lake.tables.get("home", "heart_rate").count() == 1
        assert served.post(*call(said)).status == 200
        assert lake.tables.get("home", "heart_rate").count() == 2
        lake.tables.create_table("home", "empty", SCHEMA | WALKS | {"time": "datetime"})
        said = code_of(see(served.ask("GET", "/tables/home/empty")))
        assert "lakebed tables insert home.empty" in said
        assert served.post(*call(said)).status == 200
        assert lake.tables.get("home", "empty").count() == 1


def code_of(page: Page) -> str:
    """What a page says to type."""
    parts = re.findall(r"<pre><code>(.*?)</code></pre>", page.html, re.DOTALL)
    return html.unescape(re.sub(r"<[^>]*>", "", "\n".join(parts)))


def run_into_file(line: str) -> None:
    """A command of which a shell writes the output into a file."""
    command, _, file = line.partition(" > ")
    with pytest.MonkeyPatch.context() as patch, io.StringIO() as out:
        patch.setattr(sys, "stdout", out)
        assert run(shlex.split(command)[1:]) == 0
        if file:
            Path(file).write_text(out.getvalue())


def test_a_partition_of_a_table_offers_nothing_that_is_refused(tmp_path: Path) -> None:
    record = {"time": "2026-11-16T05:00:00Z", "bpm": 61}
    with init_lake(tmp_path / "lake") as lake, showing(lake) as served:
        lake.tables.create_database("home")
        draft = lake.tables.propose_schema([record])
        lake.tables.create_table("home", "heart_rate", draft).insert([record])
        (partition,) = lake.partitions.list_partitions()
        browser = Browser(served)
        path = f"/lake/partitions/{partition.partition_id}"
        page = browser.load(path)
    assert f"{path}/retire" not in page.links
    assert "lakebed tables delete home.heart_rate" in page.text
