"""Classification of the files of a tree by their folders, columns, rows and bytes."""

from __future__ import annotations

import dataclasses
import errno
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.errors import BadInput
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.tables.importing.report import FileClass
from lakebed.tables.importing.schema_match import Fit
from lakebed.tables.insert.validation import validate
from lakebed.tables.table import Table
from tests.storage.test_footer import BINARY, chunks, encode, sample, trailer, tree
from tests.tables.importing.trees import (
    SCHEMA,
    adopt,
    as_bytes,
    aside,
    build_mess,
    only,
    plan,
    put,
    rows,
)
from tests.tables.parts import damage


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path, migrated_sqlite: Path) -> Iterator[Lake]:
    (tmp_path / "lake").mkdir()
    shutil.copy(migrated_sqlite, tmp_path / "lake")
    with init_lake(tmp_path / "lake") as lake:
        lake.tables.create_database("home")
        yield lake


@pytest.fixture
def table(home: Lake) -> Table:
    return home.tables.create_table("home", "pulse", SCHEMA)


# ---- folders -----------------------------------------------------------------------------------


def test_a_folder_gives_a_column_that_the_file_lacks(home: Lake, root: Path) -> None:
    schema = SCHEMA | {"site": "int", "year": "int", "day": {"type": "datetime"}}
    schema["time"] = {"type": "datetime", "time": True}
    table = home.tables.create_table("home", "pulse", schema)
    put(root, "site=7/day=2024-05-01/year=2024/device=x/a.parquet", rows(1, 1))
    put(root, "site=__HIVE_DEFAULT_PARTITION__/day=2024-05-02/b.parquet", rows(2, 1))
    import_plan = plan(home, root)
    assert [file.reason for file in import_plan.files] == [
        "NULL for note; site, year, day from its folder; "
        "1 of 1 rows are not of device=x: rows go by their own value",
        "NULL for note, year; site, day from its folder",
    ]
    home.tables.carry_out_import(import_plan)
    result = table.query("SELECT site, year, day, device FROM pulse ORDER BY time").to_arrow()
    assert [row["site"] for row in result.to_pylist()] == [7, None]
    assert [row["year"] for row in result.to_pylist()] == [2024, None]
    assert [str(row["day"]) for row in result.to_pylist()] == [
        "2024-05-01 00:00:00+00:00",
        "2024-05-02 00:00:00+00:00",
    ]
    assert result["device"].to_pylist() == [rows(day, 1)["device"][0].as_py() for day in (1, 2)]


def test_the_same_bytes_with_other_values_of_folders_are_other_rows(home: Lake, root: Path) -> None:
    table = home.tables.create_table("home", "pulse", SCHEMA | {"site": "string"})
    for path in ("site=a/1.parquet", "site=b/1.parquet", "date=2024-05-01/site=b/2.parquet"):
        put(root, path, rows(1))
    assert adopt(home, root).counts == {FileClass.SOUND: 2, FileClass.IMPORTED: 1}
    assert table.count() == 20
    put(root, "elsewhere/site=a/3.parquet", rows(1))
    assert adopt(home, root).counts == {FileClass.IMPORTED: 4}


def test_the_same_bytes_with_more_folders_are_other_rows(home: Lake, root: Path) -> None:
    """Also if those with fewer came first, in the same import or in one before."""
    source_rows = rows(1, 1).drop_columns(["device"])
    put(root, "all.parquet", source_rows)
    put(root, "device=a/1.parquet", source_rows)
    put(root, "device=a/site=x/1.parquet", source_rows)
    assert adopt(home, root).counts == {FileClass.SOUND: 3}
    put(root, "device=b/1.parquet", source_rows)
    put(root, "copy.parquet", source_rows)
    assert adopt(home, root).counts == {FileClass.SOUND: 1, FileClass.IMPORTED: 4}
    result = home.query("SELECT device, site FROM home.pulse").to_arrow().to_pylist()
    assert {(row["device"], row["site"]) for row in result} == {
        (None, None), ("a", None), ("a", "x"), ("b", None),
    }  # fmt: skip
    assert len(result) == 4


def test_what_folders_gave_nothing_to_is_known_when_they_would(
    table: Table, home: Lake, root: Path
) -> None:
    """The table has a column for them only since; the file is the same."""
    put(root, "date=2024-05-01/1.parquet", rows(1))
    assert adopt(home, root).counts == {FileClass.SOUND: 1}
    planned = plan(home, put(root, "date=2024-05-02/2.parquet", rows(2)).parent)
    table.alter(add={"date": "string"})
    assert adopt(home, root).counts == {FileClass.SOUND: 1, FileClass.IMPORTED: 1}
    dates = {row["date"] for row in table.query("SELECT date FROM pulse").to_arrow().to_pylist()}
    assert dates == {None, "2024-05-02"}
    put(root, "flat.parquet", rows(2))
    assert adopt(home, root).counts == {FileClass.SOUND: 1, FileClass.IMPORTED: 2}
    home.tables.carry_out_import(planned)  # of the schema before: it is judged again
    assert adopt(home, root).counts == {FileClass.IMPORTED: 3}


