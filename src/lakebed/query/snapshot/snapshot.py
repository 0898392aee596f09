"""One snapshot for all tables of a statement: which files to read, which blocks are not built yet,
and what cannot be seen. Found in a constant number of catalog queries.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from lakebed.catalog import (
    blocks,
    clock,
    coverage,
    failures,
    listing,
    partition_search,
    tables,
    view_sets,
)
from lakebed.catalog.catalog import Catalog, Connection
from lakebed.catalog.coverage import Look, Run
from lakebed.catalog.partition_search import FileScan, Spans
from lakebed.catalog.view_sets import ActiveViewSet
from lakebed.errors import LeaseLost, SnapshotExpired
from lakebed.model.block import Block
from lakebed.model.partition import Partition
from lakebed.model.time import TimeRange, find_gaps, format_instant
from lakebed.model.user_table import UserTable
from lakebed.model.view_set import ViewSet
from lakebed.query.planning import conditions
from lakebed.query.planning.conditions import Scan
from lakebed.query.snapshot import listings
from lakebed.query.snapshot import user_tables as user_views
from lakebed.query.snapshot.listings import Asked, Listed
from lakebed.query.snapshot.user_tables import UserView, by_name
from lakebed.query.snapshot.view_tables import (
    TableView,
    add_tails,
    event_ranges,
    find_unbuilt,
    look_for_gaps,
)
from lakebed.reading.leases import LeaseKeeper, Pin
from lakebed.views.active import list_view_sets

_FEW_RANGES = 16
_MOST_BLOCKS = 200_000


class StatementSnapshot:
    """The tables of one statement at one tick. Its files stay until it is closed."""

    def __init__(
        self,
        tick: int,
        tables: Mapping[str, TableView],
        user_tables: Mapping[str, UserView],
        listed: Listed,
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
        """Every partition whose file is opened."""
        views = [each for table in self.tables.values() for each in table.files]
        return [*views, *(each for user in self.user_tables.values() for each in user.opened)]

    def require_held(self) -> None:
        """Raise if somebody may have swept what this snapshot reads."""
        if self._pin.leased and self._keeper.is_lost(self._pin):
            raise SnapshotExpired(
                f"the snapshot of {format_instant(self.tick)} outlived its lease, "
                "its files may be gone",
                hint="run the statement again",
            )

    def close(self) -> None:
        """Let go of the snapshot's files."""
        self._keeper.unpin(self._pin)


class SnapshotTaker:
    """Takes snapshots for statements; remembers what is built for as long as nothing changes."""

    def __init__(self, catalog: Catalog, keeper: LeaseKeeper) -> None:
        self._catalog = catalog
        self.keeper = keeper
        self._known = _Known()
        self._lock = threading.Lock()

    def list_tables(self, sql: str | None = None) -> dict[str, ViewSet]:
        """What a statement can name, or everything: view sets and users' tables."""
        with self._catalog.glance() as connection:
            return _Named(connection, _list_active(connection)).list_tables(sql)

    @contextmanager
    def begin(self, as_of: int | None = None, database: str | None = None) -> Iterator[Beginning]:
        """One consistent look at the catalog, in which a statement is analysed and its snapshot is
        taken. Tables of ``database`` may be named without it."""
        for trusting in (True, False):
            pin = self.keeper.pin(as_of, trusting=trusting)
            is_kept = False
            try:
                with self._catalog.read() as connection:
                    stands = coverage.look(connection, self._known.entry, pin.lease_id)
                    if pin.leased and not stands.leased:  # somebody took us for dead
                        self.keeper.lose(pin)
                        continue  # a new lease protects what is there now
                    if as_of is not None:  # a sweep may have come between the pin and this look
                        clock.require_readable(connection, as_of)
                    named = _Named(connection, _list_active(connection), database, as_of)
                    beginning = Beginning(self, connection, named, stands, pin, as_of)
                    yield beginning
                is_kept = beginning.is_taken
                return
            finally:
                if not is_kept:
                    self.keeper.unpin(pin)
        raise LeaseLost("the lease of this process was ended", hint="do it again")

    def look(
        self, connection: Connection, wanted: Sequence[FileScan], stands: Look, as_of: int | None
    ) -> _Known:
        """What is built; read again only after something was published, retired or restored."""
        if as_of is not None:
            return _Known().complete(connection, wanted, as_of)
        with self._lock:
            if stands.since != self._known.entry:  # somebody else has looked meanwhile
                stands = coverage.look(connection, self._known.entry)
            if stands.last < self._known.entry:  # this snapshot is older than theirs: leave it
                return _Known().complete(connection, wanted)
            if stands.changed:
                self._known = _Known()
            self._known.entry = stands.last
            return self._known.complete(connection, wanted)

    def look_at_blocks(
        self, connection: Connection, known: _Known, gaps: Mapping[str, Sequence[TimeRange]]
    ) -> Sequence[Block]:
        with self._lock:
            return known.list_blocks(
                connection, sorted(gap for some in gaps.values() for gap in some)
            )

    def look_at_frozen(
        self,
        connection: Connection,
        cache: _Known,
        name: str,
        schema_hash: bytes,
        as_of: int | None,
    ) -> Sequence[TimeRange]:
        """Return the insert ranges of another schema that cannot be built again."""
        with self._lock:
            if name not in cache.frozen:
                cache.frozen[name] = listing.list_frozen(connection, name, schema_hash, as_of)
            return cache.frozen[name]


