"""Functions that SQL can call: what the catalog knows, and what administrators may change."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakebed.catalog import journal
from lakebed.errors import (
    BadInput,
    BadSql,
    Denied,
    LakebedError,
    ReadOnly,
    Refused,
    TimedOut,
    UnknownViewSet,
)
from lakebed.lake import Lake, init_lake, open_lake
from lakebed.model.partition import Partition
from lakebed.model.time import format_instant
from lakebed.views.builtin import COLUMNS
from tests.parts.building import build, land
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, readings

H0, H1, H2, H3 = (f"CAST('{format_instant(T0 + hour * HOUR)}' AS TIMESTAMP)" for hour in range(4))


@pytest.fixture
def hours(lake: Lake) -> Lake:
    """Three hours of readings, the second of which is empty."""
    return fill(lake)


@pytest.fixture(scope="module")
def still(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """The same, for tests that must change nothing."""
    with init_lake(tmp_path_factory.mktemp("still")) as lake:
        yield fill(lake)


def fill(lake: Lake) -> Lake:
    lake.views.register(readings())
    for hour, count in enumerate((3, 0, 2)):
        publish_hour(lake, hour, count)
    return lake


def ask(lake: Lake, sql: str, **options: Any) -> list[dict[str, Any]]:
    return lake.query(sql, **options).to_arrow().to_pylist()


def one(lake: Lake, sql: str) -> str:
    (row,) = ask(lake, f"SELECT {sql} AS message")
    return str(row["message"])


def live(lake: Lake) -> list[Partition]:
    return lake.partitions.list_partitions("readings")


def history(lake: Lake, *operations: str) -> list[journal.Entry]:
    with lake.catalog.read() as connection:
        return journal.list_entries(connection, operations=operations)


def with_twin(lake: Lake) -> list[Partition]:
    """The first hour exists in two schemas."""
    lake.views.register(readings(2))
    publish_hour(lake, 0, version=2)
    both = [each for each in live(lake) if each.insert_range.begin == T0]
    return sorted(both, key=lambda each: each.published_at)


# -- what the catalog knows -----------------------------------------------------------------------


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
    hours.retirement.retire_partitions("readings", T0, T0 + HOUR)
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


# -- instances ------------------------------------------------------------------------------------


@pytest.fixture
def telemetry(lake: Lake) -> Lake:
    """Logs of several processes: one file of each sender's, and a tail."""
    land(lake, seed=1, size=10)
    build(lake)
    first = lake.query("SELECT max(insert_time) AS t FROM blocks").to_arrow()["t"][0].value
    land(lake, seed=2, size=10)
    build(lake, begin=first + 1)
    land(lake, seed=3, size=10)
    return lake


@pytest.mark.parametrize("column", ["process_id", "stream_id"])
def test_an_instance_has_the_rows_of_one_process_or_stream(telemetry: Lake, column: str) -> None:
    counts = ask(telemetry, f"SELECT {column} AS id, count(*) AS n FROM log_entries GROUP BY 1")
    assert len(counts) > 2
    for row in counts:
        sql = f"SELECT count(*) AS n FROM view_instance('log_entries', '{row['id']}')"
        assert ask(telemetry, sql) == [{"n": row["n"]}]
    everything = "SELECT count(*) AS n FROM view_instance('log_entries', 'global')"
    assert ask(telemetry, everything) == [{"n": sum(row["n"] for row in counts)}]
    assert ask(telemetry, "SELECT * FROM view_instance('log_entries', 'nobody')") == []


def test_partitions_without_the_instance_are_not_read(telemetry: Lake) -> None:
    sql = "SELECT msg FROM view_instance('log_entries', '{}') WHERE time > '2020-01-01'"
    with telemetry.queries.query(sql.format("global"), explained=True) as result:
        assert result.explanation.tables[0].partitions_read == 2
    # Ids are hexadecimal: this one is before all of them.
    with telemetry.queries.query(sql.format("!"), explained=True) as result:
        (table,) = result.explanation.tables
        assert (table.partitions_considered, table.partitions_read) == (2, 0)
        assert sum(table.partitions_pruned.values()) == 2


def test_instances_keep_to_the_range_of_the_call(telemetry: Lake) -> None:
    (row,) = ask(telemetry, "SELECT min(time) AS low, max(time) AS high FROM log_entries")
    sql = "SELECT count(*) AS n FROM view_instance('log_entries', 'global')"
    (inside,) = ask(telemetry, sql, begin=row["low"], end=row["high"])
    (everything,) = ask(telemetry, sql)
    assert 0 < inside["n"] < everything["n"]


