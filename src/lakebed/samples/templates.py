"""Many different requests from one: the times and ids of a serialized request, exchanged in place.

Making a record costs some ten microseconds; a variation of it costs less than one, which is what
benchmarks over millions of records need. All times move together and all ids change by the same
pattern, so that trees stay trees and logs still belong to their spans.
"""

from __future__ import annotations

import re
import struct
from typing import Any

_REQUEST_ID = re.compile(rb"req-[0-9a-f]{12}")
_FIXED64 = struct.Struct("<Q")
_TRACE_ID = struct.Struct(">QQ")
_SPAN_ID = struct.Struct(">Q")


class Template:
    """A request as bytes, and where its times and ids are."""

    def __init__(self, request: Any) -> None:
        self._bytes = request.SerializeToString()
        self._times: list[tuple[int, int]] = []
        self._traces: list[tuple[int, int, int]] = []
        self._spans: list[tuple[int, int]] = []
        self._collect(request.DESCRIPTOR, 0, len(self._bytes))
        self._texts = [match.start() + 4 for match in _REQUEST_ID.finditer(self._bytes)]
        instants = [instant for _, instant in self._times]
        self.lasts_ns = max(instants, default=0) - min(instants, default=0) + 1
        """From the earliest to the latest time in the request."""

    def vary(self, pattern: int, shift_ns: int) -> bytes:
        """The request with every time shifted and every id changed by a 128-bit pattern.

        The same pattern and shift give the same bytes; pattern 0 leaves the ids as they are.
        """
        varied = bytearray(self._bytes)
        high, low = pattern >> 64 & 0xFFFF_FFFF_FFFF_FFFF, pattern & 0xFFFF_FFFF_FFFF_FFFF
        put_time, put_trace, put_span = _FIXED64.pack_into, _TRACE_ID.pack_into, _SPAN_ID.pack_into
        for at, instant in self._times:
            put_time(varied, at, instant + shift_ns)
        for at, first, second in self._traces:
            put_trace(varied, at, first ^ high, second ^ low)
        for at, span in self._spans:
            put_span(varied, at, span ^ low)
        if pattern:
            for count, at in enumerate(self._texts):
                number = (low + count * 0x9E3779B97F4A7C15) & 0xFFFF_FFFF_FFFF
                varied[at : at + 12] = b"%012x" % number
        return bytes(varied)

    def _collect(self, message: Any, at: int, end: int) -> None:
        fields = message.fields_by_number
        while at < end:
            tag, at = _read_varint(self._bytes, at)
            field, wire = fields[tag >> 3], tag & 7
            if wire == 0:
                _, at = _read_varint(self._bytes, at)
            elif wire == 1:
                if field.name.endswith("time_unix_nano"):
                    self._times.append((at, _FIXED64.unpack_from(self._bytes, at)[0]))
                at += 8
            elif wire == 5:
                at += 4
            else:
                length, at = _read_varint(self._bytes, at)
                if field.message_type is not None:
                    self._collect(field.message_type, at, at + length)
                elif field.name == "trace_id" and length == 16:
                    self._traces.append((at, *_TRACE_ID.unpack_from(self._bytes, at)))
                elif field.name in ("span_id", "parent_span_id") and length == 8:
                    self._spans.append((at, _SPAN_ID.unpack_from(self._bytes, at)[0]))
                at += length


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
