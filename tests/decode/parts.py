"""What the decoding tests share: blocks out of requests, and tables compared value by value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from lakebed.decode.blocks import LandedBlock

LANDED = 1_794_744_000_123_456


def block(payload: Any, signal: str, number: int = 0, encoding: str = "protobuf") -> LandedBlock:
    """A landed block of these bytes, or of this message's bytes."""
    if not isinstance(payload, bytes):
        payload = payload.SerializeToString()
    return LandedBlock(
        block_id=f"block-{number}",
        stream_id=f"stream-{number % 7}",
        process_id=f"process-{number % 5}",
        insert_time=LANDED + number,
        encoding=f"otlp/{signal}+{encoding}",
        payload=payload,
    )


def blocks(payloads: Iterable[Any], signal: str) -> list[LandedBlock]:
    return [block(payload, signal, number) for number, payload in enumerate(payloads)]


def assert_same(actual: pa.Table, expected: pa.Table) -> None:
    """Every value of every column; a NaN is a NaN."""
    assert actual.schema == expected.schema
    actual.validate(full=True)
    for name in expected.column_names:
        if actual[name].equals(expected[name]):
            continue
        pairs = zip(actual[name].to_pylist(), expected[name].to_pylist(), strict=True)
        for row, (left, right) in enumerate(pairs):
            assert repr(left) == repr(right), f"column {name}, row {row}"
