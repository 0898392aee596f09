"""Footers survive the way from a file, or from an adopted catalog, to pyarrow byte for byte."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from functools import cache
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakebed.errors import BadInput, DamagedFooter
from lakebed.storage import footer

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
INDEX_POINTERS = (4, 5, 6, 7)
PATH = "views/log_entries/part.parquet"

# ---- an independent decoder and encoder: {id: (type, value)}, (type, [values]), (types, pairs)


def decode(data: bytes) -> tuple[dict[int, Any], int]:
    return _decode_struct(data, 0)


def _varint(data: bytes, pos: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[pos] & 0x7F) << shift
        shift += 7
        pos += 1
        if data[pos - 1] < 0x80:
            return value, pos


def _zigzag(data: bytes, pos: int) -> tuple[int, int]:
    value, pos = _varint(data, pos)
    return (value >> 1) ^ -(value & 1), pos


def _decode_struct(data: bytes, pos: int) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    number = 0
    while data[pos]:
        delta, wire = data[pos] >> 4, data[pos] & 15
        number, pos = (number + delta, pos + 1) if delta else _zigzag(data, pos + 1)
        assert number not in fields
        if wire in (TRUE, FALSE):
            fields[number] = (TRUE, wire == TRUE)
        else:
            value, pos = _decode_value(data, pos, wire)
            fields[number] = (wire, value)
    return fields, pos + 1


def _decode_value(data: bytes, pos: int, wire: int) -> tuple[Any, int]:
    if wire in (TRUE, FALSE, BYTE):
        return data[pos], pos + 1
    if wire in (I16, I32, I64):
        return _zigzag(data, pos)
    if wire == DOUBLE:
        return data[pos : pos + 8], pos + 8
    if wire == BINARY:
        length, pos = _varint(data, pos)
        return data[pos : pos + length], pos + length
    if wire == STRUCT:
        return _decode_struct(data, pos)
    if wire == MAP:
        count, pos = _varint(data, pos)
        if not count:
            return ((), []), pos
        types, pos = (data[pos] >> 4, data[pos] & 15), pos + 1
        pairs = []
        for _ in range(count):
            key, pos = _decode_value(data, pos, types[0])
            value, pos = _decode_value(data, pos, types[1])
            pairs.append((key, value))
        return (types, pairs), pos
    assert wire in (LIST, SET)
    count, element, pos = data[pos] >> 4, data[pos] & 15, pos + 1
    if count == 15:
        count, pos = _varint(data, pos)
    values = []
    for _ in range(count):
        value, pos = _decode_value(data, pos, element)
        values.append(value)
    return (element, values), pos


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def zigzag(value: int) -> bytes:
    return varint((value << 1) ^ (value >> 63))


def encode(fields: dict[int, Any], *, long_form: bool = False) -> bytes:
    out = bytearray()
    last = 0
    for number, (wire, value) in fields.items():
        kind = wire if wire not in (TRUE, FALSE) else (TRUE if value else FALSE)
        if 0 < number - last <= 15 and not long_form:
            out.append((number - last) << 4 | kind)
        else:
            out += bytes((kind,)) + zigzag(number)
        if wire not in (TRUE, FALSE):
            out += encode_value(wire, value, long_form)
        last = number
    return bytes((*out, 0))


def encode_value(wire: int, value: Any, long_form: bool = False) -> bytes:
    if wire in (TRUE, FALSE, BYTE):
        return bytes((value,))
    if wire in (I16, I32, I64):
        return zigzag(value)
    if wire == DOUBLE:
        return bytes(value)
    if wire == BINARY:
        return varint(len(value)) + value
    if wire == STRUCT:
        return encode(value, long_form=long_form)
    if wire == MAP:
        types, pairs = value
        if not pairs:
            return b"\0"
        body = b"".join(
            encode_value(types[0], key, long_form) + encode_value(types[1], each, long_form)
            for key, each in pairs
        )
        return varint(len(pairs)) + bytes((types[0] << 4 | types[1],)) + body
    element, values = value
    head = bytes((len(values) << 4 | element,))
    if len(values) > 14:
        head = bytes((0xF0 | element,)) + varint(len(values))
    return head + b"".join([encode_value(element, each, long_form) for each in values])
