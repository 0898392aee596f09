"""Validation agrees with a plain implementation of its rules, for any mix of values in a column."""

from __future__ import annotations

import contextlib
import math
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings

from lakebed.model.tables.declaration import parse_schema
from tests.tables.insert.plain_rules import (
    No,
    assert_plain,
    plain_value,
    tables,
)
from tests.tables.insert.validating import AT


@settings(max_examples=100)
@given(tables())
def test_validation_follows_the_plain_rules(table_and_records: tuple[Any, list[Any]]) -> None:
    schema, records = table_and_records
    assert_plain(records, schema)


TRICKY = [
    *(None, True, False, 0, 1, -1, 1999, -1001, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1),
    *(0.5, 1.0, 1.5, -2.5, 250.0005, 2.0**53, 2.0**63, -(2.0**63), 1e300, math.nan, math.inf),
    *(1794830400.123456, 1794830400123.4565, 1794830400123456789, 253402300799.9999999),
    *("", "1", "1.5", "true", "null", "ü", "\ud800", b"1", b"\xff", AT, AT[:-1], "soon"),
    *("2026.11.16 05:00:00.1234567", "1969-12-31T23:59:59.9999999+00:00", "2026-02-30T00:00:00Z"),
    *("0001-01-01T00:00:00+00:01", "9999-12-31T23:59:59.999999Z", "2026-11-16T05:00:00.9-23:59"),
    *(datetime(2026, 1, 1), datetime(2026, 1, 1, tzinfo=UTC), date(2026, 1, 1)),  # noqa: DTZ001
    *([], [1], (1,), {}, {"a": 1}, {1: 2}, {1}, [math.nan], timedelta(1)),
]


@pytest.mark.parametrize(
    "spec",
    [
        {"type": "int", "min": 1},
        {"type": "float", "min": 1},
        {"type": "string"},
        {"type": "bool"},
        {"type": "json"},
        {"type": "datetime"},
        {"type": "datetime", "unit": "s", "max": "2026-11-16T05:00:00Z"},
        {"type": "datetime", "unit": "ms"},
        {"type": "datetime", "unit": "us"},
        {"type": "datetime", "unit": "ns"},
    ],
    ids=str,
)
def test_no_neighbour_in_its_column_changes_a_value(spec: dict[str, Any]) -> None:
    """Neighbours of a value may select another code path; without any, the fast path is taken."""
    names = [f"c{number}" for number in range(len(TRICKY))]
    columns = dict.fromkeys(names, spec) | {"at": {"type": "datetime", "time": True}}
    schema = parse_schema({"columns": columns, "out_of_range": "flag"})
    whole = {"at": AT} | dict(zip(names, TRICKY, strict=True))
    fitting = {"at": AT}  # without those that do not fit, so that it becomes a row
    for name, value in zip(names, TRICKY, strict=True):
        with contextlib.suppress(No):
            plain_value(value, spec["type"], spec.get("unit"))
            fitting[name] = value
    for neighbour in (None, True, 1, 1.0, "x", AT, b"x", datetime(2026, 1, 1, tzinfo=UTC)):
        beside = {"at": AT} | dict.fromkeys(names, neighbour)
        assert_plain([beside, fitting, whole], schema)
