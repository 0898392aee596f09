"""The embedded engine: what statements may use, how they end, and where their files may be."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakebed.errors import BadInput, BadSql, Cancelled, DamagedFile, OutOfMemory, TimedOut
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.query.queries import Queries, QuerySettings
from tests.conftest import NewLake
from tests.parts.building import build, land
from tests.parts.data import HOUR, T0, publish_hour, readings, rows

ENDLESS = "SELECT sum(a.value * b.value) AS n FROM range(100000000) a, range(100000000) b"


@pytest.fixture
def hours(new_lake: NewLake) -> Lake:
    lake = new_lake()
    lake.views.register(readings())
    for hour in range(3):
        publish_hour(lake, hour, count=100)
    return lake


@pytest.fixture(scope="module")
def small_lake(tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake for tests to which the catalog does not matter."""
    lake = init_lake(tmp_path_factory.mktemp("small"))
    lake.views.register(readings())
    publish_hour(lake, 0, count=100)
    return lake


def test_a_statement_reads_exactly_the_files_of_the_catalog(hours: Lake) -> None:
    found = hours.query("SELECT count(*) AS n, count(DISTINCT number) AS d FROM readings")
    assert found.to_arrow().to_pylist() == [{"n": 300, "d": 300}]
    stray = hours.partitions.list_partitions("readings")[0].file_path
    assert stray is not None
    copy = stray.replace(stray.rsplit("/", 1)[1], "stray.parquet")
    with hours.store.create(copy) as sink, hours.store.open(stray) as source:
        sink.write(source.read())
    again = hours.query("SELECT count(*) AS n FROM readings")
    assert again.to_arrow().to_pylist() == [{"n": 300}]


@pytest.mark.parametrize("table", ["(VALUES (1), (2), (3))", "readings", "log_entries"])
def test_a_plan_can_be_asked_for_with_a_limit(small_lake: Lake, table: str) -> None:
    sql = f"SELECT count(*) AS n FROM {table}"
    whole = small_lake.query(f"EXPLAIN {sql}").to_arrow()
    assert whole.num_rows > 1
    assert small_lake.query(f"EXPLAIN {sql}", limit=100).to_arrow() == whole
    assert small_lake.query(f"EXPLAIN {sql}", limit=1).to_arrow() == whole.slice(0, 1)
    assert small_lake.query(f"EXPLAIN {sql}", limit=0).to_arrow() == whole.slice(0, 0)
    run = small_lake.query(f"EXPLAIN ANALYZE {sql}", limit=1).to_arrow()
    assert "output_rows=" in run["plan"][0].as_py()


def test_objects_in_a_bucket_are_read_too(s3_bucket: str, tmp_path: object) -> None:
    lake = init_lake(str(tmp_path), store=f"s3://{s3_bucket}/with/prefix")
    with lake:
        lake.views.register(readings())
        for hour in range(3):
            publish_hour(lake, hour, count=10)
        land(lake)
        build(lake)
        land(lake, seed=2)
        sql = "SELECT count(*) AS n FROM {}"
        assert lake.query(sql.format("readings")).to_arrow()["n"].to_pylist() == [30]
        assert lake.query(sql.format("log_entries")).to_arrow()["n"].to_pylist() == [40]
        some = lake.query(sql.format("readings") + " WHERE time >= '2026-01-01T02:00:00Z'")
        assert some.to_arrow()["n"].to_pylist() == [10]
        assert some.explanation.tables[0].partitions_read == 1