def test_what_a_folder_says_is_never_dropped(table: Table, home: Lake, root: Path) -> None:
    put(root, "site=a/1.parquet", rows(1))
    put(root, "site=b/1.parquet", rows(1))
    import_plan = plan(home, root)
    assert import_plan.counts == {FileClass.DRIFT: 2}
    assert import_plan.files[0].reason == (
        "column site: expected such a column, for what folder site=a says"
    )
    table.alter(add={"site": "string"})
    assert adopt(home, root).counts == {FileClass.SOUND: 2}
    assert table.count() == 20


def test_folders_are_one_column_however_they_are_spelled(home: Lake, root: Path) -> None:
    for index, folder in enumerate(("site=007", "Site=7", "SITE=x"), 1):
        put(root, f"{folder}/{index}.parquet", rows(index, 1))
    adopt(home, root)
    table = home.tables.get("home", "pulse")
    result = table.query("SELECT site FROM pulse ORDER BY time").to_arrow()["site"].to_pylist()
    assert sorted(result) == ["007", "7", "x"]


def test_folders_that_are_no_text_stay_apart(home: Lake, root: Path) -> None:
    home.tables.create_table("home", "pulse", SCHEMA | {"site": "string"})
    put(root, "site=%FF/1.parquet", rows(1))
    put(root, "site=%FE/1.parquet", rows(1))
    import_plan = plan(home, root)
    assert import_plan.counts == {FileClass.DRIFT: 2}


@pytest.mark.parametrize("odd", ["time", "Time2"])
def test_a_file_unlike_the_others_does_not_choose_the_time(
    home: Lake, root: Path, odd: str
) -> None:
    times = pa.array([datetime(2026, 5, day, tzinfo=UTC) for day in range(1, 4)])
    created = pa.array([datetime(2026, 6, day, tzinfo=UTC) for day in range(1, 4)])
    drifted = pa.table({"created": created, odd: [1.5, 2.5, 3.5]})
    if odd != "time":
        drifted = pa.table({"created": created, odd: times})
    put(root, "0.parquet", drifted)
    for number in range(1, 4):
        usual = pa.table({"time": times, "created": created, "n": [number] * 3})
        put(root, f"{number}.parquet", usual)
    import_plan = plan(home, root)
    assert import_plan.schema.time_column == "time"
    assert import_plan.counts == {FileClass.SOUND: 3, FileClass.DRIFT: 1}


def test_a_column_that_is_added_later_imports_nothing_twice(
    table: Table, home: Lake, root: Path
) -> None:
    put(root, "1.parquet", rows(1))
    adopt(home, root)
    table.alter(add={"site": "string"})
    put(root, "site=a/2.parquet", rows(2))
    assert adopt(home, root).counts == {FileClass.SOUND: 1, FileClass.IMPORTED: 1}
    result = table.query("SELECT site, count(*) AS n FROM pulse GROUP BY site").to_arrow()
    assert {row["site"]: row["n"] for row in result.to_pylist()} == {None: 10, "a": 10}


@pytest.mark.parametrize(
    ("value", "kind"),
    [("7", "int"), ("1.5", "float"), ("TRUE", "bool"), ("a%3Ab", "string"), ("x", "json")],
)
def test_a_folders_value_is_of_the_columns_type(
    home: Lake, root: Path, value: str, kind: str
) -> None:
    table = home.tables.create_table("home", "pulse", SCHEMA | {"site": kind})
    put(root, f"site={value}/a.parquet", rows(1, 1))
    adopt(home, root)
    (row,) = table.query("SELECT site FROM pulse").to_arrow().to_pylist()
    assert row["site"] == {"7": 7, "1.5": 1.5, "TRUE": True, "a%3Ab": "a:b", "x": '"x"'}[value]


@pytest.mark.parametrize(
    ("value", "kind"),
    [("x", "int"), (str(1 << 70), "int"), ("x", "float"), ("1", "bool"), ("x", "string[]")],
)
def test_a_folders_value_of_another_type_is_drift(
    home: Lake, root: Path, value: str, kind: str
) -> None:
    home.tables.create_table("home", "pulse", SCHEMA | {"site": kind})
    put(root, f"site={value}/a.parquet", rows(1))
    file = only(home, root)
    assert file.kind is FileClass.DRIFT
    assert file.reason == f"column site: expected {kind}, got '{value}' of a folder"


