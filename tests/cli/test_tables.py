"""`lakebed tables` as its users see it: what is said of good and of bad input, and what changed."""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from lakebed.cli.main import run
from lakebed.cli.table_show import describe_change
from lakebed.lake import init_lake, open_lake
from lakebed.model.table import parse_schema
from lakebed.settings import Settings
from tests.cli.parts import Cli, Ran

SCHEMA = {
    "time": {"type": "datetime", "unit": "ms"},
    "device": {"type": "string", "unique": True},
    "bpm": {"type": "int", "min": 20, "max": 250, "required": True},
    "tags": "string[]",
    "worn": "bool",
}
RING = {"time": "2026-11-16T05:00:00Z", "device": "ring-7", "bpm": 60, "worn": True}
WATCH = {"time": "2026-11-15T05:00:00Z", "device": "watch-1", "bpm": 70}


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with a table of two devices."""
    folder = tmp_path_factory.mktemp("tables") / "lake"
    with init_lake(folder, settings=Settings()) as lake:
        lake.tables.create_database("home")
        lake.tables.create_table("home", "pulse", SCHEMA).insert([RING, WATCH])
    return folder


@pytest.fixture
def cli(
    template: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Cli:
    """Runs `lakebed tables` in this process, in a folder with a lake of its own."""
    shutil.copytree(template, tmp_path / "lake")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBED_LAKE", "lake")

    def call(*arguments: object, stdin: str | None = None, group: str = "tables") -> Ran:
        if stdin is not None:
            piped = SimpleNamespace(buffer=io.BytesIO(stdin.encode()), isatty=lambda: False)
            monkeypatch.setattr(sys, "stdin", piped)
        capsys.readouterr()
        code = run([group, *(str(argument) for argument in arguments)])
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return call


def _write(name: str, value: Any) -> str:
    Path(name).write_text(value if isinstance(value, str) else json.dumps(value))
    return name


def _rows(table: str = "home.pulse") -> list[tuple[str, int]]:
    with open_lake("lake", settings=Settings()) as lake:
        found = lake.query(f"SELECT device, bpm FROM {table} ORDER BY 1, 2").to_arrow()
    return [(each["device"], each["bpm"]) for each in found.to_pylist()]


UNCHANGED = [("ring-7", 60), ("watch-1", 70)]


# ---- create -------------------------------------------------------------------------------------


def test_a_table_is_made_with_its_database(cli: Cli) -> None:
    made = cli("create", "work.pulse", "--schema", _write("s.json", SCHEMA), "--keep", "90d")
    assert made.code == 0
    assert made.out == ("work.pulse: created, 5 columns, key device, by day of time, kept 90d\n")
    assert made.err == "work: created, a database\n"
    again = cli("create", "work.other", "--schema", "s.json", "--bucket", "hour")
    assert again.err == ""
    assert "by hour" in again.out


def test_a_schema_can_be_piped(cli: Cli) -> None:
    assert cli("create", "home.piped", "--schema", "-", stdin=json.dumps(SCHEMA)).code == 0
    assert cli("show", "home.piped", "--json").json["schema"] == parse_schema(SCHEMA).to_json()


def test_a_database_is_made_alone(cli: Cli) -> None:
    assert cli("create", "work").out == "work: created, a database\n"
    assert cli("create", "work").error == "error: there is a database work already"
    listed = cli("list")
    assert "database work has no table yet" in listed.err
    assert cli("list", "--json").json["databases"] == ["home", "work"]


def test_a_drafted_schema_is_one_that_can_be_used(cli: Cli) -> None:
    drafted = cli("create", "--propose", _write("r.jsonl", f"{json.dumps(RING)}\n"))
    assert drafted.json["columns"]["time"] == {"type": "datetime", "required": True, "time": True}
    assert cli("create", "home.drafted", "--schema", _write("s.json", drafted.out)).code == 0
    assert cli("insert", "home.drafted", "r.jsonl").code == 0
    pq.write_table(pa.Table.from_pylist([RING]), "r.parquet")
    assert cli("create", "--propose", "r.parquet").json == drafted.json
    assert "no column of the samples" in cli("create", "--propose", _write("x.json", [{}])).error


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say what to create"),
        (["work.pulse"], "--schema FILE"),
        (["work.pulse", "--schema", "missing.json"], "cannot read missing.json: no such file"),
        (["work.pulse", "--schema", "."], "cannot read .: is a directory"),
        (["work.pulse", "--schema", "broken.json"], "the schema is not JSON"),
        (["work.pulse", "--schema", "s.json", "--keep", "90"], "cannot read '90' as a duration"),
        (["work.pulse", "--schema", "s.json", "--bucket", "year"], "'hour', 'day', 'week'"),
        (["Work.pulse", "--schema", "s.json"], "'Work' is not the name of a database"),
        (["work.a-b", "--schema", "s.json"], "'a-b' is not the name of a table"),
        (["work.a.b", "--schema", "s.json"], "'work.a.b' names no table"),
        (["public.pulse", "--schema", "s.json"], "cannot be called public"),
        (["work.pulse_rejects", "--schema", "s.json"], "end in _rejects"),
        (["work", "--schema", "s.json"], "write work.TABLE"),
        (["--propose", "missing.json"], "cannot read missing.json"),
        (["--propose", "s.json", "--schema", "s.json"], "leave out --schema"),
    ],
)
def test_a_mistake_makes_nothing(cli: Cli, arguments: list[str], words: str) -> None:
    _write("s.json", SCHEMA)
    _write("broken.json", "{")
    refused = cli("create", *arguments)
    assert words in refused.error
    assert refused.code == 2
    assert cli("list", "--json").json["databases"] == ["home"]


def test_everything_wrong_with_a_schema_gets_a_line(cli: Cli) -> None:
    bad = {"time": "datetme", "x y": "int", "n": {"type": "int", "min": 2, "max": 1}}
    refused = cli("create", "work.pulse", "--schema", _write("s.json", bad))
    assert (refused.code, refused.out) == (2, "")
    lines = refused.err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("error: ") for line in lines)
    assert "did you mean datetime?" in lines[0]
    assert cli("list", "--json").json["databases"] == ["home"]


def test_a_table_is_not_made_twice(cli: Cli) -> None:
    refused = cli("create", "home.pulse", "--schema", _write("s.json", SCHEMA))
    assert refused.code == 4
    assert refused.error == "error: there is a table home.pulse already"


# ---- insert -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["array", "lines", "object", "stdin", "parquet", "arrow"])
def test_records_come_in_many_forms(cli: Cli, form: str) -> None:
    new = {**RING, "device": "new", "bpm": 99}
    table = pa.Table.from_pylist([new])
    match form:
        case "array":
            done = cli("insert", "home.pulse", _write("r.json", [new]))
        case "lines":
            done = cli("insert", "home.pulse", _write("r.txt", f"\n{json.dumps(new)}\n\n"))
        case "object":
            done = cli("insert", "home.pulse", _write("r.json", new))
        case "stdin":
            done = cli("insert", "home.pulse", "-", stdin=json.dumps(new))
        case "parquet":
            pq.write_table(table, "r.parquet")
            done = cli("insert", "home.pulse", "r.parquet")
        case _:
            pa.feather.write_feather(table, "r.arrow", compression="uncompressed")
            done = cli("insert", "home.pulse", "r.arrow")
    assert (done.code, done.out, done.err) == (0, "home.pulse: 1 row inserted\n", "")
    assert _rows() == [("new", 99), *UNCHANGED]


def test_bad_records_are_named_one_by_one_and_nothing_is_inserted(cli: Cli) -> None:
    bad = [{**RING, "bpm": 1000}, RING, {"device": 7, "extra": 1}, 5]
    refused = cli("insert", "home.pulse", _write("r.json", bad))
    assert (refused.code, refused.out) == (2, "")
    assert refused.err.splitlines() == [
        "error: 3 of 4 records are bad and nothing was inserted; "
        "to insert the others: --on-error keep",
        "  record 0: bpm: expected at most 250, got 1000",
        "  record 2: time: expected a value, got nothing; device: expected string, got 7; "
        "bpm: expected a value, got nothing; extra: expected a column of the table "
        "(time, device, bpm, tags, worn), got 1",
        "  record 3: expected an object, got 5",
    ]
    assert _rows() == UNCHANGED


def test_programs_get_bad_records_as_json(cli: Cli) -> None:
    refused = cli("insert", "home.pulse", _write("r.json", [{**RING, "bpm": "x"}]), "--json")
    assert refused.code == 2
    (file,) = refused.json["files"]
    problem = {"column": "bpm", "expected": "int", "got": '"x"'}
    assert file["bad"] == [{"index": 0, "problems": [problem]}]
    assert file["error"] == "1 of 1 records are bad"
    assert (refused.json["rows"], file["tick"]) == (0, None)


def test_of_very_many_bad_records_the_first_are_shown(cli: Cli) -> None:
    refused = cli("insert", "home.pulse", _write("r.json", [{} for _ in range(500)]))
    lines = refused.err.splitlines()
    assert len(lines) == 22
    assert lines[-1] == "  … and 480 more; --json has all"


def test_bad_records_are_kept_on_request(cli: Cli) -> None:
    records = [{**RING, "bpm": 1000}, {**WATCH, "bpm": 71}]
    done = cli("insert", "home.pulse", _write("r.json", records), "--on-error", "keep")
    assert done.out == "home.pulse: 1 row inserted, 1 rejected\n"
    assert "SELECT * FROM home.pulse_rejects" in done.err
    assert _rows() == [("ring-7", 60), ("watch-1", 71)]
    shown = cli("show", "home.pulse")
    assert "rejected  1: SELECT * FROM home.pulse_rejects" in shown.out
    assert cli("show", "home.pulse_rejects").code == 0


def test_a_key_that_is_there_is_replaced_or_ignored(cli: Cli) -> None:
    records = [{**RING, "bpm": 61}, {**RING, "bpm": 62}, {**RING, "device": "new"}]
    _write("r.json", records)
    ignored = cli("insert", "home.pulse", "r.json", "--if-exists", "ignore")
    assert ignored.out == (
        "home.pulse: 1 row inserted, 2 left out whose key was there or came again\n"
    )
    assert _rows() == [("new", 60), *UNCHANGED]
    replaced = cli("insert", "home.pulse", "r.json")
    assert replaced.out == "home.pulse: 2 rows inserted, 1 left out whose key came again later\n"
    assert ("ring-7", 62) in _rows()


def test_an_insert_with_a_key_counts_once(cli: Cli) -> None:
    _write("r.json", [{**RING, "bpm": 61}])
    first = cli("insert", "home.pulse", "r.json", "--key", "upload-1", "--json").json
    again = cli("insert", "home.pulse", "r.json", "--key", "upload-1")
    assert again.out.startswith(
        "home.pulse: repeated, nothing was changed; this key had inserted 1"
    )
    assert first["files"][0]["tick"] in again.out
    repeated = cli("insert", "home.pulse", "r.json", "--key", "upload-1", "--json").json
    assert (repeated["rows"], repeated["repeated"], repeated["files"][0]["rows"]) == (0, 1, 1)
    other = cli("insert", "home.pulse", _write("s.json", [WATCH]), "--key", "upload-1")
    assert other.code == 4
    assert "had the key 'upload-1'" in other.error


def test_several_files_are_one_insert_each(cli: Cli) -> None:
    for number in range(3):
        _write(f"r{number}.json", [{**RING, "device": f"new-{number}", "bpm": 90 + number}])
    done = cli("insert", "home.pulse", "r0.json", "r1.json", "r2.json", "--json").json
    assert (done["records"], done["rows"]) == (3, 3)
    assert len({each["tick"] for each in done["files"]}) == 3
    assert len(_rows()) == 5


def test_a_bad_file_does_not_stop_the_others(cli: Cli) -> None:
    _write("a.json", [{**RING, "device": "new"}])
    _write("b.json", [{}])
    _write("c.json", "[")
    done = cli("insert", "home.pulse", "a.json", "b.json", "c.json", "missing.json")
    assert done.code == 5
    assert done.out == "home.pulse: 1 row inserted, of 1 file\n"
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert [line.split()[1] for line in errors] == ["b.json:", "c.json:", "missing.json:"]
    assert len(_rows()) == 3
    nothing = cli("insert", "home.pulse", "c.json", "missing.json")
    assert (nothing.code, nothing.out) == (2, "")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["home.pulse"], 2, "Missing argument 'FILE'"),
        (["home", "r.json"], 2, "write home.TABLE"),
        (["home.", "r.json"], 2, "'home.' names no table"),
        (["home.nothing", "r.json"], 3, "lakebed tables list home"),
        (["nowhere.pulse", "r.json"], 3, "there is no database 'nowhere'"),
        (["home.pulse", "missing.json"], 2, "cannot read missing.json: no such file"),
        (["home.pulse", "missing.parquet"], 2, "cannot read missing.parquet: no such file"),
        (["home.pulse", "."], 2, "cannot read .: is a directory"),
        (["home.pulse", "x.json"], 2, "x.json: the records are not JSON: invalid character at"),
        (["home.pulse", "x.parquet"], 2, "x.parquet is not a Parquet file"),
        (["home.pulse", "x.arrow"], 2, "x.arrow is not an Arrow file"),
        (["home.pulse", "r.json", "--on-error", "skip"], 2, "'refuse', 'keep'"),
        (["home.pulse", "r.json", "--if-exists", "skip"], 2, "'replace', 'ignore'"),
        (["home.pulse", "r.json", "r.json", "--key", "k"], 2, "insert each by itself"),
        (["home.pulse", "r.json", "--key", ""], 2, "1 to 256 characters"),
        (["home.pulse", "-", "-"], 2, "- is given twice"),
    ],
)
def test_a_mistake_inserts_nothing(cli: Cli, arguments: list[str], code: int, words: str) -> None:
    _write("r.json", [{**RING, "bpm": 99}])
    for suffix in ("json", "parquet", "arrow"):
        _write(f"x.{suffix}", "this is something else")
    refused = cli("insert", *arguments)
    assert words in refused.error
    assert refused.code == code
    assert _rows() == UNCHANGED


# ---- list and show ------------------------------------------------------------------------------


def test_tables_are_listed(cli: Cli) -> None:
    listed = cli("list")
    assert re.search(r"^home\.pulse +device +day +forever +2 +2 ", listed.out, re.M)
    (row,) = cli("list", "home", "--json").json["tables"]
    assert (row["table"], row["key"], row["version"]) == ("home.pulse", ["device"], 1)
    assert row["bytes"] > 0
    assert cli("list", "nowhere").code == 3


def test_a_lake_without_tables_says_how_to_make_one(cli: Cli, tmp_path: Path) -> None:
    init_lake(tmp_path / "empty", settings=Settings()).close()
    listed = cli("list", "--lake", "empty")
    assert (listed.code, listed.out) == (0, "")
    assert "lakebed tables create DATABASE.TABLE" in listed.err
    assert cli("list", "--lake", "empty", "--json").json == {"databases": [], "tables": []}


def test_a_table_is_shown(cli: Cli) -> None:
    cli("alter", "home.pulse", "--add", "note:string", "--widen", "bpm")
    shown = cli("show", "home.pulse")
    assert shown.code == 0
    for line in (
        "home.pulse, version 2",
        "  rows      2, 2026-11-15T05:00:00Z to 2026-11-16T05:00:00Z",
        "  key       device",
        "  kept      forever",
        "  version 2 widened bpm to float, added note string",
    ):
        assert line in shown.out.splitlines()
    assert re.search(r"^bpm +float +required, 20\.0 … 250\.0", shown.out, re.M)
    assert re.search(r"^2026-11-16 +1 +1 ", shown.out, re.M)
    told = cli("show", "home.pulse", "--json").json
    assert (told["version"], len(told["versions"]), told["stats"]["rows"]) == (2, 2, 2)
    assert [each["bucket"] for each in told["buckets"]] == ["2026-11-15", "2026-11-16"]


def test_late_and_future_rows_are_counted(cli: Cli) -> None:
    times = ["2001-01-01T00:00:00Z", "2001-01-02T00:00:00Z", "2100-01-01T00:00:00Z"]
    records = [{**RING, "device": time, "time": time} for time in times]
    before = cli("show", "home.pulse", "--json").json["stats"]
    cli("insert", "home.pulse", _write("r.json", records))
    after = cli("show", "home.pulse", "--json").json["stats"]
    assert (after["late"] - before["late"], after["future"] - before["future"]) == (2, 1)


def test_many_buckets_are_shown_in_part(cli: Cli) -> None:
    days = [
        {**RING, "device": str(day), "time": f"2026-10-{day:02}T00:00:00Z"} for day in range(1, 20)
    ]
    cli("insert", "home.pulse", _write("r.json", days))
    shown = cli("show", "home.pulse")
    assert re.search("^2026-11-16 ", shown.out, re.M)
    assert not re.search("^2026-10-01 ", shown.out, re.M)
    assert "and 11 older buckets" in shown.err


@pytest.mark.parametrize("verb", ["show", "alter", "delete", "forget", "expire"])
def test_what_is_not_there_is_not_found(cli: Cli, verb: str) -> None:
    more = {"alter": ["--add", "x:int"], "forget": ["device=x"]}.get(verb, [])
    assert "there is no table 'nothing'" in cli(verb, "home.nothing", *more).error
    assert cli(verb, "home.nothing", *more).code == 3
    assert "there is no database 'nowhere'" in cli(verb, "nowhere.pulse", *more).error


def test_tables_fit_a_narrow_terminal(cli: Cli, tmp_path: Path) -> None:
    cli(
        "alter", "home.pulse", "--add", f"x:{json.dumps({'type': 'int', 'description': 'a ' * 60})}"
    )
    for arguments in (["list"], ["show", "home.pulse"]):
        out = _on_terminal(["tables", *arguments], tmp_path, columns=80)
        assert max(len(line) for line in out.splitlines()) <= 80
        assert "home.pulse" in out


def _on_terminal(arguments: list[str], folder: Path, columns: int) -> str:
    """What a command prints on a terminal of this width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "LAKEBED_LAKE": "lake"}
    environment.pop("COLUMNS", None)
    with subprocess.Popen(
        [sys.executable, "-m", "lakebed", *arguments],
        cwd=folder,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
    ) as process:
        os.close(slave)
        seen = b""
        while True:
            try:
                read = os.read(master, 65536)
            except OSError:  # how Linux says that nobody is left to write
                break
            if not read:
                break
            seen += read
        assert process.wait() == 0, seen
    os.close(master)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    return text.replace("\r\n", "\n")


