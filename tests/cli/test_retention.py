"""A change of how long something is kept shows what it condemns, and is read back."""

from __future__ import annotations

from pathlib import Path

from tests.cli.parts import Cli, unchanged


def test_a_retention_that_condemns_nothing_is_set_at_once(cli: Cli, weather: Path) -> None:
    kept = cli("views", "keep", "readings", "5000w")
    assert (kept.code, kept.out) == (0, "readings: kept 5000w\n")
    assert kept.err == "nothing is older than that\n"
    (row,) = cli("views", "list", "--json").json
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
