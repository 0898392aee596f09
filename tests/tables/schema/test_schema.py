"""Schemas of tables: what may be declared, what may be altered, and everything that is wrong."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import BadInput, BadSchema
from lakebed.model.tables.declaration import parse_schema, plan_alteration
from lakebed.model.tables.schema import SCALARS, TYPES, UNITS, Column, TableSchema

PULSE = {
    "columns": {
        "id": {"type": "int", "unique": True},
        "bpm": {"type": "int", "min": 30, "max": 220, "required": True},
        "at": "datetime",
        "weight": {"type": "float", "max": 500},
        "notes": {"type": "string[]", "description": "what the nurse wrote"},
        "device": "string",
    },
    "out_of_range": "flag",
}


def problems_of(value: Any) -> tuple[str, ...]:
    with pytest.raises(BadSchema) as caught:
        parse_schema(value)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return caught.value.problems


# ---- declaring ---------------------------------------------------------------------------------


def test_a_schema_says_what_its_columns_are() -> None:
    schema = parse_schema(PULSE)
    assert schema.names == ("id", "bpm", "at", "weight", "notes", "device")
    assert schema.key == ("id",)
    assert schema.time_column == "at"
    assert schema.out_of_range == "flag"
    assert schema.column("weight") == Column("weight", "float", max=500.0)
    assert schema.column("notes").item_type == "string"
    assert [column.name for column in schema.columns if column.required] == ["id", "bpm", "at"]
    with pytest.raises(BadInput, match="no column 'Bpm'"):
        schema.column("Bpm")


def test_only_key_and_time_are_not_null_in_arrow() -> None:
    assert parse_schema(PULSE).arrow.equals(
        pa.schema(
            [
                pa.field("id", pa.int64(), nullable=False),
                pa.field("bpm", pa.int64()),
                pa.field("at", pa.timestamp("us", "UTC"), nullable=False),
                pa.field("weight", pa.float64()),
                pa.field("notes", pa.list_(pa.string())),
                pa.field("device", pa.string()),
            ]
        )
    )


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(PULSE["columns"], id="only the columns"),
        pytest.param({"columns": PULSE["columns"]}, id="columns by name"),
        pytest.param(
            {
                "columns": [
                    {"name": name, **({"type": spec} if isinstance(spec, str) else spec)}
                    for name, spec in PULSE["columns"].items()
                ]
            },
            id="columns in a list",
        ),
        pytest.param(json.dumps(PULSE["columns"]), id="text"),
        pytest.param(json.dumps({"columns": PULSE["columns"]}).encode(), id="bytes"),
        pytest.param(
            {
                name: spec | {} if isinstance(spec, dict) else {"type": spec, "min": None}
                for name, spec in PULSE["columns"].items()
            },
            id="null is nothing",
        ),
    ],
)
def test_every_form_declares_the_same(form: Any) -> None:
    assert parse_schema(form).columns == parse_schema(PULSE).columns
    assert parse_schema(form).out_of_range == "reject"


def test_columns_may_have_the_names_of_a_schemas_parts() -> None:
    assert parse_schema({"columns": "int", "t": "datetime"}).names == ("columns", "t")
    assert parse_schema({"out_of_range": "int", "t": "datetime"}).names == ("out_of_range", "t")
    assert parse_schema({"columns": {"type": "int", "time": "datetime"}}).names == ("type", "time")


def test_the_time_column_is_marked_or_the_only_datetime() -> None:
    marked = {"born": "datetime", "at": {"type": "datetime", "time": True}}
    assert parse_schema(marked).time_column == "at"
    assert parse_schema({"n": "int", "at": "datetime"}).column("at") == Column(
        "at", "datetime", required=True, time=True
    )
    unmarked = {"born": "datetime", "at": "datetime", "all": "datetime[]"}
    assert problems_of(unmarked) == ("mark the one that is the time with time: true, of born, at",)


def test_a_key_or_a_time_that_may_be_missing_is_refused() -> None:
    optional = {"required": False}
    assert problems_of(
        {
            "id": {"type": "int", "unique": True, **optional},
            "at": {"type": "datetime", **optional},
            "bpm": {"type": "int", **optional},
        }
    ) == (
        "id: is the key and always required; leave required out",
        "at: is every row's time and always required; leave required out",
    )


def test_bounds_are_read_as_their_columns_values() -> None:
    at = {"type": "datetime", "min": "2026-01-01T01:00:00+01:00", "max": "2027-01-01T00:00:00Z"}
    schema = parse_schema({"at": at, "n": {"type": "int", "min": 3.0, "max": 4}})
    assert schema.column("at").min == "2026-01-01T00:00:00.000000Z"
    assert schema.column("at").bounds == (1_767_225_600_000_000, 1_798_761_600_000_000)
    assert schema.column("n").bounds == (3, 4)
    assert type(schema.column("n").min) is int


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ("integer", "c: unknown type 'integer'; did you mean int? it can be int, float, string"),
        ("datetim", "c: unknown type 'datetim'; did you mean datetime?"),
        (
            {"type": "strings"},
            "c: unknown type 'strings'; did you mean string? it can be int, float, string, bool, "
            "datetime, json, int[], float[], string[], bool[], datetime[], json[]",
        ),
        ({"type": ["int"]}, "c: unknown type ['int']; it can be"),
        ({"required": True}, "c: has no type; it can be int, float"),
        (5, "c: expected a type or an object, not 5"),
        ({"type": "int", "uniqe": True}, "c: has no 'uniqe'; it can have type, required, unique"),
        ({"type": "int", "required": "yes"}, "c: required is true or false, not 'yes'"),
        ({"type": "int", "unique": 1}, "c: unique is true or false, not 1"),
        ({"type": "int", "description": 1}, "c: description is a text, not 1"),
        ({"type": "int", "description": "\ud800"}, "c: description is a text, not '\\ud800'"),
        (
            {"type": "float", "unique": True},
            "c: unique works for int, string, bool and datetime, not float",
        ),
        ({"type": "int[]", "unique": True}, "c: unique works for int, string, bool and datetime"),
        ({"type": "int", "time": True}, "c: the time column must be a datetime, not int"),
        ({"type": "datetime[]", "time": True}, "c: the time column must be a datetime, not"),
        ({"type": "int", "unit": "ms"}, "c: unit works only for datetime, not int"),
        ({"type": "datetime[]", "unit": "m"}, "c: unit is one of s, ms, us, ns, not 'm'"),
        ({"type": "datetime[]", "unit": []}, "c: unit is one of s, ms, us, ns, not []"),
        ({"type": "string", "min": "a"}, "c: min works for int, float and datetime, not string"),
        ({"type": "int[]", "max": 1}, "c: max works for int, float and datetime, not int[]"),
        ({"type": "int", "min": 1.5}, "c: min must be of type int, not 1.5"),
        ({"type": "int", "min": True}, "c: min must be of type int, not True"),
        ({"type": "int", "max": 1 << 63}, "c: max must be of type int, not 9223372036854775808"),
        ({"type": "float", "max": "9"}, "c: max must be of type float, not '9'"),
        ({"type": "float", "max": float("nan")}, "c: max must be of type float, not nan"),
        ({"type": "float", "max": 10**400}, "c: max must be of type float, not 1000"),
        ({"type": "int", "min": 2, "max": 1}, "c: min 2 is above max 1"),
    ],
)
def test_a_wrong_column_is_refused(spec: Any, problem: str) -> None:
    (message,) = problems_of({"at": "datetime", "c": spec})
    assert message.startswith(problem)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"min": 1_767_225_600}, "at: min must be of type datetime, like 2026-11-16T00:00:00Z"),
        (
            {"min": "2026-01-01T00:00:00"},
            "at: min must be of type datetime, like 2026-11-16T00:00:00Z",
        ),
        ({"max": "0001-01-01T00:00:00+01:00"}, "at: max must be of type datetime, like"),
        (
            {"min": "2026-01-02T00:00:00Z", "max": "2026-01-01T00:00:00Z"},
            "at: min 2026-01-02T00:00:00.000000Z is above max 2026-01-01T00:00:00.000000Z",
        ),
    ],
)
def test_wrong_bounds_of_a_datetime_are_refused(spec: Any, problem: str) -> None:
    (message,) = problems_of({"at": {"type": "datetime", **spec}})
    assert message.startswith(problem)


@pytest.mark.parametrize(
    "name", ["", "1a", "_a", "größe", "a b", "a-b", "a" * 64, "a\n", "partition_date", 5, None, ()]
)
def test_a_wrong_name_is_refused(name: Any) -> None:
    (message,) = problems_of({"at": "datetime", name: "int"})
    assert "name" in message


def test_names_differ_in_more_than_case() -> None:
    assert problems_of({"at": "datetime", "Bpm": "int", "bpm": "int"}) == (
        "bpm: differs from Bpm only in case",
    )
    twice = [{"name": name, "type": "datetime", "time": name == "at"} for name in ("at", "b", "b")]
    assert problems_of({"columns": twice}) == ("b: is there already",)
    assert problems_of('{"at": "datetime", "b": "int", "b": "float"}') == ("b: is given twice",)
    assert parse_schema({"at": "datetime", "a" * 63: "int"}).names[1] == "a" * 63


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({}, "a table needs columns"),
        ({"columns": []}, "a table needs columns"),
        ({"n": "int"}, "no column is the time; declare one of type datetime"),
        ([], "a schema is an object of columns, not []"),
        ("[1]", "a schema is an object of columns, not [1]"),
        (None, "a schema is an object of columns, not None"),
        ("{", "the schema is not JSON: Expecting property name"),
        (b"\xff", "the schema is not JSON: "),
        ({"columns": {"at": "datetime"}, "key": "at"}, "key: is no part of a schema; columns and"),
        (
            {"columns": {"at": "datetime"}, "out_of_range": "drop"},
            "out_of_range is reject or flag, not 'drop'",
        ),
        ({"columns": [{"type": "datetime"}]}, "column 0: expected an object with a name, not {'ty"),
        ({"columns": ["at"]}, "column 0: expected an object with a name, not 'at'"),
        (
            {"a": {"type": "datetime", "time": True}, "b": {"type": "datetime", "time": True}},
            "only one column can be the time, not a, b",
        ),
        (
            {"at": "datetime"} | {f"c{i}": "int" for i in range(1000)},
            "1001 columns are more than the 1000 allowed",
        ),
    ],
)
def test_a_wrong_schema_is_refused(value: Any, problem: str) -> None:
    (message,) = problems_of(value)
    assert message.startswith(problem)


def test_a_thousand_columns_are_allowed() -> None:
    wide = parse_schema({"at": "datetime"} | {f"c{i}": "int" for i in range(999)})
    assert len(wide.columns) == 1000


def test_everything_wrong_is_named_at_once() -> None:
    wrong = {
        "columns": {
            "1st": "int",
            "a": "integer",
            "b": {"type": "json", "unique": True, "min": 1, "unit": "s"},
            "c": {"type": "int", "min": 2, "max": 1, "size": 3},
        },
        "out_of_range": "ignore",
    }
    assert [problem.split(":")[0].split(" ")[0] for problem in problems_of(wrong)] == [
        *("out_of_range", "a", "b", "b", "b", "c", "c", "'1st'")
    ]


# ---- keeping -----------------------------------------------------------------------------------

NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,20}", fullmatch=True).filter(
    lambda name: name.lower() != "partition_date"
)


@st.composite
def specs(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(TYPES))
    spec: dict[str, Any] = {"type": kind, "required": draw(st.booleans())}
    if kind in ("int", "string", "bool", "datetime"):
        spec["unique"] = draw(st.booleans())
        spec["required"] |= spec["unique"]
    if kind.startswith("datetime"):
        spec["unit"] = draw(st.none() | st.sampled_from(list(UNITS)))
    numbers = {"int": st.integers(-(1 << 63), (1 << 63) - 1), "float": st.floats(-1e9, 1e9)}
    if kind in numbers and draw(st.booleans()):
        spec["min"], spec["max"] = sorted([draw(numbers[kind]), draw(numbers[kind])])
    return spec | {"description": draw(st.text(st.characters(codec="utf-8"), max_size=5))}


@given(
    st.dictionaries(NAMES.map(str.lower).filter(lambda name: name != "at"), specs(), max_size=6),
    st.sampled_from(["reject", "flag"]),
)
def test_a_schema_survives_being_stored(columns: dict[str, Any], out_of_range: str) -> None:
    columns["at"] = {"type": "datetime", "time": True, "min": "2000-01-01T00:00:00Z"}
    schema = parse_schema({"columns": columns, "out_of_range": out_of_range})
    stored = json.loads(json.dumps(schema.to_json()))
    assert TableSchema.from_json(stored) == schema
    assert parse_schema(stored) == schema
    assert schema.names == tuple(columns)


def test_the_stored_form_leaves_out_what_goes_without_saying() -> None:
    assert parse_schema({"at": "datetime", "n": {"type": "int", "min": 0}}).to_json() == {
        "columns": [
            {"name": "at", "type": "datetime", "required": True, "time": True},
            {"name": "n", "type": "int", "min": 0},
        ],
        "out_of_range": "reject",
    }


@pytest.mark.parametrize("kind", SCALARS)
def test_arrays_hold_what_their_items_are(kind: str) -> None:
    assert Column("c", f"{kind}[]").arrow == pa.list_(Column("c", kind).arrow)


# ---- altering ----------------------------------------------------------------------------------

OLD = parse_schema(
    {
        "id": {"type": "int", "unique": True},
        "at": "datetime",
        "n": {"type": "int", "min": 1, "required": True},
        "many": "int[]",
        "text": "string",
    }
)


def refused(**changes: Any) -> tuple[str, ...]:
    with pytest.raises(BadSchema) as caught:
        plan_alteration(OLD, **changes)
    return caught.value.problems


def test_columns_are_added_widened_and_relaxed() -> None:
    new = plan_alteration(
        OLD, add={"more": "json", "seen": "datetime"}, widen=["n", "many"], relax=["n"]
    )
    assert new.names == (*OLD.names, "more", "seen")
    assert new.column("n") == Column("n", "float", min=1.0)
    assert type(new.column("n").min) is float
    assert new.column("many").type == "float[]"
    assert (new.time_column, new.key) == ("at", ("id",))
    assert new.columns[:2] == OLD.columns[:2]


def test_altering_nothing_changes_nothing() -> None:
    assert plan_alteration(OLD) == OLD


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"add": {"text": "string"}}, "text: is there already"),
        ({"add": {"Text": "string"}}, "Text: differs from text only in case"),
        ({"add": {"b": {"type": "int", "required": True}}}, "so not required"),
        ({"add": {"b": {"type": "int", "unique": True}}}, "so not unique"),
        ({"add": {"b": {"type": "datetime", "time": True}}}, "so not time"),
        ({"add": {"b": "text"}}, "b: unknown type 'text'"),
        ({"add": {"_b": "int"}}, "'_b' is not a column name"),
        ({"widen": ["text"]}, "text: only int can be widened, to float; it is string"),
        ({"widen": ["id"]}, "id: is the key and cannot be widened"),
        ({"widen": ["none"]}, "none: is no column and cannot be widened"),
        ({"relax": ["id"]}, "id: is the key and cannot be made optional"),
        ({"relax": ["at"]}, "at: is every row's time and cannot be made optional"),
        ({"relax": ["text"]}, "text: is optional already"),
        ({"relax": "none"}, "none: is no column and cannot be made optional"),
    ],
)
def test_what_old_rows_would_not_fit_is_refused(changes: dict[str, Any], problem: str) -> None:
    (message,) = refused(**changes)
    assert problem in message


def test_every_problem_of_an_alteration_is_named() -> None:
    message = refused(add={"b": "real", "text": "int"}, widen=["text"], relax=["at", "many"])
    assert [problem.split(":")[0] for problem in message] == ["text", "at", "many", "b", "text"]


def test_a_table_does_not_grow_beyond_a_thousand_columns() -> None:
    (message,) = refused(add={f"c{i}": "int" for i in range(1000)})
    assert message == "1005 columns are more than the 1000 allowed"
