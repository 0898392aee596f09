"""Arrow is judged as its values are."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import BadInput
from lakebed.model.tables.schema import TYPES
from lakebed.tables.insert.validation import Problem, validate
from tests.tables.insert.plain_rules import (
    as_plain,
    time_texts,
)
from tests.tables.insert.validating import AT, PULSE, micros, only


class Months(pa.ExtensionType):  # type: ignore[misc]
    """As pandas keeps its periods."""

    def __init__(self) -> None:
        super().__init__(pa.int64(), "somebodys.months")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


@st.composite
def arrow_columns(draw: st.DrawFn) -> tuple[pa.Array, list[Any]]:
    """An Arrow array of some type, and what it holds."""
    small = st.integers(-100, 100)
    texts = st.text(st.characters(codec="utf-8"), max_size=3) | time_texts()
    kind, values = draw(
        st.sampled_from(
            [
                (pa.int8(), small),
                (pa.uint64(), st.integers(0, 2**64 - 1)),
                (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
                (pa.float32(), st.floats(width=32)),
                (pa.float64(), st.floats() | small.map(float)),
                (pa.bool_(), st.booleans()),
                (pa.string(), texts),
                (pa.large_string(), texts),
                (pa.string_view(), texts),
                (pa.dictionary(pa.int8(), pa.string()), texts),
                (pa.binary(), st.binary(max_size=2)),
                (pa.timestamp("s"), st.datetimes().map(lambda at: at.replace(microsecond=0))),
                (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
                (pa.date32(), st.dates()),
                (pa.null(), st.none()),
                (pa.list_(pa.int32()), st.lists(small, max_size=2)),
                (pa.large_list(pa.string()), st.lists(texts | st.none(), max_size=2)),
                (pa.list_view(pa.float64()), st.lists(small.map(float), max_size=2)),
                (pa.list_(pa.timestamp("us")), st.lists(st.datetimes(), max_size=2)),
                (pa.struct([("a", pa.int64())]), st.fixed_dictionaries({"a": small})),
            ]
        )
    )
    drawn_columns = draw(st.lists(values | st.none(), min_size=1, max_size=6))
    array = pa.array(drawn_columns, kind)
    begin = draw(st.integers(0, len(drawn_columns) - 1))
    return array[begin:], drawn_columns[begin:]


@settings(max_examples=100)
@given(
    arrow_columns(),
    st.sampled_from([kind for kind in TYPES if not kind.startswith("json")]),
    st.sampled_from([None, "s", "ns"]),
    st.booleans(),
)
def test_arrow_is_judged_as_its_values_are(
    column: tuple[pa.Array, list[Any]], kind: str, unit: str | None, required: bool
) -> None:
    array, values = column
    if not kind.startswith("datetime"):
        unit = None
    schema = only(kind, required=required, unit=unit)
    at = pa.array([AT] * len(values))
    table = pa.table({"c": pa.chunked_array([array[:1], array[1:]]), "at": at})
    judged = validate(table, schema)
    judged.rows.validate(full=True)
    as_values = validate([{"at": AT, "c": value} for value in values], schema)
    assert repr(as_plain(judged, len(values))) == repr(as_plain(as_values, len(values)))


def test_columns_that_arrow_input_lacks_are_null() -> None:
    validated = validate(pa.table({"at": [AT], "device": ["a"]}), PULSE)
    assert validated.rows.to_pylist() == [
        {"at": datetime(2026, 11, 16, 5, tzinfo=UTC), "device": "a", "bpm": None, "note": None}
    ]


def test_columns_that_the_table_lacks_are_refused_in_arrow_too() -> None:
    table = pa.table({"at": [AT, AT], "device": ["a", "b"], "colour": ["red", None]})
    validated = validate(table, PULSE)
    assert validated.rows.num_rows == 0
    expected = "a column of the table (at, device, bpm, note)"
    assert [bad_record.problems for bad_record in validated.bad] == [
        (Problem("colour", expected, '"red"'),),
        (Problem("colour", expected, "null"),),
    ]
    assert validated.bad[0].record == {"at": AT, "device": "a", "colour": "red"}


def test_a_column_that_is_there_twice_is_refused() -> None:
    twice = pa.Table.from_arrays([pa.array([AT]), pa.array([AT])], names=["at", "at"])
    with pytest.raises(BadInput, match="several columns named at"):
        validate(twice, PULSE)


@pytest.mark.parametrize(
    ("unit", "number", "stored"),
    [
        ("ns", -1, -1),
        ("ns", 1794830400123456789, micros(2026, 11, 16, 12) + 123_456),
        ("s", 253402300799, micros(9999, 12, 31, 23, 59, 59)),
        ("s", 253402300800, None),
        ("s", 2**62, None),
        ("us", -(2**63), None),
        ("ms", -62135596800001, None),
    ],
)
def test_arrows_timestamps_of_every_unit_are_cut_to_microseconds(
    unit: str, number: int, stored: int | None
) -> None:
    for zone in ("UTC", "Europe/Berlin"):
        array = pa.array([number, None], pa.int64()).cast(pa.timestamp(unit, zone))
        for kind, values in (("datetime", array), ("datetime[]", pa.array([[0]] * 2))):
            if kind == "datetime[]":
                values = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), array)
            table = pa.table({"at": [AT, AT], "c": values})
            validated = validate(table, only(kind))
            if stored is None:
                assert validated.accepted == [1]
                (problem,) = validated.bad[0].problems
                assert problem.expected.startswith("datetime of the years 1 to 9999")
                assert "Unreadable" not in problem.got
            else:
                (first, *_) = as_plain(validated, 2)[0]
                assert first["c"] == ([stored] if kind == "datetime[]" else stored)


@pytest.mark.parametrize(
    "make",
    [pa.list_, pa.large_list, pa.list_view, pa.large_list_view, lambda item: pa.list_(item, 2)],
)
def test_lists_of_every_layout_are_lists(make: Any) -> None:
    lists = [[1, 2], None, [3, None], [5, 6]]
    array = pa.array(lists, make(pa.int64()))[1:]
    table = pa.table({"at": [AT] * 3, "c": array})
    assert validate(table, only("float[]")).rows["c"].to_pylist() == [None, [3.0, None], [5.0, 6.0]]


def test_lists_hidden_under_a_null_are_not_read() -> None:
    array = pa.ListArray.from_arrays(
        pa.array([0, 2, 3], pa.int32()), pa.array(["x", "y", "3"]), mask=pa.array([True, False])
    )
    validated = validate(pa.table({"at": [AT] * 2, "c": array}), only("string[]"))
    assert validated.rows["c"].to_pylist() == [None, ["3"]]


def test_arrow_text_of_a_json_column_must_be_json_and_becomes_canonical() -> None:
    texts = pa.array(['{"b": 1, "a": [2]}', "null", None, "{", '"x"', "NaN"])
    for array in (
        texts,
        texts.dictionary_encode(),
        texts.cast(pa.json_()),
        texts.cast("large_string"),
    ):
        validated = validate(pa.table({"at": [AT] * 6, "c": array}), only("json"))
        assert validated.rows["c"].to_pylist() == ['{"a":[2],"b":1}', None, None, '"x"']
        assert [bad_record.problems for bad_record in validated.bad] == [
            (Problem("c", "JSON text", '"{"'),),
            (Problem("c", "JSON text", '"NaN"'),),
        ]


def test_arrow_values_of_a_json_column_become_text() -> None:
    table = pa.table({"at": [AT] * 2, "c": [{"b": 1, "a": [True]}, None]})
    assert validate(table, only("json")).rows["c"].to_pylist() == ['{"a":[true],"b":1}', None]


def test_arrow_text_that_is_no_unicode_is_refused() -> None:
    broken = pa.StringArray.from_buffers(
        2, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"a\xff")
    )
    for kind in ("string", "datetime", "json"):
        validated = validate(pa.table({"at": [AT] * 2, "c": broken}), only(kind))
        assert 1 in [bad_record.index for bad_record in validated.bad]


def test_encoded_runs_are_values() -> None:
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"])
    table = pa.table({"at": [AT] * 3, "c": runs})
    assert validate(table, only("string")).rows["c"].to_pylist() == ["a", "a", "b"]


def test_dictionaries_of_every_kind_of_text_are_texts() -> None:
    """Frames of polars have views in theirs."""
    for kind in (pa.string(), pa.large_string(), pa.string_view()):
        values = pa.DictionaryArray.from_arrays(pa.array([1, None, 0]), pa.array(["a", "b"], kind))
        table = pa.table({"at": [AT] * 3, "c": values})
        assert validate(table, only("string")).rows["c"].to_pylist() == ["b", None, "a"]


def test_what_only_others_know_the_type_of_is_refused_by_its_name() -> None:
    """Months that are stored as numbers are no milliseconds. In a process that does not know the
    type, the column's metadata tells."""
    numbers = pa.array([672, None], pa.int64())
    kind = Months()
    months = pa.ExtensionArray.from_storage(kind, numbers)
    metadata = {"ARROW:extension:name": "somebodys.months", "ARROW:extension:metadata": ""}
    at = pa.array([AT] * 2)
    whole = pa.table({"at": at, "c": months})
    unknown = pa.table(
        [at, numbers], pa.schema([("at", at.type), pa.field("c", "int64", True, metadata)])
    )
    listed = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), months)
    for table in (whole, unknown):
        for column, unit in (("datetime", "ms"), ("int", None), ("json", None), ("float", None)):
            validated = validate(table, only(column, unit=unit))
            ((index, (problem,)),) = [
                (bad_record.index, bad_record.problems) for bad_record in validated.bad
            ]
            assert (index, problem.column, problem.got) == (0, "c", "somebodys.months 672")
            assert validated.rows["c"].to_pylist() == [None]
            assert str(validated.bad[0].record["c"]) == "somebodys.months 672"
    validated = validate(pa.table({"at": at, "c": listed}), only("int[]"))
    assert [bad_record.problems[0].got for bad_record in validated.bad] == ["somebodys.months 672"]
