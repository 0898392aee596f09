"""Partitions are listed, as they are and as they were."""

from __future__ import annotations

from pathlib import Path

from tests.cli.parts import (
    Cli,
    hours,
    listed,
    register,
)
from tests.parts.data import readings

ROW = [
    "view_set_name",
    "view_instance_id",
    "begin_insert_time",
    "end_insert_time",
    "file_schema_hash",
    "num_rows",
    "file_size",
    "file_path",
    "partition_id",
]


def test_the_keys_of_listed_partitions_are_a_contract(cli: Cli, weather: Path) -> None:
    first, _second, empty = listed(cli)
    assert list(first) == ROW
    assert first["begin_insert_time"] == "2026-01-01T00:00:00.000000Z"
    assert first["file_schema_hash"] == readings().schema_hash.hex()
    assert (first["num_rows"], empty["num_rows"], empty["file_path"]) == (3, 0, None)
    assert list(listed(cli, "--retired")[0]) == [*ROW, "retired_at", "expiration", "held"]
    register(cli, weather, readings(2))
    assert list(listed(cli, "--incompatible")[0]) == [
        "view_set_name",
        "view_instance_id",
        "begin_insert_time",
        "end_insert_time",
        "incompatible_schema_hash",
        "current_schema_hash",
        "file_path",
        "file_size",
        "num_rows",
        "can_be_rebuilt",
    ]


def test_partitions_are_listed_as_a_table(cli: Cli, weather: Path) -> None:
    ran = cli("partitions", "list", "readings")
    assert (ran.code, ran.err) == (0, "")
    head, *lines = ran.out.splitlines()
    assert head.split() == [name for name in ROW if name != "file_path"]
    assert [line.split()[2] for line in lines] == [
        f"2026-01-01T0{hour}:00:00Z" for hour in range(3)
    ]
    assert "\x1b" not in ran.out


def test_partitions_are_listed_by_range_and_as_of_a_tick(cli: Cli, weather: Path) -> None:
    hour = hours(1, 2)
    assert [each["num_rows"] for each in listed(cli, *hour)] == [3]
    assert listed(cli, *hours(7, 8)) == []
    before = cli("journal", "--limit", 1, "--json").json[0]["time"]
    assert (
        cli("partitions", "retire", "readings", *hour, "--confirm", "readings", "--yes").code == 0
    )
    assert len(listed(cli)) == 2
    assert len(listed(cli, "--as-of", before)) == 3
    retired = [each for each in listed(cli, "--retired") if each["retired_at"]]
    assert len(retired) == 1
    assert retired[0]["retired_at"] < retired[0]["expiration"]


def test_what_was_swept_is_not_silently_missing_from_the_past(cli: Cli, hasty: Path) -> None:
    before = cli("journal", "--limit", 1, "--json").json[0]["time"]
    cli("partitions", "retire", "readings", *hours(0, 1), "--confirm", "readings", "--yes")
    cli("sweep", "--yes")
    ran = cli("partitions", "list", "--as-of", before)
    assert ran.code == 4
    assert "has been swept" in ran.error


def test_incompatible_partitions_are_listed(cli: Cli, weather: Path) -> None:
    none = cli("partitions", "list", "--incompatible")
    assert (none.code, none.out) == (0, "")
    assert none.err == "every partition has its view set's schema\n"
    register(cli, weather, readings(2))
    found = listed(cli, "--incompatible")
    assert [each["can_be_rebuilt"] for each in found] == [False, False, True]  # nothing is lost
    assert {each["current_schema_hash"] for each in found} == {readings(2).schema_hash.hex()}
    assert {each["incompatible_schema_hash"] for each in found} == {readings().schema_hash.hex()}


def test_an_empty_list_is_an_answer(cli: Cli) -> None:
    cli("init")
    ran = cli("partitions", "list")
    assert (ran.code, ran.out, ran.err) == (0, "", "no partition\n")
    assert listed(cli) == []


def test_tables_are_called_by_their_names(cli: Cli, weather: Path) -> None:
    """For people; programs get the name under which the catalog has them."""
    Path("schema.json").write_text('{"time": "datetime", "bpm": "int"}')
    Path("rows.json").write_text('[{"time": "2026-11-16T05:00:00Z", "bpm": 60}]')
    assert cli("tables", "create", "home.pulse", "--schema", "schema.json").code == 0
    assert cli("tables", "insert", "home.pulse", "rows.json").code == 0
    for command in (("journal", "--view"), ("partitions", "list")):
        ran = cli(*command, "home.pulse")
        assert "home.pulse" in ran.out
        assert "table_" not in ran.out
        assert cli(*command, "home.pulse", "--json").json[0]["view_set_name"].startswith("table_")
    assert "home.pulse" in cli("journal").out
    assert cli("tables", "delete", "home.pulse", "--yes").code == 0
    assert "table_" not in cli("journal").out
    missing = cli("journal", "--view", "home.none")
    assert (missing.code, missing.out) == (3, "")