@pytest.mark.parametrize(
    ("folder", "remark"),
    [
        ("partition_date=2024-05-01", ""),
        ("date=2024-05-01", ""),
        ("date=2024.05.01", ""),
        ("dt=20240501", ""),
        ("date=2024-05", ""),
        ("date=2024-05-01T06", ""),
        ("year=2024/month=05/day=01", ""),
        ("year=2024/month=5", ""),
        ("date=unknown", "folder date=unknown does not name a time"),
        ("day=2024-05-01", ""),
        ("week=2024-W18", ""),
        ("date=2024-13-01", "folder date=2024-13-01 does not name a time"),
        ("partition_date=garbage", "folder partition_date=garbage does not name a time"),
        ("dt=20240501T25", "folder dt=20240501T25 does not name a time"),
        ("year=2024/month=May", "folder month=May does not name a time"),
        ("year=2024/month=02/day=30", "folder year=2024/month=02/day=30 does not name a time"),
        ("hour=25", "folder hour=25 does not name a time"),
        ("partition_date=__HIVE_DEFAULT_PARTITION__", ""),
        ("year=2024/month=05/day=01", ""),
        ("date=2024-05-01/hour=07/minute=59/week=18", ""),
        ("partition_date=2024-05-02", "10 of 10 rows are not of partition_date=2024-05-02"),
        ("date=2024-05-01T07", "10 of 10 rows are not of date=2024-05-01T07"),
        ("year=2024/month=06", "10 of 10 rows are not of year=2024/month=06"),
        ("year=2023", "10 of 10 rows are not of year=2023"),
    ],
)
def test_a_folder_that_contradicts_its_rows_is_told_and_rows_go_by_their_own_time(
    table: Table, home: Lake, root: Path, folder: str, remark: str
) -> None:
    put(root, f"{folder}/data.parquet", rows(1))
    file = only(home, root)
    assert file.kind is FileClass.SOUND
    expected = "NULL for note" + (f"; {remark}: rows go by their own time" if remark else "")
    assert file.reason == expected
    adopt(home, root)
    assert {partition.instance for partition in table.partitions()} == {"2024-05-01"}


@pytest.mark.parametrize(
    ("folder", "remark"),
    [
        ("bpm=7", ""),
        ("bpm=8", "10 of 10 rows are not of bpm=8"),
        ("bpm=fast", "10 of 10 rows are not of bpm=fast"),
        ("device=a", "4 of 10 rows are not of device=a"),
        ("device=__HIVE_DEFAULT_PARTITION__", ""),
    ],
)
def test_a_folder_that_says_something_else_than_its_rows_is_told(
    table: Table, home: Lake, root: Path, folder: str, remark: str
) -> None:
    source_rows = rows(1, bpm=[7] * 10, device=["a"] * 6 + ["b"] * 3 + [None])
    put(root, f"{folder}/data.parquet", source_rows)
    file = only(home, root)
    assert file.kind is FileClass.SOUND
    expected = "NULL for note" + (f"; {remark}: rows go by their own value" if remark else "")
    assert file.reason == expected
    adopt(home, root)
    stored = table.query("SELECT count(*) AS n FROM pulse WHERE bpm = 7 AND device = 'a'")
    assert stored.to_arrow().to_pylist() == [{"n": 6}]


def test_a_folder_may_be_named_for_its_bucket(home: Lake, root: Path) -> None:
    home.tables.create_table("home", "pulse", SCHEMA, "week")
    put(root, "partition_date=2024-04-29/data.parquet", rows(3))
    assert only(home, root).reason == "NULL for note"


def test_a_column_with_the_name_of_the_bucket_is_left_out_if_it_says_the_same(
    table: Table, home: Lake, root: Path
) -> None:
    put(root, "text.parquet", rows(1, partition_date=["2024-05-01"] * 10))
    day = pa.array(["2024-05-02"] * 10).cast(pa.date32())
    put(root, "date.parquet", rows(2, partition_date=day))
    put(root, "other.parquet", rows(3, partition_date=["2024-05-03"] * 9 + ["x"]))
    files_by_path = {file.path: file for file in plan(home, root).files}
    assert (
        files_by_path["text.parquet"].kind is files_by_path["date.parquet"].kind is FileClass.SOUND
    )
    assert files_by_path["other.parquet"].kind is FileClass.DRIFT
    assert "column partition_date: expected the bucket" in files_by_path["other.parquet"].reason


# ---- columns and rows --------------------------------------------------------------------------


def replaced(name: str, values: Any) -> pa.Table:
    source_rows = rows(1, len(values))
    return source_rows.set_column(source_rows.column_names.index(name), name, values)


@pytest.mark.parametrize(
    ("source_rows", "reason"),
    [
        (replaced("bpm", pa.array(["a", "b"])), "column bpm: expected int, got string"),
        (replaced("bpm", pa.array([b"a", b"b"])), "column bpm: expected int, got binary"),
        (
            replaced("bpm", pa.array([[1], [2]])),
            "column bpm: expected int, got list<element: int64>",
        ),
        (replaced("device", pa.array([1, 2])), "column device: expected string, got int64"),
        (replaced("time", pa.array([1, 2])), "column time: expected datetime, got int64"),
        (rows(1, 2, mood=["a", None]), "column mood: expected no such column, got string"),
        (rows(1).drop_columns(["time"]), "column time: expected datetime, got no such column"),
        (rows(1, 2, BPM=[1, 2]), "column BPM: expected no such column, got int64"),
    ],
)
def test_columns_that_cannot_be_converted_are_drift(
    table: Table, home: Lake, root: Path, source_rows: pa.Table, reason: str
) -> None:
    put(root, "a.parquet", source_rows)
    file = only(home, root)
    assert (file.kind, file.reason) == (FileClass.DRIFT, reason)


