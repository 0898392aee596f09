"""OTLP/JSON by OTLP's own rules, compared with OpenTelemetry's own messages field by field."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from google.protobuf import message_factory

from lakebed.decode.descriptors import request_class
from lakebed.decode.json_requests.otlp_json import to_protobuf
from lakebed.errors import BadPayload
from lakebed.model.signal import Signal
from lakebed.samples.generator import Generator
from lakebed.samples.otlp_json import to_json
from tests.decode import sdk
from tests.decode.damage import mutations, replace_one, replayable
from tests.decode.test_requests import ALL_SIGNALS, OFFICIAL, resources_of


def read(signal: Signal, value: Any) -> Any:
    """The one resource of an OTLP/JSON object, as OpenTelemetry's own message."""
    text = value if isinstance(value, bytes) else json.dumps(value).encode()
    (resource,) = resources_of(OFFICIAL[signal].FromString(to_protobuf(signal, text)))
    return resource


def read_record(**fields: Any) -> Any:
    """The log record with these fields in JSON."""
    resource = read(Signal.LOGS, {"scopeLogs": [{"logRecords": [fields]}]})
    return resource.scope_logs[0].log_records[0]


def read_value(value: Any) -> Any:
    return read_record(body=value).body


def read_point(**fields: Any) -> Any:
    metric = {"name": "m", "histogram": {"dataPoints": [fields]}}
    resource = read(Signal.METRICS, {"scopeMetrics": [{"metrics": [metric]}]})
    return resource.scope_metrics[0].metrics[0].histogram.data_points[0]


def assert_equal(actual: Any, expected: Any, place: str = "$") -> None:
    """Every field of two messages; NaN is NaN, and what is present in one is in the other."""
    assert type(actual) is type(expected), place
    for field in expected.DESCRIPTOR.fields:
        here = f"{place}.{field.name}"
        left, right = getattr(actual, field.name), getattr(expected, field.name)
        if field.has_presence:
            assert actual.HasField(field.name) == expected.HasField(field.name), here
            if not expected.HasField(field.name):
                continue
        lefts, rights = (left, right) if field.is_repeated else ([left], [right])
        assert len(lefts) == len(rights), here
        for number, (one, other) in enumerate(zip(lefts, rights, strict=True)):
            if field.message_type is not None:
                assert_equal(one, other, f"{here}[{number}]")
            elif isinstance(other, float):
                same = one == other or (math.isnan(one) and math.isnan(other))
                assert same, here
                assert math.copysign(1, one) == math.copysign(1, other), here
            else:
                assert one == other, here


@ALL_SIGNALS
@pytest.mark.parametrize("plain", [False, True])
def test_every_field_is_what_was_written(signal: Signal, plain: bool) -> None:
    request = Generator(11).make(signal.value, 400, services=8)
    for resource in resources_of(request):
        text = to_json(resource, whole_numbers=plain, upper=plain)
        assert_equal(read(signal, text), resource)


@ALL_SIGNALS
def test_every_field_that_exists_is_read(signal: Signal) -> None:
    (field,) = OFFICIAL[signal].DESCRIPTOR.fields
    seen: set[str] = set()
    for variant in range(40):
        resource = _filled(field.message_type, variant)
        assert_equal(read(signal, to_json(resource)), resource)
        seen |= _fields_set(resource)
    assert seen == _fields_of(field.message_type, set())


def _fields_set(message: Any) -> set[str]:
    """The full names of all fields that are set in a message and in those within it."""
    names = set()
    for field, value in message.ListFields():
        names.add(field.full_name)
        if field.message_type is not None:
            for each in value if field.is_repeated else [value]:
                names |= _fields_set(each)
    return names


def _fields_of(descriptor: Any, names: set[str]) -> set[str]:
    for field in descriptor.fields:
        if field.full_name not in names:
            names.add(field.full_name)
            if field.message_type is not None:
                _fields_of(field.message_type, names)
    return names


