"""A block: bytes as they landed, with who sent them and when. Blocks are what partitions are built
from; their insert times are ticks of the lake's clock, one each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lakebed.model.signal import Signal


@dataclass(frozen=True, slots=True)
class Process:
    """A sender: one OpenTelemetry resource."""

    process_id: str
    properties: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stream:
    """One signal that a process sends."""

    stream_id: str
    process_id: str
    properties: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Block:
    """One landed block, and where its bytes are."""

    block_id: str
    stream_id: str
    process_id: str
    insert_time: int
    begin_time: int | None
    end_time: int | None
    nb_objects: int
    encoding: str
    payload_digest: bytes
    segment_path: str
    segment_offset: int
    payload_size: int


def encoding_of(signal: Signal, content: str) -> str:
    """Return the encoding of a payload, e.g. ``otlp/logs+protobuf``."""
    return f"otlp/{signal}+{content}"


def encodings_of(signal: Signal) -> tuple[str, ...]:
    """Every encoding in which blocks of a signal land."""
    return tuple(encoding_of(signal, content) for content in ("protobuf", "json"))
