"""OTLP/JSON to protobuf, by OTLP's own rules and not by protobuf's generic JSON mapping, which
takes ids for base64.

Trace and span ids are hexadecimal, in any case and of any length. Integers are numbers or decimal
texts, doubles are numbers or texts, also "NaN", "Infinity" and "-Infinity". Enums are integers;
names are taken too, as the OpenTelemetry Collector does. ``bytesValue`` is base64. Names are
lowerCamelCase; unknown fields are ignored and null means absent. What remains is refused as
`BadPayload`, with the place in the text.

How each message is written comes from OpenTelemetry's descriptors, so no field is forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from lakebed.decode.descriptors import request_class
from lakebed.decode.json_requests import json_values
from lakebed.decode.json_requests.json_values import LENGTH_DELIMITED, Unfit, encode_length
from lakebed.errors import BadPayload
from lakebed.model.signal import Signal

MAX_DEPTH = 100
"""The limit of messages nested in each other; protobuf's own."""

TOO_DEEP = f"values are nested more than {MAX_DEPTH} messages deep"

_Writer = Callable[[Any], bytes]
_LONGEST_PATH = 12


def to_protobuf(signal: Signal, payload: bytes) -> bytes:
    """The protobuf bytes of a request that holds one resource, given as OTLP/JSON.

    The payload is one ResourceLogs, ResourceMetrics or ResourceSpans object, as it stands in a
    request's array. Raises `BadPayload` if it is none.
    """
    try:
        value = read_json(payload)
        encoded = _request_writers()[signal](value)
    except msgspec.DecodeError as error:
        raise BadPayload(f"cannot read the payload as JSON: {begin_small(str(error))}") from None
    except UnicodeDecodeError:
        raise BadPayload("cannot read the payload as JSON: it is not UTF-8") from None
    except RecursionError:
        raise BadPayload(TOO_DEEP) from None
    except Unfit as error:
        raise BadPayload(_describe(error)) from None
    check_depth(signal, encoded)
    return encoded


def read_json(text: bytes) -> Any:
    """Return the values of a JSON text. A number that no double can hold becomes a whole number
    that no field can hold: an unknown field may have it, a known one refuses it. Raises what
    `msgspec` raises."""
    try:
        return msgspec.json.decode(text)
    except msgspec.ValidationError:  # well-formed, but with such a number
        return _lenient.decode(text)


def _read_float(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _HUGE


_HUGE = 10**400
_lenient = msgspec.json.Decoder(float_hook=_read_float)


def check_depth(signal: Signal, encoded: bytes) -> None:
    """Raise `BadPayload` for bytes that protobuf itself would not read back; well-formed bytes
    fail only by depth."""
    try:
        request_class(signal).FromString(encoded)
    except DecodeError:
        raise BadPayload(TOO_DEEP) from None


@cache
def _request_writers() -> dict[Signal, _Writer]:
    plans: dict[str, dict[str, _Writer]] = {}
    writers = {}
    for signal in Signal:
        (resources,) = request_class(signal).DESCRIPTOR.fields
        writers[signal] = _message_writer(resources, plans)
    return writers


def _plan(message: Any, plans: dict[str, dict[str, _Writer]]) -> dict[str, _Writer]:
    """Return the writers of a message's fields, by JSON name. Messages may be recursive."""
    plan = plans.get(message.full_name)
    if plan is None:
        plan = plans[message.full_name] = {}
        for field in message.fields:
            plan[field.json_name] = _field_writer(field, plans)
    return plan


def _field_writer(field: Any, plans: dict[str, dict[str, _Writer]]) -> _Writer:
    if field.message_type is not None:
        write = _message_writer(field, plans)
        return _list_writer(write) if field.is_repeated else write
    scalar = json_values.scalar_writer(field)
    if scalar.wire_type == LENGTH_DELIMITED:
        write = _delimited_writer(field, scalar.write)
        return _list_writer(write) if field.is_repeated else write
    if field.is_repeated:  # numbers in an array are packed
        return _delimited_writer(field, _list_writer(scalar.write))
    tag = encode_length(field.number << 3 | scalar.wire_type)
    return lambda value: tag + scalar.write(value)


def _message_writer(field: Any, plans: dict[str, dict[str, _Writer]]) -> _Writer:
    find = _plan(field.message_type, plans).get
    # The Collector reads a null in an array of values as the value that holds nothing.
    null_is_empty = field.message_type.name == "AnyValue"

    def write(value: Any) -> bytes:
        if type(value) is not dict:
            if value is None and null_is_empty:
                return b""
            raise Unfit("an object", value)
        parts = []
        for name, item in value.items():
            write_field = find(name)
            if write_field is None or item is None:
                continue
            try:
                parts.append(write_field(item))
            except Unfit as error:
                error.path.append(name)
                raise
        return b"".join(parts)

    return _delimited_writer(field, write)


def _list_writer(write: _Writer) -> _Writer:
    def write_all(value: Any) -> bytes:
        if type(value) is not list:
            raise Unfit("an array", value)
        parts: list[bytes] = []
        try:
            for item in value:
                parts.append(write(item))
        except Unfit as error:
            error.path.append(f"[{len(parts)}]")
            raise
        return b"".join(parts)

    return write_all


def _delimited_writer(field: Any, write: _Writer) -> _Writer:
    tag = encode_length(field.number << 3 | LENGTH_DELIMITED)
    short = [tag + encode_length(length) for length in range(256)]

    def write_delimited(value: Any) -> bytes:
        body = write(value)
        length = len(body)
        return (short[length] if length < 256 else tag + encode_length(length)) + body

    return write_delimited


def _describe(error: Unfit) -> str:
    names = error.path[::-1]
    if len(names) > _LONGEST_PATH:
        names = [*names[: _LONGEST_PATH // 2], "…", *names[-_LONGEST_PATH // 2 :]]
    path = ".".join(names).replace(".[", "[")
    return f"expected {error.expected}{' at ' + path if path else ''}, not {error.found}"


def begin_small(text: str) -> str:
    """Return a sentence as part of another; JSON stays as it is."""
    return text[:1].lower() + text[1:] if text[1:2].islower() else text
