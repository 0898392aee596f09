"""A lake's view sets and tables as DataFrames on Spark's own Parquet reader, over exactly the files
of one snapshot.

A snapshot's files are kept while its lease is held: until `SparkReader.close`, until the lake is
closed, or for the lake's longest read. DataFrames and views made from it may be used that long.
Later, what was swept is an error of Spark's that names the missing file, never fewer rows, and
asking the reader for more raises `SnapshotExpired`.

View sets made by SQL are read through their merge SQL, so that partial results are added up. What
has landed and is not built yet is in no file, and so in none of these DataFrames.
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lakebed.catalog.lookups import partition_search
from lakebed.catalog.lookups.partition_search import PartitionFilter
from lakebed.catalog.records import tables, view_sets
from lakebed.catalog.times import resolve_past
from lakebed.errors import BadInput, SnapshotExpired
from lakebed.lake import Lake
from lakebed.model.arguments import checked, checked_methods
from lakebed.model.source import SqlSource
from lakebed.model.tables.schema import BUCKET_COLUMN
from lakebed.model.tables.table import UserTable
from lakebed.model.time import Instant, TimeRange, parse_moment, to_instant
from lakebed.model.view_set import GLOBAL, ViewSet
from lakebed.opening import open_lake
from lakebed.pipeline.frames.reading import read_native
from lakebed.pipeline.frames.spark_access import SparkAccess
from lakebed.pipeline.frames.types import spark_schema
from lakebed.query.planning.conditions import EVER, Interval, Scan
from lakebed.query.planning.content import keeps_times
from lakebed.query.snapshot import user_tables
from lakebed.query.spark.frames import keep_range, merge_parts
from lakebed.query.spark.user_tables import UserTables
from lakebed.reading.hold import hold_tick
from lakebed.settings import read_settings
from lakebed.tables.rows.row_reader import RowReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_OWN: dict[str, Lake] = {}


@checked_methods
class SparkReader:
    """One snapshot of a lake for Spark, held until it is closed."""

    def __init__(self, spark: SparkSession, lake: Lake, as_of: Instant | None = None) -> None:
        as_of = resolve_past(lake.catalog, as_of)
        past = None if as_of is None else to_instant(as_of, "down")
        self._spark = spark
        self._lake = lake
        with hold_tick(lake.catalog, lake.leases, past) as (connection, self._hold):
            active = view_sets.list_active(connection)
            user_tables = tables.list_tables(connection)
        self.tick = self._hold.tick
        self._definitions = {entry.view_set.name: entry.view_set for entry in active}
        self._tables = {table.full_name: table for table in user_tables}

    def read(
        self,
        view_set: str,
        begin: Instant | None = None,
        end: Instant | None = None,
        *,
        instance: str | None = GLOBAL,
    ) -> DataFrame:
        """The rows of a view set with events from ``begin`` up to ``end``, of one instance or
        (None) of all; or of a table, ``database.table``, in which an instance is a bucket, and all
        are read without one. Only files that may hold such rows are opened."""
        self._hold.require_held()
        within = self._within(begin, end)
        if "." in view_set:
            bucket = None if instance == GLOBAL else instance
            return self._read_table(self._table(view_set), within, bucket)
        definition = self._definition(view_set)
        search = PartitionFilter(
            view_sets=[(view_set, [definition.schema_hash])],
            instance=instance,
            events=within if keeps_times(definition) else None,
            as_of=self.tick,
        )
        with self._lake.catalog.read() as connection:
            matching = partition_search.search(connection, search)
        paths = [partition.file_path for partition in matching if partition.file_path is not None]
        if not paths:
            return self._spark.createDataFrame([], spark_schema(definition))
        frame = read_native(self._spark, self._lake.store, paths, definition)
        if isinstance(definition.source, SqlSource):
            schema, merge_sql = spark_schema(definition), definition.source.merge_sql
            frame = merge_parts(self._spark, frame, definition, schema, merge_sql)
        return keep_range(frame, definition, within)

    def _within(self, begin: Instant | None, end: Instant | None) -> TimeRange | None:
        """Return the requested range; durations count back from the snapshot."""
        if begin is None and end is None:
            return None
        return TimeRange.of(
            EVER.begin if begin is None else parse_moment(begin, self.tick),
            EVER.end if end is None else parse_moment(end, self.tick),
        )

    def _read_table(
        self, table: UserTable, within: TimeRange | None, bucket: str | None
    ) -> DataFrame:
        from pyspark.sql import functions as sql

        columns: dict[str, Sequence[Interval]] = {}
        if within is not None:
            columns[table.time_column] = [(within.begin, within.end - 1)]
        if bucket is not None:
            table.bucket.range_of(bucket)  # raises if it is no bucket's name
            columns[BUCKET_COLUMN] = [(bucket, bucket)]
        with self._lake.catalog.read() as connection:
            scan = Scan(table.full_name, columns)
            view = user_tables.find(connection, table, [scan], self.tick)
        reader = user_tables.UserReader(RowReader(self._lake.store))
        frame = UserTables(SparkAccess(self._lake.store), self._spark).make(reader.read(view))
        frame = keep_range(frame, table.shown, within)
        return frame if bucket is None else frame.where(sql.col(BUCKET_COLUMN) == bucket)

    def create_temp_views(self, names: Sequence[str] | None = None) -> list[str]:
        """A temporary view for each view set and table (or those named), all of this one snapshot.
        Without names, those that Spark cannot hold are left out, and what tables refused; the names
        that were made. Views have no database, so a table's name is written in backticks."""
        if names is None:
            user_tables = [name for name, table in self._tables.items() if table.rejects_of is None]
            names = [*self._readable_view_sets(), *sorted(user_tables)]
        for name in names:
            self.read(name, instance=None).createOrReplaceTempView(f"`{name}`")
        return list(names)

    def _readable_view_sets(self) -> list[str]:
        readable = []
        for name, definition in sorted(self._definitions.items()):
            try:
                spark_schema(definition)
            except BadInput:
                continue
            readable.append(name)
        return readable

    def close(self) -> None:
        """Release the snapshot's files."""
        self._hold.close()

    def _definition(self, name: str) -> ViewSet:
        if name not in self._definitions:
            with self._lake.catalog.read() as connection:
                view_sets.get(connection, name)  # raises, with what there is
            raise SnapshotExpired(
                f"view set {name} was registered after this snapshot", hint="take a new one"
            )
        return self._definitions[name]

    def _table(self, name: str) -> UserTable:
        if name not in self._tables:
            with self._lake.catalog.read() as connection:
                tables.get(connection, *name.split(".", 1))  # raises, with what there is
            raise SnapshotExpired(
                f"table {name} was made after this snapshot", hint="take a new one"
            )
        return self._tables[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@checked
def reader(
    spark: SparkSession, lake: Lake | None = None, *, as_of: Instant | None = None
) -> SparkReader:
    """A snapshot of a lake for Spark, now or as of a past tick; use it as a context manager.
    Without a lake, of the one that LAKEBED_LAKE or lakebed.toml names; it stays open with this
    process."""
    return SparkReader(spark, lake or _open_own(), as_of)


@checked
def read(
    spark: SparkSession,
    view_set: str,
    begin: Instant | None = None,
    end: Instant | None = None,
    *,
    lake: Lake | None = None,
    instance: str | None = GLOBAL,
    as_of: Instant | None = None,
) -> DataFrame:
    """The rows of one view set or table, on a snapshot of its own that is held until the lake is
    closed."""
    return reader(spark, lake, as_of=as_of).read(view_set, begin, end, instance=instance)


@checked
def create_temp_views(
    spark: SparkSession, lake: Lake | None = None, names: Sequence[str] | None = None
) -> list[str]:
    """A temporary view for each view set and table, all of one snapshot that is held until the lake
    is closed; their names."""
    return reader(spark, lake).create_temp_views(names)


def _open_own() -> Lake:
    """Return the lake of this process's settings, opened once."""
    location = read_settings().lake
    if location not in _OWN:
        _OWN[location] = open_lake(location)
        atexit.register(_OWN[location].close)
    return _OWN[location]
