"""Requests in JSON of which some records cannot be read: the valid records, each as it was
received. Protobuf has no such case, because one malformed field breaks the whole message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from lakebed.decode.descriptors import request_class
from lakebed.decode.json_requests.nesting import MAX_LEVELS, check_nesting
from lakebed.decode.json_requests.otlp_json import read_json, to_protobuf
from lakebed.errors import BadPayload
from lakebed.model.signal import Signal, to_json_name

_LEVELS_AROUND = 2
"""The levels of nesting around a resource: an object and an array."""

_BYTE = re.compile(r" \(byte [0-9]+\)")
_Fields = dict[str, msgspec.Raw]


@dataclass(slots=True)
class Trimmed:
    """A request without its unreadable records."""

    body: bytes = b""
    valid: int = 0
    """The number of valid records, or metrics, in resources that had invalid ones."""
    rejected: int = 0
    """Log records, spans, or data points of metrics."""
    reason: str | None = None
    """The reason for the first rejected record."""


def trim(signal: Signal, body: bytes) -> Trimmed | None:
    """Return the request without the records that do not fit, of metrics without whole metrics.
    None if no record is left, or the rest is not a request."""
    (resources,) = request_class(signal).DESCRIPTOR.fields
    trimmed = Trimmed()
    try:
        request = msgspec.json.decode(body, type=_Fields)
        name = resources.json_name
        texts = msgspec.json.decode(request[name], type=list[msgspec.Raw])
        request[name] = _array(
            [
                _trim_resource(signal, resource, f"{name}[{number}]", trimmed)
                for number, resource in enumerate(texts)
            ]
        )
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        return None
    trimmed.body = msgspec.json.encode(request)
    return trimmed if trimmed.valid and trimmed.rejected else None


def _trim_resource(
    signal: Signal, text: msgspec.Raw, location: str, trimmed: Trimmed
) -> msgspec.Raw:
    if _find_problem(signal, bytes(text)) is None:
        trimmed.valid += 1
        return text
    scopes_name = to_json_name(signal.spec.scopes)
    records_name = to_json_name(signal.spec.records)
    resource = msgspec.json.decode(text, type=_Fields)
    scopes = msgspec.json.decode(resource[scopes_name], type=list[_Fields])
    for at, scope in enumerate(scopes):
        records_text = scope.get(records_name, b"null")
        records = msgspec.json.decode(records_text, type=list[msgspec.Raw] | None)
        valid_records = []
        for number, record in enumerate(records or ()):
            alone = {scopes_name: [{records_name: [record]}]}
            problem = _find_problem(signal, msgspec.json.encode(alone))
            if problem is None:
                valid_records.append(record)
                continue
            trimmed.rejected += _count(signal, record)
            if trimmed.reason is None:
                location_in_request = f"{location}.{scopes_name}[{at}].{records_name}[{number}]"
                trimmed.reason = _place(
                    problem, f"{scopes_name}[0].{records_name}[0]", location_in_request
                )
        trimmed.valid += len(valid_records)
        scope[records_name] = _array(valid_records)
    resource[scopes_name] = msgspec.Raw(msgspec.json.encode(scopes))
    return msgspec.Raw(msgspec.json.encode(resource))


def _find_problem(signal: Signal, text: bytes) -> str | None:
    try:
        check_nesting(text, MAX_LEVELS - _LEVELS_AROUND)
        to_protobuf(signal, text)
    except BadPayload as error:
        return str(error)
    return None


def _place(problem: str, alone: str, location_in_request: str) -> str:
    """Return the problem of a record read alone, with its location in the whole request."""
    if f" at {alone}" in problem:
        return problem.replace(alone, location_in_request, 1)
    return f"{_BYTE.sub('', problem)}, at {location_in_request}"


def _count(signal: Signal, record: msgspec.Raw) -> int:
    """Return the number of records; of a metric, its data points, as far as they can be counted."""
    if signal.spec.points_in is None:
        return 1
    metric: Any = read_json(bytes(record))
    kinds = metric.values() if isinstance(metric, dict) else ()
    points = [kind.get("dataPoints") for kind in kinds if isinstance(kind, dict)]
    return max(1, sum(len(kind_points) for kind_points in points if isinstance(kind_points, list)))


def _array(items: list[msgspec.Raw]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(items))
