"""One snapshot for all tables of a statement: the files to read, the blocks that are not built yet,
and the rows that it lacks. A constant number of catalog queries reads it; `view_tables` and
`user_tables` decide what a statement needs of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from lakebed.catalog import clock
from lakebed.catalog.catalog import Catalog, Connection
from lakebed.catalog.lookups import coverage, partition_search
from lakebed.catalog.lookups.coverage import Look, Run
from lakebed.catalog.lookups.partition_search import FileScan, Spans
from lakebed.catalog.records import blocks, failures, tables, view_sets
from lakebed.catalog.records.view_sets import ActiveViewSet
from lakebed.errors import LeaseLost, SnapshotExpired
from lakebed.model.partition import Partition
from lakebed.model.source import SqlSource
from lakebed.model.tables.table import UserTable
from lakebed.model.time import TimeRange, format_instant
from lakebed.model.view_set import ViewSet
from lakebed.query.planning.conditions import Scan
from lakebed.query.snapshot import listings, user_tables, view_tables
from lakebed.query.snapshot.coverage_cache import Coverage, CoverageCache
from lakebed.query.snapshot.listings import CatalogAnswer, CatalogRequest
from lakebed.query.snapshot.tail import Tail
from lakebed.query.snapshot.user_tables import UserView
from lakebed.query.snapshot.view_tables import TableView
from lakebed.reading.leases import LeaseKeeper, Pin
from lakebed.views.active import list_view_sets
from lakebed.views.dependencies import find_sources

_FEW_RANGES = 16


class StatementSnapshot:
    """The tables of one statement at one tick. Its files stay until it is closed."""

    def __init__(
        self,
        tick: int,
        tables: Mapping[str, TableView],
        user_tables: Mapping[str, UserView],
        listed: CatalogAnswer,
        pin: Pin,
        keeper: LeaseKeeper,
    ) -> None:
        self.tick = tick
        self.tables = tables
        self.user_tables = user_tables
        self.listed = listed
        self._pin = pin
        self._keeper = keeper

    @property
    def files(self) -> list[Partition]:
        """Return every partition whose file is opened."""
        files = [file for view in self.tables.values() for file in view.files]
        return [*files, *(file for user in self.user_tables.values() for file in user.opened)]

    def require_held(self) -> None:
        """Raise `SnapshotExpired` if a sweep may have removed files of this snapshot."""
        if self._pin.leased and self._keeper.is_lost(self._pin):
            raise SnapshotExpired(
                f"the snapshot of {format_instant(self.tick)} outlived its lease, "
                "its files may be gone",
                hint="run the statement again",
            )

    def close(self) -> None:
        """Release the files of the snapshot."""
        self._keeper.unpin(self._pin)


class SnapshotTaker:
    """Takes snapshots for statements. Safe to use from several threads."""

    def __init__(self, catalog: Catalog, keeper: LeaseKeeper) -> None:
        self._catalog = catalog
        self._keeper = keeper
        self._cache = CoverageCache()

    def list_tables(self, sql: str | None = None) -> dict[str, ViewSet]:
        """Return what a statement can name, or everything: view sets and users' tables."""
        with self._catalog.glance() as connection:
            return _Names(connection).list_tables(sql)

    @contextmanager
    def begin(self, as_of: int | None = None, database: str | None = None) -> Iterator[Beginning]:
        """Open one consistent view of the catalog, in which a statement is analysed and its
        snapshot is taken. Tables of ``database`` may be named without it."""
        for trusting in (True, False):
            pin = self._keeper.pin(as_of, trusting=trusting)
            is_taken = False
            try:
                with self._catalog.read() as connection:
                    look = coverage.look(connection, self._cache.entry, pin.lease_id)
                    if pin.leased and not look.leased:  # another process ended our lease
                        self._keeper.lose(pin)
                        continue  # a new lease protects the files of now
                    if as_of is not None:  # a sweep may have run between the pin and this snapshot
                        clock.require_readable(connection, as_of)
                    names = _Names(connection, database, as_of)
                    beginning = Beginning(
                        connection, names, look, self._cache, pin, self._keeper, as_of
                    )
                    yield beginning
                is_taken = beginning.is_taken
                return
            finally:
                if not is_taken:
                    self._keeper.unpin(pin)
        raise LeaseLost("the lease of this process was ended", hint="do it again")


