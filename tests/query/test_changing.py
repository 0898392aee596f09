"""What administrators may change by SQL, who may, and when."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest

from lakebed.errors import (
    BadInput,
    BadSql,
    Denied,
    ReadOnly,
    StalePlan,
    TimedOut,
)
from lakebed.lake import Lake
from lakebed.lifecycle.changes import Changes
from lakebed.lifecycle.guard import Breaker, Guard
from lakebed.model.ids import new_id
from lakebed.model.partition import Partition
from lakebed.model.time import format_instant
from lakebed.opening import init_lake, open_lake
from lakebed.operations.sql import SqlOperations
from lakebed.query.queries import Queries, QuerySettings
from tests.parts.data import HOUR, T0, numbers_in, publish_hour, publish_rebuildable_hour, readings
from tests.query.functions import H0, H1, H2, H3, ask, fill, history, live, one, with_twin

DAY = (T0, T0 + 24 * HOUR)

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


RETIRE_WITH_WRONG_HASH = (
    "SELECT retire_partition_by_metadata(p.view_set_name, p.view_instance_id,"
    " p.begin_insert_time, p.end_insert_time,"
    " CASE WHEN p.num_rows = 2 THEN decode('ffff', 'hex') ELSE p.file_schema_hash END)"
    " AS message FROM list_partitions() p ORDER BY p.begin_insert_time"
)


def test_statement_is_rolled_back_when_one_of_its_rows_fails(hours: Lake) -> None:
    messages = [row["message"] for row in ask(hours, RETIRE_WITH_WRONG_HASH)]
    assert messages[2].startswith("ERROR: no live partition of readings/global covers exactly ")
    assert (
        messages[:2]
        == [
            "ERROR: rolled back, because another call of the statement failed: "
            + messages[2].removeprefix("ERROR: ")
        ]
        * 2
    )
    assert len(live(hours)) == 3
    assert history(hours, "retire") == []


def test_rolled_back_statement_counts_no_success_in_sql_either(hours: Lake) -> None:
    (row,) = ask(
        hours,
        "SELECT count(*) FILTER (WHERE message LIKE 'SUCCESS%') AS done, count(*) AS calls"
        f" FROM ({RETIRE_WITH_WRONG_HASH})",
    )
    assert row == {"done": 0, "calls": 3}
    assert len(live(hours)) == 3


@pytest.mark.parametrize(
    "failing",
    [
        "retire_partition_by_metadata(NULL, 'global', '2026-01-01', '2026-01-02')",
        "restore_partition('x')",
        "retire_partition_by_file('partitions/x')",
    ],
)
def test_statement_is_rolled_back_when_another_function_fails(hours: Lake, failing: str) -> None:
    (row,) = ask(
        hours,
        f"SELECT retire_partition_by_metadata('readings', 'global', {H0}, {H1}) AS one,"
        f" {failing} AS other, r.msg FROM retire_partitions('readings', 'global', {H1}, {H2}) r",
        limit=1,
    )
    assert row["one"].startswith("ERROR: rolled back, because ")
    assert row["msg"].startswith("ERROR: rolled back, because ")
    assert not row["other"].startswith("ERROR: rolled back")
    assert len(live(hours)) == 3


def overtaken_queries(lake: Lake, *overtakers: Callable[[], object]) -> Queries:
    """Queries of a lake; each statement's first commits come after one of the overtakers."""
    rest = list(overtakers)

    class Overtaken(Changes):
        def carry_out(self) -> None:
            if rest:
                rest.pop(0)()
            super().carry_out()

    class Operations(SqlOperations):
        def begin(self) -> Changes:
            return Overtaken(lake.catalog, Guard(Breaker(), lake.catalog.actor), new_id)

    operations = Operations(lake.catalog, lake.retirement, lake.pipeline)
    return Queries(lake.catalog, lake.store, lake.leases, QuerySettings(), operations)


def test_retire_by_metadata_returns_error_when_another_caller_retired_it_first(lake: Lake) -> None:
    """The last partition of its view set, of which no count is left."""
    lake.views.register(readings())
    publish_rebuildable_hour(lake, 0)
    queries = overtaken_queries(lake, lambda: lake.retirement.retire_partitions("readings", *DAY))
    call = f"SELECT retire_partition_by_metadata('readings', 'global', {H0}, {H1}) AS message"
    (row,) = queries.query(call).to_arrow().to_pylist()
    queries.close()
    assert row["message"].startswith("ERROR: no live partition of readings/global covers exactly ")
    assert len(history(lake, "retire")) == 1


