"""Users' tables as the engine reads them: files of every version of a schema, rows in memory, and a
join that removes rows hidden by newer ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from datafusion import DataFrame, col, lit
from datafusion import functions as sql

from lakebed.model.partition import Partition
from lakebed.model.tables.schema import BUCKET_COLUMN, FIRST_INSTANT, NAME_LENGTHS, Bucket
from lakebed.model.tables.table import DELETED, VERSION, UserTable
from lakebed.model.time import SECOND
from lakebed.model.view_set import ViewSet
from lakebed.query.embedded.types import with_views
from lakebed.query.planning.content import UserContent

if TYPE_CHECKING:
    from lakebed.query.embedded.content_tables import ContentTables

_HIDING = "hiding_"
_WEEK_US = 7 * 24 * 3600 * SECOND
_DAYS_BEFORE_1970 = -FIRST_INSTANT // (24 * 3600 * SECOND)


class UserTables:
    """Makes users' tables of what an engine makes of files and rows."""

    def __init__(self, tables: ContentTables) -> None:
        self._tables = tables
        self._context = tables.context

    def make(self, content: UserContent) -> Any:
        """Return the table that a statement sees."""
        table = content.table
        parts = [*self._read_files(content)]
        hides = content.hiding is not None or content.hiding_files
        frame = _union(parts) if parts else None
        if frame is not None and hides and not content.hiding_files:
            frame = self._hide(frame, content)
        if content.rows is not None:
            rows = self._as_stored(
                self._context.read_table(self._tables.make_of_rows(content.rows)), table
            )
            frame = rows if frame is None else frame.union(rows)
        assert frame is not None  # noqa: S101  (content that is empty is not made)
        if content.hiding_files:
            frame = self._hide(frame, content)
        return _show(frame, table, content.bucket).into_view()

    def _read_files(self, content: UserContent) -> list[DataFrame]:
        """Return the rows in files, without delete marks. Each has its version only if it
        matters."""
        table = content.table
        if content.compares:
            return [self._read_one(table, partition) for partition in content.files]
        by_version: dict[bytes, list[str]] = {}
        for partition in content.files:
            by_version.setdefault(partition.schema_hash, []).append(partition.file_path or "")
        return [
            self._read(table, schema_hash, tuple(paths), lit(0))
            for schema_hash, paths in by_version.items()
        ]

    def _read_one(
        self, table: UserTable, partition: Partition, *, with_marks: bool = False
    ) -> DataFrame:
        begin = lit(pa.scalar(partition.insert_range.begin, pa.int64()))
        version = sql.coalesce(col(VERSION), begin)
        paths = (partition.file_path or "",)
        return self._read(table, partition.schema_hash, paths, version, with_marks=with_marks)

    def _read(
        self,
        table: UserTable,
        schema_hash: bytes,
        paths: tuple[str, ...],
        version: Any,
        *,
        with_marks: bool = False,
    ) -> DataFrame:
        stored = table.stored[schema_hash]
        frame = self._context.read_table(self._tables.make_of_files(paths, stored))
        if table.key and not with_marks:
            frame = frame.filter(sql.coalesce(col(DELETED), lit(False)) == lit(False))
        return _as_now(frame, table, stored, version)

    def _as_stored(self, frame: DataFrame, table: UserTable) -> DataFrame:
        return _as_now(frame, table, table.view_set, col(VERSION))

    def _hide(self, frame: DataFrame, content: UserContent) -> DataFrame:
        """Return the rows that no newer one hides. The hiding keys are few or at least narrow: they
        stand to the left of the join, where the engine holds them in memory, and the rows stream
        by."""
        key = content.table.key
        parts = []
        if content.hiding is not None:
            parts.append(self._context.read_table(self._tables.make_of_rows(content.hiding)))
        for partition in content.hiding_files:
            keys = self._read_one(content.table, partition, with_marks=True)
            # A mark also hides rows that were inserted at its very instant.
            version = col(VERSION) + sql.coalesce(col(DELETED).cast(pa.int64()), lit(0))
            parts.append(keys.select(*_names(key), version.alias(VERSION)))
        names = {name: f"{_HIDING}{number}" for number, name in enumerate((*key, VERSION))}
        hiding = _union(
            [
                part.select(*(col(f'"{name}"').alias(new) for name, new in names.items()))
                for part in parts
            ]
        )
        conditions = [f'stored."{name}" = hiding.{names[name]}' for name in key]
        if content.compares:
            conditions.append(f"hiding.{names[VERSION]} > stored.{VERSION}")
        statement = (
            f"SELECT stored.* FROM hiding RIGHT ANTI JOIN stored ON {' AND '.join(conditions)}"
        )
        return self._tables.plan_over(statement, {"stored": frame, "hiding": hiding})


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    union = frames[0]
    for frame in frames[1:]:
        union = union.union(frame)
    return union


def _names(names: Sequence[str]) -> list[Any]:
    return [col(f'"{name}"') for name in names]


def _as_now(frame: DataFrame, table: UserTable, stored: ViewSet, version: Any) -> DataFrame:
    """Return rows of any version of a table in its present columns, with their version."""
    columns = []
    for field in with_views(table.view_set.schema):
        if field.name == VERSION:
            columns.append(version.cast(pa.int64()).alias(VERSION))
        elif field.name in stored.schema.names:
            columns.append(col(f'"{field.name}"').cast(field.type).alias(field.name))
        else:
            columns.append(lit(pa.scalar(None, pa.null())).cast(field.type).alias(field.name))
    return frame.select(*columns)


def _show(frame: DataFrame, table: UserTable, bucket: str | None) -> DataFrame:
    """Return the rows as users see them: their columns, and the name of the bucket, which takes
    long to compute from every row's time and is often constant."""
    visible_names = [name for name in table.shown.schema.names if name != BUCKET_COLUMN]
    name = lit(bucket)
    if bucket is None:
        name = _name_bucket(col(f'"{table.time_column}"'), table.bucket)
    return frame.select(*_names(visible_names), name.cast(pa.string_view()).alias(BUCKET_COLUMN))


def _name_bucket(time: Any, bucket: Bucket) -> Any:
    """Return `Bucket.name_of` as an expression. The engine's own functions for dates count
    nanoseconds, and know only the years from 1677 to 2262."""
    if bucket is Bucket.WEEK:
        weeks = (time.cast(pa.int64()) - lit(FIRST_INSTANT)) / lit(_WEEK_US)  # from a Monday on
        time = (weeks * lit(7) - lit(_DAYS_BEFORE_1970)).cast(pa.int32()).cast(pa.date32())
    return sql.left(time.cast(pa.string_view()), lit(NAME_LENGTHS[bucket]))
