"""Users' tables on Spark: the same rows as on the embedded engine, whatever their tables have been
through, and nothing that is not a table of the lake.
"""

from __future__ import annotations

import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lakebed.errors import BadSql, DamagedFile
from lakebed.lake import Lake
from lakebed.model.tables.schema import Bucket
from lakebed.opening import init_lake
from lakebed.query.planning.content import UserContent
from lakebed.query.spark import statement as statements
from lakebed.query.spark.text import Edit, Spelling
from lakebed.tables.table import Table
from tests.conftest import CAMPAIGN
from tests.parts.building import land, tick

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KEYS = {"plain": (), "timed": ("device", "time"), "moving": ("device",)}
"""Tables without a key, with one that has the time, and with one that moves between buckets."""
FIRST = datetime(2026, 11, 16, 5, tzinfo=UTC)
STEPS = {
    Bucket.HOUR: timedelta(hours=1),
    Bucket.DAY: timedelta(days=1),
    Bucket.WEEK: timedelta(weeks=1),
    Bucket.MONTH: timedelta(days=31),
}
NAMES = {"log_entries": 0, "home.heart_rate": 0, "home.steps": 0, "office.steps": 0, "steps": 0}


def some_seed() -> int:
    seed = int(os.environ.get("LAKEBED_SEED", int.from_bytes(os.urandom(4), "big")))
    sys.stdout.write(f"seed {seed}; replay with LAKEBED_SEED={seed}\n")
    return seed


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with init_lake(tmp_path_factory.mktemp("lake")) as lake:
        lake.tables.create_database("home")
        yield lake


def make(lake: Lake, name: str, key: tuple[str, ...], bucket: str) -> Table:
    schema: dict[str, Any] = {
        "time": {"type": "datetime", "time": True, "unique": "time" in key},
        "device": {"type": "string", "required": True, "unique": "device" in key},
        "count": "int",
        "counts": "int[]",
    }
    return lake.tables.create_table("home", name, schema, bucket)


class History:
    """What happens to a table: rows of a few devices in a few buckets, again and again."""

    def __init__(self, rng: random.Random, table: Table, bucket: Bucket) -> None:
        self._rng = rng
        self._table = table
        self._step = STEPS[bucket]
        self._version = 1

    def insert(self, times: int) -> None:
        for _ in range(times):
            rows = [self._row() for _ in range(self._rng.randint(1, 12))]
            self._table.insert(rows)

    def _row(self) -> dict[str, Any]:
        rng = self._rng
        count: float | None = rng.choice([None, rng.randint(-5, 5)])
        if self._version > 1 and count is not None:
            count += 0.5
        row = {
            "time": FIRST + rng.randrange(4) * self._step + rng.randrange(3) * timedelta(minutes=7),
            "device": f"d{rng.randrange(6)}",
            "count": count,
            "counts": rng.choice([None, [], [1, None, 2]]),
        }
        return row | ({"note": rng.choice(["x", None])} if self._version > 2 else {})

    def alter(self) -> None:
        self._version += 1
        if self._version == 2:
            self._table.alter(widen=["count", "counts"])
        else:
            self._table.alter(add={"note": "string", "flags": "bool[]"})

    def delete(self) -> None:
        self._table.delete_rows(f"device = 'd{self._rng.randrange(6)}'")


def rows(table: pa.Table) -> Counter[str]:
    return Counter(str(row) for row in table.to_pylist())


def ask_both(
    lake: Lake, spark: SparkSession, sql: str, **options: Any
) -> tuple[Counter[str], dict[str, Any]]:
    """What both engines say, which must be the same; and how it was found."""
    options |= {"explained": True, "limit": 9_000}  # few enough to be fetched at once
    ours = lake.queries.query(sql, engine="spark", spark=spark, **options)
    other = lake.queries.query(sql, **options)
    found, expected = ours.to_arrow(), other.to_arrow()
    assert rows(found) == rows(expected), sql
    assert found.schema.names == expected.schema.names
    assert found.schema.types == expected.schema.types
    figures = ours.explanation.as_dict()
    assert figures["tables"] == other.explanation.as_dict()["tables"]
    return rows(found), figures


