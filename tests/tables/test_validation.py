"""Validation: a record is stored as it was given or refused with the reason, on every way in."""

from __future__ import annotations

import contextlib
import math
import re
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import msgspec
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import BadInput, BadPayload, BadRecords
from lakebed.model.table import FIRST_INSTANT, LAST_INSTANT, TYPES, Column, parse_schema
from lakebed.model.time import to_instant
from lakebed.partitions.folding import keep_last
from lakebed.tables.records import read_records
from lakebed.tables.validation import BadRecord, Problem, Validated, show, validate

TIMES = pa.timestamp("us", "UTC")
AT = "2026-11-16T05:00:00Z"
PULSE = parse_schema(
    {
        "at": "datetime",
        "device": {"type": "string", "unique": True},
        "bpm": {"type": "int", "min": 30, "max": 220},
        "note": "string",
    }
)


def micros(*parts: int) -> int:
    return to_instant(datetime(*parts, tzinfo=UTC))


def only(kind: str, **spec: Any) -> Any:
    """A schema whose interesting column is c."""
    return parse_schema({"at": {"type": "datetime", "time": True}, "c": {"type": kind, **spec}})


def take(value: Any, kind: str, **spec: Any) -> Any:
    """What a single value becomes, or what was expected instead."""
    validated = validate([{"at": AT, "c": value}], only(kind, **spec))
    if validated.bad:
        (problem,) = validated.bad[0].problems
        assert problem.column == "c"
        return f"expected {problem.expected}"
    column = validated.rows["c"]
    return column.cast(pa.int64()).to_pylist()[0] if kind == "datetime" else column.to_pylist()[0]


# ---- whole records -----------------------------------------------------------------------------


