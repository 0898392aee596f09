"""The Spark engine: the same statements on the same snapshots, nothing but the lake, and errors
that a person can read.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import lakebed.spark
from lakebed.errors import (
    BadInput,
    BadSql,
    Cancelled,
    DamagedFile,
    TimedOut,
)
from lakebed.lake import Lake
from lakebed.model.source import SqlSource
from lakebed.model.time import SECOND, TimeRange
from lakebed.model.view_set import ViewSet
from lakebed.opening import init_lake
from lakebed.query.planning.conditions import Scan
from lakebed.query.spark import statement as statements
from lakebed.query.spark.failing import AFTER, BEFORE
from lakebed.query.spark.pruning import find_scans, plan_text
from lakebed.views.builtin import built_in
from tests.parts.building import build, land, tick
from tests.parts.data import HOUR, T0, publish_hour, readings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VIEW_SETS = {each.name: each for each in built_in()} | {"readings": readings()}
ENDLESS = (
    "SELECT count(*) AS n FROM range(10000000) a CROSS JOIN range(10000000) b "
    "WHERE (a.id * b.id) % 7 = 3"
)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Log entries in a partition and in the tail; readings of three hours; log_stats in parts."""
    with init_lake(tmp_path_factory.mktemp("lake")) as lake:
        lake.views.register(readings())
        for hour, rows in enumerate((100, 0, 20_000)):
            publish_hour(lake, hour, rows)
        land(lake, requests=2, size=30)
        build(lake)
        land(lake, seed=2, size=15)
        parts = [{"time_bin": T0, "process_id": "p", "level": 2, "target": "t", "count": 3}] * 2
        schema = VIEW_SETS["log_stats"].schema
        for part, each in enumerate(parts):
            begin = T0 + part * HOUR
            rows = pa.Table.from_pylist([each], schema)
            lake.partitions.publish("log_stats", begin, begin + HOUR, rows)
        yield lake


def ask(lake: Lake, spark: SparkSession, sql: str, **options: Any) -> pa.Table:
    return lake.query(sql, engine="spark", spark=spark, **options).to_arrow()


def multiset(table: pa.Table) -> Counter[str]:
    return Counter(str(row) for row in table.to_pylist())