class Beginning:
    """A consistent look at the catalog: what a statement can name, then what it needs."""

    def __init__(
        self,
        taker: SnapshotTaker,
        connection: Connection,
        named: _Named,
        stands: Look,
        pin: Pin,
        as_of: int | None,
    ) -> None:
        self.is_taken = False
        self._taker = taker
        self._connection = connection
        self._named = named
        self._stands = stands
        self._pin = pin
        self._as_of = as_of

    def list_tables(self, sql: str) -> dict[str, ViewSet]:
        """What a statement can name."""
        return self._named.list_tables(sql)

    def take(
        self,
        scans: Sequence[Scan],
        *,
        with_tail: bool = True,
        explained: bool = False,
        asked: Asked | None = None,
    ) -> StatementSnapshot:
        """What the tables that these scans name hold, as far as the scans may need it, and what
        is asked of the catalog itself."""
        connection, as_of, active = self._connection, self._as_of, self._named.active
        tick = self._stands.tick if as_of is None else as_of
        users = self._named.find_users({scan.table for scan in scans})
        by_table: dict[str, list[Scan]] = {}
        for scan in scans:
            if scan.table in users:
                shown = users[scan.table].shown
            elif scan.table in active:
                shown = active[scan.table].view_set
            else:
                shown = view_sets.get(connection, scan.table).view_set
            by_table.setdefault(scan.table, []).append(_usable(scan, shown))
        user_tables = {
            name: user_views.find(connection, each, by_table[name], as_of)
            for name, each in users.items()
        }
        chosen = {name: active[name] for name in by_table if name not in users}
        wanted = _want(chosen, by_table)
        known = self._taker.look(connection, wanted, self._stands, as_of)
        found = _find(connection, chosen, by_table, wanted, known.spans, as_of, explained=explained)
        failed = (
            failures.list_failures_of(connection, list(found)) if self._stands.has_failures else []
        )
        gaps = look_for_gaps(found, chosen, known.runs, failed, tick)
        hashes = {name: active_view.schema_hash for name, active_view in chosen.items()}
        self._find_frozen(found, hashes, known)
        if as_of is not None:
            _require_same_definition(found, chosen, as_of)
        else:
            every = failures.list_failures(connection) if self._stands.has_failures else []
            find_unbuilt(connection, found, active, known.runs, every, tick)
        if with_tail and any(gaps.values()):
            landed = self._taker.look_at_blocks(connection, known, gaps)
            add_tails(connection, found, gaps, landed, by_table)
        listed = listings.look_up(
            connection,
            asked or Asked(),
            active,
            self._named.find_users({name for name, _within in (asked or Asked()).empty}),
            tick,
            as_of,
            with_tail=with_tail,
        )
        self.is_taken = True
        if as_of is None:
            self._taker.keeper.raise_pin(self._pin, tick)
        return StatementSnapshot(tick, found, user_tables, listed, self._pin, self._taker.keeper)

    def _find_frozen(
        self, views: Mapping[str, TableView], hashes: Mapping[str, bytes], cache: _Known
    ) -> None:
        """Set which of the hidden rows cannot be built again."""
        for name, view in views.items():
            if not view.hidden or view.view_set.source is None:
                continue
            frozen = self._taker.look_at_frozen(
                self._connection, cache, name, hashes[name], self._as_of
            )
            view.frozen = [
                part.intersect(hidden)
                for hidden in view.hidden
                for part in frozen
                if part.overlaps(hidden)
            ]