class Beginning:
    """A consistent view of the catalog: the names that a statement can use, then the content that
    it needs."""

    def __init__(
        self,
        connection: Connection,
        names: _Names,
        look: Look,
        cache: CoverageCache,
        pin: Pin,
        keeper: LeaseKeeper,
        as_of: int | None,
    ) -> None:
        self.is_taken = False
        self._connection = connection
        self._names = names
        self._look = look
        self._tick = look.tick if as_of is None else as_of
        self._cache = cache
        self._pin = pin
        self._keeper = keeper
        self._as_of = as_of

    def list_tables(self, sql: str) -> dict[str, ViewSet]:
        """Return what a statement can name."""
        return self._names.list_tables(sql)

    def take(
        self,
        scans: Sequence[Scan],
        *,
        with_tail: bool = True,
        explained: bool = False,
        request: CatalogRequest | None = None,
    ) -> StatementSnapshot:
        """Return the content of these scans' tables, as far as the scans may need it, and the
        answers to a request to the catalog itself."""
        request = request or CatalogRequest()
        users = self._names.find_users({scan.table for scan in scans})
        by_table = self._group_scans(scans, users)
        user_views = {
            name: user_tables.find(self._connection, table, by_table[name], self._as_of)
            for name, table in users.items()
        }
        active = {name: self._names.active[name] for name in by_table if name not in users}
        views = self._read_views(active, by_table, with_tail=with_tail, explained=explained)
        listed = listings.look_up(
            self._connection,
            request,
            self._names.active,
            self._names.find_users({name for name, _within in request.empty}),
            self._tick,
            self._as_of,
            with_tail=with_tail,
        )
        self.is_taken = True
        if self._as_of is None:
            self._keeper.raise_pin(self._pin, self._tick)
        return StatementSnapshot(self._tick, views, user_views, listed, self._pin, self._keeper)

    def _group_scans(
        self, scans: Sequence[Scan], users: Mapping[str, UserTable]
    ) -> dict[str, list[Scan]]:
        by_table: dict[str, list[Scan]] = {}
        for scan in scans:
            if scan.table in users:
                definition = users[scan.table].shown
            elif scan.table in self._names.active:
                definition = self._names.active[scan.table].view_set
            else:
                definition = view_sets.get(self._connection, scan.table).view_set
            by_table.setdefault(scan.table, []).append(view_tables.keep_usable(scan, definition))
        return by_table

    def _read_views(
        self,
        active: Mapping[str, ActiveViewSet],
        by_table: Mapping[str, Sequence[Scan]],
        *,
        with_tail: bool,
        explained: bool,
    ) -> dict[str, TableView]:
        file_scans = [
            FileScan(
                name,
                view_set.schema_hash,
                view_tables.event_ranges(by_table[name], view_set.view_set.time_column),
            )
            for name, view_set in active.items()
        ]
        covered = self._cache.read(self._connection, file_scans, self._look, self._as_of)
        views = self._find_files(active, by_table, file_scans, covered.spans, explained=explained)
        failed = (
            failures.list_failures_of(self._connection, list(views))
            if self._look.has_failures
            else []
        )
        gaps = view_tables.look_for_gaps(views, active, covered.runs, failed, self._tick)
        self._find_frozen(views, active, covered)
        if self._as_of is None:
            self._find_unbuilt(views, covered.runs)
        else:
            view_tables.require_same_definition(views, active, self._as_of)
        if with_tail and any(gaps.values()):
            self._add_tails(views, gaps, by_table, covered)
        return views

    def _find_files(
        self,
        active: Mapping[str, ActiveViewSet],
        by_table: Mapping[str, Sequence[Scan]],
        file_scans: Sequence[FileScan],
        spans: Spans,
        *,
        explained: bool,
    ) -> dict[str, TableView]:
        by_time: Mapping[str, Sequence[Partition]] = partition_search.find_files(
            self._connection, file_scans, spans, self._as_of
        )
        counts = (
            partition_search.count_partitions(self._connection, file_scans, self._as_of)
            if explained
            else {}
        )
        views = {}
        for name, view_set in active.items():
            view = TableView(view_set.view_set)
            partitions = by_time.get(name, [])
            view.files, view.pruned = view_tables.prune(
                partitions, by_table[name], view_set.view_set
            )
            if explained:
                view.considered, empty = counts.get(name, (0, 0))
                outside = view.considered - empty - len(partitions) + view.pruned.pop("time", 0)
                pruned = {"empty": empty, "time": outside, **view.pruned}
                view.pruned = {reason: count for reason, count in pruned.items() if count}
            views[name] = view
        return views

    def _find_frozen(
        self,
        views: Mapping[str, TableView],
        active: Mapping[str, ActiveViewSet],
        covered: Coverage,
    ) -> None:
        """Set which of the hidden rows cannot be built again."""
        for name, view in views.items():
            if not view.hidden or view.view_set.source is None:
                continue
            schema_hash = active[name].schema_hash
            frozen = covered.list_frozen(self._connection, name, schema_hash, self._as_of)
            view.frozen = [
                part.intersect(hidden)
                for hidden in view.hidden
                for part in frozen
                if part.overlaps(hidden)
            ]

    def _find_unbuilt(
        self, views: Mapping[str, TableView], runs: Mapping[str, Sequence[Run]]
    ) -> None:
        """Set what SQL view sets lack of that landed a while ago."""
        failed = failures.list_failures(self._connection) if self._look.has_failures else []
        active = self._names.active
        definitions = {name: view_set.view_set for name, view_set in active.items()}
        for name, view in views.items():
            if not isinstance(view.view_set.source, SqlSource):
                continue
            gaps = view_tables.find_gaps_of_sql(active[name], runs[name], failed, self._tick)
            sources = find_sources(view.view_set, definitions)
            encodings = None if sources.every else sources.encodings
            for gap in gaps[:_FEW_RANGES]:
                first = blocks.find_first(self._connection, gap, encodings)
                if first is not None:
                    view.unbuilt = TimeRange(first, gap.end)
                    break

    def _add_tails(
        self,
        views: Mapping[str, TableView],
        gaps: Mapping[str, Sequence[TimeRange]],
        by_table: Mapping[str, Sequence[Scan]],
        covered: Coverage,
    ) -> None:
        """Set the blocks that are to be decoded for tables with gaps."""
        every_gap = [gap for gaps_of_table in gaps.values() for gap in gaps_of_table]
        landed = covered.list_blocks(self._connection, every_gap)
        for name, gaps_of_table in gaps.items():
            view_set = views[name].view_set
            gap_blocks = view_tables.choose_blocks(landed, view_set, gaps_of_table, by_table[name])
            tail = Tail(view_set, gap_blocks)
            if gap_blocks and view_tables.get_decoder(view_set) == "blocks":
                within = TimeRange(gap_blocks[0].insert_time, gap_blocks[-1].insert_time + 1)
                processes, streams = blocks.list_senders(self._connection, within)
                tail = replace(tail, processes=processes, streams=streams)
            views[name].tail = tail


