"""SQL reaches the lake and nothing else. Each statement here was an attempt at something more:
files, other tables, settings, the engine's memory, its stack or its planner.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebed.errors import BadInput, BadSql, LakebedError, UnknownViewSet
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.query.request.statement_limits import check_statement
from tests.parts.data import publish_hour, readings


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = init_lake(tmp_path_factory.mktemp("attacked"))
    lake.views.register(readings())
    publish_hour(lake, 0)
    return lake


@pytest.fixture(scope="module")
def secret(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that no statement may read."""
    folder = tmp_path_factory.mktemp("secret")
    (folder / "secret.csv").write_text("word\nhidden\n")
    (folder / "secret.json").write_text('{"word": "hidden"}\n')
    return folder


WRITING = [
    "CREATE TABLE t AS SELECT 1",
    "CREATE TABLE t (a int)",
    "CREATE OR REPLACE VIEW readings AS SELECT 1",
    "CREATE VIEW v AS SELECT * FROM readings",
    "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{folder}/secret.csv'",
    "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION ('{folder}/secret.csv')",
    "CREATE UNBOUNDED EXTERNAL TABLE t STORED AS CSV LOCATION '{folder}'",
    "CREATE SCHEMA s",
    "CREATE DATABASE d",
    "CREATE FUNCTION f(a int) RETURNS int RETURN a",
    "CREATE INDEX i ON readings (number)",
    "DROP TABLE readings",
    "DROP VIEW log_stats",
    "DROP SCHEMA public CASCADE",
    "INSERT INTO readings VALUES (now(), 1)",
    "INSERT OVERWRITE readings SELECT * FROM readings",
    "UPDATE readings SET number = 1",
    "DELETE FROM readings",
    "TRUNCATE TABLE readings",
    "MERGE INTO readings USING readings s ON false WHEN NOT MATCHED THEN INSERT VALUES (1)",
    "ALTER TABLE readings ADD COLUMN a int",
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "COPY readings TO '{folder}/out.parquet' STORED AS PARQUET",
    "EXPLAIN COPY readings TO '{folder}/out.parquet'",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/out.csv'",
    "EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1",
    "EXPLAIN ANALYZE INSERT INTO readings VALUES (now(), 1)",
    "WITH x AS (INSERT INTO readings VALUES (now(), 1)) SELECT * FROM x",
    "SELECT 1 INTO t",
    "SELECT * INTO OUTFILE '{folder}/out.csv' FROM readings",
    "SET datafusion.execution.batch_size = 1",
    "SET datafusion.runtime.memory_limit = '100G'",
    "RESET datafusion.execution.batch_size",
    "PREPARE p AS SELECT 1",
    "EXECUTE p",
    "DEALLOCATE p",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "USE other",
    "SELECT 1; DROP TABLE readings",
    "SELECT 1; COPY (SELECT 1) TO '{folder}/out.csv'",
    "SELECT 1 /* */; -- \n SET datafusion.execution.batch_size = 1",
    "LOAD DATA INPATH '{folder}/secret.csv' INTO TABLE readings",
    "ATTACH '{folder}/x' AS x",
    "VACUUM",
    "ANALYZE TABLE readings COMPUTE STATISTICS",
    "GRANT ALL ON readings TO someone",
    "CALL something()",
    "LISTEN x",
    "KILL 1",
]
READING = [
    "SELECT * FROM '{folder}/secret.csv'",
    'SELECT * FROM "{folder}/secret.csv"',
    "SELECT * FROM 'file://{folder}/secret.csv'",
    "SELECT * FROM '{folder}/secret.json'",
    "SELECT * FROM '{folder}'",
    "SELECT * FROM 's3://bucket/secret.parquet'",
    "SELECT * FROM 'https://localhost/secret.csv'",
    "SELECT * FROM read_csv('{folder}/secret.csv')",
    "SELECT * FROM read_parquet('{folder}/secret.csv')",
    "SELECT * FROM read_json('{folder}/secret.json')",
    "SELECT * FROM parquet_metadata('{folder}/secret.csv')",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT read_file('{folder}/secret.csv')",
    "SELECT pg_read_file('{folder}/secret.csv')",
    "SELECT readfile('{folder}/secret.csv')",
    "SELECT load_extension('x')",
    "SELECT system('id')",
    "SELECT getenv('HOME')",
    "SELECT * FROM made",
    "SELECT * FROM lake.public.made",
    "SELECT * FROM datafusion.public.readings",
    "SELECT * FROM other.readings",
    "SELECT * FROM information_schema.readings",
    "SELECT * FROM pg_catalog.pg_tables",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM lakehouse_partitions",
    "SELECT * FROM journal",
    "SELECT * FROM leases",
    "SELECT * FROM view_instance('../../etc', 'x')",
    "SELECT input_file_name() FROM readings",
    "SELECT length(repeat('a', 2000000000))",
    "SELECT length(lpad('a', 2000000000)), length(rpad('a', 2000000000))",
    "SELECT array_length(range(0, 30000000000))",
    "SELECT array_length(generate_series(0, 30000000000))",
    "SELECT array_length(array_repeat(1, 30000000000))",
    "SELECT array_length(array_resize([1], 30000000000, 1))",
    "SELECT * FROM view_instance('{folder}/secret.csv', 'x')",
]