def test_what_has_no_instances_says_so(still: Lake) -> None:
    with pytest.raises(BadSql, match="readings has no instances") as caught:
        still.query("SELECT * FROM view_instance('readings', 'x')")
    assert "\n" not in str(caught.value)


# -- wrong calls ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        ("list_partitions(1)", BadSql, "list_partitions() takes no arguments, not 1"),
        ("view_instance('log_entries')", BadSql, "takes 2 arguments, not 1"),
        ("view_instance('nope', 'x')", UnknownViewSet, "'nope'"),
        ("view_instance(NULL, 'x')", BadSql, "view_set of view_instance(view_set, id) is NULL"),
        ("view_instance('log_entries', 3)", BadSql, "must be text, not int64"),
        ("explain_empty('readings', 3, 4)", BadSql, "begin of explain_empty(view_set, begin, end)"),
        ("explain_empty('readings', 'soon', 'later')", BadInput, "'soon"),
        (f"explain_empty('readings', {H1}, {H0})", BadInput, "runs backwards"),
        (f"explain_empty('readings', {H1}, {H1})", BadInput, "is empty"),
        (f"explain_empty('nope', {H0}, {H1})", UnknownViewSet, "'nope'"),
        (f"explain_empty(number, {H0}, {H1}), readings", BadSql, "must be a constant"),
        (f"retire_partitions('readings', 'global', {H0})", BadSql, "takes 4 arguments, not 3"),
        (f"retire_partitions('readings', NULL, {H0}, {H1})", BadSql, "instance of"),
        (f"retire_partitions('readings', '../x', {H0}, {H1})", BadInput, "not an instance"),
        (f"retire_partitions('nope', 'global', {H0}, {H1})", UnknownViewSet, "'nope'"),
        (f"materialize_partitions('readings', {H0}, {H1}, 0)", BadSql, "must be positive"),
        (f"materialize_partitions('readings', {H0}, {H1}, 1.5)", BadSql, "a whole number"),
        (f"materialize_partitions('nope', {H0}, {H1}, 60)", UnknownViewSet, "'nope'"),
    ],
)
def test_a_wrong_call_is_one_clear_line(
    still: Lake, call: str, kind: type[LakebedError], says: str
) -> None:
    with pytest.raises(kind) as caught:
        still.query(f"SELECT * FROM {call}")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(live(still)) == 3


@pytest.mark.parametrize(
    "call",
    [
        "retire_partition_by_metadata('readings', 'global', 3)",
        "retire_partition_by_metadata('readings', 'global', 3, 4)",
        f"retire_partition_by_metadata('readings', 'global', {H0}, {H1}, NULL, 1)",
        "retire_partition_by_file('a', 'b')",
        "restore_partition()",
    ],
)
def test_a_scalar_with_wrong_arguments_is_one_clear_line(still: Lake, call: str) -> None:
    with pytest.raises(BadSql, match=r"cannot be called with \(") as caught:
        still.query(f"SELECT {call}")
    assert "\n" not in str(caught.value)


def test_what_a_function_raises_is_told_as_it_is() -> None:
    from datafusion import SessionContext, udf

    from lakebed.query.embedded.failing import explain

    def refuse(values: pa.Array) -> pa.Array:
        raise BadInput('it\'s not "this" (nor that)')

    context = SessionContext()
    context.register_udf(udf(refuse, [pa.int64()], pa.int64(), "volatile", "refuse"))
    with pytest.raises(Exception, match="BadInput") as caught:
        context.sql("SELECT refuse(1)").collect()
    told = explain(caught.value, "SELECT refuse(1)")
    assert type(told) is BadInput
    assert str(told) == 'it\'s not "this" (nor that)'


# -- what administrators may change ---------------------------------------------------------------


def test_retiring_by_metadata_as_micromegas_sends_it(hours: Lake) -> None:
    first, empty, _ = live(hours)
    call = (
        "retire_partition_by_metadata('readings','global',"
        "CAST('{}' AS TIMESTAMP),CAST('{}' AS TIMESTAMP){})"
    )
    times = ("2026-01-01 00:00:00+00:00", "2026-01-01 01:00:00+00:00")
    wanted = f"decode('{first.schema_hash.hex()}','hex')"
    said = one(hours, call.format(*times, f",{wanted}"))
    assert said == f"SUCCESS: Retired partition readings/global {first.insert_range}"
    times = ("2026-01-01T01:00:00+00:00", "2026-01-01T02:00:00+00:00")
    said = one(hours, call.format(*times, ""))
    assert said == f"SUCCESS: Retired empty partition readings/global {empty.insert_range}"
    assert [each.num_rows for each in live(hours)] == [2]
    said = one(hours, call.format(*times, ""))
    assert said.startswith("ERROR: no live partition of readings/global covers exactly ")
    entries = history(hours, "retire")
    assert [each.partition_id for each in entries] == [empty.partition_id, first.partition_id]
    assert {(each.reason, each.actor) for each in entries} == {
        ("retired by identity", hours.catalog.actor)
    }