def test_a_column_that_is_there_twice_is_drift(table: Table, home: Lake, root: Path) -> None:
    source_rows = rows(1).append_column("bpm", pa.array([1] * 10))
    put(root, "a.parquet", source_rows)
    file = only(home, root)
    assert file.kind is FileClass.DRIFT
    assert file.reason == "column bpm: expected one column of the name, got several"


def test_null_fits_everywhere(table: Table, home: Lake, root: Path) -> None:
    put(root, "unknown.parquet", rows(1, mood=pa.nulls(10, pa.string())))
    put(root, "wrong.parquet", replaced("bpm", pa.nulls(10, pa.string())))
    put(root, "nothing.parquet", replaced("bpm", pa.nulls(9)))
    assert adopt(home, root).counts == {FileClass.SOUND: 3}
    assert table.count() == 29


def test_types_that_hold_the_same_are_taken(home: Lake, root: Path) -> None:
    table = home.tables.create_table(
        "home", "pulse", SCHEMA | {"level": "float", "extra": "json", "tags": "string[]"}
    )
    stamps = rows(1, 3)["time"].cast(pa.timestamp("ns", "Europe/Paris"))
    source_rows = pa.table(
        {
            "time": stamps,
            "device": pa.array(["a", "b", "a"]).dictionary_encode(),
            "bpm": pa.array([1.0, 2.0, None]),
            "note": pa.array(["x", None, "y"], pa.large_string()),
            "level": pa.array([1, 2, 3], pa.uint8()),
            "extra": pa.array([{"a": 1}, None, {"a": 2}]),
            "tags": pa.array([["p"], [], None], pa.large_list(pa.large_string())),
        }
    )
    put(root, "a.parquet", source_rows)
    put(root, "dates.parquet", replaced("time", rows(1)["time"].cast(pa.date32())))
    put(root, "texts.parquet", replaced("time", pa.array(["2024-05-01 12:00:00Z"] * 2)))
    report = adopt(home, root)
    assert report.counts == {FileClass.SOUND: 3}
    result = table.query("SELECT * FROM pulse WHERE level IS NOT NULL ORDER BY level").to_arrow()
    assert result["time"].to_pylist() == rows(1, 3)["time"].to_pylist()
    assert result["bpm"].to_pylist() == [1, 2, None]
    assert result["extra"].to_pylist() == ['{"a":1}', None, '{"a":2}']
    assert result["tags"].to_pylist() == [["p"], [], None]


def test_rows_that_break_the_schema_are_counted_and_shown(home: Lake, root: Path) -> None:
    schema = SCHEMA | {"bpm": {"type": "int", "min": 20, "max": 250, "required": True}}
    home.tables.create_table("home", "pulse", schema)
    values = [60] * 100_000
    values[5], values[7], values[70_000], values[99_999] = 300, None, 19, 251
    put(root, "a.parquet", replaced("bpm", pa.array(values)))
    file = only(home, root)
    assert (file.kind, file.rows) == (FileClass.BAD_ROWS, 100_000)
    assert file.reason == (
        "4 of 100000 rows; row 5: bpm: expected at most 250, got 300; "
        "row 7: bpm: expected a value, got nothing; row 70000: bpm: expected at least 20, got 19; "
        "and 1 more"
    )
    assert adopt(home, root).rows == 0


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        (2, "column a0: {0}; column a1: {0}"),
        (3, "column a0: {0}; column a1: {0}; column a2: {0}"),
        (4, "column a0: {0}; column a1: {0}; column a2: {0}; and 1 more"),
        (5, "column a0: {0}; column a1: {0}; column a2: {0}; and 2 more"),
    ],
)
def test_three_columns_that_do_not_fit_are_shown_and_others_counted(
    table: Table, home: Lake, root: Path, columns: int, shown: str
) -> None:
    more = {f"a{place}": ["x"] * 10 for place in range(columns)}
    put(root, "a.parquet", rows(1, **more))
    file = only(home, root)
    why = file.reason.split(": ", 1)[1].split("; ")[0]
    assert file.reason == shown.format(why)


def test_a_file_is_taken_once_its_table_has_its_columns(
    table: Table, home: Lake, root: Path
) -> None:
    put(root, "more.parquet", rows(1, mood=["good"] * 10))
    assert adopt(home, root).counts == {FileClass.DRIFT: 1}
    table.alter(add={"mood": "string"})
    assert adopt(home, root).counts == {FileClass.SOUND: 1}
    assert table.count() == 10


