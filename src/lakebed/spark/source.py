"""``spark.read.format("lakebed")``: a Python data source. The driver opens the lake and plans;
executors read files through the store and need no catalog and no Hadoop file system. It reads
batches only: streams and writes are refused by name.

Spark plans a loaded DataFrame once, with its first action: a snapshot without a lease. Files
that are retired later stay for the lake's grace period, and one that is gone fails the action.

There is no filter pushdown: Spark 4.3 keeps the plan of the first action, with its filters, for all
later ones of the same DataFrame, which would then miss rows. Options prune instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from lakebed.catalog.lookups.partition_search import PartitionFilter
from lakebed.errors import BadInput, SnapshotExpired, UnknownObject, Unsupported
from lakebed.model.source import SqlSource
from lakebed.model.time import TimeRange, is_relative, to_instant
from lakebed.model.view_set import GLOBAL, ViewSet
from lakebed.pipeline.frames.types import spark_schema
from lakebed.pipeline.sessions.executors import StoreAddress
from lakebed.storage import parquet

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.lake import Lake

_EVER = 1 << 61
_TASK_BYTES = 64 << 20
_OPENING_BYTES = 1 << 20  # what opening one more file costs, in bytes read
_BATCH_ROWS = 16 * 1024
_OPTIONS = ("lake", "view", "begin", "end", "instance", "as_of", "pass_credentials")
_SPARKS_OWN = ("path", "provider", "collation", "comment", "external", "location", "owner")
_TIMES = ("begin", "end", "as_of")
_COPIES = "option."
"""Options that Spark adds itself: ``load("shop")`` a path, ``CREATE TABLE … USING lakebed`` the
properties of the table and, with this prefix, a copy of each option."""


@dataclass
class Files(InputPartition):
    """The files that one task reads."""

    address: StoreAddress
    paths: list[str]


class LakebedSource(DataSource):
    """The data source. Its options: ``lake`` (folder or catalog URL; or ``load(PATH)``), ``view``;
    optional are ``begin``, ``end`` (event time), ``instance`` (``*`` for all), ``as_of``,
    ``pass_credentials`` (``true``)."""

    @classmethod
    def name(cls) -> str:
        return "lakebed"

    def schema(self) -> StructType:
        """Return the view set's schema in Spark's types."""
        self._check_options()
        return spark_schema(self._definition())

    def reader(self, schema: StructType) -> LakebedReader:
        """Return the reader; the caller's schema must be the view set's."""
        definition = self._definition()
        if schema.simpleString() != spark_schema(definition).simpleString():
            raise BadInput(
                f"the schema given for view set {definition.name} is not its own",
                hint="leave out .schema(…)",
            )
        self._resolve_times()
        return LakebedReader(self, schema, definition)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Refuse to write."""
        del schema, overwrite
        raise Unsupported(
            "df.write cannot write the lakebed format; use lakebed.spark.write(df, lake, VIEW_SET, "
            "begin, end) or lakebed.spark.insert(df, lake, DATABASE.TABLE)"
        )

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return a reader that refuses: pyspark 4.3 hides an error that is raised here behind an
        UnboundLocalError of its own."""
        del schema
        return RefusedStream()

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        """Refuse to write a stream."""
        del schema, overwrite
        raise Unsupported(
            "df.writeStream cannot write the lakebed format; use foreachBatch with "
            "lakebed.spark.insert(df, lake, DATABASE.TABLE)"
        )

    def _resolve_times(self) -> None:
        """Replace relative times, such as ``1h``, by instants: every task must see the same."""
        from lakebed.catalog.times import resolve, resolve_past

        relative = [name for name in _TIMES if is_relative(self.options.get(name, ""))]
        if not relative:
            return
        with self._open() as lake:
            for name in relative:
                resolve_one = resolve_past if name == "as_of" else resolve
                self.options[name] = str(resolve_one(lake.catalog, self.options[name]))

    def plan(self, definition: ViewSet) -> list[Files]:
        """Return the files to read, grouped into tasks."""
        from lakebed.catalog import clock
        from lakebed.catalog.lookups import partition_search

        begin, end = (self.options.get(name) for name in ("begin", "end"))
        instance = self.options.get("instance", GLOBAL)
        as_of = self.options.get("as_of")
        events = None
        if begin is not None or end is not None:
            first = -_EVER if begin is None else read_instant(begin)
            events = TimeRange(first, _EVER if end is None else read_instant(end))
        search = PartitionFilter(
            view_sets=[(definition.name, [definition.schema_hash])],
            instance=None if instance == "*" else instance,
            events=events,
            as_of=None if as_of is None else read_instant(as_of),
        )
        with self._open() as lake:
            with lake.catalog.read() as connection:
                if search.as_of is not None:
                    clock.require_readable(connection, search.as_of)
                matching = partition_search.search(connection, search)
            passing = self.options.get("pass_credentials", "false").lower() == "true"
            address = StoreAddress.of(lake.store, pass_credentials=passing)
        sized = [
            (partition.file_path, partition.file_size)
            for partition in matching
            if partition.file_path is not None
        ]
        return [Files(address, paths) for paths in group_files(sized)]

    def _definition(self) -> ViewSet:
        with self._open() as lake:
            definition = lake.partitions.definition(self._required("view"))
        if isinstance(definition.source, SqlSource):
            raise BadInput(
                f"view set {definition.name} is made by SQL: its files hold partial results",
                hint=f'read them added up: lakebed.spark.read(spark, "{definition.name}", …)',
            )
        return definition

    def _open(self) -> Lake:
        from lakebed.opening import open_lake

        return open_lake(self.options.get("lake") or self._required("path"), read_only=True)

    def _required(self, name: str) -> str:
        value = self.options.get(name)
        if not self.options:
            raise BadInput(
                "Spark 4.3 passes none of the options of CREATE TABLE … USING lakebed to a query; "
                "use CREATE TEMPORARY VIEW … USING lakebed OPTIONS (lake …, view …)"
            )
        if not value:
            needed = "lake" if name == "path" else name
            raise BadInput(
                f'spark.read.format("lakebed") needs the option {needed}',
                hint='.option("lake", "…").option("view", "log_entries")',
            )
        return value

    def _check_options(self) -> None:
        allowed = _OPTIONS + _SPARKS_OWN
        unknown = [
            name
            for name in self.options
            if name.lower() not in allowed and not name.startswith(_COPIES)
        ]
        if unknown:
            raise BadInput(
                f"{unknown[0]} is not an option of the lakebed format",
                hint=f"one of {', '.join(_OPTIONS)}",
            )
        if "." in self.options.get("view", ""):
            raise BadInput(
                "the lakebed format reads view sets, not tables",
                hint="read tables with lakebed.spark.read(spark, …, lake=lake)",
            )


class LakebedReader(DataSourceReader):
    """Reads the files that the source plans."""

    def __init__(self, source: LakebedSource, schema: StructType, definition: ViewSet) -> None:
        self._source = source
        self._schema = schema
        self._definition = definition.definition()
        self._time_column = definition.time_column

    def partitions(self) -> Sequence[InputPartition]:
        """Return one task for each group of files; without files, one task that reads nothing."""
        return self._source.plan(ViewSet.from_definition(self._definition))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the files, in Spark's types; runs on executors."""
        if isinstance(partition, Files):
            bounds = [self._source.options.get(name) for name in ("begin", "end")]
            yield from _read_files(partition, self._schema, self._time_column, bounds)


