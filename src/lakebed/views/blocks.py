"""The rows of the view set ``blocks``: what landed, and who sent it. They come from the catalog's
own rows, not from payloads; column names with a dot are micromegas'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from lakebed.decode.resources import spell_exe
from lakebed.model.block import Block

_TIME = pa.timestamp("us", "UTC")
_LAST = (1 << 63) - 1  # senders may claim any year up to 2554
_MAP = pa.map_(pa.string(), pa.string())

COLUMNS = {
    "block_id": "the block's id: content-addressed, or given by its producer",
    "stream_id": "one signal of one process",
    "process_id": "one OpenTelemetry resource",
    "begin_time": "the earliest event; when it landed, if none is known",
    "begin_ticks": "the same in nanoseconds since 1970",
    "end_time": "the latest event; when it landed, if none is known",
    "end_ticks": "the same in nanoseconds since 1970",
    "nb_objects": "log records, data points or spans",
    "object_offset": "always 0: blocks of OpenTelemetry are not numbered through",
    "payload_size": "bytes as received",
    "encoding": "how the payload is read, such as otlp/logs+protobuf",
    "insert_time": "when it landed, on the lake's clock",
    "streams.dependencies_metadata": "empty",
    "streams.objects_metadata": "empty",
    "streams.tags": "the signal: logs, metrics or traces",
    "streams.properties": "what else is known of the stream",
    "streams.insert_time": "when the stream was first seen",
    "streams.format": "otlp/logs, otlp/metrics or otlp/traces",
    "processes.start_time": "when the process was first seen",
    "processes.start_ticks": "the same in nanoseconds since 1970",
    "processes.tsc_frequency": "ticks per second: always nanoseconds",
    "processes.exe": "namespace/name or name of the service; empty without a name",
    "processes.username": "attribute process.owner",
    "processes.realname": "empty",
    "processes.computer": "attribute host.name",
    "processes.distro": "attribute os.description",
    "processes.cpu_brand": "attribute host.cpu.model.name",
    "processes.insert_time": "when the process was first seen",
    "processes.parent_process_id": "empty",
    "processes.properties": "attributes of the resource",
}
"""Every column with its meaning."""

_TYPES = {
    "begin_time": _TIME,
    "begin_ticks": pa.int64(),
    "end_time": _TIME,
    "end_ticks": pa.int64(),
    "nb_objects": pa.int32(),
    "object_offset": pa.int64(),
    "payload_size": pa.int64(),
    "insert_time": _TIME,
    "streams.dependencies_metadata": pa.binary(),
    "streams.objects_metadata": pa.binary(),
    "streams.tags": pa.list_(pa.string()),
    "streams.properties": _MAP,
    "streams.insert_time": _TIME,
    "processes.start_time": _TIME,
    "processes.start_ticks": pa.int64(),
    "processes.tsc_frequency": pa.int64(),
    "processes.insert_time": _TIME,
    "processes.properties": _MAP,
}
SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in COLUMNS])

Senders = Mapping[str, tuple[int, str]]
"""Processes or streams by id: when first seen, and their properties as JSON."""


def make_rows(blocks: Sequence[Block], processes: Senders, streams: Senders) -> pa.Table:
    """One row for each block."""
    who = {key: _process(*value) for key, value in processes.items()}
    what = {key: _stream(*value) for key, value in streams.items()}
    return pa.Table.from_pylist(
        [_row(block) | what[block.stream_id] | who[block.process_id] for block in blocks],
        schema=SCHEMA,
    )


def _row(block: Block) -> dict[str, Any]:
    begin = block.insert_time if block.begin_time is None else block.begin_time
    end = block.insert_time if block.end_time is None else block.end_time
    return {
        "block_id": block.block_id,
        "stream_id": block.stream_id,
        "process_id": block.process_id,
        "begin_time": begin,
        "begin_ticks": _nanoseconds(begin),
        "end_time": end,
        "end_ticks": _nanoseconds(end),
        "nb_objects": block.nb_objects,
        "object_offset": 0,
        "payload_size": block.payload_size,
        "encoding": block.encoding,
        "insert_time": block.insert_time,
    }


def _nanoseconds(instant: int) -> int:
    return min(instant * 1000, _LAST)


def _stream(insert_time: int, properties: str) -> dict[str, Any]:
    decoded = msgspec.json.decode(properties)
    return {
        "streams.dependencies_metadata": b"",
        "streams.objects_metadata": b"",
        "streams.tags": decoded.get("tags", []),
        "streams.properties": [],
        "streams.insert_time": insert_time,
        "streams.format": decoded.get("format", ""),
    }


def _process(insert_time: int, properties: str) -> dict[str, Any]:
    decoded: dict[str, str | None] = msgspec.json.decode(properties)
    exe = spell_exe(decoded.get("service.name"), decoded.get("service.namespace"))
    return {
        "processes.start_time": insert_time,
        "processes.start_ticks": insert_time * 1000,
        "processes.tsc_frequency": 1_000_000_000,
        "processes.exe": exe or "",
        "processes.username": decoded.get("process.owner") or "",
        "processes.realname": "",
        "processes.computer": decoded.get("host.name") or "",
        "processes.distro": decoded.get("os.description") or "",
        "processes.cpu_brand": decoded.get("host.cpu.model.name") or "",
        "processes.insert_time": insert_time,
        "processes.parent_process_id": "",
        "processes.properties": list(decoded.items()),
    }