def test_good_records_become_rows_of_the_table() -> None:
    records = [
        {"at": AT, "device": "a", "bpm": 70, "note": None},
        {"bpm": None, "device": "b", "at": "2026.11.16 05:00:01"},
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
    assert (validated.kept, validated.bad) == (None, [])


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
    assert validated.kept == [1, 4]
    assert validated.rows["device"].to_pylist() == ["b", "c"]
    assert [str(each) for each in validated.bad] == [
        'record 0: bpm: expected int, got "fast"',
        'record 2: at: expected datetime, got "soon"; device: expected a value, got nothing; '
        "bpm: expected at most 220, got 300; note: expected string, got 5; "
        'colour: expected a column of the table (at, device, bpm, note), got "red"',
        "record 3: expected an object, got 5",
        "record 5: expected an object, got null",
    ]
    assert validated.bad[0].record is records[0]
    assert validated.bad[0].problems == (Problem("bpm", "int", '"fast"'),)
    assert validated.bad[2].problems == (Problem("", "an object", "5"),)


def test_the_error_counts_all_and_shows_a_few() -> None:
    bad = [BadRecord(i, (Problem("bpm", "int", '"x"'),), None) for i in range(7)]
    error = BadRecords(bad, 100)
    assert str(error).splitlines() == [
        "7 of 100 records are bad",
        *(f'record {i}: bpm: expected int, got "x"' for i in range(5)),
        "and 2 more",
    ]
    assert error.bad == tuple(bad)
    assert isinstance(error, BadInput)
    assert str(BadRecords(bad[:1], 1)).count("\n") == 1


def test_no_records_are_no_rows() -> None:
    for none in ([], PULSE.arrow.empty_table(), pa.table({})):
        validated = validate(none, PULSE)
        assert validated == Validated(PULSE.arrow.empty_table(), None, [])


def test_records_that_are_not_quite_dicts_are_records() -> None:
    given = [
        OrderedDict(at=AT, device="a"),
        defaultdict(lambda: "made up", at=AT, device="b"),
    ]
    validated = validate(given, PULSE)
    assert not validated.bad
    assert validated.rows["note"].to_pylist() == [None, None]
    assert len(given[1]) == 2


@pytest.mark.parametrize(
    ("key", "shown"), [(5, "5"), ("\ud800", "\\ud800"), ("x" * 100, "x" * 79 + "…")]
)
def test_whatever_is_no_column_can_be_shown(key: Any, shown: str) -> None:
    (bad,) = validate([{"at": AT, "device": "a", key: 6}], PULSE).bad
    assert str(bad).startswith(f"record 0: {shown}: expected a column of the table")


@pytest.mark.parametrize("column", ["at", "device"])
def test_key_and_time_need_a_value(column: str) -> None:
    whole = {"at": AT, "device": "a"}
    absent = {name: value for name, value in whole.items() if name != column}
    validated = validate([whole, absent, whole | {column: None}], PULSE)
    assert validated.kept == [0]
    assert [each.problems for each in validated.bad] == [
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
        ("2026-11-16T13:30:00+01:30", NOON),
        ("2026-11-16T02:00:00-10:00", NOON),
        ("2026-11-16T12:00:00-00:00", NOON),
        ("2026-11-16 12:00:00", NOON),
        ("2026-11-16T12:00:00", NOON),
        ("2026.11.16 12:00:00", NOON),
        ("2026.11.16T12:00:00.5", NOON + 500_000),
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
        *("", "now", "2026-11-16", "2026-11-16T12", "2026-11-16T12:00Z", "2026-11-16T12:00+00:00"),
        *("2026-11-16T12:00:00+0100", "2026-11-16T12:00:00+01", "2026-11-16T12:00:00+24:00"),
        *("2026-11-16T12:00:00+01:60", "2026-11-16T12:00:00 Z", "2026-11-16T12:00:00.Z"),
        *("2026-11-16t12:00:00z", "2026-11.16 12:00:00", "16.11.2026 12:00:00"),
        *("2023-02-29T00:00:00Z", "2026-11-31T00:00:00Z", "2026-13-01T00:00:00Z"),
        *("2026-11-16T24:00:00Z", "2026-11-16T12:60:00Z", "2026-11-16T12:00:60Z"),
        *("0000-01-01T00:00:00Z", " 2026-11-16T12:00:00Z", "2026-11-16T12:00:00Z\n"),
        *("٢٠٢٦-11-16T12:00:00Z", "1794830400", "2026-W47-1T12:00:00Z", "\ud800"),
    ],
)
def test_what_is_no_time_is_refused(text: str) -> None:
    assert take(text, "datetime") == "expected datetime"
    alone = validate([{"at": text}], parse_schema({"at": "datetime"}))
    assert [each.index for each in alone.bad] == [0]


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
        (datetime(2026, 11, 16, 12), NOON),  # noqa: DTZ001
        (datetime(2026, 11, 16, 12, tzinfo=UTC), NOON),
        (datetime(2026, 11, 16, 13, tzinfo=timezone(timedelta(hours=1))), NOON),
        (pd.Timestamp("2026-11-16T12:00:00.000000999Z"), NOON),
        (pd.NaT, "expected datetime"),
        (date(2026, 11, 16), "expected datetime"),
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
    assert validated.kept == [1, 2, 4]
    assert [each.problems for each in validated.bad] == [
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
    assert validated.kept == [0, 1, 3, 4]
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
    assert [str(each) for each in validated.bad] == [
        "record 1: at: expected at most 2026-11-16T05:00:00.000000Z, "
        'got "2026-11-16T05:00:00.000001Z"'
    ]


# ---- against a plain reading of the rules ------------------------------------------------------


class _No(Exception):
    pass


def plain_time(text: str) -> int:
    shape = re.sub("[0-9]", "0", text[:19])
    if shape not in [f"0000{dash}00{dash}00{t}00:00:00" for dash in "-." for t in "T "]:
        raise _No("datetime")
    rest = text[19:]
    fraction = ""
    if rest.startswith("."):
        fraction = rest[1:].rstrip("Z").split("+")[0].split("-")[0]
        rest = rest[1 + len(fraction) :]
        if not fraction or set(fraction) - set("0123456789"):
            raise _No("datetime")
    offset = 0
    if rest not in ("", "Z"):
        if re.sub("[0-9]", "0", rest) not in ("+00:00", "-00:00"):
            raise _No("datetime")
        hours, minutes = int(rest[1:3]), int(rest[4:])
        if hours > 23 or minutes > 59:
            raise _No("datetime")
        offset = (hours * 60 + minutes) * (1 if rest[0] == "+" else -1)
    try:
        parts = [int(text[a:b]) for a, b in ((0, 4), (5, 7), (8, 10), (11, 13), (14, 16), (17, 19))]
        moment = datetime(*parts, tzinfo=UTC)
    except ValueError:
        raise _No("datetime") from None
    return to_instant(moment) + int(fraction[:6].ljust(6, "0")) - offset * 60_000_000


def plain_number(value: float, unit: str | None) -> int:
    if unit is None:
        raise _No("datetime as text; for numbers the column needs a unit")
    factor = {"s": 10**6, "ms": 10**3, "us": 1, "ns": 1}[unit]
    if isinstance(value, int):
        return math.floor(value * factor // (1000 if unit == "ns" else 1))
    if not math.isfinite(value) or abs(value) > 1e30:
        raise _No("datetime of the years 1 to 9999")
    return round(value / 1000 if unit == "ns" else value * factor)


def plain_value(value: Any, kind: str, unit: str | None) -> Any:
    """What a column of this type stores, said as plainly as possible."""
    if value is None:
        return None
    if kind.endswith("[]"):
        if type(value) not in (list, tuple):
            raise _No(kind)
        items = []
        for place, item in enumerate(value):
            try:
                items.append(plain_value(item, kind[:-2], unit))
            except _No as no:
                raise _No(f"{no} at [{place}]") from None
        return items
    if kind == "json":
        if not plain_json(value):
            raise _No("a JSON value")
        return msgspec.json.encode(value, order="deterministic").decode()
    if kind == "datetime":
        if type(value) is str:
            instant = plain_time(value)
        elif type(value) is datetime:
            utc = value.replace(tzinfo=UTC) if value.tzinfo is None else value
            instant = (utc - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        elif type(value) in (int, float):
            instant = plain_number(value, unit)
        else:
            raise _No("datetime")
        if not FIRST_INSTANT <= instant <= LAST_INSTANT:
            raise _No("datetime of the years 1 to 9999")
        return instant
    if kind == "int" and type(value) is float and value == value // 1:
        value = int(value)
    if kind == "float" and type(value) is int:
        try:
            value = float(value)
        except OverflowError:
            raise _No("float of at most 64 bits") from None
    if type(value) is not {"int": int, "float": float, "string": str, "bool": bool}[kind]:
        raise _No(kind)
    if kind == "int" and not -(2**63) <= value < 2**63:
        raise _No("int of at most 64 bits")
    if kind == "string" and not is_unicode(value):
        raise _No("string of valid unicode")
    return value


def plain_json(value: Any) -> bool:
    if type(value) is dict:
        return all(type(key) is str and is_unicode(key) for key in value) and all(
            map(plain_json, value.values())
        )
    if type(value) in (list, tuple):
        return all(map(plain_json, value))
    if type(value) is str:
        return is_unicode(value)
    return type(value) in (int, bool, type(None)) or (type(value) is float and math.isfinite(value))


def is_unicode(text: str) -> bool:
    return not any(0xD800 <= ord(letter) <= 0xDFFF for letter in text)


def plain_validate(records: list[Any], schema: Any) -> tuple[list[Any], list[int], list[Any]]:
    rows, kept, bad = [], [], []
    for index, record in enumerate(records):
        if not isinstance(record, dict):
            bad.append((index, [("", "an object", show(record))]))
            continue
        problems, row, flags = [], {}, []
        for column in schema.columns:
            value = record.get(column.name)
            try:
                row[column.name] = stored = plain_value(value, column.type, column.unit)
            except _No as no:
                shown = value
                for place in re.findall(r" at \[(\d+)\]", str(no)):
                    shown = value[int(place)]
                problems.append((column.name, str(no), show(shown)))
                continue
            if stored is None and column.required:
                problems.append((column.name, "a value", "nothing"))
            low, high = column.bounds
            outside = None
            if stored is not None and low is not None and not stored >= low:
                outside = f"at least {column.min}"
            elif stored is not None and high is not None and not stored <= high:
                outside = f"at most {column.max}"
            if outside and schema.out_of_range == "flag":
                flags.append(column.name)
            elif outside:
                problems.append((column.name, outside, show(value)))
        for name, value in record.items():
            if name not in schema.names:
                expected = f"a column of the table ({', '.join(schema.names)})"
                shown = str(name).encode(errors="backslashreplace").decode()
                problems.append((shown, expected, show(value)))
        if problems:
            bad.append((index, problems))
        else:
            kept.append(index)
            rows.append(
                row | ({"_out_of_range": flags or None} if schema.out_of_range == "flag" else {})
            )
    return rows, kept, bad


def as_plain(validated: Validated, total: int) -> tuple[list[Any], list[int], list[Any]]:
    table = validated.rows
    for place, field in enumerate(table.schema):
        if field.type == TIMES:
            table = table.set_column(place, field.name, table[field.name].cast(pa.int64()))
        elif field.type == pa.list_(TIMES):
            as_numbers = table[field.name].cast(pa.list_(pa.int64()))
            table = table.set_column(place, field.name, as_numbers)
    rows = table.to_pylist()
    kept = list(range(total)) if validated.kept is None else validated.kept
    bad = [
        (each.index, [(p.column, p.expected, p.got) for p in each.problems])
        for each in validated.bad
    ]
    return rows, kept, bad


EDGES = (0, 2**31, 2**53, -(2**53), 2**63, -(2**63), 2**64, 10**400)
INTS = st.integers(-5, 300) | st.sampled_from(
    [edge + more for edge in EDGES for more in (-1, 0, 1)]
    + [1794830400, 1794830400123, 1794830400123456, 1794830400123456789, 253402300800]
)
FLOATS = st.floats() | st.sampled_from([1.0, 2.5, -0.0, 2.0**53, 2.0**63, -(2.0**63), 1e300])
FLOATS |= st.floats(0, 2e9) | st.integers(-1000, 1000).map(lambda n: n + 0.5)
TEXTS = st.text(max_size=4) | st.sampled_from(["", "\ud800", "5", "true", "ü"])


@st.composite
def time_texts(draw: st.DrawFn) -> str:
    moment = draw(st.datetimes())
    dash, t = draw(st.sampled_from("-.")), draw(st.sampled_from("T "))
    text = f"{moment.year:04}{dash}{moment.month:02}{dash}{moment.day:02}{t}{moment:%H:%M:%S}"
    text += draw(st.just("") | st.from_regex(r"\.[0-9]{1,12}", fullmatch=True))
    text += draw(st.sampled_from(["", "Z", "+00:00", "-12:45", "+23:59", "+01:00"]))
    if draw(st.integers(0, 9)) == 0:  # sometimes, break it
        place = draw(st.integers(0, len(text)))
        cut, put = draw(st.integers(0, 2)), draw(st.sampled_from(["", "9", "Z", ".", "-", "x"]))
        text = text[:place] + put + text[place + cut :]
    return text


ZONES = st.sampled_from([None, UTC, timezone(timedelta(hours=5, minutes=30))])
DATETIMES = st.datetimes(timezones=ZONES)
SCALAR_VALUES = [INTS, FLOATS, TEXTS, st.booleans(), time_texts(), DATETIMES, st.binary(max_size=2)]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS | st.sampled_from([0.5, math.nan]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)
ANY = st.one_of(*SCALAR_VALUES, JSON, st.just({1: 2}), st.just((1, 2)))


@st.composite
def columns(draw: st.DrawFn) -> tuple[Column, list[Any]]:
    """A column and values for it: all of one kind, to be taken as a whole, or a mixture."""
    kind = draw(st.sampled_from(TYPES))
    bounds: dict[str, Any] = {}
    if draw(st.booleans()) and kind in ("int", "float"):
        bounds = draw(st.sampled_from([{"min": 30}, {"max": 200}, {"min": 0, "max": 100}]))
    if draw(st.booleans()) and kind == "datetime":
        bounds = {"min": "1970-01-01T00:00:00Z", "max": "2026-11-16T12:00:00Z"}
    if kind.startswith("datetime"):
        bounds["unit"] = draw(st.sampled_from([None, "s", "ms", "us", "ns"]))
    spec = {"type": kind, "required": draw(st.booleans()), **bounds}
    fitting = {
        "int": INTS,
        "float": INTS | FLOATS,
        "string": TEXTS,
        "bool": st.booleans(),
        "datetime": st.one_of(time_texts(), INTS, FLOATS, DATETIMES),
        "json": JSON,
    }[kind.removesuffix("[]")]
    if kind == "datetime":
        fitting = draw(st.sampled_from([time_texts(), INTS, FLOATS, DATETIMES]))
    several = draw(st.sampled_from([fitting, fitting | st.none(), fitting | ANY]))
    if kind.endswith("[]"):
        several = st.lists(several, max_size=3) | draw(st.sampled_from([st.none(), ANY]))
    return spec, draw(st.lists(several, min_size=1, max_size=5))


@st.composite
def tables(draw: st.DrawFn) -> tuple[Any, list[Any]]:
    drawn = draw(st.lists(columns(), min_size=1, max_size=3))
    total = max(len(values) for _, values in drawn)
    specs = {f"c{place}": spec for place, (spec, _) in enumerate(drawn)}
    records: list[Any] = [{"at": AT} for _ in range(total)]
    for place, (_, values) in enumerate(drawn):
        for record, value in zip(records, values, strict=False):  # the others lack it
            record[f"c{place}"] = value
    if draw(st.integers(0, 4)) == 0:
        records[draw(st.integers(0, total - 1))]["more"] = 1
    if draw(st.integers(0, 4)) == 0:
        records.insert(draw(st.integers(0, total)), draw(ANY))
    flag = draw(st.sampled_from(["reject", "flag"]))
    return parse_schema(
        {"columns": specs | {"at": {"type": "datetime", "time": True}}, "out_of_range": flag}
    ), records


def assert_plain(records: list[Any], schema: Any) -> None:
    validated = validate(records, schema)
    validated.rows.validate(full=True)
    assert repr(as_plain(validated, len(records))) == repr(plain_validate(records, schema))


@settings(max_examples=100)
@given(tables())
def test_validation_follows_the_plain_rules(given_: tuple[Any, list[Any]]) -> None:
    schema, records = given_
    assert_plain(records, schema)


TRICKY = [
    *(None, True, False, 0, 1, -1, 1999, -1001, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1),
    *(0.5, 1.0, 1.5, -2.5, 250.0005, 2.0**53, 2.0**63, -(2.0**63), 1e300, math.nan, math.inf),
    *(1794830400.123456, 1794830400123.4565, 1794830400123456789, 253402300799.9999999),
    *("", "1", "1.5", "true", "null", "ü", "\ud800", b"1", b"\xff", AT, AT[:-1], "soon"),
    *("2026.11.16 05:00:00.1234567", "1969-12-31T23:59:59.9999999+00:00", "2026-02-30T00:00:00Z"),
    *("0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59.999999Z", "2026-11-16T05:00:00.9-23:59"),
    *(datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1)),  # noqa: DTZ001
    *([], [1], (1,), {}, {"a": 1}, {1: 2}, {1}, [math.nan], timedelta(1)),
]


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "int", "min": 1},
        {"type": "float", "min": 1},
        {"type": "string"},
        {"type": "bool"},
        {"type": "json"},
        {"type": "datetime"},
        {"type": "datetime", "unit": "s", "max": "2026-11-16T05:00:00Z"},
        {"type": "datetime", "unit": "ms"},
        {"type": "datetime", "unit": "us"},
        {"type": "datetime", "unit": "ns"},
    ],
    ids=str,
)
def test_no_neighbour_in_its_column_changes_a_value(spec: dict[str, Any]) -> None:
    """What is beside a value may send the column another way; with none, it goes the quick one."""
    names = [f"c{place}" for place in range(len(TRICKY))]
    columns = dict.fromkeys(names, spec) | {"at": {"type": "datetime", "time": True}}
    schema = parse_schema({"columns": columns, "out_of_range": "flag"})
    whole = {"at": AT} | dict(zip(names, TRICKY, strict=True))
    fitting = {"at": AT}  # without those that do not fit, so that it becomes a row
    for name, value in zip(names, TRICKY, strict=True):
        with contextlib.suppress(_No):
            plain_value(value, spec["type"], spec.get("unit"))
            fitting[name] = value
    for neighbour in (None, True, 1, 1.0, "x", AT, b"x", datetime(2026, 1, 1, tzinfo=UTC)):
        beside = {"at": AT} | dict.fromkeys(names, neighbour)
        assert_plain([beside, fitting, whole], schema)


