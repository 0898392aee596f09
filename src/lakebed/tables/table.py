"""The public interface of one table: insert, query, count, alter, delete, statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.model.arguments import checked_methods
from lakebed.model.partition import Partition
from lakebed.model.tables.schema import BUCKET_COLUMN, TableSchema
from lakebed.model.tables.table import DELETED, REJECTS, VERSION, UserTable
from lakebed.model.time import Instant
from lakebed.tables.insert.insert import InsertOptions
from lakebed.tables.insert.insert_values import Inserted

if TYPE_CHECKING:
    from lakebed.tables.erase import Trace
    from lakebed.tables.fold.fold import Folded
    from lakebed.tables.tables import Tables


@dataclass(frozen=True, slots=True)
class TableStats:
    """Figures of one table."""

    rows: int
    partitions: int
    empty_partitions: int
    buckets: int
    bytes: int
    earliest: int | None
    latest: int | None
    """The first and the last time of its rows, in microseconds since 1970."""
    late: int
    """Stored rows that were inserted after the end of their bucket. Replaced or deleted versions
    count until they are folded."""
    future: int
    """Stored rows whose time was in the future when they were inserted."""
    rejected: int
    versions: int


@checked_methods
class Table:
    """A table by its name; it looks up its schema when it needs it."""

    def __init__(self, tables: Tables, database: str, name: str) -> None:
        self._tables = tables
        self.database = database
        self.name = name

    def __repr__(self) -> str:
        return f"<table {self.database}.{self.name}>"

    @property
    def definition(self) -> UserTable:
        """The declaration of the table."""
        return self._tables.definitions.get(self.database, self.name)

    @property
    def schema(self) -> TableSchema:
        """Its present schema."""
        return self.definition.schema

    def insert(
        self,
        records: Any,
        *,
        on_error: str = "refuse",
        if_exists: str = "replace",
        key: str | None = None,
    ) -> Inserted:
        """Insert records: a JSON array, JSON lines, dicts or Arrow. See `Tables.insert`."""
        options = InsertOptions(on_error, if_exists, key)
        return self._tables.inserter.insert(self.database, self.name, records, options)

    def query(
        self,
        sql: str | None = None,
        begin: Instant | None = None,
        end: Instant | None = None,
        **options: Any,
    ) -> Any:
        """Return the rows of a statement, in which tables of this database need no prefix; without
        one, all rows. ``begin``, ``end`` and the other options are those of `Lake.query`."""
        text = sql if sql is not None else f"SELECT * FROM {self.name}"
        return self._tables.query(text, begin=begin, end=end, database=self.database, **options)

    def count(self) -> int:
        """Return the number of rows."""
        result = self.query(f"SELECT count(*) AS n FROM {self.name}").to_arrow()
        return int(result["n"][0].as_py())

    def latest(self, buckets: int = 1) -> Any:
        """Return the rows of the newest buckets that have any."""
        definition = self.definition
        with self._tables.snapshots.take(definition.table_id) as snapshot:
            stored = sorted(
                {partition.instance for partition in snapshot.partitions if not partition.is_empty}
            )
        bucket_count = min(buckets, len(stored))
        names = stored[-bucket_count:] if bucket_count > 0 else []
        while (
            definition.key and bucket_count > 0
        ):  # all rows of a bucket may be replaced or deleted
            names = self._list_filled(stored[-bucket_count])[-buckets:]
            if len(names) == buckets or bucket_count == len(stored):
                break
            bucket_count = min(2 * bucket_count, len(stored))
        where = f"{BUCKET_COLUMN} >= '{names[0]}'" if names else "false"
        return self.query(f"SELECT * FROM {self.name} WHERE {where}")

    def _list_filled(self, first: str) -> list[str]:
        """Return the buckets, from ``first`` on, that have visible rows."""
        result = self.query(
            f"SELECT DISTINCT {BUCKET_COLUMN} FROM {self.name} "
            f"WHERE {BUCKET_COLUMN} >= '{first}' ORDER BY 1"
        )
        return [str(bucket) for bucket in result.to_arrow()[BUCKET_COLUMN].to_pylist()]

    def partitions(self) -> Sequence[Partition]:
        """Return the live partitions, by bucket and insert time."""
        with self._tables.snapshots.take(self.definition.table_id) as snapshot:
            return snapshot.partitions

    def delete_rows(self, where: str) -> int:
        """Delete the rows for which a condition in SQL is true, and return their number."""
        return self._tables.delete_rows(self.database, self.name, where)

    def plan_forget(self, **where: Any) -> list[Trace]:
        """Return the partitions that `forget` would rewrite or condemn."""
        return self._tables.eraser.plan(self.definition, where)

    def forget(self, **where: Any) -> list[Trace]:
        """Erase the rows with these values in their columns, in every version."""
        return self._tables.eraser.forget(self.definition, where)

    def alter(
        self,
        *,
        add: Mapping[str, Any] | None = None,
        widen: Sequence[str] = (),
        relax: Sequence[str] = (),
        **unsupported: Any,
    ) -> TableSchema:
        """Add columns, widen int to float, relax required; anything else is refused. Returns the
        new schema."""
        return self._tables.definitions.alter_table(
            self.database, self.name, add=add, widen=widen, relax=relax, **unsupported
        ).schema

    def fold(self) -> list[Folded]:
        """Fold the partitions of each bucket, in this process."""
        return self._tables.folder.fold(self.definition)

    def stats(self) -> TableStats:
        """Return the number of rows, their time range, and how many were late or in the future."""
        import pyarrow.compute as pc

        late = future = 0
        with self._tables.snapshots.take(self.definition.table_id) as snapshot:
            table = snapshot.table
            for partition in snapshot.partitions:
                if partition.is_empty:
                    continue
                rows = self._tables.reader.read(table, partition, [table.time_column, DELETED])
                if table.key:  # a delete mark is not a row
                    rows = rows.filter(pc.invert(pc.fill_null(rows[DELETED], False)))
                over = table.bucket.range_of(partition.instance).end
                late += pc.sum(pc.greater_equal(rows[VERSION], over)).as_py() or 0
                times = rows[table.time_column].cast("int64")
                future += pc.sum(pc.greater(times, rows[VERSION])).as_py() or 0
            live = snapshot.partitions
        rejects = Table(self._tables, self.database, f"{self.name}{REJECTS}")
        time = f'"{table.time_column}"'
        result = self.query(
            f"SELECT count(*), min({time}), max({time}) FROM {self.name}"
        ).to_arrow()
        count, earliest, latest = (column[0].cast("int64").as_py() for column in result.columns)
        return TableStats(
            rows=count,
            partitions=len(live),
            empty_partitions=sum(partition.is_empty for partition in live),
            buckets=len({partition.instance for partition in live}),
            bytes=sum(partition.file_size for partition in live),
            earliest=earliest,
            latest=latest,
            late=late,
            future=future,
            rejected=rejects.count() if table.rejects_of is None else 0,
            versions=table.version,
        )
