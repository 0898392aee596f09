"""Users' tables as DataFrames: files of every version of a schema, rows in memory, and a join that
removes rows hidden by newer ones. The result is that of the embedded engine, independent of the
session's time zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from lakebed.model.partition import Partition
from lakebed.model.tables.schema import BUCKET_COLUMN, Bucket
from lakebed.model.tables.table import DELETED, VERSION, UserTable
from lakebed.model.view_set import ViewSet
from lakebed.query.planning.content import UserContent
from lakebed.query.spark.frames import make_frame
from lakebed.query.spark.tools import SparkTools

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_HIDING = "_hiding_"
"""The prefix of the columns of hiding keys; no column of a user begins like this."""
_DAY = 86_400_000_000
_HOUR = 3_600_000_000


class UserTables:
    """Makes the tables of one session."""

    def __init__(self, tools: SparkTools, session: SparkSession) -> None:
        self._tools = tools
        self._session = session

    def make(self, content: UserContent) -> DataFrame:
        """Return the rows that a table has."""
        table = content.table
        if content.is_empty:
            return make_frame(self._session, self._tools.schema(table.shown))
        hides_all = bool(content.hiding_files)
        frame = self._read_files(content)
        if frame is not None and content.hiding is not None and not hides_all:
            frame = self._hide(frame, content)
        if content.rows is not None:
            rows = make_frame(self._session, self._tools.schema(table.view_set), [content.rows])
            frame = rows if frame is None else frame.union(rows)
        assert frame is not None  # noqa: S101  (then it is empty)
        if hides_all:
            frame = self._hide(frame, content)
        return _show(frame, table)

    def _read_files(self, content: UserContent) -> DataFrame | None:
        """Return the rows in files, without delete marks. Each has its version only if it
        matters."""
        from pyspark.sql import functions as sql

        frame = self._read(content.table, content.files, versions=content.compares)
        if frame is None or not content.table.key:
            return frame
        return frame.where(~sql.coalesce(sql.col(DELETED), sql.lit(False)))

    def _read(
        self, table: UserTable, partitions: Sequence[Partition], *, versions: bool
    ) -> DataFrame | None:
        """Return rows and marks as the table stores them now: one read for each version of its
        schema."""
        by_schema: dict[bytes, dict[str, int]] = {}
        for partition in partitions:
            files = by_schema.setdefault(partition.schema_hash, {})
            files[partition.file_path or ""] = partition.insert_range.begin
        parts = []
        for schema_hash, files in by_schema.items():
            stored = table.stored[schema_hash]
            if versions:
                frame = self._tools.read_versions(self._session, stored, files)
            else:
                frame = self._tools.read(self._session, stored, list(files))
            parts.append(self._as_now(frame, table, stored))
        return reduce(lambda whole, part: whole.union(part), parts) if parts else None

    def _as_now(self, frame: DataFrame, table: UserTable, stored: ViewSet) -> DataFrame:
        """Return rows of any version of a table in its present columns."""
        from pyspark.sql import functions as sql

        columns = []
        for field in self._tools.schema(table.view_set):
            is_stored = field.name in stored.schema.names
            column = sql.col(f"`{field.name}`") if is_stored else sql.lit(None)
            columns.append(column.cast(field.dataType).alias(field.name))
        return frame.select(*columns)

    def _hide(self, frame: DataFrame, content: UserContent) -> DataFrame:
        """Return the rows that no newer one hides."""
        from pyspark.sql import functions as sql
        from pyspark.sql.types import StructType

        names = [*content.table.key, VERSION]
        parts = []
        if content.hiding is not None:
            stored = self._tools.schema(content.table.view_set)
            schema = StructType([stored[name] for name in names])
            parts.append(make_frame(self._session, schema, [content.hiding.select(names)]))
        keys = self._read(content.table, content.hiding_files, versions=True)
        if keys is not None:
            # A mark also hides rows that were inserted at its very instant.
            mark = sql.coalesce(sql.col(DELETED).cast("bigint"), sql.lit(0))
            version = (sql.col(VERSION) + mark).alias(VERSION)
            parts.append(keys.select(*(f"`{name}`" for name in content.table.key), version))
        hiding = reduce(lambda whole, part: whole.union(part), parts)
        hiding = hiding.toDF(*(f"{_HIDING}{index}" for index in range(len(names))))
        conditions = [
            sql.col(f"`{name}`") == sql.col(f"{_HIDING}{index}")
            for index, name in enumerate(content.table.key)
        ]
        if content.compares:
            conditions.append(sql.col(f"{_HIDING}{len(names) - 1}") > sql.col(VERSION))
        return frame.join(hiding, conditions, "left_anti")


def _show(frame: DataFrame, table: UserTable) -> DataFrame:
    """Return the rows as users see them: their columns, and the name of the bucket."""
    visible_names = [name for name in table.shown.schema.names if name != BUCKET_COLUMN]
    return frame.select(
        *(f"`{name}`" for name in visible_names),
        _name_bucket(table.bucket, table.time_column).alias(BUCKET_COLUMN),
    )


def _name_bucket(bucket: Bucket, time_column: str) -> Column:
    """Return `Bucket.name_of` in UTC, independent of the session's time zone, which nothing here
    reads."""
    from pyspark.sql import functions as sql

    instant = f"unix_micros(`{time_column}`)"
    date = f"date_from_unix_date(int(({instant} - pmod({instant}, {_DAY})) div {_DAY}))"
    match bucket:
        case Bucket.HOUR:
            hour = f"lpad(string(pmod({instant}, {_DAY}) div {_HOUR}), 2, '0')"
            return sql.expr(f"concat(string({date}), 'T', {hour})")
        case Bucket.DAY:
            return sql.expr(f"string({date})")
        case Bucket.WEEK:
            return sql.expr(f"string(date_sub({date}, weekday({date})))")
        case Bucket.MONTH:
            return sql.expr(f"substring(string({date}), 1, 7)")