def test_overtaken_statement_is_not_refused_for_what_was_retired_and_built_before(
    lake: Lake,
) -> None:
    lake.views.register(readings())
    for _ in range(12):
        publish_rebuildable_hour(lake, 0)
        lake.retirement.retire_partitions("readings", *DAY)
    publish_rebuildable_hour(lake, 0)
    queries = overtaken_queries(lake, lambda: lake.retirement.retire_partitions("readings", *DAY))
    call = f"SELECT retire_partition_by_metadata('readings', 'global', {H0}, {H1}) AS message"
    (row,) = queries.query(call).to_arrow().to_pylist()
    queries.close()
    assert row["message"].startswith("ERROR: no live partition of readings/global covers exactly ")


def test_restore_returns_error_when_another_caller_restored_it_first(hours: Lake) -> None:
    first, *_ = live(hours)
    hours.retirement.retire_partitions("readings", T0, T0 + HOUR)
    queries = overtaken_queries(hours, lambda: hours.retirement.restore(first.partition_id))
    call = f"SELECT restore_partition('{first.partition_id}') AS message"
    (row,) = queries.query(call).to_arrow().to_pylist()
    queries.close()
    assert row["message"].startswith("ERROR: ")
    assert "was restored already" in row["message"]
    assert len(live(hours)) == 3


def test_statement_retires_what_replaced_a_partition_while_it_ran(hours: Lake) -> None:
    first, *_ = live(hours)

    def replace() -> None:
        publish_hour(hours, 0, 4, replaces=[first], source_hash=first.source_hash)

    queries = overtaken_queries(hours, replace)
    call = f"SELECT retire_partition_by_metadata('readings', 'global', {H0}, {H1}) AS message"
    (row,) = queries.query(call).to_arrow().to_pylist()
    queries.close()
    assert row["message"].startswith("SUCCESS: ")
    assert [partition.num_rows for partition in live(hours)] == [0, 2]


def test_statement_that_is_overtaken_again_and_again_fails(hours: Lake) -> None:
    def replace() -> None:
        first = live(hours)[0]
        publish_hour(hours, 0, 4, replaces=[first], source_hash=first.source_hash)

    queries = overtaken_queries(hours, *[replace] * 9)
    with pytest.raises(StalePlan, match="is not live any more"):
        queries.query(f"SELECT retire_partition_by_metadata('readings', 'global', {H0}, {H1})")
    queries.close()
    assert len(live(hours)) == 3


def test_one_of_several_threads_retires_a_partition_and_the_others_get_an_error(
    lake: Lake,
) -> None:
    lake.views.register(readings())
    call = f"retire_partition_by_metadata('readings', 'global', {H0}, {H1})"
    for _ in range(3):
        publish_rebuildable_hour(lake, 0)
        with ThreadPoolExecutor(4) as threads:
            messages = sorted(threads.map(lambda _: one(lake, call), range(4)))
        assert messages[-1].startswith("SUCCESS: ")
        assert all(text.startswith("ERROR: no live partition ") for text in messages[:-1])


@pytest.mark.parametrize(
    "begin",
    [
        "TIMESTAMP '2026-01-01T00:00:00.000000001Z'",
        "'2026-01-01T00:00:00.000000001Z'",
        "'2026-01-01T00:00:00.0000000000001Z'",
        "CAST('2026-01-01 00:00:00.000000999' AS TIMESTAMP)",
        "arrow_cast(1767225600000000001, 'Timestamp(Nanosecond, Some(\"UTC\"))')",
        "to_timestamp_nanos(1767225600000000001)",
    ],
)
def test_retire_by_metadata_compares_nanoseconds(hours: Lake, begin: str) -> None:
    for call in ("{}, {}", "{}, {}, NULL", "{}, {}, NULL, 'readings'"):
        message = one(
            hours,
            f"retire_partition_by_metadata('readings', 'global', {call.format(begin, H1)})",
        )
        assert message.startswith("ERROR: no live partition of readings/global covers exactly ")
    assert len(live(hours)) == 3


