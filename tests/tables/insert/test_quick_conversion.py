"""Columns whose values all fit are taken as a whole, up to each bound, and as the exact way has
them; one value beyond a bound leaves the column to the exact way.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakebed.model.tables.schema import FIRST_INSTANT, LAST_INSTANT, UNITS, Column
from lakebed.tables.insert import convert_columns
from lakebed.tables.insert.convert_columns import are_all_between, convert
from lakebed.tables.insert.convert_values import reader_of
from tests.tables.insert.validating import only

INT64_MAX = 2**63 - 1


def column_of(kind: str, unit: str | None = None) -> Column:
    (column,) = [column for column in only(kind, unit=unit).columns if column.name == "c"]
    return column  # type: ignore[no-any-return]


def is_quick(values: list[Any] | pa.Array, column: Column) -> bool:
    """Return whether the quick way takes values; check that it agrees with the exact way."""
    if isinstance(values, pa.Array):
        taken = convert_columns._cast_quickly(values, column)
    else:
        taken = convert_columns._take_quickly(values, column)
    given = values.to_pylist() if isinstance(values, pa.Array) else values
    exact = convert_columns._take_each(given, reader_of(column), column)
    if taken is None:
        return False
    assert exact.bad == {}
    assert taken.equals(exact.values)
    assert convert(values, column).values.equals(taken)
    return True


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
@pytest.mark.parametrize("bound", [FIRST_INSTANT, LAST_INSTANT])
def test_numbers_are_times_quickly_up_to_the_ends_of_the_calendar(unit: str, bound: int) -> None:
    column = column_of("datetime", unit)
    last = bound // UNITS[unit]
    beyond = -1 if bound == FIRST_INSTANT else 1
    assert is_quick([last, None, 0], column)
    assert is_quick(pa.array([last, None, 0]), column)
    assert not is_quick([last + beyond, 0], column)
    assert not is_quick(pa.array([last + beyond, 0]), column)


@pytest.mark.parametrize(
    ("values", "kind", "unit"),
    [
        ([], "int", None),
        ([None, None], "datetime", None),
        ([1, 2, None], "int", None),
        ([INT64_MAX, -INT64_MAX - 1], "int", None),
        ([1, 2.0], "int", None),
        ([1, 2.5, None], "float", None),
        (["a", None, "ü"], "string", None),
        ([True, None], "bool", None),
        ([0, 1.5, 1e9], "float", None),
        ([0.0, 1.5, -1e9], "datetime", "s"),
        ([10**18, -(10**18), 1, -1], "datetime", "ns"),
        ([1.5e18, 0.0], "datetime", "ns"),
        (["2026-11-16T05:00:00Z", None], "datetime", None),
        (["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"], "datetime", None),
        (["2026.11.16 05:00:00Z"], "datetime", None),
        (["2026-11-16T05:00:00.123456789Z", "2026-11-16T05:00:00.1Z"], "datetime", None),
        (["2026-11-16T05:00:00.123456+02:00"], "datetime", None),
        ([{"a": 1}, [1, "x"], None, 5], "json", None),
    ],
)
def test_values_that_fit_are_taken_quickly(values: list[Any], kind: str, unit: str | None) -> None:
    assert is_quick(values, column_of(kind, unit))


@pytest.mark.parametrize(
    ("values", "kind", "unit"),
    [
        ([1, "a"], "int", None),
        ([1.5], "int", None),
        ([True, 1], "int", None),
        ([True, 1.5], "float", None),
        ([INT64_MAX + 1], "int", None),
        ([b"a"], "string", None),
        (["\ud800"], "string", None),
        ([1], "bool", None),
        ([1], "datetime", None),
        ([1, 1.5], "datetime", "s"),
        (["2026-11-16T05:00:00"], "datetime", None),
        (["0001-01-01T00:00:00+01:00"], "datetime", None),
        (["9999-12-31T23:59:59-01:00"], "datetime", None),
        ([float("nan")], "datetime", "s"),
        ([1e30], "datetime", "s"),
        ([{1: "a"}], "json", None),
        ([float("inf")], "json", None),
    ],
)
def test_values_that_do_not_all_fit_are_left_to_the_exact_way(
    values: list[Any], kind: str, unit: str | None
) -> None:
    assert not is_quick(values, column_of(kind, unit))


@pytest.mark.parametrize(
    ("array", "kind", "unit"),
    [
        (pa.nulls(2), "int", None),
        (pa.array([1, 2], pa.int8()), "int", None),
        (pa.array([1.0, 2.0]), "int", None),
        (pa.array([1, 2], pa.uint32()), "float", None),
        (pa.array([1.5], pa.float32()), "float", None),
        (pa.array([2**53 + 1]), "float", None),
        (pa.array([True, None]), "bool", None),
        (pa.array(["a"], pa.large_string()), "string", None),
        (pa.array(["2026-11-16T05:00:00Z"], pa.string_view()), "datetime", None),
        (pa.array([5, None], pa.int32()), "datetime", "s"),
        (pa.array([5, None], pa.uint64()), "datetime", "ns"),
        (pa.array([0.5, None]), "datetime", "ms"),
    ],
)
def test_arrays_that_fit_are_taken_quickly(array: pa.Array, kind: str, unit: str | None) -> None:
    assert is_quick(array, column_of(kind, unit))


@pytest.mark.parametrize(
    ("array", "kind", "unit"),
    [
        (pa.array([1.5]), "int", None),
        (pa.array([2**64 - 1], pa.uint64()), "int", None),
        (pa.array([1]), "bool", None),
        (pa.array([1]), "string", None),
        (pa.array([True]), "int", None),
        (pa.array([1]), "datetime", None),
        (pa.array([b"a"]), "string", None),
        (pa.array([[1]]), "int", None),
        (pa.array([True]), "datetime", "s"),
    ],
)
def test_arrays_that_do_not_all_fit_are_left_to_the_exact_way(
    array: pa.Array, kind: str, unit: str | None
) -> None:
    assert not is_quick(array, column_of(kind, unit))


@pytest.mark.parametrize(
    "layout",
    [
        pa.list_(pa.int64()),
        pa.large_list(pa.int64()),
        pa.list_(pa.int64(), 2),
        pa.list_view(pa.int64()),
        pa.large_list_view(pa.int64()),
    ],
    ids=str,
)
def test_lists_are_converted_however_arrow_lays_them_out(layout: pa.DataType) -> None:
    array = pa.array([[1, 2], None, [3, None]], layout)
    assert convert_columns.is_list(layout)
    converted = convert(array, column_of("int[]"))
    assert converted.bad == {}
    assert converted.values.to_pylist() == [[1, 2], None, [3, None]]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (2, 5, True),
        (3, 5, False),
        (2, 4, False),
        (None, 5, True),
        (None, 4, False),
        (2, None, True),
        (3, None, False),
        (None, None, True),
    ],
)
def test_numbers_are_between_bounds_which_they_may_touch(
    low: int | None, high: int | None, expected: bool
) -> None:
    assert are_all_between(pa.array([5, None, 2]), low, high) is expected
    assert are_all_between(pa.array([None], pa.int64()), low, high)
