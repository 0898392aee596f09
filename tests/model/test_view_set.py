"""View sets: what may be declared, and a schema hash that never drifts."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakebed.errors import BadInput
from lakebed.model.view_set import (
    ViewSet,
    check_instance,
    check_view_set_name,
    decode_type,
    encode_type,
    hash_schema,
)

UTC = pa.timestamp("us", "UTC")


# ---- the hash -----------------------------------------------------------------------------------

FIELDS = [
    pa.field("time", UTC, nullable=False),
    pa.field("größe", pa.float64()),
    pa.field("tags", pa.map_(pa.string(), pa.string())),
    pa.field("codes", pa.dictionary(pa.int16(), pa.string())),
    pa.field("price", pa.decimal128(12, 4)),
    pa.field("digest", pa.binary(32)),
    pa.field("lasted", pa.duration("ns")),
    pa.field("parts", pa.list_(pa.field("element", pa.struct([("a", pa.int8())])))),
]
GOLDEN = "33181e5aef9b9cb1c8fd6c7d17324704a49fa3ad0b22bb0ce2fce65af250a1c1"


def test_the_hash_of_a_schema_never_drifts() -> None:
    """Every partition carries it: another value would make every lake's partitions incompatible."""
    assert hash_schema(pa.schema(FIELDS), 3).hex() == GOLDEN


def test_the_definition_of_a_view_set_never_drifts() -> None:
    view_set = ViewSet("readings", 2, pa.schema(FIELDS[:2]), "time", ("größe", "time"), 5)
    assert view_set.definition() == (
        '{"name":"readings","retention_us":5,'
        '"schema":[["time",{"timestamp":"us","zone":"UTC"},false],["größe","float64",true]],'
        '"sort_order":["größe","time"],"source":null,"target_bytes":67108864,'
        '"time_column":"time","version":2}'
    )


def _changed(place: int, field: pa.Field) -> list[pa.Field]:
    return [*FIELDS[:place], field, *FIELDS[place + 1 :]]


@pytest.mark.parametrize(
    ("fields", "version"),
    [
        pytest.param(FIELDS, 4, id="version"),
        pytest.param(FIELDS[:-1], 3, id="a column less"),
        pytest.param([*FIELDS, pa.field("more", pa.int64())], 3, id="a column more"),
        pytest.param([FIELDS[1], FIELDS[0], *FIELDS[2:]], 3, id="order"),
        pytest.param(_changed(1, pa.field("grösse", pa.float64())), 3, id="name"),
        pytest.param(_changed(1, pa.field("größe", pa.float32())), 3, id="type"),
        pytest.param(_changed(1, pa.field("größe", pa.float64(), nullable=False)), 3, id="null"),
        pytest.param(_changed(0, pa.field("time", pa.timestamp("ns", "UTC"), False)), 3, id="unit"),
        pytest.param(_changed(0, pa.field("time", pa.timestamp("us", "CET"), False)), 3, id="zone"),
        pytest.param(_changed(0, pa.field("time", pa.timestamp("us"), False)), 3, id="no zone"),
        pytest.param(_changed(4, pa.field("price", pa.decimal128(12, 3))), 3, id="scale"),
        pytest.param(_changed(5, pa.field("digest", pa.binary(31))), 3, id="width"),
        pytest.param(
            _changed(3, pa.field("codes", pa.dictionary(pa.int8(), pa.string()))), 3, id="index"
        ),
        pytest.param(
            _changed(7, pa.field("parts", pa.list_(pa.struct([("a", pa.int16())])))),
            3,
            id="inside a nested column",
        ),
    ],
)
def test_any_change_of_a_schema_changes_its_hash(fields: list[pa.Field], version: int) -> None:
    assert hash_schema(pa.schema(fields), version).hex() != GOLDEN


def test_names_that_parquet_does_not_keep_are_not_part_of_the_schema() -> None:
    item = pa.struct([("a", pa.int8())])
    renamed = _changed(7, pa.field("parts", pa.list_(pa.field("anything", item))))
    assert hash_schema(pa.schema(renamed), 3).hex() == GOLDEN
    declared = ViewSet("readings", 1, pa.schema(renamed), "time").schema
    assert declared.field("parts").type.value_field.name == "element"


def test_metadata_that_arrow_adds_is_not_part_of_the_schema() -> None:
    labelled = [field.with_metadata({"PARQUET:field_id": "1"}) for field in FIELDS]
    schema = pa.schema(labelled, metadata={"pandas": "{}"})
    assert hash_schema(schema, 3).hex() == GOLDEN


def test_what_a_view_set_adds_to_its_schema_is_not_hashed() -> None:
    plain = ViewSet("readings", 1, pa.schema(FIELDS), "time")
    amended = ViewSet("others", 1, pa.schema(FIELDS), "time", ("größe",), 7)
    assert plain.schema_hash == amended.schema_hash == hash_schema(pa.schema(FIELDS), 1)


# ---- definitions --------------------------------------------------------------------------------

plain_types = st.sampled_from(
    [pa.type_for_alias(name) for name in ("bool", "int8", "uint64", "float32", "float64")]
    + [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.date32()]
)
measured_types = st.one_of(
    st.builds(pa.timestamp, st.sampled_from(["ms", "us", "ns"]), st.sampled_from([None, "UTC"])),
    st.builds(pa.duration, st.sampled_from(["ms", "us", "ns"])),
    st.builds(pa.decimal128, st.just(20), st.integers(0, 20)),
    st.builds(pa.binary, st.integers(1, 64)),
    st.builds(pa.dictionary, st.sampled_from([pa.int8(), pa.int32()]), st.just(pa.string())),
)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=7)