@pytest.mark.parametrize("asked", ["all", "stale", "half"])
def test_both_engines_read_the_same_snapshot(lake: Lake, spark: SparkSession, asked: str) -> None:
    times = sorted(lake.query("SELECT time FROM log_entries").to_arrow()["time"].to_pylist())
    half = {"begin": times[len(times) // 2], "end": "2027-01-01T00:00:00Z"}
    options: dict[str, Any] = {"all": {}, "stale": {"stale": True}, "half": half}[asked]
    sql = "SELECT time, level, msg, properties, insert_time FROM log_entries WHERE level <= 5"
    ours = lake.queries.query(sql, engine="spark", spark=spark, explained=True, **options)
    other = lake.queries.query(sql, explained=True, **options)
    assert multiset(ours.to_arrow()) == multiset(other.to_arrow())
    assert ours.to_arrow().num_rows > 10
    assert ours.schema.equals(other.schema)
    figures, expected = ours.explanation.as_dict(), other.explanation.as_dict()
    assert figures.pop("engine") == "spark"
    assert expected.pop("engine") == "embedded"
    assert figures["tables"] == expected["tables"]
    assert figures["rows"] == ours.to_arrow().num_rows


def test_the_past_is_read_as_it_was(
    lake: Lake, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with init_lake(tmp_path_factory.mktemp("past")) as other:
        other.views.register(readings())
        publish_hour(other, 0, 4)
        then = tick(other)
        publish_hour(other, 1, 5)
        sql = "SELECT count(*) AS n FROM readings"
        assert ask(other, spark, sql)["n"].to_pylist() == [9]
        assert ask(other, spark, sql, as_of=then)["n"].to_pylist() == [4]
        assert ask(other, spark, sql, as_of=T0)["n"].to_pylist() == [0]


def test_partial_results_of_sql_view_sets_add_up(lake: Lake, spark: SparkSession) -> None:
    sql = "SELECT process_id, count FROM log_stats"
    assert ask(lake, spark, sql).to_pylist() == [{"process_id": "p", "count": 6}]
    assert ask(lake, spark, sql, begin=T0 + 1).to_pylist() == []


def test_a_range_leaves_no_part_of_a_longer_period_out(new_lake: Any, spark: SparkSession) -> None:
    """Merging makes hours of minutes: those after the end belong to an hour that began before."""
    lake = new_lake()
    source = SqlSource(
        "SELECT 1",
        "SELECT date_trunc('hour', h) AS h, sum(n) AS n FROM hours GROUP BY date_trunc('hour', h)",
        (("log_entries", b""),),
    )
    schema = pa.schema([("h", pa.timestamp("us", "UTC")), ("n", pa.int64())])
    lake.views.register(ViewSet("hours", 1, schema, "h", source=source))
    for part, minute in enumerate((0, 45)):
        rows = pa.table({"h": [T0 + minute * 60 * SECOND], "n": [5]}, schema=schema)
        lake.partitions.publish("hours", T0 + part * HOUR, T0 + (part + 1) * HOUR, rows)
    sql, end = "SELECT n FROM hours", T0 + 30 * 60 * SECOND
    assert lake.query(sql, end=end).to_arrow()["n"].to_pylist() == [10]
    assert ask(lake, spark, sql, end=end)["n"].to_pylist() == [10]
    with lakebed.spark.SparkReader(spark, lake) as reader:
        assert reader.read("hours", None, end).toArrow()["n"].to_pylist() == [10]


def test_zeros_of_both_signs_are_found_in_files(new_lake: Any, spark: SparkSession) -> None:
    lake = new_lake()
    schema = pa.schema([("time", pa.timestamp("us", "UTC")), ("x", pa.float64())])
    lake.views.register(ViewSet("zeros", 1, schema, "time"))
    for hour, zero in enumerate((0.0, -0.0)):
        begin = T0 + hour * HOUR
        rows = pa.table({"time": [begin] * 3, "x": [zero, 1.0, 2.0]}, schema=schema)
        lake.partitions.publish("zeros", begin, begin + HOUR, rows)
    for where in ("x = 0", "x IN (0, 7)", "x >= 0 AND x <= 0"):
        sql = f"SELECT count(*) AS n FROM zeros WHERE {where}"
        assert lake.query(sql).to_arrow()["n"].to_pylist() == [2], where
        assert ask(lake, spark, sql)["n"].to_pylist() == [2], where


def test_files_that_are_pruned_are_not_opened(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with init_lake(tmp_path_factory.mktemp("pruned")) as lake:
        lake.views.register(readings())
        publish_hour(lake, 0, 4)
        gone = publish_hour(lake, 1, 5).file_path
        assert gone is not None
        lake.store.delete([gone])
        sql = "SELECT count(*) AS n FROM readings"
        early = " WHERE time < TIMESTAMP '2026-01-01 01:00:00'"
        assert ask(lake, spark, sql + early)["n"].to_pylist() == [4]
        assert ask(lake, spark, sql, end=T0 + HOUR)["n"].to_pylist() == [4]
        with pytest.raises(DamagedFile, match=r"the file of readings.* is missing"):
            ask(lake, spark, sql)


def test_large_results_come_in_batches_and_in_order(lake: Lake, spark: SparkSession) -> None:
    result = lake.query("SELECT * FROM readings ORDER BY number DESC", engine="spark", spark=spark)
    batches = list(result)
    assert len(batches) > 1
    assert result.schema.field("time").type == pa.timestamp("us", "UTC")
    numbers = [number for batch in batches for number in batch["number"].to_pylist()]
    assert len(numbers) == 20_100
    assert numbers == sorted(numbers, reverse=True)
    small = ask(lake, spark, "SELECT * FROM readings ORDER BY number DESC", limit=7)
    assert small["number"].to_pylist() == numbers[:7]


def test_columns_may_share_a_name(lake: Lake, spark: SparkSession) -> None:
    table = ask(lake, spark, "SELECT level, level, 1 AS level FROM log_entries LIMIT 1")
    assert table.schema.names == ["level", "level", "level"]
    big = lake.query("SELECT number, number FROM readings", engine="spark", spark=spark)
    assert big.to_arrow().num_rows == 20_100


def test_numbers_are_as_wide_as_in_the_other_engine(lake: Lake, spark: SparkSession) -> None:
    sql = "SELECT level, 1 AS one, level + 1 AS more, count(*) AS n FROM log_entries GROUP BY level"
    ours, other = ask(lake, spark, sql).schema, lake.query(sql).schema
    assert [str(kind) for kind in ours.types] == ["int32", "int64", "int64", "int64"]
    assert ours.types == other.types


def test_a_statement_leaves_nothing_in_the_callers_session(lake: Lake, spark: SparkSession) -> None:
    spark.createDataFrame([(7,)], "level int").createOrReplaceTempView("log_entries")
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        before = {each.name for each in spark.catalog.listTables()}
        sql = "SELECT date_trunc('DAY', time) AS day FROM log_entries LIMIT 1"
        (row,) = ask(lake, spark, sql).to_pylist()
        assert row["day"].hour == 0
        assert str(row["day"].tzinfo) == "UTC"
        assert {each.name for each in spark.catalog.listTables()} == before
        assert spark.table("log_entries").count() == 1
        assert spark.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
        spark.catalog.dropTempView("log_entries")


def test_statements_side_by_side_do_not_mix(lake: Lake, spark: SparkSession) -> None:
    def count(since: int) -> int:
        sql = "SELECT count(*) AS n FROM readings"
        return int(ask(lake, spark, sql, begin=T0 + since)["n"][0].as_py())

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(count, (0, HOUR, 50 * HOUR))) == [20_100, 20_000, 0]


def jobs_end(spark: SparkSession) -> bool:
    tracker = spark.sparkContext.statusTracker()
    end = time.monotonic() + 300
    while tracker.getActiveJobsIds() and time.monotonic() < end:
        time.sleep(0.05)
    return not tracker.getActiveJobsIds()


def test_a_time_limit_ends_a_statement_and_its_jobs(lake: Lake, spark: SparkSession) -> None:
    with pytest.raises(TimedOut, match="longer than 2 s"):
        ask(lake, spark, ENDLESS, timeout=2)
    assert jobs_end(spark)


def test_a_statement_can_be_cancelled_from_another_thread(lake: Lake, spark: SparkSession) -> None:
    result = lake.query(ENDLESS, engine="spark", spark=spark)
    tracker = spark.sparkContext.statusTracker()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(result.to_arrow)
        end = time.monotonic() + 300
        while not tracker.getActiveJobsIds() and time.monotonic() < end:
            time.sleep(0.05)
        result.cancel()
        with pytest.raises(Cancelled):
            reading.result(60)
    assert jobs_end(spark)


def test_a_result_that_is_closed_early_stops_its_jobs(lake: Lake, spark: SparkSession) -> None:
    result = lake.query("SELECT * FROM readings", engine="spark", spark=spark)
    batches = iter(result)
    assert next(batches).num_rows
    result.close()
    assert jobs_end(spark)
    with pytest.raises(BadInput, match="read already"):
        result.to_arrow()


@pytest.mark.parametrize(
    ("sql", "said", "place"),
    [
        ("SELECT nope FROM log_entries", "nope", (1, 8)),
        ("SELECT level\nFROM log_entries\nWHERE nope = 1", "nope", (3, 7)),
        ("SELECT level FROM log_entries WHERE", "", (1, None)),
        ("SELECT * FROM nothing", "there is no view set nothing", (1, 15)),
        ("SELECT property_get(properties, 'a') FROM log_entries", "no function property_get", None),
        ("SELECT 1 / (level - level) AS x FROM log_entries", "division by zero", (1, 8)),
        ("SELECT CAST(msg AS INT) AS x FROM log_entries", "cannot be cast", (1, 8)),
        ("SELECT level + properties AS x FROM log_entries", "", (1, 8)),
        ("SELECT count(*) FROM log_entries GROUP BY nope", "nope", (1, 43)),
        ("SELECT INTERVAL '1' MONTH AS x", "no type in arrow", None),
    ],
)
def test_what_is_wrong_is_one_sentence_with_its_place(
    lake: Lake, spark: SparkSession, sql: str, said: str, place: tuple[int, int | None] | None
) -> None:
    with pytest.raises(BadSql) as caught:
        ask(lake, spark, sql)
    message = str(caught.value)
    assert said.lower() in message.lower()
    assert "\n" not in message
    assert "org.apache" not in message
    assert "SQLSTATE" not in message
    assert caught.value.__cause__ is None
    if place is not None:
        assert caught.value.line == place[0]
        assert place[1] is None or caught.value.column == place[1]


NOT_QUERIES = [
    "SET spark.sql.ansi.enabled=false",
    "CREATE TABLE x AS SELECT 1",
    "CREATE TEMPORARY VIEW log_entries AS SELECT 1",
    "DROP VIEW log_entries",
    "INSERT INTO log_entries SELECT 1",
    "SHOW TABLES",
    "DESCRIBE log_entries",
    "EXPLAIN SELECT 1",
    "CACHE TABLE log_entries",
    "SELECT 1; DROP VIEW log_entries",
    "SELECT 1) AS x; SET a=b; --",
    "SELECT 'never ends",
    "",
    ";",
    "()",
    "SELECT * FROM " + "(SELECT * FROM " * 3000 + "log_entries" + ")" * 3000,
]
NOT_TABLES = [
    "SELECT * FROM `/etc/passwd`",
    'SELECT * FROM "text"."/etc/passwd"',
    "SELECT * FROM default.log_entries",
    "SELECT * FROM global_temp.log_entries",
    "SELECT * FROM another_table",
    "SELECT (SELECT max(x) FROM another_table) FROM log_entries",
    "WITH a AS (SELECT * FROM b) SELECT * FROM a",
]


@pytest.mark.parametrize("sql", [*NOT_QUERIES, *NOT_TABLES], ids=lambda sql: sql[:50])
def test_statement_is_one_query_over_tables_of_the_lake(sql: str) -> None:
    with pytest.raises(BadSql):
        statements.read(sql, VIEW_SETS)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'reflect(1); DROP TABLE x -- /* ${a} \\' {b}' AS a, level FROM log_entries;",
        "-- a comment; with 'quotes'\nSELECT level /* and another */ FROM log_entries",
        "WITH a AS (SELECT level FROM log_entries) SELECT * FROM a JOIN LOG_ENTRIES USING (level)",
        "SELECT filter(array(1, 2), x -> x > 1), transform(array(1), x -> x + 1)",
        "SELECT b.\"processes.exe\" FROM blocks AS b WHERE b.`streams.format` LIKE 'otlp%'",
        "SELECT * FROM log_entries LATERAL VIEW explode(map_keys(properties)) AS k",
        "SELECT level, count(*) FILTER (WHERE level > 2) FROM log_entries GROUP BY ROLLUP (1)",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY value) FROM measures",
        "VALUES (1, 'a'), (2, 'b')",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "SELECT time::date, CAST(value AS DECIMAL(10, 2)), try_cast(kind AS INT) FROM measures",
        "SELECT t.a FROM (SELECT 1) AS t(a)",
        "SELECT r'\\d+' AS pattern",
        "SELECT /*+ BROADCAST(b) */ a.level FROM log_entries a JOIN log_entries b USING (level)",
        "SELECT upper('x') AS semicolon -- ;\n;",
    ],
)
def test_queries_of_every_kind_are_run(lake: Lake, spark: SparkSession, sql: str) -> None:
    ask(lake, spark, sql, limit=1)


