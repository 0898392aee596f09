"""Planning again when nothing is due: 10,000 partitions of 10 blocks each, all up to date. No Spark
is started.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

from benchmarks.harness import (
    CATALOG_NAMES,
    CATALOGS,
    EPOCH,
    MINUTE,
    Places,
    Result,
    median_ms,
    stopwatch,
)
from lakebed.catalog.records import blocks, footers, partitions
from lakebed.catalog.records.blocks import Segment
from lakebed.catalog.records.footers import StoredFooter
from lakebed.lake import Lake
from lakebed.model.block import Block, Process, Stream, encoding_of
from lakebed.model.partition import EventRange, Identity, Partition, hash_sources
from lakebed.model.signal import Signal
from lakebed.model.time import TimeRange
from lakebed.model.view_set import GLOBAL, ViewSet
from lakebed.storage.footer import FOOTER_FORMAT
from lakebed.storage.layout import partition_path, segment_path
from lakebed.views.builtin import built_in

TITLE = "Planning again with 10,000 partitions of 10 blocks each, all up to date"
_BLOCKS = 10
_MOST_SECONDS = 2
_PAGE = 500


def run(places: Places) -> list[Result]:
    count, times = (200, 3) if places.quick else (10_000, 7)
    return [_measure(places, catalog, count, times) for catalog in CATALOGS]


def _measure(places: Places, catalog: str, count: int, times: int) -> Result:
    lake = places.new_lake(catalog)
    try:
        # Large enough to be left alone: this is about planning, not about merging.
        lake.views.ensure([_entries()])
        _fill(lake, count)
        seconds = []
        for _ in range(times):
            seconds.append(stopwatch(lambda: _nothing_due(lake)))
    finally:
        lake.close()
    figures: dict[str, Any] = {
        "partitions": count,
        "blocks": count * _BLOCKS,
        "median ms": median_ms(seconds),
        "slowest ms": max(seconds) * 1000,
    }
    met = max(seconds) <= _MOST_SECONDS
    return Result(CATALOG_NAMES[catalog], figures, {f"at most {_MOST_SECONDS} s": met})


def _nothing_due(lake: Lake) -> None:
    report = lake.pipeline.build("log_entries", master="spark://never.invalid:1")
    if report.outcomes:
        raise AssertionError("something was due")


def _entries() -> ViewSet:
    entries = next(each for each in built_in() if each.name == "log_entries")
    return replace(entries, target_bytes=1_000_000)


def _fill(lake: Lake, count: int) -> None:
    view_set = _entries()
    process, stream = Process("process", {}), Stream("stream", "process", {})
    with lake.catalog.beat() as connection:
        blocks.insert_senders(connection, [process], [stream], EPOCH)
        for page in range(0, count, _PAGE):
            numbers = range(page, min(count, page + _PAGE))
            path = segment_path(EPOCH, _id(page))
            landed = [
                _block(number, place, path, offset=_BLOCKS * (number - page) + place)
                for number in numbers
                for place in range(_BLOCKS)
            ]
            blocks.insert_segment(connection, Segment(path, len(landed), EPOCH), landed)
            made = [_partition(view_set, number) for number in numbers]
            stored = [
                StoredFooter(each.file_path or "", each.file_size, b"footer", FOOTER_FORMAT, b"")
                for each in made
            ]
            footers.insert_many(connection, stored, EPOCH)
            partitions.insert_many(connection, made)


def _block(number: int, place: int, path: str, offset: int) -> Block:
    name = f"{number}-{place}"
    tick = EPOCH + number * MINUTE + place
    encoding = encoding_of(Signal.LOGS, "protobuf")
    digest = hashlib.sha256(name.encode()).digest()
    return Block(
        name, "stream", "process", tick, tick, tick, 100, encoding, digest, path, offset, 1
    )


def _partition(view_set: ViewSet, number: int) -> Partition:
    begin = EPOCH + number * MINUTE
    return Partition(
        partition_id=_id(number),
        identity=Identity(
            view_set.name, GLOBAL, TimeRange(begin, begin + MINUTE), view_set.schema_hash
        ),
        events=EventRange(begin, begin + MINUTE),
        file_path=partition_path(view_set.name, GLOBAL, begin, _id(number)),
        file_size=600_000,
        num_rows=1000,
        source_hash=hash_sources(f"{number}-{place}" for place in range(_BLOCKS)),
        sort_order=view_set.sort_order,
        format_version=FOOTER_FORMAT,
        statistics={"level": [1, 6]},
        published_at=begin + MINUTE,
    )


def _id(number: int) -> str:
    digits = hashlib.sha256(str(number).encode()).hexdigest()[:32]
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
