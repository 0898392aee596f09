"""Shared by tests of validation: a schema of one column, and the conversion of one value."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from lakebed.model.tables.declaration import parse_schema
from lakebed.model.time import to_instant
from lakebed.tables.insert.validation import validate

TIMES = pa.timestamp("us", "UTC")
AT = "2026-11-16T05:00:00Z"
PULSE = parse_schema(
    {
        "at": "datetime",
        "device": {"type": "string", "unique": True},
        "bpm": {"type": "int", "min": 30, "max": 220},
        "note": "string",
    }
)


def micros(*parts: int) -> int:
    return to_instant(datetime(*parts, tzinfo=UTC))


def only(kind: str, **spec: Any) -> Any:
    """A schema whose interesting column is c."""
    return parse_schema({"at": {"type": "datetime", "time": True}, "c": {"type": kind, **spec}})


def take(value: Any, kind: str, **spec: Any) -> Any:
    """Return the stored form of a single value, or the expectation that it did not meet."""
    validated = validate([{"at": AT, "c": value}], only(kind, **spec))
    if validated.bad:
        (problem,) = validated.bad[0].problems
        assert problem.column == "c"
        return f"expected {problem.expected}"
    column = validated.rows["c"]
    return column.cast(pa.int64()).to_pylist()[0] if kind == "datetime" else column.to_pylist()[0]