def test_twins_need_the_fifth_field(hours: Lake) -> None:
    old, new = with_twin(hours)
    call = f"retire_partition_by_metadata('readings', 'global', {H0}, {H1}{{}})"
    said = one(hours, call.format(""))
    assert said.startswith("ERROR: 2 live partitions of readings/global cover ")
    assert old.schema_hash.hex() in said
    assert new.schema_hash.hex() in said
    assert one(hours, call.format(", NULL")) == said
    assert len(live(hours)) == 4
    said = one(hours, call.format(f", decode('{old.schema_hash.hex()}', 'hex')"))
    assert said.startswith("SUCCESS: ")
    assert old.partition_id not in {each.partition_id for each in live(hours)}
    assert len(live(hours)) == 3


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (f"retire_partition_by_metadata(NULL, 'global', {H0}, {H1})", "ERROR: view_set is NULL"),
        (f"retire_partition_by_metadata('readings', 'global', NULL, {H1})", "ERROR: begin is NULL"),
        (f"retire_partition_by_metadata('readings', 'global', {H1}, {H0})", "ERROR: the range "),
        (f"retire_partition_by_metadata('nope', 'global', {H0}, {H1})", "ERROR: no live "),
        ("retire_partition_by_file(NULL)", "ERROR: file_path is NULL"),
        ("retire_partition_by_file('../../x')", "ERROR: '../../x' is not a path inside the lake"),
        ("retire_partition_by_file('partitions/x')", "ERROR: no live partition has the file "),
        ("restore_partition(NULL)", "ERROR: partition_id is NULL"),
        ("restore_partition('x')", "ERROR: no partition has the id x"),
    ],
)
def test_what_cannot_be_done_is_said_in_the_row(still: Lake, call: str, says: str) -> None:
    assert one(still, call).startswith(says)
    assert len(live(still)) == 3


def test_a_partition_goes_by_its_file_and_comes_back_by_its_id(hours: Lake) -> None:
    first, *_ = live(hours)
    numbers = numbers_in(hours)
    said = one(hours, f"retire_partition_by_file('{first.file_path}')")
    assert said == f"SUCCESS: Retired partition readings/global {first.insert_range}"
    assert len(live(hours)) == 2
    said = one(hours, f"restore_partition('{first.partition_id}')")
    assert said.startswith(f"SUCCESS: Restored partition readings/global {first.insert_range} as ")
    assert said.split()[-1] == live(hours)[0].partition_id
    assert numbers_in(hours) == numbers
    said = one(hours, f"restore_partition('{first.partition_id}')")
    assert said.startswith("ERROR: ")
    assert "was restored already" in said


def test_a_row_that_fails_does_not_undo_the_others(hours: Lake) -> None:
    rows = ask(
        hours,
        "SELECT retire_partition_by_metadata(p.view_set_name, p.view_instance_id,"
        " p.begin_insert_time, p.end_insert_time,"
        " CASE WHEN p.num_rows = 2 THEN decode('ffff', 'hex') ELSE p.file_schema_hash END)"
        " AS message FROM list_partitions() p ORDER BY p.begin_insert_time",
    )
    assert [row["message"].split(":")[0] for row in rows] == ["SUCCESS", "SUCCESS", "ERROR"]
    assert [each.num_rows for each in live(hours)] == [2]


def test_a_statement_that_fails_leaves_nothing(hours: Lake) -> None:
    sql = """
        SELECT retire_partition_by_metadata(view_set_name, view_instance_id, begin_insert_time,
                                            end_insert_time) AS message, 1 / num_rows AS n
        FROM list_partitions()
    """
    with pytest.raises(BadSql, match="ivide by zero"):
        hours.query(sql)
    assert len(live(hours)) == 3
    assert history(hours, "retire") == []


def test_a_statement_that_was_overtaken_leaves_nothing(hours: Lake) -> None:
    """Somebody retires one of the partitions between the statement's look and its commit."""
    administration = hours.queries._administration
    assert administration is not None
    changes = administration.begin_changes()
    first, second, _ = live(hours)
    for each in (first, second):
        fields = (
            each.view_set,
            each.instance,
            each.insert_range.begin,
            each.insert_range.end,
            None,
        )
        assert changes.retire_partitions_by_metadata([fields])[0].startswith("SUCCESS")
    hours.retirement.retire_partitions("readings", T0, T0 + HOUR)
    with pytest.raises(LakebedError, match="is not live any more"):
        changes.carry_out()
    assert live(hours)[0] == second


