"""Import of a tree of Parquet files: every file is classified, sound files are imported once, the
others are copied to quarantine, and the source is never changed.
"""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lakebed.catalog.records import files, inserts
from lakebed.errors import StalePlan
from lakebed.lake import Lake
from lakebed.storage.objects import read_all
from lakebed.tables.importing.report import Fate, FileClass
from lakebed.tables.table import Table
from tests.conftest import SQLITE_FIRST
from tests.tables.importing.trees import (
    SCHEMA,
    adopt,
    all_rows,
    as_bytes,
    as_counter,
    aside,
    build_mess,
    fingerprint,
    only,
    plan,
    put,
    rows,
)
from tests.tables.parts import damage, meanwhile, sweep_all


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


@pytest.fixture
def home(lake: Lake) -> Lake:
    lake.tables.create_database("home")
    return lake


@pytest.fixture
def table(home: Lake) -> Table:
    return home.tables.create_table("home", "pulse", SCHEMA)


# ---- the whole tree ----------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_every_file_is_told_by_class(table: Table, home: Lake, root: Path) -> None:
    expected = build_mess(root)
    import_plan = plan(home, root)
    assert {file.path: file.kind for file in import_plan.files} == expected
    assert import_plan.table == table.definition
    assert import_plan.rows == 60
    assert sum(import_plan.counts.values()) == len(expected)
    assert set(import_plan.counts) == set(FileClass)
    for file in import_plan.files:
        if file.kind not in (FileClass.SOUND, FileClass.EMPTY, FileClass.NOT_PARQUET):
            empty = file.kind in (FileClass.EMPTY_DIRECTORY, FileClass.ZERO_BYTES)
            assert bool(file.reason) != empty, file
    assert table.count() == 0


def test_planning_changes_nothing(table: Table, home: Lake, root: Path) -> None:
    build_mess(root)
    with home.catalog.read() as connection:
        before = files.list_files(connection)
    plan(home, root)
    with home.catalog.read() as connection:
        assert files.list_files(connection) == before
    assert aside(home) == {}


def test_sound_files_are_taken_and_no_byte_of_the_others_is_lost(
    table: Table, home: Lake, root: Path
) -> None:
    expected = build_mess(root)
    reported = []
    report = home.tables.carry_out_import(plan(home, root), reported.append)
    assert sorted(outcome.file.path for outcome in reported) == sorted(expected)
    assert {outcome.file.path: outcome.file.kind for outcome in report.outcomes} == expected
    parts = [report.taken, report.quarantined, report.skipped]
    assert sum(map(len, parts)) == len(report.outcomes) == len(expected)
    assert {outcome.file.kind for outcome in report.taken} == {FileClass.SOUND}
    assert report.rows == report.rows_inserted == table.count() == 60
    imported = [
        pq.read_table(root / outcome.file.path, partitioning=None) for outcome in report.taken
    ]
    assert all_rows(table) == as_counter(*imported)
    quarantined = aside(home)
    for path, kind in expected.items():
        at = root / path
        if kind in (FileClass.SOUND, FileClass.IMPORTED) or not at.is_file():
            continue
        data = at.read_bytes()
        assert not data or hashlib.sha256(data).hexdigest() in quarantined, path
    assert len(quarantined) == len(report.quarantined)
    assert [outcome.file.path for outcome in report.left_behind] == [
        "link-to-a-folder",
        "link-to-nothing",
        "pipe",
    ]
    assert damage(home) == []


def test_quarantine_says_where_bytes_are_from_and_why(table: Table, home: Lake, root: Path) -> None:
    data = put(root, "a/cut.parquet", as_bytes(rows(1))[:-20]).read_bytes()
    report = adopt(home, root)
    reason = aside(home)[hashlib.sha256(data).hexdigest()]
    assert reason.startswith("import into home.pulse: a/cut.parquet: truncated: it ends with")
    (outcome,) = report.quarantined
    assert read_all(home.store, outcome.kept_as or "") == data
    sweep_all(home)
    assert read_all(home.store, outcome.kept_as or "") == data


def test_the_source_is_never_touched(table: Table, home: Lake, root: Path) -> None:
    build_mess(root)
    for path in sorted(root.rglob("*"), reverse=True):
        if not path.is_symlink():
            path.chmod(0o555 if path.is_dir() else 0o444)
    root.chmod(0o555)
    before = fingerprint(root)
    adopt(home, root)
    adopt(home, root)
    assert fingerprint(root) == before


def test_importing_again_does_nothing(table: Table, home: Lake, root: Path) -> None:
    build_mess(root)
    adopt(home, root)
    before = all_rows(table), aside(home)
    again = plan(home, root)
    assert again.rows == 0
    assert FileClass.SOUND not in again.counts
    assert again.counts[FileClass.IMPORTED] == 7
    report = home.tables.carry_out_import(again)
    assert [outcome.fate for outcome in report.outcomes] == [Fate.SKIPPED] * len(report.outcomes)
    assert (all_rows(table), aside(home)) == before
    assert len(report.left_behind) == 3
    assert damage(home) == []


def test_the_same_plan_carried_out_twice_counts_once(table: Table, home: Lake, root: Path) -> None:
    build_mess(root)
    import_plan = plan(home, root)
    home.tables.carry_out_import(import_plan)
    report = home.tables.carry_out_import(import_plan)
    assert (report.taken, report.quarantined) == ([], [])
    assert table.count() == 60