def test_odd_names_of_folders_are_no_patterns(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("it's [odd] * 100% é ?x=1#y")
    with init_lake(folder) as lake:
        lake.views.register(readings())
        publish_hour(lake, 0)
        publish_hour(lake, 1)
        found = lake.query("SELECT count(*) AS n FROM readings").to_arrow()
        assert found["n"].to_pylist() == [6]


def test_a_time_limit_ends_a_statement(small_lake: Lake) -> None:
    with pytest.raises(TimedOut, match=r"0\.3 s"):
        small_lake.query(ENDLESS, timeout=0.3).to_arrow()
    assert not small_lake.leases._pins


def test_a_statement_can_be_cancelled_from_another_thread(small_lake: Lake) -> None:
    result = small_lake.query(ENDLESS)
    threading.Timer(0.3, result.cancel).start()
    with pytest.raises(Cancelled):
        result.to_arrow()
    assert not small_lake.leases._pins
    early = small_lake.query("SELECT * FROM readings")
    early.cancel()
    with pytest.raises(Cancelled):
        early.to_arrow()


def test_memory_is_limited_and_sorting_spills(small_lake: Lake) -> None:
    lake = small_lake
    tight = Queries(lake.catalog, lake.store, lake.leases, QuerySettings(memory_bytes=32 << 20))
    sorted_rows = "SELECT value, -value AS other FROM range(3000000) ORDER BY other"
    with tight.query(f"SELECT count(*) AS n FROM ({sorted_rows})") as result:
        assert result.to_arrow()["n"].to_pylist() == [3000000]
    seen = 0
    last = None
    for batch in tight.query(sorted_rows):
        values = batch.column("other")
        assert last is None or last <= values[0].as_py()
        last = values[-1].as_py()
        seen += batch.num_rows
    assert seen == 3_000_000
    with pytest.raises(OutOfMemory, match="memory"):
        tight.query(
            "SELECT count(*) FROM range(9000000) a JOIN range(9000000) b ON a.value = b.value"
        ).to_arrow()
    assert tight.query("SELECT 1 AS n").to_arrow()["n"].to_pylist() == [1]


def test_a_row_limit_cuts_the_result(hours: Lake) -> None:
    assert hours.query("SELECT * FROM readings", limit=7).to_arrow().num_rows == 7
    assert hours.query("SELECT * FROM readings", limit=0).to_arrow().num_rows == 0
    assert hours.query("SELECT * FROM readings LIMIT 3", limit=7).to_arrow().num_rows == 3
    with pytest.raises(BadInput):
        hours.query("SELECT * FROM readings", limit=-1)


def test_an_empty_result_still_has_its_columns(hours: Lake) -> None:
    found = hours.query("SELECT number, time FROM readings WHERE false").to_arrow()
    assert found.num_rows == 0
    assert found.schema.names == ["number", "time"]
    assert found.schema.field("time").type == pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("sql", "line", "column", "words"),
    [
        ("SELEC 1", 1, 1, "SELEC"),
        ("SELECT\n  number,\nFROM readings WHERE", 3, None, None),
        ("SELECT nothing FROM readings", 1, 8, "nothing"),
        ("SELECT *\nFROM nowhere", 2, 6, "nowhere"),
        ("SELECT nofunction(number) FROM readings", 1, 8, "nofunction"),
        ("SELECT 1; SELECT 2", None, None, "more than one"),
        ("  create table t (a int)", None, None, "CREATE is not possible: SQL only reads"),
        ("SELECT nmber FROM readings", 1, 8, "no column nmber"),
        ("", None, None, "no SQL"),
        ("SELECT CAST('x' AS int)", None, None, "'x'"),
        ("SELECT 1 / 0", None, None, "zero"),
        ("SELECT number FROM readings GROUP BY time", None, None, "number"),
    ],
)
def test_bad_sql_gets_one_line_with_the_position(
    small_lake: Lake, sql: str, line: int | None, column: int | None, words: str | None
) -> None:
    with pytest.raises(BadSql, match=words) as refused:
        small_lake.query(sql).to_arrow()
    assert "\n" not in str(refused.value)
    assert "DataFusion" not in str(refused.value)
    if column is not None:
        assert (refused.value.line, refused.value.column) == (line, column)
    assert not small_lake.leases._pins


def test_columns_that_there_are_are_named(small_lake: Lake) -> None:
    many = ", ".join(f"{place} AS column_{place}" for place in range(30))
    with pytest.raises(BadSql, match="there is no column qqq") as refused:
        small_lake.query(f"SELECT qqq FROM (SELECT {many})").to_arrow()
    assert refused.value.hint is not None
    assert refused.value.hint.startswith("there are column_0, column_1, ")
    assert refused.value.hint.endswith("column_11 and 18 more")


@pytest.mark.parametrize("when", ["before", "known", "during"])
def test_a_missing_file_is_damage_and_not_fewer_rows(hours: Lake, when: str) -> None:
    """Before any statement read it; after one did; and between planning and reading."""
    lost = str(hours.partitions.list_partitions("readings")[1].file_path)
    sql = "SELECT number FROM readings"
    if when == "known":
        hours.query(sql).to_arrow()
    if when != "during":
        hours.store.delete([lost])
    with pytest.raises(DamagedFile, match="missing"):
        result = hours.query(sql)
        hours.store.delete([lost])
        result.to_arrow()
    found = hours.query(f"{sql} WHERE time < '2026-01-01T01:00:00Z'").to_arrow()
    assert found.num_rows == 100


def test_a_sum_over_a_missing_file_is_not_given_at_all(hours: Lake) -> None:
    sql = "SELECT count(*) AS n FROM readings"
    assert hours.query(sql).to_arrow()["n"].to_pylist() == [300]
    hours.store.delete([str(hours.partitions.list_partitions("readings")[1].file_path)])
    with pytest.raises(DamagedFile, match="missing"), hours.query(sql) as result:
        next(iter(result))


