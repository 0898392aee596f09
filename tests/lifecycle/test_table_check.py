"""Checking one table: everything that may be odd about a partition of it is seen, files that were
set aside are no damage, and what is empty is named.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from lakebed import admin
from lakebed.cli import main
from lakebed.client.client import Client, connect
from lakebed.errors import BadInput, UnknownTable
from lakebed.lake import Lake
from lakebed.lifecycle.check import CheckReport, Level, Severity
from lakebed.lifecycle.checks.table_check import look_at
from lakebed.model.partition import Partition
from lakebed.model.tables.table import UserTable
from lakebed.storage.objects import read_all
from lakebed.tables.table import Table
from tests.lifecycle.test_check import _overwrite as overwrite
from tests.serve.parts import serving
from tests.tables.importing.trees import put, rows
from tests.tables.parts import BY_ID, make, partitions_of, retire

FINDINGS = ["severity", "kind", "subject", "message"]
MARCH = {"id": 1, "time": "2026-03-02T12:00:00Z", "value": 1}
APRIL = {"id": 2, "time": "2026-04-02T12:00:00Z", "value": 2}


@pytest.fixture
def table(lake: Lake) -> Table:
    table = make(lake, BY_ID, "month")
    table.insert([MARCH, APRIL])
    return table


def _kinds(report: CheckReport) -> list[tuple[Severity, str]]:
    return [(each.severity, each.kind) for each in report.findings]


def _truncate(lake: Lake, partition: Partition) -> str:
    path = partition.file_path or ""
    overwrite(lake, path, read_all(lake.store, path)[:-20])
    return path


Odd = Callable[[Partition, UserTable], tuple[Partition, UserTable | None]]
ODD: dict[str, Odd] = {
    "belongs to no table": lambda partition, _: (partition, None),
    "never had the schema": lambda partition, table: (
        replace(partition, identity=replace(partition.identity, schema_hash=b"other")),
        table,
    ),
    "is not the name of a bucket": lambda partition, table: (
        replace(partition, identity=replace(partition.identity, instance="yesterday")),
        table,
    ),
    "times outside bucket 2026-04": lambda partition, table: (
        replace(partition, identity=replace(partition.identity, instance="2026-04")),
        table,
    ),
    "was deleted, this partition was not": lambda partition, table: (
        partition,
        replace(table, deleted_at=1),
    ),
}


@pytest.mark.parametrize("message", ODD)
def test_what_is_odd_about_a_partition_is_said(table: Table, message: str) -> None:
    partition, definition = table.partitions()[0], table.definition
    assert list(look_at(partition, {definition.table_id: definition})) == []
    odd, known = ODD[message](partition, definition)
    (remark,) = look_at(odd, {} if known is None else {known.table_id: known})
    assert message in remark.message
    assert remark.severity is Severity.DAMAGE
    assert remark.subject == partition.partition_id


def test_a_partition_of_a_view_set_is_none_of_a_table(table: Table) -> None:
    partition = table.partitions()[0]
    other = replace(partition, identity=replace(partition.identity, view_set="spans"))
    assert list(look_at(other, {})) == []


def test_one_table_is_checked_alone(lake: Lake, table: Table) -> None:
    sound = make(lake)
    sound.insert(MARCH)
    for level in Level:
        assert _kinds(lake.checker.check_table(table.definition, level)) == []
    report = lake.checker.check_table(table.definition)
    assert (report.level, report.partitions, report.files, report.rows) == (Level.PAGES, 2, 2, 2)
    path = _truncate(lake, table.partitions()[0])
    report = lake.tables.validate_table_files("d", table.name)
    assert [(each.kind, each.subject) for each in report.findings] == [("file size", path)]
    assert not report.is_clean
    assert lake.tables.validate_table_files("d", sound.name).is_clean


def test_a_retired_file_is_checked_once_however_often_it_was_there(
    lake: Lake, table: Table
) -> None:
    partition = table.partitions()[0]
    retire(lake, partition)
    lake.retirement.restore(partition.partition_id)
    assert len(partitions_of(lake, table)) == 3
    assert lake.checker.check_table(table.definition).files == 2
    _truncate(lake, partition)
    assert _kinds(lake.checker.check_table(table.definition)) == [(Severity.DAMAGE, "file size")]


def test_a_file_that_was_set_aside_is_no_damage_any_more(lake: Lake, table: Table) -> None:
    path = _truncate(lake, table.partitions()[0])
    lake.checker.quarantine(path)
    assert lake.checker.run(Level.PAGES).is_clean
    report = lake.checker.check_table(table.definition)
    assert _kinds(report) == [(Severity.NOTE, "quarantined file")]
    assert report.files == 1


def test_files_that_imports_set_aside_are_named(lake: Lake, table: Table, tmp_path: Path) -> None:
    other = make(lake, BY_ID, "month")
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree" / "half.parquet").write_bytes(b"PAR1, and no more")
    lake.tables.carry_out_import(lake.tables.plan_import(tmp_path / "tree", "d", table.name))
    report = lake.checker.check_table(table.definition)
    assert report.is_clean
    ((severity, kind, message),) = [(e.severity, e.kind, e.message) for e in report.findings]
    assert (severity, kind) == (Severity.NOTE, "quarantined file")
    assert f"import into d.{table.name}: half.parquet" in message
    assert lake.checker.check_table(other.definition).findings == []


def test_partitions_in_which_nothing_is_left_are_found(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    table = make(lake, {"time": "datetime", "value": "int"}, "month")
    table.insert([{k: v for k, v in each.items() if k != "id"} for each in (MARCH, APRIL)])
    assert lake.tables.find_empty_partitions("d", table.name) == []
    table.delete_rows("value = 1")
    (empty,) = lake.tables.find_empty_partitions("d", table.name)
    assert (empty.instance, empty.num_rows) == ("2026-03", 0)
    for report in (lake.checker.run(), lake.checker.check_table(table.definition)):
        assert _kinds(report) == [(Severity.NOTE, "empty partition")]
        assert report.is_clean
    place = lake.catalog.url.removeprefix("sqlite:///").removesuffix("/catalog.sqlite3")
    capsys.readouterr()
    assert main.run(["check", "--table", f"d.{table.name}", "--lake", place]) == 0
    assert f"d.{table.name} 2026-03: nothing is left in it" in capsys.readouterr().out
    retire(lake, empty)
    assert lake.tables.find_empty_partitions("d", table.name) == []


@pytest.mark.parametrize("connected", [False, True])
def test_admin_finds_empty_partitions_and_damage_of_a_table(lake: Lake, connected: bool) -> None:
    table = make(lake, {"time": "datetime", "value": "int"}, "month")
    table.insert([{"time": f"2026-0{month}-02", "value": month} for month in (3, 4)])
    table.delete_rows("value = 3")
    name = table.definition.full_name
    (empty,) = lake.tables.find_empty_partitions("d", table.name)
    with ExitStack() as stack:
        source: Lake | Client = lake
        if connected:
            served = stack.enter_context(serving(lake))
            source = stack.enter_context(connect(served.flight))
        findings = admin.find_empty_partitions(source, name)
        assert findings.column_names == FINDINGS
        assert findings["subject"].to_pylist() == [empty.partition_id]
        (live,) = (partition for partition in table.partitions() if not partition.is_empty)
        path = _truncate(lake, live)
        for pages in (True, False):
            damaged = admin.validate_table_files(source, name, pages=pages).to_pylist()
            assert (path, "damage") in {(row["subject"], row["severity"]) for row in damaged}
        with pytest.raises(UnknownTable):
            admin.find_empty_partitions(source, "d.nothing")
        with pytest.raises(BadInput, match="name the table"):
            admin.validate_table_files(source)
        with pytest.raises(BadInput, match="'table' must be str or None"):
            admin.find_empty_partitions(source, 5)


def test_admin_checks_a_folder_without_a_lake(tmp_path: Path) -> None:
    put(tmp_path, "device=7/a.parquet", rows(1).slice(0, 0))
    put(tmp_path, "device=8/b.parquet", b"PAR1")
    assert admin.find_empty_partitions(tmp_path)["subject"].to_pylist() == [
        "device=7/a.parquet",
        "device=7",
    ]
    findings = admin.validate_table_files(str(tmp_path))
    assert findings.column_names == FINDINGS
    assert ("damage", "device=8/b.parquet") in {
        (row["severity"], row["subject"]) for row in findings.to_pylist()
    }
    with pytest.raises(BadInput, match="is not an open lake"):
        admin.find_empty_partitions(tmp_path, "home.pulse")


def test_check_command_checks_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(tmp_path, "device=7/a.parquet", rows(1))
    put(tmp_path, "device=8/b.parquet", rows(1).slice(0, 0))
    arguments = ["check", "--folder", str(tmp_path)]
    assert main.run(arguments) == 0
    printed = capsys.readouterr().out
    assert "empty partition  device=8            its file has no rows" in printed
    assert "clean: 2 folders, 2 files, 10 rows," in printed
    put(tmp_path, "device=9/c.parquet", b"PAR1")
    assert main.run([*arguments, "--json", "--level", "pages"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["clean"], report["files"], report["level"]) == (False, 3, "pages")
    assert report["counts"]["empty partition"] == 1
    assert {finding["severity"] for finding in report["findings"]} == {"note", "damage"}
    assert main.run([*arguments, "--level", "files"]) == 2
    assert main.run([*arguments, "--table", "home.pulse"]) == 2


def test_check_command_shows_empty_folders_and_files_that_were_set_aside(
    lake: Lake, table: Table, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lake.catalog.url.removeprefix("sqlite:///").removesuffix("/catalog.sqlite3")
    monkeypatch.setenv("LAKEBED_LAKE", folder)
    path = partitions_of(lake, table)[0].file_path or ""
    lake.checker.quarantine(path, "looks odd")
    root = Path(unquote(urlsplit(lake.store.url).path))
    for number in range(25):
        (root / "partitions" / f"gone{number}").mkdir()
    assert main.run(["check"]) == 0
    printed = capsys.readouterr()
    assert "quarantined file" in printed.out
    assert "set aside: looks odd" in printed.out
    assert printed.out.count("empty directory") == 20
    assert "… and 5 more of kind empty directory; --json has more" in printed.err
