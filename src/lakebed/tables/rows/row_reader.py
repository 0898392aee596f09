"""Reading rows of users' tables. Files never change, so what was written or read is kept: the
most recently used, up to a number of bytes. Folding and queries read what was just inserted.
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
"""What a column takes beside its values, as measured, and half of what a table does."""
_LARGE_BYTES = 4 << 20
"""What is in files above this size is not kept."""
_MOST_SHARE = 8
"""Nor are rows that would take more than this part of what may be kept: they are several times as
large as their files."""
_SINGLE_BYTES = 256 << 10
"""Files below this size are read sooner in one piece and without threads."""


class RowReader:
    """Reads partitions of tables. Safe to use from several threads."""

    def __init__(self, store: Store, cache_bytes: int = 0) -> None:
        self._store = store
        self._cache_bytes = cache_bytes
        self._kept: OrderedDict[str, pa.Table] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def read(
        self, table: UserTable, partition: Partition, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of a partition as the table stores them now, each with its version; of some
        columns only, if they are named."""
        import pyarrow as pa

        wanted = table.view_set.schema
        if columns is not None:
            wanted = pa.schema([each for each in wanted if each.name in (*columns, VERSION)])
        path = partition.file_path
        if path is None:
            return wanted.empty_table()
        stored = table.stored[partition.schema_hash].schema.names
        rows = self._find(path)
        if rows is None:
            names = [name for name in wanted.names if name in stored]
            whole = partition.file_size <= _LARGE_BYTES and self._cache_bytes > 0
            rows = self._open(table, partition, path, None if whole else names)
            if whole:
                self.keep(path, rows, partition.file_size)
        return _as_stored_now(rows, wanted, partition.insert_range.begin)

    def keep(self, path: str, rows: pa.Table, file_size: int) -> None:
        """Remember what is in a file, unless it is large."""
        size = _count_held(rows)
        if file_size > _LARGE_BYTES or size > self._cache_bytes // _MOST_SHARE:
            return
        with self._lock:
            if path not in self._kept:
                self._kept[path] = rows
                self._size += size
            while self._size > self._cache_bytes:
                _, dropped = self._kept.popitem(last=False)
                self._size -= _count_held(dropped)

    def _find(self, path: str) -> pa.Table | None:
        with self._lock:
            known = self._kept.get(path)
            if known is not None:
                self._kept.move_to_end(path)
            return known

    def _open(
        self, table: UserTable, partition: Partition, path: str, names: Sequence[str] | None
    ) -> pa.Table:
        """What is in a file, down to the checksums of its pages: what was read is written again
        when it is folded, and nobody could tell any more."""
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
    """How much memory a table takes: of small ones, mostly what is around their values."""
    size: int = rows.nbytes + _HELD_BYTES * (2 + rows.num_columns)
    return size


def _as_stored_now(rows: pa.Table, schema: pa.Schema, version: int) -> pa.Table:
    """Older rows in the present schema: what they lack is NULL, whole numbers may have become
    fractions, and their version is that of their partition unless they have their own."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if rows.schema.equals(schema):
        place = schema.get_field_index(VERSION)
        return rows.set_column(place, schema.field(place), pc.fill_null(rows[VERSION], version))
    columns = []
    for each in schema:
        if each.name not in rows.column_names:
            columns.append(pa.chunked_array([pa.nulls(rows.num_rows, each.type)]))
        elif each.name == VERSION:
            columns.append(pc.fill_null(rows[VERSION], version))
        elif rows.schema.field(each.name).type == each.type:
            columns.append(rows[each.name])
        else:
            # Beyond 2^53 a float is the nearest there is, as everywhere.
            columns.append(rows[each.name].cast(each.type, safe=False))
    return pa.table(columns, schema=schema)
