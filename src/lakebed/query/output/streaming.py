"""Rows as bytes that are handed on while they are computed, for servers."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from lakebed.query.output.result import Result


class Pieces(io.RawIOBase):
    """A sink whose bytes are handed on."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        part = bytes(data)
        self._parts.append(part)
        return len(part)

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def stream(result: Result, writer: Any) -> Iterator[bytes]:
    """Yield rows as bytes. An error in the middle breaks the connection off, and in JSON the last
    bracket is missing: half a result cannot be taken for a whole one."""
    pieces = Pieces()
    with result:
        encoder = writer(pieces, result.schema)
        for batch in result:
            encoder.write(batch)
            yield pieces.take()
        encoder.end()
        yield pieces.take()


def stream_arrow(result: Result) -> Iterator[bytes]:
    """Yield the same as an Arrow stream."""
    import pyarrow as pa

    pieces = Pieces()
    with result:
        with pa.ipc.new_stream(pieces, result.schema) as writer:
            for batch in result:
                writer.write_batch(batch)
                yield pieces.take()
        yield pieces.take()
