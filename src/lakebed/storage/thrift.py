"""A bounds-checked walker over Thrift compact protocol bytes, the encoding of a Parquet footer.

It never builds a value tree: it finds where each field starts and ends, so that ``footer.py`` can
cut and insert fields while every other byte, known to Parquet or not, stays as it was written.
Work and memory are linear in the input, independent of the sizes that it declares.

Compact protocol: https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_DEPTH = 64
MAX_VARINT_BYTES = 10
MAX_FIELD_ID = 0x7FFF  # a decoder that wraps would take a higher one for a known field
EVERY_FIELD = range(-MAX_FIELD_ID - 1, MAX_FIELD_ID + 1)

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT, UUID = range(1, 14)

_FIXED_BYTES = {TRUE: 1, FALSE: 1, BYTE: 1, DOUBLE: 8, UUID: 16}  # in a container, bools too
_BITS = {I16: 16, I32: 32, I64: 64}


class ThriftError(ValueError):
    """The bytes are not the expected struct; ``footer.py`` converts this to a domain error."""


class Span(NamedTuple):
    """The offsets of a struct's field: its header at ``start``, then ``value`` up to ``end``."""

    field_id: int
    wire: int
    start: int
    value: int
    end: int


class Edit(NamedTuple):
    """Bytes to put in place of those from ``start`` to ``end``."""

    start: int
    end: int
    replacement: bytes


@dataclass(frozen=True, slots=True)
class Kind:
    """The type of a known field; ``element`` for lists, ``shape`` for structs worth checking."""

    wire: int
    shape: Shape | None = None
    element: Kind | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """The known fields of a struct; fields that are not listed may hold anything well-formed.

    Fields whose ids are in ``watched`` are shown to the visitor.
    """

    name: str
    fields: Mapping[int, Kind]
    required: Set[int] = frozenset()
    watched: Container[int] = ()
    required_bits: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "required_bits", sum(1 << number for number in self.required))


Visitor = Callable[[Shape, list[Span]], None]


def walk(data: bytes, shape: Shape, visit: Visitor, start: int = 0) -> int:
    """Check the struct at ``start`` and return the offset behind its stop byte.

    ``visit`` gets the watched fields of every struct that watches any, inner structs first. Raises
    ``ThriftError`` when the bytes end early, nest deeper than ``MAX_DEPTH``, claim more
    elements than bytes remain, or when a known field repeats, has another type, or is required and
    missing.
    """
    try:
        return _walk_struct(data, start, shape, visit, 1)
    except IndexError:
        raise ThriftError("the bytes end inside a value") from None


def read_integer(data: bytes, span: Span) -> int:
    """Return the integer in ``span``, refusing what does not fit the width of its type."""
    raw, _ = _read_varint(data, span.value)
    if raw >> _BITS[span.wire]:
        raise ThriftError(f"an integer of {_BITS[span.wire]} bits at offset {span.value} overflows")
    return (raw >> 1) ^ -(raw & 1)


def read_length(data: bytes, span: Span) -> int:
    """Return how many bytes the string, or how many elements the list, in ``span`` holds."""
    if span.wire == BINARY:
        return _read_varint(data, span.value)[0]
    return _list_header(data, span.value)[1]


def read_strings(data: bytes, span: Span) -> list[bytes]:
    """Return the strings of the list in ``span``."""
    _, count, pos = _list_header(data, span.value)
    strings = []
    for _ in range(count):
        length, pos = _read_varint(data, pos)
        strings.append(bytes(data[pos : pos + length]))
        pos += length
    return strings


def encode_integer(value: int) -> bytes:
    """Return a zigzag varint; ``value`` must fit 64 bits."""
    return _encode_varint((value << 1) ^ (value >> 63))


def encode_header(field_id: int, wire: int, *, after: int) -> bytes:
    """Return a field's header, short when its id follows ``after`` closely enough."""
    delta = field_id - after
    if 0 < delta <= 15:
        return bytes((delta << 4 | wire,))
    return bytes((wire,)) + encode_integer(field_id)