@dataclass(slots=True)
class _Known:
    """What the catalog said of the partitions of some view sets when the journal was so long, and
    of the blocks that no partition covers: those only become more until something is built."""

    entry: int = 0
    runs: dict[str, list[Run]] = field(default_factory=dict)
    spans: Spans = field(default_factory=dict)
    frozen: dict[str, list[TimeRange]] = field(default_factory=dict)
    landed: list[Block] = field(default_factory=list)
    landed_in: list[TimeRange] = field(default_factory=list)
    """The insert times of which all blocks are known; they are in the order of these."""

    def complete(
        self, connection: Connection, wanted: Sequence[FileScan], as_of: int | None = None
    ) -> _Known:
        """The same, for all of these."""
        names = [each.view_set for each in wanted if each.view_set not in self.runs]
        if names:
            self.runs |= _by_view_set(names, coverage.list_runs(connection, names, as_of))
        unknown = [
            each
            for each in wanted
            if each.events is not None and (each.view_set, each.schema_hash) not in self.spans
        ]
        if unknown and as_of is None:
            self.spans |= partition_search.list_spans(connection, unknown)
        return self

    def list_blocks(self, connection: Connection, needed: Sequence[TimeRange]) -> Sequence[Block]:
        """All blocks that landed in some ranges, and perhaps others, by insert time."""
        unknown = [gap for each in _join(needed) for gap in find_gaps(each, self.landed_in)]
        if not unknown:
            return self.landed
        asked = _at_most(_FEW_RANGES, unknown)
        found = blocks.list_blocks_in(connection, asked)
        if self.landed and found and found[0].insert_time <= self.landed[-1].insert_time:
            both = {each.insert_time: each for each in [*self.landed, *found]}
            found = [both[time] for time in sorted(both)]
        else:
            found = [*self.landed, *found]
        if len(found) <= _MOST_BLOCKS:
            self.landed, self.landed_in = found, _join(sorted([*self.landed_in, *asked]))
        return found


def _want(
    chosen: Mapping[str, ActiveViewSet], by_table: Mapping[str, Sequence[Scan]]
) -> list[FileScan]:
    return [
        FileScan(name, each.schema_hash, event_ranges(by_table[name], each.view_set.time_column))
        for name, each in chosen.items()
    ]


def _find(
    connection: Connection,
    chosen: Mapping[str, ActiveViewSet],
    by_table: Mapping[str, Sequence[Scan]],
    wanted: Sequence[FileScan],
    spans: Spans,
    as_of: int | None,
    *,
    explained: bool,
) -> dict[str, TableView]:
    found = partition_search.find_files(connection, wanted, spans, as_of)
    counts = partition_search.count_partitions(connection, wanted, as_of) if explained else {}
    views = {}
    for name, each in chosen.items():
        table = TableView(each.view_set)
        table.files, table.pruned = _prune(found.get(name, []), by_table[name], each.view_set)
        if explained:
            everything, empty = counts.get(name, (0, 0))
            table.considered = everything
            by_time = everything - empty - len(found.get(name, []))
            by_time += table.pruned.pop("time", 0)
            pruned = {"empty": empty, "time": by_time, **table.pruned}
            table.pruned = {reason: count for reason, count in pruned.items() if count}
        views[name] = table
    return views