def test_one_statement_is_one_transaction(hours: Lake) -> None:
    ask(hours, f"SELECT * FROM retire_partitions('readings', 'global', {H0}, {H3})")
    entries = history(hours, "retire")
    assert len(entries) == 3
    assert len({each.tick for each in entries}) == 1


def test_a_newer_partition_gives_way_to_an_older_one_in_one_statement(hours: Lake) -> None:
    first, *_ = live(hours)
    new = publish_hour(hours, 0, 5, replaces=[first])
    alone = one(hours, f"restore_partition('{first.partition_id}')")
    assert alone.startswith("ERROR: ")
    assert alone.endswith("is in the way")
    (row,) = ask(
        hours,
        f"SELECT retire_partition_by_file('{new.file_path}') AS gone,"
        f" restore_partition('{first.partition_id}') AS back",
    )
    assert row["gone"].startswith("SUCCESS")
    assert row["back"].startswith("SUCCESS")
    assert [each.num_rows for each in live(hours)] == [3, 0, 2]


def test_calls_are_done_once_however_the_engine_runs_them(hours: Lake) -> None:
    first, *_ = live(hours)
    rows = ask(
        hours,
        f"SELECT m, upper(m) AS again FROM (SELECT retire_partition_by_file('{first.file_path}')"
        " AS m FROM readings) WHERE m LIKE 'SUCCESS%' ORDER BY m",
    )
    assert len(rows) == 5
    assert len(history(hours, "retire")) == 1
    sql = (
        "SELECT a.msg, b.msg AS other FROM retire_partitions('readings', 'global', {0}, {1}) a"
        " JOIN retire_partitions('readings', 'global', {0}, {1}) b ON a.msg = b.msg"
    )
    assert len(ask(hours, sql.format(H1, H3))) == 3
    assert live(hours) == []


def test_restoring_twice_in_one_statement_restores_once(hours: Lake) -> None:
    first, *_ = live(hours)
    hours.retirement.retire_partitions("readings", T0, T0 + HOUR)
    call = f"restore_partition('{first.partition_id}')"
    (row,) = ask(hours, f"SELECT {call} AS m, {call} || '' AS again")
    assert row["m"] == row["again"]
    assert row["m"].startswith("SUCCESS: Restored partition ")
    assert [each.num_rows for each in live(hours)] == [3, 0, 2]


def test_retiring_a_range_gives_its_log(hours: Lake) -> None:
    table = hours.query(
        f"SELECT * FROM retire_partitions('readings', 'global', {H0}, '2026-01-01T02:30:00Z')"
    ).to_arrow()
    assert table.schema == pa.schema([("time", pa.timestamp("us", "UTC")), ("msg", pa.string())])
    said = table["msg"].to_pylist()
    assert [line.split(" ")[0] for line in said] == ["SUCCESS:", "SUCCESS:", "SKIPPED:", "retired"]
    assert said[-1].startswith("retired 2 partitions of ")
    assert [each.num_rows for each in live(hours)] == [2]


def test_most_of_a_view_set_is_not_retired_by_sql(hours: Lake) -> None:
    for hour in range(3, 12):
        publish_hour(hours, hour, 1)
    for sql in (
        f"SELECT * FROM retire_partitions('readings', 'global', {H0}, '2026-01-02')",
        "SELECT retire_partition_by_metadata(view_set_name, view_instance_id, begin_insert_time,"
        " end_insert_time) FROM list_partitions()",
    ):
        with pytest.raises(Refused, match="most of readings") as caught:
            hours.query(sql)
        assert "--confirm readings" in str(caught.value.hint)
    assert len(live(hours)) == 12


# -- who may, and when ----------------------------------------------------------------------------

CHANGING = [
    f"SELECT * FROM retire_partitions('readings', 'global', {H0}, {H3})",
    f"SELECT * FROM materialize_partitions('readings', {H0}, {H3}, 60)",
    f"SELECT retire_partition_by_metadata('readings', 'global', {H0}, {H1})",
    f"SELECT retire_partition_by_metadata('readings', 'global', {H0}, {H1}, NULL)",
    "SELECT retire_partition_by_file(file_path) FROM list_partitions()",
    "SELECT restore_partition(partition_id) FROM list_partitions()",
]


