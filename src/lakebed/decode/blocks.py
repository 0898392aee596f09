"""The input and output of decoding: landed blocks in; rows and failures out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class LandedBlock:
    """A landed block: its sender, its insert time and its bytes."""

    block_id: str
    stream_id: str
    process_id: str
    insert_time: int
    """The block's tick: microseconds since the epoch."""
    encoding: str
    """``otlp/<signal>+protobuf``: an Export…ServiceRequest with one resource; or
    ``otlp/<signal>+json``: the OTLP/JSON text of one ResourceLogs, ResourceMetrics or
    ResourceSpans."""
    payload: bytes


@dataclass(frozen=True, slots=True)
class Failure:
    """A block that gave no rows at all, with the reason."""

    block_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """The rows of all blocks that could be decoded, in the order of the blocks."""

    table: pa.Table
    failures: tuple[Failure, ...]
    fallbacks: int
    """The number of payloads that were read by `ReadMode.SLOW`."""
