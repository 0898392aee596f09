"""Results as their readers use them: once as they come, or whole, as often as they like. Nothing is
held on to when they are done, broken off, cancelled, too slow or forgotten.
"""

from __future__ import annotations

import gc
import resource
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from datafusion import DataFrame

from lakebed.errors import BadInput, BadSql, Cancelled, LakebedError, TimedOut, Unavailable
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.query.embedded.running.streams import _Pump
from lakebed.query.output.explanation import Explanation
from lakebed.query.output.plain import name_columns, to_values
from lakebed.query.output.result import Result
from tests.parts.data import HOUR, T0, publish_hour, readings

ENDLESS = "SELECT a.number + b.value AS n FROM readings a, generate_series(1, 1000000000) b"
HOURS = [datetime(2026, 1, 1, hour, tzinfo=UTC) for hour in range(3)]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Three hours of readings: three rows, three rows, none."""
    with init_lake(tmp_path_factory.mktemp("result") / "lake") as lake:
        lake.views.register(readings())
        publish_hour(lake, 0)
        publish_hour(lake, 1)
        publish_hour(lake, 2, count=0)
        yield lake


@pytest.fixture(autouse=True)
def _nothing_is_held_afterwards(lake: Lake) -> Iterator[None]:
    yield
    assert held(lake) == 0


def held(lake: Lake) -> int:
    return len(lake.leases._pins)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Broken:
    """A stream that fails after its first batch, or goes on for a number of them."""

    schema = pa.schema([("n", pa.int64())])

    def __init__(
        self,
        batches: int,
        error: LakebedError | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.batches = batches
        self.error = error
        self.closed = 0
        self.on_close = on_close

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for _ in range(self.batches):
            yield pa.record_batch([pa.array([1])], schema=self.schema)
        if self.error is not None:
            raise self.error

    def cancel(self) -> None: ...

    def close(self) -> None:
        self.closed += 1
        if self.on_close is not None:
            self.on_close()


def test_batches_come_once_and_the_second_reader_is_told(lake: Lake) -> None:
    result = lake.query("SELECT * FROM readings")
    assert held(lake) == 1
    assert sum(batch.num_rows for batch in result) == 6
    assert held(lake) == 0
    assert result.explanation.rows == 6
    with pytest.raises(BadInput, match="read already"):
        next(iter(result))
    with pytest.raises(BadInput, match="read already"):
        result.to_arrow()


def test_all_rows_can_be_had_as_often_as_one_likes(lake: Lake) -> None:
    result = lake.query("SELECT * FROM readings")
    table = result.to_arrow()
    assert table.num_rows == 6
    assert result.to_arrow() is table
    assert pa.Table.from_batches(result).equals(table)
    assert pa.table(result).equals(table)
    assert len(result.to_pandas()) == result.to_polars().height == 6
    result.close()
    assert result.to_arrow() is table


def test_an_empty_result_has_its_columns(lake: Lake) -> None:
    result = lake.query("SELECT * FROM readings WHERE number < 0")
    assert list(lake.query("SELECT * FROM readings WHERE number < 0")) == []
    assert result.to_arrow().schema == result.schema
    assert result.to_pandas().columns.tolist() == ["time", "number"]
    assert result.to_polars().columns == ["time", "number"]


def test_dataframes_know_the_zone(lake: Lake) -> None:
    result = lake.query("SELECT time, number FROM readings ORDER BY number LIMIT 1")
    first = result.to_pandas()
    assert str(first["time"].dtype) == "datetime64[us, UTC]"
    assert first["time"][0] == pd.Timestamp(T0, unit="us", tz="UTC")
    polars = result.to_polars()
    assert polars.schema["time"] == pl.Datetime("us", "UTC")
    assert polars["time"][0] == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=T0)


def test_every_reader_of_arrow_streams_can_read_it(lake: Lake) -> None:
    sql = "SELECT number FROM readings ORDER BY number"
    expected = lake.query(sql).to_arrow()
    assert pa.table(lake.query(sql)).equals(expected)
    with pa.RecordBatchReader.from_stream(lake.query(sql)) as reader:
        assert reader.read_all().equals(expected)
    assert pl.DataFrame(lake.query(sql)).to_arrow().column(0).to_pylist() == expected[0].to_pylist()
    found = lake.query(sql)  # noqa: F841  (DuckDB finds it by its name)
    counted = duckdb.sql("SELECT count(*), sum(number) FROM found").fetchall()
    assert counted == [(6, sum(expected[0].to_pylist()))]


def test_a_stream_that_is_read_in_part_lets_go(lake: Lake) -> None:
    reader = pa.RecordBatchReader.from_stream(lake.query(ENDLESS))
    reader.read_next_batch()
    assert held(lake) == 1
    del reader
    wait_until(lambda: held(lake) == 0)


def test_notebooks_show_a_table_without_markup_of_the_data(lake: Lake) -> None:
    sql = "SELECT '<b>&' AS \"<i>\", now() AS t, NULL AS n, X'00ff' AS x, make_array(1, 2) AS l"
    shown = lake.query(sql)._repr_html_()
    assert "<th>&lt;i&gt;</th>" in shown
    assert "<td>&lt;b&gt;&amp;</td>" in shown
    assert "<td></td><td>00ff</td><td>[1, 2]</td>" in shown
    assert "<p>1 row</p>" in shown
    many = lake.query("SELECT value FROM generate_series(1, 2000)")
    shown = many._repr_html_()
    assert shown.count("<tr>") == 51
    assert "<p>the first 50 of 2,000 rows</p>" in shown
    assert many.to_arrow().num_rows == 2000
    assert "Result of 2000 rows" in repr(many)


def test_a_result_that_cannot_be_shown_any_more_says_so(lake: Lake) -> None:
    result = lake.query("SELECT number FROM readings")
    assert "not read yet" in repr(result)
    batches = iter(result)
    next(batches)
    assert "being read" in repr(result)
    assert result._repr_html_() == "<p>&lt;Result, being read (number: int64)&gt;</p>"
    list(batches)
    assert "closed" in repr(result)


def test_breaking_off_lets_go(lake: Lake) -> None:
    for _batch in lake.query(ENDLESS):
        assert held(lake) == 1
        break
    assert held(lake) == 0


def test_leaving_the_block_lets_go(lake: Lake) -> None:
    with lake.query("SELECT * FROM readings") as result:
        assert held(lake) == 1
    assert held(lake) == 0
    with pytest.raises(BadInput, match="was closed"):
        result.to_arrow()
    result.close()
    result.cancel()


def test_results_that_nobody_closes_are_let_go_of(lake: Lake) -> None:
    result = lake.query(ENDLESS)
    abandoned = [lake.query("SELECT * FROM readings"), lake.query("SELECT * FROM readings")]
    abandoned.append(abandoned)  # type: ignore[arg-type]  (a circle, for the collector)
    batches = iter(result)
    next(batches)
    assert held(lake) == 3
    del abandoned
    gc.collect()
    wait_until(lambda: held(lake) == 1)
    del result, batches
    wait_until(lambda: held(lake) == 0)


def test_garbage_is_let_go_of_by_a_thread_that_holds_no_lock() -> None:
    released_by = []
    lock = threading.Lock()

    def let_go() -> None:
        with lock:  # as the keeper of leases has one
            released_by.append(threading.current_thread())

    result = Result(Broken(1, on_close=let_go), Explanation("test", 0))
    with lock:
        del result
    wait_until(lambda: bool(released_by))
    assert released_by[0] is not threading.current_thread()


def test_cancelling_before_reading(lake: Lake) -> None:
    result = lake.query("SELECT * FROM readings")
    result.cancel()
    assert held(lake) == 0
    with pytest.raises(Cancelled):
        result.to_arrow()


def test_cancelling_from_another_thread_while_reading(lake: Lake) -> None:
    result = lake.query(f"SELECT count(*) FROM ({ENDLESS})")
    timer = threading.Timer(0.2, result.cancel)
    timer.start()
    with pytest.raises(Cancelled):
        result.to_arrow()
    timer.join()
    assert held(lake) == 0


@pytest.mark.parametrize("way", ["cancelled", "too slow"])
def test_the_engine_is_let_go_of_although_the_error_is_kept(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """At once, and not when the collector comes: until then it would go on computing."""
    streams = []
    start = DataFrame.execute_stream

    def watched(frame: DataFrame) -> Any:
        stream = start(frame)
        streams.append(weakref.ref(stream))
        return stream

    monkeypatch.setattr(DataFrame, "execute_stream", watched)
    gc.collect()
    gc.disable()
    try:
        slow = way == "too slow"
        result = lake.query(f"SELECT count(*) FROM ({ENDLESS})", timeout=0.2 if slow else None)
        timer = threading.Timer(60 if slow else 0.2, result.cancel)
        timer.start()
        with pytest.raises(TimedOut if slow else Cancelled) as kept:
            result.to_arrow()
        timer.cancel()
        wait_until(lambda: streams[0]() is None)
        assert kept.value.__traceback__ is not None
    finally:
        gc.enable()


def test_closing_between_the_start_and_the_first_rows_stops_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the moment at which there is nothing to wait for and nothing to stop yet."""
    result = lake.query(ENDLESS)

    class ClosedMeanwhile(_Pump):
        def __init__(self, stream: Any) -> None:
            super().__init__(stream)
            result.close()

    monkeypatch.setattr("lakebed.query.embedded.running.streams._Pump", ClosedMeanwhile)
    with pytest.raises(Cancelled, match="was closed while it was read"):
        next(iter(result))
    assert held(lake) == 0