def test_of_rows_with_the_same_key_the_last_written_counts(home: Lake, root: Path) -> None:
    schema = SCHEMA | {
        "time": {"type": "datetime", "unique": True},
        "device": {"type": "string", "unique": True},
    }
    table = home.tables.create_table("home", "pulse", schema)
    source_rows = rows(1, 3).set_column(1, "device", pa.array(["a", "a", "b"]))
    newer = source_rows.set_column(2, "bpm", pa.array([1, 2, 3]))
    put(root, "a-new.parquet", newer)
    put(root, "z-old.parquet", source_rows)
    put(root, "twice.parquet", pa.concat_tables([rows(2, 2), rows(2, 2)]))
    os.utime(root / "z-old.parquet", (1_000_000, 1_000_000))
    report = adopt(home, root)
    assert (report.rows, report.rows_inserted, table.count()) == (10, 8, 5)
    (twice,) = [outcome for outcome in report.taken if outcome.file.path == "twice.parquet"]
    assert twice.note == "2 rows were replaced by later ones with the same key"
    result = table.query("SELECT bpm FROM pulse WHERE time < '2024-05-02' ORDER BY bpm").to_arrow()
    assert result["bpm"].to_pylist() == [1, 2, 3]


def test_rows_that_are_there_stay_if_asked_for(home: Lake, root: Path) -> None:
    schema = SCHEMA | {"device": {"type": "string", "unique": True}}
    table = home.tables.create_table("home", "pulse", schema)
    table.insert({"time": "2026-11-16T05:00:00Z", "device": "a", "bpm": 60})
    source_rows = rows(1, 3).set_column(1, "device", pa.array(["a", "b", "c"]))
    put(root, "a-new.parquet", source_rows.set_column(2, "bpm", pa.array([1, 2, 3])).slice(0, 2))
    put(root, "z-old.parquet", source_rows.set_column(2, "bpm", pa.array([7, 8, 9])))
    os.utime(root / "z-old.parquet", (1_000_000, 1_000_000))
    with pytest.raises(BadInput, match="if_exists is 'keep'"):
        plan(home, root, if_exists="keep")
    report = adopt(home, root, if_exists="ignore")
    result = table.query("SELECT bpm FROM pulse ORDER BY device").to_arrow()
    assert result["bpm"].to_pylist() == [60, 2, 9], "of what is imported, the latest"
    assert (report.rows, report.rows_inserted) == (5, 2)
    notes = {outcome.file.path: outcome.note for outcome in report.taken}
    assert notes["z-old.parquet"] == (
        "2 rows were there or replaced by later ones with the same key"
    )
    assert adopt(home, root).rows_inserted == 0, "they were imported"


def test_a_footer_that_would_abort_the_process_is_unreadable(
    table: Table, home: Lake, root: Path
) -> None:
    fields = tree(sample())
    for chunk in chunks(fields):
        meta = chunk[3][1]
        if 12 in meta:
            meta[12][1].update(
                {number: (BINARY, b"") for number in meta[12][1] if number in (5, 6)}
            )
    footer = encode(fields)
    data = sample().data[: -len(sample().footer) - 8] + footer + trailer(footer)
    put(root, "a.parquet", data)
    file = only(home, root)
    assert file.kind is FileClass.UNREADABLE
    assert "statistics shorter than a value" in file.reason


def test_a_footer_that_counts_other_rows_is_unreadable(
    table: Table, home: Lake, root: Path
) -> None:
    fields = tree(sample())
    footer = encode(fields | {3: (fields[3][0], 7)})
    data = sample().data[: -len(sample().footer) - 8] + footer + trailer(footer)
    put(root, "a.parquet", data)
    assert only(home, root).kind is FileClass.UNREADABLE


def test_damage_anywhere_is_told_and_never_ends_the_process(
    table: Table, home: Lake, root: Path
) -> None:
    seed = int(os.environ.get("LAKEBED_SEED", random.randrange(1 << 32)))
    sys.stdout.write(f"LAKEBED_SEED={seed}\n")
    chance = random.Random(seed)
    whole = as_bytes(rows(1, 300), write_page_checksum=True)
    for number in range(150):
        broken = bytearray(whole)
        for _ in range(chance.choice([1, 2, 10])):
            broken[chance.randrange(len(broken))] = chance.choice([0, 127, 128, 255])
        put(root, f"{number}.parquet", bytes(broken[: chance.choice([len(broken)] * 5 + [500])]))
    report = adopt(home, root)
    assert len(report.outcomes) == 150
    assert report.left_behind == []
    assert table.count() == report.rows_inserted == 300 * len(report.taken)
    quarantined = aside(home)
    for outcome in report.outcomes:
        gone_by = outcome.file.kind in (FileClass.SOUND, FileClass.IMPORTED)
        assert gone_by or outcome.file.digest in quarantined, outcome
    assert damage(home) == []


