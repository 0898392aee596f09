"""Building partitions without Spark: what executors do, in this process."""

from __future__ import annotations

from typing import Any

from lakebed.catalog.records import blocks
from lakebed.lake import Lake
from lakebed.model.block import encodings_of
from lakebed.model.partition import Partition, hash_sources
from lakebed.model.signal import Signal
from lakebed.model.source import BlockSource
from lakebed.model.time import TimeRange
from lakebed.reading.block_reader import decode_blocks
from lakebed.samples.generator import Generator
from lakebed.views.builtin import built_in


def land(
    lake: Lake, signal: str = "logs", *, seed: int = 1, requests: int = 1, size: int = 20
) -> Any:
    """Land some generated requests; what was sent."""
    generator = Generator(seed)
    sent = [generator.make(signal, size) for _ in range(requests)]  # type: ignore[arg-type]
    for request in sent:
        lake.telemetry.land(signal, request.SerializeToString())
    return sent


def tick(lake: Lake) -> int:
    """The lake's last tick."""
    from lakebed.catalog import clock

    with lake.catalog.read() as connection:
        return clock.now(connection)


def build(
    lake: Lake, name: str = "log_entries", begin: int | None = None, end: int | None = None
) -> Partition:
    """One partition of a built-in block view set from the blocks of a range (all without one)."""
    lake.views.ensure(built_in())
    definition = lake.partitions.definition(name)
    assert isinstance(definition.source, BlockSource)
    decoder = definition.source.decoder
    with lake.catalog.read() as connection:
        first = blocks.first_insert_time(connection)
        last = blocks.last_insert_time(connection)
        assert first is not None
        assert last is not None
        within = TimeRange(first if begin is None else begin, last + 1 if end is None else end)
        wanted = None if decoder == "blocks" else encodings_of(Signal(decoder))
        landed = blocks.list_blocks(connection, within, wanted)
        processes, streams = blocks.list_senders(connection, within)
    made = (
        decode_blocks(lake.store, definition, landed, processes, streams).rows if landed else None
    )
    source = hash_sources(each.block_id for each in landed)
    if made is None or not made.num_rows:
        return lake.partitions.publish_completed_empty(
            definition, within.begin, within.end, source_hash=source
        )
    return lake.partitions.publish(
        definition, within.begin, within.end, made.cast(definition.schema), source_hash=source
    )
