"""What the catalog knows, as tables of SQL."""

from __future__ import annotations

import pyarrow as pa

from lakebed.lake import Lake
from lakebed.views.builtin import COLUMNS
from tests.parts.data import HOUR, T0, publish_hour, readings
from tests.query.functions import ask, live, with_twin


def test_partitions_are_listed_with_micromegas_columns_in_its_order(hours: Lake) -> None:
    table = hours.query("SELECT * FROM list_partitions()").to_arrow()
    time = pa.timestamp("us", "UTC")
    assert [(field.name, field.type) for field in table.schema] == [
        ("view_set_name", pa.string()),
        ("view_instance_id", pa.string()),
        ("begin_insert_time", time),
        ("end_insert_time", time),
        ("min_event_time", time),
        ("max_event_time", time),
        ("updated", time),
        ("file_path", pa.string()),
        ("file_size", pa.int64()),
        ("file_schema_hash", pa.binary()),
        ("source_data_hash", pa.binary()),
        ("num_rows", pa.int64()),
        ("partition_format_version", pa.int32()),
        ("sort_order", pa.list_(pa.string())),
        ("partition_id", pa.string()),
    ]
    known = live(hours)
    rows = table.to_pylist()
    assert [row["partition_id"] for row in rows] == [each.partition_id for each in known]
    assert [row["num_rows"] for row in rows] == [3, 0, 2]
    assert rows[1]["file_path"] is None
    assert rows[1]["min_event_time"] is None
    assert rows[0]["sort_order"] == ["number"]
    assert rows[0]["file_schema_hash"] == readings().schema_hash


def test_view_sets_are_listed(still: Lake) -> None:
    rows = {row["view_set_name"]: row for row in ask(still, "SELECT * FROM list_view_sets()")}
    mine = rows["readings"]
    assert list(mine)[:5] == [
        "view_set_name",
        "current_schema_hash",
        "schema",
        "has_view_maker",
        "global_instance_available",
    ]
    assert mine["current_schema_hash"] == readings().schema_hash
    assert mine["schema"] == "time: timestamp[us, tz=UTC] not null, number: int64"
    assert (mine["has_view_maker"], mine["global_instance_available"]) == (False, True)
    assert (mine["version"], mine["source"], mine["retained_from"]) == (1, "none", None)
    assert rows["log_entries"]["has_view_maker"]
    assert rows["log_stats"]["source"] == "sql over log_entries"


def test_columns_are_listed_with_their_comments(still: Lake) -> None:
    rows = ask(still, "SELECT * FROM list_columns()")
    for name, columns in COLUMNS.items():
        mine = [row for row in rows if row["view_set_name"] == name]
        assert {row["column_name"]: row["comment"] for row in mine} == columns
    assert [
        (row["column_name"], row["data_type"], row["is_nullable"], row["comment"])
        for row in rows
        if row["view_set_name"] == "readings"
    ] == [("time", "timestamp[us, tz=UTC]", False, None), ("number", "int64", True, None)]


def test_listings_join_as_micromegas_admin_module_does(hours: Lake) -> None:
    sql = """
        SELECT p.view_set_name, p.view_instance_id, p.begin_insert_time, p.end_insert_time,
               p.file_schema_hash AS incompatible_schema_hash, vs.current_schema_hash,
               p.file_path, p.file_size
        FROM list_partitions() p
        JOIN list_view_sets() vs ON p.view_set_name = vs.view_set_name
        WHERE p.file_schema_hash != vs.current_schema_hash {and_name}
        ORDER BY p.view_set_name, p.view_instance_id, p.begin_insert_time
    """
    assert ask(hours, sql.format(and_name="")) == []
    old, new = with_twin(hours)
    rows = ask(hours, sql.format(and_name="AND p.view_set_name = 'readings'"))
    assert [row["file_path"] for row in rows][:2] == [old.file_path, None]
    assert len(rows) == 3
    assert {row["current_schema_hash"] for row in rows} == {new.schema_hash}
    assert ask(hours, sql.format(and_name="AND p.view_set_name = 'blocks'")) == []


def test_a_name_in_the_statement_narrows_what_is_read_and_nothing_else(hours: Lake) -> None:
    hours.views.register(readings(name="others"))
    hours.partitions.publish_completed_empty("others", T0, T0 + HOUR)
    count = "SELECT count(*) AS n FROM list_partitions()"
    assert ask(hours, f"{count} WHERE view_set_name = 'others'") == [{"n": 1}]
    assert ask(hours, f"{count} WHERE view_set_name IN ('others', 'readings')") == [{"n": 4}]
    assert ask(hours, f"{count} WHERE view_set_name = 'others' OR num_rows = 2") == [{"n": 2}]
    both = f"SELECT ({count}) AS every, count(*) AS n FROM list_partitions()"
    assert ask(hours, f"{both} WHERE view_set_name = 'others'") == [{"every": 4, "n": 1}]


def test_listings_are_of_the_statements_own_snapshot(hours: Lake) -> None:
    before = hours.query("SELECT 1").explanation.tick
    hours.retirement.retire_partitions("readings", T0, T0 + HOUR, confirmed=["readings"])
    assert ask(hours, "SELECT count(*) AS n FROM list_partitions()") == [{"n": 2}]
    assert ask(hours, "SELECT count(*) AS n FROM list_partitions()", as_of=before) == [{"n": 3}]


def test_listings_cost_a_constant_number_of_catalog_queries(hours: Lake) -> None:
    import sqlalchemy as sa

    said: list[str] = []
    sa.event.listen(
        hours.catalog.engine, "before_cursor_execute", lambda *args: said.append(args[2])
    )
    sql = "SELECT * FROM list_partitions() p JOIN list_view_sets() v USING (view_set_name)"
    hours.query(sql).to_arrow()
    said.clear()
    hours.query(sql).to_arrow()
    few = len(said)
    for hour in range(3, 9):
        publish_hour(hours, hour)
    hours.query(sql).to_arrow()
    said.clear()
    hours.query(sql).to_arrow()
    assert len(said) == few
