"""`lakebed query` as its users see it: what is written where, in which format, how it ends, and
what is left when it is killed.
"""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import pty
import re
import shutil
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakebed.catalog import leases
from lakebed.cli.data.query import point_at
from lakebed.cli.data.row_formats import lay_out, make_visible, make_writer
from lakebed.cli.main import run
from lakebed.model.source import BlockSource
from lakebed.model.view_set import ViewSet
from lakebed.opening import init_lake, open_lake
from lakebed.views.builtin import built_in
from tests.cli.parts import Ran
from tests.parts.building import build, land
from tests.parts.data import publish_hour, readings

LAKEBED = [sys.executable, "-m", "lakebed"]
ENDLESS = "SELECT a.value AS n FROM generate_series(1, 1000000000000) a"
SLOW = f"SELECT count(*) FROM ({ENDLESS}) x, ({ENDLESS}) y WHERE x.n % 7 = y.n % 11"
KINDS = """
SELECT arrow_cast(1793491200123456, 'Timestamp(Microsecond, Some("UTC"))') AS t,
       X'00ff' AS b, map {'k': 1} AS m, make_array('a', NULL) AS l, named_struct('x', 1.5) AS s,
       arrow_cast(1.5, 'Decimal128(10, 2)') AS d, 'NaN'::double AS n, 'ü,"' AS u, '' AS e,
       true AS y, CAST(NULL AS INT) AS z
"""


Query = Callable[..., Ran]


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake with six readings in two hours, 40 log entries that are built and 20 that are not."""
    folder = tmp_path_factory.mktemp("query") / "lake"
    with init_lake(folder) as lake:
        lake.views.register(readings())
        publish_hour(lake, 0)
        publish_hour(lake, 1)
        publish_hour(lake, 2, count=0)
        land(lake, requests=2)
        build(lake)
        land(lake, seed=2)
    return folder


@pytest.fixture
def place(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the lake, in which the commands run."""
    shutil.copytree(template, tmp_path / "lake")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LAKEBED_LAKE", "lake")
    return tmp_path


@pytest.fixture
def query(place: Path, capsys: pytest.CaptureFixture[str]) -> Query:
    """Runs `lakebed query` in this process."""

    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        code = run(["query", *(str(argument) for argument in arguments)])
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return call


def on_terminal(*arguments: str, columns: int = 100) -> tuple[int, str]:
    """Run it with a terminal around it; its exit code and what the terminal got."""
    ours, theirs = pty.openpty()
    os.set_blocking(ours, True)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [*LAKEBED, "query", *arguments], stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:
            break
        if not data:
            break
        shown += data
    os.close(ours)
    return process.wait(), shown.decode().replace("\r\n", "\n")