def _filled(descriptor: Any, variant: int, depth: int = 0) -> Any:
    """A message with all its fields set; of alternatives, another one in each variant."""
    message = message_factory.GetMessageClass(descriptor)()
    for number, field in enumerate(descriptor.fields):
        alternatives = field.containing_oneof.fields if field.containing_oneof else [field]
        if alternatives[variant % len(alternatives)] is not field:
            continue
        if field.message_type is None:
            made = [_scalar(field, variant + each) for each in range(2)]
        else:
            count = 0 if depth > 10 else 2 if depth + number % 3 < 5 else 1
            made = [_filled(field.message_type, variant + n, depth + 1) for n in range(count)]
        if field.is_repeated:
            getattr(message, field.name).extend(made)
        elif field.message_type is None:
            setattr(message, field.name, made[0])
        elif made:
            getattr(message, field.name).CopyFrom(made[0])
    return message


def _scalar(field: Any, variant: int) -> Any:
    match field.cpp_type:
        case field.CPPTYPE_STRING:
            return bytes([variant, 255]) if field.type == field.TYPE_BYTES else f"tëxt {variant}"
        case field.CPPTYPE_BOOL:
            return True
        case field.CPPTYPE_DOUBLE:
            return (1.5, -2.0, math.inf, 1e-300)[variant % 4]
        case field.CPPTYPE_ENUM:
            return field.enum_type.values[-1].number
        case field.CPPTYPE_INT32:
            return (-(1 << 31), (1 << 31) - 1)[variant % 2]
        case field.CPPTYPE_INT64:
            return (-(1 << 63), (1 << 63) - 1)[variant % 2]
        case field.CPPTYPE_UINT32:
            return (1 << 32) - 1 - variant
        case field.CPPTYPE_UINT64:
            return (1 << 64) - 1 - variant
    raise AssertionError(field.full_name)


def test_requests_of_the_sdk_survive_json() -> None:
    for signal, request in (
        (Signal.LOGS, sdk.logs_request()),
        (Signal.METRICS, sdk.metrics_request()),
        (Signal.TRACES, sdk.traces_request()),
    ):
        (resource,) = resources_of(request)
        assert_equal(read(signal, to_json(resource)), resource)


@pytest.mark.parametrize(
    "text", ["5b8efff798038103d269b633813fc60c", "5B8EFFF798038103D269b633813fC60C"]
)
def test_ids_are_hexadecimal_in_any_case(text: str) -> None:
    record = read_record(traceId=text, spanId=text[:16])
    assert record.trace_id == bytes.fromhex(text)
    assert record.span_id == bytes.fromhex(text)[:8]


def test_ids_of_wrong_length_are_kept() -> None:
    record = read_record(traceId="abcd", spanId="")
    assert (record.trace_id, record.span_id) == (b"\xab\xcd", b"")


@pytest.mark.parametrize(
    "text", ["xyz0", "abc", "W47/95gDgQPSabYzgT/GDA==", "ab cd", "é0", 17, None]
)
def test_ids_that_are_not_hexadecimal_are_refused(text: Any) -> None:
    if text is None:
        assert read_record(traceId=None).trace_id == b""
        return
    with pytest.raises(BadPayload, match=r"hexadecimal digits at scopeLogs\[0\].logRecords\[0\]"):
        read_record(traceId=text)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("1", 1),
        (1, 1),
        ("-9223372036854775808", -(1 << 63)),
        (-(1 << 63), -(1 << 63)),
        ("9223372036854775807", (1 << 63) - 1),
        (9007199254740993, 9007199254740993),
        (5.0, 5),
        ("007", 7),
    ],
)
def test_integers_are_texts_or_numbers(given: Any, expected: int) -> None:
    assert read_value({"intValue": given}).int_value == expected


@pytest.mark.parametrize(
    "given",
    [
        *(1 << 63, "9223372036854775808", 1.5, "1.5", "", " 1", "1_0", "٣", "0x1", True, [], {}),
        *(1e300, "9" * 5000, 10**30, "-", "1e3"),
    ],
)
def test_what_is_no_64_bit_integer_is_refused(given: Any) -> None:
    with pytest.raises(BadPayload, match=r"expected a whole number.* at .*body\.intValue, not"):
        read_value({"intValue": given})