def test_the_grammar_of_spark_takes_nothing_but_queries(spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    for sql in (*NOT_QUERIES[:10], "WITH x AS (SELECT 1) INSERT INTO log_entries SELECT * FROM x"):
        with pytest.raises(AnalysisException):  # cannot be parsed, or as a table nobody has
            spark.sql(BEFORE + sql + AFTER)


def test_statement_may_call_every_function_of_the_callers_spark(
    lake: Lake, spark: SparkSession
) -> None:
    sql = "SELECT reflect('java.lang.Math', 'abs', -7) AS seven, '${spark.app.name}' AS text"
    assert ask(lake, spark, sql).to_pylist() == [{"seven": "7", "text": "${spark.app.name}"}]


def scans_of(lake: Lake, sql: str, within: TimeRange | None = None) -> list[Scan]:
    statement = statements.read(sql, VIEW_SETS)
    text = plan_text(statement)
    planned: Sequence[Scan] = ()
    if text is not None:
        with suppress(BadInput):
            planned = lake.queries._embedded().analyse(text, VIEW_SETS, within).scans
    return find_scans(statement, VIEW_SETS, within, planned)


@pytest.mark.parametrize(
    ("condition", "columns"),
    [
        ("level = 2", {"level"}),
        ("level < 3 AND level >= -1", {"level"}),
        ("1 = 1 AND level IN (1, 2)", {"level"}),
        ("target = 'it''s'", {"target"}),
        ("time >= '2026-01-01' AND level = 2", {"time", "level"}),
        ("time >= TIMESTAMP '2026-01-01 00:00:00.123456'", {"time"}),
        ("time > TIMESTAMP '2026-01-01' - INTERVAL '1 day'", {"time"}),
        ("time > now() - INTERVAL '1 hour'", {"time"}),
        ("time >= Timestamp_Micros( 1767225600000000 ) AND level = 2", {"time", "level"}),
        ("time < timestamp_seconds(1767225600) AND time > timestamp_millis(-1)", {"time"}),
        # the embedded engine reads these otherwise than Spark does
        ("level <= 7 / 4 * 2", set()),
        ("1 / 2 > 0", set()),
        ("target = 'a\\tb'", set()),
        ("target = 'a' 'b'", set()),
        ("target = 5", set()),
        ("target = DATE '2026-01-01'", set()),
        ("level = '02'", set()),
        ("time >= TIMESTAMP '2026-01-01 00:00:00.1234567'", set()),
        ("time >= 'now'", set()),
        ("time >= timestamp_seconds(1767225600.5)", set()),
        ("time >= timestamp_seconds(99999999999999999)", set()),
        ("time >= timestamp_micros(CAST('1767225600000000' AS BIGINT))", set()),
        ("false", set()),
        ("try_add(level, 1) = 3", set()),
        ("level = 2 AND msg IS NULL IS DISTINCT FROM TRUE OR level = 3", set()),
    ],
)
def test_conditions_are_used_only_where_both_engines_read_them_alike(
    lake: Lake, condition: str, columns: set[str]
) -> None:
    (scan,) = scans_of(lake, f"SELECT * FROM log_entries WHERE {condition}")
    assert set(scan.columns) == columns


def test_counted_instants_are_the_same_to_the_planner(lake: Lake) -> None:
    for number, unit in ((T0 // SECOND, "seconds"), (T0 // 1000, "millis"), (T0, "micros")):
        sql = (
            f"SELECT 'timestamp_{unit}(1)' FROM log_entries WHERE time = timestamp_{unit}({number})"
        )
        (scan,) = scans_of(lake, sql)
        assert scan.columns == {"time": [(T0, T0)]}


def test_bounds_by_the_clock_leave_room_for_other_clocks(lake: Lake) -> None:
    now = time.time_ns() // 1000
    clocked = "SELECT * FROM log_entries WHERE time BETWEEN now() - INTERVAL '1 day' AND now()"
    (scan,) = scans_of(lake, clocked)
    ((low, high),) = scan.columns["time"]
    assert high is None
    assert isinstance(low, int)
    assert low < now - 25 * HOUR + HOUR // 2


def test_a_name_that_means_something_else_after_the_select_is_no_condition(lake: Lake) -> None:
    sql = (
        "SELECT substr(target, 1, 2) AS target, count(*) AS n FROM log_entries "
        "WHERE level = 2 GROUP BY target HAVING target = 'op'"
    )
    (scan,) = scans_of(lake, sql)
    assert set(scan.columns) == {"level"}


def test_the_callers_range_is_used_whatever_the_statement_says(lake: Lake) -> None:
    within = TimeRange(T0, T0 + HOUR)
    sql = "SELECT try_add(level, 1) FROM log_entries, processes, log_stats"
    found = {scan.table: scan.columns for scan in scans_of(lake, sql, within)}
    assert found == {
        "log_entries": {"time": [(T0, T0 + HOUR - 1)]},
        "processes": {},  # a process needs all its parts
        "log_stats": {"time_bin": [(T0, T0 + HOUR - 1)]},
    }


def test_rows_that_only_spark_asks_for_are_not_pruned(lake: Lake, spark: SparkSession) -> None:
    half = ask(lake, spark, "SELECT count(*) AS n FROM readings WHERE 1 / 2 > 0")
    assert half["n"].to_pylist() == [20_100]


NAN = "CAST('NaN' AS DOUBLE)"
ZERO = "(VALUES (-0.0e0), (1.0e0)) AS t(a)"


@pytest.mark.parametrize(
    ("value", "embedded", "on_spark"),
    [
        ("5 / 2", 2, 2.5),
        ("CAST(5 AS DOUBLE) / 2", 2.5, 2.5),
        ("length('a\\tb')", 4, 3),
        ("concat('a', NULL)", "a", None),
        ("'a' || NULL", None, None),
        ("true IS DISTINCT FROM false OR true", False, True),
        ("(true IS DISTINCT FROM false) OR true", True, True),
        ("9223372036854775807 + 1", -(1 << 63), BadSql),
        ("1.0e0 / 0", float("inf"), BadSql),
        ("1 / 0", BadSql, BadSql),
        ("1 / nullif(0, 0)", None, None),
        ("substr('abcdef', 0, 2)", "a", "ab"),
        ("substr('abcdef', -2, 2)", "", "ef"),
        ("left('abc', -1)", "ab", ""),
        ("extract(dow FROM TIMESTAMP '2026-11-15 00:00:00')", 0, 1),
        ("(SELECT a FROM (VALUES (1), (NULL)) AS t(a) ORDER BY a LIMIT 1)", 1, None),
        (
            f"(SELECT max(a) FROM (VALUES (1, {NAN}), (1, 2)) AS t(k, a) GROUP BY k) = {NAN}",
            None,
            True,
        ),
        (f"{NAN} = {NAN}", True, True),
        (f"(SELECT count(*) FROM {ZERO} WHERE a = 0.0e0)", 1, 1),
        (f"(SELECT count(*) FROM {ZERO} WHERE a IN (0.0e0, 5, 6))", 1, 1),
        (f"(SELECT count(*) FROM {ZERO} WHERE a IN (0.0e0, 5, 6, 7))", 0, 1),
        (f"(SELECT count(*) FROM {ZERO} WHERE a + 0.0e0 IN (0.0e0, 5, 6, 7))", 1, 1),
        (f"(SELECT count(*) FROM {ZERO} WHERE a + 0.0e0 IN (SELECT 0.0e0))", 1, 1),
    ],
)
def test_the_engines_differ_as_the_page_says(
    lake: Lake, spark: SparkSession, value: str, embedded: Any, on_spark: Any
) -> None:
    """docs/dialects.md; what is None there by chance is not compared here."""
    for engine, expected in (("embedded", embedded), ("spark", on_spark)):
        session = spark if engine == "spark" else None
        sql = f"SELECT {value} AS x"
        if expected is BadSql:
            with pytest.raises(BadSql):
                lake.query(sql, engine=engine, spark=session).to_arrow()
            continue
        (found,) = lake.query(sql, engine=engine, spark=session).to_arrow()["x"].to_pylist()
        by_chance = "max(" in value and engine == "embedded"
        assert by_chance or found == expected


def test_engines_and_sessions_have_names_that_exist(lake: Lake) -> None:
    with pytest.raises(BadInput, match="no engine sparky"):
        lake.query("SELECT 1", engine="sparky")


def test_spark_forgets_the_jobs_of_statements_that_have_ended(
    lake: Lake, spark: SparkSession
) -> None:
    listed = spark.sparkContext._jsc.sc().dagScheduler().activeQueryToJobs()
    before = listed.size()
    assert ask(lake, spark, "SELECT * FROM readings").num_rows == 20_100
    result = lake.query("SELECT * FROM readings", engine="spark", spark=spark)
    next(iter(result))
    result.close()
    end = time.monotonic() + 300
    while listed.size() > before and time.monotonic() < end:
        time.sleep(0.02)  # it forgets in a thread of its own, perhaps also what ended before
    assert listed.size() <= before
