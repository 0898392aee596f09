"""Log records: landed OTLP logs to the rows of ``log_entries``, one for each record."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakebed.decode.blocks import Decoded, LandedBlock
from lakebed.decode.columns.arrays import (
    STRING_MAP,
    TIME,
    Marks,
    hex_ids,
    instants,
    microseconds,
    optional_text,
)
from lakebed.decode.columns.batches import decode_blocks
from lakebed.decode.columns.columnar import ReadMode
from lakebed.decode.columns.envelope import LEADING, PROCESS_PROPERTIES, TRAILING, Envelope
from lakebed.decode.columns.values import render_with_kinds, string_maps
from lakebed.model.signal import Signal

COLUMNS = {
    **LEADING,
    "time": "when it happened, in microseconds: as sent, else as observed, else as landed",
    "target": "name of the instrumentation scope",
    "level": "1 fatal, 2 error, 3 warn, 4 info, 5 debug, 6 trace; 4 if the sender gave none",
    "msg": "the body; if it is no string, rendered like an attribute",
    "properties": "attributes of the record",
    "process_properties": PROCESS_PROPERTIES,
    "time_unix_nano": "when it happened, exactly; NULL if the sender did not say",
    "observed_time_unix_nano": "when the collection system saw it, exactly",
    "severity_number": "OpenTelemetry's severity, 1 to 24; 0 if the sender gave none",
    "severity_text": "the severity in the sender's words",
    "trace_id": "32 hex digits",
    "span_id": "16 hex digits",
    "flags": "W3C trace flags",
    "event_name": "what kind of event the record tells of",
    "service_name": TRAILING["service_name"],
    "scope_name": TRAILING["scope_name"],
    "scope_version": TRAILING["scope_version"],
    "scope_attributes": TRAILING["scope_attributes"],
    "scope_schema_url": TRAILING["scope_schema_url"],
    "resource_schema_url": TRAILING["resource_schema_url"],
    "body_kind": "string, int, double, bool, bytes, array or kvlist; NULL if there is no body",
    "dropped_attributes_count": "attributes that the sender dropped from the record",
    "scope_dropped_attributes_count": TRAILING["scope_dropped_attributes_count"],
    "resource_dropped_attributes_count": TRAILING["resource_dropped_attributes_count"],
    "problems": "what could not be kept as it was sent, separated by commas; NULL if nothing",
}
"""Every column with its meaning."""

_TYPES = {
    "insert_time": TIME,
    "time": TIME,
    "level": pa.int32(),
    "properties": STRING_MAP,
    "time_unix_nano": pa.int64(),
    "observed_time_unix_nano": pa.int64(),
    "severity_number": pa.int32(),
    "flags": pa.int64(),
    "scope_attributes": STRING_MAP,
    "dropped_attributes_count": pa.int64(),
    "scope_dropped_attributes_count": pa.int64(),
    "resource_dropped_attributes_count": pa.int64(),
}
SCHEMA = pa.schema([(name, _TYPES.get(name, pa.string())) for name in COLUMNS])

_INFO = 4
_LEVELS = pa.array([_INFO, *(6 - severity // 4 for severity in range(24))], pa.int32())


def decode(
    blocks: Sequence[LandedBlock], *, slowly: bool = False, compact: bool = False
) -> Decoded:
    """The log records of the blocks as rows of `SCHEMA`; ``slowly`` is for comparison;
    with ``compact``, texts that many rows share are dictionary arrays."""
    return decode_blocks(blocks, Signal.LOGS, SCHEMA, _flatten, slowly=slowly, compact=compact)


def _flatten(
    envelope: Envelope, records: pa.RecordBatch, record_scope: pa.Array, mode: ReadMode
) -> dict[str, pa.Array]:
    marks = Marks(records.num_rows)
    columns = envelope.columns(record_scope, marks)
    happened = instants(records["time_unix_nano"], marks)
    observed = instants(records["observed_time_unix_nano"], marks)
    severity = records["severity_number"]
    msg, body_kind = render_with_kinds(records["body"], marks)
    return columns | {
        "time": _time(happened, observed, columns["insert_time"]),
        "level": _levels(severity),
        "msg": msg,
        "properties": string_maps(records["attributes"], marks, mode).array(),
        "time_unix_nano": happened,
        "observed_time_unix_nano": observed,
        "severity_number": severity,
        "severity_text": optional_text(records["severity_text"], marks),
        "trace_id": hex_ids(records["trace_id"], 16, marks),
        "span_id": hex_ids(records["span_id"], 8, marks),
        "flags": records["flags"].cast(pa.int64()),
        "event_name": optional_text(records["event_name"], marks),
        "body_kind": body_kind,
        "dropped_attributes_count": records["dropped_attributes_count"].cast(pa.int64()),
        "problems": marks.column(),
    }


def _time(happened: pa.Array, observed: pa.Array, landed: pa.Array) -> pa.Array:
    time = microseconds(happened)
    return pc.coalesce(time, microseconds(observed), landed) if time.null_count else time


def _levels(severity: pa.Array) -> pa.Array:
    has_level = pc.and_(pc.greater_equal(severity, 1), pc.less_equal(severity, 24))
    return _LEVELS.take(pc.if_else(has_level, severity, 0))