def test_progress_is_for_terminals(cli: Cli, tmp_path: Path) -> None:
    files = [_write(f"r{number}.json", [{**RING, "device": f"d{number}"}]) for number in range(3)]
    shown = _on_terminal(["tables", "insert", "home.pulse", *files], tmp_path, columns=100)
    assert "3/3 files" in shown
    assert shown.rstrip().endswith("home.pulse: 3 rows inserted, of 3 files")
    assert cli("insert", "home.pulse", *files).err == ""


# ---- alter --------------------------------------------------------------------------------------


def test_columns_are_added_widened_and_relaxed(cli: Cli) -> None:
    spec = 'share:{"type": "float", "max": 1}'
    done = cli("alter", "home.pulse", "--add", "note:string", "--add", spec, "--widen", "bpm")
    assert done.out == (
        "home.pulse: version 2, widened bpm to float, added note string, added share float\n"
    )
    relaxed = cli("alter", "home.pulse", "--relax", "bpm", "--json").json
    assert relaxed["version"] == 3
    bpm = next(each for each in relaxed["schema"]["columns"] if each["name"] == "bpm")
    assert bpm == {"name": "bpm", "type": "float", "min": 20.0, "max": 250.0}
    assert (
        cli("insert", "home.pulse", _write("r.json", {**RING, "share": 0.5, "bpm": None})).code == 0
    )


