"""A wrong call is one line, and changes nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cli.parts import RANGE, RETIRE, Cli, rows_file, unchanged
from tests.parts.data import readings, rows

PUBLISH = ["partitions", "publish", "readings"]
UNREACHABLE = "postgresql://ada:secret@127.0.0.1:1/lake"


@pytest.fixture
def files(weather: Path) -> Path:
    """Files to give to commands, next to a lake."""
    folder = weather.parent
    rows_file(folder)
    pq.write_table(rows(0), folder / "norows.parquet")
    pq.write_table(rows(1).drop_columns("number"), folder / "narrow.parquet")
    (folder / "text.parquet").write_text("this is no Parquet file, whatever its name says")
    (folder / "empty.parquet").touch()
    (folder / "text.json").write_text("hello")
    (folder / "list.json").write_text("[]")
    (folder / "part.json").write_text('{"name": "others"}')
    (folder / "typo.json").write_text(readings(name="others").definition().replace("int64", "int"))
    (folder / "bytes.json").write_bytes(b"\xff\xfe")
    (folder / "deep.json").write_text("[" * 10_000 + "]" * 10_000)
    (folder / "deep.toml").write_text("name = " + "[" * 10_000 + "]" * 10_000)
    (folder / "dots.toml").write_text("name" + ".a" * 2_000 + " = 1")
    (folder / "garbage").mkdir()
    (folder / "garbage" / "catalog.sqlite3").write_text("this is no database " * 100)
    return folder


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        # what does not exist
        (["partitions", "list", "nothing"], 3, "no view set is called 'nothing'"),
        (["views", "show", "nothing"], 3, "no view set is called 'nothing'"),
        (["views", "remove", "nothing", "--yes"], 3, "no view set is called 'nothing'"),
        (["partitions", "publish", "nothing", "rows1.parquet", *RANGE], 3, "no view set"),
        (["partitions", "retire", "nothing", *RANGE, "--yes"], 3, "no view set"),
        (["partitions", "list", "nothing", "--incompatible"], 3, "no view set"),
        (["partitions", "restore", "nothing"], 3, "no partition has the id nothing"),
        ([*RETIRE, "--exact", *RANGE, "--yes"], 3, "no live partition of readings/global"),
        (["partitions", "retire", "--file", "partitions/x", "--yes"], 3, "no live partition"),
        (["check", "--quarantine", "partitions/x", "--yes"], 3, "no such file in the store"),
        (["check", "--quarantine", "partitions/x"], 3, "no such file in the store"),
        (["check", "--lake", "nowhere"], 3, "there is no lake in"),
        (["check", "--lake", "rows1.parquet"], 3, "there is no lake in"),
        (["backup", "restore", "nowhere", "back"], 3, "no backup in nowhere; name the folder that"),
        (["migrate", "--lake", "nowhere"], 3, "there is no lake in"),
        # times
        (["partitions", "list", "--as-of", "2026-01-01T00:00"], 2, "has no zone"),
        (["partitions", "list", "--as-of", "soon"], 2, "cannot read 'soon' as a time"),
        ([*RETIRE, "--begin", "2026-01-01T00", "--end", "now", "--yes"], 2, "has no zone"),
        ([*RETIRE, "--begin", "2026-01-02T00Z", "--end", "2026-01-01T00Z"], 2, "runs backwards"),
        ([*RETIRE, "--begin", "2026-01-01T00Z", "--end", "2026-01-01T00Z"], 2, "is empty"),
        (["build", "--from", "2026-02-01T00Z", "--to", "2026-01-01T00Z"], 2, "runs backwards"),
        (["build", "--from", "2026-01-01T00Z", "--to", "2026-01-01T00Z"], 2, "is empty"),
        (["build", "--plan", "--from", "2026-01-02T00Z", "--to", "2026-01-01T00Z"], 2, "backwards"),
        ([*RETIRE, "--begin", "2026-01-01T00Z", "--yes"], 2, "--begin and --end belong together"),
        (["init", "new", "--grace", "forever"], 2, "cannot read 'forever' as a duration"),
        # places
        (["partitions", "retire", "--file", "../../etc/passwd", "--yes"], 2, "not a path inside"),
        (["partitions", "retire", "--file", "/etc/passwd", "--yes"], 2, "not a path inside"),
        (["check", "--quarantine", "../weather/catalog.sqlite3", "--yes"], 2, "not a path inside"),
        (["check", "--quarantine", "../weather/catalog.sqlite3"], 2, "not a path inside"),
        (
            ["check", "--lake", "mysql://host/lake"],
            2,
            "mysql:// is not a supported kind of catalog",
        ),
        (["check", "--lake", "sqlite:////tmp/lake.db"], 2, "a file called catalog.sqlite3"),
        (["init", "new", "--store", "ftp://host/lake"], 2, "what kind of store"),
        (["init", "--catalog", UNREACHABLE], 2, "needs a store of its own"),
        (["backup", "create", "s3://bucket/backup"], 2, "is not a folder"),
        # what is unavailable
        (["check", "--lake", UNREACHABLE], 69, "cannot reach the catalog .*ada:\\*\\*\\*@"),
        (["migrate", "--lake", UNREACHABLE], 69, "cannot reach the catalog"),
        (["check", "--lake", "garbage"], 69, "is not a readable SQLite database"),
        (["init", "rows1.parquet"], 69, "cannot make .*rows1.parquet"),
        (["init", "rows1.parquet/lake"], 69, "cannot make .*rows1.parquet"),
        (["init", "/proc/lake"], 69, "cannot make /proc/lake"),
        (["backup", "create", "/proc/backup"], 69, "cannot make /proc/backup"),
        # files
        ([*PUBLISH, "text.parquet", *RANGE], 2, "cannot read text.parquet as Parquet"),
        ([*PUBLISH, "empty.parquet", *RANGE], 2, "cannot read empty.parquet as Parquet"),
        ([*PUBLISH, ".", *RANGE], 2, "cannot read . as Parquet"),
        ([*PUBLISH, "nothing.parquet", *RANGE], 2, "there is no file nothing.parquet"),
        ([*PUBLISH, "nothing.arrow", *RANGE], 2, "there is no file nothing.arrow"),
        ([*PUBLISH, "narrow.parquet", *RANGE], 2, "missing number"),
        ([*PUBLISH, "norows.parquet", *RANGE], 2, "there are no rows for readings"),
        ([*PUBLISH, "rows1.parquet", *RANGE, "--instance", "a/b"], 2, "'a/b' is not an instance"),
        (["views", "register", "text.json"], 2, "text.json is not a view set definition"),
        (["views", "register", "deep.json"], 2, "definition: it is nested too deeply"),
        (["views", "define", "deep.toml"], 2, "deep.toml declares no view set: it is nested"),
        (["views", "define", "dots.toml"], 2, "dots.toml declares no view set: it is nested"),
        (["views", "register", "list.json"], 2, "view set definition: it is not made like one;"),
        (
            ["views", "register", "part.json"],
            2,
            "part.json is not a view set definition: it has no",
        ),
        (["journal", "--operation", "bogus"], 2, "the journal has no operation 'bogus'"),
        (["views", "register", "bytes.json"], 2, "bytes.json is not a view set definition"),
        (["views", "register", "typo.json"], 2, "'int' is not a column type"),
        (["views", "register", "nothing.json"], 2, "cannot read nothing.json: no such file"),
        (["views", "register", "."], 2, "cannot read .: is a directory"),
        # options
        (["partitions", "list", "--nothing"], 2, "--nothing; see: lakebed partitions list --help"),
        (["nothing"], 2, "No such command 'nothing'; see: lakebed --help"),
        (["partitions", "publish"], 2, "see: lakebed partitions publish --help"),
        (["check", "--level", "deep"], 2, "'deep' is not one of"),
        (["journal", "--limit", "0"], 2, "--limit"),
        (["journal", "--limit", "few"], 2, "--limit"),
        ([*PUBLISH, "rows1.parquet"], 2, "--begin and --end say which"),
        ([*PUBLISH, *RANGE], 2, "give a FILE with rows, or --completed-empty"),
        ([*PUBLISH, "rows1.parquet", "--completed-empty", *RANGE], 2, "not both"),
        (["partitions", "retire", *RANGE], 2, "say which view set"),
        ([*RETIRE, "--yes"], 2, "say which range"),
        ([*RETIRE, "--incompatible", "--expired", "--yes"], 2, "exclude each other"),
        ([*RETIRE, "--incompatible", "--hold", "--yes"], 2, "--hold goes with"),
        ([*RETIRE, "--exact", *RANGE, "--schema-hash", "xyz"], 2, "'xyz' is not a schema hash"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_wrong_call_is_one_line_and_changes_nothing(
    cli: Cli, weather: Path, files: Path, arguments: list[str], code: int, says: str
) -> None:
    before = sorted(files.iterdir())
    with unchanged(weather):
        ran = cli(*arguments)
    assert re.search(says, ran.error)
    assert ran.code == code
    assert "secret" not in ran.err
    assert sorted(files.iterdir()) == before


def test_a_wrong_setting_is_named(cli: Cli, weather: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKEBED_LEASE_SECONDS", "soon")
    ran = cli("leases")
    assert ran.code == 2
    assert "LAKEBED_LEASE_SECONDS" in ran.error


def test_an_error_tells_where_it_comes_from_when_asked(cli: Cli, weather: Path) -> None:
    ran = cli("--debug", "views", "show", "nothing")
    assert ran.code == 3
    assert ran.err.startswith("Traceback")
    assert ran.err.splitlines()[-1].startswith("error: no view set")
