"""Trees of Parquet files become tables."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tests.cli.parts import Cli
from tests.cli.tables.parts import UNCHANGED, rows_of


@pytest.fixture
def tree(cli: Cli, tmp_path: Path) -> Path:
    """A tree of files, not all of them sound."""
    folder = tmp_path / "old" / "day=2026-11-16"
    folder.mkdir(parents=True)
    times = pa.array([1794805200000000], pa.timestamp("us", "UTC"))
    rows = pa.table({"time": times, "device": ["ring-7"], "bpm": [60]})
    pq.write_table(rows, folder / "a.parquet")
    data = (folder / "a.parquet").read_bytes()
    (folder / "b.parquet").write_bytes(data[: len(data) // 2])
    (folder / "c.parquet").touch()
    return tmp_path / "old"


def test_importing_shows_what_every_file_is(cli: Cli, tree: Path) -> None:
    planned = cli("import", tree, "home.adopted", "--unique", "device")
    assert planned.code == 0
    assert planned.out.startswith("home.adopted would be a new table, by day:\n")
    assert re.search(r"^device +string +unique *$", planned.out, re.M)
    for line in ("sound: 1 file, 1 row, ", "truncated: 1 file, ", "zero bytes: 1 file, 0 B"):
        assert f"\n{line}" in planned.out
    assert "\n  day=2026-11-16/b.parquet: it ends with" in planned.out
    assert "plan: insert 1 row of 1 file into home.adopted" in planned.err
    assert [each["table"] for each in cli("list", "--json").json["tables"]] == ["home.pulse"]
    told = cli("import", tree, "home.adopted", "--json").json
    assert {each["class"] for each in told["files"]} == {"sound", "truncated", "zero bytes"}


def test_importing_takes_what_is_sound_once(cli: Cli, tree: Path) -> None:
    done = cli("import", tree, "home.adopted", "--unique", "device", "--yes")
    assert done.code == 0
    assert done.out == "home.adopted: made, 1 row of 1 file inserted, 1 quarantined, 1 skipped\n"
    assert "quarantined: day=2026-11-16/b.parquet: truncated" in done.err
    assert rows_of("home.adopted") == [("ring-7", 60)]
    again = cli("import", tree, "home.adopted", "--yes")
    assert again.out == "home.adopted: 0 rows of 0 files inserted, 0 quarantined, 3 skipped\n"
    assert "skipped: 1 already imported, 1 zero bytes, 1 truncated" in again.err
    told = cli("import", tree, "home.adopted", "--yes", "--json").json
    assert {each["fate"] for each in told["files"]} == {"skipped"}


def test_importing_warns_once_of_folders_that_do_not_name_a_time(cli: Cli, tree: Path) -> None:
    folder = tree / "partition_date=garbage"
    folder.mkdir()
    rows = pq.read_table(tree / "day=2026-11-16" / "a.parquet", partitioning=None)
    for bpm in (61, 62):
        pq.write_table(rows.set_column(2, "bpm", [[bpm]]), folder / f"{bpm}.parquet")
    remark = "folder partition_date=garbage does not name a time: rows go by their own time"
    planned = cli("import", tree, "home.adopted")
    assert f"\n  partition_date=garbage/61.parquet: {remark}" in planned.out
    done = cli("import", tree, "home.adopted", "--yes")
    assert done.code == 0
    first = "partition_date=garbage/61.parquet"
    assert done.err.count("garbage does not name") == 1
    assert f"warning: {first} (and 1 more file): {remark}\n" in done.err


def test_importing_leaves_rows_that_are_there_if_asked_to(cli: Cli, tmp_path: Path) -> None:
    times = pa.array([1794805200000000] * 2, pa.timestamp("us", "UTC"))
    rows = pa.table({"time": times, "device": ["ring-7", "ring-8"], "bpm": [99, 98]})
    pq.write_table(rows, tmp_path / "old.parquet")
    done = cli("import", "old.parquet", "home.pulse", "--if-exists", "ignore", "--yes")
    assert done.out.startswith("home.pulse: 1 row of 1 file inserted")
    assert rows_of() == [("ring-7", 60), ("ring-8", 98), ("watch-1", 70)]


def test_importing_makes_the_database_too(cli: Cli, tree: Path) -> None:
    planned = cli("import", tree, "work.adopted")
    assert planned.err.endswith("the database work would be made, too\n")
    assert cli("list", "--json").json["databases"] == ["home"]
    assert cli("import", tree, "work.adopted", "--yes").err.startswith("work: created, a database")
    assert rows_of("work.adopted") == [("ring-7", 60)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nothing", "home.adopted"], "cannot import nothing: no such file"),
        (["lake", "home.adopted"], "import files from outside the lake"),
        (["old", "home"], "write home.TABLE"),
        (["old", "No.adopted"], "'No' is not the name of a database"),
        (["old", "home.adopted", "--time-column", "bpm2"], "no file has a column 'bpm2'"),
        (["old", "home.adopted", "--unique", "nothing"], "nothing"),
        (["old", "home.pulse", "--bucket", "week"], "its bucket is day, not week"),
    ],
)
def test_a_mistake_imports_nothing(cli: Cli, tree: Path, arguments: list[str], words: str) -> None:
    assert words in cli("import", *arguments, "--yes").error
    assert [each["table"] for each in cli("list", "--json").json["tables"]] == ["home.pulse"]
    assert rows_of() == UNCHANGED