# ---- a schema from files -----------------------------------------------------------------------


def test_a_table_that_does_not_exist_gets_the_schema_of_the_files(home: Lake, root: Path) -> None:
    build_mess(root)
    put(root, "site=a/float.parquet", replaced("bpm", pa.array([1.5, 2.5])))
    import_plan = plan(home, root, unique=["device", "time"], bucket="month")
    assert import_plan.table is None
    assert {column.name: column.type for column in import_plan.schema.columns} == {
        "time": "datetime",
        "device": "string",
        "bpm": "float",
        "note": "string",
        "mood": "string",
        "site": "string",
    }
    assert (import_plan.schema.time_column, import_plan.schema.key) == ("time", ("time", "device"))
    assert home.tables.list_tables() == []
    report = home.tables.carry_out_import(import_plan)
    assert report.table_created
    table = home.tables.get("home", "pulse")
    assert table.schema == import_plan.schema
    assert {partition.instance for partition in table.partitions()} == {"2024-05"}
    again = adopt(home, root, unique=["time", "device"], bucket="month", time_column="time")
    assert (again.table_created, again.taken) == (False, [])


def test_a_new_table_is_made_with_its_database(home: Lake, root: Path) -> None:
    put(root, "a.parquet", rows(1))
    import_plan = home.tables.plan_import(root, "away", "pulse")
    assert home.tables.list_databases() == ["home"]
    assert home.tables.carry_out_import(import_plan).table_created
    assert home.tables.get("away", "pulse").count() == 10


@pytest.mark.parametrize(
    ("columns", "option", "time", "unit"),
    [
        ({"created": [1], "time": [2]}, None, "time", None),
        ({"created": [1], "when": [2]}, None, "created", None),
        ({"created": [1], "when": [2]}, "when", "when", None),
        ({"ts": [1_714_543_200], "bpm": [60]}, None, "ts", "s"),
        ({"timestamp": [1_714_543_200_000], "bpm": [60]}, None, "timestamp", "ms"),
        ({"x": [1_714_543_200_000_000], "bpm": [60]}, "x", "x", "us"),
        ({"at": ["2024-05-01T06:00:00Z"], "bpm": [60]}, None, "at", None),
    ],
)
def test_the_time_column_is_named_or_guessed(
    home: Lake, root: Path, columns: dict[str, Any], option: str | None, time: str, unit: str | None
) -> None:
    stamps = {"created", "time", "when"}
    arrays = {
        name: pa.array(values, pa.timestamp("us", "UTC")) if name in stamps else pa.array(values)
        for name, values in columns.items()
    }
    put(root, "a.parquet", pa.table(arrays))
    import_plan = plan(home, root, time_column=option)
    assert import_plan.schema.time_column == time
    assert import_plan.schema.column(time).unit == unit
    assert home.tables.carry_out_import(import_plan).rows == 1


def test_import_of_timestamps_without_a_zone_needs_a_zone(
    table: Table, home: Lake, root: Path
) -> None:
    naive = replaced("time", rows(1)["time"].cast(pa.timestamp("us")))
    put(root, "naive.parquet", naive)
    put(root, "int96.parquet", rows(2), use_deprecated_int96_timestamps=True)
    put(root, "null.parquet", rows(3, note=pa.nulls(10, pa.timestamp("s"))))
    refused = plan(home, root)
    assert refused.counts == {FileClass.SOUND: 1, FileClass.DRIFT: 2}
    reasons = {file.path: file.reason for file in refused.list_files(FileClass.DRIFT)}
    assert reasons["naive.parquet"] == (
        "column time: expected a zone, got timestamp[us]; name it with --zone UTC"
    )
    assert "timestamp[ns]" in reasons["int96.parquet"]
    imported = home.tables.carry_out_import(plan(home, root, zone="UTC"))
    assert imported.counts == {FileClass.SOUND: 3}
    assert times_of(table, 1) == rows(1)["time"].to_pylist()
    assert times_of(table, 2) == rows(2)["time"].to_pylist()


def times_of(table: Table, day: int) -> list[datetime]:
    sql = f"SELECT time FROM pulse WHERE partition_date = '2024-05-{day:02}' ORDER BY time"
    planned: list[datetime] = table.query(sql).to_arrow()["time"].to_pylist()
    return planned