ENDS = pytest.mark.parametrize(
    ("told", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)


@contextmanager
def running(*arguments: str, stdout: int | IO[bytes] = subprocess.PIPE) -> Iterator[Any]:
    process = subprocess.Popen(
        [*LAKEBED, "query", *arguments], stdout=stdout, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(find: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 300
    while not (found := find()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def test_piped_it_gives_an_object_a_line(query: Query) -> None:
    ran = query("SELECT number, time FROM readings ORDER BY number")
    assert (ran.code, ran.err) == (0, "")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert len(rows) == 6
    assert rows[0]["time"] == "2026-01-01T00:00:00.000000Z"
    assert list(rows[0]) == ["number", "time"]


def test_a_terminal_gets_a_table_and_a_count(place: Path) -> None:
    sql = "SELECT time, number FROM readings ORDER BY 1 LIMIT 2"
    code, shown = on_terminal(sql)
    assert code == 0
    lines = shown.splitlines()
    assert re.fullmatch(r"time +number", lines[0])
    assert set(lines[1]) == {"─", " "}
    assert re.fullmatch(r"2026-01-01T00:00:00.000000Z +\d+", lines[2])
    assert re.fullmatch(r"2 rows in [\d.]+ s", lines[4])
    assert len(lines) == 5


def test_nothing_found_is_an_answer(query: Query) -> None:
    sql = "SELECT number FROM readings WHERE number < 0"
    assert query(sql).out == ""
    assert query(sql, "--format", "json").out == "[]\n"
    assert query(sql, "--format", "csv").out == '"number"\n'
    table = query(sql, "--format", "table")
    assert table.out == "number\n──────\n"
    assert table.err.startswith("0 rows")
    assert query(sql, "-o", "none.parquet").code == 0
    assert pq.read_table("none.parquet").schema.names == ["number"]


def test_values_in_json(query: Query) -> None:
    expected = {
        "t": "2026-11-01T00:00:00.123456Z",
        "b": "00ff",
        "m": {"k": 1},
        "l": ["a", None],
        "s": {"x": 1.5},
        "d": "1.50",
        "n": "NaN",
        "u": 'ü,"',
        "e": "",
        "y": True,
        "z": None,
    }
    lines = query(KINDS).out
    assert json.loads(lines) == expected
    assert lines.count("\n") == 1
    assert "ü" in lines
    assert json.loads(query(KINDS, "--format", "json").out) == [expected]
    assert json.loads(query(KINDS, "--json").out) == [expected]


def test_values_in_csv(query: Query) -> None:
    header, row = csv.reader(io.StringIO(query(KINDS, "--format", "csv").out))
    assert header == list("tbmlsdnueyz")
    assert row == [
        "2026-11-01T00:00:00.123456Z",
        "00ff",
        '{"k":1}',
        '["a",null]',
        '{"x":1.5}',
        "1.50",
        "nan",
        'ü,"',
        "",
        "true",
        "",
    ]
    assert query("SELECT '' AS e, NULL AS z", "--format", "csv").out == '"e","z"\n"",\n'


def test_values_in_parquet(query: Query) -> None:
    assert query(KINDS, "--output", "kinds.parquet").out == ""
    table = pq.read_table("kinds.parquet")
    assert table.schema.field("t").type == pa.timestamp("us", "UTC")
    assert table.schema.field("m").type == pa.map_(pa.string(), pa.int64())
    assert table["b"].to_pylist() == [b"\x00\xff"]
    assert table["z"].to_pylist() == [None]
    refused = query("SELECT INTERVAL '1 day' AS i", "-o", "no.parquet")
    assert "Parquet cannot hold this result" in refused.error
    assert refused.code == 2
    assert sorted(path.name for path in Path().iterdir()) == ["kinds.parquet", "lake"]


def test_json_is_one_array_however_many_rows(query: Query) -> None:
    ran = query("SELECT value FROM generate_series(1, 20000)", "--format", "json")
    assert json.loads(ran.out) == [{"value": value} for value in range(1, 20001)]


def test_columns_of_the_same_name_are_all_there(query: Query) -> None:
    sql = "SELECT * FROM (SELECT 1 AS x) a JOIN (SELECT 1 AS x) b ON a.x = b.x"
    assert json.loads(query(sql).out) == {"x": 1, "x_2": 1}
    assert query(sql, "--format", "csv").out == '"x","x"\n1,1\n'
    assert query(sql, "-o", "twice.parquet").code == 0
    assert pq.read_table("twice.parquet").schema.names == ["x", "x_2"]


def test_parquet_has_groups_of_a_good_size(place: Path) -> None:
    assert run(["query", "SELECT value FROM generate_series(1, 300000)", "-o", "many.parquet"]) == 0
    metadata = pq.read_metadata("many.parquet")
    assert metadata.num_rows == 300_000
    assert metadata.num_row_groups <= 4
    assert not any(name.endswith(".partial") for name in os.listdir())


def test_parquet_through_a_pipe(place: Path) -> None:
    command = [*LAKEBED, "query", "--format", "parquet"]
    done = subprocess.run(command, input=b"SELECT number FROM readings", capture_output=True)
    assert (done.returncode, done.stderr) == (0, b"")
    assert pq.read_table(pa.BufferReader(done.stdout)).num_rows == 6


def test_parquet_is_not_for_terminals(place: Path) -> None:
    code, shown = on_terminal("SELECT 1", "--format", "parquet")
    assert code == 2
    assert shown == (
        "error: Parquet is not for terminals; add --output FILE, or pipe it somewhere\n"
    )


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("a.json", b"[\n{"),
        ("a.ndjson", b'{"'),
        ("a.jsonl", b'{"'),
        ("a.CSV", b'"n'),
        ("a.parquet", b"PAR1"),
        ("a.txt", b"  n"),
        ("a", b'{"'),
    ],
)
def test_a_file_has_the_format_of_its_name(query: Query, name: str, begin: bytes) -> None:
    assert query("SELECT 100 AS n", "--output", name).out == ""
    assert Path(name).read_bytes().startswith(begin)


def test_a_file_is_replaced_whole_and_keeps_its_rights(query: Query, place: Path) -> None:
    (place / "real.csv").write_text("before")
    (place / "real.csv").chmod(0o640)
    (place / "link.csv").symlink_to("real.csv")
    assert query("SELECT 1 AS n", "-o", "link.csv").code == 0
    assert (place / "link.csv").is_symlink()
    assert (place / "real.csv").read_text() == '"n"\n1\n'
    assert (place / "real.csv").stat().st_mode & 0o777 == 0o640
    failed = query(
        "SELECT 1 / (value - 20000) AS n FROM generate_series(1, 30000)", "-o", "real.csv"
    )
    assert failed.code == 2
    assert (place / "real.csv").read_text() == '"n"\n1\n'
    assert query("SELECT 1 AS n", "-o", "/dev/null").code == 0
    assert "cannot write" in query("SELECT 1 AS n", "-o", "no/folder.csv").error
    for wrong in ("no/folder.csv", "real.csv/file.csv", "."):
        assert query("SELECT 1 AS n", "--format", "csv", "-o", wrong).code == 2
    full = query("SELECT 1 AS n", "--format", "csv", "-o", "/dev/full")
    assert (full.code, "no space left" in full.error) == (69, True)
    assert sorted(os.listdir()) == ["lake", "link.csv", "real.csv"]


def test_a_killed_process_leaves_no_half_file(place: Path) -> None:
    with running(ENDLESS, "--output", "half.parquet") as process:
        wait_for(lambda: [each for each in os.listdir() if each.endswith(".partial")])
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert not Path("half.parquet").exists()


@ENDS
def test_an_interrupted_one_leaves_nothing(place: Path, told: signal.Signals, code: int) -> None:
    with running(ENDLESS, "--output", "half.csv") as process:
        wait_for(lambda: [each for each in os.listdir() if each.endswith(".partial")])
        process.send_signal(told)
        assert process.wait(300) == code
        assert process.stderr.read() == b"interrupted\n"
    assert os.listdir() == ["lake"]


def test_a_table_shows_the_first_rows_and_says_how_many_there_are(query: Query) -> None:
    sql = "SELECT value FROM generate_series(1, 30000)"
    ran = query(sql, "--format", "table")
    assert len(ran.out.splitlines()) == 102
    assert re.fullmatch(
        r"the first 100 of 30,000 rows in [\d.]+ s; show more with --limit N, "
        r"get all with --format ndjson, json, csv or parquet\n",
        ran.err,
    )
    ran = query(sql, "--format", "table", "--limit", 150)
    assert len(ran.out.splitlines()) == 152
    assert ran.err.startswith("150 rows in")


def test_a_table_cannot_write_to_the_terminal_what_it_likes(query: Query) -> None:
    sql = "SELECT chr(27) || '[31m' || chr(10) || 'ü' || chr(8238) AS \"a\tb\", NULL AS n"
    ran = query(sql, "--format", "table")
    assert ran.out.splitlines()[0].startswith("a\\tb")
    assert ran.out.splitlines()[2].startswith("\\x1b[31m\\nü\\u202e")
    assert "\x1b" not in ran.out
    assert ran.out.splitlines()[2].endswith("NULL")
    assert make_visible("日本 é") == "日本 é"


def test_rows_that_are_too_wide_are_shown_one_below_the_other(query: Query) -> None:
    shown = query("SELECT * FROM log_entries LIMIT 2", "--format", "table").out
    assert shown.startswith("── row 1 ──")
    assert "── row 2 ──" in shown
    assert re.search(r"^insert_time +2\d{3}-", shown, re.M)


def test_tables_are_aligned_by_what_is_seen() -> None:
    rows = [["日本", "1"], ["x" * 80, "10"]]
    lines = list(lay_out(["name", "n"], [False, True], rows, 200))
    assert lines[2] == "日本" + " " * 59 + "1"
    assert lines[3] == "x" * 59 + "…  10"
    assert next(lay_out(["a", "b"], [True, True], [["1", "2"]], 3)).startswith("── row 1")


def test_sql_from_a_file_and_from_standard_input(
    query: Query, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place / "one.sql").write_text("\ufeffSELECT 1 AS n\n-- done\n;\n", encoding="utf-8")
    assert query("--file", "one.sql").out == '{"n":1}\n'
    for arguments in ([], ["-"]):
        stdin = SimpleNamespace(buffer=io.BytesIO(b"SELECT 2 AS n"), isatty=lambda: False)
        monkeypatch.setattr(sys, "stdin", stdin)
        assert query(*arguments).out == '{"n":2}\n'


def test_sql_that_is_not_there(query: Query, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot read missing.sql" in query("--file", "missing.sql").error
    (place / "bytes.sql").write_bytes(b"SELECT '\xff'")
    assert "byte 8 is not UTF-8" in query("--file", "bytes.sql").error
    assert "there is no statement" in query(" ").error
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b""), isatty=lambda: False))
    assert "there is no statement" in query().error
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    ran = query()
    assert ran.code == 2
    assert "give the statement" in ran.error


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["SELECT 1", "--file", "x.sql"], "not both"),
        (["SELECT 1", "--since", "1h", "--from", "2h"], "give one of them"),
        (["SELECT 1", "--json", "--format", "csv"], "give one of them"),
        (["SELECT 1", "--master", "local"], "for --engine spark"),
        (["SELECT 1", "--remote", "sc://x"], "for --engine spark"),
        (["SELECT 1", "--explain", "--output", "x"], "leave out --output"),
        (["SELECT 1", "--explain", "--format", "csv"], "--format json"),
        (["SELECT 1", "--limit", "-1"], "--limit"),
        (["SELECT 1", "--timeout", "30"], "cannot read '30' as a duration"),
        (["SELECT 1", "--from", "2026-01-01T05:00:00"], "has no zone"),
        (["SELECT 1", "--since", "soon"], "cannot read 'soon'"),
        (["SELECT 1", "--as-of", "1x"], "cannot read '1x'"),
        (["SELECT 1", "--format", "xml"], "xml"),
        (["SELECT 1", "--output", "rows.xml"], ".xml says no format; use .json,"),
        (["CREATE TABLE x AS SELECT 1"], ""),
    ],
)
def test_calls_that_make_no_sense(query: Query, arguments: list[str], complaint: str) -> None:
    ran = query(*arguments)
    assert complaint in ran.error
    assert ran.code in (2, 4)


