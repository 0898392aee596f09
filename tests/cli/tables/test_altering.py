"""Tables change as far as their rows allow."""

from __future__ import annotations

import pytest

from lakebed.cli.tables.show import describe_change
from lakebed.model.tables.declaration import parse_schema
from tests.cli.parts import Cli
from tests.cli.tables.parts import RING, write


def test_columns_are_added_widened_and_relaxed(cli: Cli) -> None:
    spec = 'share:{"type": "float", "max": 1}'
    done = cli("alter", "home.pulse", "--add", "note:string", "--add", spec, "--widen", "bpm")
    assert done.out == (
        "home.pulse: version 2, widened bpm to float, added note string, added share float\n"
    )
    relaxed = cli("alter", "home.pulse", "--relax", "bpm", "--json").json
    assert relaxed["version"] == 3
    bpm = next(each for each in relaxed["schema"]["columns"] if each["name"] == "bpm")
    assert bpm == {"name": "bpm", "type": "float", "min": 20.0, "max": 250.0}
    assert (
        cli("insert", "home.pulse", write("r.json", {**RING, "share": 0.5, "bpm": None})).code == 0
    )


def test_how_long_rows_are_kept_can_be_changed(cli: Cli) -> None:
    kept = cli("alter", "home.pulse", "--keep", "36500d")
    assert (kept.out, kept.err) == ("home.pulse: kept 36500d\n", "nothing is older than that\n")
    old = {**RING, "device": "a", "time": "2001-01-01T00:00:00Z"}
    cli("insert", "home.pulse", write("r.json", [old]))
    plan = cli("alter", "home.pulse", "--keep", "3650d", "--add", "note:string")
    assert "2001-01-01" in plan.out
    assert plan.err == (
        "older than that: 1 partition with 1 row\n"
        "Nothing was changed. Repeat with --yes to keep no more than that.\n"
    )
    shown = cli("alter", "home.pulse", "--keep", "3650d", "--json").json
    assert (shown["done"], shown["version"], shown["keep"]) == (False, 1, "36500d")
    (condemned,) = shown["condemned"]
    assert condemned["bucket"] == "2001-01-01"
    kept = cli("alter", "home.pulse", "--keep", "3650d", "--yes")
    assert kept.out == "home.pulse: kept 3650d\n"
    assert kept.err == (
        "upkeep retires them; see what goes with: lakebed tables expire home.pulse\n"
    )
    assert cli("show", "home.pulse", "--json").json["keep"] == "3650d"
    assert cli("alter", "home.pulse", "--keep", "forever").out == "home.pulse: kept forever\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say what to change"),
        (["--add", "note"], "'note' is not NAME:TYPE"),
        (["--add", "note:"], "is not NAME:TYPE"),
        (["--add", "note:text"], "unknown type 'text'"),
        (["--add", 'note:{"type"'], "is not JSON"),
        (["--add", "bpm:int"], "bpm: is there already"),
        (["--add", "a:int", "--add", "a:int"], "a column is added twice"),
        (["--add", 'a:{"type": "int", "unique": true}'], "not unique"),
        (["--widen", "tags"], "only int can be widened"),
        (["--widen", "nothing"], "nothing: is no column"),
        (["--relax", "device"], "device: is the key"),
        (["--keep", "5y", "--add", "a:int"], "cannot read '5y' as a duration"),
        (["--keep", "0d"], "rows are kept for 1h or longer, not 0d"),
        (["--keep", "59m", "--yes"], "rows are kept for 1h or longer, not 59m"),
        (["--keep", "30d", "--widen", "worn"], "only int can be widened"),
    ],
)
def test_a_mistake_alters_nothing(cli: Cli, arguments: list[str], words: str) -> None:
    refused = cli("alter", "home.pulse", *arguments)
    assert words in refused.error
    assert refused.code == 2
    shown = cli("show", "home.pulse", "--json").json
    assert (shown["version"], shown["keep"]) == (1, "forever")


def test_everything_wrong_with_an_alteration_gets_a_line(cli: Cli) -> None:
    refused = cli("alter", "home.pulse", "--widen", "worn", "--relax", "time")
    assert refused.code == 2
    assert len(refused.err.splitlines()) == 2


def test_a_change_is_described_in_words() -> None:
    old = parse_schema({"time": "datetime", "n": {"type": "int", "required": True}})
    new = parse_schema({"time": "datetime", "n": "float", "x": "json"})
    assert describe_change(old, new) == "widened n to float, relaxed n, added x json"
