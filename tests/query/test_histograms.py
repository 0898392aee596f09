import math
import random
import statistics
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import AggregateUDF, SessionConfig, SessionContext
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.query.embedded.functions.histograms import HISTOGRAM, MAX_BINS, functions

NOT_COUNTED = (None, math.nan, math.inf, -math.inf)
NUMBERS = st.floats(-1e100, 1e100)


def session(partitions: int = 4, **tables: pa.Table) -> SessionContext:
    """A session whose tables are cut into so many partitions of small batches."""
    context = SessionContext(SessionConfig().with_target_partitions(partitions))
    for function in functions():
        if isinstance(function, AggregateUDF):
            context.register_udaf(function)
        else:
            context.register_udf(function)
    for name, table in tables.items():
        share = max(1, -(-len(table) // partitions))
        parts = [
            table.slice(i * share, share).to_batches(max_chunksize=1000) for i in range(partitions)
        ]
        context.register_record_batches(name, [part for part in parts if part] or [empty(table)])
    return context


def empty(table: pa.Table) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_pylist([], table.schema)]


def numbers(values: list[Any]) -> pa.Table:
    return pa.table({"value": pa.array(values, pa.float64())})


def ask(sql: str, values: list[Any], partitions: int = 4) -> Any:
    """The only value of the answer."""
    (column,) = session(partitions, t=numbers(values)).sql(sql).to_pydict().values()
    (answer,) = column
    return answer


def expected(start: float, end: float, bins: int, values: list[Any]) -> dict[str, Any]:
    kept = [value for value in values if value is not None and math.isfinite(value)]
    counts = [0] * bins
    for value in kept:
        inside = min(max(value, start), end)
        counts[min(int((inside - start) / ((end - start) / bins)), bins - 1)] += 1
    return {
        "start": start,
        "end": end,
        "min": min(kept, default=None),
        "max": max(kept, default=None),
        "sum": pytest.approx(math.fsum(kept), rel=1e-9, abs=1e-6),
        "sum_sq": pytest.approx(math.fsum(value * value for value in kept), rel=1e-9),
        "count": len(kept),
        "bins": counts,
    }


def quantile(histogram: dict[str, Any], q: float) -> float | None:
    """As a histogram's reader would find it, bin by bin."""
    rank, below = q * histogram["count"], 0
    width = (histogram["end"] - histogram["start"]) / len(histogram["bins"])
    for number, count in enumerate(histogram["bins"]):
        if count and below + count >= rank:
            low, high = (histogram["start"] + (number + side) * width for side in (0, 1))
            least, greatest = histogram["min"], histogram["max"]
            low = least if number == 0 else max(low, least)
            high = greatest if number == len(histogram["bins"]) - 1 else min(high, greatest)
            value = low + (rank - below) / count * (high - low)
            return min(max(value, least), greatest)
        below += count
    return None


def some_values(seed: int, count: int) -> list[Any]:
    chance = random.Random(seed)
    return [
        chance.choice(NOT_COUNTED) if chance.random() < 0.1 else chance.gauss(50, 30)
        for _ in range(count)
    ]


@pytest.mark.parametrize("partitions", [1, 3, 8])
@pytest.mark.parametrize("count", [1, 7, 499, 500, 8192, 50_000])
def test_a_histogram_is_that_of_plain_python(partitions, count):
    values = [12.5, *some_values(count, count - 1)]
    histogram = ask("SELECT make_histogram(0, 100, 40, value) FROM t", values, partitions)
    assert histogram == expected(0.0, 100.0, 40, values)


@pytest.mark.parametrize("partitions", [1, 5])
def test_each_group_has_its_own_histogram(partitions):
    chance = random.Random(7)
    values = some_values(8, 30_000)
    groups = [chance.choice("aaaaaaaabcd") for _ in values]
    groups += ["nothing", "nothing", "alone"]
    values += [None, math.nan, 3.0]
    table = numbers(values).append_column("name", pa.array(groups))
    sql = "SELECT name, make_histogram(-20.0, 120.0, 7, value) AS h FROM t GROUP BY name"
    answer = session(partitions, t=table).sql(sql).to_pydict()
    assert dict(zip(answer["name"], answer["h"], strict=True)) == {
        name: expected(
            -20.0, 120.0, 7, [v for v, group in zip(values, groups, strict=True) if group == name]
        )
        for name in set(groups)
    }


def test_values_outside_the_range_count_in_the_outer_bins():
    values = [-5.0, 0.0, 0.999, 1.0, 9.999, 10.0, 1e300]
    histogram = ask("SELECT make_histogram(0, 10, 10, value) FROM t", values)
    assert histogram["bins"] == [3, 1, 0, 0, 0, 0, 0, 0, 0, 3]
    assert (histogram["min"], histogram["max"]) == (-5.0, 1e300)


@pytest.mark.parametrize("times", [1, 1000])
def test_the_greatest_doubles_are_counted_and_have_no_variance(times):
    made = "make_histogram(-1e308, -0.9e308, 1000, value)"
    values = [-1.7e308, 1.7e308] * times
    histogram = ask(f"SELECT {made} FROM t", values)
    assert (histogram["bins"][0], histogram["bins"][-1], histogram["count"]) == (
        times,
        times,
        2 * times,
    )
    assert ask(f"SELECT variance_from_histogram({made}) FROM t", values) is None


def test_whole_numbers_fall_into_the_bins_that_begin_with_them():
    values = [float(n) for n in range(100)]
    assert ask("SELECT make_histogram(0, 100, 100, value) FROM t", values)["bins"] == [1] * 100


@pytest.mark.parametrize("value", NOT_COUNTED)
def test_a_group_of_nothing_countable_has_an_empty_histogram(value):
    histogram = ask("SELECT make_histogram(0, 10, 2, value) FROM t", [value, value])
    assert histogram == {
        "start": 0.0,
        "end": 10.0,
        "min": None,
        "max": None,
        "sum": 0.0,
        "sum_sq": 0.0,
        "count": 0,
        "bins": [0, 0],
    }


@pytest.mark.parametrize("partitions", [1, 4])
def test_no_rows_have_no_histogram(partitions):
    made = "SELECT make_histogram(0, 10, 2, value) AS h FROM t"
    assert ask(made, [], partitions) is None
    assert ask(f"SELECT sum_histograms(h) FROM ({made})", [], partitions) is None
    assert ask("SELECT count_from_histogram(make_histogram(0, 1, 1, value)) FROM t", []) is None


@pytest.mark.parametrize("type_", [pa.int8(), pa.int32(), pa.int64(), pa.uint32(), pa.float32()])
def test_whole_and_short_numbers_are_values_too(type_):
    table = pa.table({"value": pa.array([1, 2, None, 90], type_)})
    sql = "SELECT make_histogram(0, 100, CAST(10 AS INT), value) AS h FROM t"
    assert session(t=table).sql(sql).to_pydict()["h"] == [expected(0.0, 100.0, 10, [1, 2, 90])]


def test_the_argument_that_is_a_column_is_checked_and_used():
    table = pa.table({"value": [1.0, 2.0, 3.0], "highest": [4.0, 4.0, 8.0], "bins": [2, 2, 4]})
    made = "make_histogram(0, highest, bins, value) AS h"
    sql = f"SELECT {made} FROM t GROUP BY highest ORDER BY highest"
    answer = session(1, t=table).sql(sql).to_pydict()
    assert answer["h"] == [expected(0.0, 4.0, 2, [1.0, 2.0]), expected(0.0, 8.0, 4, [3.0])]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("0, 10, 0", "needs 1 to 1000000 bins, not 0"),
        ("0, 10, -3", "needs 1 to 1000000 bins, not -3"),
        (f"0, 10, {MAX_BINS + 1}", "needs 1 to 1000000 bins, not 1000001"),
        (f"0, 10, {2**63 - 1}", "needs 1 to 1000000 bins, not 9223372036854775807"),
        ("10, 10, 5", "needs a start below its end, not 10.0 and 10.0"),
        ("10, 0, 5", "needs a start below its end, not 10.0 and 0.0"),
        ("'nan'::DOUBLE, 1, 5", "needs a finite start and end, not nan and 1.0"),
        ("0, 'inf'::DOUBLE, 5", "needs a finite start and end, not 0.0 and inf"),
        ("-1e308, 1e308, 5", "too wide or too narrow for a double"),
        ("0, 5e-324, 5", "too wide or too narrow for a double"),
        ("NULL, 1, 5", "start, end and bins of a histogram must not be NULL"),
        ("0, NULL, 5", "start, end and bins of a histogram must not be NULL"),
        ("0, 1, NULL", "start, end and bins of a histogram must not be NULL"),
        ("0, value, 5", "start, end and bins must be the same"),
        ("0, 10, CAST(value AS BIGINT)", "start, end and bins must be the same"),
    ],
)
def test_arguments_that_make_no_histogram_are_refused_in_one_line(arguments, message):
    with pytest.raises(Exception, match=message) as refusal:
        ask(f"SELECT make_histogram({arguments}, value) FROM t", [1.0, 2.0, 3.0])
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("partitions", [1, 4])
def test_arguments_that_differ_between_batches_are_refused(partitions):
    table = numbers([1.0] * 5000).append_column("highest", pa.array([2.0] * 4999 + [3.0]))
    with pytest.raises(Exception, match=r"of 0\.0 to 2\.0 in 5 bins and of 0\.0 to 3\.0 in 5 bins"):
        session(partitions, t=table).sql(
            "SELECT make_histogram(0, highest, 5, value) FROM t"
        ).collect()


