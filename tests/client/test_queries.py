"""One query interface: the same checks for an open lake and for a connection to a server of it."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from lakebed.access.keys import Role
from lakebed.client.client import Client, connect
from lakebed.errors import BadInput, BadSql, Cancelled, Denied, LakebedError, Refused, TimedOut
from lakebed.lake import Lake
from lakebed.opening import init_lake
from tests.parts.data import T0, publish_hour, readings
from tests.query.test_result import ENDLESS, wait_until
from tests.serve.parts import Served, serving

COUNT = "SELECT count(*) AS n FROM readings"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Three hours of readings: three rows, three rows, none."""
    with init_lake(tmp_path_factory.mktemp("queries") / "lake") as lake:
        lake.views.register(readings())
        for hour, count in enumerate((3, 3, 0)):
            publish_hour(lake, hour, count)
        yield lake


@pytest.fixture(scope="module")
def keys(lake: Lake) -> dict[Role, str]:
    return {role: lake.keys.create(role.value, [role]).secret for role in Role}


@pytest.fixture(scope="module")
def served(lake: Lake, keys: object) -> Iterator[Served]:
    with serving(lake) as served:
        yield served


@pytest.fixture(scope="module", params=["embedded", "connected"])
def source(
    request: pytest.FixtureRequest, lake: Lake, served: Served, keys: dict[Role, str]
) -> Iterator[Lake | Client]:
    if request.param == "embedded":
        yield lake
        return
    with connect(served.flight, key=keys[Role.ADMIN]) as client:
        yield client


@pytest.fixture(autouse=True)
def _nothing_is_held_afterwards(lake: Lake) -> Iterator[None]:
    yield
    wait_until(lambda: not lake.leases._pins)


def count(source: Lake | Client, **options: Any) -> int:
    return int(source.query(COUNT, **options).to_arrow()["n"][0].as_py())


def test_rows_are_the_same_in_every_shape(source: Lake | Client, lake: Lake) -> None:
    sql = (
        "SELECT time, number, arrow_cast(number % 2, 'Dictionary(Int32, Int64)') AS d, "
        "make_array(1) AS l, named_struct('x', 1) AS s, X'00' AS b FROM readings ORDER BY number"
    )
    expected = lake.query(sql).to_arrow()
    result = source.query(sql)
    assert result.schema == expected.schema
    assert result.to_arrow().to_pylist() == expected.to_pylist()
    assert result.to_arrow() is result.to_arrow()
    assert result.to_polars().height == 6
    plain = source.query("SELECT * FROM readings").to_pandas()
    assert str(plain["time"].dtype) == "datetime64[us, UTC]"
    assert pl.DataFrame(source.query(sql)).height == 6
    assert pa.table(source.query(sql)).to_pylist() == expected.to_pylist()
    empty = source.query("SELECT * FROM readings WHERE false").to_arrow()
    assert (empty.num_rows, empty.schema) == (0, readings().schema)


def test_batches_come_once(source: Lake | Client) -> None:
    with source.query("SELECT * FROM readings") as result:
        assert sum(batch.num_rows for batch in result) == 6
        assert result.explanation.rows == 6
        with pytest.raises(BadInput, match="read already"):
            result.to_arrow()
    with source.query(ENDLESS) as result:
        next(iter(result))
    with pytest.raises(BadInput, match="read already"):
        result.to_arrow()


