"""The command line as its users see it: what it prints where, what it changes, how it ends."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
import typer

import lakebed
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.migrate import migrate
from lakebed.cli.main import app, run
from lakebed.lake import init_lake, open_lake
from lakebed.model.time import format_instant
from lakebed.model.view_set import ViewSet
from lakebed.settings import Settings
from tests.parts.data import HOUR, T0, publish_hour, readings, rows
from tests.parts.older import fill_older_shape


@dataclass(frozen=True)
class Ran:
    """How one command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> str:
        """The one line that an error is."""
        assert self.out == ""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        assert lines[0].startswith("error: ")
        assert "unexpected" not in lines[0]
        return lines[0]


Cli = Callable[..., Ran]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    """Runs a command line in this process, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAKEBED_LAKE", raising=False)

    def call(*arguments: object) -> Ran:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return Ran(code, printed.out, printed.err)

    return call


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A lake with two hours of rows and an empty one, by grace period; tests get copies."""
    made: dict[str, Path] = {}

    def make(grace: str) -> Path:
        if grace not in made:
            folder = tmp_path_factory.mktemp("template") / "weather"
            with init_lake(folder, grace=grace) as lake:
                lake.views.register(readings())
                publish_hour(lake, 0)
                publish_hour(lake, 1)
                publish_hour(lake, 2, count=0)
            made[grace] = folder
        return made[grace]

    return make


@pytest.fixture
def weather(
    cli: Cli, template: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The lake that commands use here without being told."""
    return _settle(template("24h"), tmp_path, monkeypatch)


@pytest.fixture
def hasty(
    cli: Cli, template: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The same without a grace period, so that what was retired can be swept at once."""
    return _settle(template("0s"), tmp_path, monkeypatch)


def _settle(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(source, tmp_path / "weather")
    monkeypatch.setenv("LAKEBED_LAKE", str(tmp_path / "weather"))
    return tmp_path / "weather"


def _hours(first: int, behind: int) -> list[str]:
    return [
        "--begin",
        format_instant(T0 + first * HOUR),
        "--end",
        format_instant(T0 + behind * HOUR),
    ]


def _rows_file(folder: Path, count: int = 2, version: int = 1) -> Path:
    file = folder / f"rows{version}.parquet"
    pq.write_table(rows(count, version=version), file)
    return file


def _register(cli: Cli, folder: Path, view_set: ViewSet) -> Ran:
    file = folder / "definition.json"
    file.write_text(view_set.definition())
    return cli("views", "register", file)


def _everything(folder: Path) -> dict[str, Any]:
    """All that a lake is: its catalog's rows but for clock and leases, and the bytes it stores."""
    with contextlib.closing(sqlite3.connect(folder / "catalog.sqlite3")) as connection:
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            if name not in ("leases", "lake_clock")
        ]
        found: dict[str, Any] = {
            name: connection.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall()
            for name in tables
        }
    store = folder / "store"
    found["files"] = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}
    return found


@contextlib.contextmanager
def _unchanged(folder: Path) -> Iterator[None]:
    before = _everything(folder)
    yield
    assert _everything(folder) == before


def _listed(cli: Cli, *arguments: object) -> list[dict[str, Any]]:
    ran = cli("partitions", "list", "--json", *arguments)
    assert (ran.code, ran.err) == (0, "")
    return list(ran.json)


def _file_of(folder: Path, partition: dict[str, Any]) -> Path:
    return folder / "store" / str(partition["file_path"])


# ---- making lakes -------------------------------------------------------------------------------


def test_init_makes_a_lake_and_says_what_comes_next(cli: Cli, tmp_path: Path) -> None:
    ran = cli("init", "weather")
    assert ran.code == 0
    lake_id = json.loads((tmp_path / "weather" / "store" / "lake.json").read_text())["lake_id"]
    assert ran.out == f"made lake {lake_id}\n"
    assert "lakebed land FILE --lake weather" in ran.err
    assert cli("check", "--lake", "weather").code == 0


def test_init_twice_is_refused_and_changes_nothing(cli: Cli, weather: Path) -> None:
    with _unchanged(weather):
        ran = cli("init", weather)
    assert ran.code == 4
    assert "there is a lake already" in ran.error


def test_a_lake_is_found_in_the_folder_one_stands_in(cli: Cli) -> None:
    assert cli("init").code == 0
    assert cli("views", "list", "--json").json == []


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
    file = _rows_file(tmp_path)
    assert cli("partitions", "publish", "readings", file, *_hours(0, 1), "-l", url).code == 0
    report = cli("check", "--level", "pages", "--json", "--lake", url)
    assert (report.code, report.json["rows"]) == (0, 2)
    assert list(tmp_path.glob("elsewhere/partitions/readings/global/*/*.parquet"))
    assert cli("init", "--catalog", url, "--store", store).code == 4