def test_how_long_rows_are_kept_can_be_changed(cli: Cli) -> None:
    kept = cli("alter", "home.pulse", "--keep", "36500d")
    assert (kept.out, kept.err) == ("home.pulse: kept 36500d\n", "nothing is older than that\n")
    old = {**RING, "device": "a", "time": "2001-01-01T00:00:00Z"}
    cli("insert", "home.pulse", _write("r.json", [old]))
    kept = cli("alter", "home.pulse", "--keep", "3650d")
    assert kept.out == "home.pulse: kept 3650d\n"
    assert kept.err == (
        "older than that: 1 partition with 1 row, which upkeep retires; "
        "see what goes with: lakebed tables expire home.pulse\n"
    )
    (condemned,) = cli("alter", "home.pulse", "--keep", "3650d", "--json").json["condemned"]
    assert condemned["bucket"] == "2001-01-01"
    cli("alter", "home.pulse", "--keep", "90d")
    assert cli("show", "home.pulse", "--json").json["keep"] == "90d"
    assert cli("alter", "home.pulse", "--keep", "forever").out == "home.pulse: kept forever\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "say what to change"),
        (["--add", "note"], "'note' is not NAME:TYPE"),
        (["--add", "note:"], "is not NAME:TYPE"),
        (["--add", "note:text"], "unknown type 'text'"),
        (["--add", 'note:{"type"'], "is not JSON"),
        (["--add", "bpm:int"], "bpm: is there already"),
        (["--add", "a:int", "--add", "a:int"], "a column is added twice"),
        (["--add", 'a:{"type": "int", "unique": true}'], "not unique"),
        (["--widen", "tags"], "only int can be widened"),
        (["--widen", "nothing"], "nothing: is no column"),
        (["--relax", "device"], "device: is the key"),
        (["--keep", "5y", "--add", "a:int"], "cannot read '5y' as a duration"),
        (["--keep", "30d", "--widen", "worn"], "only int can be widened"),
    ],
)
def test_a_mistake_alters_nothing(cli: Cli, arguments: list[str], words: str) -> None:
    refused = cli("alter", "home.pulse", *arguments)
    assert words in refused.error
    assert refused.code == 2
    shown = cli("show", "home.pulse", "--json").json
    assert (shown["version"], shown["keep"]) == (1, "forever")


