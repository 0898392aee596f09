"""Lakes are swept and checked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cli.parts import (
    Cli,
    file_of,
    hours,
    listed,
    unchanged,
)

# ---- sweeping ------------------------------------------------------------------------------------


def test_a_sweep_shows_its_plan_and_deletes_when_told_to(cli: Cli, hasty: Path) -> None:
    cli("partitions", "retire", "readings", *hours(1, 3), "--confirm", "readings", "--yes")
    retired, empty = (each for each in listed(cli, "--retired") if each["retired_at"])
    with unchanged(hasty):
        plan = cli("sweep")
        as_json = cli("sweep", "--json")
    assert (plan.code, plan.out) == (0, "")
    assert retired["file_path"] in plan.err
    assert "forget 1 empty partition" in plan.err
    assert plan.err.endswith("Nothing was changed. Repeat with --yes.\n")
    assert [file["file_path"] for file in as_json.json["expired"]] == [retired["file_path"]]
    assert [each["partition_id"] for each in as_json.json["empty_partitions"]] == [
        empty["partition_id"]
    ]
    done = cli("sweep", "--yes")
    assert done.code == 0
    assert re.match(r"swept 1 file \(.* B\), 1 empty partition, ", done.out)
    assert not file_of(hasty, retired).exists()
    assert len(listed(cli, "--retired")) == 1
    assert cli("check", "--level", "pages").code == 0


def test_a_sweep_keeps_what_may_still_be_restored(cli: Cli, weather: Path) -> None:
    cli("partitions", "retire", "readings", *hours(0, 3), "--confirm", "readings", "--yes")
    with unchanged(weather):
        plan = cli("sweep")
        assert "kept: 2 in their grace period" in plan.err
        assert plan.err.endswith("Nothing to sweep.\n")
        done = cli("sweep", "--yes", "--json")
    assert (done.json["files"], done.json["empty_partitions"]) == (0, 0)


# ---- checking ------------------------------------------------------------------------------------


def test_a_clean_lake_is_told_in_one_line(cli: Cli, weather: Path) -> None:
    ran = cli("check", "--level", "pages")
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(
        r"clean: 3 partitions, 0 segments, 0 blocks, 2 files, 6 rows, .* down to pages\n", ran.out
    )
    report = cli("check", "--json").json
    assert report["clean"] is True
    counts = ["partitions", "files", "rows", "bytes", "segments", "blocks"]
    assert list(report) == ["clean", "level", *counts, "findings"]


def test_a_damaged_lake_is_told_by_exit_code_and_name(cli: Cli, weather: Path) -> None:
    damaged = listed(cli)[1]
    file = file_of(weather, damaged)
    file.write_bytes(file.read_bytes()[:-1])
    ran = cli("check")
    assert ran.code == 1
    assert damaged["file_path"] in ran.out
    assert "\nDAMAGED: " in ran.out
    as_json = cli("check", "--json")
    assert (as_json.code, as_json.json["clean"]) == (1, False)
    (finding,) = as_json.json["findings"]
    assert list(finding) == ["severity", "kind", "subject", "message", "modified", "journaled"]
    assert (finding["severity"], finding["subject"]) == ("damage", damaged["file_path"])
    assert cli("check", "--level", "catalog").code == 0


@pytest.mark.parametrize("restored", [False, True])
def test_a_missing_file_is_damage_also_of_a_restored_partition(
    cli: Cli, weather: Path, restored: bool
) -> None:
    missing = listed(cli)[0]
    older: list[str] = []
    while restored and (not older or missing["partition_id"] < min(older)):  # rows are met by id
        older.append(missing["partition_id"])
        cli("partitions", "retire", "readings", *hours(0, 1), "--confirm", "readings", "--yes")
        (missing,) = cli("partitions", "restore", missing["partition_id"], "--json").json
    file_of(weather, missing).unlink()
    ran = cli("check", "--json")
    assert (ran.code, ran.json["clean"]) == (1, False)
    assert [each["subject"] for each in ran.json["findings"]] == [missing["file_path"]]


def test_strays_are_warnings(cli: Cli, weather: Path) -> None:
    (weather / "store" / "stray.txt").write_text("hello")
    ran = cli("check")
    assert ran.code == 0
    assert "stray.txt" in ran.out
    assert "\nclean: " in ran.out


def test_a_file_is_set_aside_only_when_told_to(cli: Cli, weather: Path) -> None:
    first, *others = listed(cli)
    with unchanged(weather):
        plan = cli("check", "--quarantine", first["file_path"])
    assert (plan.code, plan.out) == (0, "")
    assert f"{first['file_path']}: would retire readings/global" in plan.err
    assert "Nothing was changed. Repeat with --yes." in plan.err
    done = cli("check", "--quarantine", first["file_path"], "--yes")
    assert done.code == 0
    assert done.out.startswith(f"{first['file_path']}: retired readings/global")
    assert listed(cli) == others
    assert file_of(weather, first).exists()
    assert cli("journal", "--limit", 1, "--json").json[0]["operation"] == "quarantine"


def test_a_folder_is_not_set_aside(cli: Cli, weather: Path) -> None:
    with unchanged(weather):
        assert cli("check", "--quarantine", "partitions", "--yes").code == 3
