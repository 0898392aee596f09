"""Which partitions may have a key of an insert, by their statistics and the times of their rows."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakebed.model.partition import EventRange, Identity, Partition
from lakebed.model.tables.declaration import parse_schema
from lakebed.model.tables.schema import Bucket
from lakebed.model.tables.table import UserTable
from lakebed.model.time import TimeRange
from lakebed.tables.insert.existing_keys import NewKeys

SCHEMA = {
    "device": {"type": "string", "unique": True},
    "time": {"type": "datetime", "unit": "us", "unique": True},
    "ok": {"type": "bool", "unique": True},
    "value": "int",
}


def make_partition(
    devices: tuple[str, str] | None = ("c", "f"), path: str | None = "path"
) -> Partition:
    """Return a partition of rows from 10 to 20."""
    statistics: dict[str, Any] = {"ok": [False, False]}
    if devices is not None:
        statistics["device"] = list(devices)
    identity = Identity("table_id", "day", TimeRange(100, 101), b"schema")
    return Partition(
        "id", identity, EventRange(10, 20), path, 1, 1, b"", (), 1, statistics, published_at=100
    )


def may_have(partition: Partition, devices: list[str], times: list[int]) -> bool:
    """Return whether statistics leave it open that a partition has keys of new rows."""
    table = UserTable("id", "d", "t", Bucket.DAY, (parse_schema(SCHEMA),))
    rows = pa.table(
        {
            "device": devices,
            "time": pa.array(times, pa.timestamp("us", "UTC")),
            "ok": pa.array([True] * len(times)),
        }
    )
    return NewKeys(table, rows).are_in([partition])


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ([9], False),
        ([10], True),
        ([20], True),
        ([21], False),
        ([9, 21], True),
        ([1, 9], False),
        ([], False),
    ],
)
def test_only_partitions_with_rows_of_the_same_time_may_have_a_key(
    times: list[int], expected: bool
) -> None:
    assert may_have(make_partition(), ["d"] * len(times), times) is expected


@pytest.mark.parametrize(
    ("devices", "expected"),
    [(["b"], False), (["c"], True), (["f"], True), (["g"], False), (["b", "g"], True)],
)
def test_only_partitions_whose_statistics_have_the_value_may_have_a_key(
    devices: list[str], expected: bool
) -> None:
    times = [15] * len(devices)
    assert may_have(make_partition(), devices, times) is expected
    assert may_have(make_partition(None), devices, times)


def test_empty_partitions_have_no_key() -> None:
    assert not may_have(make_partition(path=None), ["d"], [15])