# ---- view sets ----------------------------------------------------------------------------------


def test_a_view_set_is_registered_evolved_and_shown(cli: Cli, weather: Path) -> None:
    assert _register(cli, weather, readings()).out == "readings version 1: unchanged\n"
    assert _register(cli, weather, readings(2)).out == "readings version 2: evolved\n"
    amended = readings(2, retention_us=HOUR)
    assert _register(cli, weather, amended).out == "readings version 2: amended\n"
    shown = cli("views", "show", "readings")
    assert ViewSet.from_definition(shown.out) == amended
    (weather / "shown.json").write_text(shown.out)
    assert cli("views", "register", weather / "shown.json").out.endswith("unchanged\n")


def test_a_view_set_cannot_go_back_or_change_in_place(cli: Cli, weather: Path) -> None:
    _register(cli, weather, readings(2))
    with _unchanged(weather):
        older = _register(cli, weather, readings(1))
        assert older.code == 4
        assert "active in version 2" in older.error
        other = pa.schema([("time", pa.timestamp("us", "UTC"))])
        changed = _register(cli, weather, ViewSet("readings", 2, other, "time"))
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
    ]
    assert readings().schema_hash.hex()[:12] in table.out
    (row,) = cli("views", "list", "--json").json
    assert row["current_schema_hash"] == readings().schema_hash.hex()
    assert (row["view_set_name"], row["version"], row["columns"]) == ("readings", 1, 2)


def test_a_view_set_is_removed_only_when_told_to(cli: Cli, weather: Path) -> None:
    with _unchanged(weather):
        plan = cli("views", "remove", "readings")
    assert (plan.code, plan.out) == (0, "")
    assert "its 3 live partitions would become incompatible" in plan.err
    assert "--yes" in plan.err
    assert cli("views", "remove", "readings", "--yes").out == "readings: removed\n"
    assert cli("views", "list", "--json").json == []
    assert len(_listed(cli, "--incompatible")) == 3


# ---- publishing ---------------------------------------------------------------------------------


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
    ran = cli("partitions", "publish", "readings", file, *_hours(3, 4), "--json")
    assert (ran.code, ran.err) == (0, "")
    assert ran.json == [each for each in _listed(cli) if each["num_rows"] == 4]
    assert _file_of(weather, ran.json[0]).stat().st_size == ran.json[0]["file_size"]


def test_a_range_is_published_as_completed_and_empty(cli: Cli, weather: Path) -> None:
    ran = cli("partitions", "publish", "readings", "--completed-empty", *_hours(3, 5), "--json")
    (row,) = ran.json
    assert (row["num_rows"], row["file_size"], row["file_path"]) == (0, 0, None)
    assert row["end_insert_time"] == "2026-01-01T05:00:00.000000Z"


def test_a_taken_range_is_published_only_over_what_it_replaces(cli: Cli, weather: Path) -> None:
    file = _rows_file(weather)
    old = _listed(cli)[0]["partition_id"]
    publish = ["partitions", "publish", "readings", file, *_hours(0, 1), "--replaces", old]
    assert cli(*publish).code == 0
    assert old not in [each["partition_id"] for each in _listed(cli)]
    again = cli(*publish)
    assert again.code == 2
    assert "--replaces names a partition that is not live" in again.error


@pytest.mark.parametrize(
    ("hours", "code", "says"),
    [
        pytest.param(_hours(0, 1), 4, "already covers part of readings/global", id="taken"),
        pytest.param(_hours(99999, 100000), 2, "only ranges that have ended", id="not ended"),
    ],
)
def test_a_refused_publication_leaves_nothing_that_a_sweep_does_not_take(
    cli: Cli, weather: Path, hours: list[str], code: int, says: str
) -> None:
    before = _everything(weather)
    ran = cli("partitions", "publish", "readings", _rows_file(weather), *hours)
    assert ran.code == code
    assert says in ran.error
    assert cli("sweep", "--yes").code == 0
    after = _everything(weather)
    for name in ("lakehouse_partitions", "partition_metadata", "temporary_files", "files"):
        assert after[name] == before[name]


def test_instances_are_apart(cli: Cli, weather: Path) -> None:
    file = _rows_file(weather)
    publish = ["partitions", "publish", "readings", file, *_hours(0, 1), "--instance", "host-1"]
    assert cli(*publish).code == 0
    assert len(_listed(cli)) == 4
    (mine,) = _listed(cli, "--instance", "host-1")
    assert mine["view_instance_id"] == "host-1"