@pytest.fixture(params=["whole", "engine alone"])
def attacked(lake: Lake, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """A lake that looks at statements before its engine does, and one that does not: the engine
    refuses them on its own."""
    if request.param == "engine alone":
        monkeypatch.setattr("lakebed.query.queries.check_statement", lambda _sql: None)
    return lake


@pytest.mark.parametrize("sql", WRITING + READING)
def test_a_statement_can_only_read_the_lake(attacked: Lake, secret: Path, sql: str) -> None:
    lake = attacked
    before = sorted(each.name for each in secret.iterdir())
    with pytest.raises((BadInput, UnknownViewSet)) as refused:
        lake.query(sql.replace("{folder}", str(secret))).to_arrow()
    assert "hidden" not in str(refused.value)
    assert "\n" not in str(refused.value)
    assert sorted(each.name for each in secret.iterdir()) == before
    assert lake.query("SELECT count(*) AS n FROM readings").to_arrow()["n"].to_pylist() == [3]


def test_a_refused_setting_changes_nothing(lake: Lake) -> None:
    sql = "SELECT value FROM information_schema.df_settings WHERE name LIKE '%batch_size'"
    before = lake.query(sql).to_arrow().to_pylist()
    with pytest.raises(BadSql):
        lake.query("SET datafusion.execution.batch_size = 1")
    assert lake.query(sql).to_arrow().to_pylist() == before


@pytest.mark.parametrize("kind", ["EXPLAIN", "EXPLAIN VERBOSE", "EXPLAIN ANALYZE"])
def test_a_plan_does_not_tell_where_the_lake_is(lake: Lake, kind: str) -> None:
    rows = lake.query(f"{kind} SELECT * FROM readings", admin=False).to_arrow()
    text = "\n".join(rows["plan"].to_pylist())
    assert "partitions/" in text
    assert Path(lake.catalog.url).parent.name not in text
    assert str(lake.store.root).strip("/") not in text  # type: ignore[attr-defined]


def test_names_of_the_catalog_hold_no_secrets(lake: Lake) -> None:
    shown = lake.query("SELECT * FROM information_schema.tables").to_arrow().to_pylist()
    assert {row["table_catalog"] for row in shown} == {"lake"}
    assert {row["table_schema"] for row in shown} == {"public", "information_schema"}


def _nested(begin: str, inner: str, end: str, times: int) -> str:
    return begin * times + inner + end * times


HUGE = {
    "parentheses": _nested("SELECT (", "1", ")", 1) + _nested("(", "1", ")", 50_000),
    "a sum": "SELECT " + "+".join(["1"] * 50_000),
    "a conjunction": "SELECT 1 WHERE " + " AND ".join(["true"] * 50_000),
    "alternatives": "SELECT * FROM readings WHERE " + " OR ".join(["number = 1"] * 20_000),
    "a text": "SELECT " + "||".join(["'a'"] * 20_000),
    "negations": "SELECT " + "NOT " * 50_000 + "true",
    "signs": "SELECT " + "- " * 50_000 + "1",
    "cases": "SELECT " + _nested("CASE WHEN true THEN ", "1", " END", 5000),
    "subqueries": "SELECT * FROM " + _nested("(SELECT * FROM ", "readings", ") t", 3000),
    "unions": " UNION ALL ".join(["SELECT 1"] * 5000),
    "joins": "SELECT 1 FROM readings " + "NATURAL JOIN readings " * 300,
    "lists": "SELECT " + _nested("[", "1", "]", 5000),
    "calls": "SELECT " + _nested("abs(", "1", ")", 20_000),
    "casts": "SELECT " + _nested("CAST(", "1", " AS bigint)", 5000),
    "casts of signs": "SELECT " + _nested("CAST(", "- " * 60 + "1", " AS bigint)", 16),
    "rounding": "SELECT " + _nested("ceil(", "1", ")", 60),
    "parts of texts": "SELECT " + _nested("substring(", "'a'", " FROM 1)", 60),
    "columns": "SELECT " + ", ".join(f"{i} AS c{i}" for i in range(20_000)),
    "more columns": "SELECT " + ", ".join(f"number AS c{i}" for i in range(1001)),
    "columns of columns": "SELECT count(*) FROM "
    + _nested("(SELECT * FROM ", "(SELECT " + "1, " * 500 + "1)", ")", 14),
    "values": "SELECT * FROM (VALUES " + ", ".join(f"({i})" for i in range(100_000)) + ") t",
    "columns of values": "VALUES (" + ", ".join(["1"] * 1001) + ")",
    "arguments": "SELECT coalesce(" + ", ".join(["number"] * 1001) + ") FROM readings",
    "sorting": "SELECT 1 FROM readings ORDER BY " + ", ".join(f"number % {i}" for i in range(101)),
    "windows": "SELECT " + "sum(number) OVER (ORDER BY number), " * 101 + "1 FROM readings",
    "cubes": "SELECT 1 FROM readings GROUP BY CUBE (1, 2, 3, 4, 5, 6, 7, 8, 9)",
    "cubes that multiply": "SELECT 1 FROM readings GROUP BY " + "CUBE (1, 2, 3), " * 4 + "number",
    "cubes in sets": "SELECT 1 FROM readings GROUP BY GROUPING SETS (CUBE (1, 2, 3, 4, 5, 6, 7, 8))"
    + ", ROLLUP (1, 2)",
    "joins by commas": "SELECT 1 FROM readings" + ", readings" * 101,
    "letters": "SELECT '" + "x" * 5_000_000 + "'",
    "a name": 'SELECT "' + "x" * 1_000_000 + '" FROM readings',
    "doublings": "WITH a0 AS (SELECT 1 AS n), "
    + ", ".join(
        f"a{i} AS (SELECT * FROM a{i - 1} UNION ALL SELECT * FROM a{i - 1})" for i in range(1, 40)
    )
    + " SELECT count(*) FROM a39",
    "quoted doublings": 'WITH "A0" AS (SELECT 1 AS n), '
    + ", ".join(
        f'"A{i}" AS (SELECT x.n FROM "A{i - 1}" x CROSS JOIN "A{i - 1}" y)' for i in range(1, 40)
    )
    + ' SELECT count(*) FROM "A39"',
    "texts that double": "WITH a0 AS (SELECT 'xxxxxxxx' AS s), "
    + ", ".join(f"a{i} AS (SELECT s || s AS s FROM a{i - 1})" for i in range(1, 40))
    + " SELECT length(s) FROM a39",
    "texts that double inside": "SELECT length(s) FROM "
    + _nested("(SELECT concat(s, s, s, s) AS s FROM ", "(SELECT 'x' AS s)", ") t", 12),
    "texts that are replaced": "SELECT length("
    + _nested("replace(", "msg", ", 'e', 'eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee')", 5)
    + ") FROM log_entries",
    "texts that double in a recursion": "WITH RECURSIVE t AS (SELECT 'x' AS s UNION ALL "
    "SELECT s || s FROM t) SELECT max(length(s)) FROM t",
    "zero bytes": "SELECT 'a\0b'",
    "half characters": "SELECT '\ud800'",
}


@pytest.mark.parametrize("what", HUGE)
def test_huge_statements_are_refused_at_once(lake: Lake, what: str) -> None:
    with pytest.raises(BadSql) as refused:
        lake.query(HUGE[what], timeout=5).to_arrow()
    assert len(str(refused.value)) < 600
    with pytest.raises(BadSql):
        lake.queries.describe(HUGE[what])


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM readings WHERE number IN (" + ", ".join(map(str, range(5000))) + ")",
        "SELECT " + " + ".join(["1"] * 200),
        "SELECT * FROM readings WHERE " + " OR ".join(f"number = {n}" for n in range(150)),
        "WITH a AS (SELECT * FROM readings), b AS (SELECT * FROM a), c AS (SELECT * FROM b) "
        "SELECT c.number FROM c JOIN b ON c.number = b.number JOIN a ON a.number = b.number",
        "SELECT " + ", ".join(f"number AS c{i}" for i in range(1000)) + " FROM readings",
        "SELECT * FROM (VALUES " + ", ".join(f"({i}, 'a')" for i in range(5000)) + ") t",
        "SELECT number, count(*) FROM readings GROUP BY CUBE (number, time, number % 2)",
        "SELECT number IS DISTINCT FROM 1, "
        + ", ".join(f"number AS c{i}" for i in range(150))
        + " FROM readings",
        " UNION ALL ".join(["SELECT 'a' || 'b' || CAST(number AS varchar) FROM readings"] * 60),
        "SELECT replace(replace(replace('a-b', '-', '_'), 'a', 'bb'), 'b', 'c') || 'd'",
        "WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < 5) "
        "SELECT count(*) FROM t",
        'SELECT \'-- no comment /* none */\' AS "a ""quoted"" name"',
    ],
)
def test_large_statements_that_make_sense_run(lake: Lake, sql: str) -> None:
    check_statement(sql)
    lake.query(sql).to_arrow()


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT date_bin(INTERVAL '0 seconds', time) AS n FROM readings",
        "SELECT to_timestamp('not a time') AS n",
        "SELECT arrow_cast(1, 'NoSuchType') AS n",
        "SELECT regexp_match('a', '(') AS n",
    ],
)
def test_values_that_cannot_be_are_errors_and_the_engine_goes_on(lake: Lake, sql: str) -> None:
    with pytest.raises(LakebedError) as refused:
        lake.query(sql, timeout=20).to_arrow()
    assert "\n" not in str(refused.value)
    assert lake.query("SELECT 1 AS n").to_arrow()["n"].to_pylist() == [1]
