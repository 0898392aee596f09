"""Which signal a request holds, told from its bytes.

A JSON request names its signal. A protobuf request does not: the three kinds are told apart by
whether the first records read as what they would have to be, without a field left over. Where more
than one kind or none fits, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

from lakebed.decode.descriptors import request_class
from lakebed.model.signal import Signal

_LOOKED_AT = 50
_ABSENT = msgspec.Raw(b"")


class _Names(msgspec.Struct):
    """The fields of the three kinds of requests, of which a request has one."""

    resource_logs: msgspec.Raw = msgspec.field(default=_ABSENT, name="resourceLogs")
    resource_metrics: msgspec.Raw = msgspec.field(default=_ABSENT, name="resourceMetrics")
    resource_spans: msgspec.Raw = msgspec.field(default=_ABSENT, name="resourceSpans")


_names = msgspec.json.Decoder(_Names)


def json_signals(body: bytes) -> list[Signal]:
    """The signals that a JSON request names; usually one. Raises what `msgspec` raises."""
    names = _names.decode(body)
    present = (names.resource_logs, names.resource_metrics, names.resource_spans)
    absent = (b"", b"null")
    return [signal for signal, raw in zip(Signal, present, strict=True) if bytes(raw) not in absent]


def guess_signal(body: bytes) -> Signal | None:
    """The one signal whose request the protobuf bytes can be, if there is exactly one."""
    fitting = [signal for signal in Signal if _fits(signal, body)]
    return fitting[0] if len(fitting) == 1 else None


def _fits(signal: Signal, body: bytes) -> bool:
    try:
        request = request_class(signal).FromString(body)
    except DecodeError:
        return False
    records = list(islice(_records(signal, request), _LOOKED_AT))
    return bool(records) and all(_is_plausible(signal, record) for record in records)


def _records(signal: Signal, request: Any) -> Iterator[Any]:
    match signal:
        case Signal.LOGS:
            for resource in request.resource_logs:
                for scope in resource.scope_logs:
                    yield from scope.log_records
        case Signal.METRICS:
            for resource in request.resource_metrics:
                for scope in resource.scope_metrics:
                    yield from scope.metrics
        case Signal.TRACES:
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    yield from scope.spans


def _is_plausible(signal: Signal, record: Any) -> bool:
    if len(UnknownFieldSet(record)):
        return False
    match signal:
        case Signal.LOGS:
            return True
        case Signal.METRICS:
            return bool(record.name)
        case Signal.TRACES:
            return len(record.trace_id) == 16 and len(record.span_id) == 8