def test_a_lake_that_is_not_there(query: Query) -> None:
    ran = query("SELECT 1", "--lake", "nowhere")
    assert ran.code == 3
    assert "there is no lake in" in ran.error


def test_ranges_and_the_past(query: Query) -> None:
    def numbers(*options: str) -> int:
        ran = query("SELECT number FROM readings", *options)
        assert ran.code == 0, ran.err
        return len(ran.out.splitlines())

    assert numbers() == 6
    assert numbers("--since", "5000w") == 6
    assert numbers("--since", "1h") == 0
    assert numbers("--from", "2026-01-01T01:00:00Z") == 3
    assert numbers("--from", "2026-01-01T01:00:00Z", "--to", "2026-01-01T01:00:00.000001Z") == 1
    assert numbers("--to", "1h") == 6
    assert numbers("--limit", "4") == 4
    assert numbers("--limit", "0") == 0
    with open_lake("lake") as lake:
        tick = lake.query("SELECT 1").explanation.as_dict()["snapshot"]
        publish_hour(lake, 5)
    assert numbers() == 9
    assert numbers("--as-of", tick) == 6


def test_what_landed_is_seen_unless_it_is_left_out(query: Query) -> None:
    sql = "SELECT count(*) AS n FROM log_entries"
    assert query(sql).out == '{"n":60}\n'
    assert query(sql, "--stale").out == '{"n":40}\n'


