"""SQL view sets on a real Spark: what they hold is what Python counts over the decoded rows, once
each, however partitions were built, merged, redefined, retired and dropped in between.
"""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakebed.catalog.records import blocks
from lakebed.cli import main
from lakebed.errors import BadDefinition, BadInput
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.model.partition import add_source_hashes, hash_sources
from lakebed.model.source import SqlSource
from lakebed.model.time import TimeRange
from lakebed.pipeline.frames.declare import SparkAnalyser, arrow_schema
from lakebed.pipeline.frames.types import spark_schema
from lakebed.query.embedded import small
from lakebed.samples.generator import Generator
from lakebed.storage.local import LocalStore
from lakebed.views.builtin import built_in
from lakebed.views.sql.declaration import SqlView, read_toml, write_toml
from tests.pipeline.test_build import change_a_byte, land, read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def dialect() -> str:
    """One catalog is enough here: both are in tests/views."""
    return "sqlite"


PER_MINUTE = SqlView(
    "per_minute",
    """
    SELECT date_trunc('minute', time) AS minute, exe, level, count(*) AS records,
           min(time) AS first_time, max(time_unix_nano) AS last_nano, sum(length(msg)) AS characters
    FROM log_entries
    GROUP BY date_trunc('minute', time), exe, level
    """,
    "minute",
    """
    SELECT minute, exe, level, sum(records) AS records, min(first_time) AS first_time,
           max(last_nano) AS last_nano, sum(characters) AS characters
    FROM per_minute
    GROUP BY minute, exe, level
    """,
    ("minute", "exe"),
)
PER_EXE = SqlView(
    "per_exe",
    "SELECT exe, max(minute) AS latest, sum(records) AS records FROM per_minute GROUP BY exe",
    "latest",
    "SELECT exe, max(latest) AS latest, sum(records) AS records FROM per_exe GROUP BY exe",
)


def merged(lake: Lake, name: str) -> pa.Table:
    """A SQL view set as queries read it: through its merge SQL."""
    source = lake.views.get(name).view_set.source
    assert isinstance(source, SqlSource)
    return small.run(source.merge_sql, {name: read(lake, name)})


def counted(lake: Lake) -> Counter[tuple[Any, ...]]:
    rows = merged(lake, "per_minute").to_pylist()
    keys = [(row["minute"], row["exe"], row["level"]) for row in rows]
    assert len(set(keys)) == len(keys)
    return Counter(dict(zip(keys, [row["records"] for row in rows], strict=True)))


def expected(lake: Lake, most: int = 6) -> Counter[tuple[Any, ...]]:
    """The same, counted by Python."""
    return Counter(
        (row["time"].replace(second=0, microsecond=0), row["exe"], row["level"])
        for row in read(lake, "log_entries").to_pylist()
        if row["level"] <= most
    )


def land_logs(lake: Lake, seed: int, records: int = 30) -> None:
    lake.telemetry.land("logs", Generator(seed).logs(records).SerializeToString())


def test_view_sets_over_decoded_rows_and_over_each_other(lake: Lake, spark: SparkSession) -> None:
    definitions = lake.define_views(PER_EXE, PER_MINUTE, spark=spark)
    assert [str(each.change) for each in definitions] == ["created", "created"]
    land(lake, 31)
    report = lake.pipeline.build("per_exe", spark=spark)
    assert report.problems == []
    entries = read(lake, "log_entries").to_pylist()
    assert counted(lake) == expected(lake)
    for row in merged(lake, "per_minute").to_pylist():
        group = [
            each
            for each in entries
            if each["time"].replace(second=0, microsecond=0) == row["minute"]
            and (each["exe"], each["level"]) == (row["exe"], row["level"])
        ]
        assert row["first_time"] == min(each["time"] for each in group)
        nanos = [each["time_unix_nano"] for each in group if each["time_unix_nano"] is not None]
        assert row["last_nano"] == max(nanos, default=None)
        assert row["characters"] == sum(len(each["msg"] or "") for each in group)
    sums = {row["exe"]: row["records"] for row in merged(lake, "per_exe").to_pylist()}
    assert sums == Counter(each["exe"] for each in entries)
    assert lake.checker.run(Level.PAGES).is_clean


