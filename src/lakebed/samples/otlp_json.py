"""Requests as OTLP/JSON, written by OTLP's own rules and independently of how Lakebed reads them:
lowerCamelCase names, ids in hexadecimal, 64-bit integers as texts, enums as integers.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

_IDS = frozenset({"trace_id", "span_id", "parent_span_id"})


def to_json(request: Any, *, whole_numbers: bool = False, upper: bool = False) -> bytes:
    """The JSON text of a request, or of any OTLP message.

    ``whole_numbers`` writes 64-bit integers as JSON numbers, as some senders do; ``upper`` writes
    ids in upper case.
    """
    writer = _Writer(whole_numbers=whole_numbers, upper=upper)
    text = json.dumps(writer.message(request), ensure_ascii=False, separators=(",", ":"))
    return text.encode()


class _Writer:
    def __init__(self, *, whole_numbers: bool, upper: bool) -> None:
        self._whole_numbers = whole_numbers
        self._upper = upper

    def message(self, message: Any) -> dict[str, Any]:
        written = {}
        for field, value in message.ListFields():
            if field.is_repeated:
                written[field.json_name] = [self._value(field, item) for item in value]
            else:
                written[field.json_name] = self._value(field, value)
        return written

    def _value(self, field: Any, value: Any) -> Any:
        kind = field.type
        if kind == field.TYPE_MESSAGE:
            return self.message(value)
        if kind == field.TYPE_BYTES:
            if field.name in _IDS:
                return value.hex().upper() if self._upper else value.hex()
            return base64.b64encode(value).decode()
        if kind == field.TYPE_DOUBLE:
            if math.isnan(value):
                return "NaN"
            if math.isinf(value):
                return "Infinity" if value > 0 else "-Infinity"
            return value
        if kind in (field.TYPE_INT64, field.TYPE_UINT64, field.TYPE_FIXED64, field.TYPE_SFIXED64):
            return value if self._whole_numbers else str(value)
        return value