def test_tables_and_columns_are_described(hours: Lake) -> None:
    shown = hours.query("SHOW TABLES").to_arrow().to_pylist()
    names = {row["table_name"] for row in shown if row["table_schema"] == "public"}
    assert {"readings", "log_entries", "spans", "measures", "processes"} <= names
    columns = hours.query(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_name = 'readings' ORDER BY ordinal_position"
    ).to_arrow()
    assert columns["column_name"].to_pylist() == ["time", "number"]
    described = hours.query("DESCRIBE readings").to_arrow()
    assert described["column_name"].to_pylist() == ["time", "number"]


def test_many_statements_run_at_once(hours: Lake) -> None:
    hours.views.register(readings(name="others"))
    hours.partitions.publish("others", T0, T0 + HOUR, rows(50))

    def ask(number: int) -> tuple[str, int]:
        table = "readings" if number % 2 else "others"
        found = hours.query(f"SELECT count(*) AS n FROM {table}").to_arrow()
        return table, found["n"][0].as_py()

    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(ask, range(80)))
    assert answers == {("readings", 300), ("others", 50)}


def test_a_statement_is_cancelled_while_it_begins(
    small_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lakebed.query.embedded.running import streams

    result = small_lake.query(ENDLESS)
    really = streams._Pump

    def begin(stream: object) -> object:
        result.cancel()
        return really(stream)

    monkeypatch.setattr(streams, "_Pump", begin)
    with pytest.raises(Cancelled):
        result.to_arrow()
    assert not small_lake.leases._pins


def test_results_without_an_order_and_with_one_have_plain_types(lake: Lake) -> None:
    land(lake)
    build(lake)
    for order in ("", " ORDER BY msg"):
        table = lake.query(f'SELECT msg, target AS "T ""x" FROM log_entries{order}').to_arrow()
        assert table.schema.types == [pa.string(), pa.string()]
        assert table.column_names == ["msg", 'T "x']
        assert not order or table["msg"].to_pylist() == sorted(table["msg"].to_pylist())


@pytest.mark.parametrize(
    "wrong",
    [
        {"limit": True},
        {"limit": "5"},
        {"limit": 1 << 63},
        {"timeout": "x"},
        {"timeout": float("nan")},
        {"timeout": -1},
        {"parameters": {"a": 1}},
    ],
)
def test_options_that_make_no_sense_are_refused(lake: Lake, wrong: dict[str, Any]) -> None:
    with pytest.raises(BadInput):
        lake.query("SELECT 1", **wrong)
    for sql in (None, b"SELECT 1"):
        with pytest.raises(BadInput, match="a statement is a text"):
            lake.query(sql)  # type: ignore[arg-type]


def test_what_stands_in_texts_is_left_alone(lake: Lake) -> None:
    text = "property_get(process_properties, x)"
    for sql, values in (
        (f"SELECT '{text}' AS a", None),
        (f"SELECT $t${text}$t$ AS a", None),
        ("SELECT ? AS a", [text]),
    ):
        assert lake.query(sql, parameters=values).to_arrow()["a"].to_pylist() == [text]
    inside = "SELECT $a$?$a$ AS b, E'\\'?' AS c, ? AS d"
    found = lake.query(inside, parameters=["x$a$ AS c, 'y' --"]).to_arrow().to_pylist()
    assert found == [{"b": "?", "c": "'?", "d": "x$a$ AS c, 'y' --"}]
    with pytest.raises(BadSql, match="a comment in a comment"):
        lake.query("SELECT /* /* */ ? */ ? AS b", parameters=[1])
    with pytest.raises(BadSql, match="view_instance is computed"):
        lake.query("SELECT * FROM view_instance('log_' || 'entries', 'global')")


@pytest.mark.parametrize(
    "value",
    [
        timedelta(microseconds=1),
        -timedelta(days=3, microseconds=7),
        Decimal("123456789012345678901234567890.123456789"),
        Decimal("-1E+5"),
        Decimal("0.001"),
        10**29,
        -(2**70),
    ],
)
def test_parameters_are_exact(lake: Lake, value: Any) -> None:
    if isinstance(value, timedelta):
        time = datetime(2026, 1, 1, tzinfo=UTC)
        sql = "SELECT TIMESTAMP '2026-01-01T00:00:00Z' + ? AS x"
        (found,) = lake.query(sql, parameters=[value]).to_arrow()["x"].to_pylist()
        assert found.replace(tzinfo=UTC) == time + value
    else:
        (found,) = lake.query("SELECT ? AS x", parameters=[value]).to_arrow()["x"].to_pylist()
        assert found == value


def test_a_closed_lake_leaves_no_engine_behind(tmp_path: Path) -> None:
    """The engine holds its tables and functions, and those hold it, in a ring that Python's garbage
    collector cannot see."""
    with init_lake(tmp_path / "lake") as lake:
        assert lake.query("SELECT count(*) AS n FROM log_entries").to_arrow()["n"][0].as_py() == 0
        held = weakref.ref(lake.queries._embedded()._catalog)
        assert held() is not None
    gc.collect()
    assert held() is None