def test_closing_from_another_thread_is_no_end_of_the_rows(lake: Lake) -> None:
    result = lake.query(ENDLESS)
    batches = iter(result)
    next(batches)
    closer = threading.Thread(target=result.close)
    closer.start()
    closer.join()
    with pytest.raises(Cancelled, match="closed while it was read"):
        list(batches)
    stopped = Result(stream := Broken(3), Explanation("test", 0))
    rows = iter(stopped)
    next(rows)
    stopped.close()
    with pytest.raises(Cancelled):
        list(rows)
    assert stream.closed == 1


def test_a_statement_that_takes_too_long_lets_go(lake: Lake) -> None:
    with pytest.raises(TimedOut, match=r"longer than 0\.05 s"):
        lake.query(f"SELECT count(*) FROM ({ENDLESS})", timeout=0.05).to_arrow()
    assert held(lake) == 0


def test_an_error_in_the_middle_reaches_the_reader_and_lets_go() -> None:
    stream = Broken(2, Unavailable("the store is gone"))
    result = Result(stream, Explanation("test", 0))
    got = 0
    with pytest.raises(Unavailable, match="the store is gone"):
        for batch in result:
            got += batch.num_rows
    assert (got, stream.closed) == (2, 1)
    with pytest.raises(BadInput, match="read already"):
        result.to_arrow()
    again = Result(Broken(2, Unavailable("the store is gone")), Explanation("test", 0))
    with pytest.raises(Exception, match="the store is gone"):
        pa.RecordBatchReader.from_stream(again).read_all()


