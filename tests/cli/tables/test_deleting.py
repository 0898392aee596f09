"""Tables, databases and rows go after a plan, and tables come back."""

from __future__ import annotations

import pytest

from tests.cli.parts import Cli
from tests.cli.tables.parts import UNCHANGED, rows_of, write


def test_deleting_shows_its_plan_and_acts_when_told(cli: Cli) -> None:
    planned = cli("delete", "home.pulse")
    assert (planned.code, planned.out) == (0, "")
    assert planned.err.startswith("plan: delete home.pulse (2 partitions, ")
    assert planned.err.endswith("Nothing was changed. Repeat with --yes to do it.\n")
    assert rows_of() == UNCHANGED
    done = cli("delete", "home.pulse", "--yes")
    assert done.out.startswith("home.pulse: deleted (2 partitions, ")
    assert done.err == "for 1d it can be restored with: lakebed tables restore home.pulse\n"
    assert cli("delete", "home.pulse", "--yes").code == 3
    assert cli("list", "--json").json["tables"] == []
    gone = cli("list", "--deleted")
    assert "home.pulse" in gone.out
    assert cli("list", "nowhere", "--deleted", "--json").json == {"databases": [], "tables": []}


def test_a_table_comes_back_as_it_was(cli: Cli) -> None:
    cli("delete", "home.pulse", "--yes")
    assert cli("restore", "home.pulse").out.startswith("home.pulse: restored, 2 partitions, ")
    assert rows_of() == UNCHANGED
    assert "delete it first" in cli("restore", "home.pulse").error
    assert "no table home.nothing was deleted" in cli("restore", "home.nothing").error


def test_of_two_tables_with_one_name_either_comes_back(cli: Cli) -> None:
    cli("delete", "home.pulse", "--yes")
    (old,) = cli("list", "--deleted", "--json").json["tables"]
    write("schema.json", {"time": "datetime"})
    cli("create", "home.pulse", "--schema", "schema.json")
    cli("delete", "home.pulse", "--yes")
    back = cli("restore", "home.pulse")
    assert back.out.startswith("home.pulse: restored, 0 partitions")
    assert f"another home.pulse was deleted at {old['deleted_at']}" in back.err
    cli("delete", "home.pulse", "--yes")
    wrong = cli("restore", "home.pulse", "--deleted-at", "2026-01-01T00:00:00Z")
    assert "it was at: " in wrong.error
    back = cli("restore", "home.pulse", "--deleted-at", old["deleted_at"])
    assert back.out.startswith("home.pulse: restored, 2 partitions, ")
    assert rows_of() == UNCHANGED


def test_a_database_goes_and_comes_back_with_its_tables(cli: Cli) -> None:
    planned = cli("delete", "home")
    assert "plan: delete database home (1 table, 2 partitions, " in planned.err
    done = cli("delete", "home", "--yes", "--json").json
    assert (done["done"], done["restorable_for"]) == (True, "1d")
    assert [each["table"] for each in done["tables"]] == ["home.pulse"]
    assert cli("list", "--deleted", "--json").json["databases"] == ["home"]
    alone = cli("restore", "home.pulse")
    assert alone.code == 3
    assert "lakebed tables restore home" in alone.error
    assert cli("restore", "home").out.startswith("database home: restored, 1 table\n")
    assert rows_of() == UNCHANGED
    assert cli("restore", "home").code == 4
    assert "no database 'nowhere' was deleted" in cli("restore", "nowhere").error


def test_rows_are_deleted_by_a_condition(cli: Cli) -> None:
    where = ["delete", "home.pulse", "--where", "device = 'ring-7' -- and no other"]
    planned = cli(*where)
    assert planned.err.startswith("plan: delete 1 of 2 rows of home.pulse. Nothing was changed.")
    assert rows_of() == UNCHANGED
    assert cli(*where, "--yes").out == "home.pulse: 1 row deleted\n"
    assert rows_of() == [("watch-1", 70)]
    again = cli(*where, "--yes", "--json").json
    assert again == {"done": True, "table": "home.pulse", "rows": 0}


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("", "the condition is empty"),
        ("nothing = 1", "there is no column nothing"),
        ("bpm = 60 AND nothing = 1", "(line 1, column 14)"),
        ("bpm =", "at its end"),
        ("bpm = 60; SELECT 1", "(line 1, column 9)"),
        ("bpm", "non-boolean"),
        ("bpm = 'x'", "'x'"),
    ],
)
def test_a_wrong_condition_deletes_nothing(cli: Cli, where: str, words: str) -> None:
    refused = cli("delete", "home.pulse", "--where", where, "--yes")
    assert words in refused.error
    assert refused.code == 2
    assert rows_of() == UNCHANGED


def test_a_condition_is_for_a_table(cli: Cli) -> None:
    assert "write home.TABLE" in cli("delete", "home", "--where", "true", "--yes").error
    assert rows_of() == UNCHANGED
