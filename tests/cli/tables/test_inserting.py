"""Records are inserted from files; what is wrong with which is said."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest

from tests.cli.parts import Cli
from tests.cli.tables.parts import RING, UNCHANGED, WATCH, rows_of, write


@pytest.mark.parametrize("form", ["array", "lines", "object", "stdin", "parquet", "arrow"])
def test_records_come_in_many_forms(cli: Cli, form: str) -> None:
    new = {**RING, "device": "new", "bpm": 99}
    table = pa.Table.from_pylist([new])
    match form:
        case "array":
            done = cli("insert", "home.pulse", write("r.json", [new]))
        case "lines":
            done = cli("insert", "home.pulse", write("r.txt", f"\n{json.dumps(new)}\n\n"))
        case "object":
            done = cli("insert", "home.pulse", write("r.json", new))
        case "stdin":
            done = cli("insert", "home.pulse", "-", stdin=json.dumps(new))
        case "parquet":
            pq.write_table(table, "r.parquet")
            done = cli("insert", "home.pulse", "r.parquet")
        case _:
            pa.feather.write_feather(table, "r.arrow", compression="uncompressed")
            done = cli("insert", "home.pulse", "r.arrow")
    assert (done.code, done.out, done.err) == (0, "home.pulse: 1 row inserted\n", "")
    assert rows_of() == [("new", 99), *UNCHANGED]


def test_bad_records_are_named_one_by_one_and_nothing_is_inserted(cli: Cli) -> None:
    bad = [{**RING, "bpm": 1000}, RING, {"device": 7, "extra": 1}, 5]
    refused = cli("insert", "home.pulse", write("r.json", bad))
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
    assert rows_of() == UNCHANGED


def test_programs_get_bad_records_as_json(cli: Cli) -> None:
    refused = cli("insert", "home.pulse", write("r.json", [{**RING, "bpm": "x"}]), "--json")
    assert refused.code == 2
    (file,) = refused.json["files"]
    problem = {"column": "bpm", "expected": "int", "got": '"x"'}
    assert file["bad"] == [{"index": 0, "problems": [problem]}]
    assert file["error"] == "1 of 1 records are bad"
    assert (refused.json["rows"], file["tick"]) == (0, None)


def test_of_very_many_bad_records_the_first_are_shown(cli: Cli) -> None:
    records = [{**RING, f"extra{i}": i} for i in range(500)]
    refused = cli("insert", "home.pulse", write("r.json", records))
    lines = refused.err.splitlines()
    assert len(lines) == 22
    assert lines[-1] == "  … and 480 more; --json has all"


def test_problems_of_a_column_are_shown_once_with_a_count(cli: Cli) -> None:
    records = [{**RING, "time": 1794812400 + i} for i in range(500)]
    cli("create", "home.unitless", "--schema", write("s.json", {"time": "datetime"}))
    refused = cli(
        "insert", "home.unitless", write("r.json", [{"time": r["time"]} for r in records])
    )
    assert refused.code == 2
    assert refused.err.splitlines() == [
        "error: 500 of 500 records are bad and nothing was inserted",
        "  time: expected datetime as text; for numbers the column needs a unit, got 1794812400 "
        "(500 records: 0, 1, 2, …)",
    ]


def test_nan_and_infinity_concern_their_record_only(cli: Cli) -> None:
    cli("create", "home.heat", "--schema", write("s.json", {"time": "datetime", "heat": "float"}))
    values = [1.5, float("nan"), float("inf"), 2.5]
    records = [{"time": f"2026-11-16T05:00:0{i}Z", "heat": heat} for i, heat in enumerate(values)]
    file = write("r.json", records)
    refused = cli("insert", "home.heat", file)
    assert refused.code == 2
    assert "  record 2: heat: expected float of at most 64 bits, got Infinity" in refused.err
    done = cli("insert", "home.heat", file, "--on-error", "keep")
    assert done.out == "home.heat: 3 rows inserted, 1 rejected\n"


def test_bad_records_are_kept_on_request(cli: Cli) -> None:
    records = [{**RING, "bpm": 1000}, {**WATCH, "bpm": 71}]
    done = cli("insert", "home.pulse", write("r.json", records), "--on-error", "keep")
    assert done.out == "home.pulse: 1 row inserted, 1 rejected\n"
    assert "SELECT * FROM home.pulse_rejects" in done.err
    assert rows_of() == [("ring-7", 60), ("watch-1", 71)]
    shown = cli("show", "home.pulse")
    assert "rejected  1: SELECT * FROM home.pulse_rejects" in shown.out
    assert cli("show", "home.pulse_rejects").code == 0


def test_a_key_that_is_there_is_replaced_or_ignored(cli: Cli) -> None:
    records = [{**RING, "bpm": 61}, {**RING, "bpm": 62}, {**RING, "device": "new"}]
    write("r.json", records)
    ignored = cli("insert", "home.pulse", "r.json", "--if-exists", "ignore")
    assert ignored.out == (
        "home.pulse: 1 row inserted, 2 left out whose key was there or came again\n"
    )
    assert rows_of() == [("new", 60), *UNCHANGED]
    replaced = cli("insert", "home.pulse", "r.json")
    assert replaced.out == "home.pulse: 2 rows inserted, 1 left out whose key came again later\n"
    assert ("ring-7", 62) in rows_of()


def test_an_insert_with_a_key_counts_once(cli: Cli) -> None:
    write("r.json", [{**RING, "bpm": 61}])
    first = cli("insert", "home.pulse", "r.json", "--key", "upload-1", "--json").json
    again = cli("insert", "home.pulse", "r.json", "--key", "upload-1")
    assert again.out.startswith(
        "home.pulse: repeated, nothing was changed; this key had inserted 1"
    )
    assert first["files"][0]["tick"] in again.out
    repeated = cli("insert", "home.pulse", "r.json", "--key", "upload-1", "--json").json
    assert (repeated["rows"], repeated["repeated"], repeated["files"][0]["rows"]) == (0, 1, 1)
    other = cli("insert", "home.pulse", write("s.json", [WATCH]), "--key", "upload-1")
    assert other.code == 4
    assert "had the key 'upload-1'" in other.error


def test_several_files_are_one_insert_each(cli: Cli) -> None:
    for number in range(3):
        write(f"r{number}.json", [{**RING, "device": f"new-{number}", "bpm": 90 + number}])
    done = cli("insert", "home.pulse", "r0.json", "r1.json", "r2.json", "--json").json
    assert (done["records"], done["rows"]) == (3, 3)
    assert len({each["tick"] for each in done["files"]}) == 3
    assert len(rows_of()) == 5


def test_a_bad_file_does_not_stop_the_others(cli: Cli) -> None:
    write("a.json", [{**RING, "device": "new"}])
    write("b.json", [{}])
    write("c.json", "[")
    done = cli("insert", "home.pulse", "a.json", "b.json", "c.json", "missing.json")
    assert done.code == 5
    assert done.out == "home.pulse: 1 row inserted, of 1 file\n"
    errors = [line for line in done.err.splitlines() if line.startswith("error: ")]
    assert [line.split()[1] for line in errors] == ["b.json:", "c.json:", "missing.json:"]
    assert len(rows_of()) == 3
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
    write("r.json", [{**RING, "bpm": 99}])
    for suffix in ("json", "parquet", "arrow"):
        write(f"x.{suffix}", "this is something else")
    refused = cli("insert", *arguments)
    assert words in refused.error
    assert refused.code == code
    assert rows_of() == UNCHANGED
