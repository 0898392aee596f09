"""A snapshot: the partitions of some view sets at one tick, with their footers, found in a constant
number of catalog queries and readable for as long as it is held.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from lakebed.catalog import journal
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.lookups import partition_search
from lakebed.catalog.lookups.partition_search import PartitionFilter
from lakebed.catalog.records import view_sets
from lakebed.catalog.records.footers import StoredFooter
from lakebed.errors import (
    BadInput,
    DamagedFile,
    DamagedFooter,
    UnknownObject,
    UnknownViewSet,
)
from lakebed.model.partition import Partition
from lakebed.model.time import Instant, TimeRange, to_instant
from lakebed.model.view_set import ViewSet
from lakebed.reading import footers
from lakebed.reading.hold import Hold, hold_tick
from lakebed.reading.leases import LeaseKeeper
from lakebed.storage import footer as footer_format
from lakebed.storage import parquet
from lakebed.storage.objects import Store
from lakebed.views.active import list_view_sets

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq


class Snapshot:
    """The partitions that were live at ``tick``. Close it, or use it as a context manager, so that
    its files can be swept again. After that, or when its lease is lost, reading raises
    `SnapshotExpired`."""

    def __init__(
        self,
        hold: Hold,
        partitions: Sequence[tuple[Partition, StoredFooter | None]],
        definitions: dict[str, ViewSet],
        reader: SnapshotReader,
    ) -> None:
        self.tick = hold.tick
        self.is_leased = hold.is_leased
        self.partitions = tuple(partition for partition, _ in partitions)
        self.footer_fallbacks = 0
        self._footers = {stored.file_path: stored for _, stored in partitions if stored is not None}
        self._definitions = definitions
        self._hold = hold
        self._reader = reader

    def stored_footer(self, partition: Partition) -> StoredFooter | None:
        """Return the footer of this partition's file, or None for an empty partition."""
        return self._footers.get(partition.file_path or "")

    def read(self, partition: Partition, columns: list[str] | None = None) -> pa.Table:
        """Return the rows of one of this snapshot's partitions."""
        self._hold.require_held()
        schema = self._schema(partition.view_set, columns)
        if partition.file_path is None:
            return schema.empty_table()
        try:
            return self._reader.read_file(self, partition, columns)
        except UnknownObject as missing:
            self._hold.require_leased()
            raise DamagedFile(
                f"the file of {partition.describe()} is missing",
                hint="see the damage with: lakebed check",
            ) from missing

    def read_all(self, view_set: str, columns: list[str] | None = None) -> pa.Table:
        """Return all rows of one view set in this snapshot, in the order of its partitions."""
        import pyarrow as pa

        self._hold.require_held()
        schema = self._schema(view_set, columns)
        parts = [
            self.read(partition, columns)
            for partition in self.partitions
            if partition.view_set == view_set
        ]
        return pa.concat_tables([schema.empty_table(), *(part.cast(schema) for part in parts)])

    def _schema(self, view_set: str, columns: list[str] | None) -> pa.Schema:
        """Return the schema of the requested columns; of all columns by default."""
        import pyarrow as pa

        if view_set not in self._definitions:
            raise UnknownViewSet(f"this snapshot does not include view set {view_set!r}")
        schema = self._definitions[view_set].schema
        if columns is None:
            return schema
        unknown = [name for name in columns if name not in schema.names]
        if unknown or len(set(columns)) != len(columns) or not columns:
            raise BadInput(
                f"cannot read the columns {columns!r} of view set {view_set}",
                hint=f"name some of {', '.join(schema.names)}, each once",
            )
        return pa.schema([schema.field(name) for name in columns])

    def close(self) -> None:
        """Release the snapshot's files."""
        self._hold.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class SnapshotReader:
    """Takes snapshots and reads their files."""

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        keeper: LeaseKeeper,
    ) -> None:
        self._keeper = keeper
        self._catalog = catalog
        self._store = store

    def take(
        self,
        names: Sequence[str],
        *,
        events: tuple[Instant, Instant] | None = None,
        inserted: tuple[Instant, Instant] | None = None,
        instance: str | None = None,
        as_of: Instant | None = None,
    ) -> Snapshot:
        """Return a snapshot of these view sets, now or as of a past tick, in their active schema.

        ``events`` keeps those with events in the range (so no empty ones); ``inserted`` those that
        touch an insert-time range.
        """
        past = None if as_of is None else to_instant(as_of, "down")
        event_range = TimeRange.of(*events) if events else None
        insert_range = TimeRange.of(*inserted) if inserted else None
        with hold_tick(self._catalog, self._keeper, past) as (connection, hold):
            active = {entry.view_set.name: entry for entry in list_view_sets(connection)}
            for name in names:
                if name not in active:
                    view_sets.get(connection, name)
            search = PartitionFilter(
                view_sets=[(name, [active[name].schema_hash]) for name in names],
                instance=instance,
                inserted=insert_range,
                events=event_range,
                as_of=past,
            )
            partitions = partition_search.search_with_footers(connection, search)
        definitions = {name: active[name].view_set for name in names}
        return Snapshot(hold, partitions, definitions, self)

    def read_file(
        self, snapshot: Snapshot, partition: Partition, columns: list[str] | None
    ) -> pa.Table:
        """Return the verified rows of a partition's file, found through the stored footer; if that
        is damaged, through the file's own, which is counted and journaled."""
        path = partition.file_path or ""
        metadata = self._metadata(snapshot, partition)
        return parquet.read_rows(self._store, path, metadata=metadata, columns=columns)

    def _metadata(self, snapshot: Snapshot, partition: Partition) -> pq.FileMetaData:
        path = partition.file_path or ""
        stored = snapshot.stored_footer(partition)
        try:
            if stored is None:
                raise DamagedFooter(f"no footer is stored for {path}")
            return footers.parse(stored, partition.num_rows)
        except DamagedFooter as error:
            snapshot.footer_fallbacks += 1
            self._journal_fallback(partition, str(error))
            footer = parquet.read_footer(self._store, path, self._store.size(path))
            return footer_format.parse(footer, path=path)

    def _journal_fallback(self, partition: Partition, why: str) -> None:
        if self._catalog.read_only:
            return
        with self._catalog.write() as transaction:
            journal.append(transaction, [journal.Entry.about("footer fallback", partition, why)])
