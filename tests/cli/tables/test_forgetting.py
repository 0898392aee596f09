"""What belongs to one device is forgotten, and what is old expires."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lakebed.opening import open_lake
from lakebed.settings import Settings
from tests.cli.parts import Cli
from tests.cli.tables.parts import RING, UNCHANGED, rows_of, write
from tests.tables.parts import sweep, sweep_all


def test_forgetting_shows_its_plan_and_acts_when_told(cli: Cli) -> None:
    cli("insert", "home.pulse", write("r.json", [{**RING, "bpm": 61}]))
    planned = cli("forget", "home.pulse", "device=ring-7")
    assert re.search(r"^2026-11-16 +live +2 +2$", planned.out, re.M)
    assert "plan: write again or condemn 2 stored rows in 2 partitions" in planned.err
    assert len(rows_of()) == 2
    done = cli("forget", "home.pulse", "device=ring-7", "--yes")
    assert "forgot 2 stored rows in 2 partitions of home.pulse" in done.out
    assert rows_of() == [("watch-1", 70)]
    again = cli("forget", "home.pulse", "device=ring-7", "--json").json
    assert again == {"done": False, "rows": 0, "partitions": [], "quarantined": []}


def test_json_is_read_as_json(cli: Cli) -> None:
    write("schema.json", {"time": "datetime", "j": "json"})
    assert cli("create", "home.loose", "--schema", "schema.json").code == 0
    cli("insert", "home.loose", write("l.json", [{"time": RING["time"], "j": {"x": [1, "é"]}}]))
    assert cli("forget", "home.loose", 'j={"x": [1, "é"]}', "--json").json["rows"] == 1
    assert cli("forget", "home.loose", 'j={"x": [2]}', "--json").json["rows"] == 0
    assert "'{' is no JSON, as column j is" in cli("forget", "home.loose", "j={").error


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
    assert rows_of() == UNCHANGED


def test_what_is_among_the_rejects_is_forgotten_too(cli: Cli) -> None:
    bad = [{"device": "ring-7"}, {"device": "ring-8"}, {"device": "nobody"}]
    cli("insert", "home.pulse", write("r.json", bad), "--on-error", "keep")
    forgotten = cli("forget", "home.pulse", "device=nobody", "--yes")
    assert (forgotten.code, forgotten.out.count("forgot 1 stored row")) == (0, 1)
    forgotten = cli("forget", "home.pulse_rejects", "position=0", "--yes")
    assert forgotten.code == 0
    assert "forgot 1 stored row" in forgotten.out


def test_what_imports_set_aside_is_named_and_can_be_condemned(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "half.parquet").write_bytes(b"PAR1 ring-7")
    cli("import", "old", "home.pulse", "--yes")
    told = cli("forget", "home.pulse", "device=ring-7")
    assert "warning: imports into home.pulse set 1 file aside" in told.err
    (path,) = cli("forget", "home.pulse", "device=ring-7", "--json").json["quarantined"]
    assert path in told.err
    kept = tmp_path / "lake" / "store" / path
    planned = cli("--condemn", path, group="check")
    assert f"would let a sweep delete {path} (11 B), set aside because: import" in planned.err
    assert "Nothing was changed" in planned.err
    assert cli("--condemn", path, "--yes", group="check").code == 0
    assert cli("--condemn", path, group="check").code == 4
    assert cli("forget", "home.pulse", "device=ring-7", "--json").json["quarantined"] == []
    with open_lake("lake", settings=Settings()) as lake:
        sweep(lake)
        assert kept.exists(), "a grace period runs"
        sweep_all(lake)
    assert not kept.exists()


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
        write("r.json", [{**RING, "device": "a", "time": "2001-01-01T00:00:00Z"}]),
    )
    planned = cli("expire", "home.pulse")
    assert "plan: retire 1 bucket of home.pulse, 1 partition, " in planned.err
    assert len(rows_of()) == 3
    done = cli("expire", "home.pulse", "--yes")
    assert done.out.splitlines()[-1].startswith("retired 1 bucket of home.pulse")
    assert rows_of() == UNCHANGED
    told = cli("expire", "home.pulse", "--json").json
    assert told == {"done": False, "buckets": [], "warnings": [], "needs_confirmation": False}


def test_most_of_a_table_expires_only_when_confirmed(cli: Cli) -> None:
    cli("alter", "home.pulse", "--keep", "3650d")
    days = [{**RING, "device": f"a{d}", "time": f"2001-01-{d:02}T00:00:00Z"} for d in range(1, 12)]
    cli("insert", "home.pulse", write("r.json", days))
    assert "it needs --confirm home.pulse" in cli("expire", "home.pulse").err
    refused = cli("expire", "home.pulse", "--yes")
    assert refused.code == 4
    assert "add: --confirm home.pulse" in refused.error
    assert len(rows_of()) == 13
    assert cli("expire", "home.pulse", "--yes", "--confirm", "home.pulse").code == 0
    assert rows_of() == UNCHANGED


def test_what_must_stay_is_explained(cli: Cli) -> None:
    cli("alter", "home.pulse", "--keep", "3650d")
    cli("insert", "home.pulse", write("r.json", [{**RING, "time": "2001-01-01T00:00:00Z"}]))
    told = cli("expire", "home.pulse", "--yes")
    assert "warning: 1 old partition of home.pulse stays" in told.err
    assert rows_of() == UNCHANGED