def test_everything_wrong_with_an_alteration_gets_a_line(cli: Cli) -> None:
    refused = cli("alter", "home.pulse", "--widen", "worn", "--relax", "time")
    assert refused.code == 2
    assert len(refused.err.splitlines()) == 2


def test_a_change_is_described_in_words() -> None:
    old = parse_schema({"time": "datetime", "n": {"type": "int", "required": True}})
    new = parse_schema({"time": "datetime", "n": "float", "x": "json"})
    assert describe_change(old, new) == "widened n to float, relaxed n, added x json"


# ---- delete, restore ----------------------------------------------------------------------------


def test_deleting_shows_its_plan_and_acts_when_told(cli: Cli) -> None:
    planned = cli("delete", "home.pulse")
    assert (planned.code, planned.out) == (0, "")
    assert planned.err.startswith("plan: delete home.pulse (2 partitions, ")
    assert planned.err.endswith("Nothing was changed. Repeat with --yes to do it.\n")
    assert _rows() == UNCHANGED
    done = cli("delete", "home.pulse", "--yes")
    assert done.out.startswith("home.pulse: deleted (2 partitions, ")
    assert done.err == "for 1d it can be restored with: lakebed tables restore home.pulse\n"
    assert cli("delete", "home.pulse", "--yes").code == 3
    assert cli("list", "--json").json["tables"] == []
    gone = cli("list", "--deleted")
    assert "home.pulse" in gone.out
    assert cli("list", "nowhere", "--deleted", "--json").json == {"databases": [], "tables": []}


