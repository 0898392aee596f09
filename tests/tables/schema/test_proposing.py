"""Proposing a schema: what the samples show, in a form that can be used as it is."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import BadInput, BadPayload, BadSchema
from lakebed.model.tables.declaration import parse_schema
from lakebed.tables.insert.records import read_records
from lakebed.tables.insert.validation import validate
from lakebed.tables.schema.infer_schema import propose_schema

AT = "2026-11-16T05:00:00Z"


def spec_of(*values: Any, name: str = "c") -> Any:
    """Return the proposed type of a column with these values."""
    draft = propose_schema([{"at": AT, name: value} for value in values])
    parse_schema(draft)
    return draft["columns"][name]


def test_a_draft_describes_the_samples() -> None:
    samples = [
        {"time": "2026-11-16 05:00:00Z", "device": "a", "bpm": 70, "ok": True, "tags": ["x"]},
        {"time": "2026-11-16 05:00:01Z", "device": "b", "bpm": 70.5, "ok": None, "more": {"a": 1}},
    ]
    expected = {
        "columns": {
            "time": {"type": "datetime", "required": True, "time": True},
            "device": {"type": "string", "required": True},
            "bpm": {"type": "float", "required": True},
            "ok": {"type": "bool"},
            "tags": {"type": "string[]"},
            "more": {"type": "json"},
        },
        "out_of_range": "reject",
    }
    assert propose_schema(samples) == expected
    assert list(propose_schema(samples)["columns"]) == list(expected["columns"])
    assert propose_schema("\n".join(map(json.dumps, samples))) == expected
    assert json.loads(json.dumps(expected)) == expected


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "int"),
        ([1, None], "int"),
        ([1, 2.5], "float"),
        ([1.0], "float"),
        ([1, True], "json"),
        ([1, "a"], "json"),
        ([2**63], "json"),
        (["a", "2026-11-16T05:00:00Z"], "string"),
        (["2026.11.16 05:00:00Z", "2026-11-16T05:00:00.123+01:00"], "datetime"),
        (["2026-11-16"], "datetime"),
        (["2026-11-16 05:00:00"], "string"),
        ([datetime(2026, 1, 1, tzinfo=UTC), AT], "datetime"),
        ([datetime(2026, 1, 1, tzinfo=UTC), "soon"], "json"),
        ([{"a": 1}], "json"),
        ([{"a": 1}, "x"], "json"),
        ([None], "json"),
        ([[1, None], [2.5]], "float[]"),
        ([[1], ["a"]], "json[]"),
        ([[AT], []], "datetime[]"),
        ([[[1]]], "json[]"),
        ([[]], "json[]"),
        ([[1], 1], "json"),
    ],
)
def test_the_type_is_what_holds_every_value(values: list[Any], kind: str) -> None:
    assert spec_of(*values)["type"] == kind


@pytest.mark.parametrize(
    ("name", "value", "unit"),
    [
        ("time", 1794830400, "s"),
        ("t", 1794830400123, "ms"),
        ("eventTimeUnixNano", 1794830400123456789, "ns"),
        ("start_ts", 1794830400123456, "us"),
        ("TS", 1794830400, "s"),
        ("createdTs", 1794830400, "s"),
        ("date", 946684800, "s"),
        ("time", 1794830400.25, "s"),
        ("time", 946684799, None),
        ("time", 4102444800, None),
        ("time", 12, None),
        ("c", 1794830400, None),
        ("parts", 1794830400, None),
        ("tt", 1794830400, None),
    ],
)
def test_numbers_are_times_if_name_and_size_say_so(
    name: str, value: float, unit: str | None
) -> None:
    spec = spec_of(value, value, name=name)
    assert spec.get("unit") == unit
    assert (spec["type"] == "datetime") == (unit is not None)


def test_numbers_of_several_units_are_numbers() -> None:
    assert spec_of(1794830400, 1794830400123, name="time")["type"] == "int"


def test_what_is_never_missing_is_required() -> None:
    draft = propose_schema([{"at": AT, "a": 1, "b": 1, "c": None}, {"at": AT, "a": 0, "c": 1}])
    required = [name for name, spec in draft["columns"].items() if spec.get("required")]
    assert required == ["at", "a"]
    assert not any("unique" in spec for spec in draft["columns"].values())


@pytest.mark.parametrize(
    ("samples", "time"),
    [
        ([{"born": AT, "time": AT, "timestamp": AT}], "time"),
        ([{"date": AT, "ts": AT}], "ts"),
        ([{"born": AT, "Timestamp": AT}], "Timestamp"),
        ([{"born": AT, "seen": AT}], "born"),
        ([{"time": AT, "seen": AT}, {"seen": AT}], "seen"),
        ([{"time": AT}, {"n": 1}], "time"),
    ],
)
def test_the_time_column_is_the_one_named_so_that_is_always_there(
    samples: list[Any], time: str
) -> None:
    draft = propose_schema(samples)
    assert [name for name, spec in draft["columns"].items() if spec.get("time")] == [time]
    assert parse_schema(draft).time_column == time


def test_samples_without_a_time_are_refused() -> None:
    with pytest.raises(BadInput, match="no column of the samples holds a time"):
        propose_schema([{"a": 1, "times": [AT]}])


def test_names_that_no_column_can_have_are_refused() -> None:
    with pytest.raises(BadSchema) as caught:
        propose_schema([{"at": AT, "größe": 1, "_x": 2}])
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("samples", "problem"),
    [([], "no samples"), ([{"at": AT}, 5], "sample 1 is no object but int"), ("", "no samples")],
)
def test_what_are_no_samples_is_refused(samples: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        propose_schema(samples)
    with pytest.raises(BadPayload):
        propose_schema("{")


def test_samples_whose_times_have_no_zone_are_refused_with_what_to_add() -> None:
    with pytest.raises(BadInput, match="no column of the samples holds a time") as caught:
        propose_schema([{"when": AT[:-1], "n": 1}])
    assert caught.value.hint == (
        "the times of when have no zone: add Z for UTC, or an offset as +02:00"
    )


def test_arrow_tables_are_samples() -> None:
    times = pa.array([1794830400123456789, 2], pa.timestamp("ns"))
    table = pa.table({"at": times, "n": pa.array([1, None], pa.int8()), "s": ["a", "b"]})
    assert propose_schema(table)["columns"] == {
        "at": {"type": "datetime", "required": True, "time": True},
        "n": {"type": "int"},
        "s": {"type": "string", "required": True},
    }


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=5)
    | st.datetimes().map(lambda at: at.isoformat())
    | st.integers(1_700_000_000, 1_800_000_000)
)
VALUES = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(st.text("ab"), LEAVES, max_size=2)
NAMES = st.sampled_from(["time", "ts", "date", "n", "text", "when", "t"])


@settings(max_examples=150)
@given(
    st.lists(st.dictionaries(NAMES, VALUES, max_size=4), min_size=1, max_size=4),
    st.dictionaries(NAMES, st.integers(0, 3)),
)
def test_samples_fit_the_schema_proposed_for_them(
    samples: list[dict[str, Any]], same: dict[str, int]
) -> None:
    for name, kind in same.items():  # some columns are of one kind throughout
        for index, sample in enumerate(samples):
            sample[name] = [index, float(index), str(index), 1_794_830_400 + index][kind]
    samples = [sample | {"at": AT} for sample in samples]
    schema = parse_schema(propose_schema(samples))
    assert [str(bad) for bad in validate(read_records(samples), schema).bad] == []