def test_the_most_bins_there_may_be():
    histogram = ask(f"SELECT make_histogram(0, 1, {MAX_BINS}, value) FROM t", [0.0, 2.0])
    assert (len(histogram["bins"]), histogram["bins"][0], histogram["bins"][-1]) == (MAX_BINS, 1, 1)


@settings(max_examples=50)
@given(st.lists(st.lists(NUMBERS | st.sampled_from(NOT_COUNTED), max_size=20), max_size=9))
def test_the_sum_of_histograms_is_the_histogram_of_all(parts):
    rows = [(number, value) for number, part in enumerate(parts) for value in part]
    table = pa.table(
        {
            "part": pa.array([number for number, _ in rows], pa.int64()),
            "value": pa.array([value for _, value in rows], pa.float64()),
        }
    )
    context = session(2, t=table)
    made = "SELECT part, make_histogram(-1e100, 1e50, 13, value) AS h FROM t GROUP BY part"
    (summed,) = context.sql(f"SELECT sum_histograms(h) AS h FROM ({made})").to_pydict()["h"]
    if not rows:
        assert summed is None
        return
    (whole,) = context.sql(
        "SELECT make_histogram(-1e100, 1e50, 13, value) AS h FROM t"
    ).to_pydict()["h"]
    assert summed == whole | {
        # Added in another order; what cancels may leave a rest of the greatest.
        "sum": pytest.approx(whole["sum"], rel=1e-9, abs=1e88),
        "sum_sq": pytest.approx(whole["sum_sq"], rel=1e-9),
    }


