"""Find the signal of a request from its bytes.

A JSON request names its signal. A protobuf request does not: its signal is the one as which its
first records parse without an unknown field. Where more than one signal fits, or none, the result
is None.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from google.protobuf.unknown_fields import UnknownFieldSet  # type: ignore[import-untyped]

from lakebed.decode.descriptors import request_class
from lakebed.model.signal import Signal, SignalSpec, to_json_name

_LOOKED_AT = 50
_ABSENT = msgspec.Raw(b"")


_names = msgspec.json.Decoder(
    msgspec.defstruct(
        "_Names",
        [(signal.spec.resources, msgspec.Raw, _ABSENT) for signal in Signal],
        rename={signal.spec.resources: to_json_name(signal.spec.resources) for signal in Signal},
    )
)
"""The field of every kind of request, of which a request has one."""


def json_signals(body: bytes) -> list[Signal]:
    """Return the signals that a JSON request names; usually one. Raises what `msgspec` raises."""
    names = _names.decode(body)
    absent = (b"", b"null")
    return [
        signal for signal in Signal if bytes(getattr(names, signal.spec.resources)) not in absent
    ]


def guess_signal(body: bytes) -> Signal | None:
    """Return the one signal whose request the protobuf bytes can be, if there is exactly one."""
    fitting = [signal for signal in Signal if _fits(signal, body)]
    return fitting[0] if len(fitting) == 1 else None


def _fits(signal: Signal, body: bytes) -> bool:
    try:
        request = request_class(signal).FromString(body)
    except DecodeError:
        return False
    records = list(islice(_records(signal.spec, request), _LOOKED_AT))
    return bool(records) and all(_is_plausible(signal.spec, record) for record in records)


def _records(spec: SignalSpec, request: Any) -> Iterator[Any]:
    for resource in getattr(request, spec.resources):
        for scope in getattr(resource, spec.scopes):
            yield from getattr(scope, spec.records)


def _is_plausible(spec: SignalSpec, record: Any) -> bool:
    if len(UnknownFieldSet(record)):
        return False
    sizes = {name: len(getattr(record, name)) for name in spec.required}
    return all(sizes[name] and size in (None, sizes[name]) for name, size in spec.required.items())