def test_unsigned_fields_have_their_own_range() -> None:
    assert read_record(timeUnixNano=str((1 << 64) - 1)).time_unix_nano == (1 << 64) - 1
    assert read_record(flags=(1 << 32) - 1).flags == (1 << 32) - 1
    for fields in ({"timeUnixNano": -1}, {"timeUnixNano": 1 << 64}, {"flags": 1 << 32}):
        with pytest.raises(BadPayload, match="whole number of"):
            read_record(**fields)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (1, 1.0),
        (0.1, 0.1),
        ("Infinity", math.inf),
        ("-Infinity", -math.inf),
        ("1.5e3", 1500.0),
        (-0.0, -0.0),
        (1 << 60, float(1 << 60)),
    ],
)
def test_doubles_are_numbers_or_texts(given: Any, expected: float) -> None:
    assert read_value({"doubleValue": given}).double_value == expected
    assert list(read_point(explicitBounds=[given, 2]).explicit_bounds) == [expected, 2.0]


def test_nan_is_a_text() -> None:
    assert math.isnan(read_value({"doubleValue": "NaN"}).double_value)


@pytest.mark.parametrize("given", ["nan", "inf", "", "1,5", "1e999", True, [], {}, 10**400, "1_0"])
def test_what_is_no_double_is_refused(given: Any) -> None:
    with pytest.raises(BadPayload, match=r"number"):
        read_value({"doubleValue": given})


def test_enums_are_integers_and_names_are_taken() -> None:
    assert read_record(severityNumber=17).severity_number == 17
    assert read_record(severityNumber=99).severity_number == 99
    assert read_record(severityNumber="SEVERITY_NUMBER_ERROR").severity_number == 17
    for wrong in ("ERROR", 1 << 31, 1.5, True, []):
        with pytest.raises(BadPayload):
            read_record(severityNumber=wrong)


@pytest.mark.parametrize("text", ["AP//", "AP8", "AP8=", "_-8=", "", "AP__"])
def test_bytes_are_base64_of_either_alphabet(text: str) -> None:
    import base64

    padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
    assert read_value({"bytesValue": text}).bytes_value == base64.urlsafe_b64decode(
        padded.replace("/", "_").replace("+", "-")
    )


@pytest.mark.parametrize("given", ["A", "*", "A P8", 5, True, ["AP8="]])
def test_what_is_not_base64_is_refused(given: Any) -> None:
    with pytest.raises(BadPayload, match="expected base64 at"):
        read_value({"bytesValue": given})


def test_unknown_fields_and_other_spellings_are_ignored() -> None:
    record = read_record(time_unix_nano=5, TimeUnixNano=6, future={"deep": [1]}, timeUnixNano=7)
    assert record.time_unix_nano == 7
    assert record.ListFields() == read_record(timeUnixNano=7).ListFields()


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 400 + ".5", "1e-999", "9" * 400])
def test_unknown_fields_may_hold_numbers_that_nothing_holds(number: str) -> None:
    def payload(name: str) -> bytes:
        record = f'{{"zz":[{number}],"timeUnixNano":7,{name}}}'
        return f'{{"scopeLogs":[{{"logRecords":[{record}]}}]}}'.encode()

    without = payload('"flags":1').replace(f'"zz":[{number}],'.encode(), b"")
    assert to_protobuf(Signal.LOGS, payload('"flags":1')) == to_protobuf(Signal.LOGS, without)
    if number != "1e-999":  # which is zero
        for name in ("flags", "severityText", "severityNumber", "traceId"):
            with pytest.raises(BadPayload, match=f"expected .* at .*{name}, not a huge number"):
                to_protobuf(Signal.LOGS, payload(f'"{name}":{number}'))
        with pytest.raises(BadPayload, match="expected a number that a double can hold at"):
            to_protobuf(Signal.LOGS, payload(f'"body":{{"doubleValue":{number}}}'))


