"""Fills a catalog with partitions that have no files, much faster than publishing them: to measure
how a catalog of a million partitions is searched.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from benchmarks.harness import EPOCH, MINUTE, READINGS, connect_postgres
from lakebed.catalog import schema
from lakebed.catalog.catalog import Catalog, Connection
from lakebed.catalog.connections.dialects import SqliteDialect
from lakebed.model.partition import NO_SOURCE
from lakebed.model.view_set import GLOBAL
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


def load(catalog: Catalog, partitions: int) -> None:
    """Insert live partitions of one minute each, and a few whose events span a month. Indexes and
    triggers are made again afterwards, which is faster than keeping them up."""
    on_sqlite = isinstance(catalog.dialect, SqliteDialect)
    loader = _SqliteLoader if on_sqlite else _PostgresLoader
    series = [(1, READINGS.name, GLOBAL, READINGS.schema_hash)]
    rows = _partitions(partitions)
    # The catalog's own connections to PostgreSQL send statements ahead, and COPY cannot be.
    with catalog.beat() if on_sqlite else connect_postgres(catalog.url) as connection:
        load = loader(connection)
        load.insert(schema.series.name, [c.name for c in schema.series.columns], series)
        made_by = load.drop_indexes(schema.partitions.name)
        while page := list(islice(rows, _PAGE_ROWS)):
            columns = [column.name for column in schema.partition_metadata.columns]
            load.insert(schema.partition_metadata.name, columns, map(_footer, page))
            load.insert(schema.partitions.name, list(page[0]), (row.values() for row in page))
        for statement in made_by:
            connection.exec_driver_sql(statement)
    if loader is _PostgresLoader:
        with connect_postgres(catalog.url) as connection:
            connection.exec_driver_sql("VACUUM ANALYZE")  # as autovacuum would, sooner or later


class _SqliteLoader:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cursor = connection.connection.cursor()

    def insert(self, table: str, columns: list[str], rows: Iterable[Iterable[Any]]) -> None:
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        self._cursor.executemany(statement, [tuple(row) for row in rows])

    def drop_indexes(self, table: str) -> list[str]:
        """Drop what every insert would have to keep up; the statements that make it again."""
        found = self._connection.exec_driver_sql(
            "SELECT type, name, sql FROM sqlite_master"
            " WHERE type IN ('index', 'trigger') AND tbl_name = ? AND sql IS NOT NULL",
            (table,),
        ).all()
        for kind, name, _ in found:
            self._connection.exec_driver_sql(f"DROP {kind} {name}")
        return [statement for _, _, statement in found]


class _PostgresLoader:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._cursor = connection.connection.cursor()

    def insert(self, table: str, columns: list[str], rows: Iterable[Iterable[Any]]) -> None:
        with self._cursor.copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(tuple(row))

    def drop_indexes(self, table: str) -> list[str]:
        """Drop what every insert would have to keep up; the statements that make it again."""
        constraints = self._connection.exec_driver_sql(
            "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
            f" WHERE conrelid = '{table}'::regclass AND contype IN ('f', 'x')"
        ).all()
        for name, _ in constraints:
            self._connection.exec_driver_sql(f"ALTER TABLE {table} DROP CONSTRAINT {name}")
        indexes = self._connection.exec_driver_sql(
            "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index"
            f" WHERE indrelid = '{table}'::regclass AND NOT indisprimary"
        ).all()
        for name, _ in indexes:
            self._connection.exec_driver_sql(f"DROP INDEX {name}")
        return [definition for _, definition in indexes] + [
            f"ALTER TABLE {table} ADD CONSTRAINT {name} {definition}"
            for name, definition in constraints
        ]


def _partitions(count: int) -> Iterator[dict[str, Any]]:
    rng = random.Random(count)
    schema_hash = READINGS.schema_hash
    long_every = count // LONG_PARTITIONS
    for number in range(count):
        begin = EPOCH + number * MINUTE
        # Rows arrive some seconds after what they tell of.
        earliest = begin - rng.randrange(30_000_000)
        latest = earliest + rng.randrange(30_000_000, MINUTE)
        if number % long_every == long_every - 1:
            earliest = latest - MONTH
        yield {
            "partition_id": _random_id(rng),
            "series_id": 1,
            "view_set_name": READINGS.name,
            "view_instance_id": GLOBAL,
            "begin_insert_time": begin,
            "end_insert_time": begin + MINUTE,
            "file_schema_hash": schema_hash,
            "min_event_time": earliest,
            "max_event_time": latest,
            "event_span": 1 << (latest - earliest).bit_length(),
            "file_path": partition_path(READINGS.name, GLOBAL, begin, _random_id(rng)),
            "file_size": _FILE_BYTES,
            "num_rows": _ROWS,
            "source_data_hash": NO_SOURCE,
            "sort_order": "[]",
            "partition_format_version": FOOTER_FORMAT,
            "statistics": _STATISTICS,
            "published_at": begin + MINUTE,
            "held": False,
            "replaced": False,
        }


def _random_id(rng: random.Random) -> str:
    digits = f"{rng.getrandbits(128):032x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _footer(row: dict[str, Any]) -> tuple[Any, ...]:
    return (row["file_path"], _FILE_BYTES, _FOOTER, FOOTER_FORMAT, row["published_at"], _DIGEST)
