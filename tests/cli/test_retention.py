"""A change of how long something is kept shows what it condemns, and is read back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from lakebed.model.source import SqlSource
from lakebed.opening import open_lake
from lakebed.views.builtin import built_in
from lakebed.views.sql.declaration import SqlView, write_toml
from tests.cli.parts import Cli, unchanged
from tests.parts.data import HOUR, T0, readings


def test_a_retention_that_condemns_nothing_is_set_at_once(cli: Cli, weather: Path) -> None:
    kept = cli("views", "keep", "readings", "5000w")
    assert (kept.code, kept.out) == (0, "readings: kept 5000w\n")
    assert kept.err == "nothing is older than that\n"
    (row,) = [row for row in cli("views", "list", "--json").json if row["activated_at"]]
    assert row["keep"] == "5000w"
    assert cli("views", "keep", "readings", "forever").out == "readings: kept forever\n"
    assert cli("views", "show", "readings").json["retention_us"] is None


def test_a_retention_that_condemns_something_needs_a_word(cli: Cli, weather: Path) -> None:
    with unchanged(weather):
        plan = cli("views", "keep", "readings", "1h")
        shown = cli("views", "keep", "readings", "1h", "--json").json
    assert (plan.code, plan.out) == (0, "")
    assert "plan: retire 3 partitions (1 empty) with 6 rows" in plan.err
    assert "Nothing was changed. Repeat with --yes" in plan.err
    assert (shown["done"], shown["keep"], len(shown["condemned"])) == (False, "forever", 3)
    done = cli("views", "keep", "readings", "1h", "--yes")
    assert done.out == "readings: kept 1h\n"
    assert "upkeep retires them" in done.err
    shown = cli("views", "keep", "readings", "60m", "--json", "--yes").json
    assert (shown["done"], shown["keep"], len(shown["condemned"])) == (True, "1h", 3)


def test_telemetry_of_a_new_lake_can_be_given_a_retention(cli: Cli, weather: Path) -> None:
    assert cli("views", "keep", "spans", "30d").out == "spans: kept 30d\n"
    assert "cannot read 'soon'" in cli("views", "keep", "spans", "soon").error
    assert "no view set is called 'span'" in cli("views", "keep", "span", "30d").error


def test_registering_a_shorter_retention_shows_what_it_condemns(cli: Cli, weather: Path) -> None:
    file = weather / "definition.json"
    file.write_text(readings(retention_us=HOUR).definition())
    with unchanged(weather):
        plan = cli("views", "register", file)
    assert (plan.code, plan.out) == (0, "")
    assert "readings would be kept 1h, and is kept forever now" in plan.err
    assert "plan: retire 3 partitions" in plan.err
    assert cli("views", "register", file, "--yes").out == "readings version 1: amended\n"
    assert cli("views", "register", file).out == "readings version 1: unchanged\n"


def test_defining_a_shorter_retention_shows_what_it_condemns(cli: Cli, weather: Path) -> None:
    with open_lake(weather) as lake:
        lake.views.ensure(built_in())
        stats = replace(lake.views.get("log_stats").view_set, name="stats", version=1)
        assert isinstance(stats.source, SqlSource)
        source = replace(
            stats.source, merge_sql=stats.source.merge_sql.replace("log_stats", "stats")
        )
        lake.views.register(replace(stats, source=source))
        lake.partitions.publish_completed_empty("stats", T0, T0 + HOUR)
        declared = SqlView.of(lake.views.get("stats").view_set)
    file = weather / "stats.toml"
    file.write_text(write_toml(replace(declared, retention="1h")))
    with unchanged(weather):
        plan = cli("views", "define", file)
    assert (plan.code, plan.out) == (0, "")
    assert "stats would be kept 1h, and is kept forever now" in plan.err
    assert "plan: retire 1 partition (1 empty)" in plan.err
    assert cli("views", "define", file, "--yes").out == "stats version 1: amended\n"
    again = cli("views", "define", file)
    assert (again.out, again.err) == ("stats version 1: unchanged\n", "")