# ---- listing ------------------------------------------------------------------------------------

ROW = [
    "view_set_name",
    "view_instance_id",
    "begin_insert_time",
    "end_insert_time",
    "file_schema_hash",
    "num_rows",
    "file_size",
    "file_path",
    "partition_id",
]


def test_the_keys_of_listed_partitions_are_a_contract(cli: Cli, weather: Path) -> None:
    first, _second, empty = _listed(cli)
    assert list(first) == ROW
    assert first["begin_insert_time"] == "2026-01-01T00:00:00.000000Z"
    assert first["file_schema_hash"] == readings().schema_hash.hex()
    assert (first["num_rows"], empty["num_rows"], empty["file_path"]) == (3, 0, None)
    assert list(_listed(cli, "--retired")[0]) == [*ROW, "retired_at", "expiration", "held"]
    _register(cli, weather, readings(2))
    assert list(_listed(cli, "--incompatible")[0]) == [
        "view_set_name",
        "view_instance_id",
        "begin_insert_time",
        "end_insert_time",
        "incompatible_schema_hash",
        "current_schema_hash",
        "file_path",
        "file_size",
        "num_rows",
        "can_be_rebuilt",
    ]


def test_partitions_are_listed_as_a_table(cli: Cli, weather: Path) -> None:
    ran = cli("partitions", "list", "readings")
    assert (ran.code, ran.err) == (0, "")
    head, *lines = ran.out.splitlines()
    assert head.split() == [name for name in ROW if name != "file_path"]
    assert [line.split()[2] for line in lines] == [
        f"2026-01-01T0{hour}:00:00Z" for hour in range(3)
    ]
    assert "\x1b" not in ran.out


def test_partitions_are_listed_by_range_and_as_of_a_tick(cli: Cli, weather: Path) -> None:
    hour = _hours(1, 2)
    assert [each["num_rows"] for each in _listed(cli, *hour)] == [3]
    assert _listed(cli, *_hours(7, 8)) == []
    before = cli("journal", "--limit", 1, "--json").json[0]["time"]
    assert cli("partitions", "retire", "readings", *hour, "--yes").code == 0
    assert len(_listed(cli)) == 2
    assert len(_listed(cli, "--as-of", before)) == 3
    retired = [each for each in _listed(cli, "--retired") if each["retired_at"]]
    assert len(retired) == 1
    assert retired[0]["retired_at"] < retired[0]["expiration"]


def test_what_was_swept_is_not_silently_missing_from_the_past(cli: Cli, hasty: Path) -> None:
    before = cli("journal", "--limit", 1, "--json").json[0]["time"]
    cli("partitions", "retire", "readings", *_hours(0, 1), "--yes")
    cli("sweep", "--yes")
    ran = cli("partitions", "list", "--as-of", before)
    assert ran.code == 4
    assert "has been swept" in ran.error


def test_incompatible_partitions_are_listed(cli: Cli, weather: Path) -> None:
    none = cli("partitions", "list", "--incompatible")
    assert (none.code, none.out) == (0, "")
    assert none.err == "every partition has its view set's schema\n"
    _register(cli, weather, readings(2))
    found = _listed(cli, "--incompatible")
    assert [each["can_be_rebuilt"] for each in found] == [False, False, True]  # nothing is lost
    assert {each["current_schema_hash"] for each in found} == {readings(2).schema_hash.hex()}
    assert {each["incompatible_schema_hash"] for each in found} == {readings().schema_hash.hex()}


def test_an_empty_list_is_an_answer(cli: Cli) -> None:
    cli("init")
    ran = cli("partitions", "list")
    assert (ran.code, ran.out, ran.err) == (0, "", "no partition\n")
    assert _listed(cli) == []


# ---- retiring -----------------------------------------------------------------------------------


def test_without_yes_a_retirement_is_only_shown(cli: Cli, weather: Path) -> None:
    first = _listed(cli)[0]
    with _unchanged(weather):
        ran = cli("partitions", "retire", "readings", *_hours(0, 1))
    assert (ran.code, ran.out) == (0, "")
    assert "retire 1 partition (0 empty) with 3 rows" in ran.err
    assert first["file_path"] in ran.err
    assert ran.err.endswith("Nothing was changed. Repeat with --yes to retire them.\n")
    with _unchanged(weather):
        ran = cli("partitions", "retire", "readings", *_hours(0, 1), "--json")
    assert ran.json["partitions"] == [first]
    assert set(ran.json) == {"reason", "hold", "partitions", "straddling", "warnings", "confirm"}