def test_an_error_of_the_engine_in_the_middle(lake: Lake) -> None:
    result = lake.query("SELECT 1 / (number - number) FROM readings")
    with pytest.raises(LakebedError, match=r"(?i)divide by zero"):
        result.to_arrow()
    assert held(lake) == 0
    with pytest.raises(BadSql):
        lake.query("SELECT nothing FROM readings")
    assert held(lake) == 0


def test_large_results_pass_through_little_memory(lake: Lake) -> None:
    list(lake.query("SELECT * FROM readings"))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = 0
    for batch in lake.query(
        f"SELECT value, '{'x' * 100}' || value AS text FROM generate_series(1, 2000000)"
    ):
        rows += batch.num_rows
    grown_mib = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
    assert rows == 2_000_000
    assert grown_mib < 100  # of about 250


def count(lake: Lake, **options: object) -> int:
    sql = "SELECT count(*) AS n FROM readings"
    return int(lake.query(sql, **options).to_arrow()["n"][0].as_py())  # type: ignore[arg-type]


def test_ranges_in_every_spelling(lake: Lake) -> None:
    begin = datetime(2026, 1, 1, 1, tzinfo=UTC)
    assert count(lake, begin=begin) == 3
    assert count(lake, begin=begin.isoformat()) == 3
    assert count(lake, begin="2026-01-01T01:00:00Z") == 3
    assert count(lake, begin="2026-01-01T02:00:00+01:00") == 3
    assert count(lake, begin=T0 + HOUR) == 3
    assert count(lake, end=begin) == 3
    assert count(lake, begin=begin, end=begin + timedelta(microseconds=1)) == 1
    assert count(lake, begin="1us") == 0
    assert count(lake, begin="5000w") == 6
    assert count(lake, begin="5000w", end="1us") == 6


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"begin": datetime(2026, 1, 1)}, "has no zone"),  # noqa: DTZ001
        ({"end": "2026-01-01T00:00:00"}, "has no zone"),
        ({"as_of": datetime(2026, 1, 1)}, "has no zone"),  # noqa: DTZ001
        ({"begin": "soon"}, "cannot read 'soon'"),
        ({"begin": "1h", "end": "2h"}, "runs backwards"),
        ({"limit": -1}, "makes no sense"),
        ({"engine": "other"}, "no engine other"),
    ],
)
def test_what_makes_no_sense_is_refused(
    lake: Lake, options: dict[str, object], complaint: str
) -> None:
    with pytest.raises(BadInput, match=complaint):
        lake.query("SELECT * FROM readings", **options)  # type: ignore[arg-type]


