"""The journal, leases, backups and migrations."""

from __future__ import annotations

import contextlib
from pathlib import Path

from lakebed.catalog.catalog import Catalog
from lakebed.catalog.connections.dialects import WRITE
from lakebed.catalog.migrate import migrate
from lakebed.opening import open_lake
from lakebed.settings import Settings
from tests.cli.parts import (
    Cli,
    file_of,
    hours,
    listed,
    unchanged,
)
from tests.parts.older import fill_older_shape


def test_the_journal_tells_the_newest_first(cli: Cli, weather: Path) -> None:
    cli("partitions", "retire", "readings", *hours(0, 1), "--confirm", "readings", "--yes")
    entries = cli("journal", "--json").json
    assert [each["operation"] for each in entries] == [
        "retire",
        "publish",
        "publish",
        "publish",
        "view set created",
    ]
    assert list(entries[0]) == [
        "time",
        "operation",
        "view_set_name",
        "rows",
        "bytes",
        "reason",
        "actor",
        "view_instance_id",
        "partition_id",
        "file_path",
        "detail",
    ]
    assert len(cli("journal", "--limit", 2, "--json").json) == 2
    chosen = cli("journal", "--operation", "retire", "--operation", "view set created", "--json")
    assert len(chosen.json) == 2
    assert cli("journal", "--view", "others", "--json").json == []
    table = cli("journal")
    assert (table.code, table.err) == (0, "")
    assert len(table.out.splitlines()) == 6


def test_leases_tell_who_else_uses_the_lake(cli: Cli, weather: Path) -> None:
    nobody = cli("leases")
    assert (nobody.code, nobody.out) == (0, "")
    assert nobody.err == "no other process uses the lake\n"
    with (
        open_lake(weather, settings=Settings(actor="ada@desk")) as other,
        other.partitions.snapshot("readings"),
    ):
        (lease,) = cli("leases", "--json").json
        assert "ada@desk" in cli("leases").out
    assert (lease["kind"], lease["holder"]) == ("reader", "ada@desk")
    assert list(lease)[:2] == ["kind", "holder"]


def test_upkeep_tells_for_how_long_each_duty_is_overdue(cli: Cli, weather: Path) -> None:
    cli("upkeep", "--once", "retain")
    rows = {each["duty"]: each for each in cli("upkeep", "--json").json}
    assert rows["retain"]["overdue_seconds"] == 0
    assert rows["retain"]["next_run"] is not None
    assert rows["sweep"]["overdue_seconds"] > 0, "since the lake was made"
    said = cli("upkeep").out
    assert "overdue for " in said
    assert "heals, every 1d" in said
    assert f"due {rows['retain']['next_run']}" in said


def test_a_backup_is_a_lake_and_becomes_one_again(cli: Cli, weather: Path, tmp_path: Path) -> None:
    made = cli("backup", "create", "copy")
    assert made.code == 0
    assert made.out.startswith("copied 2 files (")
    back = cli("backup", "restore", "copy", "back")
    assert back.code == 0
    wanted = listed(cli)
    for folder in ("copy", "back"):
        assert cli("check", "--level", "pages", "--lake", folder).code == 0
        assert listed(cli, "--lake", folder) == wanted
    with unchanged(tmp_path / "back"):
        again = cli("backup", "restore", "copy", "back")
    assert again.code == 4
    assert "there is a lake already" in again.error


def test_a_backup_of_a_damaged_lake_is_no_backup(cli: Cli, weather: Path, tmp_path: Path) -> None:
    missing = listed(cli)[0]
    file_of(weather, missing).unlink()
    ran = cli("backup", "create", "copy")
    assert ran.code == 1
    assert missing["file_path"] in ran.error
    assert cli("partitions", "list", "--lake", "copy").code == 3


def test_migrate_prints_a_line_for_each_row_that_it_refuses(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "older" / "catalog.sqlite3"
    file.parent.mkdir()
    file.touch()
    with contextlib.closing(Catalog(f"sqlite:///{file}", actor="test")) as older:
        migrate(older.engine, target="0001")
        fill_older_shape(older.engine, 10)
        with older.engine.execution_options(**{WRITE: True}).begin() as connection:
            connection.exec_driver_sql("UPDATE lakehouse_partitions SET num_rows = 0")
    ran = cli("migrate", "--lake", "older")
    assert (ran.code, ran.out) == (4, "")
    first, *problems = ran.err.splitlines()
    assert first == (
        "error: the older catalog cannot be migrated and was not changed: 9 problems in its rows; "
        "mend each row with the program that wrote it, and repeat"
    )
    assert len(problems) == 9
    assert problems[0].endswith("has a file but 0 rows, views/log/00000.parquet")


def test_an_older_catalog_is_migrated_before_it_is_used(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "older" / "catalog.sqlite3"
    file.parent.mkdir()
    file.touch()
    with contextlib.closing(Catalog(f"sqlite:///{file}", actor="test")) as older:
        migrate(older.engine, target="0001")
        fill_older_shape(older.engine, 10)
    early = cli("partitions", "list", "--lake", "older")
    assert early.code == 4
    assert "bring it up to date with: lakebed migrate" in early.error
    ran = cli("migrate", "--lake", "older")
    assert (ran.code, ran.out) == (0, "2 revisions ran, 9 footers rewritten\n")
    assert ran.err.startswith("revision 0002: ")
    again = cli("migrate", "--lake", "older")
    assert (again.code, again.out, again.err) == (
        0,
        "0 revisions ran, 0 footers rewritten\n",
        "",
    )