def test_import_reads_timestamps_in_the_zone_that_is_named(home: Lake, root: Path) -> None:
    home.tables.create_table("home", "pulse", {"time": "datetime", "seen": "datetime[]"})
    local = datetime(2024, 5, 1, 8)  # noqa: DTZ001
    stamps = pa.array([local], pa.timestamp("ms"))
    lists = pa.array([None, [local]], pa.list_(pa.timestamp("ns")))[1:]
    put(root, "a.parquet", pa.table({"time": stamps.dictionary_encode(), "seen": lists}))
    for zone, expected in (("Europe/Berlin", 6), ("+03:00", 5), ("UTC", 8)):
        planned = plan(home, root, zone=zone)
        assert planned.counts == {FileClass.SOUND: 1}, planned.files
        assert planned.zone == zone
        fit = Fit(planned.schema, planned.bucket, pq.read_schema(root / "a.parquet"), {}, zone)
        prepared = fit.prepare(pq.read_table(root / "a.parquet"))
        (row,) = validate(prepared, planned.schema).rows.to_pylist()
        utc = datetime(2024, 5, 1, expected, tzinfo=UTC)
        assert row == {"time": utc, "seen": [utc]}


def test_import_refuses_times_that_their_zone_has_twice_or_never(
    table: Table, home: Lake, root: Path
) -> None:
    for name, text in (("twice", "2024-10-27 02:30:00"), ("never", "2024-03-31 02:30:00")):
        times = pa.array([text]).cast(pa.timestamp("us"))
        put(root, f"{name}.parquet", pa.table({"time": times}))
    planned = plan(home, root, zone="Europe/Berlin")
    assert planned.counts == {FileClass.DRIFT: 2}
    reasons = {file.path: file.reason for file in planned.files}
    assert "ambiguous" in reasons["twice.parquet"]
    assert "exist" in reasons["never.parquet"]
    assert table.count() == 0
    with pytest.raises(BadInput, match="unknown time zone 'Mars/Base'"):
        plan(home, root, zone="Mars/Base")


def test_columns_that_no_table_can_have_make_drift_of_their_files_only(
    home: Lake, root: Path
) -> None:
    put(root, "a.parquet", rows(1))
    put(root, "index.parquet", rows(2, __index_level_0__=list(range(10))))
    put(root, "price.parquet", rows(3, price=pa.array([1] * 10).cast(pa.decimal128(30, 2))))
    import_plan = plan(home, root)
    assert import_plan.schema.names == ("time", "device", "bpm")
    assert import_plan.counts == {FileClass.SOUND: 1, FileClass.DRIFT: 2}


def test_where_files_disagree_most_are_right(home: Lake, root: Path) -> None:
    put(root, "1.parquet", replaced("bpm", pa.array(["a"])))
    put(root, "2.parquet", rows(2))
    put(root, "3.parquet", replaced("bpm", pa.array([0.5])))
    put(root, "4.parquet", rows(4).rename_columns(["time", "Device", "bpm"]))
    import_plan = plan(home, root)
    assert {column.name: column.type for column in import_plan.schema.columns} == {
        "time": "datetime",
        "device": "string",
        "bpm": "float",
    }
    assert import_plan.counts == {FileClass.SOUND: 2, FileClass.DRIFT: 2}


# ---- bad input ---------------------------------------------------------------------------------


def nothing(root: Path) -> Path:
    return root


def nowhere(root: Path) -> Path:
    return root / "nowhere"


def unsound(root: Path) -> Path:
    put(root, "a.parquet", as_bytes(rows(1))[:-9])
    return root


def sound(root: Path) -> Path:
    put(root, "a.parquet", rows(1))
    return root


def timeless(root: Path) -> Path:
    put(root, "a.parquet", pa.table({"bpm": [60], "device": ["a"]}))
    return root


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (nowhere, {}, "cannot import .*nowhere: no such file or directory"),
        (nothing, {}, "there is nothing in .* to import"),
        (unsound, {}, "no file in .* is sound, so that there is no schema for home.pulse; a.parq"),
        (timeless, {}, "no column of the files holds times"),
        (timeless, {"time_column": "bpm"}, "column bpm of the files does not hold times"),
        (sound, {"time_column": "nope"}, "no file has a column 'nope'"),
        (sound, {"unique": ["nope"]}, "no file has a column nope that could be unique"),
        (sound, {"bucket": "year"}, "'year' is not a bucket"),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_line(
    home: Lake, root: Path, make: Callable[[Path], Path], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message) as refused:
        plan(home, make(root), **options)
    assert "\n" not in str(refused.value)


def test_options_that_contradict_a_table_are_refused(table: Table, home: Lake, root: Path) -> None:
    sound(root)
    options = {"time_column": "at", "bucket": "hour", "unique": "device"}
    with pytest.raises(BadInput, match=r"time column is time, not at; .*day, not hour; .*empty"):
        plan(home, root, **options)
    assert plan(home, root, time_column="time", bucket="day").rows == 10


def test_an_import_is_repeated_with_the_options_that_it_began_with(home: Lake, root: Path) -> None:
    """Also if they name the key in another order than the files have its columns."""
    sound(root)
    for inserted in (10, 0):
        import_plan = plan(home, root, unique=["device", "time"])
        assert home.tables.carry_out_import(import_plan).rows_inserted == inserted
    with pytest.raises(BadInput, match="its key is time, device, not device"):
        plan(home, root, unique=["device"])