@pytest.mark.parametrize("bucket", list(Bucket) if CAMPAIGN else [Bucket.DAY])
def test_both_engines_agree_on_tables_with_a_history(
    lake: Lake, spark: SparkSession, bucket: Bucket
) -> None:
    rng = random.Random(some_seed())
    tables = {
        f"{kind}_{bucket}": make(lake, f"{kind}_{bucket}", KEYS[kind], bucket) for kind in KEYS
    }
    histories = [History(rng, table, bucket) for table in tables.values()]
    for each in histories:
        each.insert(3)
        each.alter()
        each.insert(3)
        each.delete()
        each.alter()
        each.insert(3)
        each.delete()
        each.insert(1)
    everything = " UNION ALL ".join(f"SELECT '{name}' AS t, * FROM home.{name}" for name in tables)
    some = FIRST + STEPS[bucket]
    part = " UNION ALL ".join(
        f"SELECT '{name}' AS t, device, count, partition_date FROM home.{name} "
        f"WHERE partition_date >= '{bucket.name_of(int(some.timestamp() * 1e6))}' AND count > 0"
        for name in tables
    )
    unfolded, figures = ask_both(lake, spark, everything)
    assert len(unfolded) > 20
    assert sum(each["keys_read"] for each in figures["tables"]) == 0
    _, figures = ask_both(lake, spark, part)
    assert sum(each["keys_read"] for each in figures["tables"]) > 0, "of the one that moves"
    then = tick(lake)
    for table in tables.values():
        assert table.fold()
    assert ask_both(lake, spark, everything)[0] == unfolded
    for each in histories:
        each.insert(1)
    within = {"begin": some, "end": some + STEPS[bucket]}
    past, _ = ask_both(lake, spark, everything, as_of=then, **within)
    assert past
    assert past <= unfolded


def test_delete_marks_hide_their_own_instant_and_are_never_seen(
    lake: Lake, spark: SparkSession
) -> None:
    table = make(lake, "marked", KEYS["moving"], "day")
    table.insert([{"time": FIRST, "device": name, "count": 1} for name in "abc"])
    assert table.count() == 3  # from now on, nothing but inserts moves the clock
    later = FIRST + timedelta(days=1)
    table.insert([{"time": later, "device": name, "count": 2} for name in "ab"])
    assert table.delete_rows("device = 'a'") == 1  # as of the tick of the last insert
    left = "SELECT device, partition_date FROM home.marked"
    assert sum(read_from_files(lake, spark, table, left).values()) == 2
    assert sum(ask_both(lake, spark, left)[0].values()) == 2
    table.fold()  # the mark stays, for what is older in the other bucket
    assert any(each.num_rows == 2 for each in table.partitions() if each.instance == "2026-11-17")
    assert sum(ask_both(lake, spark, left)[0].values()) == 2
    found, _ = ask_both(lake, spark, f"{left} WHERE partition_date = '2026-11-17'")
    assert list(found) == ["{'device': 'b', 'partition_date': '2026-11-17'}"]


def test_whatever_hides_is_compared_by_versions(lake: Lake, spark: SparkSession) -> None:
    """Large files are read like small ones: every file may hide rows of every other."""
    rng = random.Random(some_seed())
    for kind in ("timed", "moving"):
        table = make(lake, f"{kind}_large", KEYS[kind], "day")
        history = History(rng, table, Bucket.DAY)
        history.insert(4)
        history.delete()
        history.alter()
        history.insert(4)
        sql = f"SELECT * FROM home.{kind}_large"
        expected = rows(lake.query(sql).to_arrow())
        assert read_from_files(lake, spark, table, sql) == expected


def read_from_files(lake: Lake, spark: SparkSession, table: Table, sql: str) -> Counter[str]:
    """The rows of a statement as if all partitions of its table were large."""
    name = table.definition.full_name
    files = [each for each in table.partitions() if not each.is_empty]
    content = UserContent(table.definition, files, None, None, files, compares=True)
    engine = lake.queries._on_spark(spark, None, None)
    stream = engine.run(statements.read(sql, [name]), {name: content})
    return rows(pa.Table.from_batches(list(stream), stream.schema))


