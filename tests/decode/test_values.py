"""Attribute values of every kind become strings, and the strings say what the values were."""

from __future__ import annotations

import json
import math

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue, KeyValueList

from lakebed.decode import logs
from tests.decode.parts import block


def text(value: str) -> AnyValue:
    return AnyValue(string_value=value)


def array(*values: AnyValue) -> AnyValue:
    return AnyValue(array_value=ArrayValue(values=values))


def pairs(**values: AnyValue) -> AnyValue:
    listed = [KeyValue(key=key, value=value) for key, value in values.items()]
    return AnyValue(kvlist_value=KeyValueList(values=listed))


VALUES = [
    (text("plain"), "plain"),
    (text(""), ""),
    (text("köln\n\t\0日本"), "köln\n\t\0日本"),
    (AnyValue(int_value=0), "0"),
    (AnyValue(int_value=-(2**63)), "-9223372036854775808"),
    (AnyValue(int_value=2**63 - 1), "9223372036854775807"),
    (AnyValue(double_value=0.1), "0.1"),
    (AnyValue(double_value=2.0), "2"),
    (AnyValue(double_value=1e300), "1e+300"),
    (AnyValue(double_value=math.nan), "nan"),
    (AnyValue(double_value=-math.inf), "-inf"),
    (AnyValue(bool_value=True), "true"),
    (AnyValue(bool_value=False), "false"),
    (AnyValue(bytes_value=b"\x00\xff"), "AP8="),
    (AnyValue(bytes_value=b""), ""),
    (array(), "[]"),
    (pairs(), "{}"),
    (array(text("a"), AnyValue(int_value=2**62), AnyValue()), '["a",4611686018427387904,null]'),
    (array(AnyValue(double_value=1.0), AnyValue(double_value=math.inf)), '[1.0,"inf"]'),
    (array(AnyValue(bytes_value=b"\x00"), AnyValue(bool_value=True)), '["AA==",true]'),
    (pairs(a=array(text('"é"')), b=pairs(c=AnyValue())), '{"a":["\\"é\\""],"b":{"c":null}}'),
    (AnyValue(), None),
]


@pytest.mark.parametrize("mixed", [True, False], ids=["all kinds", "one kind"])
def test_every_kind_has_its_text(mixed: bool) -> None:
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for value, _ in VALUES if mixed else VALUES[:3]:
        record = records.add(body=value)
        record.attributes.add(key="key", value=value)
    records.add().attributes.add(key="key")
    rows = logs.decode([block(request, "logs")]).table.to_pylist()
    expected = [shown for _, shown in (VALUES if mixed else VALUES[:3])]
    assert [row["msg"] for row in rows] == [*expected, None]
    assert [row["properties"] for row in rows] == [[("key", shown)] for shown in [*expected, None]]
    assert {row["problems"] for row in rows} == {None}


def test_the_kind_of_a_body_is_kept() -> None:
    bodies = [
        text(""),
        AnyValue(int_value=1),
        AnyValue(double_value=1),
        AnyValue(bool_value=False),
        AnyValue(bytes_value=b""),
        array(),
        pairs(),
        AnyValue(),
    ]
    request = ExportLogsServiceRequest()
    records = request.resource_logs.add().scope_logs.add().log_records
    for body in bodies:
        records.add(body=body)
    records.add()
    kinds = logs.decode([block(request, "logs")]).table["body_kind"].to_pylist()
    assert kinds == ["string", "int", "double", "bool", "bytes", "array", "kvlist", None, None]


def test_json_of_nested_values_can_be_read_back() -> None:
    nested = array(text("\ud7ff\U0001f600"), pairs(**{"": text("\\"), "ä": array(text("\x1f"))}))
    request = ExportLogsServiceRequest()
    request.resource_logs.add().scope_logs.add().log_records.add(body=nested)
    (row,) = logs.decode([block(request, "logs")]).table.to_pylist()
    assert json.loads(str(row["msg"])) == ["\ud7ff\U0001f600", {"": "\\", "ä": ["\x1f"]}]