def test_of_a_tree_without_a_sound_file_every_file_is_told(home: Lake, root: Path) -> None:
    unsound(root)
    put(root, "b.parquet", b"hello")
    put(root, "c.parquet", b"")
    with pytest.raises(BadInput) as refused:
        plan(home, root)
    for message_part in (
        "; a.parquet: truncated, it ends",
        "; b.parquet: ",
        "; c.parquet: zero bytes",
    ):
        assert message_part in str(refused.value)


TIME = {**SCHEMA["time"], "time": True}
WITH_MONTH = {**SCHEMA, "time": TIME, "month": {"type": "datetime", "unit": "ms"}}


def test_columns_whose_type_only_others_know_are_drift(home: Lake, root: Path) -> None:
    """A column of pandas' periods is stored as whole numbers, which could be milliseconds."""
    metadata = {"ARROW:extension:name": "pandas.period", "ARROW:extension:metadata": ""}
    month = pa.field("month", "int64", True, metadata)
    source_rows = rows(1)
    put(root, "a.parquet", source_rows.append_column(month, pa.array([672] * source_rows.num_rows)))
    with pytest.raises(BadInput, match=r"month: expected no such column, got pandas\.period"):
        plan(home, root)
    home.tables.create_table("home", "pulse", WITH_MONTH)
    file = only(home, root)
    assert file.kind is FileClass.DRIFT
    assert "column month: expected datetime, got pandas.period" in file.reason


def test_names_of_tables_and_databases_are_checked(home: Lake, root: Path) -> None:
    sound(root)
    with pytest.raises(BadInput, match="not the name of a database"):
        home.tables.plan_import(root, "No Database", "pulse")
    with pytest.raises(BadInput, match="not the name of a table"):
        home.tables.plan_import(root, "home", "No Table")
    home.tables.create_table("home", "pulse", SCHEMA)
    with pytest.raises(BadInput, match="what another table refused"):
        home.tables.plan_import(root, "home", "pulse_rejects")


def test_the_lakes_own_files_are_not_foreign(table: Table, home: Lake) -> None:
    table.insert([{"time": "2024-05-01T00:00:00Z"}])
    store = Path(home.store.url.removeprefix("file://"))
    (file,) = [store / (partition.file_path or "") for partition in table.partitions()]
    for path in (store, store / "partitions", store.parent, file):
        with pytest.raises(BadInput, match="not apart from each other"):
            plan(home, path)


def test_what_nobody_may_read_is_told_and_left_behind(
    table: Table, home: Lake, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = put(root, "secret.parquet", rows(1))
    put(root, "open.parquet", rows(2))
    later = put(root, "later.parquet", rows(3))
    (root / "closed").mkdir()
    locked = {secret}
    opened, scanned = Path.open, os.scandir

    def refuse(self: Path, *rest: Any, **options: Any) -> Any:
        if self in locked:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return opened(self, *rest, **options)

    def refuse_to_list(path: Any) -> Any:
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scanned(path)

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(os, "scandir", refuse_to_list)
    import_plan = plan(home, root)
    locked.add(later)
    report = home.tables.carry_out_import(import_plan)
    assert [(outcome.file.path, outcome.note) for outcome in report.left_behind] == [
        ("closed", "permission denied"),
        ("later.parquet", "permission denied"),
        ("secret.parquet", "permission denied"),
    ]
    assert [outcome.file.path for outcome in report.taken] == ["open.parquet"]


def test_text_that_is_not_unicode_is_a_bad_row(table: Table, home: Lake, root: Path) -> None:
    wrong = pa.array([b"a", b"\xff"]).cast(pa.string(), safe=False)
    put(root, "a.parquet", replaced("device", wrong))
    file = only(home, root)
    assert file.kind is FileClass.BAD_ROWS
    assert file.reason.startswith("1 of 2 rows; row 1: device: expected string")


def test_names_of_any_bytes_are_imported_and_shown(table: Table, home: Lake, root: Path) -> None:
    odd = os.fsdecode(b"date=2024\xff\n/\xe9.parquet")
    put(root, odd, rows(1))
    put(root, odd + "2", as_bytes(rows(2))[:-9])
    report = adopt(home, root)
    assert (report.rows, len(report.quarantined)) == (10, 1)
    (reason,) = aside(home).values()
    assert "date=2024\\xff\\n/\\xe9.parquet2: truncated" in reason


def test_values_are_plain(table: Table, home: Lake, root: Path) -> None:
    """A caller may show them in any form."""
    put(root, "a.parquet", rows(1))
    (file,) = plan(home, root).files
    fields = dataclasses.asdict(file)
    assert fields["path"] == "a.parquet"
    assert fields["kind"] == "sound"
    assert (fields["rows"], fields["size"]) == (10, (root / "a.parquet").stat().st_size)
    assert fields["modified"] == (root / "a.parquet").stat().st_mtime_ns // 1000
