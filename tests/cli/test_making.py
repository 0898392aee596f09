"""Lakes, view sets and partitions are made from the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from lakebed.model.view_set import ViewSet
from tests.cli.parts import (
    Cli,
    everything,
    file_of,
    hours,
    listed,
    register,
    rows_file,
    unchanged,
)
from tests.parts.data import HOUR, readings, rows

# ---- making lakes --------------------------------------------------------------------------------


def test_init_makes_a_lake_and_says_what_comes_next(cli: Cli, tmp_path: Path) -> None:
    ran = cli("init", "weather")
    assert ran.code == 0
    lake_id = json.loads((tmp_path / "weather" / "store" / "lake.json").read_text())["lake_id"]
    assert ran.out == f"made lake {lake_id}\n"
    assert "lakebed land FILE --lake weather" in ran.err
    assert cli("check", "--lake", "weather").code == 0


def test_init_makes_the_lake_that_commands_would_look_for(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEBED_LAKE", "elsewhere")
    assert cli("init").code == 0
    assert cli("views", "list").code == 0
    assert [each.name for each in tmp_path.iterdir()] == ["elsewhere"]
    monkeypatch.setenv("LAKEBED_LAKE", "postgresql://me@db/lake")
    ran = cli("init")
    assert (ran.code, "lakebed init --catalog URL --store URL" in ran.error) == (2, True)


def test_init_twice_is_refused_and_changes_nothing(cli: Cli, weather: Path) -> None:
    with unchanged(weather):
        ran = cli("init", weather)
    assert ran.code == 4
    assert "there is a lake already" in ran.error


@pytest.mark.parametrize("url", ["postgresql://me:secret@db/lake", "mysql://me:secret@db/lake"])
def test_init_refuses_a_url_as_its_folder_and_makes_nothing(
    cli: Cli, tmp_path: Path, url: str
) -> None:
    for command in (["init", url], ["init", url, "--store", f"file://{tmp_path}/store"]):
        ran = cli(*command)
        assert ran.code == 2
        assert "a URL is not a folder; use --catalog and --store for URLs" in ran.error
        assert "secret" not in ran.error
    assert list(tmp_path.iterdir()) == []


def test_a_lake_is_found_in_the_folder_one_stands_in(cli: Cli) -> None:
    assert cli("init").code == 0
    assert {row["activated_at"] for row in cli("views", "list", "--json").json} == {None}


def test_a_lake_with_a_catalog_and_a_store_elsewhere(
    cli: Cli, new_catalog: Callable[..., str], tmp_path: Path
) -> None:
    url, store = new_catalog(blank=True), f"file://{tmp_path}/elsewhere"
    ran = cli("init", "--catalog", url, "--store", store)
    assert ran.code == 0
    assert store in ran.err
    definition = tmp_path / "readings.json"
    definition.write_text(readings().definition())
    assert cli("views", "register", definition, "--lake", url).out == (
        "readings version 1: created\n"
    )
    file = rows_file(tmp_path)
    assert cli("partitions", "publish", "readings", file, *hours(0, 1), "-l", url).code == 0
    report = cli("check", "--level", "pages", "--json", "--lake", url)
    assert (report.code, report.json["rows"]) == (0, 2)
    assert list(tmp_path.glob("elsewhere/partitions/readings/global/*/*.parquet"))
    assert cli("init", "--catalog", url, "--store", store).code == 4


# ---- view sets -----------------------------------------------------------------------------------


def test_a_view_set_is_registered_evolved_and_shown(cli: Cli, weather: Path) -> None:
    assert register(cli, weather, readings()).out == "readings version 1: unchanged\n"
    assert register(cli, weather, readings(2)).out == "readings version 2: evolved\n"
    amended = readings(2, retention_us=HOUR)
    assert register(cli, weather, amended).out == "readings version 2: amended\n"
    shown = cli("views", "show", "readings")
    assert ViewSet.from_definition(shown.out) == amended
    (weather / "shown.json").write_text(shown.out)
    assert cli("views", "register", weather / "shown.json").out.endswith("unchanged\n")


def test_a_view_set_cannot_go_back_or_change_in_place(cli: Cli, weather: Path) -> None:
    register(cli, weather, readings(2))
    with unchanged(weather):
        older = register(cli, weather, readings(1))
        assert older.code == 4
        assert "active in version 2" in older.error
        other = pa.schema([("time", pa.timestamp("us", "UTC"))])
        changed = register(cli, weather, ViewSet("readings", 2, other, "time"))
        assert changed.code == 2
        assert "declare it as version 3" in changed.error


def test_view_sets_are_listed(cli: Cli, weather: Path) -> None:
    table = cli("views", "list")
    assert table.out.splitlines()[0].split() == [
        "view_set_name",
        "version",
        "current_schema_hash",
        "columns",
        "time_column",
        "activated_at",
        "source",
        "keep",
    ]
    assert readings().schema_hash.hex()[:12] in table.out
    (row,) = [row for row in cli("views", "list", "--json").json if row["activated_at"]]
    assert row["current_schema_hash"] == readings().schema_hash.hex()
    assert (row["view_set_name"], row["version"], row["columns"]) == ("readings", 1, 2)


def test_a_view_set_is_removed_only_when_told_to(cli: Cli, weather: Path) -> None:
    with unchanged(weather):
        plan = cli("views", "remove", "readings")
    assert (plan.code, plan.out) == (0, "")
    assert "its 3 live partitions would become incompatible" in plan.err
    assert "--yes" in plan.err
    assert cli("views", "remove", "readings", "--yes").out == "readings: removed\n"
    assert "readings" not in {row["view_set_name"] for row in cli("views", "list", "--json").json}
    assert len(listed(cli, "--incompatible")) == 3


# ---- publishing ----------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".parquet", ".pq", ".arrow", ".feather"])
def test_rows_are_published_from_a_file(cli: Cli, weather: Path, suffix: str) -> None:
    file, table = weather / f"rows{suffix}", rows(4, 3)
    if suffix == ".arrow":
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    elif suffix == ".feather":
        pyarrow.feather.write_feather(table, str(file))
    else:
        pq.write_table(table, file)
    ran = cli("partitions", "publish", "readings", file, *hours(3, 4), "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json == [each for each in listed(cli) if each["num_rows"] == 4]
    assert file_of(weather, ran.json[0]).stat().st_size == ran.json[0]["file_size"]


def test_a_range_is_published_as_completed_and_empty(cli: Cli, weather: Path) -> None:
    ran = cli("partitions", "publish", "readings", "--completed-empty", *hours(3, 5), "--json")
    (row,) = ran.json
    assert (row["num_rows"], row["file_size"], row["file_path"]) == (0, 0, None)
    assert row["end_insert_time"] == "2026-01-01T05:00:00.000000Z"


def test_a_taken_range_is_published_only_over_what_it_replaces(cli: Cli, weather: Path) -> None:
    file = rows_file(weather)
    old = listed(cli)[0]["partition_id"]
    publish = ["partitions", "publish", "readings", file, *hours(0, 1), "--replaces", old]
    assert cli(*publish).code == 0
    assert old not in [each["partition_id"] for each in listed(cli)]
    again = cli(*publish)
    assert again.code == 2
    assert "--replaces names a partition that is not live" in again.error


@pytest.mark.parametrize(
    ("hours", "code", "says"),
    [
        pytest.param(hours(0, 1), 4, "already covers part of readings/global", id="taken"),
        pytest.param(hours(99999, 100000), 2, "only ranges that have ended", id="not ended"),
    ],
)
def test_a_refused_publication_leaves_nothing_that_a_sweep_does_not_take(
    cli: Cli, weather: Path, hours: list[str], code: int, says: str
) -> None:
    before = everything(weather)
    ran = cli("partitions", "publish", "readings", rows_file(weather), *hours)
    assert ran.code == code
    assert says in ran.error
    assert cli("sweep", "--yes").code == 0
    after = everything(weather)
    for name in ("lakehouse_partitions", "partition_metadata", "temporary_files", "files"):
        assert after[name] == before[name]


@pytest.mark.parametrize("name", ["log_entries", "log_stats"])
def test_view_sets_that_builds_make_take_no_rows(cli: Cli, weather: Path, name: str) -> None:
    assert cli("build", "--plan").code == 0  # registers the built-in ones
    for given in (rows_file(weather), "--completed-empty"):
        ran = cli("partitions", "publish", name, given, *hours(0, 1))
        assert ran.code == 2
        assert f"view set {name} takes no rows: builds make them" in ran.error


def test_instances_are_apart(cli: Cli, weather: Path) -> None:
    file = rows_file(weather)
    publish = ["partitions", "publish", "readings", file, *hours(0, 1), "--instance", "host-1"]
    assert cli(*publish).code == 0
    assert len(listed(cli)) == 4
    (mine,) = listed(cli, "--instance", "host-1")
    assert mine["view_instance_id"] == "host-1"
