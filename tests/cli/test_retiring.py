"""Partitions are retired and restored, after a plan."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

import lakebed
from tests.cli.parts import (
    Cli,
    file_of,
    hours,
    listed,
    register,
    rows_file,
    unchanged,
)
from tests.parts.building import build, land
from tests.parts.data import HOUR, readings

# ---- retiring ------------------------------------------------------------------------------------


def test_without_yes_a_retirement_is_only_shown(cli: Cli, weather: Path) -> None:
    first = listed(cli)[0]
    with unchanged(weather):
        ran = cli("partitions", "retire", "readings", *hours(0, 1))
    assert (ran.code, ran.out) == (0, "")
    assert "retire 1 partition (0 empty) with 3 rows" in ran.err
    assert first["file_path"] in ran.err
    assert ran.err.endswith("Nothing was changed. Repeat with --yes to retire them.\n")
    with unchanged(weather):
        ran = cli("partitions", "retire", "readings", *hours(0, 1), "--json")
    assert ran.json["partitions"] == [first]
    assert set(ran.json) == {"reason", "hold", "partitions", "straddling", "warnings", "confirm"}


def test_a_range_is_retired_but_not_what_reaches_beyond_it(cli: Cli, weather: Path) -> None:
    first, second, empty = listed(cli)
    middle = ["--begin", "2026-01-01T00:30Z", "--end", "2026-01-01T02:30Z"]
    ran = cli(
        "partitions", "retire", "readings", *middle, "--confirm", "readings", "--yes", "--json"
    )
    assert ran.code == 0
    assert ran.err.count("left alone, reaches beyond the range") == 2
    (outcome,) = ran.json
    assert outcome == {
        "partition_id": second["partition_id"],
        "empty": False,
        "message": "SUCCESS: Retired partition readings/global "
        "[2026-01-01T01:00:00.000000Z, 2026-01-01T02:00:00.000000Z)",
    }
    assert listed(cli) == [first, empty]
    assert file_of(weather, second).exists()


def test_one_partition_is_retired_by_identity_even_an_empty_one(cli: Cli, weather: Path) -> None:
    ran = cli(
        "partitions",
        "retire",
        "readings",
        "--exact",
        *hours(2, 3),
        "--confirm",
        "readings",
        "--yes",
    )
    assert ran.code == 0
    assert "SUCCESS: Retired empty partition" in ran.out
    assert len(listed(cli)) == 2
    near = cli(
        "partitions",
        "retire",
        "readings",
        "--exact",
        *hours(0, 2),
        "--confirm",
        "readings",
        "--yes",
    )
    assert near.code == 3
    assert "lakebed partitions list readings" in near.error


@pytest.fixture
def twins(cli: Cli, weather: Path) -> list[dict[str, Any]]:
    """Hour 0 in both versions: the older one first."""
    register(cli, weather, readings(2))
    file = rows_file(weather, version=2)
    assert cli("partitions", "publish", "readings", file, *hours(0, 1)).code == 0
    found = listed(cli, *hours(0, 1))
    return sorted(found, key=lambda each: each["file_schema_hash"] != readings().schema_hash.hex())


def test_twins_are_told_apart_by_their_schema_hash(
    cli: Cli, weather: Path, twins: list[dict[str, Any]]
) -> None:
    older, newer = twins
    exact = ["partitions", "retire", "readings", "--exact", *hours(0, 1)]
    exact += ["--confirm", "readings", "--yes"]
    with unchanged(weather):
        ran = cli(*exact)
    assert ran.code == 4
    assert older["file_schema_hash"] in ran.error
    assert newer["file_schema_hash"] in ran.error
    assert cli(*exact, "--schema-hash", older["file_schema_hash"]).code == 0
    assert listed(cli, *hours(0, 1)) == [newer]


def test_a_schema_hash_may_be_given_as_tables_show_it(
    cli: Cli, twins: list[dict[str, Any]]
) -> None:
    exact = [
        "partitions",
        "retire",
        "readings",
        "--exact",
        *hours(0, 1),
        "--confirm",
        "readings",
        "--yes",
    ]
    assert cli(*exact, "--schema-hash", twins[0]["file_schema_hash"][:12]).code == 0


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([*hours(0, 1), "--schema-hash", "HASH"], id="hash without exact"),
        pytest.param(["--incompatible", *hours(0, 1)], id="incompatible in a range"),
        pytest.param(["--incompatible", "--instance", "host-1"], id="incompatible of an instance"),
        pytest.param(["--file", "FILE", *hours(0, 1)], id="file in a range"),
        pytest.param([*hours(0, 1), "--allow-loss"], id="loss without incompatible"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    cli: Cli, weather: Path, twins: list[dict[str, Any]], options: list[str]
) -> None:
    named = {"HASH": twins[0]["file_schema_hash"], "FILE": twins[0]["file_path"]}
    given = [named.get(option, option) for option in options]
    with unchanged(weather):
        ran = cli("partitions", "retire", "readings", *given, "--confirm", "readings", "--yes")
    assert ran.code == 2
    assert ran.error


def test_a_partition_is_retired_by_its_file_with_a_warning(cli: Cli, weather: Path) -> None:
    first, *others = listed(cli)
    ran = cli(
        "partitions", "retire", "--file", first["file_path"], "--confirm", "readings", "--yes"
    )
    assert ran.code == 0
    assert "warning: retiring by file is deprecated" in ran.err
    assert listed(cli) == others


def test_incompatible_partitions_are_retired_in_part_unless_loss_is_allowed(
    cli: Cli, weather: Path
) -> None:
    register(cli, weather, readings(2))
    retire = ["partitions", "retire", "readings", "--incompatible"]
    with unchanged(weather):
        plan = cli(*retire)
    assert plan.code == 0
    assert "warning: 2 of them cannot be rebuilt" in plan.err
    part = cli(*retire, "--yes", "--json")
    assert part.code == 5
    assert part.err.endswith("although they cannot be rebuilt: --allow-loss\n")
    (summary,) = part.json
    assert (summary["partitions_retired"], summary["partitions_failed"]) == (1, 2)
    assert [message.split(":")[0] for message in summary["retirement_messages"]] == [
        "ERROR",
        "ERROR",
        "SUCCESS",
    ]
    rest = cli(*retire, "--allow-loss", "--yes", "--json")
    assert (rest.code, rest.json[0]["partitions_retired"]) == (0, 2)
    assert rest.json[0]["storage_freed_bytes"] > 0
    assert listed(cli) == []


def test_a_summary_of_incompatible_partitions_has_the_keys_of_other_answers(
    cli: Cli, weather: Path
) -> None:
    register(cli, weather, readings(2))
    ran = cli("partitions", "retire", "--incompatible", "--yes", "--json")
    assert list(ran.json[0]) == [
        "view_set_name",
        "view_instance_id",
        "partitions_retired",
        "partitions_failed",
        "storage_freed_bytes",
        "retirement_messages",
    ]


def test_what_is_older_than_its_retention_is_retired_for_good(cli: Cli, weather: Path) -> None:
    none = cli("partitions", "retire", "readings", "--expired", "--yes")
    assert none.code == 2
    assert "has no retention" in none.error
    register(cli, weather, readings(retention_us=HOUR))
    with unchanged(weather):
        assert (
            "retire 3 partitions (1 empty)"
            in cli("partitions", "retire", "readings", "--expired").err
        )
    assert cli("partitions", "retire", "readings", "--expired", "--yes").code == 0
    assert listed(cli) == []
    late = cli("partitions", "publish", "readings", rows_file(weather), *hours(0, 1))
    assert late.code == 4
    assert "keeps nothing from before" in late.error


def test_a_held_range_stays_away_until_it_is_restored(cli: Cli, weather: Path) -> None:
    held = cli(
        "partitions",
        "retire",
        "readings",
        "--exact",
        *hours(0, 1),
        "--hold",
        "--confirm",
        "readings",
        "--yes",
    )
    assert held.code == 0
    refused = cli("partitions", "publish", "readings", rows_file(weather), *hours(0, 1))
    assert refused.code == 4
    advice = refused.error.rpartition("restore it first: lakebed ")[2]
    assert cli(*shlex.split(advice)).code == 0
    assert len(listed(cli)) == 3


def test_retiring_most_of_a_view_set_must_be_confirmed_by_name(
    cli: Cli, weather: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEBED_BREAKER_PARTITIONS", "2")
    retire = ["partitions", "retire", "readings", *hours(0, 9)]
    assert "this is most of readings: it needs --confirm readings" in cli(*retire).err
    with unchanged(weather):
        ran = cli(*retire, "--yes", "--confirm", "others")
    assert ran.code == 4
    assert ran.err.splitlines()[-1].startswith("error: this would retire most of readings ")
    assert ran.err.endswith("--confirm readings\n")
    assert cli(*retire, "--yes", "--confirm", "readings").code == 0
    assert listed(cli) == []


def test_who_would_remove_what_is_built_in_is_told_how_to_drop_its_rows(
    cli: Cli, weather: Path
) -> None:
    with lakebed.open(weather) as lake:
        land(lake, "logs", seed=1, size=10)
        build(lake, "log_entries")
    refused = cli("views", "remove", "log_entries", "--yes")
    assert refused.code == 4
    told = refused.error.partition("to drop what was built of it: lakebed ")[2]
    plan = cli(*shlex.split(told))
    assert plan.code == 0
    assert "retire 1 partition (0 empty) with 10 rows" in plan.err


def test_a_retirement_of_nothing_is_no_error(cli: Cli, weather: Path) -> None:
    with unchanged(weather):
        ran = cli(
            "partitions", "retire", "readings", *hours(7, 8), "--confirm", "readings", "--yes"
        )
    assert ran.code == 0
    assert "nothing to retire" in ran.err


# ---- restoring -----------------------------------------------------------------------------------


def test_a_retired_partition_comes_back_once(cli: Cli, weather: Path) -> None:
    cli("partitions", "retire", "readings", *hours(0, 1), "--confirm", "readings", "--yes")
    (retired,) = [each for each in listed(cli, "--retired") if each["retired_at"]]
    ran = cli("partitions", "restore", retired["partition_id"], "--json")
    assert ran.code == 0
    (restored,) = ran.json
    assert restored["file_path"] == retired["file_path"]
    assert restored in listed(cli)
    with unchanged(weather):
        again = cli("partitions", "restore", retired["partition_id"])
    assert again.code == 4
    assert "was restored already" in again.error


def _retire_two(cli: Cli) -> list[str]:
    cli("partitions", "retire", "readings", *hours(0, 2), "--confirm", "readings", "--yes")
    return [each["partition_id"] for each in listed(cli, "--retired") if each["retired_at"]]


def test_several_partitions_come_back_at_once(cli: Cli, weather: Path) -> None:
    restored = cli("partitions", "restore", *_retire_two(cli), "--json")
    assert len(restored.json) == 2
    assert len(listed(cli)) == 3


def test_restoring_several_is_all_or_nothing(cli: Cli, weather: Path) -> None:
    ids = _retire_two(cli)
    with unchanged(weather):
        ran = cli("partitions", "restore", ids[0], "nobody", ids[1])
    assert ran.code == 3
    assert "nobody" in ran.error
