"""Damage for the tests of reading: mutated bytes from a seed that is printed and replayable."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator
from typing import Any

from tests.conftest import CAMPAIGN


def replayable() -> random.Random:
    """A source of numbers; its seed is printed, and LAKEBED_SEED replays it."""
    chosen = random.SystemRandom().getrandbits(32) if CAMPAIGN else 1
    seed = int(os.environ.get("LAKEBED_SEED", chosen))
    sys.stdout.write(f"seed {seed}; replay with LAKEBED_SEED={seed}\n")
    return random.Random(seed)


def mutations(data: bytes, chance: random.Random, count: int) -> Iterator[bytes]:
    """The data with bytes changed, removed, repeated or moved, so many times over."""
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(chance.choice((1, 1, 2, 8))):
            at = chance.randrange(len(changed) + 1)
            match chance.randrange(5):
                case 0 if at < len(changed):
                    changed[at] ^= 1 << chance.randrange(8)
                case 1 if at < len(changed):
                    changed[at] = chance.choice((0, 0x7F, 0x80, 0xFF, 0x22, 0x5B, 0x7B))
                case 2:
                    del changed[at : at + chance.randrange(1, 20)]
                case 3:
                    changed[at:at] = chance.randbytes(chance.randrange(1, 12))
                case 4:
                    changed[at:at] = changed[at : at + chance.randrange(1, 200)]
        yield bytes(changed)


def replace_one(value: Any, chance: random.Random) -> Any:
    """The JSON value with one random part of it exchanged for something else."""
    odd = (None, True, 0, -1, 1 << 64, 1 << 200, 1.5, 1e308, "", "x", "-1", "NaN", [], {}, [[]])
    while isinstance(value, (dict, list)) and value and chance.random() < 0.93:
        keys = list(value) if isinstance(value, dict) else range(len(value))
        key = chance.choice(keys)
        if chance.random() < 0.15 or not isinstance(value[key], (dict, list)):
            value[key] = chance.choice(odd)
            break
        value = value[key]
    return value


def nested_any_value(depth: int) -> bytes:
    """The protobuf bytes of an AnyValue that holds arrays of arrays, so many deep."""
    encoded = b""
    for _ in range(depth):
        encoded = delimited(5, delimited(1, encoded))
    return encoded


def delimited(number: int, body: bytes) -> bytes:
    """A length-delimited field."""
    length = len(body)
    written = bytearray([number << 3 | 2])
    while length > 0x7F:
        written.append(length & 0x7F | 0x80)
        length >>= 7
    written.append(length)
    return bytes(written) + body
