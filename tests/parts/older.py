"""Catalogs of the older shape, as systems before Lakebed left them, and how to compare two."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import sqlalchemy as sa

from lakebed.catalog.connections.dialects import WRITE
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import put
from tests.parts.data import HOUR, T0


def describe(engine: sa.Engine) -> dict[str, Any]:
    """Everything a database says about its tables, indexes, constraints and triggers."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            rows = connection.exec_driver_sql("SELECT type, name, sql FROM sqlite_master")
            return {f"{kind} {name}": sql for kind, name, sql in rows}
        constraints = connection.exec_driver_sql(
            "SELECT conrelid::regclass::text || ' ' || conname, pg_get_constraintdef(oid) "
            "FROM pg_constraint WHERE connamespace = 'public'::regnamespace"
        )
        indexes = connection.exec_driver_sql(
            "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'"
        )
        columns = connection.exec_driver_sql(
            "SELECT table_name || '.' || column_name, data_type || is_nullable || "
            "coalesce(column_default, '') FROM information_schema.columns "
            "WHERE table_schema = 'public'"
        )
        return {name: text for query in (constraints, indexes, columns) for name, text in query}


def parquet_bytes(count: int) -> tuple[bytes, bytes]:
    """A file as another system wrote it, and its footer."""
    table = pa.table({"time": pa.array(range(count), pa.int64()), "number": list(range(count))})
    sink = io.BytesIO()
    pq.write_table(table, sink, write_page_index=True)
    data = sink.getvalue()
    length = int.from_bytes(data[-8:-4], "little")
    return data, data[-8 - length : -8]


def fill_older_shape(engine: sa.Engine, files: int, store: LocalStore | None = None) -> None:
    """Partitions with inline footers, some with their trailer, and an empty one each tenth."""
    data, footer = parquet_bytes(7)
    with engine.execution_options(**{WRITE: True}).begin() as connection:
        for number in range(files):
            empty = number % 10 == 9
            path = None if empty else f"views/log/{number:05}.parquet"
            if store is not None and path is not None:
                put(store, path, data)
            connection.execute(
                sa.text(
                    "INSERT INTO lakehouse_partitions VALUES ('log_entries', 'global', :begin, "
                    ":end, :low, :high, :updated, :path, :size, :hash, :source, :footer, :rows, 1)"
                ),
                {
                    "begin": T0 + number * HOUR,
                    "end": T0 + (number + 1) * HOUR,
                    "low": None if empty else T0 + number * HOUR,
                    "high": None if empty else T0 + number * HOUR + 6,
                    "updated": T0 + number,
                    "path": path,
                    "size": 0 if empty else len(data),
                    "hash": b"\x05",
                    "source": (7).to_bytes(8, "little"),
                    "footer": None if empty else footer + (data[-8:] if number % 2 else b""),
                    "rows": 0 if empty else 7,
                },
            )