def histograms(*rows: dict[str, Any] | None) -> pa.Table:
    return pa.table({"h": pa.array(rows, HISTOGRAM)})


def histogram_of(*bins: int, **fields: Any) -> dict[str, Any]:
    return {
        "start": 0.0,
        "end": 10.0,
        "min": 1.0,
        "max": 9.0,
        "sum": 5.0,
        "sum_sq": 25.0,
        "count": sum(bins),
        "bins": list(bins),
    } | fields


def added(*rows: dict[str, Any] | None, partitions: int = 1) -> Any:
    context = session(partitions, t=histograms(*rows))
    return context.sql("SELECT sum_histograms(h) AS h FROM t").to_pydict()["h"][0]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("count", [1, 2, 3, 8, 1001])
def test_histograms_are_added_field_by_field(count, partitions):
    chance = random.Random(count)
    rows = [
        histogram_of(
            *(chance.randrange(9) for _ in range(5)),
            min=chance.uniform(0, 5),
            max=chance.uniform(5, 10),
            sum=chance.uniform(0, 9),
        )
        for _ in range(count)
    ]
    assert added(*rows, None, partitions=partitions) == {
        "start": 0.0,
        "end": 10.0,
        "min": min(row["min"] for row in rows),
        "max": max(row["max"] for row in rows),
        "sum": pytest.approx(math.fsum(row["sum"] for row in rows)),
        "sum_sq": pytest.approx(25.0 * count),
        "count": sum(row["count"] for row in rows),
        "bins": [sum(column) for column in zip(*(row["bins"] for row in rows), strict=True)],
    }


def test_null_and_empty_histograms_add_nothing():
    nothing = histogram_of(0, 0, min=None, max=None, sum=0.0, sum_sq=0.0)
    assert added(None, nothing, histogram_of(1, 2), None) == histogram_of(1, 2)
    assert added(nothing, nothing) == nothing
    assert added(None, None) is None