class _Named:
    """What a statement can name: view sets, and users' tables, those of one database also without
    its name. Users' tables are asked for when something may name one, once."""

    def __init__(
        self,
        connection: Connection,
        active: Mapping[str, ActiveViewSet],
        database: str | None = None,
        as_of: int | None = None,
    ) -> None:
        self.active = active
        self._as_of = as_of
        self._connection = connection
        self._database = database
        self._users: Mapping[str, UserTable] | None = None

    def list_tables(self, sql: str | None) -> dict[str, ViewSet]:
        """View sets and, unless a statement's text has nothing that could be one, tables."""
        found = {name: each.view_set for name, each in self.active.items()}
        may_name = sql is None or "." in sql or "show" in sql.lower()
        if may_name or self._database is not None:
            found |= {name: each.shown for name, each in self._list_users().items()}
        return found

    def find_users(self, names: Collection[str]) -> dict[str, UserTable]:
        """The users' tables among some names."""
        if all(name in self.active for name in names) and self._database is None:
            return {}
        users = self._list_users()
        return {name: users[name] for name in sorted(names) if name in users}

    def _list_users(self) -> Mapping[str, UserTable]:
        if self._users is None:
            found = tables.list_tables(self._connection, self._as_of)
            self._users = by_name(found, self._database)
        return self._users


def _require_same_definition(
    views: Mapping[str, TableView], chosen: Mapping[str, ActiveViewSet], as_of: int
) -> None:
    """The past of a view set is read by today's definition; raise if it had another then."""
    for name, table in views.items():
        if table.hidden and chosen[name].activated_at > as_of:
            since = format_instant(chosen[name].activated_at)
            raise SnapshotExpired(
                f"{name} was defined anew at {since}, and what it was before cannot be read",
                hint="ask for a time since then",
            )


def _list_active(connection: Connection) -> dict[str, ActiveViewSet]:
    return {active.view_set.name: active for active in list_view_sets(connection)}


def _by_view_set(names: Sequence[str], runs: Sequence[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {name: [] for name in names}
    for run in runs:
        found[run.view_set].append(run)
    return found


def _usable(scan: Scan, view_set: ViewSet) -> Scan:
    """The scan without conditions on columns whose statistics are in another unit."""
    import pyarrow as pa

    def is_usable(name: str) -> bool:
        if name == view_set.time_column:
            return True
        kind = view_set.schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        plain = pa.types.is_integer(kind) or pa.types.is_string(kind)
        return bool(plain or (pa.types.is_timestamp(kind) and kind.unit == "us"))

    names = set(view_set.schema.names)
    return Scan(
        scan.table,
        {
            name: intervals
            for name, intervals in scan.columns.items()
            if name in names and is_usable(name)
        },
    )


def _prune(
    found: Sequence[Partition], scans: Sequence[Scan], view_set: ViewSet
) -> tuple[list[Partition], dict[str, int]]:
    """The partitions that some scan may need, and how many others each column ruled out."""
    kept = []
    pruned: dict[str, int] = {}
    for partition in found:
        if any(conditions.may_match(scan, partition, view_set.time_column) for scan in scans):
            kept.append(partition)
        else:
            column = conditions.find_blocking_column(scans, partition, view_set.time_column)
            reason = "time" if column in (view_set.time_column, None) else f"statistics: {column}"
            pruned[reason] = pruned.get(reason, 0) + 1
    return kept, pruned


def _join(ranges: Sequence[TimeRange]) -> list[TimeRange]:
    """The same instants in fewer ranges."""
    joined: list[TimeRange] = []
    for each in ranges:
        if joined and each.begin <= joined[-1].end:
            joined[-1] = TimeRange(joined[-1].begin, max(joined[-1].end, each.end))
        else:
            joined.append(each)
    return joined


def _at_most(few: int, ranges: Sequence[TimeRange]) -> Sequence[TimeRange]:
    """These ranges, or when there are very many, one that has more."""
    return ranges if len(ranges) <= few else [TimeRange(ranges[0].begin, ranges[-1].end)]
