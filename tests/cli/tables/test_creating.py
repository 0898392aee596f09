"""Databases and tables are made, or nothing is."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from lakebed.model.tables.declaration import parse_schema
from tests.cli.parts import Cli
from tests.cli.tables.parts import RING, SCHEMA, write


def test_a_table_is_made_with_its_database(cli: Cli) -> None:
    made = cli("create", "work.pulse", "--schema", write("s.json", SCHEMA), "--keep", "90d")
    assert made.code == 0
    assert made.out == ("work.pulse: created, 5 columns, key device, by day of time, kept 90d\n")
    assert made.err == "work: created, a database\n"
    again = cli("create", "work.other", "--schema", "s.json", "--bucket", "hour")
    assert again.err == ""
    assert "by hour" in again.out


def test_a_schema_can_be_piped(cli: Cli) -> None:
    assert cli("create", "home.piped", "--schema", "-", stdin=json.dumps(SCHEMA)).code == 0
    assert cli("show", "home.piped", "--json").json["schema"] == parse_schema(SCHEMA).to_json()


def test_a_database_is_made_alone(cli: Cli) -> None:
    assert cli("create", "work").out == "work: created, a database\n"
    assert cli("create", "work").error == "error: there is a database work already"
    listed = cli("list")
    assert "database work has no table yet" in listed.err
    assert cli("list", "--json").json["databases"] == ["home", "work"]


def test_a_drafted_schema_is_one_that_can_be_used(cli: Cli) -> None:
    drafted = cli("create", "--propose", write("r.jsonl", f"{json.dumps(RING)}\n"))
    assert drafted.json["columns"]["time"] == {"type": "datetime", "required": True, "time": True}
    assert cli("create", "home.drafted", "--schema", write("s.json", drafted.out)).code == 0
    assert cli("insert", "home.drafted", "r.jsonl").code == 0
    pq.write_table(pa.Table.from_pylist([RING]), "r.parquet")
    assert cli("create", "--propose", "r.parquet").json == drafted.json
    assert "no column of the samples" in cli("create", "--propose", write("x.json", [{}])).error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say what to create"),
        (["work.pulse"], "--schema FILE"),
        (["work.pulse", "--schema", "missing.json"], "cannot read missing.json: no such file"),
        (["work.pulse", "--schema", "."], "cannot read .: is a directory"),
        (["work.pulse", "--schema", "broken.json"], "the schema is not JSON"),
        (["work.pulse", "--schema", "s.json", "--keep", "90"], "cannot read '90' as a duration"),
        (["work.pulse", "--schema", "s.json", "--keep", "0d"], "for 1h or longer, not 0d"),
        (["work.pulse", "--schema", "s.json", "--bucket", "year"], "'hour', 'day', 'week'"),
        (["Work.pulse", "--schema", "s.json"], "'Work' is not the name of a database"),
        (["work.a-b", "--schema", "s.json"], "'a-b' is not the name of a table"),
        (["work.a.b", "--schema", "s.json"], "'work.a.b' names no table"),
        (["public.pulse", "--schema", "s.json"], "cannot be called public"),
        (["work.pulse_rejects", "--schema", "s.json"], "end in _rejects"),
        (["work", "--schema", "s.json"], "write work.TABLE"),
        (["--propose", "missing.json"], "cannot read missing.json"),
        (["--propose", "s.json", "--schema", "s.json"], "leave out --schema"),
    ],
)
def test_a_mistake_makes_nothing(cli: Cli, arguments: list[str], words: str) -> None:
    write("s.json", SCHEMA)
    write("broken.json", "{")
    refused = cli("create", *arguments)
    assert words in refused.error
    assert refused.code == 2
    assert cli("list", "--json").json["databases"] == ["home"]


def test_everything_wrong_with_a_schema_gets_a_line(cli: Cli) -> None:
    bad = {"time": "datetme", "x y": "int", "n": {"type": "int", "min": 2, "max": 1}}
    refused = cli("create", "work.pulse", "--schema", write("s.json", bad))
    assert (refused.code, refused.out) == (2, "")
    lines = refused.err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("error: ") for line in lines)
    assert "did you mean datetime?" in lines[0]
    assert cli("list", "--json").json["databases"] == ["home"]


def test_a_table_is_not_made_twice(cli: Cli) -> None:
    refused = cli("create", "home.pulse", "--schema", write("s.json", SCHEMA))
    assert refused.code == 4
    assert refused.error == "error: there is a table home.pulse already"