@pytest.mark.parametrize(
    "other",
    [histogram_of(1, 2, start=1.0), histogram_of(1, 2, end=11.0), histogram_of(1, 2, 3)],
)
@pytest.mark.parametrize("partitions", [1, 2])
def test_histograms_of_other_bins_are_not_added(other, partitions):
    with pytest.raises(Exception, match="cannot be added: start, end and bins must be the same"):
        added(histogram_of(1, 2), other, partitions=partitions)


@pytest.mark.parametrize("field", ["start", "end", "sum", "sum_sq", "count", "bins"])
def test_a_histogram_that_lacks_a_field_is_refused(field):
    with pytest.raises(Exception, match="only min and max may be NULL"):
        added(histogram_of(1, 2), histogram_of(1, 2) | {field: None})


def test_a_histogram_whose_bins_are_null_or_none_is_refused():
    with pytest.raises(Exception, match="only min and max may be NULL"):
        added(histogram_of(1, 2, bins=[1, None]))
    with pytest.raises(Exception, match="needs 1 to 1000000 bins, not 0"):
        added(histogram_of())


def test_histograms_from_several_files_are_merged(tmp_path: Path):
    values = some_values(3, 20_000)
    for number in range(4):
        pq.write_table(numbers(values[number::4]), tmp_path / f"{number}.parquet")
    context = session(4)
    context.register_parquet("t", str(tmp_path), schema=numbers([]).schema)
    sql = "SELECT make_histogram(0, 100, 10, value) AS h FROM t"
    assert "mode=Partial" in context.sql(f"EXPLAIN {sql}").to_pydict()["plan"][1]
    assert context.sql(sql).to_pydict()["h"] == [expected(0.0, 100.0, 10, values)]


def test_stored_histograms_are_read_as_they_were_made(tmp_path: Path):
    made = histograms(histogram_of(1, 2), None, histogram_of(3, 4))
    pq.write_table(made, tmp_path / "h.parquet")
    context = session(2)
    context.register_parquet("t", str(tmp_path / "h.parquet"), schema=made.schema)
    sql = "SELECT count_from_histogram(sum_histograms(h)) AS n FROM t"
    assert context.sql(sql).to_pydict()["n"] == [10]


def test_a_running_histogram_does_not_change_after_it_was_given():
    sql = (
        "SELECT make_histogram(0, 10, 2, value)"
        " OVER (ORDER BY value ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS h"
        " FROM t ORDER BY value"
    )
    answer = session(1, t=numbers([1.0, 2.0, 7.0])).sql(sql).to_pydict()["h"]
    assert [each["bins"] for each in answer] == [[1, 0], [2, 0], [2, 1]]


def read(function: str, *rows: dict[str, Any] | None) -> list[Any]:
    return session(1, t=histograms(*rows)).sql(f"SELECT {function} AS x FROM t").to_pydict()["x"]


def test_count_and_sum_are_those_of_the_histogram():
    rows = (histogram_of(1, 2), None, histogram_of(0, 0, sum=0.0))
    assert read("count_from_histogram(h)", *rows) == [3, None, 0]
    assert read("sum_from_histogram(h)", *rows) == [5.0, None, 0.0]
    kind = session(1, t=histograms()).sql("SELECT count_from_histogram(h) AS x FROM t").schema()
    assert kind.field("x").type == pa.uint64()


@settings(max_examples=50)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=50))
def test_the_variance_is_that_of_a_sample(values):
    variance = ask("SELECT variance_from_histogram(make_histogram(0, 1, 1, value)) FROM t", values)
    rounding = 1e-11 * max(value * value for value in values)
    if variance is None:  # nothing is left of their differences
        assert statistics.variance(values) <= rounding
        return
    assert variance >= 0
    assert variance == pytest.approx(statistics.variance(values), rel=1e-6, abs=rounding)


@pytest.mark.parametrize("value", [0.1, 1e8 + 0.1, -123456.789])
def test_the_variance_of_equal_values_is_not_negative(value):
    sql = "SELECT variance_from_histogram(make_histogram(0, 1, 1, value)) FROM t"
    assert 0 <= ask(sql, [value] * 1001) <= value * value * 1e-12


