"""Bodies are bounded before and after decompression, whatever their senders claim."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import random
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable

import pyarrow as pa
import pytest

from lakebed.errors import BadPayload, PayloadTooLarge, UnsupportedEncoding
from lakebed.serve.http._bodies import read_body

MIB = 1 << 20
FRAMED = b"\xff\x06\x00\x00sNaPpY"


class NoRoom(Exception):
    """Raised by a test's own count of bytes."""


def read(
    body: bytes,
    *encodings: str,
    length: str | None = None,
    piece: int = 1000,
    count: Callable[[int], None] = lambda _size: None,
) -> bytes:
    async def chunks() -> AsyncIterator[bytes]:
        for begin in range(0, len(body), piece):
            yield body[begin : begin + piece]

    return asyncio.run(read_body(chunks(), encodings, length, MIB, count))


def arrow(codec: str) -> Callable[[bytes], bytes]:
    return lambda data: pa.compress(data, codec, asbytes=True)


def frame_chunk(kind: int, data: bytes) -> bytes:
    """One chunk of snappy's framing format, with a checksum that nobody verifies."""
    return bytes([kind]) + (len(data) + 4).to_bytes(3, "little") + bytes(4) + data


def frame_snappy(data: bytes) -> bytes:
    """Compress as golang/snappy's buffered writer does: chunks of 64 KiB."""
    compress = arrow("snappy")
    parts = (data[begin : begin + 65_536] for begin in range(0, len(data), 65_536))
    return FRAMED + b"".join(
        frame_chunk(0, compress(part)) if number % 2 else frame_chunk(1, part)
        for number, part in enumerate(parts, 1)
    )


CODECS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "zlib": zlib.compress,
    "zstd": arrow("zstd"),
    "lz4": arrow("lz4"),
    "snappy": arrow("snappy"),
    "x-snappy-framed": frame_snappy,
}


@pytest.mark.parametrize("piece", [1, 7, 1000, 10 * MIB])
def test_bodies_come_out_as_they_were(piece: int) -> None:
    data = random.Random(1).randbytes(3000) + bytes(3000)
    assert read(data, piece=piece) == data
    assert read(gzip.compress(data[:10]) + gzip.compress(data[10:]), "GZIP", piece=piece) == data
    for codec, compress in CODECS.items():
        assert read(compress(data), codec, piece=piece) == data
    assert read(b"", "identity") == b""


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_body_of_any_size_within_the_limit_is_read(codec: str) -> None:
    for size in (0, 1, 65_535, 65_537, MIB):
        data = (random.Random(size).randbytes(size // 2) + bytes(size))[:size]
        compressed = CODECS[codec](data)
        if len(compressed) <= MIB:
            assert read(compressed, codec, piece=9999) == data


def test_framed_snappy_sent_as_snappy_is_read() -> None:
    """Older Collectors send it so."""
    data = random.Random(2).randbytes(100_000)
    skippable = b"\xfe" + (3).to_bytes(3, "little") + b"pad"
    assert read(frame_snappy(data), "snappy") == data
    assert read(frame_snappy(data) + skippable + FRAMED, "snappy") == data


def test_frames_that_follow_each_other_are_one_body() -> None:
    for codec in ("zstd", "lz4"):
        compress = CODECS[codec]
        assert read(compress(b"one ") + compress(b"two"), codec) == b"one two"


def test_too_much_is_refused_before_and_after() -> None:
    assert len(read(bytes(MIB))) == MIB
    for body, *encodings in (
        (bytes(MIB + 1),),
        *((compress(bytes(MIB + 1)), codec) for codec, compress in CODECS.items()),
    ):
        with pytest.raises(PayloadTooLarge):
            read(body, *encodings)
    with pytest.raises(PayloadTooLarge):
        read(b"small", length=str(MIB + 1))
    assert read(b"small", length="nonsense") == b"small"


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_does_not_go_off(codec: str) -> None:
    """Neither Python nor Arrow allocates what a small body expands to."""
    bomb = CODECS[codec](bytes(100 * MIB if codec != "x-snappy-framed" else 20 * MIB))
    bomb = bomb[:MIB]
    arrow_peak = pa.default_memory_pool().max_memory()
    tracemalloc.start()
    try:
        with pytest.raises(PayloadTooLarge):
            read(bomb, codec)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB
    assert pa.default_memory_pool().max_memory() - arrow_peak < 8 * MIB


def test_snappy_that_declares_too_much_is_refused_before_allocation() -> None:
    for declared in (b"\xff\xff\xff\xff\x0f", b"\x81\x80\x40"):
        with pytest.raises(PayloadTooLarge):
            read(declared + b"abc", "snappy")
    with pytest.raises(BadPayload, match="no size"):
        read(b"\xff" * 11, "snappy")
    with pytest.raises(BadPayload, match="64 KiB"):
        read(FRAMED + frame_chunk(0, b"\x81\x80\x04abc"), "snappy")


@pytest.mark.parametrize("codec", CODECS)
def test_garbage_and_truncated_bodies_are_refused(codec: str) -> None:
    whole = CODECS[codec](b"hello" * 100)
    for broken in (b"\x03hello", whole[:-1], whole[:-4], whole + b"junk", whole[:3], b""):
        with pytest.raises(BadPayload):
            read(broken, codec)
    for seed in range(200):  # nothing but our own errors, whatever the bytes are
        random_bytes = random.Random(seed)
        damaged = bytearray(whole)
        damaged[random_bytes.randrange(len(damaged))] ^= 1 << random_bytes.randrange(8)
        with contextlib.suppress(BadPayload, PayloadTooLarge):
            read(bytes(damaged), codec)


def test_many_small_parts_are_refused() -> None:
    """Each costs time, although it has no bytes."""
    with pytest.raises(BadPayload, match="10,000 members"):
        read(gzip.compress(b"") * 10_001, "gzip", piece=MIB)
    with pytest.raises(BadPayload, match="10,000 chunks"):
        read(FRAMED + b"\xfe\x00\x00\x00" * 10_001, "snappy", piece=MIB)


@pytest.mark.parametrize("codec", CODECS)
def test_decompressed_bytes_are_counted(codec: str) -> None:
    counted: list[int] = []
    data = bytes(900_000)
    assert read(CODECS[codec](data), codec, count=counted.append) == data
    assert sum(counted) >= len(data)

    def refuse(size: int) -> None:
        if size > 50_000:
            raise NoRoom

    with pytest.raises(NoRoom):
        read(CODECS[codec](data), codec, count=refuse)


@pytest.mark.parametrize("encodings", [["br"], ["gzip, gzip"], ["gzip", "zstd"], ["compress"]])
def test_other_encodings_are_refused_with_the_supported_ones(encodings: list[str]) -> None:
    with pytest.raises(UnsupportedEncoding, match=encodings[0]) as refused:
        read(b"x", *encodings)
    assert refused.value.encodings == tuple(CODECS)
    assert "snappy" in str(refused.value.hint)


def test_identity_beside_an_encoding_means_nothing() -> None:
    assert read(gzip.compress(b"x"), "identity, gzip") == b"x"
    assert read(gzip.compress(b"x"), "gzip", "identity") == b"x"