def test_tables_and_view_sets_are_read_together(lake: Lake, spark: SparkSession) -> None:
    land(lake, size=15)
    table = make(lake, "services", ("device",), "month")
    names = lake.query("SELECT DISTINCT target FROM log_entries").to_arrow()["target"].to_pylist()
    table.insert([{"time": FIRST, "device": name, "count": 1} for name in names[1:]])
    sql = (
        "SELECT l.target, count(*) AS n FROM log_entries AS l JOIN home.services "
        "ON home.services.device = l.target GROUP BY l.target"
    )
    found, figures = ask_both(lake, spark, sql)
    assert len(found) == len(names) - 1
    assert {each["table"] for each in figures["tables"]} == {"log_entries", "home.services"}
    bare = "SELECT services.device FROM services WHERE device IN (SELECT target FROM log_entries)"
    ask_both(lake, spark, bare, database="home")
    with pytest.raises(BadSql, match="there is no view set services"):
        lake.query(bare, engine="spark", spark=spark)


def test_every_type_and_the_ends_of_time(lake: Lake, spark: SparkSession) -> None:
    schema = {
        "time": {"type": "datetime", "time": True},
        "i": "int",
        "f": {"type": "float", "max": 1},
        "s": "string",
        "b": "bool",
        "d": "datetime",
        "j": "json",
        "ds": "datetime[]",
        "js": "json[]",
    }
    declared = {"columns": schema, "out_of_range": "flag"}
    record = {
        "i": -(2**63),
        "f": 2.5,
        "s": "ü\n",
        "b": True,
        "d": "1969-12-31T23:59:59.999999Z",
        "j": {"a": [1, None]},
        "ds": ["0001-01-01T00:00:00Z", None],
        "js": [{"b": 1}, [2]],
    }
    for bucket in Bucket:
        name = f"types_{bucket}"
        table = lake.tables.create_table("home", name, declared, bucket)
        for time in ("1970-01-01T00:00:00Z", "1582-10-10T23:00:00Z", "1969-12-31T23:59:59.999999Z"):
            table.insert([{"time": time, **record}, {"time": time}])
    sql = " UNION ALL ".join(f"SELECT * FROM home.types_{bucket}" for bucket in Bucket)
    found, _ = ask_both(lake, spark, sql)
    assert sum(found.values()) == 24
    zone = spark.conf.get("spark.sql.session.timeZone")
    assert zone == "UTC"
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        assert ask_both(lake, spark, sql)[0] == found
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)