def moved_header(data: bytes, span: Span, *, before: int, after: int) -> bytes:
    """Return a field's header once the field in front of it is ``after``, not ``before``.

    A header that spells its id out stays as it is, and so does one whose predecessor stays.
    """
    if before == after or data[span.start] <= 0x0F:
        return data[span.start : span.value]
    return encode_header(span.field_id, span.wire, after=after)


def apply_edits(data: bytes, edits: list[Edit]) -> bytes:
    """Return ``data`` with every edit done; edits must not overlap."""
    view = memoryview(data)
    parts: list[bytes | memoryview] = []
    pos = 0
    for start, end, replacement in sorted(edits):
        parts += (view[pos:start], replacement)
        pos = end
    parts.append(view[pos:])
    return b"".join(parts)


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, pos: int) -> tuple[int, int]:
    value = data[pos]
    if value < 0x80:
        return value, pos + 1
    value &= 0x7F
    for index in range(1, MAX_VARINT_BYTES):
        byte = data[pos + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, pos + index + 1
    raise ThriftError(f"the varint at offset {pos} is longer than {MAX_VARINT_BYTES} bytes")


def _read_long_id(data: bytes, pos: int) -> tuple[int, int]:
    raw, end = _read_varint(data, pos)
    if raw > 0xFFFF:
        raise ThriftError(f"the field id at offset {pos} does not fit 16 bits")
    return (raw >> 1) ^ -(raw & 1), end


def _list_header(data: bytes, pos: int) -> tuple[int, int, int]:
    """Return element type, count and the offset of the first element."""
    head = data[pos]
    wire = head & 0x0F
    count = head >> 4
    pos += 1
    if count == 15:
        count, pos = _read_varint(data, pos)
    _check_claim(data, pos, count, wire)
    return wire, count, pos


def _check_claim(data: bytes, pos: int, count: int, wire: int) -> None:
    """Refuse a container whose elements, at one byte each or more, cannot all be there."""
    if count and not TRUE <= wire <= UUID:  # of an empty list, some writers leave it out
        raise ThriftError(f"unknown type {wire} of a container at offset {pos}")
    remaining = len(data) - pos
    if count * _FIXED_BYTES.get(wire, 1) > remaining:
        raise ThriftError(
            f"a container at offset {pos} claims {count} elements where {remaining} bytes remain"
        )


def _check_depth(pos: int, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise ThriftError(f"nested deeper than {MAX_DEPTH} levels at offset {pos}")


def _walk_struct(data: bytes, pos: int, shape: Shape, visit: Visitor, depth: int) -> int:
    _check_depth(pos, depth)
    kinds = shape.fields
    watched = shape.watched
    spans: list[Span] = []
    seen_bits = 0
    field_id = 0
    while head := data[pos]:
        start = pos
        pos += 1
        wire = head & 0x0F
        if head > 0x0F:
            field_id += head >> 4
        else:
            field_id, pos = _read_long_id(data, pos)
        value = pos
        kind = kinds.get(field_id)
        if kind is None:
            if field_id > MAX_FIELD_ID:
                raise ThriftError(f"the field id at offset {start} does not fit 16 bits")
            pos = _skip_field(data, pos, wire, depth)
        else:
            bit = 1 << field_id
            if kind.wire != wire:
                raise ThriftError(
                    f"{shape.name} field {field_id} at offset {start} has type {wire}"
                    f" instead of {kind.wire}"
                )
            if seen_bits & bit:
                raise ThriftError(f"{shape.name} repeats field {field_id} at offset {start}")
            seen_bits |= bit
            if I16 <= wire <= I64:
                pos = pos + 1 if data[pos] < 0x80 else _read_varint(data, pos)[1]
            elif wire == BINARY:
                pos = _skip_binary(data, pos)
            elif wire == LIST and kind.element is not None:
                pos = _walk_list(data, pos, kind.element, visit, depth + 1)
            elif wire == STRUCT and kind.shape is not None:
                pos = _walk_struct(data, pos, kind.shape, visit, depth + 1)
            else:
                pos = _skip_field(data, pos, wire, depth)
        if field_id in watched:
            spans.append(Span(field_id, wire, start, value, pos))
    pos += 1
    if shape.required_bits & ~seen_bits:
        missing = sorted(number for number in shape.required if not seen_bits >> number & 1)
        raise ThriftError(f"{shape.name} before offset {pos} lacks field {missing[0]}")
    if watched:
        visit(shape, spans)
    return pos


def _walk_list(data: bytes, pos: int, element: Kind, visit: Visitor, depth: int) -> int:
    wire, count, first = _list_header(data, pos)
    if wire != element.wire and count:
        raise ThriftError(
            f"the list at offset {pos} holds elements of type {wire} instead of {element.wire}"
        )
    if element.shape is None:
        return _skip_elements(data, first, wire, count, depth)
    _check_depth(pos, depth)
    pos = first
    for _ in range(count):
        pos = _walk_struct(data, pos, element.shape, visit, depth + 1)
    return pos


def _skip_field(data: bytes, pos: int, wire: int, depth: int) -> int:
    """Return the offset behind a field's value; a bool field's value is in its header."""
    if wire in (TRUE, FALSE):
        return pos
    return _skip(data, pos, wire, depth)


def _skip(data: bytes, pos: int, wire: int, depth: int) -> int:
    if I16 <= wire <= I64:
        return _read_varint(data, pos)[1]
    if wire == BINARY:
        return _skip_binary(data, pos)
    if wire == STRUCT:
        return _skip_struct(data, pos, depth + 1)
    if wire in (LIST, SET):
        element, count, first = _list_header(data, pos)
        return _skip_elements(data, first, element, count, depth + 1)
    if wire == MAP:
        return _skip_map(data, pos, depth + 1)
    if wire in _FIXED_BYTES:  # a stop byte must follow: past the end it is missed there
        return pos + _FIXED_BYTES[wire]
    raise ThriftError(f"unknown type {wire} before offset {pos}")


def _skip_binary(data: bytes, pos: int) -> int:
    length, first = _read_varint(data, pos)
    remaining = len(data) - first
    if length > remaining:
        raise ThriftError(
            f"a string at offset {pos} claims {length} bytes where {remaining} remain"
        )
    return first + length


def _skip_struct(data: bytes, pos: int, depth: int) -> int:
    _check_depth(pos, depth)
    while head := data[pos]:
        pos += 1
        wire = head & 0x0F
        if head <= 0x0F:
            _, pos = _read_long_id(data, pos)
        if I16 <= wire <= I64 and data[pos] < 0x80:
            pos += 1
        else:
            pos = _skip_field(data, pos, wire, depth)
    return pos + 1


def _skip_elements(data: bytes, pos: int, wire: int, count: int, depth: int) -> int:
    _check_depth(pos, depth)
    if wire in _FIXED_BYTES:  # their claim was checked against the bytes that remain
        return pos + count * _FIXED_BYTES[wire]
    for _ in range(count):
        if I16 <= wire <= I64 and data[pos] < 0x80:
            pos += 1
        else:
            pos = _skip(data, pos, wire, depth)
    return pos


def _skip_map(data: bytes, pos: int, depth: int) -> int:
    _check_depth(pos, depth)
    count, pos = _read_varint(data, pos)
    if not count:
        return pos
    key, value = data[pos] >> 4, data[pos] & 0x0F
    pos += 1
    _check_claim(data, pos, count, key)
    _check_claim(data, pos, count, value)
    for _ in range(count):
        pos = _skip(data, pos, key, depth)
        pos = _skip(data, pos, value, depth)
    return pos
