"""Functions that SQL can call: instances, properties, and what wrong calls are told."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakebed.errors import (
    BadInput,
    BadSql,
    LakebedError,
    UnknownViewSet,
)
from lakebed.lake import Lake
from tests.parts.building import build, land
from tests.query.functions import H0, H1, ask, live

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
        (f"retire_partitions('readings', 'global', {H0})", BadSql, "takes 4 to 5 arguments, not 3"),
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
        f"retire_partition_by_metadata('readings', 'global', {H0}, {H1}, NULL, 'x', 1)",
        "retire_partition_by_file('a', 'b', 'c')",
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