def test_every_row_is_counted_once_after_merges_on_both_sides(
    lake: Lake, spark: SparkSession
) -> None:
    """What is read is merged before its reader is built: ranges no longer meet at the same ends."""
    lake.define_views(PER_MINUTE, PER_EXE, spark=spark)
    for seed in range(3):
        land_logs(lake, 40 + seed)
        lake.pipeline.build("log_entries", spark=spark)
    lake.pipeline.build("per_minute", spark=spark)
    for seed in range(3, 6):
        land_logs(lake, 40 + seed)
        lake.pipeline.build("per_minute" if seed % 2 else "log_entries", spark=spark)
    lake.pipeline.build(spark=spark)
    assert len(lake.partitions.list_partitions("log_entries")) < 6
    assert sum(counted(lake).values()) == 180
    assert counted(lake) == expected(lake)
    assert sum(merged(lake, "per_exe")["records"].to_pylist()) == 180
    assert lake.pipeline.plan().steps == ()


def test_a_view_set_defined_late_holds_everything(lake: Lake, spark: SparkSession) -> None:
    for seed in range(3):
        land_logs(lake, 50 + seed)
        lake.pipeline.build("log_entries", spark=spark)
    lake.define_views(PER_MINUTE, spark=spark)
    lake.pipeline.build("per_minute", spark=spark)
    assert sum(counted(lake).values()) == 90
    assert counted(lake) == expected(lake)


def test_redefining_builds_beside_the_old_partitions(lake: Lake, spark: SparkSession) -> None:
    lake.define_views(PER_MINUTE, PER_EXE, spark=spark)
    land_logs(lake, 60, 60)
    lake.pipeline.build("per_exe", spark=spark)
    few = replace(PER_MINUTE, sql=PER_MINUTE.sql.replace("GROUP BY", "WHERE level <= 3 GROUP BY"))
    definitions = lake.define_views(few, spark=spark)
    assert [(each.view_set.name, each.view_set.version) for each in definitions] == [
        ("per_minute", 2),
        ("per_exe", 2),
    ]
    assert read(lake, "per_minute").num_rows == 0, "the old ones are not the new ones"
    incompatible = lake.retirement.list_incompatible_partitions()
    assert {each.partition.view_set for each in incompatible} == {"per_minute", "per_exe"}
    assert all(each.can_be_rebuilt for each in incompatible)

    report = lake.pipeline.build("per_exe", spark=spark)
    assert {each.step.view_set.name for each in report.published} == {"per_minute", "per_exe"}
    assert counted(lake) == expected(lake, 3)
    assert 0 < sum(counted(lake).values()) < 60
    assert len(lake.retirement.list_incompatible_partitions()) == len(incompatible)
    lake.retirement.retire_incompatible_partitions()
    assert lake.retirement.list_incompatible_partitions() == []
    assert counted(lake) == expected(lake, 3)
    assert lake.pipeline.plan("per_exe").steps == ()
    assert lake.checker.run(Level.PAGES).is_clean


def test_dropping_and_defining_again(lake: Lake, spark: SparkSession) -> None:
    lake.define_views(PER_MINUTE, spark=spark)
    land_logs(lake, 61)
    lake.pipeline.build("per_minute", spark=spark)
    before = counted(lake)
    lake.views.remove("per_minute")
    assert len(lake.retirement.list_incompatible_partitions()) == 1
    lake.define_views(PER_MINUTE, spark=spark)
    assert lake.retirement.list_incompatible_partitions() == []
    assert counted(lake) == before, "the same definition finds what was built"
    lake.views.remove("per_minute")
    lake.retirement.retire_incompatible_partitions("per_minute", allow_loss=True)
    lake.define_views(PER_MINUTE, spark=spark)
    assert read(lake, "per_minute").num_rows == 0
    lake.pipeline.build("per_minute", spark=spark)
    assert counted(lake) == before