def _fields(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.Field]:
    return st.builds(pa.field, names, types, st.booleans())


def _items(name: str, types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.Field]:
    return st.builds(pa.field, st.just(name), types, st.booleans())


def _nested(types: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    return st.one_of(
        _items("element", types).map(pa.list_),
        _items("element", types).map(pa.large_list),
        st.lists(_fields(types), min_size=1, max_size=3).map(pa.struct),
        st.builds(lambda item: pa.map_(pa.string(), item), _items("value", types)),
    )


types = st.recursive(plain_types | measured_types, _nested, max_leaves=4)


@given(types)
def test_a_type_survives_its_description(kind: pa.DataType) -> None:
    described = json.loads(json.dumps(encode_type(kind)))
    again = decode_type(described)
    assert again.equals(kind, check_metadata=True)
    assert encode_type(again) == described


@given(
    st.lists(_fields(types), max_size=4, unique_by=lambda field: field.name),
    st.integers(1, 10**6),
    st.none() | st.integers(1, 10**18),
)
def test_a_view_set_survives_its_definition(
    fields: list[pa.Field], version: int, retention_us: int | None
) -> None:
    schema = pa.schema([pa.field("the time", UTC), *fields])
    view_set = ViewSet("readings", version, schema, "the time", ("the time",), retention_us)
    again = ViewSet.from_definition(view_set.definition())
    assert again == view_set
    assert again.schema_hash == view_set.schema_hash


@pytest.mark.parametrize(
    "kind",
    [
        pa.dictionary(pa.int8(), pa.string(), ordered=True),
        pa.map_(pa.string(), pa.int64(), keys_sorted=True),
    ],
)
def test_a_type_is_described_in_full_or_refused(kind: pa.DataType) -> None:
    try:
        described = encode_type(kind)
    except BadInput:
        return
    assert decode_type(described) == kind


@pytest.mark.parametrize(
    "kind", [pa.null(), pa.float16(), pa.time64("us"), pa.decimal256(50, 2), pa.list_(pa.null())]
)
def test_a_type_that_cannot_be_stored_is_refused_by_name(kind: pa.DataType) -> None:
    with pytest.raises(BadInput, match="cannot be stored"):
        ViewSet("readings", 1, pa.schema([("time", UTC), ("value", kind)]), "time")


@pytest.mark.parametrize(
    "described", ["text", "", "list", {}, {"list": 5}, {"timestamp": "us"}, None, 7, ["int64"]]
)
def test_a_description_of_no_type_is_refused(described: Any) -> None:
    with pytest.raises((BadInput, TypeError)):
        decode_type(described)


# ---- declaring ----------------------------------------------------------------------------------

GOOD: dict[str, Any] = {
    "name": "readings",
    "version": 1,
    "schema": pa.schema([("time", UTC), ("number", pa.int64())]),
    "time_column": "time",
    "sort_order": ("number",),
}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"version": 0}, "version 0; versions start at 1"),
        ({"version": -1}, "versions start at 1"),
        ({"time_column": "when"}, "no column 'when' for its time"),
        ({"time_column": "number"}, "time column number .* is int64"),
        ({"sort_order": ("number", "size")}, "no column 'size' to sort by"),
        ({"schema": pa.schema([("time", pa.timestamp("us"))])}, "time column time"),
        ({"schema": pa.schema([("time", UTC), ("a", UTC), ("a", UTC)])}, "names a column twice"),
    ],
)
def test_a_view_set_that_makes_no_sense_is_refused(changes: dict[str, Any], says: str) -> None:
    ViewSet(**GOOD)
    with pytest.raises(BadInput, match=says):
        ViewSet(**(GOOD | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 1.5},
        {"version": True},
        {"version": 2**31},
        {"retention_us": "7d"},
        {"retention_us": -1},
        {"retention_us": 0},
        {"retention_us": 0.5},
    ],
)
def test_a_definition_with_values_of_another_kind_is_refused(changes: dict[str, Any]) -> None:
    value = json.loads(ViewSet(**GOOD).definition()) | changes
    with pytest.raises(BadInput):
        ViewSet.from_definition(json.dumps(value))


@pytest.mark.parametrize("name", ["a", "readings", "log_entries_2", "a" * 63])
def test_a_view_set_name_is_a_folder_and_a_table(name: str) -> None:
    assert check_view_set_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "A", "2a", "_a", "a-b", "a b", "a/b", "..", "a.b", "a\n", "ä", "a;drop", "a" * 64],
)
def test_other_view_set_names_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match="is not a view set name") as raised:
        ViewSet(**(GOOD | {"name": name}))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("instance", ["global", "0", "Host-1.example_com", "a" * 128])
def test_an_instance_is_a_folder(instance: str) -> None:
    assert check_instance(instance) == instance


@pytest.mark.parametrize(
    "instance",
    ["", ".", "..", ".a", "-a", "_a", "a/b", "a b", "a=b", "a\\b", "a\n", "a\0", "ä", "a" * 129],
)
def test_other_instances_are_refused(instance: str) -> None:
    with pytest.raises(BadInput, match="is not an instance of a view set") as raised:
        check_instance(instance)
    assert "\n" not in str(raised.value)