def test_large_results_pass_through_little_memory(source: Lake | Client) -> None:
    list(source.query("SELECT * FROM readings"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    text = f"SELECT value, '{'x' * 100}' || value AS text FROM generate_series(1, 4000000)"
    assert sum(batch.num_rows for batch in source.query(text)) == 4_000_000
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert grown_mib < 200  # of about 500


def test_parameters_ranges_limits_and_the_past(source: Lake | Client, lake: Lake) -> None:
    hour = datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert count(source, begin=hour) == count(source, begin="2026-01-01T02:00:00+01:00") == 3
    assert count(source, begin=T0, end=T0 + 1) == 1
    assert count(source, end=hour) == 3
    assert count(source, begin="5000w", end=" 1us ") == count(source, begin="５０００w") == 6
    assert count(source, end=1 << 61) == 6
    assert source.query("SELECT * FROM readings", limit=4).to_arrow().num_rows == 4
    assert source.query("SELECT * FROM readings", limit=0).to_arrow().num_rows == 0
    assert count(source, stale=True) == 6
    given = source.query("SELECT ? AS a, $$?$$ AS b", parameters=["it's ?"]).to_arrow()
    assert given.to_pylist() == [{"a": "it's ?", "b": "?"}]
    before = source.query(COUNT).explanation.tick
    publish_hour(lake, 5)
    assert count(source) == 9
    assert count(source, as_of=before) == 6
    lake.retirement.retire_partitions(
        "readings", T0 + 5 * 3_600_000_000, T0 + 6 * 3_600_000_000, confirmed=["readings"]
    )
    assert count(source) == 6


def test_results_say_where_their_rows_come_from(source: Lake | Client) -> None:
    with source.query(COUNT, begin="2026-01-01T01:00:00Z", explained=True) as result:
        (table,) = result.explanation.tables
        assert result.explanation.engine == "embedded"
        assert (table.partitions_considered, table.partitions_read) == (3, 1)
        assert sum(table.partitions_pruned.values()) == 2
        assert result.warnings == ()
        assert result.explanation.rows is None


@pytest.mark.parametrize(
    ("sql", "options", "error", "words"),
    [
        ("SELEC 1", {}, BadSql, "SELEC"),
        ("SELECT *\nFROM nowhere", {}, BadSql, "nowhere"),
        ("SELECT ?,\n nope", {"parameters": ["a\nb"]}, BadSql, "nope"),
        ("SELECT 1", {"begin": "soon"}, BadInput, "cannot read 'soon'"),
        ("SELECT 1", {"begin": "2026-01-01T00:00:00"}, BadInput, "has no zone"),
        ("SELECT 1", {"begin": T0, "end": T0 - 1}, BadInput, "runs backwards"),
        ("SELECT 1", {"as_of": "1 h"}, BadInput, "cannot read '1 h'"),
        ("SELECT 1", {"limit": -1}, BadInput, "makes no sense"),
        ("SELECT \ud800", {}, BadInput, "no text"),
        ("SELECT * FROM explain_empty('nope', '2026', '2027')", {}, LakebedError, "nope"),
        (f'SELECT "{"é" * 900}" FROM readings', {}, BadSql, "é"),
        ("SELECT restore_partition('x')", {"admin": False}, Denied, "needs the admin role"),
    ],
)
def test_errors_are_the_same(
    source: Lake | Client,
    lake: Lake,
    sql: str,
    options: dict[str, Any],
    error: type[LakebedError],
    words: str,
) -> None:
    with pytest.raises(error, match=words) as expected:
        lake.query(sql, **options)
    with pytest.raises(error, match=words) as raised:
        source.query(sql, **options)
    assert type(raised.value) is type(expected.value)
    whole, told = str(expected.value), str(raised.value)
    assert told == whole or (told.endswith("…") and whole.startswith(told[:-1]))
    assert raised.value.hint == expected.value.hint
    if isinstance(expected.value, BadSql):
        assert raised.value.line == expected.value.line  # type: ignore[attr-defined]
        assert raised.value.column == expected.value.column  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("sql", "options", "words"),
    [
        (None, {}, "a statement is a text, not NoneType"),
        (b"SELECT 1", {}, "a statement is a text, not bytes"),
        (5, {"parameters": [1]}, "a statement is a text, not int"),
        ("SELECT ?", {"parameters": "x"}, "parameters are a list"),
        ("SELECT ?", {"parameters": {"x": 1}}, "parameters are a list"),
        (COUNT, {"limit": "2"}, "a limit of '2' rows"),
        (COUNT, {"limit": True}, "a limit of True rows"),
        (COUNT, {"limit": -1}, "a limit of -1 rows"),
        (COUNT, {"timeout": "5"}, "a timeout of '5' seconds"),
        (COUNT, {"timeout": float("nan")}, "a timeout of nan seconds"),
    ],
)
def test_arguments_that_make_no_sense_are_the_same(
    source: Lake | Client, sql: Any, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadInput, match=words):
        source.query(sql, **options)


def test_an_error_in_the_middle_reaches_the_reader(source: Lake | Client) -> None:
    result = source.query("SELECT 1 / (number - number) FROM readings")
    with pytest.raises(BadSql, match=r"(?i)divide by zero"):
        result.to_arrow()


def test_statements_are_cancelled_closed_and_run_out_of_time(source: Lake | Client) -> None:
    endless = f"SELECT count(*) FROM ({ENDLESS})"
    early = source.query(endless)
    early.cancel()
    with pytest.raises(Cancelled):
        early.to_arrow()
    result = source.query(endless)
    threading.Timer(0.1, result.cancel).start()
    with pytest.raises(Cancelled):
        result.to_arrow()
    closed = source.query(ENDLESS)
    batches = iter(closed)
    next(batches)
    closer = threading.Thread(target=closed.close)
    closer.start()
    closer.join()
    with pytest.raises(Cancelled, match="closed while it was read"):
        list(batches)
    with pytest.raises(TimedOut, match=r"longer than 0\.05 s"):
        source.query(endless, timeout=0.05).to_arrow()


def test_forgotten_results_are_let_go_of(source: Lake | Client, lake: Lake) -> None:
    result = source.query(ENDLESS)
    next(iter(result))
    forgotten = [source.query("SELECT * FROM readings")]
    del result, forgotten
    wait_until(lambda: not lake.leases._pins)


def test_many_threads_share_one(source: Lake | Client) -> None:
    seen: list[int] = []
    threads = [threading.Thread(target=lambda: seen.append(count(source))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [6] * 8


def test_changes_are_made_by_statements_too(source: Lake | Client, lake: Lake) -> None:
    new = publish_hour(lake, 7)
    sql = "SELECT retire_partition_by_file(?, 'readings') AS said"
    result = source.query(sql, parameters=[new.file_path])
    assert "use retire_partition_by_metadata" in result.warnings[0]
    assert result.to_arrow()["said"][0].as_py().startswith("SUCCESS: Retired")
    assert count(source) == 6
    for hour in range(10, 20):
        publish_hour(lake, hour)
    everything = "SELECT * FROM retire_partitions('readings', 'global', '2026-01-01', '2026-01-02')"
    with pytest.raises(Refused, match="most of readings") as refused:
        source.query(everything)
    assert "--confirm readings" in str(refused.value.hint)
    lake.retirement.retire_partitions(
        "readings", T0 + 10 * 3_600_000_000, T0 + 20 * 3_600_000_000, confirmed=["readings"]
    )


def test_what_only_the_lake_itself_can(served: Served, keys: dict[Role, str]) -> None:
    with connect(served.flight, key=keys[Role.READ]) as client:
        with pytest.raises(BadInput, match="computes the rows itself"):
            client.query("SELECT 1", engine="spark")
        with pytest.raises(BadInput, match="computes the rows itself"):
            client.query("SELECT 1", remote="sc://x")
    with pytest.raises(BadInput, match="was closed"):
        client.query("SELECT 1")


def test_the_interface_is_one() -> None:
    import inspect

    from lakebed.client.client import Client

    def shape(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
        given = inspect.signature(function).parameters.values()
        return [(each.name, each.kind, each.default) for each in given]

    assert shape(Client.query) == shape(Lake.query)
