"""The rejects table of a table: refused records with the reasons."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from lakebed.tables.insert.convert_values import Unreadable
from lakebed.tables.insert.validation import BadRecord, show

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_MOST_BITS = 12_000
"""Python's limit for decimal conversion is hardly larger."""

REJECTS_SCHEMA: Mapping[str, Any] = {
    "time": {"type": "datetime", "unit": "us", "description": "when it was refused"},
    "position": {"type": "int", "description": "its place among the records of its insert"},
    "reasons": {"type": "string", "description": "what was expected and what came, by column"},
    "record": {"type": "json", "description": "the record as it came"},
}


def describe_bad(bad: BadRecord, now: int) -> dict[str, Any]:
    """Return a bad record as a record of the rejects table."""
    return {
        "time": now,
        "position": bad.index,
        "reasons": "; ".join(str(problem) for problem in bad.problems),
        "record": _as_json(bad.record),
    }


def _as_json(record: Any) -> Any:
    """Return the record as JSON; values that JSON cannot represent become text."""
    if isinstance(record, Mapping):
        return {str(_keep(name)): _keep(value) for name, value in record.items()}
    return _keep(record)


def _keep(value: Any) -> Any:
    try:
        return msgspec.json.decode(msgspec.json.encode(_plain(value), enc_hook=repr))
    except (TypeError, ValueError, RecursionError):
        return show(value)


def _plain(value: Any) -> Any:
    """Return the value with text in place of everything that JSON cannot represent."""
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case float() if not math.isfinite(value):
            return repr(value)
        case int() if not _LEAST <= value <= _MOST:
            return str(value) if value.bit_length() < _MOST_BITS else hex(value)
        case datetime() if type(value) is not datetime:  # as those of pandas
            return value.isoformat()
        case Unreadable():
            return value.text
        case Mapping():
            return {str(_plain(name)): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    return value