def test_stores_that_spark_cannot_reach_are_read_through_ours(
    s3_bucket: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rng = random.Random(some_seed())
    with init_lake(tmp_path_factory.mktemp("s3"), store=f"s3://{s3_bucket}/lake") as lake:
        lake.tables.create_database("home")
        table = make(lake, "far", KEYS["moving"], "day")
        history = History(rng, table, Bucket.DAY)
        history.insert(3)
        history.alter()
        history.insert(3)
        sql = "SELECT * FROM home.far"
        found, _ = ask_both(lake, spark, sql)
        assert read_from_files(lake, spark, table, sql) == found
        lake.pipeline.limits = replace(lake.pipeline.limits, fold_here_bytes=-1)
        assert lake.pipeline.build("home.far", spark=spark).problems == []
        assert ask_both(lake, spark, sql)[0] == found


def test_files_that_are_pruned_are_not_opened(lake: Lake, spark: SparkSession) -> None:
    for kind in ("plain", "timed"):
        table = make(lake, f"pruned_{kind}", KEYS[kind], "day")
        for day in range(3):
            table.insert([{"time": FIRST + timedelta(days=day), "device": "a", "count": day}])
        gone = table.partitions()[-1].file_path
        lake.store.delete([gone or ""])
        name = f"home.pruned_{kind}"
        for where, count in (
            ("time < TIMESTAMP '2026-11-18 00:00:00'", 2),
            ("partition_date = '2026-11-17'", 1),
            ("partition_date IN ('2026-11-16', '2026-11-17') AND device = 'a'", 2),
            ("device = 'b'", 0),
        ):
            sql = f"SELECT count(*) AS n FROM {name} WHERE {where}"
            got = lake.query(sql, engine="spark", spark=spark).to_arrow()
            assert got["n"].to_pylist() == [count]
        with pytest.raises(DamagedFile, match=Path(gone or "").name):
            lake.query(f"SELECT count(*) FROM {name}", engine="spark", spark=spark).to_arrow()


# ---- what Spark is given ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "given"),
    [
        (
            "SELECT h.bpm FROM home.heart_rate h JOIN steps USING (id)",
            "SELECT h.bpm FROM lakebed_0 h JOIN steps USING (id)",
        ),
        (
            "SELECT home.heart_rate.*, heart_rate.a FROM home.heart_rate",
            "SELECT heart_rate.*, heart_rate.a FROM lakebed_0 AS heart_rate",
        ),
        (
            "SELECT 'home.steps' AS \"home.steps\" FROM HOME . `steps` -- home.steps",
            "SELECT 'home.steps' AS \"home.steps\" FROM lakebed_0 AS steps -- home.steps",
        ),
        (
            "WITH steps AS (SELECT * FROM home.steps) SELECT * FROM steps, office.steps AS o",
            "WITH steps AS (SELECT * FROM lakebed_0 AS steps) SELECT * FROM steps, lakebed_1 AS o",
        ),
        (
            "SELECT lakebed_0, x.lakebed_2 FROM home.steps x, office.steps y, home.steps z",
            "SELECT lakebed_0, x.lakebed_2 FROM lakebed_1 x, lakebed_3 y, lakebed_1 z",
        ),
        (
            "SELECT lake.home.steps.a FROM lake.home.steps JOIN public.steps AS s ON s.a = steps.a",
            "SELECT steps.a FROM lakebed_0 AS steps JOIN lakebed_1 AS s ON s.a = steps.a",
        ),
        (
            "SELECT o.home.steps FROM office.steps o TABLESAMPLE (5 ROWS)",
            "SELECT o.home.steps FROM lakebed_0 o TABLESAMPLE (5 ROWS)",
        ),
    ],
)
def test_tables_of_databases_are_views_with_names_of_their_own(sql: str, given: str) -> None:
    statement = statements.read(sql, NAMES)
    assert statement.spelling.given.rstrip() == given
    named = {view: name for view, name in statement.views.items() if view != name}
    assert all("." in name or name == "steps" for name in named.values())


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT * FROM home.nothing", "home.nothing cannot be read"),
        ("SELECT * FROM nowhere.steps", "nowhere.steps cannot be read"),
        ("SELECT * FROM spark_catalog.home.steps", "spark_catalog.home.steps cannot be read"),
        ("SELECT * FROM lake.spark_catalog.home.steps", "cannot be read"),
        ("SELECT * FROM parquet.`home.steps`", "cannot be read"),
        ("SELECT * FROM `home.steps`", "there is no view set `home.steps`"),
        ("SELECT * FROM lake.steps", "lake.steps cannot be read"),
        ("SELECT * FROM heart_rate", "there is no view set heart_rate"),
        ("SELECT * FROM home.steps WITH (path = '/etc')", "expecting"),
        ("SELECT home.steps.a FROM home.steps, office.steps", "need names of their own"),
        ("SELECT public.steps.a FROM home.steps, public.steps", "need names of their own"),
        ("SELECT * FROM home.steps TABLESAMPLE (5 ROWS)", "needs a name"),
        ("INSERT INTO home.steps SELECT 1", "one SELECT"),
    ],
)
def test_nothing_but_tables_of_the_lake_can_be_named(sql: str, said: str) -> None:
    with pytest.raises(BadSql, match=said):
        statements.read(sql, NAMES)


def test_errors_point_into_what_was_written(lake: Lake, spark: SparkSession) -> None:
    make(lake, "told", (), "day")
    for sql, place in (
        ("SELECT told.nope FROM home.told", (1, 8)),
        ("SELECT 1 AS one FROM home\n.told JOIN home.told t ON true\nWHERE t.nope = 1", (3, 7)),
        ("SELECT home.told.device, nope FROM home.told", (1, 26)),
    ):
        with pytest.raises(BadSql) as caught:
            lake.query(sql, engine="spark", spark=spark)
        assert (caught.value.line, caught.value.column) == place
        assert "lakebed_" not in str(caught.value)


def test_places_are_found_again() -> None:
    spelling = Spelling(
        "SELECT home.a.b\nFROM home.a, c", (Edit(7, 12, ""), Edit(21, 27, "v AS a"))
    )
    assert spelling.given == "SELECT a.b\nFROM v AS a, c"
    for word, place in (("a.b", (1, 13)), ("v AS", (2, 6)), (", c", (2, 12)), ("FROM", (2, 1))):
        assert spelling.locate(spelling.given.index(word)) == place
    assert spelling.locate_in_line(2, spelling.given.split("\n")[1].index("c") + 1) == (2, 14)
    assert spelling.locate(-1) is spelling.locate(100) is spelling.locate_in_line(3, 1) is None
