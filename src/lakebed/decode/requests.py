"""Split a request at landing: one part per resource, each with the bytes as received, the sender,
the number of records and their times.

A part of a protobuf request is the resource's field with its tag and length, which is itself a
valid request; a part of a JSON request is the text of the array's element. The whole body is
validated first, so that all that lands can be decoded later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from lakebed.decode.descriptors import request_class
from lakebed.decode.extents import measure
from lakebed.decode.json_requests.nesting import check_nesting
from lakebed.decode.json_requests.otlp_json import TOO_DEEP, begin_small, to_protobuf
from lakebed.decode.recognise import json_signals
from lakebed.decode.resources import Resource, describe_resource
from lakebed.errors import BadPayload, PayloadTooLarge
from lakebed.model.signal import Signal

Content = Literal["protobuf", "json"]

MAX_BODY_BYTES = 64 << 20
"""The largest request, uncompressed, that OTLP lets a server take."""

_RESOURCES = 1 << 3 | 2
"""The tag of every request's one field: number 1, length-delimited."""


@dataclass(frozen=True, slots=True)
class RequestPart:
    """The part of a request that one resource sent."""

    payload: bytes
    resource: Resource
    nb_objects: int
    """Log records, data points or spans."""
    begin: int | None
    end: int | None
    """The earliest and the latest event in microseconds, both included; None if none is known."""


def split(signal: Signal, body: bytes, *, content: Content) -> list[RequestPart]:
    """The parts of a request in its order; a resource without records is a part with no objects.

    Raises `BadPayload` if any of it is malformed, `PayloadTooLarge` above `MAX_BODY_BYTES`.
    """
    check_size(len(body))
    if content == "json":
        return [_json_part(signal, text) for text in _json_resources(signal, body)]
    resources = _parse(signal, body)
    payloads = list(_slice_resources(body))
    if len(payloads) != len(resources):
        raise BadPayload("the request's resources cannot be told apart")
    return [
        _part(signal, payload, resource)
        for payload, resource in zip(payloads, resources, strict=True)
    ]


def check_size(size_bytes: int) -> None:
    """Raise `PayloadTooLarge` above the limit, compressed or not; callers may check before they
    have read all."""
    if size_bytes > MAX_BODY_BYTES:
        raise PayloadTooLarge(
            f"the request has {size_bytes:,} bytes, more than {MAX_BODY_BYTES:,}",
            hint="send it in several smaller requests",
        )


def _part(signal: Signal, payload: bytes, resource: Any) -> RequestPart:
    extent = measure(signal, resource)
    return RequestPart(
        payload=payload,
        resource=describe_resource(resource.resource),
        nb_objects=extent.nb_objects,
        begin=extent.begin,
        end=extent.end,
    )


def _parse(signal: Signal, body: bytes) -> Any:
    """The resources of a protobuf request."""
    try:
        request = request_class(signal).FromString(body)
    except DecodeError as error:
        if "MaxDepth" in str(error):
            raise BadPayload(TOO_DEEP) from None
        raise BadPayload(
            f"the body of {len(body):,} bytes is no protobuf request of {signal}",
            hint="it is truncated, damaged or of another kind",
        ) from None
    (field,) = request.DESCRIPTOR.fields
    return getattr(request, field.name)


def _slice_resources(body: bytes) -> Iterator[bytes]:
    """The bytes of each resource's field; the body must have been parsed, so that it is sound."""
    at = depth = 0
    while at < len(body):
        begin = at
        tag, at = _read_varint(body, at)
        wire_type = tag & 7
        if wire_type == 0:
            _, at = _read_varint(body, at)
        elif wire_type == 1:
            at += 8
        elif wire_type == 2:
            length, at = _read_varint(body, at)
            at += length
        elif wire_type == 3:
            depth += 1
        elif wire_type == 4:
            depth -= 1
        else:
            at += 4
        if tag == _RESOURCES and not depth:
            yield body[begin:at]


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _json_part(signal: Signal, text: bytes) -> RequestPart:
    (resource,) = _parse(signal, to_protobuf(signal, text))
    return _part(signal, text, resource)


def _json_resources(signal: Signal, body: bytes) -> list[bytes]:
    check_nesting(body)
    try:
        (resources,) = msgspec.structs.astuple(_json_decoder(signal).decode(body))
    except RecursionError:
        raise BadPayload(TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        text = str(error)
        raise BadPayload(
            f"the body of {len(body):,} bytes is no JSON request of {signal}: {begin_small(text)}"
        ) from None
    if not resources:
        _refuse_others(signal, body)
    return [bytes(resource) for resource in resources or ()]


def _refuse_others(signal: Signal, body: bytes) -> None:
    """Raise `BadPayload` for an empty request that names another signal: none of its records
    would land."""
    try:
        found_signals = json_signals(body)
    except RecursionError:
        raise BadPayload(TOO_DEEP) from None
    if found_signals and signal not in found_signals:
        raise BadPayload(f"the request holds {' and '.join(found_signals)}, not {signal}")


@cache
def _json_decoder(signal: Signal) -> msgspec.json.Decoder[Any]:
    (field,) = request_class(signal).DESCRIPTOR.fields
    kind = msgspec.defstruct(
        f"Export{signal.title()}Request",
        [(field.name, list[msgspec.Raw] | None, None)],
        rename={field.name: field.json_name},
    )
    return msgspec.json.Decoder(kind)