def test_there_is_no_variance_of_one_value_or_beyond_a_double():
    one = histogram_of(1, 0, sum=0.5, sum_sq=0.25)
    rows = (None, histogram_of(0, 0), one, histogram_of(1, 1, sum=1e300, sum_sq=math.inf))
    assert read("variance_from_histogram(h)", *rows) == [None, None, None, None]


@settings(max_examples=50)
@given(
    st.lists(st.floats(0, 99.999), min_size=1, max_size=200),
    st.floats(0, 1),
    st.integers(1, 500),
)
def test_a_quantile_is_less_than_a_bin_away_from_the_value_of_its_rank(values, q, bins):
    sql = f"SELECT quantile_from_histogram(make_histogram(0, 100, {bins}, value), {q!r}) FROM t"
    found = ask(sql, values)
    exact = sorted(values)[max(math.ceil(q * len(values)) - 1, 0)]
    assert abs(found - exact) <= 100 / bins * (1 + 1e-9)
    assert min(values) <= found <= max(values)


@settings(max_examples=50)
@given(
    st.lists(
        st.none() | st.lists(st.integers(0, 3), min_size=1, max_size=6),
        min_size=1,
        max_size=12,
    ),
    st.data(),
)
def test_quantiles_of_many_histograms_are_those_of_each(bins, data):
    rows = [None if row is None else histogram_of(*row, min=0.5, max=9.75) for row in bins]
    chance = st.none() | st.floats(0, 1) | st.sampled_from([0.0, 0.25, 0.5, 1.0])
    asked = [data.draw(chance) for _ in rows]
    table = histograms(*rows).append_column("q", pa.array(asked, pa.float64()))
    answer = session(1, t=table).sql("SELECT quantile_from_histogram(h, q) AS x FROM t")
    assert answer.to_pydict()["x"] == [
        None if row is None or q is None else pytest.approx(quantile(row, q))
        for row, q in zip(rows, asked, strict=True)
    ]


def test_quantiles_of_a_slice_are_those_of_its_rows():
    rows = [histogram_of(number, 1, 10 - number) for number in range(10)]
    context = session(1, t=histograms(None, *rows))
    sql = "SELECT quantile_from_histogram(h, 0.5) AS x FROM (SELECT h FROM t LIMIT 5 OFFSET 4)"
    found = context.sql(sql).to_pydict()["x"]
    assert found == [pytest.approx(quantile(row, 0.5)) for row in rows[3:8]]


@pytest.mark.parametrize("bounds", ["0, 100", "200, 300", "-300, -200"])
def test_quantiles_reach_from_the_least_to_the_greatest(bounds):
    chance = random.Random(1)
    values = [chance.gauss(50, 30) for _ in range(500)]
    for q, expected, off in ((0, min(values), 0), (1, max(values), 0), (0.5, 50, 12)):
        sql = f"SELECT quantile_from_histogram(make_histogram({bounds}, 10, value), {q}) FROM t"
        assert ask(sql, values) == pytest.approx(expected, abs=off + 1e-9)


def test_a_variance_of_which_nothing_is_left_is_not_made_up():
    sql = "SELECT variance_from_histogram(make_histogram(0, 1e10, 10, value)) FROM t"
    assert ask(sql, [1e9, 1e9 + 1, 1e9 + 2]) is None
    assert ask(sql, [1e9, 1.5e9, 2e9]) == pytest.approx(2.5e17)


def test_the_quantiles_of_one_value_are_this_value():
    for q in (0, 0.3, 1):
        sql = f"SELECT quantile_from_histogram(make_histogram(0, 100, 3, value), {q}) FROM t"
        assert ask(sql, [42.0]) == 42.0


def test_there_is_no_quantile_without_values():
    assert read("quantile_from_histogram(h, 0.5)", None, histogram_of(0, 0)) == [None, None]
    assert read("quantile_from_histogram(h, NULL)", histogram_of(1, 0)) == [None]
    assert read("quantile_from_histogram(h, 0.5)", histogram_of(), histogram_of(count=3)) == [
        None,
        None,
    ]


@pytest.mark.parametrize("q", ["-0.01", "1.01", "95", "'nan'::DOUBLE"])
def test_a_quantile_outside_0_to_1_is_refused(q):
    with pytest.raises(Exception, match="a number from 0 to 1, not"):
        read(f"quantile_from_histogram(h, {q})", histogram_of(1, 2))