def test_explaining_says_what_would_be_read(query: Query) -> None:
    ran = query("SELECT * FROM log_entries", "--explain")
    first, second = ran.out.splitlines()
    assert re.fullmatch(r"snapshot of 2\S+Z, embedded engine", first)
    assert re.fullmatch(
        r"log_entries: 1 partition considered, 1 read \(40 rows, [\d,]+ bytes\), "
        r"fresh tail of 20 rows in \d+ blocks?",
        second,
    )
    ran = query("SELECT * FROM readings WHERE time < '2026-01-01T01:00:00Z'", "--explain")
    assert "3 partitions considered, 1 pruned (empty), 1 pruned (time), 1 read (3 rows" in ran.out
    for option in (["--json"], ["--format", "json"]):
        found = json.loads(query("SELECT * FROM readings", "--explain", *option).out)
        assert found["rows"] is None
        assert found["tables"][0]["partitions_pruned"] == {"empty": 1}
        assert found["tables"][0]["rows_in_partitions"] == 6


def test_explaining_does_not_run_it(query: Query) -> None:
    ran = query(SLOW, "--explain")
    assert ran.code == 0
    retire = (
        "SELECT * FROM retire_partitions('readings', 'global', "
        "'2026-01-01T00:00:00Z', '2026-01-02T00:00:00Z')"
    )
    ran = query(retire, "--explain")
    assert ran.code == 4
    assert "changes the lake" in ran.error
    assert query("SELECT count(*) AS n FROM readings").out == '{"n":6}\n'


