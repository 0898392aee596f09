"""Records are read from every supported kind of source."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from lakebed.errors import BadInput, BadPayload
from lakebed.tables.insert.records import read_records
from lakebed.tables.insert.validation import validate
from tests.tables.insert.validating import AT, PULSE, only

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


@pytest.mark.parametrize(
    "text",
    [
        '{"at": "2026-11-16T05:00:00Z", "c": NaN}\n{"at": "2026-11-16T05:00:00Z", "c": 1.5}',
        '[{"at": "2026-11-16T05:00:00Z", "c": NaN}, {"at": "2026-11-16T05:00:00Z", "c": 1.5}]',
    ],
)
def test_json_nan_is_null_where_null_is_allowed_and_a_bad_record_elsewhere(text: str) -> None:
    optional = validate(read_records(text), only("float"))
    assert not optional.bad
    assert optional.rows["c"].to_pylist() == [None, 1.5]
    required = validate(read_records(text), only("float", required=True))
    assert [bad.index for bad in required.bad] == [0]
    assert required.rows["c"].to_pylist() == [1.5]


@pytest.mark.parametrize("kind", ["int", "float", "string", "datetime", "json", "float[]"])
@pytest.mark.parametrize("constant", ["Infinity", "-Infinity"])
def test_json_infinity_makes_its_own_record_bad(kind: str, constant: str) -> None:
    value = f"[{constant}]" if kind == "float[]" else constant
    lines = [f'{{"at": "{AT}"}}', f'{{"at": "{AT}", "c": {value}}}', f'{{"at": "{AT}", "c": null}}']
    checked = validate(read_records("\n".join(lines)), only(kind))
    (bad,) = checked.bad
    assert bad.index == 1
    assert constant in bad.problems[0].got
    assert checked.rows.num_rows == 2


def test_what_the_json_module_writes_is_read() -> None:
    values = [{"c": math.nan}, {"c": math.inf}, {"c": {"x": [math.nan, 1]}}, {"c": 'NaN "'}]
    first, second, third, fourth = read_records(json.dumps(values))
    assert first == {"c": None}
    assert str(second["c"]) == "Infinity"
    assert third == {"c": {"x": [None, 1]}}
    assert fourth == {"c": 'NaN "'}


@pytest.mark.parametrize("text", ["5", "null", '"x"', "5\n6", "[5]", "[[{}]]", "[1]\n[2]"])
def test_what_is_no_object_is_a_bad_record(text: str) -> None:
    records = read_records(text)
    assert isinstance(records, list)
    validated = validate(records, PULSE)
    assert len(validated.bad) == len(records) > 0
    assert all(bad_record.problems[0].expected == "an object" for bad_record in validated.bad)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('{"a": 1}\n{"b": }\n', "invalid character at line 2, byte 7"),
        ('[{"a": 1},\n {"b": x}]', "invalid character at line 2, byte 8"),
        ('{"a": 1}\n{"b": 2', "the text ends too early at line 2, byte 1"),
        ('{"a": Nan}', "invalid character at line 1, byte 7"),
        ('{"a": -Inf}', "invalid character at line 1, byte 8"),
        ('{"a": NaN}\n{"b": }', "expecting value at line 2, byte 7"),
        ('\n\n{"b": }', "invalid character at line 3, byte 7"),
        ('[\n{"a": 1},\n{"b": 2', "the text ends too early at line 3, byte 8"),
        ('[\n{"a": 1},\n{"b": "ü', "the text ends too early at line 3, byte 10"),
        ('[\n{"a": 1},\n{"b": tru', "expecting value at line 3, byte 7"),
        ('[{"a": 1e999},\n{"b": "ü" 5}]', "expecting ',' delimiter at line 2, byte 12"),
        ('[{"a": "\\ud800"},\n{"b": "\x01"}]', "invalid control character at line 2, byte 8"),
        ('[{"a": 1e999}, ' + "[" * 100_000, "values are nested too deeply"),
        ('{"a": 1},\n{"a": 2}', "invalid character at line 1, byte 9"),
        (b'{"a": 1}\n{"a": "\xff"}', "the bytes are not UTF-8 at line 2, byte 8"),
        ("[" * 100_000, "values are nested too deeply"),
    ],
)
def test_broken_json_is_refused_with_its_place(text: str | bytes, problem: str) -> None:
    with pytest.raises(BadPayload) as caught:
        read_records(text)
    assert str(caught.value) == f"the records are not JSON: {problem}"


@pytest.mark.parametrize(
    ("value", "kind", "expected", "got"),
    [
        ("1e400", "float", "float of at most 64 bits", "1e400"),
        ("-1e400", "float", "float of at most 64 bits", "-1e400"),
        ("1e400", "int", "int of at most 64 bits", "1e400"),
        ("1e400", "string", "string", "1e400"),
        ("1e400", "json", "a JSON value", "1e400"),
        ('{"deep": [1e400]}', "json", "a JSON value", '{"deep": ["1e400"]}'),
        ("1e400", "datetime", "datetime", "1e400"),
        ("9" * 5000, "int", "int of at most 64 bits", "9" * 79 + "…"),
        ("9" * 5000, "float", "float of at most 64 bits", "9" * 79 + "…"),
        (r'"\ud800"', "string", "string of valid unicode", r"'\ud800'"),
        (r'"\udc00 after"', "string", "string of valid unicode", r"'\udc00 after'"),
        (r'"before \ud800\n"', "string", "string of valid unicode", r"'before \ud800\n'"),
    ],
)
@pytest.mark.parametrize("form", ["[{}]", "[\n  {}\n]\n", "{}"])
def test_a_value_that_no_column_holds_is_the_fault_of_its_record(
    form: str, value: str, kind: str, expected: str, got: str
) -> None:
    records = [f'{{"at": "{AT}"}}', f'{{"at": "{AT}", "c": {value}}}', f'{{"at": "{AT}"}}']
    text = form.replace("{}", ("\n" if form == "{}" else ",\n").join(records))
    validated = validate(read_records(text), only(kind))
    (bad,) = validated.bad
    (problem,) = bad.problems
    assert (bad.index, problem.column) == (1, "c")
    assert (problem.expected, problem.got) == (expected, got)
    assert validated.rows.num_rows == 2


def test_other_values_are_the_same_beside_one_that_no_column_holds() -> None:
    accepted_texts = r"""
    {"a": 1.5, "b": [true, null, -0.0, 1e-400, 18446744073709551616], "c": "\ud83d\ude00 ü",
     "c": "\u0041"}
    {"a": {}}[5] 6 "x"
    """
    quick = read_records(accepted_texts)
    exact = read_records(accepted_texts + '{"a": 1e400}')
    assert repr(exact[:-1]) == repr(quick)
    assert str(exact[-1]["a"]) == "1e400"


def test_text_that_cannot_be_bytes_is_refused() -> None:
    with pytest.raises(BadPayload, match="not valid unicode at character 2"):
        read_records('{"\ud800": 1}')


def test_everything_that_speaks_arrow_is_read() -> None:
    table = pa.table({"a": [1, 2], "b": ["x", None]})
    frames = [table.to_pandas(), pl.from_arrow(table)]
    readers = [table.to_reader(), table.to_batches()[0], table, *frames]
    for reader in readers:
        read = read_records(reader)
        assert isinstance(read, pa.Table)
        assert [row["a"] for row in read.to_pylist()] == [1, 2]
        assert read.column_names == ["a", "b"]


@pytest.mark.parametrize("value", [5, None, object(), pa.array([1])])
def test_what_holds_no_records_is_refused(value: Any) -> None:
    with pytest.raises(BadInput):
        read_records(value)
