"""Every operation logs its start, its end with counts, and why it failed; the debug log has
statements and files. Secrets are in neither.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lakebed import logs
from lakebed.access.keys import Role
from lakebed.errors import BadPayload, BadRecords, LakebedError, Overlap, Refused
from lakebed.lake import Lake
from lakebed.logs import Operation, mask_secrets
from lakebed.opening import init_lake
from lakebed.samples.generator import Generator
from tests.conftest import NewLake
from tests.parts.building import land
from tests.parts.data import HOUR, T0, publish_hour, readings, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Find = Callable[[str], list[dict[str, Any]]]


@pytest.fixture
def find(caplog: pytest.LogCaptureFixture) -> Find:
    """Find the records whose message begins like this, as they would be printed."""
    caplog.set_level(logging.DEBUG, logger="lakebed")
    formatter = logs.JsonLines()

    def find_records(beginning: str) -> list[dict[str, Any]]:
        records = [json.loads(formatter.format(record)) for record in caplog.records]
        return [record for record in records if record["message"].startswith(beginning)]

    return find_records


def check_pair(find: Find, name: str) -> dict[str, Any]:
    """Check that an operation started and ended once, and return the record of its end."""
    (started,) = find(f"{name} started")
    (ended,) = find(f"{name} ended")
    assert started["level"] == ended["level"] == "info"
    assert started["process"] == ended["process"] == os.getpid()
    assert started["thread"] == ended["thread"] == "MainThread"
    assert ended["seconds"] >= 0
    return ended


def figures_of(record: dict[str, Any]) -> dict[str, Any]:
    """Return what an operation adds to a record, without the seconds that it took."""
    common = {"time", "level", "logger", "message", "process", "thread", "seconds"}
    return {name: value for name, value in record.items() if name not in common}


def test_land_logs_counts(lake: Lake, find: Find) -> None:
    body = Generator(1).logs(20).SerializeToString()
    receipt = lake.telemetry.land("logs", body)
    ended = check_pair(find, "land")
    figures = {"signal": "logs", "body_bytes": len(body), "blocks": receipt.blocks, "records": 20}
    assert figures_of(ended) == figures | {"duplicates": 0, "rejected": 0}
    lake.telemetry.land("logs", body)
    repeated = find("land ended")[1]
    duplicates = {"blocks": 0, "records": 0, "duplicates": receipt.blocks, "rejected": 0}
    assert figures_of(repeated) == figures | duplicates


def test_land_of_a_damaged_request_logs_the_reason_without_a_warning(
    lake: Lake, find: Find
) -> None:
    with pytest.raises(BadPayload) as raised:
        lake.telemetry.land("logs", b"\xff\xff")
    (failed,) = find("land failed")
    assert failed["message"] == f"land failed: {raised.value}"
    assert failed["level"] == "info"


def test_land_file_logs_counts(lake: Lake, find: Find, tmp_path: Path) -> None:
    path = tmp_path / "request.pb"
    path.write_bytes(Generator(1).logs(20).SerializeToString())
    lake.telemetry.land_file(path, signal="logs")
    ended = figures_of(check_pair(find, "land file"))
    blocks = ended.pop("blocks")
    assert ended == {"file": str(path), "requests": 1, "records": 20, "duplicates": 0}
    assert blocks > 0


def test_publish_logs_counts_and_a_refused_one_its_reason(lake: Lake, find: Find) -> None:
    lake.views.register(readings())
    partition = publish_hour(lake, 0, 3)
    assert figures_of(check_pair(find, "publish")) == {
        "view_sets": ["readings"],
        "ranges": [str(partition.insert_range)],
        "partitions": 1,
        "replaces": 0,
        "rows": 3,
        "bytes": partition.file_size,
        "tick": partition.published_at,
    }
    with pytest.raises(Overlap) as raised:
        publish_hour(lake, 0, 3)
    (failed,) = find("publish failed")
    assert failed["message"] == f"publish failed: {raised.value}"
    assert failed["level"] == "info"
    assert failed["ranges"] == [str(partition.insert_range)]


def test_publish_of_a_range_that_has_not_ended_logs_its_reason(lake: Lake, find: Find) -> None:
    """Refused before a file is written."""
    lake.views.register(readings())
    with pytest.raises(Exception, match="ends after"):
        lake.partitions.publish("readings", T0, T0 + 10**6 * HOUR, rows(3))
    (failed,) = find("publish failed")
    assert "ends after" in failed["message"]


def test_retire_restore_and_sweep_log_counts(lake: Lake, find: Find) -> None:
    lake.views.register(readings())
    partition = publish_hour(lake, 0, 3)
    lake.retirement.retire_partitions("readings", T0, T0 + HOUR, confirmed=["readings"])
    assert figures_of(check_pair(find, "retire")) == {
        "view_sets": ["readings"],
        "reason": f"retired by range {partition.insert_range}",
        "partitions": 1,
        "bytes": partition.file_size,
    }
    restored = lake.retirement.restore(partition.partition_id)
    assert figures_of(check_pair(find, "restore")) == {
        "partitions": 1,
        "partition_ids": [restored.partition_id],
        "rows": 3,
    }
    with pytest.raises(LakebedError):
        lake.retirement.restore(partition.partition_id)
    assert len(find("restore failed: ")) == 1


def test_hold_logs_its_own_name(lake: Lake, find: Find) -> None:
    lake.views.register(readings())
    publish_hour(lake, 0)
    lake.retirement.retire_partitions("readings", T0, T0 + HOUR, hold=True)
    assert check_pair(find, "hold")["partitions"] == 1
    assert find("retire started") == []


def test_sweep_logs_counts(new_lake: NewLake, find: Find) -> None:
    lake = new_lake(grace="0s")
    lake.views.register(readings())
    filled = [publish_hour(lake, hour) for hour in range(2)]
    publish_hour(lake, 2, 0)
    lake.retirement.retire_partitions("readings", T0, T0 + 3 * HOUR, confirmed=["readings"])
    lake.sweeper.run()
    assert figures_of(check_pair(find, "sweep")) == {
        "files": 2,
        "bytes": sum(partition.file_size for partition in filled),
        "empty_partitions": 1,
        "leases_ended": 0,
        "names_released": 0,
        "journal_entries_dropped": 0,
        "has_more": False,
    }


def test_retire_that_is_refused_logs_the_reason(lake: Lake, find: Find) -> None:
    lake.views.register(readings())
    publish_hour(lake, 0)
    with pytest.raises(Refused) as raised:
        lake.retirement.retire_partitions("readings", T0, T0 + HOUR)
    (failed,) = find("retire failed")
    assert failed["message"] == f"retire failed: {raised.value}"
    assert (failed["level"], failed["view_sets"]) == ("info", ["readings"])


def test_retire_by_sql_logs_counts_and_its_refusal(lake: Lake, find: Find) -> None:
    lake.views.register(readings())
    publish_hour(lake, 0, 0)
    publish_hour(lake, 1)
    sql = "SELECT * FROM retire_partitions('readings', 'global', '{}', '{}')"
    hours = [f"2026-01-01T0{hour}:00:00Z" for hour in range(3)]
    lake.query(sql.format(*hours[:2]), admin=True).to_arrow()
    figures = {"view_sets": ["readings"], "partitions": 1, "restored": 0}
    assert figures_of(check_pair(find, "retire")) == figures
    with pytest.raises(Refused, match="would lose") as raised:
        lake.query(sql.format(*hours[1:]), admin=True).to_arrow()
    (failed,) = find("retire failed")
    assert failed["message"] == f"retire failed: {raised.value}"


def test_restore_by_sql_logs_counts(lake: Lake, find: Find) -> None:
    lake.views.register(readings())
    partition = publish_hour(lake, 0)
    lake.retirement.retire_partitions("readings", T0, T0 + HOUR, confirmed=["readings"])
    lake.query(f"SELECT restore_partition('{partition.partition_id}')", admin=True).to_arrow()
    figures = {"view_sets": [], "partitions": 0, "restored": 1}
    assert figures_of(check_pair(find, "restore")) == figures


def test_insert_and_fold_log_counts(lake: Lake, find: Find) -> None:
    lake.tables.create_database("home")
    schema = {"time": {"type": "datetime", "unique": True}, "bpm": {"type": "int"}}
    table = lake.tables.create_table("home", "pulse", schema)
    times = [f"2026-11-16T05:0{minute}:00Z" for minute in range(3)]
    wrong = {"time": times[0], "bpm": "no number"}
    inserted = table.insert([{"time": time, "bpm": 60} for time in times])
    assert figures_of(check_pair(find, "insert")) == {
        "table": "home.pulse",
        "rows": 3,
        "rejected": 0,
        "tick": inserted.tick,
    }
    assert figures_of(check_pair(find, "publish")) == {
        "table": "home.pulse",
        "operation": "insert",
        "partitions": 1,
        "rows": 3,
        "tick": inserted.tick,
        "repeated": False,
    }
    table.insert([wrong, {"time": times[0], "bpm": 61}], on_error="keep")
    assert find("insert ended")[1]["rejected"] == 1
    with pytest.raises(BadRecords):
        table.insert([wrong])
    (failed,) = find("insert failed")
    assert (failed["level"], failed["table"]) == ("warning", "home.pulse")
    table.fold()
    folded = find("publish ended")[-1]
    [new] = table.partitions()
    assert figures_of(folded) == {
        "table": "home.pulse",
        "operation": "fold",
        "partitions": 1,
        "replaces": 2,
        "rows": 3,
        "bytes": new.file_size,
        "tick": new.published_at,
    }


def test_ticks_tell_whether_a_query_saw_an_insert(lake: Lake, find: Find) -> None:
    """As docs/operating.md shows."""
    lake.tables.create_database("home")
    lake.tables.create_table("home", "pulse", {"time": "datetime"})
    lake.query("SELECT * FROM home.pulse").to_arrow()
    lake.tables.insert("home", "pulse", [{"time": "2026-11-16T05:00:00Z"}])
    lake.query("SELECT * FROM home.pulse").to_arrow()
    before, after = find("query ended")
    inserted = check_pair(find, "insert")
    assert before["tick"] < inserted["tick"] <= after["tick"]
    assert (before["rows"], after["rows"]) == (0, 1)
    assert check_pair(find, "publish")["tick"] == inserted["tick"]


def test_migrate_logs_revisions(
    new_catalog: Callable[..., str], find: Find, tmp_path: Path
) -> None:
    from lakebed.catalog.catalog import Catalog

    catalog = Catalog(new_catalog(blank=True), actor="test")
    revisions = catalog.migrate()
    catalog.close()
    assert check_pair(find, "migrate")["revisions"] == revisions


def test_build_logs_steps_with_counts(lake: Lake, find: Find, spark: SparkSession) -> None:
    land(lake, requests=2)
    report = lake.pipeline.build("log_entries", spark=spark)
    ended = check_pair(find, "build")
    assert (ended["view_sets"], ended["rows"], ended["problems"]) == (["log_entries"], 40, 0)
    assert (ended["steps"], ended["partitions"]) == (len(report.outcomes), len(report.published))
    steps = find("build step ended")
    assert sum(step["rows"] for step in steps) == 40
    assert {step["view_set"] for step in steps} == {"log_entries"}
    assert len(find("build step started")) == len(steps)


def test_data_frames_log_rows(lake: Lake, find: Find, spark: SparkSession) -> None:
    from lakebed.spark import insert, write

    lake.tables.create_database("home")
    lake.tables.create_table("home", "pulse", {"time": "datetime"})
    lake.views.register(readings())
    times = spark.sql("SELECT TIMESTAMP '2026-01-01 00:00:00Z' AS time")
    insert(times, lake, "home.pulse")
    assert check_pair(find, "insert")["rows"] == 1
    numbers = times.selectExpr("time", "bigint(1) AS number")
    write(numbers, lake, "readings", T0, T0 + HOUR)
    assert check_pair(find, "write DataFrame")["rows"] == 1
    with pytest.raises(Overlap):
        write(numbers, lake, "readings", T0, T0 + HOUR)
    assert len(find("write DataFrame failed: ")) == 1


def test_debug_log_has_statements_with_parameters_and_commits(lake: Lake, find: Find) -> None:
    lake.tables.create_database("home")
    statements = find("catalog statement")
    inserted = [record for record in statements if "INSERT INTO" in record["statement"]]
    assert any("home" in json.dumps(record["parameters"]) for record in inserted)
    assert find("catalog commit")


def test_debug_log_has_files_and_folders(lake: Lake, find: Find) -> None:
    lake.views.register(readings())
    partition = publish_hour(lake, 0)
    (created,) = find("object created")
    assert (created["path"], created["bytes"]) == (partition.file_path, partition.file_size)
    folders = [record["path"] for record in find("folder created")]
    assert str(Path(folders[-1])) in str(lake.store.locate(str(partition.file_path)))  # type: ignore[attr-defined]


def test_secrets_of_keys_are_not_logged(lake: Lake, find: Find) -> None:
    new_key = lake.keys.create("shop", [Role.READ])
    lake.keys.check(new_key.secret)
    with pytest.raises(Exception, match="nothing"):
        lake.query(f"SELECT '{new_key.secret}' FROM nothing").to_arrow()
    logged = json.dumps(find(""))
    assert new_key.key.key_id in logged
    secret = new_key.secret.removeprefix(f"lakebed_{new_key.key.key_id}_")
    for hidden in (secret, new_key.key.digest.hex(), repr(new_key.key.digest)):
        assert hidden not in logged
    (inserted,) = [
        record
        for record in find("catalog statement")
        if "INSERT INTO api_keys" in record["statement"]
    ]
    assert "shop" in json.dumps(inserted["parameters"])


def test_passwords_in_addresses_are_masked() -> None:
    line = mask_secrets('{"catalog": "postgresql://me:pa55@db:5432/lake", "x": "http://h:1/@"}')
    assert line == '{"catalog": "postgresql://me:***@db:5432/lake", "x": "http://h:1/@"}'


def test_operation_without_listeners_formats_nothing() -> None:
    class Figure:
        def __str__(self) -> str:
            raise AssertionError

    log = logging.getLogger("test.silent")
    log.setLevel(logging.CRITICAL)
    with Operation(log, "work", figure=Figure()) as operation:
        operation.add(more=Figure())
    with pytest.raises(ValueError, match="wrong"), Operation(log, "work"):
        raise ValueError("wrong")


def run_cli(folder: Path, level: str, *arguments: str, **variables: str) -> list[dict[str, Any]]:
    """Run a command and return the log records that it printed."""
    done = subprocess.run(
        [sys.executable, "-m", "lakebed", *arguments],
        cwd=folder,
        env=os.environ | {"LAKEBED_LOG": level} | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("{")]
    return [json.loads(line) for line in lines]


def test_commands_print_operations_of_driver_and_tasks(tmp_path: Path) -> None:
    records = run_cli(tmp_path, "info", "init", "shop")
    assert [r["message"] for r in records] == ["migrate started", "migrate ended"]
    with init_lake(tmp_path / "other") as lake:
        land(lake, requests=2)
    records = run_cli(tmp_path, "info", "build", "log_entries", "--lake", "other")
    messages = [record["message"] for record in records]
    for name in ("build", "build step", "build task", "publish"):
        assert f"{name} started" in messages
        assert f"{name} ended" in messages
    (driver,) = {r["process"] for r in records if r["message"] == "publish ended"}
    (task,) = {r["process"] for r in records if r["message"] == "build task ended"}
    assert task != driver
    assert "catalog statement" not in messages
    records = run_cli(tmp_path, "debug", "sweep", "--yes", "--lake", "other")
    messages = [record["message"] for record in records]
    assert {"sweep started", "sweep ended", "catalog statement", "catalog commit"} <= {*messages}
