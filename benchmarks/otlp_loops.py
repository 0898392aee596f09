"""OTLP decoded the ordinary way: OpenTelemetry's own classes and Python loops, record by record.

The same columns as `lakebed.decode`, which the benchmarks compare with for speed and the tests for
every value. It is written to be quick as such code goes: lists by column, what a resource or scope
gives is made once, and no more objects than needed.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from lakebed.decode.blocks import LandedBlock
from lakebed.decode.logs import SCHEMA as LOG_SCHEMA
from lakebed.decode.metrics import SCHEMA as METRIC_SCHEMA
from lakebed.decode.spans import SCHEMA as SPAN_SCHEMA

Columns = dict[str, list[Any]]
_INT64_END = 1 << 63
_SPAN_KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")
_STATUS = ("unset", "ok", "error")
_TEMPORALITIES = (None, "delta", "cumulative")


def decode_logs(blocks: Sequence[LandedBlock]) -> pa.Table:
    """The log records of the blocks, which are protobuf."""
    columns: Columns = {name: [] for name in LOG_SCHEMA.names}
    add = {name: column.append for name, column in columns.items()}
    for block in blocks:
        request = ExportLogsServiceRequest.FromString(block.payload)
        for group in request.resource_logs:
            for scope in group.scope_logs:
                shared = _shared(block, group, scope)
                rows = 0
                for record in scope.log_records:
                    problems: list[str] = []
                    happened = instant(record.time_unix_nano, problems)
                    observed = instant(record.observed_time_unix_nano, problems)
                    add["time"](_microseconds(happened, observed, block.insert_time))
                    severity = record.severity_number
                    add["level"](6 - (severity - 1) // 4 if 1 <= severity <= 24 else 4)
                    add["msg"](render(record.body, problems))
                    add["properties"](attributes(record.attributes, problems))
                    add["time_unix_nano"](happened)
                    add["observed_time_unix_nano"](observed)
                    add["severity_number"](severity)
                    add["severity_text"](record.severity_text or None)
                    add["trace_id"](hex_id(record.trace_id, 16, problems))
                    add["span_id"](hex_id(record.span_id, 8, problems))
                    add["flags"](record.flags)
                    add["event_name"](record.event_name or None)
                    add["body_kind"](kind(record.body))
                    add["dropped_attributes_count"](record.dropped_attributes_count)
                    add["problems"](_spell(problems + shared["problems"]))
                    rows += 1
                _repeat(columns, shared, rows)
    return pa.table(columns, schema=LOG_SCHEMA)


def decode_spans(blocks: Sequence[LandedBlock]) -> pa.Table:
    """The spans of the blocks, which are protobuf."""
    columns: Columns = {name: [] for name in SPAN_SCHEMA.names}
    add = {name: column.append for name, column in columns.items()}
    for block in blocks:
        request = ExportTraceServiceRequest.FromString(block.payload)
        for group in request.resource_spans:
            for scope in group.scope_spans:
                shared = _shared(block, group, scope)
                del shared["target"]
                rows = 0
                for span in scope.spans:
                    problems: list[str] = []
                    begin = instant(span.start_time_unix_nano, problems)
                    end = instant(span.end_time_unix_nano, problems)
                    add["trace_id"](hex_id(span.trace_id, 16, problems))
                    add["span_id"](hex_id(span.span_id, 8, problems))
                    add["parent_span_id"](hex_id(span.parent_span_id, 8, problems))
                    add["trace_state"](span.trace_state or None)
                    add["name"](span.name or None)
                    add["kind"](_name(span.kind, _SPAN_KINDS))
                    add["status_code"](_name(span.status.code, _STATUS))
                    add["status_message"](span.status.message or None)
                    add["time"](_microseconds(begin, end, block.insert_time))
                    add["end_time"](None if end is None else end // 1000)
                    add["duration_ns"](None if begin is None or end is None else end - begin)
                    add["start_time_unix_nano"](begin)
                    add["end_time_unix_nano"](end)
                    add["properties"](attributes(span.attributes, problems))
                    add["events"]([_event(each, problems) for each in span.events])
                    add["links"]([_link(each, problems) for each in span.links])
                    add["flags"](span.flags)
                    add["dropped_attributes_count"](span.dropped_attributes_count)
                    add["dropped_events_count"](span.dropped_events_count)
                    add["dropped_links_count"](span.dropped_links_count)
                    add["problems"](_spell(problems + shared["problems"]))
                    rows += 1
                _repeat(columns, shared, rows)
    return pa.table(columns, schema=SPAN_SCHEMA)


def _event(event: Any, problems: list[str]) -> dict[str, Any]:
    return {
        "time_unix_nano": instant(event.time_unix_nano, problems),
        "name": event.name or None,
        "properties": attributes(event.attributes, problems),
        "dropped_attributes_count": event.dropped_attributes_count,
    }


def _link(link: Any, problems: list[str]) -> dict[str, Any]:
    return {
        "trace_id": hex_id(link.trace_id, 16, problems),
        "span_id": hex_id(link.span_id, 8, problems),
        "trace_state": link.trace_state or None,
        "properties": attributes(link.attributes, problems),
        "dropped_attributes_count": link.dropped_attributes_count,
        "flags": link.flags,
    }


def decode_metrics(blocks: Sequence[LandedBlock]) -> pa.Table:
    """The data points of the blocks, which are protobuf."""
    columns: Columns = {name: [] for name in METRIC_SCHEMA.names}
    for block in blocks:
        request = ExportMetricsServiceRequest.FromString(block.payload)
        for group in request.resource_metrics:
            for scope in group.scope_metrics:
                shared = _shared(block, group, scope)
                for metric in scope.metrics:
                    _add_metric(columns, block, shared, metric)
    return pa.table(columns, schema=METRIC_SCHEMA)


def _add_metric(columns: Columns, block: LandedBlock, shared: dict[str, Any], metric: Any) -> None:
    which = metric.WhichOneof("data")
    if which is None:
        return
    add = {name: column.append for name, column in columns.items()}
    data = getattr(metric, which)
    problems: list[str] = []
    of_metric = shared | {
        "name": metric.name or None,
        "unit": metric.unit or None,
        "description": metric.description or None,
        "metadata": attributes(metric.metadata, problems),
        "kind": which,
        "temporality": _name(getattr(data, "aggregation_temporality", 0), _TEMPORALITIES),
        "is_monotonic": data.is_monotonic if which == "sum" else None,
    }
    rows = 0
    for point in data.data_points:
        marked = problems + shared["problems"]
        happened = instant(point.time_unix_nano, marked)
        add["time"](_microseconds(happened, None, block.insert_time))
        add["time_unix_nano"](happened)
        add["start_time_unix_nano"](instant(point.start_time_unix_nano, marked))
        add["properties"](attributes(point.attributes, marked))
        add["flags"](point.flags)
        own = _POINTS[which](point, marked)
        for name in _OWN:
            add[name](own.get(name))
        add["problems"](_spell(marked))
        rows += 1
    _repeat(columns, of_metric, rows)


def _number(point: Any, problems: list[str]) -> dict[str, Any]:
    own = _value(point)
    own["exemplars"] = _exemplars(point, problems)
    return own


def _value(point: Any) -> dict[str, Any]:
    which = point.WhichOneof("value")
    if which == "as_int":
        return {"value": float(point.as_int), "int_value": point.as_int}
    return {"value": point.as_double} if which else {}


def _histogram(point: Any, problems: list[str]) -> dict[str, Any]:
    return {
        "count": count(point.count, problems),
        **_extremes(point),
        "explicit_bounds": list(point.explicit_bounds),
        "bucket_counts": [count(each, problems) for each in point.bucket_counts],
        "exemplars": _exemplars(point, problems),
    }


def _exponential(point: Any, problems: list[str]) -> dict[str, Any]:
    own = {
        "count": count(point.count, problems),
        **_extremes(point),
        "scale": point.scale,
        "zero_count": count(point.zero_count, problems),
        "zero_threshold": point.zero_threshold,
        "exemplars": _exemplars(point, problems),
    }
    for sign in ("positive", "negative"):
        if point.HasField(sign):
            buckets = getattr(point, sign)
            own[f"{sign}_offset"] = buckets.offset
            own[f"{sign}_bucket_counts"] = [count(each, problems) for each in buckets.bucket_counts]
    return own


def _summary(point: Any, problems: list[str]) -> dict[str, Any]:
    return {
        "count": count(point.count, problems),
        "sum": point.sum,
        "quantiles": [each.quantile for each in point.quantile_values],
        "quantile_values": [each.value for each in point.quantile_values],
    }


def _extremes(point: Any) -> dict[str, Any]:
    return {name: getattr(point, name) for name in ("sum", "min", "max") if point.HasField(name)}


def _exemplars(point: Any, problems: list[str]) -> list[dict[str, Any]]:
    return [
        {
            "time_unix_nano": instant(each.time_unix_nano, problems),
            **_value(each),
            "trace_id": hex_id(each.trace_id, 16, problems),
            "span_id": hex_id(each.span_id, 8, problems),
            "properties": attributes(each.filtered_attributes, problems),
        }
        for each in point.exemplars
    ]


_POINTS = {
    "gauge": _number,
    "sum": _number,
    "histogram": _histogram,
    "exponential_histogram": _exponential,
    "summary": _summary,
}
_OWN = (
    *("value", "int_value", "count", "sum", "min", "max", "explicit_bounds", "bucket_counts"),
    *("scale", "zero_count", "zero_threshold", "positive_offset", "positive_bucket_counts"),
    *("negative_offset", "negative_bucket_counts", "quantiles", "quantile_values", "exemplars"),
)


def _name(number: int, names: Sequence[str | None]) -> str | None:
    return names[number] if 0 <= number < len(names) else str(number)


def count(number: int, problems: list[str]) -> int | None:
    if number >= _INT64_END:
        problems.append("absurd_count")
        return None
    return number


def _shared(block: LandedBlock, group: Any, scope: Any) -> dict[str, Any]:
    """What all records of a scope have in common; `problems` is a list."""
    problems: list[str] = []
    resource = attributes(group.resource.attributes, problems)
    service = resource.get("service.name")
    namespace = resource.get("service.namespace")
    exe = f"{namespace}/{service}" if namespace and service else service or None
    return {
        "process_id": block.process_id,
        "stream_id": block.stream_id,
        "block_id": block.block_id,
        "insert_time": block.insert_time,
        "exe": exe,
        "username": resource.get("process.owner"),
        "computer": resource.get("host.name"),
        "target": scope.scope.name or None,
        "process_properties": json.dumps(resource, separators=(",", ":"), ensure_ascii=False),
        "service_name": service,
        "scope_name": scope.scope.name or None,
        "scope_version": scope.scope.version or None,
        "scope_attributes": attributes(scope.scope.attributes, problems),
        "scope_schema_url": scope.schema_url or None,
        "resource_schema_url": group.schema_url or None,
        "scope_dropped_attributes_count": scope.scope.dropped_attributes_count,
        "resource_dropped_attributes_count": group.resource.dropped_attributes_count,
        "problems": problems,
    }


def _repeat(columns: Columns, shared: dict[str, Any], rows: int) -> None:
    for name, value in shared.items():
        if name != "problems":
            columns[name].extend([value] * rows)


def _spell(problems: Iterable[str]) -> str | None:
    order = ("bad_utf8", "bad_id_length", "absurd_time", "absurd_count", "duplicate_key")
    return ",".join(each for each in order if each in problems) or None if problems else None


def instant(nanoseconds: int, problems: list[str]) -> int | None:
    if nanoseconds >= _INT64_END:
        problems.append("absurd_time")
        return None
    return nanoseconds or None


def _microseconds(happened: int | None, observed: int | None, landed: int) -> int:
    nanoseconds = happened or observed
    return landed if nanoseconds is None else nanoseconds // 1000


def hex_id(raw: bytes, length: int, problems: list[str]) -> str | None:
    if not raw:
        return None
    if len(raw) != length:
        problems.append("bad_id_length")
    return raw.hex()


def attributes(pairs: Any, problems: list[str]) -> dict[str, str | None]:
    shown = {pair.key: render(pair.value, problems) for pair in pairs}
    if len(shown) < len(pairs):
        problems.append("duplicate_key")
        # A key stands where its last value stood.
        shown = dict(reversed({p.key: shown[p.key] for p in reversed(pairs)}.items()))
    return shown


def kind(value: Any) -> str | None:
    which = value.WhichOneof("value")
    return None if which in (None, "string_value_strindex") else which.removesuffix("_value")


def render(value: Any, problems: list[str]) -> str | None:
    """An AnyValue as text."""
    match value.WhichOneof("value"):
        case "string_value":
            return str(value.string_value)
        case "int_value":
            return str(value.int_value)
        case "double_value":
            return _double(value.double_value)
        case "bool_value":
            return "true" if value.bool_value else "false"
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "array_value" | "kvlist_value":
            plain = _plain(value, problems)
            return json.dumps(plain, ensure_ascii=False, separators=(",", ":"))
    return None


def _double(number: float) -> str:
    if 1e-4 <= abs(number) < 1e10:
        return str(number).removesuffix(".0")
    return str(pa.scalar(number).cast(pa.string()).as_py())


def _plain(value: Any, problems: list[str]) -> Any:
    match value.WhichOneof("value"):
        case "array_value":
            return [_plain(each, problems) for each in value.array_value.values]
        case "kvlist_value":
            pairs = value.kvlist_value.values
            plain = {pair.key: _plain(pair.value, problems) for pair in pairs}
            if len(plain) < len(pairs):
                problems.append("duplicate_key")
            return plain
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "double_value":
            number = value.double_value
            return number if math.isfinite(number) else str(number)
        case None | "string_value_strindex":
            return None
        case which:
            return getattr(value, which)
