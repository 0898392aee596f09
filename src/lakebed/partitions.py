"""A lake's partitions from Python: publish them, list them, take snapshots of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from lakebed.catalog import clock
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.lookups import partition_search
from lakebed.catalog.lookups.partition_search import PartitionFilter
from lakebed.catalog.records import partitions
from lakebed.catalog.times import resolve, resolve_past, resolve_range
from lakebed.model.arguments import checked_methods, list_names
from lakebed.model.partition import NO_SOURCE, Partition
from lakebed.model.time import Instant, TimeRange, to_instant
from lakebed.model.view_set import GLOBAL, ViewSet
from lakebed.reading import footers
from lakebed.reading.snapshot import Snapshot, SnapshotReader
from lakebed.views.active import get_view_set
from lakebed.views.registry import Registry
from lakebed.writing.publish import NewPartition, Publisher

if TYPE_CHECKING:
    import pyarrow as pa


@checked_methods
class Partitions:
    """The partitions of one lake."""

    def __init__(
        self, catalog: Catalog, publisher: Publisher, reader: SnapshotReader, registry: Registry
    ) -> None:
        self._registry = registry
        self._catalog = catalog
        self._publisher = publisher
        self._reader = reader

    def publish(
        self,
        view_set: ViewSet | str,
        begin: Instant,
        end: Instant,
        rows: pa.Table,
        *,
        instance: str = GLOBAL,
        source_hash: bytes = NO_SOURCE,
        replaces: Sequence[Partition] = (),
        read_at: int | None = None,
        reason: str | None = None,
    ) -> Partition:
        """Write rows as one partition over an insert-time range and publish it."""
        begin, end = resolve(self._catalog, begin), resolve(self._catalog, end)
        new = NewPartition.of_rows(
            self.definition(view_set), begin, end, rows, instance=instance, source_hash=source_hash
        )
        return self.publish_many([new], replaces=replaces, read_at=read_at, reason=reason)[0]

    def publish_completed_empty(
        self,
        view_set: ViewSet | str,
        begin: Instant,
        end: Instant,
        *,
        instance: str = GLOBAL,
        source_hash: bytes = NO_SOURCE,
        replaces: Sequence[Partition] = (),
        read_at: int | None = None,
        reason: str | None = None,
    ) -> Partition:
        """State that a range was processed to its end and gave no rows."""
        begin, end = resolve(self._catalog, begin), resolve(self._catalog, end)
        new = NewPartition.completed_empty(
            self.definition(view_set), begin, end, instance=instance, source_hash=source_hash
        )
        return self.publish_many([new], replaces=replaces, read_at=read_at, reason=reason)[0]

    def publish_many(
        self,
        new: Sequence[NewPartition],
        *,
        replaces: Sequence[Partition] = (),
        read_at: int | None = None,
        reason: str | None = None,
    ) -> list[Partition]:
        """Publish many partitions in one transaction: all of them or none."""
        for name in {partition.view_set.name for partition in new}:
            self._registry.ensure_built_in(name)
        return self._publisher.publish(new, replaces=replaces, read_at=read_at, reason=reason)

    def definition(self, view_set: ViewSet | str) -> ViewSet:
        """Return the active definition of a view set given by name."""
        if isinstance(view_set, ViewSet):
            return view_set
        with self._catalog.read() as connection:
            return get_view_set(connection, view_set).view_set

    def snapshot(
        self,
        *names: str | Collection[str],
        events: tuple[Instant, Instant] | None = None,
        inserted: tuple[Instant, Instant] | None = None,
        instance: str | None = None,
        as_of: Instant | None = None,
    ) -> Snapshot:
        """Return a snapshot of view sets, now or as of a past tick; see `Snapshot`."""
        return self._reader.take(
            list_names(names),
            events=resolve_range(self._catalog, events),
            inserted=resolve_range(self._catalog, inserted),
            instance=instance,
            as_of=resolve_past(self._catalog, as_of),
        )

    def list_partitions(
        self,
        view_set: str | None = None,
        *,
        instance: str | None = None,
        inserted: tuple[Instant, Instant] | None = None,
        as_of: Instant | None = None,
        include_retired: bool = False,
    ) -> list[Partition]:
        """Return live partitions, or those live at a past tick, or also retired ones."""
        inserted = resolve_range(self._catalog, inserted)
        as_of = resolve_past(self._catalog, as_of)
        with self._catalog.read() as connection:
            if view_set is not None and view_set not in partitions.count_live(connection):
                get_view_set(connection, view_set)
            past = None if as_of is None else to_instant(as_of, "down")
            if past is not None:
                clock.require_readable(connection, past)
            return partition_search.search(
                connection,
                PartitionFilter(
                    view_sets=None if view_set is None else [(view_set, None)],
                    instance=instance,
                    inserted=TimeRange.of(*inserted) if inserted else None,
                    as_of=past,
                    include_retired=include_retired,
                ),
            )

    def get_footer(self, file_path: str) -> bytes:
        """Return the footer bytes of a file from the catalog, without reading the file."""
        return footers.get_footer(self._catalog, file_path)