# ---- Arrow -------------------------------------------------------------------------------------


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
    drawn = draw(st.lists(values | st.none(), min_size=1, max_size=6))
    array = pa.array(drawn, kind)
    begin = draw(st.integers(0, len(drawn) - 1))
    return array[begin:], drawn[begin:]


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
    assert [each.problems for each in validated.bad] == [
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
        ("ns", 1794830400123456789, NOON + 123_456),
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
    for zone in (None, "UTC", "Europe/Berlin"):
        array = pa.array([number, None], pa.int64()).cast(pa.timestamp(unit, zone))
        for kind, values in (("datetime", array), ("datetime[]", pa.array([[0]] * 2))):
            if kind == "datetime[]":
                values = pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), array)
            table = pa.table({"at": [AT, AT], "c": values})
            validated = validate(table, only(kind))
            if stored is None:
                assert validated.kept == [1]
                (problem,) = validated.bad[0].problems
                assert problem.expected.startswith("datetime of the years 1 to 9999")
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
        assert [each.problems for each in validated.bad] == [
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
        assert 1 in [each.index for each in validated.bad]


def test_encoded_runs_are_values() -> None:
    runs = pa.RunEndEncodedArray.from_arrays([2, 3], ["a", "b"])
    table = pa.table({"at": [AT] * 3, "c": runs})
    assert validate(table, only("string")).rows["c"].to_pylist() == ["a", "a", "b"]


# ---- reading -----------------------------------------------------------------------------------

TWO = [{"a": 1}, {"b": "ü"}]


def _generate() -> Iterator[dict[str, Any]]:
    yield from TWO


@pytest.mark.parametrize(
    "records",
    [
        pytest.param('[{"a": 1}, {"b": "ü"}]', id="array"),
        pytest.param('\n [\n{"a": 1},\n{"b": "ü"}\n]\n', id="array over lines"),
        pytest.param('{"a": 1}\n\n{"b": "ü"}\n', id="lines"),
        pytest.param('{"a": 1}\r\n  \r\n{"b": "ü"}'.encode(), id="lines of bytes"),
        pytest.param('\ufeff{"a":\n 1}\n{"b":\n "ü"}', id="objects over lines"),
        pytest.param(bytearray('[{"a":1},{"b":"ü"}]'.encode()), id="bytearray"),
        pytest.param(TWO, id="list"),
        pytest.param(tuple(TWO), id="tuple"),
        pytest.param(_generate(), id="generator"),
    ],
)
def test_records_are_read_from_whatever_holds_them(records: Any) -> None:
    assert read_records(records) == TWO


def test_one_object_is_one_record() -> None:
    assert read_records('{"a": 1}') == [{"a": 1}]
    assert read_records('{\n "a": 1\n}\n') == [{"a": 1}]
    assert read_records({"a": 1}) == [{"a": 1}]
    assert read_records("") == read_records(" \n") == read_records("[]") == []
    assert read_records("[1]\n[2]") == [[1], [2]]


@pytest.mark.parametrize("text", ["5", "null", '"x"', "5\n6", "[5]", "[[{}]]", "[1]\n[2]"])
def test_what_is_no_object_is_a_bad_record(text: str) -> None:
    records = read_records(text)
    assert isinstance(records, list)
    validated = validate(records, PULSE)
    assert len(validated.bad) == len(records) > 0
    assert all(each.problems[0].expected == "an object" for each in validated.bad)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1}\n{"b": }\n', "invalid character at line 2, byte 7"),
        ('[{"a": 1},\n {"b": x}]', "invalid character at line 2, byte 8"),
        ('{"a": 1}\n{"b": 2', "the text ends too early at line 2, byte 1"),
        ('{"a": NaN}', "invalid character at line 1, byte 7"),
        ('{"a": 1}\n{"a": 1e999}\n', "number out of range at line 2, byte 1"),
        ('{"a": 1},\n{"a": 2}', "invalid character at line 1, byte 9"),
        (b'{"a": 1}\n{"a": "\xff"}', "the bytes are not UTF-8 at line 2, byte 8"),
        ("[" * 100_000, "values are nested too deeply"),
    ],
)
def test_broken_json_is_refused_with_its_place(text: str | bytes, problem: str) -> None:
    with pytest.raises(BadPayload) as caught:
        read_records(text)
    assert str(caught.value) == f"the records are not JSON: {problem}"