def test_a_table_comes_back_as_it_was(cli: Cli) -> None:
    cli("delete", "home.pulse", "--yes")
    assert cli("restore", "home.pulse").out.startswith("home.pulse: restored, 2 partitions, ")
    assert _rows() == UNCHANGED
    assert "delete it first" in cli("restore", "home.pulse").error
    assert "no table home.nothing was deleted" in cli("restore", "home.nothing").error


def test_a_database_goes_and_comes_back_with_its_tables(cli: Cli) -> None:
    planned = cli("delete", "home")
    assert "plan: delete database home (1 table, 2 partitions, " in planned.err
    done = cli("delete", "home", "--yes", "--json").json
    assert (done["done"], done["restorable_for"]) == (True, "1d")
    assert [each["table"] for each in done["tables"]] == ["home.pulse"]
    assert cli("list", "--deleted", "--json").json["databases"] == ["home"]
    alone = cli("restore", "home.pulse")
    assert alone.code == 3
    assert "lakebed tables restore home" in alone.error
    assert cli("restore", "home").out.startswith("database home: restored, 1 table\n")
    assert _rows() == UNCHANGED
    assert cli("restore", "home").code == 4
    assert "no database 'nowhere' was deleted" in cli("restore", "nowhere").error


def test_rows_are_deleted_by_a_condition(cli: Cli) -> None:
    where = ["delete", "home.pulse", "--where", "device = 'ring-7' -- and no other"]
    planned = cli(*where)
    assert planned.err.startswith("plan: delete 1 of 2 rows of home.pulse. Nothing was changed.")
    assert _rows() == UNCHANGED
    assert cli(*where, "--yes").out == "home.pulse: 1 row deleted\n"
    assert _rows() == [("watch-1", 70)]
    again = cli(*where, "--yes", "--json").json
    assert again == {"done": True, "table": "home.pulse", "rows": 0}


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("", "the condition is empty"),
        ("nothing = 1", "no field named nothing"),
        ("bpm = 60 AND nothing = 1", "(line 1, column 14)"),
        ("bpm =", "at its end"),
        ("bpm = 60; SELECT 1", "(line 1, column 9)"),
        ("bpm", "non-boolean"),
        ("bpm = 'x'", "'x'"),
    ],
)
def test_a_wrong_condition_deletes_nothing(cli: Cli, where: str, words: str) -> None:
    refused = cli("delete", "home.pulse", "--where", where, "--yes")
    assert words in refused.error
    assert refused.code == 2
    assert _rows() == UNCHANGED