class _Names:
    """The names that a statement can use: view sets, and users' tables, those of one database also
    without its name. Users' tables are read once, when something may name one."""

    def __init__(
        self, connection: Connection, database: str | None = None, as_of: int | None = None
    ) -> None:
        self.active: Mapping[str, ActiveViewSet] = {
            active.view_set.name: active for active in list_view_sets(connection)
        }
        self._as_of = as_of
        self._connection = connection
        self._database = database
        self._users: Mapping[str, UserTable] | None = None

    def list_tables(self, sql: str | None) -> dict[str, ViewSet]:
        """Return view sets and, unless a statement's text has nothing that could be one, tables."""
        names = {name: active.view_set for name, active in self.active.items()}
        may_name = sql is None or "." in sql or "show" in sql.lower()
        if may_name or self._database is not None:
            names |= {name: table.shown for name, table in self._list_users().items()}
        return names

    def find_users(self, names: Collection[str]) -> dict[str, UserTable]:
        """Return the users' tables among some names."""
        if all(name in self.active for name in names) and self._database is None:
            return {}
        users = self._list_users()
        return {name: users[name] for name in sorted(names) if name in users}

    def _list_users(self) -> Mapping[str, UserTable]:
        if self._users is None:
            users = tables.list_tables(self._connection, self._as_of)
            self._users = user_tables.by_name(users, self._database)
        return self._users