def test_a_range_is_retired_but_not_what_reaches_beyond_it(cli: Cli, weather: Path) -> None:
    first, second, empty = _listed(cli)
    middle = ["--begin", "2026-01-01T00:30Z", "--end", "2026-01-01T02:30Z"]
    ran = cli("partitions", "retire", "readings", *middle, "--yes", "--json")
    assert ran.code == 0
    assert ran.err.count("left alone, reaches beyond the range") == 2
    (outcome,) = ran.json
    assert outcome == {
        "partition_id": second["partition_id"],
        "empty": False,
        "message": "SUCCESS: Retired partition readings/global "
        "[2026-01-01T01:00:00.000000Z, 2026-01-01T02:00:00.000000Z)",
    }
    assert _listed(cli) == [first, empty]
    assert _file_of(weather, second).exists()


def test_one_partition_is_retired_by_identity_even_an_empty_one(cli: Cli, weather: Path) -> None:
    ran = cli("partitions", "retire", "readings", "--exact", *_hours(2, 3), "--yes")
    assert ran.code == 0
    assert "SUCCESS: Retired empty partition" in ran.out
    assert len(_listed(cli)) == 2
    near = cli("partitions", "retire", "readings", "--exact", *_hours(0, 2), "--yes")
    assert near.code == 3
    assert "lakebed partitions list readings" in near.error


@pytest.fixture
def twins(cli: Cli, weather: Path) -> list[dict[str, Any]]:
    """Hour 0 in both versions: the older one first."""
    _register(cli, weather, readings(2))
    file = _rows_file(weather, version=2)
    assert cli("partitions", "publish", "readings", file, *_hours(0, 1)).code == 0
    found = _listed(cli, *_hours(0, 1))
    return sorted(found, key=lambda each: each["file_schema_hash"] != readings().schema_hash.hex())


def test_twins_are_told_apart_by_their_schema_hash(
    cli: Cli, weather: Path, twins: list[dict[str, Any]]
) -> None:
    older, newer = twins
    exact = ["partitions", "retire", "readings", "--exact", *_hours(0, 1), "--yes"]
    with _unchanged(weather):
        ran = cli(*exact)
    assert ran.code == 4
    assert older["file_schema_hash"] in ran.error
    assert newer["file_schema_hash"] in ran.error
    assert cli(*exact, "--schema-hash", older["file_schema_hash"]).code == 0
    assert _listed(cli, *_hours(0, 1)) == [newer]


def test_a_schema_hash_may_be_given_as_tables_show_it(
    cli: Cli, twins: list[dict[str, Any]]
) -> None:
    exact = ["partitions", "retire", "readings", "--exact", *_hours(0, 1), "--yes"]
    assert cli(*exact, "--schema-hash", twins[0]["file_schema_hash"][:12]).code == 0


