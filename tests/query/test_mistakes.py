"""What DataFusion gets wrong by itself is refused, or right: see lakebed.query.embedded.mistakes.
Whatever is right in the engine one day can go there.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from lakebed.errors import BadSql
from lakebed.lake import Lake
from lakebed.model.view_set import ViewSet
from lakebed.opening import init_lake
from lakebed.tables.table import Table
from tests.parts.data import HOUR, T0

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with init_lake(tmp_path_factory.mktemp("mistakes") / "lake") as lake:
        lake.tables.create_database("home")
        yield lake


def test_conditions_above_a_right_join_are_refused_not_answered_wrongly(lake: Lake) -> None:
    """See lakebed.query.embedded.mistakes; if this is ever right in the engine, that can go."""
    schema = pa.schema([("time", pa.timestamp("us", "UTC")), ("i", pa.int64())])
    for name, ids in (("a", [1, 2]), ("b", [2, 7, 8])):
        lake.views.register(ViewSet(name, 1, schema, "time", ("time",)))
        rows = pa.table({"time": [T0 + each for each in ids], "i": ids}, schema=schema)
        lake.partitions.publish(name, T0, T0 + HOUR, rows)

    def ask(sql: str) -> list[int]:
        return sorted(lake.query(sql).to_arrow()["i"].to_pylist())

    right, left = "SELECT b.i FROM a RIGHT JOIN b ON a.i = b.i", "FROM b LEFT JOIN a ON a.i = b.i"
    assert ask(right) == [2, 7, 8]
    assert ask(f"{right} WHERE a.i = 2") == [2]
    assert ask(f"{right} WHERE b.i > 2") == [7, 8]
    assert ask(f"SELECT b.i, b.time {left} WHERE a.time IS NULL") == [7, 8]
    with pytest.raises(BadSql, match="RIGHT JOIN") as refused:
        ask("SELECT b.i, b.time FROM a RIGHT JOIN b ON a.i = b.i WHERE a.time IS NULL")
    assert "LEFT JOIN" in str(refused.value.hint)


@pytest.mark.parametrize("number", range(12))
def test_the_first_rows_in_order_are_the_first(home: Lake, number: int) -> None:
    """Of files that follow each other and overlap: how the engine shares them out depends on their
    names, which are chosen at random."""
    table = home.tables.create_table("home", f"ordered_{number}", {"time": "datetime", "v": "int"})
    times = []
    for minute in range(2):
        some = [BEGIN + timedelta(hours=hour, minutes=minute) for hour in range(48)]
        table.insert([{"time": each, "v": each.day} for each in some])
        times += some
    for where, wanted in (
        ("", sorted(times)),
        (" WHERE time >= '2026-01-01T05:01:00Z'", sorted(times)[11:]),
        (" WHERE v = 2", [each for each in sorted(times) if each.day == 2]),
    ):
        for order, limit in (("", 6), ("", 60), (" DESC", 6), (" DESC", 60)):
            sql = f"SELECT time FROM {table.name}{where} ORDER BY time{order} LIMIT {limit}"
            found = table.query(sql).to_arrow()["time"].to_pylist()
            assert found == (wanted[::-1] if order else wanted)[:limit], sql


def test_the_first_rows_of_large_row_groups_are_the_first(lake: Lake) -> None:
    """A LIMIT is no reason to leave out a row group of which only some rows are wanted."""
    schema = pa.schema([("time", pa.timestamp("us", "UTC")), ("i", pa.int64())])
    lake.views.register(ViewSet("many", 1, schema, "time", ("time",)))
    count = 300_000
    for part in range(2):
        begin = T0 + part * HOUR
        numbers = range(part * count, (part + 1) * count)
        rows = pa.table({"time": [begin + at for at in range(count)], "i": numbers}, schema=schema)
        lake.partitions.publish("many", begin, begin + HOUR, rows)
    for first in (1, 7, count - 3, count + 5):
        microsecond = T0 + first % count + first // count * HOUR
        instant = f"arrow_cast({microsecond}, 'Timestamp(Microsecond, Some(\"UTC\"))')"
        sql = f"SELECT i FROM many WHERE time >= {instant} ORDER BY time LIMIT 5"
        assert lake.query(sql).to_arrow()["i"].to_pylist() == list(range(first, first + 5))


@pytest.fixture(scope="module")
def nested(home: Lake) -> Table:
    """A file in which every device is the same and every note is NULL."""
    schema = {
        "time": {"type": "datetime", "unique": True},
        "device": "string",
        "note": "string",
        "tags": "string[]",
        "none": "int[]",
    }
    table = home.tables.create_table("home", "nested", schema)
    table.insert(
        [
            {"time": BEGIN + timedelta(minutes=at), "device": "left", "tags": ["a", "b"][: at % 3]}
            for at in range(6)
        ]
    )
    return table


@pytest.mark.parametrize(
    ("condition", "wanted"),
    [
        ("device IS NULL OR array_length(tags) > 5", 0),
        ("device IS NULL OR tags[1] = 'x'", 0),
        ("device IS NOT NULL AND array_length(tags) = 2", 2),
        ("NOT (device IS NOT NULL AND tags[1] = 'a')", 0),
        ("CASE WHEN device IS NULL THEN false ELSE array_length(tags) > 5 END", 0),
        ("note IS NOT NULL OR tags[2] = 'b'", 2),
        ("array_has(none, 1) OR array_length(tags) > 5", 0),
        ("device IS NULL OR 'two\nlines' = 'x' OR array_length(tags) > 5", 0),
    ],
)
def test_conditions_on_lists_are_applied(nested: Table, condition: str, wanted: int) -> None:
    for sql in (
        f"SELECT count(*) AS n FROM nested WHERE {condition}",
        f"WITH x AS (SELECT tags, device, note, none FROM nested WHERE {condition}) "
        "SELECT count(*) AS n FROM x",
        f"SELECT count(*) AS n FROM (SELECT time FROM nested WHERE {condition}) a "
        "JOIN nested b ON a.time = b.time",
    ):
        assert nested.query(sql).to_arrow()["n"].to_pylist() == [wanted], sql
    renamed = condition.replace("tags", "y").replace("device", "z")
    sql = f"SELECT y FROM (SELECT tags AS y, device AS z, note, none FROM nested) WHERE {renamed}"
    assert nested.query(sql).to_arrow().num_rows == wanted


def test_only_rows_that_match_a_condition_on_a_list_are_deleted(nested: Table) -> None:
    assert nested.delete_rows("device IS NULL OR array_length(tags) > 5") == 0
    assert nested.count() == 6


NULLS = "WITH t(id, v) AS (VALUES (1, NULL), (2, 7), (3, 5)), u(id) AS (VALUES (5)) "


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("v IN (SELECT id FROM u)", [3]),
        ("v IN (SELECT id FROM u) OR id = 2", [2, 3]),
        ("v NOT IN (SELECT id FROM u)", [2]),
        ("id > 0 AND NOT (v IN (SELECT id FROM u))", [2]),
        ("EXISTS (SELECT 1 FROM u WHERE u.id = t.v) OR id = 2", [2, 3]),
        ("NOT EXISTS (SELECT 1 FROM u WHERE u.id = t.v) OR id > 100", [1, 2]),
        ("NOT (v = ANY (SELECT id FROM u)) OR id > 100", [2]),
        ("v NOT IN (5, 6) OR id > 100", [2]),
        ("v NOT IN (SELECT id FROM u) OR id > 100", None),
        ("NOT (v IN (SELECT id FROM u)) OR id > 100", None),
        ("NOT (v IN (SELECT id FROM u) AND id < 3)", None),
        ("(v IN (SELECT id FROM u) OR id = 2) IS NULL", None),
        ("CASE WHEN v NOT IN (SELECT id FROM u) THEN true ELSE false END", None),
        ("id IN (SELECT id FROM t WHERE v NOT IN (SELECT id FROM u) OR id > 100)", None),
    ],
)
def test_what_is_not_known_of_a_subquery_is_right_or_refused(
    home: Lake, where: str, found: list[int] | None
) -> None:
    sql = f"{NULLS} SELECT id FROM t WHERE {where} ORDER BY id"
    if found is not None:
        assert home.query(sql).to_arrow()["id"].to_pylist() == found
        return
    with pytest.raises(BadSql, match="unknown") as refused:
        home.query(sql).to_arrow()
    assert "= ANY" in str(refused.value.hint)


def test_no_row_is_deleted_of_which_it_is_not_known(home: Lake) -> None:
    table = home.tables.create_table(
        "home", "unknown", {"time": "datetime", "id": {"type": "int", "unique": True}, "v": "int"}
    )
    time = "2026-01-01T00:00:00Z"
    table.insert([{"time": time, "id": 1}, {"time": time, "id": 2, "v": 7}])
    with pytest.raises(BadSql, match="unknown"):
        table.delete_rows("v NOT IN (SELECT 5) OR id > 100")
    assert table.delete_rows("NOT (v = ANY (SELECT 5)) OR id > 100") == 1
    assert table.query("SELECT id FROM unknown").to_arrow()["id"].to_pylist() == [1]


@pytest.mark.parametrize(
    ("sql", "found"),
    [
        ("SELECT id FROM t EXCEPT SELECT id FROM u", [1, 2]),
        ("SELECT id FROM t INTERSECT SELECT id FROM u UNION ALL SELECT 9", [3, 9]),
        ("SELECT id FROM t EXCEPT ALL SELECT id FROM u", None),
        ("SELECT id FROM t INTERSECT /* */ ALL SELECT id FROM u", None),
    ],
)
def test_rows_that_are_there_several_times_are_refused_not_counted_wrongly(
    home: Lake, sql: str, found: list[int] | None
) -> None:
    sql = f"WITH t(id) AS (VALUES (1), (2), (3), (3)), u(id) AS (VALUES (3), (5)) {sql}"
    if found is not None:
        assert sorted(home.query(sql).to_arrow()["id"].to_pylist()) == found
        return
    with pytest.raises(BadSql, match="EXCEPT ALL and INTERSECT ALL"):
        home.query(sql).to_arrow()