def test_what_was_imported_is_remembered_for_good(table: Table, home: Lake, root: Path) -> None:
    put(root, "a.parquet", rows(1))
    adopt(home, root)
    table.insert([{"time": "2024-05-01T00:00:00Z"}], key="retry")
    with home.catalog.write() as transaction:
        assert inserts.forget(transaction.connection, transaction.tick) == 1
    assert only(home, root).kind is FileClass.IMPORTED


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_the_bytes_count_and_not_the_name(table: Table, home: Lake, root: Path) -> None:
    first = put(root, "date=2024-05-01/data.parquet", rows(1))
    adopt(home, root)
    (root / "flat").mkdir()
    shutil.copy(first, root / "flat/renamed")
    shutil.copytree(root / "date=2024-05-01", root / "date=2024-05-02")
    report = adopt(home, root)
    assert report.counts == {FileClass.IMPORTED: 3}
    assert table.count() == 10


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_one_file_is_imported_by_its_name(table: Table, home: Lake, root: Path) -> None:
    file = put(root, "_backup.parquet", rows(1))
    report = adopt(home, file)
    assert [outcome.file.path for outcome in report.taken] == ["_backup.parquet"]
    assert adopt(home, root).counts == {FileClass.TEMPORARY: 1}


# ---- while it happens --------------------------------------------------------------------------


def test_a_file_that_changed_since_the_plan_is_judged_again(
    table: Table, home: Lake, root: Path
) -> None:
    put(root, "good-to-bad.parquet", rows(1))
    put(root, "bad-to-good.parquet", as_bytes(rows(2))[:-9])
    put(root, "other.parquet", rows(3))
    put(root, "copy-of-other.parquet", rows(3))
    put(root, "gone.parquet", rows(4))
    import_plan = plan(home, root)
    put(root, "good-to-bad.parquet", as_bytes(rows(1))[:-9])
    put(root, "bad-to-good.parquet", rows(2))
    put(root, "other.parquet", rows(5))
    (root / "gone.parquet").unlink()
    report = home.tables.carry_out_import(import_plan)
    fates = {outcome.file.path: (outcome.file.kind, outcome.fate) for outcome in report.outcomes}
    assert fates == {
        "good-to-bad.parquet": (FileClass.TRUNCATED, Fate.QUARANTINED),
        "bad-to-good.parquet": (FileClass.SOUND, Fate.TAKEN),
        "other.parquet": (FileClass.SOUND, Fate.TAKEN),
        "copy-of-other.parquet": (FileClass.SOUND, Fate.TAKEN),
        "gone.parquet": (FileClass.UNREADABLE, Fate.SKIPPED),
    }
    assert all_rows(table) == as_counter(rows(2), rows(3), rows(5))
    assert [outcome.file.path for outcome in report.left_behind] == ["gone.parquet"]


@pytest.mark.parametrize("dialect", SQLITE_FIRST, indirect=True)
def test_a_file_that_never_stands_still_is_left_behind(
    table: Table, home: Lake, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(root, "log.parquet", b"not Parquet")
    opened = Path.open

    def grow(self: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        if self == file:
            with opened(self, "ab") as log:
                log.write(b".")
        return opened(self, mode, *rest, **options)

    import_plan = plan(home, root)
    monkeypatch.setattr(Path, "open", grow)
    report = home.tables.carry_out_import(import_plan)
    (outcome,) = report.left_behind
    assert outcome.note == "it changed whenever it was read"
    assert aside(home) == {}


def test_a_table_that_is_altered_meanwhile_is_gone_by(table: Table, home: Lake, root: Path) -> None:
    put(root, "a.parquet", rows(1))
    put(root, "b.parquet", rows(2, mood=["good"] * 10))
    import_plan = plan(home, root)
    table.alter(add={"mood": "string"})
    report = home.tables.carry_out_import(import_plan)
    assert [outcome.file.path for outcome in report.taken] == ["a.parquet"]
    assert adopt(home, root).rows == 10


def test_a_table_that_takes_the_planned_ones_place_is_refused(home: Lake, root: Path) -> None:
    put(root, "a.parquet", rows(1))
    import_plan = plan(home, root)
    home.tables.create_table("home", "pulse", SCHEMA)
    with pytest.raises(StalePlan, match="another schema"):
        home.tables.carry_out_import(import_plan)
    import_plan = plan(home, root)
    home.tables.delete_table("home", "pulse")
    home.tables.create_table("home", "pulse", SCHEMA)
    with pytest.raises(StalePlan, match="another one by now"):
        home.tables.carry_out_import(import_plan)


def test_two_imports_at_once_take_every_file_once(table: Table, home: Lake, root: Path) -> None:
    build_mess(root)
    first, second = plan(home, root), plan(home, root)
    reports = []
    meanwhile(
        home.tables.inserter,
        "_find_repeated",
        lambda: reports.append(home.tables.carry_out_import(second)),
    )
    reports.append(home.tables.carry_out_import(first))
    assert sorted(len(report.taken) for report in reports) == [0, 6]
    assert table.count() == 60
    assert sum(len(report.quarantined) for report in reports) == len(aside(home))