@pytest.mark.parametrize(
    "options",
    [
        pytest.param([*_hours(0, 1), "--schema-hash", "HASH"], id="hash without exact"),
        pytest.param(["--incompatible", *_hours(0, 1)], id="incompatible in a range"),
        pytest.param(["--incompatible", "--instance", "host-1"], id="incompatible of an instance"),
        pytest.param(["--file", "FILE", *_hours(0, 1)], id="file in a range"),
        pytest.param([*_hours(0, 1), "--allow-loss"], id="loss without incompatible"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    cli: Cli, weather: Path, twins: list[dict[str, Any]], options: list[str]
) -> None:
    named = {"HASH": twins[0]["file_schema_hash"], "FILE": twins[0]["file_path"]}
    given = [named.get(option, option) for option in options]
    with _unchanged(weather):
        ran = cli("partitions", "retire", "readings", *given, "--yes")
    assert ran.code == 2
    assert ran.error


def test_a_partition_is_retired_by_its_file_with_a_warning(cli: Cli, weather: Path) -> None:
    first, *others = _listed(cli)
    ran = cli("partitions", "retire", "--file", first["file_path"], "--yes")
    assert ran.code == 0
    assert "warning: retiring by file is deprecated" in ran.err
    assert _listed(cli) == others


def test_incompatible_partitions_are_retired_in_part_unless_loss_is_allowed(
    cli: Cli, weather: Path
) -> None:
    _register(cli, weather, readings(2))
    retire = ["partitions", "retire", "readings", "--incompatible"]
    with _unchanged(weather):
        plan = cli(*retire)
    assert plan.code == 0
    assert "warning: 2 of them cannot be rebuilt" in plan.err
    part = cli(*retire, "--yes", "--json")
    assert part.code == 5
    assert part.err.endswith("although they cannot be rebuilt: --allow-loss\n")
    (summary,) = part.json
    assert (summary["partitions_retired"], summary["partitions_failed"]) == (1, 2)
    assert [message.split(":")[0] for message in summary["retirement_messages"]] == [
        "ERROR",
        "ERROR",
        "SUCCESS",
    ]
    rest = cli(*retire, "--allow-loss", "--yes", "--json")
    assert (rest.code, rest.json[0]["partitions_retired"]) == (0, 2)
    assert rest.json[0]["storage_freed_bytes"] > 0
    assert _listed(cli) == []


def test_a_summary_of_incompatible_partitions_has_the_keys_of_other_answers(
    cli: Cli, weather: Path
) -> None:
    _register(cli, weather, readings(2))
    ran = cli("partitions", "retire", "--incompatible", "--yes", "--json")
    assert list(ran.json[0]) == [
        "view_set_name",
        "view_instance_id",
        "partitions_retired",
        "partitions_failed",
        "storage_freed_bytes",
        "retirement_messages",
    ]


def test_what_is_older_than_its_retention_is_retired_for_good(cli: Cli, weather: Path) -> None:
    none = cli("partitions", "retire", "readings", "--expired", "--yes")
    assert none.code == 2
    assert "has no retention" in none.error
    _register(cli, weather, readings(retention_us=HOUR))
    with _unchanged(weather):
        assert (
            "retire 3 partitions (1 empty)"
            in cli("partitions", "retire", "readings", "--expired").err
        )
    assert cli("partitions", "retire", "readings", "--expired", "--yes").code == 0
    assert _listed(cli) == []
    late = cli("partitions", "publish", "readings", _rows_file(weather), *_hours(0, 1))
    assert late.code == 4
    assert "keeps nothing from before" in late.error


def test_a_held_range_stays_away_until_it_is_restored(cli: Cli, weather: Path) -> None:
    held = cli("partitions", "retire", "readings", "--exact", *_hours(0, 1), "--hold", "--yes")
    assert held.code == 0
    refused = cli("partitions", "publish", "readings", _rows_file(weather), *_hours(0, 1))
    assert refused.code == 4
    advice = refused.error.rpartition("restore it first: lakebed ")[2]
    assert cli(*shlex.split(advice)).code == 0
    assert len(_listed(cli)) == 3


def test_retiring_most_of_a_view_set_must_be_confirmed_by_name(
    cli: Cli, weather: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKEBED_BREAKER_PARTITIONS", "2")
    retire = ["partitions", "retire", "readings", *_hours(0, 9)]
    assert "this is most of readings: it needs --confirm readings" in cli(*retire).err
    with _unchanged(weather):
        ran = cli(*retire, "--yes", "--confirm", "others")
    assert ran.code == 4
    assert ran.err.splitlines()[-1].startswith("error: this would retire most of readings ")
    assert ran.err.endswith("--confirm readings\n")
    assert cli(*retire, "--yes", "--confirm", "readings").code == 0
    assert _listed(cli) == []


def test_a_retirement_of_nothing_is_no_error(cli: Cli, weather: Path) -> None:
    with _unchanged(weather):
        ran = cli("partitions", "retire", "readings", *_hours(7, 8), "--yes")
    assert ran.code == 0
    assert "nothing to retire" in ran.err


# ---- restoring ----------------------------------------------------------------------------------


def test_a_retired_partition_comes_back_once(cli: Cli, weather: Path) -> None:
    cli("partitions", "retire", "readings", *_hours(0, 1), "--yes")
    (retired,) = [each for each in _listed(cli, "--retired") if each["retired_at"]]
    ran = cli("partitions", "restore", retired["partition_id"], "--json")
    assert ran.code == 0
    (restored,) = ran.json
    assert restored["file_path"] == retired["file_path"]
    assert restored in _listed(cli)
    with _unchanged(weather):
        again = cli("partitions", "restore", retired["partition_id"])
    assert again.code == 4
    assert "was restored already" in again.error


def _retire_two(cli: Cli) -> list[str]:
    cli("partitions", "retire", "readings", *_hours(0, 2), "--yes")
    return [each["partition_id"] for each in _listed(cli, "--retired") if each["retired_at"]]


def test_several_partitions_come_back_at_once(cli: Cli, weather: Path) -> None:
    restored = cli("partitions", "restore", *_retire_two(cli), "--json")
    assert len(restored.json) == 2
    assert len(_listed(cli)) == 3


def test_restoring_several_is_all_or_nothing(cli: Cli, weather: Path) -> None:
    ids = _retire_two(cli)
    with _unchanged(weather):
        ran = cli("partitions", "restore", ids[0], "nobody", ids[1])
    assert ran.code == 3
    assert "nobody" in ran.error


# ---- sweeping -----------------------------------------------------------------------------------


def test_a_sweep_shows_its_plan_and_deletes_when_told_to(cli: Cli, hasty: Path) -> None:
    cli("partitions", "retire", "readings", *_hours(1, 3), "--yes")
    retired, empty = (each for each in _listed(cli, "--retired") if each["retired_at"])
    with _unchanged(hasty):
        plan = cli("sweep")
        as_json = cli("sweep", "--json")
    assert (plan.code, plan.out) == (0, "")
    assert retired["file_path"] in plan.err
    assert "forget 1 empty partition" in plan.err
    assert plan.err.endswith("Nothing was changed. Repeat with --yes.\n")
    assert [file["file_path"] for file in as_json.json["expired"]] == [retired["file_path"]]
    assert [each["partition_id"] for each in as_json.json["empty_partitions"]] == [
        empty["partition_id"]
    ]
    done = cli("sweep", "--yes")
    assert done.code == 0
    assert re.match(r"swept 1 file \(.* B\), 1 empty partition, ", done.out)
    assert not _file_of(hasty, retired).exists()
    assert len(_listed(cli, "--retired")) == 1
    assert cli("check", "--level", "pages").code == 0


def test_a_sweep_keeps_what_may_still_be_restored(cli: Cli, weather: Path) -> None:
    cli("partitions", "retire", "readings", *_hours(0, 3), "--yes")
    with _unchanged(weather):
        plan = cli("sweep")
        assert "kept: 2 in their grace period" in plan.err
        assert plan.err.endswith("Nothing to sweep.\n")
        done = cli("sweep", "--yes", "--json")
    assert (done.json["files"], done.json["empty_partitions"]) == (0, 0)


# ---- checking -----------------------------------------------------------------------------------


def test_a_clean_lake_is_told_in_one_line(cli: Cli, weather: Path) -> None:
    ran = cli("check", "--level", "pages")
    assert (ran.code, ran.err) == (0, "")
    assert re.fullmatch(
        r"clean: 3 partitions, 0 segments, 0 blocks, 2 files, 6 rows, .* down to pages\n", ran.out
    )
    report = cli("check", "--json").json
    assert report["clean"] is True
    counts = ["partitions", "files", "rows", "bytes", "segments", "blocks"]
    assert list(report) == ["clean", "level", *counts, "findings"]


def test_a_damaged_lake_is_told_by_exit_code_and_name(cli: Cli, weather: Path) -> None:
    damaged = _listed(cli)[1]
    file = _file_of(weather, damaged)
    file.write_bytes(file.read_bytes()[:-1])
    ran = cli("check")
    assert ran.code == 1
    assert damaged["file_path"] in ran.out
    assert "\nDAMAGED: " in ran.out
    as_json = cli("check", "--json")
    assert (as_json.code, as_json.json["clean"]) == (1, False)
    (finding,) = as_json.json["findings"]
    assert list(finding) == ["severity", "kind", "subject", "message", "modified", "journaled"]
    assert (finding["severity"], finding["subject"]) == ("damage", damaged["file_path"])
    assert cli("check", "--level", "catalog").code == 0


@pytest.mark.parametrize("restored", [False, True])
def test_a_missing_file_is_damage_also_of_a_restored_partition(
    cli: Cli, weather: Path, restored: bool
) -> None:
    missing = _listed(cli)[0]
    older: list[str] = []
    while restored and (not older or missing["partition_id"] < min(older)):  # rows are met by id
        older.append(missing["partition_id"])
        cli("partitions", "retire", "readings", *_hours(0, 1), "--yes")
        (missing,) = cli("partitions", "restore", missing["partition_id"], "--json").json
    _file_of(weather, missing).unlink()
    ran = cli("check", "--json")
    assert (ran.code, ran.json["clean"]) == (1, False)
    assert [each["subject"] for each in ran.json["findings"]] == [missing["file_path"]]


def test_strays_are_warnings(cli: Cli, weather: Path) -> None:
    (weather / "store" / "stray.txt").write_text("hello")
    ran = cli("check")
    assert ran.code == 0
    assert "stray.txt" in ran.out
    assert "\nclean: " in ran.out


def test_a_file_is_set_aside_only_when_told_to(cli: Cli, weather: Path) -> None:
    first, *others = _listed(cli)
    with _unchanged(weather):
        plan = cli("check", "--quarantine", first["file_path"])
    assert (plan.code, plan.out) == (0, "")
    assert "Nothing was changed. Repeat with --yes." in plan.err
    done = cli("check", "--quarantine", first["file_path"], "--yes")
    assert done.code == 0
    assert done.out.startswith(f"{first['file_path']}: retired readings/global")
    assert _listed(cli) == others
    assert _file_of(weather, first).exists()
    assert cli("journal", "--limit", 1, "--json").json[0]["operation"] == "quarantine"


def test_a_folder_is_not_set_aside(cli: Cli, weather: Path) -> None:
    with _unchanged(weather):
        assert cli("check", "--quarantine", "partitions", "--yes").code == 3


# ---- journal, leases, backup, migrate -----------------------------------------------------------


def test_the_journal_tells_the_newest_first(cli: Cli, weather: Path) -> None:
    cli("partitions", "retire", "readings", *_hours(0, 1), "--yes")
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


def test_a_backup_is_a_lake_and_becomes_one_again(cli: Cli, weather: Path, tmp_path: Path) -> None:
    made = cli("backup", "create", "copy")
    assert made.code == 0
    assert made.out.startswith("copied 2 files (")
    back = cli("backup", "restore", "copy", "back")
    assert back.code == 0
    wanted = _listed(cli)
    for folder in ("copy", "back"):
        assert cli("check", "--level", "pages", "--lake", folder).code == 0
        assert _listed(cli, "--lake", folder) == wanted
    with _unchanged(tmp_path / "back"):
        again = cli("backup", "restore", "copy", "back")
    assert again.code == 4
    assert "there is a lake already" in again.error


def test_a_backup_of_a_damaged_lake_is_no_backup(cli: Cli, weather: Path, tmp_path: Path) -> None:
    missing = _listed(cli)[0]
    _file_of(weather, missing).unlink()
    ran = cli("backup", "create", "copy")
    assert ran.code == 1
    assert missing["file_path"] in ran.error
    assert cli("partitions", "list", "--lake", "copy").code == 3


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


# ---- wrong calls --------------------------------------------------------------------------------

RANGE = _hours(5, 6)
RETIRE = ["partitions", "retire", "readings"]
PUBLISH = ["partitions", "publish", "readings"]
UNREACHABLE = "postgresql://ada:secret@127.0.0.1:1/lake"


@pytest.fixture
def files(weather: Path) -> Path:
    """Files to give to commands, next to a lake."""
    folder = weather.parent
    _rows_file(folder)
    pq.write_table(rows(0), folder / "norows.parquet")
    pq.write_table(rows(1).drop_columns("number"), folder / "narrow.parquet")
    (folder / "text.parquet").write_text("this is no Parquet file, whatever its name says")
    (folder / "empty.parquet").touch()
    (folder / "text.json").write_text("hello")
    (folder / "list.json").write_text("[]")
    (folder / "part.json").write_text('{"name": "others"}')
    (folder / "typo.json").write_text(readings(name="others").definition().replace("int64", "int"))
    (folder / "bytes.json").write_bytes(b"\xff\xfe")
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
        (["check", "--lake", "nowhere"], 3, "there is no lake in"),
        (["check", "--lake", "rows1.parquet"], 3, "there is no lake in"),
        (["backup", "restore", "nowhere", "back"], 3, "there is no lake in"),
        (["migrate", "--lake", "nowhere"], 3, "there is no lake in"),
        # times
        (["partitions", "list", "--as-of", "2026-01-01T00:00"], 2, "has no zone"),
        (["partitions", "list", "--as-of", "yesterday"], 2, "cannot read 'yesterday' as a time"),
        ([*RETIRE, "--begin", "2026-01-01", "--end", "2026-01-02", "--yes"], 2, "has no zone"),
        ([*RETIRE, "--begin", "2026-01-02T00Z", "--end", "2026-01-01T00Z"], 2, "runs backwards"),
        ([*RETIRE, "--begin", "2026-01-01T00Z", "--end", "2026-01-01T00Z"], 2, "is empty"),
        ([*RETIRE, "--begin", "2026-01-01T00Z", "--yes"], 2, "--begin and --end belong together"),
        (["init", "new", "--grace", "forever"], 2, "cannot read 'forever' as a duration"),
        # places
        (["partitions", "retire", "--file", "../../etc/passwd", "--yes"], 2, "not a path inside"),
        (["partitions", "retire", "--file", "/etc/passwd", "--yes"], 2, "not a path inside"),
        (["check", "--quarantine", "../weather/catalog.sqlite3", "--yes"], 2, "not a path inside"),
        (["check", "--quarantine", "../weather/catalog.sqlite3"], 2, "not a path inside"),
        (["check", "--lake", "mysql://host/lake"], 2, "what kind of catalog"),
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
        (["views", "register", "list.json"], 2, "list.json is not a view set definition"),
        (["views", "register", "part.json"], 2, "part.json is not a view set definition"),
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
    with _unchanged(weather):
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


# ---- stdout is data, stderr is talk -------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["views", "list"],
        ["partitions", "list"],
        ["partitions", "list", "--retired"],
        ["partitions", "list", "--incompatible"],
        ["partitions", "publish", "readings", "--completed-empty", *RANGE],
        [*RETIRE, *_hours(0, 2)],
        [*RETIRE, *_hours(0, 2), "--yes"],
        [*RETIRE, *RANGE, "--yes"],
        [*RETIRE, "--incompatible"],
        [*RETIRE, "--incompatible", "--yes"],
        ["sweep"],
        ["sweep", "--yes"],
        ["check"],
        ["journal"],
        ["leases"],
    ],
    ids=" ".join,
)
def test_with_json_the_output_is_one_document_and_nothing_else(
    cli: Cli, weather: Path, command: list[str]
) -> None:
    ran = cli(*command, "--json")
    assert ran.code == 0
    assert ran.json is not None


def test_names_are_printed_as_they_are(cli: Cli, weather: Path) -> None:
    """Tables and talk take square brackets for text, not for markup."""
    file = weather / "store" / "[bold]stray[red] é.txt"
    file.write_text("hello")
    assert "[bold]stray[red] é.txt" in cli("check").out
    as_json = cli("check", "--json")
    assert as_json.json["findings"][0]["subject"] == "[bold]stray[red] é.txt"
    assert "é" in as_json.out


def test_without_a_command_the_help_is_shown(cli: Cli) -> None:
    for group in ([], ["tables"], ["views"], ["partitions"], ["backup"]):
        ran = cli(*group)
        assert ran.code == 2
        assert "Usage: lakebed" in ran.err
        assert "Commands:" in ran.err


def _leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, child in getattr(command, "commands", {}).items():
        yield from _leaves(child, (*path, name))
    if not hasattr(command, "commands"):
        yield path, command


COMMANDS = dict(_leaves(typer.main.get_command(app)))


def test_every_command_is_here() -> None:
    assert {" ".join(path) for path in COMMANDS} == {
        "init",
        "land",
        "build",
        "blocks keep",
        "blocks retire",
        "query",
        "tables create",
        "tables insert",
        "tables list",
        "tables show",
        "tables alter",
        "tables delete",
        "tables restore",
        "tables forget",
        "tables expire",
        "tables import",
        "views list",
        "views show",
        "views define",
        "views register",
        "views remove",
        "partitions list",
        "partitions publish",
        "partitions retire",
        "partitions restore",
        "upkeep",
        "keys create",
        "keys list",
        "keys revoke",
        "serve",
        "config",
        "doctor",
        "sweep",
        "check",
        "journal",
        "leases",
        "backup create",
        "backup restore",
        "migrate",
        "demo",
        "tour",
    }


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_the_help_of_a_command_has_an_example_that_it_takes(
    cli: Cli, path: tuple[str, ...]
) -> None:
    ran = cli(*path, "--help")
    assert (ran.code, ran.err) == (0, "")
    name = " ".join(["lakebed", *path])
    assert f"Example: {name}" in " ".join(ran.out.split())
    examples = " ".join(COMMANDS[path].help.split()).split("Example: ")[1:]
    for example in examples:
        words = shlex.split(re.split(r" \(| > ", example)[0].removeprefix(name))
        with COMMANDS[path].make_context(name, words):
            pass


# ---- as a process -------------------------------------------------------------------------------


def _process(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "lakebed", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_a_process_ends_with_the_code_and_one_line(weather: Path) -> None:
    with (
        _process("--version") as version,
        _process("check", "--json") as clean,
        _process("views", "show", "nothing") as wrong,
        _process("views", "show") as usage,
    ):
        assert version.communicate() == (f"lakebed {lakebed.__version__}\n", "")
        out, err = clean.communicate()
        assert (json.loads(out)["clean"], err) == (True, "")
        out, err = wrong.communicate()
        assert (out, err.count("\n")) == ("", 1)
        assert usage.communicate()[1].count("\n") == 1
    assert [each.returncode for each in (version, clean, wrong, usage)] == [0, 0, 3, 2]


def _left_alone(*arguments: str) -> tuple[int, str]:
    """How a command ends whose output nobody reads, as in `lakebed journal | head -0`."""
    with _process(*arguments) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        talk = process.stderr.read()
    return process.returncode, talk


@pytest.mark.parametrize("arguments", [("journal",), ("journal", "--json")], ids=" ".join)
def test_a_reader_that_went_away_is_no_news(weather: Path, arguments: tuple[str, ...]) -> None:
    _code, talk = _left_alone(*arguments)
    assert talk == ""


def test_a_reader_that_went_away_is_no_failure(weather: Path) -> None:
    assert _left_alone("journal")[0] == 0