@pytest.mark.parametrize("sql", CHANGING)
def test_only_administrators_may_change_the_lake(still: Lake, sql: str) -> None:
    with pytest.raises(Denied, match=r"^function \w+ needs the admin role$"):
        still.query(sql, admin=False)
    assert len(live(still)) == 3


def test_others_do_not_even_see_the_functions(still: Lake) -> None:
    sql = "SELECT DISTINCT routine_name AS name FROM information_schema.routines"
    sql += " WHERE routine_name LIKE '%_partition%' ORDER BY 1"
    for _ in range(2):
        visible = [row["name"] for row in ask(still, sql)]
        assert visible == [
            "list_partitions",
            "materialize_partitions",
            "restore_partition",
            "retire_partition_by_file",
            "retire_partition_by_metadata",
            "retire_partitions",
        ]
        assert [row["name"] for row in ask(still, sql, admin=False)] == ["list_partitions"]


@pytest.mark.parametrize("sql", CHANGING)
def test_explaining_and_preparing_change_nothing(still: Lake, sql: str) -> None:
    before = history(still)
    ask(still, f"EXPLAIN {sql}")
    ask(still, f"EXPLAIN VERBOSE {sql}")
    still.queries.describe(sql)
    with pytest.raises(BadInput, match="EXPLAIN ANALYZE would run"):
        still.query(f"EXPLAIN ANALYZE {sql}")
    with pytest.raises(BadInput):
        still.query(f"PREPARE p AS {sql}")
    assert len(live(still)) == 3
    assert history(still) == before


def test_a_limit_of_the_call_does_not_stop_a_change(hours: Lake) -> None:
    sql = "SELECT retire_partition_by_metadata(view_set_name, view_instance_id,"
    sql += " begin_insert_time, end_insert_time) AS m FROM list_partitions()"
    assert len(ask(hours, sql, limit=1)) == 1
    assert live(hours) == []


def test_the_past_is_not_changed(still: Lake) -> None:
    tick = still.query("SELECT 1").explanation.tick
    with pytest.raises(BadInput, match="about the past"):
        still.query(CHANGING[2], as_of=tick)
    assert len(live(still)) == 3


def test_a_change_is_done_when_the_call_returns_and_holds_no_snapshot(hours: Lake) -> None:
    result = hours.query(CHANGING[0])
    assert live(hours) == []
    assert not hours.leases._pins
    assert result.to_arrow().num_rows == 4


def test_a_change_that_takes_too_long_does_not_happen(hours: Lake) -> None:
    for sql in (CHANGING[0], CHANGING[2]):
        with pytest.raises(TimedOut):
            hours.query(sql, timeout=1e-9)
    assert len(live(hours)) == 3
    assert history(hours, "retire") == []


def test_a_lake_opened_for_reading_cannot_be_changed(tmp_path: Path) -> None:
    with init_lake(tmp_path) as lake:
        fill(lake)
    with open_lake(tmp_path, read_only=True) as lake:
        assert len(ask(lake, "SELECT * FROM list_partitions()")) == 3
        for sql in (CHANGING[0], CHANGING[2]):
            with pytest.raises(ReadOnly):
                lake.query(sql)
        assert len(live(lake)) == 3


def test_statements_on_many_threads_keep_to_their_own_calls(hours: Lake) -> None:
    for hour in range(3, 9):
        publish_hour(hours, hour, 1)
    known = live(hours)

    def retire(each: Partition) -> str:
        sql = "retire_partition_by_metadata('readings', 'global', '{}', '{}', {})"
        times = (format_instant(each.insert_range.begin), format_instant(each.insert_range.end))
        ask(hours, "SELECT count(*) FROM list_partitions()", admin=False)
        return one(hours, sql.format(*times, "NULL"))

    with ThreadPoolExecutor(4) as threads:
        said = list(threads.map(retire, known))
    for each, message in zip(known, said, strict=True):
        assert message.startswith("SUCCESS: ")
        assert message.endswith(str(each.insert_range))
    assert live(hours) == []
    assert len(history(hours, "retire")) == len(known)


def test_properties_of_processes_are_read_like_others(lake: Lake) -> None:
    from tests.parts.building import build, land

    land(lake)
    sql = (
        "SELECT DISTINCT property_get(process_properties, 'service.name') AS a, "
        "PROPERTY_GET(l.\"process_properties\",'service.name') AS b, service_name AS c, "
        "properties_length(process_properties) > 3 AS d FROM log_entries l"
    )
    for is_built in (False, True):
        if is_built:
            build(lake)
        found = lake.query(sql).to_arrow().to_pylist()
        assert found
        assert all(row["a"] == row["b"] == row["c"] and row["d"] for row in found)
