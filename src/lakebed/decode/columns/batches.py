"""Decode many blocks at once: the fast mode for a whole batch, which is halved around a block
that it cannot read, down to single blocks, which take the slow mode. A block that this mode
cannot read either has failed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.decode.blocks import Decoded, Failure, LandedBlock
from lakebed.decode.columns.columnar import (
    CannotRead,
    ReadMode,
    envelope_reader,
    read,
    record_reader,
)
from lakebed.decode.columns.envelope import Envelope
from lakebed.decode.columns.spread import TooLarge
from lakebed.errors import BadInput
from lakebed.model.signal import Signal

BATCH_BYTES = 8 * 1024 * 1024
"""The number of payload bytes that are decoded together: enough to make the cost of a call
small, few enough to keep intermediate arrays small.
"""
_RECORD_BYTES = 64
_SLOW_RECORDS = 5_000

Flatten = Callable[[Envelope, pa.RecordBatch, pa.Array, ReadMode], dict[str, pa.Array]]
"""From an envelope, some of its records and the scope of each, to the columns of their rows."""


@dataclass(slots=True)
class _Run:
    signal: Signal
    schema: pa.Schema
    flatten: Flatten
    slowly: bool
    compact: bool
    tables: list[pa.Table] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    fallbacks: int = 0

    def decode(self, blocks: Sequence[LandedBlock], payloads: Sequence[bytes]) -> None:
        """Decode in the fast mode; if that fails, halve the batch down to single blocks."""
        if self.slowly:
            for block, payload in zip(blocks, payloads, strict=True):
                self._decode_slowly(block, payload)
            return
        try:
            self.tables += list(self._rows(blocks, payloads, ReadMode.FAST))
        except (CannotRead, TooLarge, pa.ArrowException) as error:
            if len(blocks) == 1 and isinstance(error, TooLarge):
                self.fail(blocks[0], error)
            elif len(blocks) == 1:
                self._decode_slowly(blocks[0], payloads[0])
            else:
                half = len(blocks) // 2
                self.decode(blocks[:half], payloads[:half])
                self.decode(blocks[half:], payloads[half:])

    def _decode_slowly(self, block: LandedBlock, payload: bytes) -> None:
        try:
            self.tables += list(self._rows([block], [payload], ReadMode.SLOW))
            self.fallbacks += 1
        except (CannotRead, TooLarge, pa.ArrowException) as error:
            self.fail(block, error)

    def fail(self, block: LandedBlock, error: Exception) -> None:
        lines = str(error).splitlines()
        self.failures.append(Failure(block.block_id, lines[0] if lines else repr(error)))

    def _rows(
        self, blocks: Sequence[LandedBlock], payloads: Sequence[bytes], mode: ReadMode
    ) -> Iterator[pa.Table]:
        requests = pa.array(payloads, pa.binary())
        read_down = read(envelope_reader(self.signal), requests, mode)
        envelope = Envelope.of(blocks, read_down, mode, compact=self.compact)
        envelope.expect_rows(len(envelope.records))
        reader = record_reader(self.signal)
        for begin, rows in _slices(envelope.records, mode):
            records = read(reader, envelope.records.slice(begin, rows), mode)
            envelope.budget.spend(2 * records.nbytes)  # the records become columns
            scopes = envelope.record_scope.slice(begin, rows)
            columns = self.flatten(envelope, records, scopes, mode)
            arrays = [columns[name] for name in self.schema.names]
            if self.compact:
                yield pa.Table.from_arrays(arrays, names=self.schema.names)
            else:
                yield pa.Table.from_arrays(arrays, schema=self.schema)


def decode_blocks(
    blocks: Sequence[LandedBlock],
    signal: Signal,
    schema: pa.Schema,
    flatten: Flatten,
    *,
    slowly: bool,
    compact: bool,
) -> Decoded:
    """Decode blocks of one signal; a block gives all its rows, or none and a failure. Compact rows
    have dictionary arrays where the schema has strings that many of them share."""
    run = _Run(signal, schema, flatten, slowly, compact)
    batch: list[LandedBlock] = []
    payloads: list[bytes] = []
    size = 0
    for block in blocks:
        try:
            payload = _protobuf(block, signal)
        except BadInput as error:
            run.fail(block, error)
            continue
        if batch and size + len(payload) > BATCH_BYTES:
            run.decode(batch, payloads)
            batch, payloads, size = [], [], 0
        batch.append(block)
        payloads.append(payload)
        size += len(payload)
    if batch:
        run.decode(batch, payloads)
    table = pa.concat_tables(run.tables) if run.tables else schema.empty_table()
    order = {block.block_id: index for index, block in enumerate(blocks)}
    failures = sorted(run.failures, key=lambda failure: order[failure.block_id])
    return Decoded(table, tuple(failures), run.fallbacks)


def _protobuf(block: LandedBlock, signal: Signal) -> bytes:
    if block.encoding == f"otlp/{signal}+protobuf":
        return block.payload
    if block.encoding == f"otlp/{signal}+json":
        from lakebed.decode.json_requests.otlp_json import to_protobuf

        return to_protobuf(signal, block.payload)
    raise BadInput(f"a block of {signal} has the encoding {block.encoding!r}")


def _slices(records: pa.Array, mode: ReadMode) -> Iterator[tuple[int, int]]:
    """Yield the begin and the count of records to read together, so that memory stays within
    bounds."""
    total = (pc.sum(pc.binary_length(records)).as_py() or 0) + _RECORD_BYTES * len(records)
    parts = 1 + total // (2 * BATCH_BYTES)
    rows = -(-len(records) // parts) or 1
    if mode is ReadMode.SLOW:
        rows = min(rows, _SLOW_RECORDS)
    for begin in range(0, len(records), rows):
        yield begin, min(rows, len(records) - begin)