def test_a_condition_is_for_a_table(cli: Cli) -> None:
    assert "write home.TABLE" in cli("delete", "home", "--where", "true", "--yes").error
    assert _rows() == UNCHANGED


# ---- forget, expire -----------------------------------------------------------------------------


def test_forgetting_shows_its_plan_and_acts_when_told(cli: Cli) -> None:
    cli("insert", "home.pulse", _write("r.json", [{**RING, "bpm": 61}]))
    planned = cli("forget", "home.pulse", "device=ring-7")
    assert re.search(r"^2026-11-16 +live +2 +2$", planned.out, re.M)
    assert "plan: write again or condemn 2 stored rows in 2 partitions" in planned.err
    assert len(_rows()) == 2
    done = cli("forget", "home.pulse", "device=ring-7", "--yes")
    assert "forgot 2 stored rows in 2 partitions of home.pulse" in done.out
    assert _rows() == [("watch-1", 70)]
    again = cli("forget", "home.pulse", "device=ring-7", "--json").json
    assert again == {"done": False, "rows": 0, "partitions": []}


@pytest.mark.parametrize(
    ("what", "rows"),
    [
        ("device=ring-7", 1),
        ("device=ring", 0),
        ("bpm=60", 1),
        ("worn=true", 1),
        ("worn=false", 0),
        ("time=2026-11-16T05:00:00Z", 1),
        ("time=1794805200000", 1),
    ],
)
def test_values_are_read_as_their_column_has_them(cli: Cli, what: str, rows: int) -> None:
    assert cli("forget", "home.pulse", what, "--json").json["rows"] == rows


