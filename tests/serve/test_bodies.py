"""Bodies are bounded before and after decompression, whatever their senders claim."""

from __future__ import annotations

import asyncio
import gzip
import random
import tracemalloc
from collections.abc import AsyncIterator

import pytest

from lakebed.errors import BadPayload, PayloadTooLarge, UnsupportedContent
from lakebed.serve.bodies import read_body

MIB = 1 << 20


def read(
    body: bytes, encoding: str | None = None, *, length: str | None = None, piece: int = 1000
) -> bytes:
    async def chunks() -> AsyncIterator[bytes]:
        for begin in range(0, len(body), piece):
            yield body[begin : begin + piece]

    return asyncio.run(read_body(chunks(), encoding, length, MIB))


@pytest.mark.parametrize("piece", [1, 7, 1000, 10 * MIB])
def test_bodies_come_out_as_they_were(piece: int) -> None:
    data = random.Random(1).randbytes(3000) + bytes(3000)
    assert read(data, piece=piece) == data
    assert read(gzip.compress(data), "gzip", piece=piece) == data
    assert read(gzip.compress(data[:10]) + gzip.compress(data[10:]), "GZIP", piece=piece) == data
    assert read(b"", "identity") == b""


def test_too_much_is_refused_before_and_after() -> None:
    assert len(read(bytes(MIB))) == MIB
    for body, encoding in ((bytes(MIB + 1), None), (gzip.compress(bytes(MIB + 1)), "gzip")):
        with pytest.raises(PayloadTooLarge):
            read(body, encoding)
    with pytest.raises(PayloadTooLarge):
        read(b"small", length=str(MIB + 1))
    assert read(b"small", length="nonsense") == b"small"


def test_a_bomb_does_not_go_off() -> None:
    bomb = gzip.compress(bytes(300 * MIB), 9)
    assert len(bomb) < MIB
    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooLarge):
            read(bomb, "gzip")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB


def test_what_is_no_gzip_is_refused() -> None:
    whole = gzip.compress(b"hello" * 100)
    for broken in (b"hello", whole[:-4], whole + b"junk", b"\x1f\x8b" + bytes(20), b""):
        with pytest.raises(BadPayload):
            read(broken, "gzip")


@pytest.mark.parametrize("encoding", ["br", "deflate", "gzip, gzip", "zstd"])
def test_other_encodings_are_refused(encoding: str) -> None:
    with pytest.raises(UnsupportedContent, match="gzip" if "gzip" in encoding else encoding):
        read(b"x", encoding)