def test_text_that_cannot_be_bytes_is_refused() -> None:
    with pytest.raises(BadPayload, match="not valid unicode at character 2"):
        read_records('{"\ud800": 1}')


def test_everything_that_speaks_arrow_is_read() -> None:
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    frames = [table.to_pandas(), pl.from_arrow(table)]
    readers = [table.to_reader(), table.to_batches()[0], table, *frames]
    for each in readers:
        read = read_records(each)
        assert isinstance(read, pa.Table)
        assert [row["a"] for row in read.to_pylist()] == [1, 2]
        assert read.column_names == ["a", "b"]


@pytest.mark.parametrize("value", [5, None, object(), pa.array([1])])
def test_what_holds_no_records_is_refused(value: Any) -> None:
    with pytest.raises(BadInput):
        read_records(value)


# ---- showing -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
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
def test_values_are_shown_in_short(value: Any, shown: str) -> None:
    assert show(value) == shown
    assert len(show(value)) <= 80


# ---- one row per key ---------------------------------------------------------------------------

KEYED = pa.schema([("n", pa.int64()), ("s", pa.string()), ("b", pa.bool_()), ("t", TIMES)])


@given(
    st.lists(st.tuples(st.integers(0, 3), st.sampled_from("xyz"), st.booleans())),
    st.sampled_from([["n"], ["s"], ["n", "s"], ["b", "n", "s"], ["t"], []]),
    st.booleans(),
)
def test_the_last_row_of_each_key_stays_in_its_place(
    parts: list[tuple[int, str, bool]], key: list[str], chunked: bool
) -> None:
    rows = [{"n": n, "s": s, "b": b, "t": n, "place": i} for i, (n, s, b) in enumerate(parts)]
    table = pa.Table.from_pylist(rows, KEYED.append(pa.field("place", pa.int64())))
    if chunked:
        table = pa.concat_tables([table[:2], table[2:]])
    last = {tuple(row[name] for name in key): row["place"] for row in rows}
    expected = sorted(last.values()) if key else list(range(len(rows)))
    assert keep_last(table, key)["place"].to_pylist() == expected


def test_rows_without_duplicates_are_the_same_rows() -> None:
    table = pa.table({"n": [3, 1, 2], "s": ["a", "a", "a"]})
    assert keep_last(table, ["n"]) is table
    assert keep_last(table, ["s", "n"]) is table
