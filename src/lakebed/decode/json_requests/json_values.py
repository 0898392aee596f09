"""The single values of OTLP/JSON, and their bytes in protobuf's wire format."""

from __future__ import annotations

import binascii
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5

_IDS = frozenset({"trace_id", "span_id", "parent_span_id"})
_INTEGER = re.compile(r"-?[0-9]{1,20}")
_NUMBER = re.compile(r"-?[0-9]{1,400}(\.[0-9]{1,400})?([eE][+-]?[0-9]{1,9})?")
_SPECIAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_LONGEST_SHOWN = 40


class Unfit(ValueError):
    """A value that its field cannot hold; ``path`` grows from the inside out."""

    def __init__(self, expected: str, value: Any) -> None:
        super().__init__(expected)
        self.expected = expected
        self.found = _show(value)
        self.path: list[str] = []


@dataclass(frozen=True, slots=True)
class ScalarWriter:
    """The encoding of one kind of field: its wire type, and a writer of its bytes without tag and
    length."""

    wire_type: int
    write: Callable[[Any], bytes]


def scalar_writer(field: Any) -> ScalarWriter:
    """The writer for a field that holds no message."""
    kind = field.type
    if field.enum_type is not None:
        numbers = {value.name: value.number for value in field.enum_type.values}
        return ScalarWriter(VARINT, lambda value: _write_enum(value, numbers))
    if kind == field.TYPE_BYTES:
        if field.name == "bytes_value":
            return ScalarWriter(LENGTH_DELIMITED, _write_base64)
        return ScalarWriter(LENGTH_DELIMITED, _write_hex if field.name in _IDS else _write_text)
    if kind == field.TYPE_BOOL:
        return ScalarWriter(VARINT, _write_bool)
    if kind == field.TYPE_DOUBLE:
        return ScalarWriter(FIXED64, _write_double)
    low, high, wire_type, write = {
        field.TYPE_INT32: (-(1 << 31), 1 << 31, VARINT, encode_varint),
        field.TYPE_INT64: (-(1 << 63), 1 << 63, VARINT, encode_varint),
        field.TYPE_UINT32: (0, 1 << 32, VARINT, encode_varint),
        field.TYPE_UINT64: (0, 1 << 64, VARINT, encode_varint),
        field.TYPE_SINT32: (-(1 << 31), 1 << 31, VARINT, _encode_zigzag),
        field.TYPE_FIXED32: (0, 1 << 32, FIXED32, struct.Struct("<I").pack),
        field.TYPE_FIXED64: (0, 1 << 64, FIXED64, struct.Struct("<Q").pack),
        field.TYPE_SFIXED64: (-(1 << 63), 1 << 63, FIXED64, struct.Struct("<q").pack),
    }[kind]
    return ScalarWriter(wire_type, lambda value: write(read_integer(value, low, high)))


def encode_varint(number: int) -> bytes:
    """A base-128 varint; negative numbers take ten bytes, as protobuf wants."""
    number &= 0xFFFF_FFFF_FFFF_FFFF
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


_SHORT = [encode_varint(number) for number in range(1024)]


def encode_length(length: int) -> bytes:
    """The varint of a length or tag; most are short and looked up."""
    return _SHORT[length] if length < 1024 else encode_varint(length)


def read_integer(value: Any, low: int, high: int) -> int:
    """A whole number from ``low`` up to, not including, ``high``, given as a number or a text."""
    if type(value) is str and _INTEGER.fullmatch(value):
        number = int(value)
    elif type(value) is int:
        number = value
    elif type(value) is float and value.is_integer():
        number = int(value)
    else:
        raise Unfit("a whole number", value)
    if not low <= number < high:
        raise Unfit(f"a whole number of {(high - low).bit_length() - 1} bits", value)
    return number


def _encode_zigzag(number: int) -> bytes:
    return encode_varint(number << 1 ^ number >> 31)


def _write_text(value: Any) -> bytes:
    if type(value) is not str:
        raise Unfit("a text", value)
    return value.encode()


def _write_bool(value: Any) -> bytes:
    if type(value) is not bool:
        raise Unfit("true or false", value)
    return b"\1" if value else b"\0"


_pack_double = struct.Struct("<d").pack


def _write_double(value: Any) -> bytes:
    if type(value) is float:
        return _pack_double(value)
    if type(value) is str:
        special = _SPECIAL.get(value)
        if special is not None:
            return _pack_double(special)
        if _NUMBER.fullmatch(value):
            number = float(value)
            if math.isfinite(number):
                return _pack_double(number)
    elif type(value) is int:
        try:
            return _pack_double(float(value))
        except OverflowError:
            pass
    raise Unfit("a number that a double can hold", value)


def _write_hex(value: Any) -> bytes:
    if type(value) is str:
        try:
            return binascii.unhexlify(value)
        except ValueError:
            pass
    raise Unfit("an even number of hexadecimal digits", value)


def _write_base64(value: Any) -> bytes:
    """Standard or URL-safe, with or without padding."""
    if type(value) is str:
        text = value.rstrip("=").replace("-", "+").replace("_", "/")
        try:
            return binascii.a2b_base64(text + "=" * (-len(text) % 4), strict_mode=True)
        except ValueError:
            pass
    raise Unfit("base64", value)


def _write_enum(value: Any, numbers: dict[str, int]) -> bytes:
    if type(value) is str and value in numbers:
        return encode_varint(numbers[value])
    return encode_varint(read_integer(value, -(1 << 31), 1 << 31))


def _show(value: Any) -> str:
    """A value in an error's line: its kind if it is large, itself if it is small."""
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = ascii(value).replace("'", '"') if isinstance(value, str) else _show_number(value)
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"


def _show_number(value: float) -> str:
    # Python refuses to write out integers of thousands of digits.
    return repr(value) if isinstance(value, float) or value.bit_length() < 256 else "a huge number"
