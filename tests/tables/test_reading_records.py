"""Records are read from whatever holds them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from lakebed.errors import BadInput, BadPayload
from lakebed.tables.records import read_records
from lakebed.tables.validation import validate
from tests.tables.validating import PULSE

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