class RefusedStream(DataSourceStreamReader):
    """A stream that cannot be read."""

    def initialOffset(self) -> NoReturn:  # noqa: N802  (Spark's name)
        """Refuse to read a stream."""
        raise Unsupported(
            "spark.readStream cannot read the lakebed format; read batches, each with the options "
            "begin and end: spark.read.format('lakebed')"
        )

    def read(self, partition: InputPartition) -> NoReturn:
        """Refuse to read a stream."""
        del partition
        self.initialOffset()


def _read_files(
    files: Files, schema: StructType, time_column: str, bounds: list[str | None]
) -> Iterator[pa.RecordBatch]:
    from pyspark.sql.pandas.types import to_arrow_schema

    target_schema = to_arrow_schema(schema, timezone="UTC")
    store = files.address.open()
    for path in files.paths:
        try:
            for batch in parquet.read_batches(store, path, _BATCH_ROWS):
                yield _keep(batch, time_column, bounds).cast(target_schema)
        except UnknownObject as missing:
            raise SnapshotExpired(
                f"{path} is gone: it was retired and swept since this was planned",
                hint="read again; lengthen the lake's grace period if this is usual",
            ) from missing


def _keep(batch: pa.RecordBatch, time_column: str, bounds: list[str | None]) -> pa.RecordBatch:
    """Return the rows with events from begin up to end."""
    import pyarrow as pa
    import pyarrow.compute as pc

    begin, end = (None if text is None else pa.scalar(read_instant(text)) for text in bounds)
    if begin is None and end is None:
        return batch
    times = batch.column(time_column).cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    for bound, compare in ((begin, pc.greater_equal), (end, pc.less)):
        if bound is not None:
            matches = compare(times, bound)
            batch, times = batch.filter(matches), times.filter(matches)
    return batch


def read_instant(text: str) -> int:
    """Return the instant of an option's value: ISO 8601, or microseconds since 1970."""
    number: Any = int(text) if text.lstrip("-").isdigit() else text
    return to_instant(number)


def group_files(files: Sequence[tuple[str, int]]) -> list[list[str]]:
    """Return files in their order, small ones together, so that a task is worth its start."""
    groups: list[list[str]] = []
    room = 0
    for path, size in files:
        cost = size + _OPENING_BYTES
        if not groups or room < cost:
            groups.append([])
            room = _TASK_BYTES
        groups[-1].append(path)
        room -= cost
    return groups
