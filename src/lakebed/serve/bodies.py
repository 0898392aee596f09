"""Bodies of requests: gzip or plain, and never more than so many bytes of either, however much is
claimed or compressed. Memory is bounded by that, and by what all bodies together may have, not by
what a sender says.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable

from lakebed.errors import BadPayload, PayloadTooLarge, UnsupportedContent
from lakebed.serve.answers import Busy

MOST_BYTES = 64 << 20
_GZIP = 16 + zlib.MAX_WBITS
_PIECE = 1 << 20
_MOST_MEMBERS = 10_000
STALL_SECONDS = 30.0


async def without_stalling(
    chunks: AsyncIterator[bytes], seconds: float = STALL_SECONDS
) -> AsyncIterator[bytes]:
    """The same chunks, while the next one comes in time."""
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
    encoding: str | None,
    length: str | None = None,
    most_bytes: int = MOST_BYTES,
    count: Callable[[int], None] = lambda _size: None,
) -> bytes:
    """The whole body, decompressed. `PayloadTooLarge` as soon as there is too much of it before or
    after that; `UnsupportedContent` for other encodings; `BadPayload` for what is no gzip. What is
    kept is counted when it comes, by somebody who may refuse it."""
    if length is not None and length.isdigit() and int(length) > most_bytes:
        raise _too_large(most_bytes)
    name = (encoding or "identity").strip().lower()
    if name not in ("", "identity", "gzip"):
        raise UnsupportedContent(
            f"bodies encoded as {name} are not taken", hint="send gzip, or no Content-Encoding"
        )
    opened = _Gunzip(most_bytes, count) if name == "gzip" else _Plain(count)
    taken = 0
    async for chunk in chunks:
        taken += len(chunk)
        if taken > most_bytes:
            raise _too_large(most_bytes)
        opened.add(chunk)
    return opened.finish()


class _Plain:
    def __init__(self, count: Callable[[int], None]) -> None:
        self._parts: list[bytes] = []
        self._count = count

    def add(self, chunk: bytes) -> None:
        self._count(len(chunk))
        self._parts.append(chunk)

    def finish(self) -> bytes:
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


class _Gunzip:
    """Inflates piece by piece, so that a small bomb is noticed before it has become large."""

    def __init__(self, most_bytes: int, count: Callable[[int], None]) -> None:
        self._most = most_bytes
        self._count = count
        self._size = self._members = 0
        self._parts: list[bytes] = []
        self._member = zlib.decompressobj(_GZIP)

    def add(self, chunk: bytes) -> None:
        try:
            while chunk:
                if self._member.eof:  # several members make up one stream
                    self._members += 1
                    if self._members == _MOST_MEMBERS:  # each costs, also if there is nothing in it
                        raise BadPayload(
                            f"the gzip body has more than {_MOST_MEMBERS:,} members",
                            hint="compress it at once",
                        )
                    self._member = zlib.decompressobj(_GZIP)
                part = self._member.decompress(chunk, _PIECE)
                self._size += len(part)
                if self._size > self._most:
                    raise _too_large(self._most)
                self._count(len(part))
                self._parts.append(part)
                chunk = self._member.unconsumed_tail or self._member.unused_data
        except zlib.error as error:
            raise BadPayload(f"the body is no gzip: {error}") from None

    def finish(self) -> bytes:
        if not self._member.eof:
            raise BadPayload("the gzip body ends in the middle")
        return b"".join(self._parts)


def _too_large(most_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"the body has more than {most_bytes >> 20} MiB, compressed or not",
        hint="send it in several requests",
    )