@pytest.mark.parametrize(
    ("what", "words"),
    [
        (["device"], "'device' is not COLUMN=VALUE"),
        (["=x"], "'=x' is not COLUMN=VALUE"),
        (["nothing=1"], "there is no column 'nothing'"),
        (["bpm=x"], "'x' is no int"),
        (["bpm=null"], "'null' is no int"),
        (["time=yesterday"], "'yesterday' is no datetime"),
        (["tags=x"], "tags holds lists"),
        (["bpm=1", "bpm=2"], "named twice"),
        ([], "Missing argument 'COLUMN=VALUE'"),
    ],
)
def test_a_mistake_forgets_nothing(cli: Cli, what: list[str], words: str) -> None:
    assert words in cli("forget", "home.pulse", *what, "--yes").error
    assert _rows() == UNCHANGED


def test_what_is_among_the_rejects_is_forgotten_too(cli: Cli) -> None:
    bad = [{"device": "ring-7"}, {"device": "ring-8"}, {"device": "nobody"}]
    cli("insert", "home.pulse", _write("r.json", bad), "--on-error", "keep")
    forgotten = cli("forget", "home.pulse", "device=nobody", "--yes")
    assert (forgotten.code, forgotten.out.count("forgot 1 stored row")) == (0, 1)
    forgotten = cli("forget", "home.pulse_rejects", "position=0", "--yes")
    assert forgotten.code == 0
    assert "forgot 1 stored row" in forgotten.out


