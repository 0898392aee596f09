"""Payloads that no honest sender makes: OTLP requests damaged byte by byte, or field by field with
all lengths put right again, so that the damage reaches the inner messages.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

VARINT, FIXED64, LENGTH, START_GROUP, END_GROUP, FIXED32 = range(6)
_ABSURD = (
    b"\xff" * 9 + b"\x01",
    b"\x80" * 10,
    b"\x0b",
    b"\x0c",
    b"\x4b" * 5,
    b"\x00",
    b"\xff\xff\xff\xff\x0f",
)


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def field(number: int, content: bytes, kind: int = LENGTH) -> bytes:
    """A field with its tag and, if it is of that kind, its length."""
    length = varint(len(content)) if kind == LENGTH else b""
    return varint(number << 3 | kind) + length + content


@dataclass
class Node:
    """A field of a message that was taken apart; what holds a message has children."""

    number: int
    kind: int
    content: bytes | list[Node]

    def encode(self) -> bytes:
        content = self.content if isinstance(self.content, bytes) else encode(self.content)
        return field(self.number, content, self.kind)


def encode(nodes: list[Node]) -> bytes:
    return b"".join(node.encode() for node in nodes)


def take_apart(payload: bytes, descriptor: Any) -> list[Node]:
    """The fields of a well-formed message."""
    nodes = []
    place = 0
    while place < len(payload):
        tag, place = _varint_at(payload, place)
        kind, begin = tag & 7, place
        if kind == VARINT:
            _, place = _varint_at(payload, place)
        elif kind == LENGTH:
            size, begin = _varint_at(payload, place)
            place = begin + size
        else:
            place += 8 if kind == FIXED64 else 4
        known = descriptor.fields_by_number.get(tag >> 3)
        content: bytes | list[Node] = payload[begin:place]
        if known is not None and known.message_type is not None:
            content = take_apart(payload[begin:place], known.message_type)
        nodes.append(Node(tag >> 3, kind, content))
    return nodes


def _varint_at(payload: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = payload[place]
        number |= (byte & 0x7F) << shift
        place += 1
        shift += 7
        if byte < 0x80:
            return number, place


def damage_bytes(payload: bytes, rng: random.Random) -> bytes:
    """The payload with a few bytes changed, lost, doubled or put in."""
    damaged = bytearray(payload)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        place = rng.randrange(len(damaged) + 1)
        size = rng.choice((1, 2, 5, 50))
        match rng.randrange(6):
            case 0:
                damaged[place : place + 1] = rng.randbytes(1)
            case 1:
                del damaged[place : place + size]
            case 2:
                damaged[place:place] = rng.randbytes(size)
            case 3:
                del damaged[place:]
            case 4:
                damaged[place:place] = damaged[:size]
            case 5:
                damaged[place:place] = rng.choice(_ABSURD)
    return bytes(damaged)


def damage_fields(payload: bytes, descriptor: Any, rng: random.Random) -> bytes:
    """The payload with a few fields changed, lost, doubled, moved or put in; lengths are right."""
    nodes = take_apart(payload, descriptor)
    for _ in range(rng.choice((1, 1, 2, 4))):
        siblings = _descend(nodes, rng)
        if siblings:
            _DAMAGES[rng.randrange(len(_DAMAGES))](siblings, rng.randrange(len(siblings)), rng)
    return encode(nodes)


def _descend(nodes: list[Node], rng: random.Random) -> list[Node]:
    """A message somewhere in the tree, rather deep inside."""
    inner = [node.content for node in nodes if isinstance(node.content, list) and node.content]
    return _descend(rng.choice(inner), rng) if inner and rng.random() < 0.8 else nodes


def _double(siblings: list[Node], place: int, rng: random.Random) -> None:
    siblings.insert(rng.randrange(len(siblings) + 1), siblings[place])


def _lose(siblings: list[Node], place: int, rng: random.Random) -> None:
    del siblings[place]


def _move(siblings: list[Node], place: int, rng: random.Random) -> None:
    siblings.insert(rng.randrange(len(siblings)), siblings.pop(place))


def _renumber(siblings: list[Node], place: int, rng: random.Random) -> None:
    node = siblings[place]
    siblings[place] = Node(rng.randrange(1, 18), node.kind, node.content)


def _retype(siblings: list[Node], place: int, rng: random.Random) -> None:
    kind = rng.choice((VARINT, FIXED64, LENGTH, FIXED32))
    content = {VARINT: varint(rng.getrandbits(64)), FIXED64: rng.randbytes(8)}
    siblings[place] = Node(siblings[place].number, kind, content.get(kind, rng.randbytes(4)))


def _randomize(siblings: list[Node], place: int, rng: random.Random) -> None:
    node = siblings[place]
    contents = {
        VARINT: varint(rng.getrandbits(rng.choice((1, 8, 32, 64)))),
        FIXED64: rng.randbytes(8),
        FIXED32: rng.randbytes(4),
    }
    content = contents.get(node.kind, rng.randbytes(rng.choice((0, 1, 3, 16, 200))))
    siblings[place] = Node(node.number, node.kind, content)


def _put_in(siblings: list[Node], place: int, rng: random.Random) -> None:
    number = rng.randrange(1, 30)
    group = field(number, field(1, b"\x05", VARINT) + field(number, b"", END_GROUP), START_GROUP)
    unknown = Node(number, VARINT, varint(rng.getrandbits(20)))
    # Bytes that stand for themselves: a field whose encoding is the content.
    siblings.insert(place, rng.choice((unknown, _Raw(group), _Raw(rng.choice(_ABSURD)))))


class _Raw(Node):
    def __init__(self, raw: bytes) -> None:
        super().__init__(0, 0, raw)

    def encode(self) -> bytes:
        assert isinstance(self.content, bytes)
        return self.content


_DAMAGES: list[Callable[[list[Node], int, random.Random], None]] = [
    _double,
    _lose,
    _move,
    _renumber,
    _retype,
    _randomize,
    _put_in,
]


def nested_value(depth: int) -> bytes:
    """The bytes of an AnyValue that holds an array that holds a value, so many times over."""
    # Built from the inside; lengths are kept apart from the (growing) content.
    content = b"\x0a\x01x"
    parts = [content]
    size = len(content)
    for _ in range(depth):
        for number in (1, 5):
            head = varint(number << 3 | LENGTH) + varint(size)
            parts.append(head)
            size += len(head)
    return b"".join(reversed(parts))
