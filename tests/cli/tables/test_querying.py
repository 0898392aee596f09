"""Tables are queried together with view sets."""

from __future__ import annotations

import re

import pytest

from tests.cli.parts import Cli


@pytest.mark.parametrize(
    ("table", "hint"),
    [
        ("home.puls", "did you mean home.pulse?"),
        ("home.pulse_reject", "did you mean home.pulse_rejects?"),
        (
            "pulse",
            "those of a database are called DATABASE.TABLE; see what there is with SHOW TABLES",
        ),
        ("log_entry", "did you mean log_entries?"),
        ("nowhere.xyz", "see what there is with SHOW TABLES"),
    ],
)
def test_a_table_that_is_not_there_is_named_with_a_hint(cli: Cli, table: str, hint: str) -> None:
    refused = cli(f"SELECT * FROM {table}", group="query")
    assert refused.code == 2
    assert re.fullmatch(
        rf"error: there is no table {re.escape(table)} \(line 1, column \d+\); {re.escape(hint)}",
        refused.error,
    )


def test_tables_and_view_sets_are_queried_together(cli: Cli) -> None:
    sql = "SELECT p.device, count(l.time) AS n FROM home.pulse p LEFT JOIN log_entries l ON true"
    told = cli(f"{sql} GROUP BY 1 ORDER BY 1", "--json", group="query")
    assert told.json == [{"device": "ring-7", "n": 0}, {"device": "watch-1", "n": 0}]
