"""A lake for functions of SQL, and how to call them."""

from __future__ import annotations

from typing import Any

from lakebed.catalog import journal
from lakebed.lake import Lake
from lakebed.model.partition import Partition
from lakebed.model.time import format_instant
from tests.parts.data import HOUR, T0, publish_hour, publish_rebuildable_hour, readings

H0, H1, H2, H3 = (f"CAST('{format_instant(T0 + hour * HOUR)}' AS TIMESTAMP)" for hour in range(4))


def fill(lake: Lake) -> Lake:
    """Three hours of readings that could be built again; the second is empty."""
    lake.views.register(readings())
    publish_rebuildable_hour(lake, 0, 3)
    publish_hour(lake, 1, 0)
    publish_rebuildable_hour(lake, 2, 2)
    return lake


def ask(lake: Lake, sql: str, **options: Any) -> list[dict[str, Any]]:
    return lake.query(sql, **options).to_arrow().to_pylist()


def one(lake: Lake, sql: str) -> str:
    (row,) = ask(lake, f"SELECT {sql} AS message")
    return str(row["message"])


def live(lake: Lake) -> list[Partition]:
    return lake.partitions.list_partitions("readings")


def history(lake: Lake, *operations: str) -> list[journal.Entry]:
    with lake.catalog.read() as connection:
        return journal.list_entries(connection, operations=operations)


def with_twin(lake: Lake) -> list[Partition]:
    """The first hour exists in two schemas."""
    lake.views.register(readings(2))
    publish_rebuildable_hour(lake, 0, version=2)
    both = [each for each in live(lake) if each.insert_range.begin == T0]
    return sorted(both, key=lambda each: each.published_at)
