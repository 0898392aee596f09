"""Request bodies, read and decompressed within limits. The size is checked before and after
decompression and counted while it grows, so neither a false header nor a compression bomb can fill
the memory.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol

from lakebed.errors import BadPayload, Busy, PayloadTooLarge, UnsupportedEncoding
from lakebed.serve.limits import MOST_BYTES, STALL_SECONDS

_PIECE_BYTES = 1 << 20
_MAX_PARTS = 10_000
_SNAPPY_HEADER = b"\xff\x06\x00\x00sNaPpY"
_SNAPPY_CHUNK_BYTES = 65_536
Count = Callable[[int], None]
"""Adds bytes to what a request keeps in memory; may raise `Busy`."""


async def without_stalling(
    chunks: AsyncIterator[bytes], seconds: float = STALL_SECONDS
) -> AsyncIterator[bytes]:
    """Yield the same chunks. Raise `Busy` if the next one takes longer than ``seconds``."""
    try:
        while True:
            async with asyncio.timeout(seconds):
                chunk = await anext(chunks)
            yield chunk
    except StopAsyncIteration:
        return
    except TimeoutError:
        raise Busy(f"nothing of the body came for {seconds:g} s", hint="send it again") from None


async def read_body(
    chunks: AsyncIterator[bytes],
    encodings: Sequence[str] = (),
    length: str | None = None,
    most_bytes: int = MOST_BYTES,
    count: Count = lambda _size: None,
) -> bytes:
    """Return the whole body, decompressed. ``encodings`` are the Content-Encoding headers.

    Raise `PayloadTooLarge` as soon as the body exceeds the limit, compressed or not,
    `UnsupportedEncoding` for other encodings, and `BadPayload` for damaged ones.
    """
    if length is not None and length.isdigit() and int(length) > most_bytes:
        raise _too_large(most_bytes)
    decoder = _make_decoder(encodings, most_bytes, count)
    received_bytes = 0
    async for chunk in chunks:
        received_bytes += len(chunk)
        if received_bytes > most_bytes:
            raise _too_large(most_bytes)
        decoder.add(chunk)
    return await decoder.finish()


class _Decoder(Protocol):
    def add(self, chunk: bytes) -> None: ...
    async def finish(self) -> bytes: ...


def _make_decoder(encodings: Sequence[str], max_bytes: int, count: Count) -> _Decoder:
    """Return the decoder for the Content-Encoding headers; ``identity`` means none."""
    names = [name.strip().lower() for header in encodings for name in header.split(",")]
    names = [name for name in names if name not in ("", "identity")]
    if len(names) > 1:
        raise UnsupportedEncoding(
            f"the body has several content encodings: {', '.join(names)}", tuple(_DECODERS)
        )
    if not names:
        return _Plain(count)
    if names[0] not in _DECODERS:
        raise UnsupportedEncoding(
            f"content encoding {names[0]!r:.60} is not supported", tuple(_DECODERS)
        )
    return _DECODERS[names[0]](max_bytes, count)


class _Plain:
    def __init__(self, count: Count) -> None:
        self._parts: list[bytes] = []
        self._count = count

    def add(self, chunk: bytes) -> None:
        self._count(len(chunk))
        self._parts.append(chunk)

    async def finish(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


class _Output:
    """Decompressed pieces, counted and limited."""

    def __init__(self, max_bytes: int, count: Count) -> None:
        self._max_bytes = max_bytes
        self._count = count
        self._size = 0
        self._pieces: list[bytes] = []

    def reserve(self, size: int) -> None:
        """Count bytes that are about to be decompressed."""
        self._size += size
        if self._size > self._max_bytes:
            raise _too_large(self._max_bytes)
        self._count(size)

    def add(self, piece: bytes) -> None:
        """Keep bytes that are counted already."""
        self._pieces.append(piece)

    def append(self, piece: bytes) -> None:
        self.reserve(len(piece))
        self.add(piece)

    def join(self) -> bytes:
        return b"".join(self._pieces)


class _Zlib:
    """Inflates gzip or zlib (``deflate`` in HTTP) chunk by chunk."""

    def __init__(self, max_bytes: int, count: Count, *, gzip: bool) -> None:
        self._name = "gzip" if gzip else "zlib"
        self._window_bits = zlib.MAX_WBITS + (16 if gzip else 0)
        self._output = _Output(max_bytes, count)
        self._members = 1
        self._member = zlib.decompressobj(self._window_bits)

    def add(self, chunk: bytes) -> None:
        try:
            while chunk:
                if self._member.eof:
                    self._begin_member()
                self._output.append(self._member.decompress(chunk, _PIECE_BYTES))
                chunk = self._member.unconsumed_tail or self._member.unused_data
        except zlib.error as error:
            raise BadPayload(f"the body is not {self._name}: {error}") from None

    def _begin_member(self) -> None:
        """Begin the next member: a gzip stream may have several, a zlib stream may not."""
        if self._name != "gzip":
            raise BadPayload("the zlib body has bytes after its end")
        self._members += 1
        if self._members > _MAX_PARTS:  # an empty member costs time too
            raise BadPayload(
                f"the gzip body has more than {_MAX_PARTS:,} members",
                hint="compress it as one member",
            )
        self._member = zlib.decompressobj(self._window_bits)

    async def finish(self) -> bytes:
        if not self._member.eof:
            raise BadPayload(f"the {self._name} body is truncated")
        return self._output.join()


class _Collected:
    """Collects the compressed body and decompresses it on a thread, in pieces.

    The event loop counts each piece before the next one is made, so a cancelled request leaves no
    thread that still counts.
    """

    def __init__(self, max_bytes: int, count: Count) -> None:
        self._max_bytes = max_bytes
        self._count = count
        self._body = bytearray()

    def add(self, chunk: bytes) -> None:
        self._count(len(chunk))
        self._body += chunk


class _Frames(_Collected):
    """Decompresses frames of zstd or lz4 with Arrow."""

    def __init__(self, max_bytes: int, count: Count, *, codec: str) -> None:
        super().__init__(max_bytes, count)
        self._codec = codec

    async def finish(self) -> bytes:
        import pyarrow as pa

        if not self._body:
            raise BadPayload(f"the {self._codec} body is empty")
        output = _Output(self._max_bytes, self._count)
        stream = pa.CompressedInputStream(pa.BufferReader(self._body), self._codec)

        def read_piece() -> bytes:
            try:
                return bytes(stream.read(_PIECE_BYTES))
            except OSError as error:
                raise BadPayload(f"the body is not {self._codec}: {error}") from None

        while piece := await asyncio.to_thread(read_piece):
            output.append(piece)
        return output.join()


class _Snappy(_Collected):
    """Decompresses a snappy block, or the framing format, which its first bytes tell apart.

    Older OpenTelemetry Collectors send the framing format as ``snappy``, newer ones the block. The
    framing format's checksums are not verified, because no dependency computes CRC-32C.
    """

    def __init__(self, max_bytes: int, count: Count, *, framed: bool) -> None:
        super().__init__(max_bytes, count)
        self._framed = framed

    async def finish(self) -> bytes:
        output = _Output(self._max_bytes, self._count)
        if self._framed or self._body.startswith(_SNAPPY_HEADER):
            for compressed, chunk in _iterate_snappy_chunks(memoryview(self._body)):
                if compressed:
                    if _read_snappy_size(chunk) > _SNAPPY_CHUNK_BYTES:
                        raise BadPayload("a chunk of the snappy body has more than 64 KiB")
                    await self._decompress(chunk, output)
                else:
                    output.append(bytes(chunk))
        else:
            await self._decompress(memoryview(self._body), output)
        return output.join()

    async def _decompress(self, block: memoryview, output: _Output) -> None:
        """Decompress a block, whose declared size is checked before memory is allocated."""
        import pyarrow as pa

        size = _read_snappy_size(block)
        output.reserve(size)
        decompress = partial(pa.decompress, block, size, "snappy", asbytes=True)
        try:
            output.add(await asyncio.to_thread(decompress))
        except (OSError, pa.ArrowInvalid) as error:
            raise BadPayload(f"the body is not snappy: {error}") from None


def _read_snappy_size(block: memoryview) -> int:
    """Return the decompressed size that a block declares: a varint of at most 32 bits."""
    size = 0
    for position, byte in enumerate(block[:5]):
        size |= (byte & 0x7F) << (7 * position)
        if byte < 0x80:
            return size
    raise BadPayload("the body is not snappy: no size at its start")


def _iterate_snappy_chunks(body: memoryview) -> Iterator[tuple[bool, memoryview]]:
    """Yield the data chunks of the framing format, and whether they are compressed."""
    if body[: len(_SNAPPY_HEADER)] != _SNAPPY_HEADER:
        raise BadPayload("the body is not framed snappy: no stream identifier at its start")
    position = 0
    for _ in range(_MAX_PARTS):
        header = body[position : position + 4]
        if not header:
            return
        end = position + 4 + int.from_bytes(header[1:], "little")
        chunk = body[position + 4 : end]
        if len(header) < 4 or end > len(body):
            raise BadPayload("the snappy body is truncated")
        if header[0] in (0, 1):
            if len(chunk) < 4:
                raise BadPayload("a chunk of the snappy body lacks its checksum")
            yield header[0] == 0, chunk[4:]
        elif header[0] < 0x80:
            raise BadPayload(f"a chunk of the snappy body has the unknown type {header[0]}")
        position = end
    raise BadPayload(f"the snappy body has more than {_MAX_PARTS:,} chunks")


_DECODERS: Mapping[str, Callable[[int, Count], _Decoder]] = {
    "gzip": partial(_Zlib, gzip=True),
    "x-gzip": partial(_Zlib, gzip=True),
    "deflate": partial(_Zlib, gzip=False),
    "zlib": partial(_Zlib, gzip=False),
    "zstd": partial(_Frames, codec="zstd"),
    "lz4": partial(_Frames, codec="lz4"),
    "snappy": partial(_Snappy, framed=False),
    "x-snappy-framed": partial(_Snappy, framed=True),
}
"""By Content-Encoding: everything that an OpenTelemetry Collector sends over HTTP."""


def _too_large(most_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the body has more than {most_bytes >> 20} MiB, compressed or not",
        hint="send it in several requests",
    )