def test_names_that_occur_twice_become_different() -> None:
    names = ["a", "b", "a", "a_2", "a"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    assert name_columns(schema) == ["a", "b", "a_3", "a_2", "a_4"]


DAY = 86_400
STAMP = 1_793_491_200_123_456


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        (pa.timestamp("us", "UTC"), [STAMP, None], ["2026-11-01T00:00:00.123456Z", None]),
        (pa.timestamp("us", "Europe/Berlin"), [STAMP], ["2026-11-01T00:00:00.123456Z"]),
        (pa.timestamp("ns"), [STAMP * 1000 + 789], ["2026-11-01T00:00:00.123456789Z"]),
        (pa.timestamp("s"), [DAY], ["1970-01-02T00:00:00.000000Z"]),
        (pa.timestamp("ms"), [-1], ["1969-12-31T23:59:59.999000Z"]),
        (pa.timestamp("s"), [1 << 62, 0], [f"{1 << 62}s", "1970-01-01T00:00:00.000000Z"]),
        (pa.timestamp("us"), [1 << 62, -1], [f"{1 << 62}us", "1969-12-31T23:59:59.999999Z"]),
        (pa.date32(), [1, None, 1 << 30], ["1970-01-02", None, "1073741824d"]),
        (pa.date64(), [DAY * 1000], ["1970-01-02"]),
        (pa.time64("ns"), [3_661_000_000_001], ["01:01:01.000000001"]),
        (pa.time32("s"), [1], ["00:00:01.000000"]),
        (pa.duration("ms"), [1500, 0, -5], ["PT1.5S", "PT0S", "PT-0.005S"]),
        (pa.float64(), [1.5, None], [1.5, None]),
        (
            pa.float64(),
            [float("nan"), float("inf"), float("-inf"), 0.1],
            ["NaN", "Infinity", "-Infinity", 0.1],
        ),
        (pa.float32(), [0.1, float("nan")], [0.1, "NaN"]),
        (pa.bool_(), [True, None], [True, None]),
        (pa.uint64(), [(1 << 64) - 1], [(1 << 64) - 1]),
        (pa.binary(), [b"\x00\xff", None], ["00ff", None]),
        (pa.binary(2), [b"ab"], ["6162"]),
        (pa.null(), [None], [None]),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, []], [{"a": 1}, None, {}]),
        (pa.map_(pa.int32(), pa.binary()), [[(1, b"\x01")]], [{"1": "01"}]),
        (
            pa.map_(pa.bool_(), pa.int64()),
            [[(True, 1), (False, 2)]],
            [{"true": 1, "false": 2}],
        ),
        (
            pa.list_(pa.timestamp("ns", "UTC")),
            [[0, None]],
            [["1970-01-01T00:00:00.000000000Z", None]],
        ),
        (pa.list_(pa.float64(), 1), [[float("inf")]], [["Infinity"]]),
        (pa.struct([("a", pa.duration("s"))]), [{"a": 2}, None], [{"a": "PT2S"}, None]),
        (pa.month_day_nano_interval(), [(1, 2, 500_000_000)], ["P1M2DT0.5S"]),
        (pa.dictionary(pa.int8(), pa.string()), ["x", None, "x"], ["x", None, "x"]),
        (pa.string_view(), ["x"], ["x"]),
    ],
    ids=str,
)
def test_values_in_the_kinds_that_text_knows(
    kind: pa.DataType, given: list[object], expected: list[object]
) -> None:
    assert to_values(pa.array(given, kind)) == expected
    padded = pa.concat_arrays([pa.nulls(1, kind), pa.array(given, kind)])
    assert to_values(padded.slice(1)) == expected


def test_decimals_keep_their_digits() -> None:
    numbers = pa.array(["1.50", "-0.01"]).cast(pa.decimal128(30, 2))
    assert to_values(numbers) == ["1.50", "-0.01"]


def test_parameters_are_values_and_errors_name_the_place_that_was_written(lake: Lake) -> None:
    sql = "SELECT ? AS a, '?' AS b,\n  $1 || nothing".replace("$1", "?")
    with pytest.raises(BadSql, match="nothing") as refused:
        lake.query(sql, parameters=["one\ntwo\n' OR '1", "x" * 100])
    assert (refused.value.line, refused.value.column) == (2, 8)
    assert str(refused.value).count("(line") == 1
    given = lake.query("SELECT $2 AS a, $1 AS b", parameters=[None, "it's"]).to_arrow()
    assert given.to_pylist() == [{"a": "it's", "b": None}]
    since = lake.query("SELECT count(*) AS n FROM readings WHERE time >= ?", parameters=[HOURS[1]])
    assert since.to_arrow()["n"].to_pylist() == [3]
    for wrong in ([], [1, 2], [object()]):
        with pytest.raises(BadSql, match="parameter"):
            lake.query("SELECT ?", parameters=wrong)
    with pytest.raises(BadInput, match="embedded engine"):
        lake.query("SELECT ?", parameters=[1], engine="spark")
