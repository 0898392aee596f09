"""Validation: a record is stored as it was given or refused with the reason."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from lakebed.errors import BadInput, BadRecords
from lakebed.model.tables.declaration import parse_schema
from lakebed.model.tables.schema import FIRST_INSTANT, LAST_INSTANT
from lakebed.tables.insert.convert_values import NO_ZONE
from lakebed.tables.insert.validation import BadRecord, Problem, Validated, show, validate
from tests.tables.insert.validating import AT, PULSE, micros, take

# ---- whole records -----------------------------------------------------------------------------


def test_good_records_become_rows_of_the_table() -> None:
    records = [
        {"at": AT, "device": "a", "bpm": 70, "note": None},
        {"bpm": None, "device": "b", "at": "2026.11.16 05:00:01Z"},
    ]
    validated = validate(records, PULSE)
    assert validated.rows.schema.equals(PULSE.arrow)
    assert validated.rows.to_pylist() == [
        {"at": datetime(2026, 11, 16, 5, tzinfo=UTC), "device": "a", "bpm": 70, "note": None},
        {
            "at": datetime(2026, 11, 16, 5, 0, 1, tzinfo=UTC),
            "device": "b",
            "bpm": None,
            "note": None,
        },
    ]
    assert (validated.accepted, validated.bad) == (None, [])


def test_bad_records_are_named_with_everything_wrong_and_the_others_are_kept() -> None:
    records = [
        {"at": AT, "device": "a", "bpm": "fast"},
        {"at": AT, "device": "b", "bpm": 60},
        {"at": "soon", "bpm": 300, "colour": "red", "note": 5},
        5,
        {"at": AT, "device": "c", "bpm": 61},
        None,
    ]
    validated = validate(records, PULSE)
    assert validated.accepted == [1, 4]
    assert validated.rows["device"].to_pylist() == ["b", "c"]
    assert [str(bad_record) for bad_record in validated.bad] == [
        'record 0: bpm: expected int, got "fast"',
        'record 2: at: expected datetime such as 2026-11-16T05:00:00Z, got "soon"; '
        "device: expected a value, got nothing; "
        "bpm: expected at most 220, got 300; note: expected string, got 5; "
        'colour: expected a column of the table (at, device, bpm, note), got "red"',
        "record 3: expected an object, got 5",
        "record 5: expected an object, got null",
    ]
    assert validated.bad[0].record is records[0]
    assert validated.bad[0].problems == (Problem("bpm", "int", '"fast"'),)
    assert validated.bad[2].problems == (Problem("", "an object", "5"),)


def test_the_error_counts_all_and_shows_a_few() -> None:
    bad = [BadRecord(i, (Problem(f"c{i}", "int", '"x"'),), None) for i in range(7)]
    error = BadRecords(bad, 100)
    assert str(error).splitlines() == [
        "7 of 100 records are bad",
        *(f'record {i}: c{i}: expected int, got "x"' for i in range(5)),
        "and 2 more",
    ]
    assert error.bad == tuple(bad)
    assert isinstance(error, BadInput)
    assert str(BadRecords(bad[:1], 1)).count("\n") == 1


def test_problem_that_many_records_share_is_reported_once_with_its_count() -> None:
    records: list[Any] = [{"time": 1794812400 + i, "bpm": 7} for i in range(12_090)]
    records[5] |= {"bpm": "fast"}
    checked = validate(records, parse_schema({"time": "datetime", "bpm": "int"}))
    error = BadRecords(checked.bad, len(records))
    assert str(error).splitlines() == [
        "12090 of 12090 records are bad",
        "time: expected datetime as text; for numbers the column needs a unit, got 1794812400 "
        "(12,090 records: 0, 1, 2, …)",
        'record 5: bpm: expected int, got "fast"',
    ]
    assert len(error.bad) == 12_090


def test_no_records_are_no_rows() -> None:
    for none in ([], PULSE.arrow.empty_table(), pa.table({})):
        validated = validate(none, PULSE)
        assert validated == Validated(PULSE.arrow.empty_table(), None, [])


def test_records_that_are_not_quite_dicts_are_records() -> None:
    source_rows = [
        OrderedDict(at=AT, device="a"),
        defaultdict(lambda: "made up", at=AT, device="b"),
    ]
    validated = validate(source_rows, PULSE)
    assert not validated.bad
    assert validated.rows["note"].to_pylist() == [None, None]
    assert len(source_rows[1]) == 2


class NoOffset(tzinfo):
    """A zone that does not know its offset."""

    def utcoffset(self, _moment: datetime | None) -> None:
        return None


@pytest.mark.parametrize(
    ("key", "printed"), [(5, "5"), ("\ud800", "\\ud800"), ("x" * 100, "x" * 79 + "…")]
)
def test_whatever_is_no_column_can_be_shown(key: Any, printed: str) -> None:
    (bad,) = validate([{"at": AT, "device": "a", key: 6}], PULSE).bad
    assert str(bad).startswith(f"record 0: {printed}: expected a column of the table")


@pytest.mark.parametrize("column", ["at", "device"])
def test_key_and_time_need_a_value(column: str) -> None:
    whole = {"at": AT, "device": "a"}
    absent = {name: value for name, value in whole.items() if name != column}
    validated = validate([whole, absent, whole | {column: None}], PULSE)
    assert validated.accepted == [0]
    assert [bad_record.problems for bad_record in validated.bad] == [
        (Problem(column, "a value", "nothing"),)
    ] * 2


# ---- values ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "value", "stored"),
    [
        ("int", 7, 7),
        ("int", 7.0, 7),
        ("int", -(2**63), -(2**63)),
        ("int", 2**63, "expected int of at most 64 bits"),
        ("int", float(2**63), "expected int of at most 64 bits"),
        ("int", -float(2**63), -(2**63)),
        ("int", 1.5, "expected int"),
        ("int", math.nan, "expected int"),
        ("int", math.inf, "expected int"),
        ("int", True, "expected int"),
        ("int", "7", "expected int"),
        ("float", 7, 7.0),
        ("float", 2**53 + 1, float(2**53 + 1)),
        ("float", 2**70, float(2**70)),
        ("float", 10**400, "expected float of at most 64 bits"),
        ("float", math.inf, math.inf),
        ("float", False, "expected float"),
        ("float", "1.5", "expected float"),
        ("string", "größe", "größe"),
        ("string", "", ""),
        ("string", "\ud800", "expected string of valid unicode"),
        ("string", b"bytes", "expected string"),
        ("string", 5, "expected string"),
        ("bool", False, False),
        ("bool", 1, "expected bool"),
        ("bool", "true", "expected bool"),
        (
            "json",
            {"b": [1, None], "a": {"d": "ü", "c": True}},
            '{"a":{"c":true,"d":"ü"},"b":[1,null]}',
        ),
        ("json", "text", '"text"'),
        ("json", (1, (2,)), "[1,[2]]"),
        ("json", 2**70, str(2**70)),
        ("json", math.nan, "expected a JSON value"),
        ("json", [math.inf], "expected a JSON value"),
        ("json", {1: 2}, "expected a JSON value"),
        ("json", {"a": b"x"}, "expected a JSON value"),
        ("json", [datetime(2026, 1, 1, tzinfo=UTC)], "expected a JSON value"),
        ("json", {1, 2}, "expected a JSON value"),
        ("json", "\ud800", "expected a JSON value"),
        ("int[]", [1, None, 2.0], [1, None, 2]),
        ("int[]", (), []),
        ("int[]", [1, "x", True], "expected int at [1]"),
        ("int[]", 5, "expected int[]"),
        ("string[]", "abc", "expected string[]"),
        ("json[]", [{"b": 1, "a": 2}, "x"], ['{"a":2,"b":1}', '"x"']),
        ("float[]", [[1.0]], "expected float at [0]"),
    ],
)
def test_a_value_is_stored_exactly_or_refused(kind: str, value: Any, stored: Any) -> None:
    assert repr(take(value, kind)) == repr(stored)


def test_a_json_value_that_has_no_end_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert take(endless, "json") == "expected a JSON value"


NOON = micros(2026, 11, 16, 12)


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("2026-11-16T12:00:00Z", NOON),
        ("2026-11-16 12:00:00Z", NOON),
        ("2026-11-16t12:00:00z", NOON),
        ("2026-11-16t12:00:00.5Z", NOON + 500_000),
        ("2026-11-16T13:30:00+01:30", NOON),
        ("2026-11-16T02:00:00-10:00", NOON),
        ("2026-11-16T12:00:00-00:00", NOON),
        ("2026.11.16 12:00:00Z", NOON),
        ("2026.11.16T12:00:00.5+00:00", NOON + 500_000),
        ("2026-11-16T12:00Z", NOON),
        ("2026-11-16T12Z", NOON),
        ("2026-11-16 13+01", NOON),
        ("2026-11-16T12:00+00:00", NOON),
        ("2026-11-16T13:00:00+0100", NOON),
        ("2026-11-16T13:00:00+01", NOON),
        ("2026-11-16", NOON - 12 * 3_600_000_000),
        ("2026.11.16", NOON - 12 * 3_600_000_000),
        ("2026-11-16T12:00:00.1234569Z", NOON + 123_456),
        ("2026-11-16T12:00:00.000000999999999999+00:00", NOON),
        ("1969-12-31T23:59:59.9999999Z", -1),
        ("0001-01-01T00:00:00Z", FIRST_INSTANT),
        ("9999-12-31T23:59:59.999999999Z", LAST_INSTANT),
        ("2024-02-29T00:00:00Z", micros(2024, 2, 29)),
    ],
)
def test_times_are_read_from_text(text: str, stored: int) -> None:
    assert take(text, "datetime") == stored


@pytest.mark.parametrize(
    "text",
    [
        *("", "now", "today", "1h", "2026-11", "2026-11-16T", "2026-11-16T1Z", "2026-11-16Z"),
        *("2026-11-16T12:00:00+010", "2026-11-16T12:00:00+1", "2026-11-16T12:00:00+24:00"),
        *("2026-11-16T12:00:00+01:60", "2026-11-16T12:00:00 Z", "2026-11-16T12:00:00.Z"),
        *("2026-11.16 12:00:00", "16.11.2026 12:00:00", "2016-12-31T23:59:60Z"),
        *("2023-02-29T00:00:00Z", "2026-11-31T00:00:00Z", "2026-13-01T00:00:00Z"),
        *("2026-11-16T24:00:00Z", "2026-11-16T12:60:00Z", "2026-11-16T12:00:60Z"),
        *("0000-01-01T00:00:00Z", " 2026-11-16T12:00:00Z", "2026-11-16T12:00:00Z\n"),
        *("٢٠٢٦-11-16T12:00:00Z", "1794830400", "2026-W47-1T12:00:00Z", "\ud800"),
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    assert take(text, "datetime") == "expected datetime such as 2026-11-16T05:00:00Z"
    alone = validate([{"at": text}], parse_schema({"at": "datetime"}))
    assert [bad_record.index for bad_record in alone.bad] == [0]


@pytest.mark.parametrize(
    ("value", "unit", "stored"),
    [
        (1794830400, "s", NOON),
        (1794830400.123456, "s", NOON + 123_456),
        (1794830400123.456, "ms", NOON + 123_456),
        (1794830400123456, "us", NOON + 123_456),
        (1794830400123456789, "ns", NOON + 123_456),
        (-1, "ns", -1),
        (-1000, "ns", -1),
        (-1001, "ns", -2),
        (-(2**63), "ns", -(2**63) // 1000),
        (253402300799, "s", micros(9999, 12, 31, 23, 59, 59)),
        (253402300800, "s", "expected datetime of the years 1 to 9999"),
        (253402300800.0, "s", "expected datetime of the years 1 to 9999"),
        (-62135596800, "s", FIRST_INSTANT),
        (-62135596801, "s", "expected datetime of the years 1 to 9999"),
        (2**63 - 1, "s", "expected datetime of the years 1 to 9999"),
        (10**30, "ms", "expected datetime of the years 1 to 9999"),
        (math.nan, "s", "expected datetime of the years 1 to 9999"),
        (math.inf, "s", "expected datetime of the years 1 to 9999"),
        (True, "s", "expected datetime"),
        (5, None, "expected datetime as text; for numbers the column needs a unit"),
        (AT, "ms", micros(2026, 11, 16, 5)),
    ],
)
def test_numbers_are_times_in_the_declared_unit(value: Any, unit: str, stored: Any) -> None:
    assert take(value, "datetime", unit=unit) == stored


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (datetime(2026, 11, 16, 12, tzinfo=UTC), NOON),
        (datetime(2026, 11, 16, 13, tzinfo=timezone(timedelta(hours=1))), NOON),
        (pd.Timestamp("2026-11-16T12:00:00.000000999Z"), NOON),
        (pd.NaT, "expected datetime"),
        (datetime(2026, 11, 16, tzinfo=NoOffset()), "expected datetime"),
        (date(2026, 11, 16), NOON - 12 * 3_600_000_000),
        (date(1, 1, 1), FIRST_INSTANT),
        (
            datetime.min.replace(tzinfo=timezone(timedelta(hours=1))),
            "expected datetime of the years 1 to 9999",
        ),
    ],
)
def test_times_of_python_are_times(value: Any, stored: Any) -> None:
    assert take(value, "datetime") == stored


# ---- ranges ------------------------------------------------------------------------------------


def test_what_is_out_of_range_is_rejected_with_the_bound() -> None:
    records = [{"at": AT, "device": "a", "bpm": bpm} for bpm in (29, 30, 220, 221, None)]
    validated = validate(records, PULSE)
    assert validated.accepted == [1, 2, 4]
    assert [bad_record.problems for bad_record in validated.bad] == [
        (Problem("bpm", "at least 30", "29"),),
        (Problem("bpm", "at most 220", "221"),),
    ]


def test_what_is_out_of_range_is_kept_and_flagged_if_the_table_says_so() -> None:
    spec = {
        "columns": {
            "at": {"type": "datetime", "min": "2026-01-01T00:00:00Z"},
            "bpm": {"type": "int", "min": 30},
            "heat": {"type": "float", "max": 42},
        },
        "out_of_range": "flag",
    }
    records = [
        {"at": AT, "bpm": 30, "heat": 42.0},
        {"at": "2025-12-31T23:59:59Z", "bpm": 5, "heat": 42.1},
        {"at": AT, "bpm": "x", "heat": 99},
        {"at": AT, "bpm": 5},
        {"at": AT, "heat": math.nan},
    ]
    schema = parse_schema(spec)
    validated = validate(records, schema)
    assert validated.rows.schema.names == [*schema.names, "_out_of_range"]
    assert validated.rows.schema.field("_out_of_range").type == pa.list_(pa.string())
    assert validated.accepted == [0, 1, 3, 4]
    assert validated.rows["_out_of_range"].to_pylist() == [
        None,
        ["at", "bpm", "heat"],
        ["bpm"],
        ["heat"],
    ]
    good = validate(records[:1], schema)
    assert good.rows["_out_of_range"].to_pylist() == [None]
    assert good.rows.schema == validated.rows.schema


def test_bounds_of_a_time_are_times() -> None:
    spec = {"type": "datetime", "max": "2026-11-16T05:00:00Z"}
    validated = validate(
        [{"at": AT}, {"at": "2026-11-16T05:00:00.000001Z"}], parse_schema({"at": spec})
    )
    assert [str(bad_record) for bad_record in validated.bad] == [
        "record 1: at: expected at most 2026-11-16T05:00:00.000000Z, "
        'got "2026-11-16T05:00:00.000001Z"'
    ]


# ---- showing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        ("fast", '"fast"'),
        (None, "null"),
        (True, "true"),
        ({"ü": [1.5]}, '{"ü": [1.5]}'),
        (datetime(2026, 1, 1, tzinfo=UTC), '"2026-01-01 00:00:00+00:00"'),
        ("\ud800", "'\\ud800'"),
        ({(1,): 2}, "{(1,): 2}"),
        ("x" * 100, '"' + "x" * 78 + "…"),
        pytest.param(10**5000, "a number too long to show", id="long"),
    ],
)
def test_values_are_shown_in_short(value: Any, printed: str) -> None:
    assert show(value) == printed
    assert len(show(value)) <= 80


@pytest.mark.parametrize(
    "naive",
    [
        "2026-11-16T12:00:00",
        "2026-11-16 12:00",
        "2026.11.16 12:00:00.5",
        datetime(2026, 11, 16, 12),  # noqa: DTZ001
        pd.Timestamp("2026-11-16T12:00:00"),
    ],
)
def test_time_without_a_zone_is_a_bad_record(naive: Any) -> None:
    expected = f"expected {NO_ZONE}"
    assert take(naive, "datetime") == expected
    assert take([naive], "datetime[]") == f"{expected} at [0]"
    assert take(naive, "datetime", unit="s") == expected


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_arrow_column_without_a_zone_is_refused_and_null_stays_null(unit: str) -> None:
    schema = parse_schema({"at": {"type": "datetime", "time": True}, "c": "datetime"})
    times = pa.array([0, None], pa.timestamp(unit))
    checked = validate(pa.table({"at": [AT, AT], "c": times}), schema)
    assert [(bad.index, bad.problems[0].expected) for bad in checked.bad] == [(0, NO_ZONE)]
    assert checked.rows["c"].to_pylist() == [None]
    frame = pd.DataFrame({"at": [AT], "c": pd.to_datetime(["2026-11-16 12:00:00"])})
    assert validate(pa.table(frame), schema).bad[0].problems[0].expected == NO_ZONE
    aware = frame.assign(c=frame["c"].dt.tz_localize("UTC"))
    assert not validate(pa.table(aware), schema).bad


def test_arrow_dates_are_midnights_in_utc() -> None:
    schema = parse_schema({"at": {"type": "datetime", "time": True}, "c": "datetime[]"})
    for kind in (pa.date32(), pa.date64()):
        days = pa.array([date(2026, 11, 16), date(1969, 12, 31)], kind)
        lists = pa.array([[day] for day in days.to_pylist()], pa.list_(kind))
        rows = validate(pa.table({"at": days, "c": lists}), schema).rows
        midnights = [datetime(2026, 11, 16, tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC)]
        assert rows["at"].to_pylist() == midnights
        assert rows["c"].to_pylist() == [[midnight] for midnight in midnights]
