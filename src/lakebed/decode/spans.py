"""Spans: landed OTLP traces to the rows of ``spans``, one for each, events and links inside."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.decode.blocks import Decoded, LandedBlock
from lakebed.decode.columns.arrays import (
    STRING_MAP,
    TIME,
    Marks,
    enum_text,
    hex_ids,
    instants,
    list_of,
    microseconds,
    optional_text,
    relist_structs,
)
from lakebed.decode.columns.batches import decode_blocks
from lakebed.decode.columns.columnar import ReadMode
from lakebed.decode.columns.envelope import LEADING, PROCESS_PROPERTIES, TRAILING, Envelope
from lakebed.decode.columns.values import string_maps
from lakebed.model.signal import Signal

COLUMNS = {
    **LEADING,
    "trace_id": "32 hex digits",
    "span_id": "16 hex digits",
    "parent_span_id": "16 hex digits; NULL for the root of a trace",
    "trace_state": "W3C trace state",
    "name": "what was done",
    "kind": "unspecified, internal, server, client, producer or consumer",
    "status_code": "unset, ok or error",
    "status_message": "why it failed, in the sender's words",
    "time": "when it began, in microseconds: as sent, else when it ended, else as landed",
    "end_time": "when it ended, in microseconds; NULL if the sender did not say",
    "duration_ns": "from begin to end in nanoseconds; negative if the sender's clock went back",
    "start_time_unix_nano": "when it began, exactly; NULL if the sender did not say",
    "end_time_unix_nano": "when it ended, exactly; NULL if the sender did not say",
    "properties": "attributes of the span",
    "process_properties": PROCESS_PROPERTIES,
    "events": "what happened during the span",
    "links": "spans of this or other traces that it is linked to",
    "flags": "W3C trace flags, and whether the parent is remote",
    "dropped_attributes_count": "attributes that the sender dropped from the span",
    "dropped_events_count": "events that the sender dropped",
    "dropped_links_count": "links that the sender dropped",
    **TRAILING,
    "problems": "what could not be kept as it was sent, separated by commas; NULL if nothing",
}
"""Every column with its meaning."""

_EVENT = pa.struct(
    [
        ("time_unix_nano", pa.int64()),
        ("name", pa.string()),
        ("properties", STRING_MAP),
        ("dropped_attributes_count", pa.int64()),
    ]
)
_LINK = pa.struct(
    [
        ("trace_id", pa.string()),
        ("span_id", pa.string()),
        ("trace_state", pa.string()),
        ("properties", STRING_MAP),
        ("dropped_attributes_count", pa.int64()),
        ("flags", pa.int64()),
    ]
)
_TYPES = {
    "insert_time": TIME,
    "time": TIME,
    "end_time": TIME,
    "duration_ns": pa.int64(),
    "start_time_unix_nano": pa.int64(),
    "end_time_unix_nano": pa.int64(),
    "properties": STRING_MAP,
    "events": list_of(_EVENT),
    "links": list_of(_LINK),
    "flags": pa.int64(),
    "dropped_attributes_count": pa.int64(),
    "dropped_events_count": pa.int64(),
    "dropped_links_count": pa.int64(),
    "scope_attributes": STRING_MAP,
    "scope_dropped_attributes_count": pa.int64(),
    "resource_dropped_attributes_count": pa.int64(),
}
SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in COLUMNS])

_KINDS: list[str | None] = [
    "unspecified",
    "internal",
    "server",
    "client",
    "producer",
    "consumer",
]
_STATUS: list[str | None] = ["unset", "ok", "error"]


def decode(
    blocks: Sequence[LandedBlock], *, slowly: bool = False, compact: bool = False
) -> Decoded:
    """The spans of the blocks as rows of `SCHEMA`; ``slowly`` is for comparison; with
    ``compact``, texts that many rows share are dictionary arrays."""
    return decode_blocks(blocks, Signal.TRACES, SCHEMA, _flatten, slowly=slowly, compact=compact)


def _flatten(
    envelope: Envelope, spans: pa.RecordBatch, span_scope: pa.Array, mode: ReadMode
) -> dict[str, pa.Array]:
    marks = Marks(spans.num_rows)
    columns = envelope.columns(span_scope, marks)
    begin = instants(spans["start_time_unix_nano"], marks)
    end = instants(spans["end_time_unix_nano"], marks)
    message, code = spans["status"].flatten()
    time, end_time = microseconds(begin), microseconds(end)
    if time.null_count:
        time = pc.coalesce(time, end_time, columns["insert_time"])
    return columns | {
        "trace_id": hex_ids(spans["trace_id"], 16, marks),
        "span_id": hex_ids(spans["span_id"], 8, marks),
        "parent_span_id": hex_ids(spans["parent_span_id"], 8, marks),
        "trace_state": optional_text(spans["trace_state"], marks),
        "name": optional_text(spans["name"], marks),
        "kind": enum_text(spans["kind"], _KINDS),
        "status_code": enum_text(pc.fill_null(code, 0), _STATUS),
        "status_message": optional_text(message, marks),
        "time": time,
        "end_time": end_time,
        "duration_ns": pc.subtract(end, begin),
        "start_time_unix_nano": begin,
        "end_time_unix_nano": end,
        "properties": string_maps(spans["attributes"], marks, mode).array(),
        "events": _events(spans["events"], marks, mode),
        "links": _links(spans["links"], marks, mode),
        "flags": spans["flags"].cast(pa.int64()),
        "dropped_attributes_count": spans["dropped_attributes_count"].cast(pa.int64()),
        "dropped_events_count": spans["dropped_events_count"].cast(pa.int64()),
        "dropped_links_count": spans["dropped_links_count"].cast(pa.int64()),
        "problems": marks.column(),
    }


def _events(lists: pa.Array, marks: Marks, mode: ReadMode) -> pa.Array:
    time, name, attributes, dropped = lists.flatten().flatten()
    event_marks = Marks(len(time))
    columns = [
        instants(time, event_marks),
        optional_text(name, event_marks),
        string_maps(attributes, event_marks, mode).array(),
        dropped.cast(pa.int64()),
    ]
    return relist_structs(lists, columns, _EVENT, event_marks, marks)


def _links(lists: pa.Array, marks: Marks, mode: ReadMode) -> pa.Array:
    trace_id, span_id, trace_state, attributes, dropped, flags = lists.flatten().flatten()
    link_marks = Marks(len(trace_id))
    columns = [
        hex_ids(trace_id, 16, link_marks),
        hex_ids(span_id, 8, link_marks),
        optional_text(trace_state, link_marks),
        string_maps(attributes, link_marks, mode).array(),
        dropped.cast(pa.int64()),
        flags.cast(pa.int64()),
    ]
    return relist_structs(lists, columns, _LINK, link_marks, marks)
