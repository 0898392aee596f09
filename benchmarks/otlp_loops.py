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

from lakebed.decode.blocks import LandedBlock
from lakebed.decode.logs import SCHEMA as LOG_SCHEMA

Columns = dict[str, list[Any]]
_INT64_END = 1 << 63


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
                    add["msg"](render(record.body))
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


def _shared(block: LandedBlock, group: Any, scope: Any) -> dict[str, Any]:
    """What all records of a scope have in common; `problems` is a list."""
    problems: list[str] = []
    resource = attributes(group.resource.attributes, problems)
    service = resource.get("service.name")
    namespace = resource.get("service.namespace")
    exe = service if namespace is None or service is None else f"{namespace}/{service}"
    return {
        "process_id": block.process_id,
        "stream_id": block.stream_id,
        "block_id": block.block_id,
        "insert_time": block.insert_time,
        "exe": exe,
        "username": resource.get("process.owner"),
        "computer": resource.get("host.name"),
        "target": scope.scope.name or None,
        "process_properties": resource,
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
    shown = {pair.key: render(pair.value) for pair in pairs}
    if len(shown) < len(pairs):
        problems.append("duplicate_key")
        # A key stands where its last value stood.
        shown = dict(reversed({p.key: shown[p.key] for p in reversed(pairs)}.items()))
    return shown


def kind(value: Any) -> str | None:
    which = value.WhichOneof("value")
    return None if which in (None, "string_value_strindex") else which.removesuffix("_value")


def render(value: Any) -> str | None:
    """An AnyValue as text."""
    match value.WhichOneof("value"):
        case "string_value":
            return value.string_value
        case "int_value":
            return str(value.int_value)
        case "double_value":
            return _double(value.double_value)
        case "bool_value":
            return "true" if value.bool_value else "false"
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "array_value" | "kvlist_value":
            return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"))
    return None


def _double(number: float) -> str:
    if 1e-4 <= abs(number) < 1e10:
        return str(number).removesuffix(".0")
    return pa.scalar(number).cast(pa.string()).as_py()


def _plain(value: Any) -> Any:
    match value.WhichOneof("value"):
        case "array_value":
            return [_plain(each) for each in value.array_value.values]
        case "kvlist_value":
            return {pair.key: _plain(pair.value) for pair in value.kvlist_value.values}
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case "double_value":
            number = value.double_value
            return number if math.isfinite(number) else str(number)
        case None | "string_value_strindex":
            return None
        case which:
            return getattr(value, which)