def test_warnings_go_to_stderr(query: Query) -> None:
    with open_lake("lake") as lake:
        old = next(each for each in built_in() if each.name == "log_entries")
        new = ViewSet("log_entries", 2, old.schema, "time", ("time",), source=BlockSource("logs"))
        lake.views.register(new)
    ran = query("SELECT count(*) AS n FROM log_entries")
    assert ran.out == '{"n":20}\n'
    assert ran.err.startswith("warning: log_entries: ")
    assert len(ran.err.splitlines()) == 1


def test_wrong_sql_is_pointed_at(query: Query) -> None:
    ran = query("SELECT nothing FROM readings")
    assert ran.code == 2
    assert "(line 1, column 8)" in ran.error
    ran = query("SELECT number,\n\tnothing\nFROM readings")
    assert (ran.code, ran.out) == (2, "")
    error, line, caret = ran.err.splitlines()
    assert error.startswith("error: ")
    assert "(line 2, column 2)" in error
    assert line == "2 |  nothing"
    assert caret == "  |  ^"


def test_long_lines_are_shown_around_the_place() -> None:
    sql = "SELECT " + "日, " * 100 + "nothing" + ", number" * 100
    line, caret = point_at(sql, 1, sql.index("nothing") + 1)
    assert line.startswith("1 | … ")
    assert line.endswith(" …")
    assert len(line) < 100
    assert caret.index("^") - caret.count("日") > line.index("nothing")  # wide letters take two
    assert point_at("SELECT x", 1, 8) == []
    assert point_at(sql, None, None) == point_at(sql, 7, 1) == []


def test_what_takes_too_long_is_given_up(query: Query) -> None:
    ran = query(SLOW, "--timeout", "50ms")
    assert ran.code == 1
    assert "longer than 0.05 s" in ran.error


def test_a_failure_in_the_middle_leaves_no_whole_document(query: Query) -> None:
    sql = "SELECT 1 / (value - 20000) AS n FROM generate_series(1, 30000)"
    ran = query(sql, "--format", "json")
    assert ran.code == 2
    assert ran.err.startswith("error: ")
    with pytest.raises(json.JSONDecodeError):
        json.loads(ran.out)


@pytest.mark.parametrize("shape", ["ndjson", "parquet"])
def test_a_reader_who_has_enough_is_no_error(place: Path, shape: str) -> None:
    with running(ENDLESS, "--format", shape) as process:
        assert process.stdout.read(10)
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(300) == 0


@ENDS
def test_an_interrupt_stops_a_statement_that_has_no_rows_yet(
    place: Path, told: signal.Signals, code: int
) -> None:
    def is_reading() -> bool:
        with open_lake("lake") as lake, lake.catalog.read() as connection:
            return bool(leases.list_leases(connection))

    with running(SLOW) as process:
        wait_for(is_reading)
        process.send_signal(told)
        assert process.wait(300) == code
        assert process.stderr.read() == b"interrupted\n"
    assert not is_reading()


@pytest.mark.parametrize("shape", ["ndjson", "json", "csv", "parquet"])
def test_rows_are_written_while_others_are_computed(shape: str) -> None:
    batch = pa.record_batch({"n": pa.array(range(8192))})
    written = io.BytesIO()
    writer = make_writer(shape, written, batch.schema)
    sizes = []
    for _ in range(60):
        writer.write(batch)
        sizes.append(written.tell())
    waits = next(place for place, size in enumerate(sizes) if size > 100)
    assert waits == (14 if shape == "parquet" else 0)
    assert sizes[-1] > sizes[29] > sizes[14]
    writer.end()
    if shape == "parquet":
        assert pq.read_metadata(pa.BufferReader(written.getvalue())).num_rows == 60 * 8192


def test_spark_computes_the_same(query: Query, spark: object) -> None:
    sql = "SELECT count(*) AS n, max(time) AS t FROM log_entries WHERE level > 0"
    ran = query(sql, "--engine", "spark")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out) == json.loads(query(sql).out)
    found = json.loads(query(sql, "--engine", "spark", "--explain", "--json").out)
    assert found["engine"] == "spark"
    assert found["tables"][0]["tail_rows"] == 20
