"""The pages of tables: rows, figures and what was refused are those that were sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakebed.lake import Lake, init_lake
from tests.serve.parts import Served
from tests.web.parts import see, showing

MARKUP = "<script>alert(1)</script>"
SCHEMA: dict[str, Any] = {
    "time": {"type": "datetime", "time": True},
    "device": {"type": "string", "unique": True, "description": MARKUP},
    "bpm": {"type": "int", "min": 20, "max": 250},
    "note": {"type": "json"},
}


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
    shown = [dict(zip(data["columns"], row, strict=True)) for row in data["rows"]]
    assert [each["bpm"] for each in shown] == [119 - number for number in range(50)]
    assert len(data["rejects"]) == 2
    page = see(served.ask("GET", "/tables/home/heart_rate"))
    assert "180 rows" in page.text or "rows 180" in page.text
    assert "20 … 250" in page.text
    assert MARKUP not in page.html
    assert page.text.count(MARKUP) > 50
    more = served.ask("GET", "/tables/home/heart_rate.json?rows=200").json()
    assert len(more["rows"]) == 180
    assert {row[data["columns"].index("bpm")] for row in more["rows"][-5:]} == {99}


def test_what_does_not_exist_is_said(served: Served, tmp_path: Path) -> None:
    see(served.ask("GET", "/tables/home/gone"), 404)
    lost = see(served.ask("GET", "/tables/home/%22%3Cb%3E"), 404)
    assert "<b>" not in lost.html
    with init_lake(tmp_path / "lake") as new, showing(new) as other:
        assert "lakebed tables create" in see(other.ask("GET", "/tables")).text