def test_old_buckets_expire(cli: Cli) -> None:
    refused = cli("expire", "home.pulse")
    assert refused.code == 2
    assert "lakebed tables alter home.pulse --keep 90d" in refused.error
    cli("alter", "home.pulse", "--keep", "3650d")
    nothing = cli("expire", "home.pulse", "--yes")
    assert (nothing.code, nothing.out) == (0, "")
    cli(
        "insert",
        "home.pulse",
        _write("r.json", [{**RING, "device": "a", "time": "2001-01-01T00:00:00Z"}]),
    )
    planned = cli("expire", "home.pulse")
    assert "plan: retire 1 bucket of home.pulse, 1 partition, " in planned.err
    assert len(_rows()) == 3
    done = cli("expire", "home.pulse", "--yes")
    assert done.out.splitlines()[-1].startswith("retired 1 bucket of home.pulse")
    assert _rows() == UNCHANGED
    told = cli("expire", "home.pulse", "--json").json
    assert told == {"done": False, "buckets": [], "warnings": [], "needs_confirmation": False}


def test_most_of_a_table_expires_only_when_confirmed(cli: Cli) -> None:
    cli("alter", "home.pulse", "--keep", "3650d")
    days = [{**RING, "device": f"a{d}", "time": f"2001-01-{d:02}T00:00:00Z"} for d in range(1, 12)]
    cli("insert", "home.pulse", _write("r.json", days))
    assert "it needs --confirm home.pulse" in cli("expire", "home.pulse").err
    refused = cli("expire", "home.pulse", "--yes")
    assert refused.code == 4
    assert "add: --confirm home.pulse" in refused.error
    assert len(_rows()) == 13
    assert cli("expire", "home.pulse", "--yes", "--confirm", "home.pulse").code == 0
    assert _rows() == UNCHANGED


def test_what_must_stay_is_explained(cli: Cli) -> None:
    cli("alter", "home.pulse", "--keep", "3650d")
    cli("insert", "home.pulse", _write("r.json", [{**RING, "time": "2001-01-01T00:00:00Z"}]))
    told = cli("expire", "home.pulse", "--yes")
    assert "warning: 1 old partition of home.pulse stays" in told.err
    assert _rows() == UNCHANGED


# ---- import -------------------------------------------------------------------------------------


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
    assert _rows("home.adopted") == [("ring-7", 60)]
    again = cli("import", tree, "home.adopted", "--yes")
    assert again.out == "home.adopted: 0 rows of 0 files inserted, 0 quarantined, 3 skipped\n"
    assert "skipped: 1 already imported, 1 zero bytes, 1 truncated" in again.err
    told = cli("import", tree, "home.adopted", "--yes", "--json").json
    assert {each["fate"] for each in told["files"]} == {"skipped"}


def test_importing_makes_the_database_too(cli: Cli, tree: Path) -> None:
    planned = cli("import", tree, "work.adopted")
    assert planned.err.endswith("the database work would be made, too\n")
    assert cli("list", "--json").json["databases"] == ["home"]
    assert cli("import", tree, "work.adopted", "--yes").err.startswith("work: created, a database")
    assert _rows("work.adopted") == [("ring-7", 60)]


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
    assert _rows() == UNCHANGED


# ---- query --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("table", "hint"),
    [
        ("home.puls", "did you mean home.pulse?"),
        ("home.pulse_reject", "did you mean home.pulse_rejects?"),
        (
            "pulse",
            "those of a database are called DATABASE.TABLE; see what there is with SHOW TABLES",
        ),
        ("log_entry", "did you mean log_entries?"),
        ("nowhere.xyz", "see what there is with SHOW TABLES"),
    ],
)
def test_a_table_that_is_not_there_is_named_with_a_hint(cli: Cli, table: str, hint: str) -> None:
    refused = cli(f"SELECT * FROM {table}", group="query")
    assert refused.code == 2
    assert re.fullmatch(
        rf"error: there is no table {re.escape(table)} \(line 1, column \d+\); {re.escape(hint)}",
        refused.error,
    )


def test_tables_and_view_sets_are_queried_together(cli: Cli) -> None:
    sql = "SELECT p.device, count(l.time) AS n FROM home.pulse p LEFT JOIN log_entries l ON true"
    told = cli(f"{sql} GROUP BY 1 ORDER BY 1", "--json", group="query")
    assert told.json == [{"device": "ring-7", "n": 0}, {"device": "watch-1", "n": 0}]
