"""Read rows of users' tables. Files never change, so rows that were written or read are cached: the
most recently used, up to a number of bytes. Folds and queries read recently inserted rows.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakebed.errors import Damage, DamagedFile, UnknownObject
from lakebed.model.partition import Partition
from lakebed.model.tables.table import VERSION, UserTable
from lakebed.storage import parquet
from lakebed.storage.objects import Store

if TYPE_CHECKING:
    import pyarrow as pa

_HELD_BYTES = 1024
"""The measured overhead of a column in bytes; a table has twice as much."""
_LARGE_BYTES = 4 << 20
"""Rows of files above this size are not cached."""
_MOST_SHARE = 8
"""Rows that would take more than this part of the cache are not cached: in memory they are several
times as large as their files."""
_SINGLE_BYTES = 256 << 10
"""Files below this size are read faster in one piece and without threads."""


class RowReader:
    """Reads partitions of tables. Safe to use from several threads."""

    def __init__(self, store: Store, cache_bytes: int = 0) -> None:
        self._store = store
        self._cache_bytes = cache_bytes
        self._cached: OrderedDict[str, pa.Table] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def read(
        self, table: UserTable, partition: Partition, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """Return the rows of a partition in the table's present schema, each with its version, and
        only the named columns if there are any."""
        import pyarrow as pa

        schema = table.view_set.schema
        if columns is not None:
            schema = pa.schema([field for field in schema if field.name in (*columns, VERSION)])
        path = partition.file_path
        if path is None:
            return schema.empty_table()
        stored = table.stored[partition.schema_hash].schema.names
        rows = self._find(path)
        if rows is None:
            names = [name for name in schema.names if name in stored]
            whole = partition.file_size <= _LARGE_BYTES and self._cache_bytes > 0
            rows = self._open(table, partition, path, None if whole else names)
            if whole:
                self.keep(path, rows, partition.file_size)
        return _as_stored_now(rows, schema, partition.insert_range.begin)

    def keep(self, path: str, rows: pa.Table, file_size: int) -> None:
        """Cache the rows of a file, unless it is large."""
        size = _count_held(rows)
        if file_size > _LARGE_BYTES or size > self._cache_bytes // _MOST_SHARE:
            return
        with self._lock:
            if path not in self._cached:
                self._cached[path] = rows
                self._size += size
            while self._size > self._cache_bytes:
                _, dropped = self._cached.popitem(last=False)
                self._size -= _count_held(dropped)

    def _find(self, path: str) -> pa.Table | None:
        with self._lock:
            rows = self._cached.get(path)
            if rows is not None:
                self._cached.move_to_end(path)
            return rows

    def _open(
        self, table: UserTable, partition: Partition, path: str, names: Sequence[str] | None
    ) -> pa.Table:
        """Read a file and verify it down to the checksums of its pages: a fold would write damaged
        rows again with valid checksums."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            small = partition.file_size < _SINGLE_BYTES
            if small:  # one byte more would show that the file has become longer
                source = pa.BufferReader(self._store.read(path, 0, partition.file_size + 1))
            else:
                source = self._store.open(path)
            try:
                file = pq.ParquetFile(source, page_checksum_verification=True)
                parquet.validate(
                    file.metadata,
                    path=path,
                    num_rows=partition.num_rows,
                    expected_hash=partition.schema_hash,
                )
                return file.read(None if names is None else list(names), use_threads=not small)
            finally:
                source.close()
        except UnknownObject as error:
            raise DamagedFile(
                f"{path} of table {table.full_name} is missing", hint="see: lakebed check"
            ) from error
        except (pa.ArrowException, Damage, OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise DamagedFile(
                f"cannot read {path} of table {table.full_name}: {reason}",
                hint="its rows cannot be made again; restore the file from a backup, or accept the "
                f"loss with: {partition.retire_command}",
            ) from error


def _count_held(rows: pa.Table) -> int:
    """Return the memory of a table in bytes; for small ones mostly overhead around the values."""
    size: int = rows.nbytes + _HELD_BYTES * (2 + rows.num_columns)
    return size


def _as_stored_now(rows: pa.Table, schema: pa.Schema, version: int) -> pa.Table:
    """Return older rows in the present schema: missing columns become NULL, integers may become
    floats, and rows without a version get that of their partition."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if rows.schema.equals(schema):
        index = schema.get_field_index(VERSION)
        return rows.set_column(index, schema.field(index), pc.fill_null(rows[VERSION], version))
    columns = []
    for field in schema:
        if field.name not in rows.column_names:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, field.type)]))
        elif field.name == VERSION:
            columns.append(pc.fill_null(rows[VERSION], version))
        elif rows.schema.field(field.name).type == field.type:
            columns.append(rows[field.name])
        else:
            # Beyond 2^53 integers are rounded to the nearest float, as everywhere.
            columns.append(rows[field.name].cast(field.type, safe=False))
    return pa.table(columns, schema=schema)