@pytest.mark.parametrize(
    "begin",
    [
        "TIMESTAMP '2026-01-01T00:00:00.000000000Z'",
        "'2026-01-01T00:00:00.000000000Z'",
        "'2026-01-01'",
        "'2026-01-01 02:00:00+02:00'",
        "CAST('2026-01-01' AS DATE)",
        "to_timestamp_nanos(1767225600000000000)",
        "to_timestamp_seconds(1767225600)",
        "arrow_cast(1767225600000000, 'Timestamp(Microsecond, Some(\"+02:00\"))')",
    ],
)
def test_retire_by_metadata_takes_every_spelling_of_a_time(hours: Lake, begin: str) -> None:
    message = one(hours, f"retire_partition_by_metadata('readings', 'global', {begin}, {H1})")
    assert message.startswith("SUCCESS: ")


def test_parameters_keep_their_nanoseconds(hours: Lake) -> None:
    sql = "SELECT retire_partition_by_metadata('readings', 'global', ?, ?) AS m"
    exact = pa.scalar(T0 * 1000, pa.timestamp("ns", "UTC"))
    end = pa.scalar((T0 + HOUR) * 1000, pa.timestamp("ns"))
    for begin in (
        pa.scalar(T0 * 1000 + 1, pa.timestamp("ns", "UTC")),
        pd.Timestamp(T0 * 1000 + 1, tz="UTC"),
        "2026-01-01T00:00:00.000000001Z",
    ):
        (row,) = ask(hours, sql, parameters=[begin, end])
        assert row["m"].startswith("ERROR: no live partition "), begin
    (row,) = ask(hours, sql, parameters=[exact, end])
    assert row["m"].startswith("SUCCESS: ")


def test_range_with_nanoseconds_retires_only_what_lies_inside_it(hours: Lake) -> None:
    just_after, just_before = (
        "TIMESTAMP '2026-01-01T00:00:00.000000001Z'",
        "TIMESTAMP '2026-01-01T02:59:59.999999999Z'",
    )
    sql = f"SELECT * FROM retire_partitions('readings', 'global', {just_after}, {just_before})"
    assert ask(hours, sql)[-1]["msg"].startswith("retired 1 partitions ")
    assert [partition.num_rows for partition in live(hours)] == [3, 2]


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


def test_one_statement_is_one_transaction(hours: Lake) -> None:
    ask(hours, f"SELECT * FROM retire_partitions('readings', 'global', {H0}, {H3})")
    entries = history(hours, "retire")
    assert len(entries) == 3
    assert len({each.tick for each in entries}) == 1


def test_a_newer_partition_gives_way_to_an_older_one_in_one_statement(hours: Lake) -> None:
    first, *_ = live(hours)
    new = publish_hour(hours, 0, 5, replaces=[first], source_hash=first.source_hash)
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
    hours.retirement.retire_partitions("readings", T0, T0 + HOUR, confirmed=["readings"])
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


def test_retiring_by_file_warns_in_the_result_of_the_statement(hours: Lake) -> None:
    first, *_ = live(hours)
    result = hours.query(f"SELECT retire_partition_by_file('{first.file_path}')")
    assert [text.split(":")[0] for text in result.warnings] == ["retiring by file is deprecated"]
    assert "retire_partition_by_metadata" in result.warnings[0]
    assert hours.query("SELECT 1").warnings == ()


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


@pytest.mark.parametrize(
    ("sql", "problem", "hint"),
    [
        ("SELECT * FROM restore_partition('x')", "gives a value, not rows", "SELECT restore_par"),
        (
            f"SELECT retire_partitions('readings', 'global', {H0}, {H3})",
            "gives rows, not a value",
            "SELECT * FROM retire_partitions(",
        ),
        ("SELECT list_partitions()", "gives rows, not a value", "SELECT * FROM list_partitions()"),
    ],
)
def test_administrators_are_told_how_a_function_is_called(
    still: Lake, sql: str, problem: str, hint: str
) -> None:
    with pytest.raises(BadSql, match=problem) as caught:
        still.query(sql)
    assert hint in str(caught.value.hint)


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


def test_a_text_or_comment_that_names_a_function_is_just_that(still: Lake) -> None:
    sql = "SELECT count(*) AS n FROM readings WHERE 'restore_partition' <> 'x' -- retire_partitions"
    tick = still.query("SELECT 1").explanation.tick
    assert still.query(sql, as_of=tick).to_arrow().num_rows == 1
    assert ask(still, f"EXPLAIN ANALYZE {sql}")


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
        publish_rebuildable_hour(hours, hour, 1)
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
