import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datafusion import SessionConfig, SessionContext
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.query.embedded.functions.properties import PROPERTIES, functions

WORDS = st.text(st.characters(codec="utf-8"), max_size=5)
KEYS = st.sampled_from(["a", "b", "service.name", "", "é"])
TEXT_TYPES = [
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int32(), pa.string()),
]


def session(**tables: pa.Table) -> SessionContext:
    context = SessionContext(SessionConfig().with_target_partitions(3))
    for function in functions():
        context.register_udf(function)
    for name, table in tables.items():
        nothing = [pa.RecordBatch.from_pylist([], table.schema)]
        batches = table.to_batches(max_chunksize=100) or nothing
        context.register_record_batches(name, [batches])
    return context


def column(values: list[Any], type_: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(type_):
        return pa.array(values, type_.value_type).dictionary_encode()
    return pa.array(values, type_)


def answers(sql: str, **columns: pa.Array) -> list[Any]:
    return session(t=pa.table(columns)).sql(f"SELECT {sql} AS x FROM t").to_pydict()["x"]


def of_maps(sql: str, *rows: list[tuple[str, Any]] | None) -> list[Any]:
    return answers(sql, p=pa.array(rows, PROPERTIES))


def of_texts(sql: str, *rows: str | None) -> list[Any]:
    return answers(sql, p=pa.array(rows, pa.string()))


def test_a_property_is_found_by_its_key():
    rows = ([("a", "1"), ("b", "2")], [("b", "3")], [], None, [("a", None)], [("a", "")])
    assert of_maps("property_get(p, 'a')", *rows) == ["1", None, None, None, None, ""]
    assert of_maps("property_get(p, 'b')", *rows) == ["2", "3", None, None, None, None]
    assert of_maps("property_get(p, 'c')", *rows) == [None] * 6
    assert of_maps("property_get(p, NULL)", *rows) == [None] * 6


def test_of_several_properties_with_the_same_key_the_last_counts():
    assert of_maps("property_get(p, 'a')", [("a", "1"), ("b", "2"), ("a", "3")]) == ["3"]


@settings(max_examples=50)
@given(st.lists(st.none() | st.dictionaries(KEYS, st.none() | WORDS), max_size=20), st.data())
def test_properties_are_those_of_plain_dicts(rows, data):
    keys = [data.draw(st.none() | KEYS) for _ in rows]
    context = session(
        t=pa.table(
            {
                "p": pa.array(
                    [None if row is None else list(row.items()) for row in rows], PROPERTIES
                ),
                "k": pa.array(keys, pa.string()),
            }
        )
    )
    sql = "SELECT property_get(p, k), property_get(p, 'a'), properties_length(p) FROM t"
    by_column, by_literal, lengths = context.sql(sql).to_pydict().values()
    assert by_column == [
        None if row is None or key is None else row.get(key)
        for row, key in zip(rows, keys, strict=True)
    ]
    assert by_literal == [None if row is None else row.get("a") for row in rows]
    assert lengths == [None if row is None else len(row) for row in rows]


def test_rows_from_the_middle_of_an_array_have_their_own_properties():
    rows = [None if n % 7 == 0 else [("n", str(n))] * (n % 3) for n in range(1000)]
    some = "(SELECT p FROM t LIMIT 50 OFFSET 333)"
    sql = f"SELECT property_get(p, 'n') AS x, properties_length(p) AS y FROM {some}"
    answer = session(t=pa.table({"p": pa.array(rows, PROPERTIES)})).sql(sql).to_pydict()
    cut = rows[333:383]
    assert answer["x"] == [row[-1][1] if row else None for row in cut]
    assert answer["y"] == [None if row is None else len(row) for row in cut]


def test_what_lies_under_a_null_is_no_property():
    entries = pa.array([[("a", "1")], [("a", "2")]], PROPERTIES)
    validity = pa.array([True, False]).buffers()[1]
    hidden = pa.Array.from_buffers(
        PROPERTIES, 2, [validity, entries.buffers()[1]], children=[entries.values]
    )
    assert hidden.null_count == 1
    assert answers("property_get(p, 'a')", p=hidden) == ["1", None]
    assert answers("properties_length(p)", p=hidden) == [1, None]


@pytest.mark.parametrize("type_", TEXT_TYPES)
def test_keys_and_texts_may_be_any_text_column(type_):
    maps = pa.array([[("a", "1")], [("b", "2")], [("c", "3")]], PROPERTIES)
    keys = column(["a", "x", None], type_)
    assert answers("property_get(p, k)", p=maps, k=keys) == ["1", None, None]
    texts = column(['{"a": "1"}', '{"b": "2"}', '{"c": "3"}'], type_)
    assert answers("json_get(p, k)", p=texts, k=keys) == ["1", None, None]
    assert answers("json_length(p)", p=texts) == [1, 1, 1]


def test_lengths_are_32_bit_integers():
    table = pa.table({"p": pa.array([], PROPERTIES), "j": pa.array([], pa.string())})
    schema = session(t=table).sql("SELECT properties_length(p), json_length(j) FROM t").schema()
    assert schema.types == [pa.int32(), pa.int32()]


def test_no_rows_have_no_properties():
    assert of_maps("property_get(p, 'a')") == []
    assert of_maps("properties_length(p)") == []
    assert of_texts("json_get(p, 'a')") == []
    assert of_texts("json_length(p)") == []


def test_maps_of_a_file_are_read_if_its_table_has_the_schema_of_the_view_set(tmp_path: Path):
    rows = [[("n", str(n))] for n in range(500)]
    table = pa.table({"p": pa.array(rows, PROPERTIES)})
    pq.write_table(table, tmp_path / "p.parquet")
    context = session()
    context.register_parquet("t", str(tmp_path / "p.parquet"), schema=table.schema)
    sql = (
        "SELECT count(*) AS x FROM t WHERE property_get(p, 'n') < '3' AND properties_length(p) = 1"
    )
    assert context.sql(sql).to_pydict()["x"] == [sum(str(n) < "3" for n in range(500))]


def test_maps_that_sql_makes_are_properties_too():
    assert of_maps("property_get(MAP {'a': 'b'}, 'a')", None) == ["b"]


def test_a_map_of_other_types_is_refused_before_anything_is_read():
    maps = pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))
    with pytest.raises(ValueError, match="coerce arguments to satisfy a call to 'property_get'"):
        answers("property_get(p, 'a')", p=maps)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "text"}', "text"),
        ('{"a": ""}', ""),
        (r'{"a": "\u00e9\n\"\ud83d\ude00"}', 'é\n"😀'),
        (' { "x" : 1 , "a" :  [1, 2] } ', "[1, 2]"),
        ('{"a": {"b": 1.50}}', '{"b": 1.50}'),
        ('{"a": 1.50}', "1.50"),
        ('{"a": 12345678901234567890123}', "12345678901234567890123"),
        ('{"a": true}', "true"),
        ('{"a": null}', None),
        ('{"a": 1, "a": 2}', "2"),
        ('{"A": 1}', None),
        ("{}", None),
        ('[{"a": 1}]', None),
        ('"a"', None),
        ("null", None),
        ("", None),
        ('{"a": 1', None),
        ('{"a": 1} more', None),
        ("no JSON at all", None),
        ('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}", None),
        (None, None),
    ],
)
def test_a_member_of_a_json_object_is_found_by_its_key(text, value):
    assert of_texts("json_get(p, 'a')", text) == [value]