def test_null_is_absent() -> None:
    record = read_record(timeUnixNano=None, body=None, attributes=None, severityText=None)
    assert not record.ListFields()
    attribute = read_record(attributes=[{"key": "k", "value": None}]).attributes[0]
    assert attribute.key == "k"
    assert not attribute.HasField("value")
    values = read_value({"arrayValue": {"values": [None, {}, {"stringValue": None}]}})
    assert [each.WhichOneof("value") for each in values.array_value.values] == [None] * 3


def test_a_value_that_is_present_but_zero_stays_present() -> None:
    assert read_value({"intValue": "0"}).WhichOneof("value") == "int_value"
    assert read_value({"stringValue": ""}).WhichOneof("value") == "string_value"
    assert read_value({"kvlistValue": {}}).WhichOneof("value") == "kvlist_value"
    assert read_point(sum=0).HasField("sum")
    assert not read_point(count=0).HasField("sum")


def test_texts_keep_every_character() -> None:
    text = 'a\u0000b\n\t"\\ é 漢 🚀 \ufeff\u2028'
    assert read_value({"stringValue": text}).string_value == text
    escaped = b'{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"\\ud83d\\ude80\\/"}}]}]}'
    body = read(Signal.LOGS, escaped).scope_logs[0].log_records[0].body
    assert body.string_value == "🚀/"


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[]",
        b"7",
        b'"x"',
        b"{",
        b'{"scopeLogs":"x"}',
        b'{"scopeLogs":{}}',
        b'{"scopeLogs":[[]]}',
        b'{"scopeLogs":[null]}',
        b'{"schemaUrl":5}',
        b'{"schemaUrl":"\\ud800"}',
        b'{"schemaUrl":"\\udc00 \\ud800"}',
        b'{"schemaUrl":"\xed\xa0\x80"}',
        b'{"schemaUrl":"\xff"}',
        b"{'schemaUrl':1}",
        b'{"schemaUrl":NaN}',
        b'{"resource":{"droppedAttributesCount":1e400}}',
        b'{"resource":{"droppedAttributesCount":' + b"9" * 100_000 + b"}}",
        b'{"resource":{"attributes":[{"key":1}]}}',
        b'{"resource":{"attributes":[{"key":"k","value":"v"}]}}',
    ],
)
def test_what_is_no_resource_is_refused_in_one_line(payload: bytes) -> None:
    with pytest.raises(BadPayload) as caught:
        to_protobuf(Signal.LOGS, payload)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 200
    assert message[0].islower()
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("depth", [100, 400, 900, 10_000, 1_000_000])
def test_nesting_too_deep_is_refused(depth: int) -> None:
    for opening, closing in (
        (b'{"arrayValue":{"values":[', b"]}}"),
        (b'{"kvlistValue":{"values":[{"key":"k","value":', b"}]}}"),
    ):
        value = opening * depth + b"{}" + closing * depth
        payload = b'{"scopeLogs":[{"logRecords":[{"body":' + value + b"}]}]}"
        with pytest.raises(BadPayload, match="nested more than 100 messages deep"):
            to_protobuf(Signal.LOGS, payload)


def test_nesting_that_protobuf_reads_is_read() -> None:
    value: Any = {"intValue": 1}
    for _ in range(45):
        value = {"arrayValue": {"values": [value]}}
    assert read_value(value).HasField("array_value")


@ALL_SIGNALS
def test_damage_gives_a_request_or_a_typed_error(signal: Signal) -> None:
    chance = replayable()
    (resource,) = resources_of(Generator(5).make(signal.value, 25, services=1))
    text = to_json(resource)
    refused = 0
    for number, damaged in enumerate(mutations(text, chance, 900)):
        if number % 3:
            value = json.loads(text)
            replace_one(value, chance)
            damaged = json.dumps(value).encode()
        try:
            encoded = to_protobuf(signal, damaged)
        except BadPayload as error:
            refused += 1
            assert "\n" not in str(error)
        else:
            request_class(signal).FromString(encoded)
    assert 50 < refused < 900
