"""Fills a catalog with partitions that have no files, much faster than publishing them: to measure
how a catalog of a million partitions is searched.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from benchmarks.harness import EPOCH, MINUTE, READINGS, connect_postgres
from lakebed.catalog import schema
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.dialects import SqliteDialect
from lakebed.model.partition import NO_SOURCE
from lakebed.storage.footer import FOOTER_FORMAT
from lakebed.storage.layout import partition_path

MONTH = 30 * 24 * 60 * MINUTE
LONG_PARTITIONS = 20
_PAGE_ROWS = 20_000
_FOOTER, _DIGEST = b"footer", bytes(32)
_STATISTICS = (
    '{"celsius":[2.1,38.9],"device":["device-000","device-039"],"sequence":[0,999],'
    '"status":["fault","ok"],"time":[1700000000000000,1700000060000000],"volts":[2.9,3.7]}'
)
_FILE_BYTES, _ROWS = 30_000, 1000


def instance_names(instances: int) -> list[str]:
    return ["global"] if instances == 1 else [f"device-{i:04}" for i in range(instances)]


def load(catalog: Catalog, partitions: int, instances: int) -> None:
    """Insert live partitions of one minute each, spread evenly over instances that run side by
    side, and a few whose events span a month."""
    series = [
        (number, READINGS.name, name, READINGS.schema_hash)
        for number, name in enumerate(instance_names(instances), start=1)
    ]
    _insert(catalog, schema.series.name, [c.name for c in schema.series.columns], series)
    pages = _partitions(partitions, [name for _, _, name, _ in series])
    while page := list(islice(pages, _PAGE_ROWS)):
        names = [column.name for column in schema.partition_metadata.columns]
        _insert(catalog, schema.partition_metadata.name, names, map(_footer, page))
        _insert(catalog, schema.partitions.name, list(page[0]), (row.values() for row in page))
    if not isinstance(catalog.dialect, SqliteDialect):
        with connect_postgres(catalog.url) as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")  # as autovacuum would, sooner or later


def _partitions(count: int, instances: list[str]) -> Iterator[dict[str, Any]]:
    rng = random.Random(count)
    long_every = count // LONG_PARTITIONS
    for number in range(count):
        minute, place = divmod(number, len(instances))
        begin = EPOCH + minute * MINUTE
        # Rows arrive some seconds after what they tell of.
        earliest = begin - rng.randrange(30_000_000)
        latest = earliest + rng.randrange(30_000_000, MINUTE)
        if number % long_every == long_every - 1:
            earliest = latest - MONTH
        yield {
            "partition_id": _random_id(rng),
            "series_id": place + 1,
            "view_set_name": READINGS.name,
            "view_instance_id": instances[place],
            "begin_insert_time": begin,
            "end_insert_time": begin + MINUTE,
            "file_schema_hash": READINGS.schema_hash,
            "min_event_time": earliest,
            "max_event_time": latest,
            "event_span": 1 << (latest - earliest).bit_length(),
            "file_path": partition_path(READINGS.name, instances[place], begin, _random_id(rng)),
            "file_size": _FILE_BYTES,
            "num_rows": _ROWS,
            "source_data_hash": NO_SOURCE,
            "sort_order": "[]",
            "partition_format_version": FOOTER_FORMAT,
            "statistics": _STATISTICS,
            "published_at": begin + MINUTE,
            "held": False,
        }


def _random_id(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def _footer(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["file_path"], _FILE_BYTES, _FOOTER, FOOTER_FORMAT, row["published_at"], _DIGEST)


def _insert(catalog: Catalog, table: str, names: list[str], rows: Iterable[Iterable[Any]]) -> None:
    columns = ", ".join(names)
    if isinstance(catalog.dialect, SqliteDialect):
        with catalog.beat() as connection:
            marks = ", ".join("?" * len(names))
            cursor = connection.connection.cursor()
            statement = f"INSERT INTO {table} ({columns}) VALUES ({marks})"
            cursor.executemany(statement, map(tuple, rows))
        return
    with connect_postgres(catalog.url) as connection:
        cursor = connection.connection.cursor()
        with cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(tuple(row))
