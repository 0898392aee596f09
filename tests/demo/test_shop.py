"""What the demo's shop tells of itself: when things happened is when they did."""

from __future__ import annotations

import time
from pathlib import Path

from lakebed.demo.shop import Shop
from lakebed.opening import init_lake
from tests.serve.parts import serving

LOST = "the card company did not answer within 5 s"


def test_what_failed_is_told_when_it_was_given_up(tmp_path: Path) -> None:
    with (
        init_lake(tmp_path / "lake") as lake,
        serving(lake, flight_port=None, otlp_port=None, roles=("ingest",)) as served,
    ):
        shop = Shop(served.url, seed=7)
        now = time.time_ns()
        for place in range(200):
            shop.visit(now - (300 - place) * 10**9)
        shop.close()
        lost = lake.query(
            "SELECT s.end_time, s.end_time_unix_nano, s.events, l.time FROM spans s "
            "JOIN log_entries l ON l.span_id = s.span_id "
            f"WHERE s.name = 'charge card' AND l.msg = '{LOST}'"
        ).to_arrow()
    assert lost.num_rows
    for row in lost.to_pylist():
        assert row["time"] == row["end_time"]
        (event,) = row["events"]
        assert event["time_unix_nano"] == row["end_time_unix_nano"]


def test_what_was_counted_in_the_past_is_of_the_past(tmp_path: Path) -> None:
    with (
        init_lake(tmp_path / "lake") as lake,
        serving(lake, flight_port=None, otlp_port=None, roles=("ingest", "web")) as served,
    ):
        shop = Shop(served.url, seed=7)
        now = time.time_ns()
        for minute in range(30, 0, -1):
            shop.set_clock(now - minute * 60 * 10**9)
            for place in range(20):
                shop.visit(now - (minute * 60 - place) * 10**9)
        shop.set_clock(None)
        shop.close()
        chart = served.ask("GET", "/measures.json?name=shop.payments").json()["chart"]
        (line,) = chart["lines"]
        rates = [each for each in line["values"] if each is not None]
        assert len(rates) * chart["bin_seconds"] >= 28 * 60, "half an hour, not its last seconds"
        assert max(rates) < 20 / 60, "no more than all customers of a minute"
        starts = lake.query(
            "SELECT DISTINCT start_time_unix_nano AS n FROM measures WHERE name = 'shop.payments'"
        ).to_arrow()
        assert starts["n"].to_pylist() == [now - 30 * 60 * 10**9]