def test_the_length_of_a_json_object_is_the_number_of_its_keys():
    texts = ("{}", '{"a": 1, "b": null}', '{"a": 1, "a": 2}', "[1, 2]", "", None)
    assert of_texts("json_length(p)", *texts) == [0, 2, 1, None, None, None]


@settings(max_examples=50)
@given(
    st.lists(
        st.none() | st.dictionaries(KEYS, WORDS | st.none() | st.integers() | st.lists(WORDS)),
        max_size=20,
    ),
    st.data(),
)
def test_members_are_those_of_plain_dicts(rows, data):
    def shown(value: Any) -> str | None:
        return value if value is None or isinstance(value, str) else json.dumps(value)

    keys = [data.draw(st.none() | KEYS) for _ in rows]
    texts = [None if row is None else json.dumps(row) for row in rows]
    table = pa.table({"p": pa.array(texts, pa.string()), "k": pa.array(keys, pa.string())})
    sql = "SELECT json_get(p, k), json_get(p, 'a') FROM t"
    by_column, by_literal = session(t=table).sql(sql).to_pydict().values()
    assert by_column == [
        None if row is None or key is None else shown(row.get(key))
        for row, key in zip(rows, keys, strict=True)
    ]
    assert by_literal == [None if row is None else shown(row.get("a")) for row in rows]


def test_many_rows_of_few_texts_and_keys_are_each_answered():
    chance = random.Random(5)
    rows = [{"a": str(chance.randrange(3)), "b": "x"} for _ in range(5000)]
    keys = [chance.choice("abc") for _ in rows]
    texts = pa.array([json.dumps(row) for row in rows])
    assert answers("json_get(p, k)", p=texts, k=pa.array(keys)) == [
        row.get(key) for row, key in zip(rows, keys, strict=True)
    ]