def test_a_step_that_fails_is_told_in_its_outcome_alone(
    lake: Lake, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    numbers = SqlView(
        "numbers", "SELECT time, CAST(msg AS INT) AS n FROM log_entries", "time",
        "SELECT * FROM numbers",
    )  # fmt: skip
    lake.define_views(numbers, spark=spark)
    land_logs(lake, 5)
    capfd.readouterr()
    (problem,) = lake.pipeline.build("numbers", spark=spark).problems
    assert "CAST_INVALID_INPUT" in (problem.problem or "")
    assert capfd.readouterr() == ("", "")


def test_a_range_without_rows_is_a_partition_too(lake: Lake, spark: SparkSession) -> None:
    none = replace(PER_MINUTE, sql=PER_MINUTE.sql.replace("GROUP BY", "WHERE level < 0 GROUP BY"))
    lake.define_views(none, spark=spark)
    land_logs(lake, 62)
    lake.pipeline.build("per_minute", spark=spark)
    (partition,) = lake.partitions.list_partitions("per_minute")
    assert partition.is_empty
    assert lake.pipeline.plan("per_minute").steps == ()


def test_joins_lists_maps_and_decimals_are_stored(lake: Lake, spark: SparkSession) -> None:
    lake.define_views(
        SqlView(
            "seen",
            """
            SELECT e.time, e.process_id, e.properties, split(e.msg, ' ') AS words,
                   named_struct('level', e.level, 'target', e.target) AS kind,
                   CAST(e.level AS DECIMAL(10, 2)) AS price, CAST(e.time AS DATE) AS day,
                   p.computer AS "the.computer"
            FROM log_entries e JOIN processes p ON p.process_id = e.process_id
            """,
            "time",
            "SELECT * FROM seen",
        ),
        spark=spark,
    )
    land_logs(lake, 63)
    report = lake.pipeline.build("seen", spark=spark)
    assert [each.problem for each in report.problems] == []
    table = read(lake, "seen")
    assert table.num_rows == 30
    by_words = Counter(" ".join(words) for words in table["words"].to_pylist())
    assert by_words == Counter(read(lake, "log_entries")["msg"].to_pylist())
    assert table.schema.field("price").type == pa.decimal128(10, 2)
    assert "the.computer" in table.column_names


def test_a_block_that_could_not_be_decoded_is_in_no_hash_until_it_can_be(
    lake: Lake, spark: SparkSession
) -> None:
    lake.define_views(PER_MINUTE, PER_EXE, spark=spark)
    for seed in range(4):
        land_logs(lake, 70 + seed)
    with lake.catalog.read() as connection:
        landed = blocks.list_blocks(connection, TimeRange(0, 1 << 60))
    bad = landed[len(landed) // 2]
    before = change_a_byte(lake, bad)
    lake.pipeline.build(spark=spark)
    assert [each.block_id for each in lake.pipeline.list_failures()] == [bad.block_id]

    def require_hashes(ids: set[str]) -> None:
        """Of the decoded rows, of SQL over them, and of SQL over that: a sum over blocks."""
        assert set(read(lake, "log_entries")["block_id"].to_pylist()) == ids
        for name in ("log_entries", "log_stats", "per_minute", "per_exe"):
            hashes = [each.source_hash for each in lake.partitions.list_partitions(name)]
            assert add_source_hashes(hashes) == hash_sources(ids), name
        assert sum(merged(lake, "per_exe")["records"].to_pylist()) == sum(
            each.nb_objects for each in landed if each.block_id in ids
        )

    everything = {each.block_id for each in landed}
    require_hashes(everything - {bad.block_id})
    assert isinstance(lake.store, LocalStore)
    Path(lake.store.locate(bad.segment_path)).write_bytes(before)
    assert lake.pipeline.retry_failures("measures") == 0
    assert lake.pipeline.retry_failures("per_exe") == 1, "of what it reads, too"
    assert lake.pipeline.build("per_exe", "log_stats", spark=spark).problems == []
    require_hashes(everything)
    assert counted(lake) == expected(lake)


def test_a_part_that_is_built_by_itself_loses_nothing_before_it(
    lake: Lake, spark: SparkSession
) -> None:
    """Partitions across the beginning are replaced; what they held from before is read again."""
    lake.define_views(PER_MINUTE, PER_EXE, spark=spark)
    lake.pipeline.limits = replace(lake.pipeline.limits, merge_rows=46)
    land_logs(lake, 80, 400)
    lake.pipeline.build("per_exe", spark=spark)
    land_logs(lake, 81, 20)
    lake.pipeline.build("per_exe", spark=spark)
    for seed in (82, 83):
        land_logs(lake, seed, 20)
        lake.pipeline.build("per_minute", spark=spark)
    large, small = lake.partitions.list_partitions("per_minute")
    (own,) = lake.partitions.list_partitions("per_exe")
    assert own.insert_range.begin == large.insert_range.begin
    assert small.insert_range.begin < own.insert_range.end < small.insert_range.end
    lake.pipeline.build("per_exe", begin=own.insert_range.end - 1, spark=spark)
    assert sum(merged(lake, "per_exe")["records"].to_pylist()) == 460
    (own,) = lake.partitions.list_partitions("per_exe")
    assert own.insert_range == TimeRange(large.insert_range.begin, small.insert_range.end)


@pytest.mark.campaign
def test_building_goes_on_over_frozen_partitions(lake: Lake, spark: SparkSession) -> None:
    """Their blocks are gone: they are read, merged SQL grows over them, and nothing is lost."""
    lake.define_views(PER_MINUTE, PER_EXE, spark=spark)
    lake.pipeline.limits = replace(lake.pipeline.limits, merge_rows=46)
    land_logs(lake, 80, 400)
    lake.pipeline.build(spark=spark)
    land_logs(lake, 81, 20)
    lake.pipeline.build(spark=spark)
    with lake.catalog.read() as connection:
        landed = blocks.list_blocks(connection, TimeRange(0, 1 << 60))
    for seed in (82, 83):
        land_logs(lake, seed, 20)
        lake.pipeline.build("per_minute", spark=spark)
    plan = lake.blocks.plan_before(landed[-1].insert_time + 1)
    assert (plan.blocks, plan.unbuilt) == (len(landed), ())
    lake.blocks.carry_out(plan)
    assert lake.pipeline.build(spark=spark).problems == []
    assert read(lake, "log_entries").num_rows == 460
    assert sum(merged(lake, "per_exe")["records"].to_pylist()) == 460
    assert counted(lake) == expected(lake)
    hashes = [each.source_hash for each in lake.partitions.list_partitions("per_exe")]
    ids = set(read(lake, "log_entries")["block_id"].to_pylist())
    assert add_source_hashes(hashes) == hash_sources(ids), "also of those that are gone"
    assert lake.pipeline.plan().steps == ()
    assert lake.checker.run(Level.PAGES).is_clean


# ---- what Spark says ----------------------------------------------------------------------------


def test_arrow_and_spark_schemas_are_each_other_turned_round() -> None:
    for view_set in built_in():
        there = spark_schema(view_set)
        again = replace(view_set, schema=arrow_schema(there), source=None)
        assert spark_schema(again) == there


@pytest.mark.parametrize(
    ("column", "said"),
    [
        ("NULL", "column x is void"),
        ("make_interval(1)", "column x is interval"),
        ("INTERVAL '1' DAY", "column x is interval day"),
        ("parse_json('1')", "column x is variant"),
        ("array(NULL)", "column x.element is void"),
        ("named_struct('a', map('b', INTERVAL '1' DAY))", "column x.a.value is interval day"),
        ("msg COLLATE UNICODE_CI", "column x is string collate UNICODE_CI"),
    ],
)
def test_columns_that_cannot_be_stored_are_named(
    spark: SparkSession, column: str, said: str
) -> None:
    sources = {each.name: each for each in built_in() if each.name == "log_entries"}
    with SparkAnalyser(spark) as analyser, pytest.raises(BadInput) as caught:
        analyser.columns_of(f"SELECT time, {column} AS x FROM log_entries", sources)
    assert str(caught.value).startswith(said)


def test_spark_is_asked_quietly_and_without_a_job(
    lake: Lake, spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("declaring", "")
    try:
        lake.define_views(PER_MINUTE, spark=spark)
        wrong = replace(PER_MINUTE, sql=PER_MINUTE.sql.replace("count(*)", "max(nothing)"))
        with pytest.raises(BadDefinition, match=r"spark refuses sql: \[UNRESOLVED_COLUMN"):
            lake.define_views(wrong, spark=spark)
        assert list(tracker.getJobIdsForGroup("declaring")) == []
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
    assert capfd.readouterr().err == ""
    assert not any(table.name == "log_entries" for table in spark.catalog.listTables())


# ---- the command line ---------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = main.run([str(each) for each in arguments])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_view_sets_are_defined_shown_and_removed_from_the_command_line(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("--lake", tmp_path / "lake")
    assert run(capsys, "init", tmp_path / "lake")[0] == 0
    files = []
    for view in (PER_EXE, PER_MINUTE):
        files.append(tmp_path / f"{view.name}.toml")
        files[-1].write_text(write_toml(view))
    code, out, _ = run(capsys, "views", "define", *files, *place)
    assert (code, out) == (0, "per_minute version 1: created\nper_exe version 1: created\n")
    code, out, _ = run(capsys, "views", "show", "per_minute", "--toml", *place)
    assert read_toml(out, "shown") == PER_MINUTE
    files[1].write_text(out)
    _, out, _ = run(capsys, "views", "define", files[1], *place)
    assert out == "per_minute version 1: unchanged\n"
    _, out, _ = run(capsys, "views", "list", *place)
    assert out.splitlines()[0].split()[-2:] == ["source", "keep"]
    _, out, _ = run(capsys, "views", "list", "--json", *place)
    listed = {row["view_set_name"]: row["source"] for row in json.loads(out)}
    assert listed["per_exe"] == "sql over per_minute"
    assert listed["per_minute"] == "sql over log_entries"
    assert listed["log_entries"] == "blocks: logs"
    assert listed["blocks"] == "blocks"

    changed = replace(PER_MINUTE, sql=PER_MINUTE.sql.replace("count(*)", "count(level)"))
    files[1].write_text(write_toml(changed))
    _, out, err = run(capsys, "views", "define", files[1], *place)
    assert out == (
        "per_minute version 2: evolved\nper_exe version 2: evolved, because it reads per_minute\n"
    )
    assert "lakebed partitions retire --incompatible" in err

    code, out, err = run(capsys, "views", "remove", "per_minute", *place)
    assert (code, out) == (4, "")
    assert "view set per_minute is read by per_exe" in err
    code, _, err = run(capsys, "views", "remove", "spans", "--yes", *place)
    assert code == 4
    assert "view set spans is built in" in err
    for name in ("per_exe", "per_minute"):
        assert run(capsys, "views", "remove", name, "--yes", *place)[0] == 0


def test_what_is_wrong_is_said_in_a_line_each(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ("--lake", tmp_path / "lake")
    assert run(capsys, "init", tmp_path / "lake")[0] == 0
    wrong = tmp_path / "wrong.toml"
    wrong.write_text("name = 3\n")
    missing = tmp_path / "missing.toml"
    code, out, err = run(capsys, "views", "define", wrong, missing, *place)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f"error: {wrong}: sql is missing",
        f"error: {wrong}: time_column is missing",
        f"error: {wrong}: merge_sql is missing",
        f"error: {wrong}: name must be text, not 3",
        f"error: cannot read {missing}: no such file or directory",
    ]
    wrong.write_text(
        write_toml(replace(PER_MINUTE, time_column="exe", sort_order=("nothing",), retention="1d"))
    )
    code, out, err = run(capsys, "views", "define", wrong, *place)
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        "error: per_minute: time_column exe is string, not a timestamp with a zone",
        "error: per_minute: sort_order has nothing, but sql gives minute, exe, level, records, "
        "first_time, last_nano, characters",
    ]
    assert "per_minute" not in run(capsys, "views", "list", "--json", *place)[1]


def test_sql_view_sets_are_not_registered_around_their_checks(
    lake: Lake,
    tmp_path: Path,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
) -> None:
    lake.define_views(PER_MINUTE, spark=spark)
    place = ("--lake", lake.catalog.url)
    file = tmp_path / "definition.json"
    view_set = lake.views.get("per_minute").view_set
    file.write_text(view_set.definition())
    assert run(capsys, "views", "register", file, *place)[1].endswith("unchanged\n")
    file.write_text(replace(view_set, version=2).definition())
    code, _, err = run(capsys, "views", "register", file, *place)
    assert (code, "lakebed views define FILE" in err) == (2, True)
    built = next(each for each in built_in() if each.name == "spans")
    file.write_text(replace(built, version=2).definition())
    code, _, err = run(capsys, "views", "register", file, *place)
    assert (code, "spans is built in" in err) == (4, True)


# ---- the docs -----------------------------------------------------------------------------------


def test_the_examples_of_the_docs_work(
    tmp_path: Path,
    spark: SparkSession,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "views.md").read_text()
    (declared,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    (example,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "docs/views.md", "exec"), {})
    assert "errors: [[" in capsys.readouterr().out
    Path("errors_per_minute.toml").write_text(declared)
    monkeypatch.setenv("LAKEBED_LAKE", "shop")
    for line in re.findall(r"^    lakebed (.*)$", page, re.M):
        code, out, err = run(capsys, *shlex.split(line, comments=True))
        assert code == 0, f"{line}: {err}"
        if "--toml" in line:
            assert read_toml(out, "shown") == read_toml(declared, "declared")
