"""Plans of retirement: the partitions that would be retired, and the names that must be confirmed.
Making a plan changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from lakebed.catalog import clock
from lakebed.catalog.catalog import Catalog, Connection
from lakebed.catalog.lookups import partition_search
from lakebed.catalog.lookups.partition_search import PartitionFilter
from lakebed.catalog.records import tables, view_sets
from lakebed.catalog.times import resolve
from lakebed.errors import BadInput, TooPrecise, UnknownPartition
from lakebed.lifecycle import selection
from lakebed.lifecycle.guard import Demand, Guard
from lakebed.model.arguments import checked_methods
from lakebed.model.partition import Partition
from lakebed.model.tables.table import is_table, parse_retention
from lakebed.model.time import Instant, TimeRange, format_instant, parse_duration
from lakebed.views.active import get_view_set


@dataclass(frozen=True, slots=True)
class RetirementPlan:
    """The partitions that would be retired, and remarks on them."""

    partitions: tuple[Partition, ...]
    reason: str
    hold: bool = False
    straddling: tuple[Partition, ...] = ()  # in the range only in part, left alone
    warnings: tuple[str, ...] = ()
    demands: tuple[Demand, ...] = ()  # names to confirm, with the reasons
    lost: frozenset[str] = frozenset()  # ids of those that cannot be rebuilt
    only_incompatible: bool = False  # refuse what became compatible again
    by_retention: bool = False  # its owner set how long rows are kept: nothing counts as lost
    retained_from: tuple[tuple[str, int], ...] = ()  # floors that retention raises with it

    @property
    def bytes(self) -> int:
        return sum(partition.file_size for partition in self.partitions)

    @property
    def confirm(self) -> tuple[str, ...]:
        """The names that must be confirmed, one time each."""
        return tuple(dict.fromkeys(demand.name for demand in self.demands))

    def first(self, most_partitions: int) -> RetirementPlan:
        """Return the plan of its oldest partitions, at most so many."""
        oldest = sorted(self.partitions, key=lambda partition: partition.insert_range)
        return replace(self, partitions=tuple(oldest[: max(most_partitions, 0)]))


@dataclass(frozen=True, slots=True)
class IncompatiblePartition:
    """A live partition whose schema is not its view set's active one (None: not registered)."""

    partition: Partition
    current_hash: bytes | None
    can_be_rebuilt: bool

    @property
    def is_lost(self) -> bool:
        """True if its rows are gone for good once it is retired and swept."""
        return not self.can_be_rebuilt and not self.partition.is_empty

    def as_row(self) -> dict[str, Any]:
        """Return it with the names of columns that every door shows."""
        return {
            "view_set_name": self.partition.view_set,
            "view_instance_id": self.partition.instance,
            "begin_insert_time": self.partition.insert_range.begin,
            "end_insert_time": self.partition.insert_range.end,
            "incompatible_schema_hash": self.partition.schema_hash,
            "current_schema_hash": self.current_hash,
            "file_path": self.partition.file_path,
            "file_size": self.partition.file_size,
            "num_rows": self.partition.num_rows,
            "can_be_rebuilt": self.can_be_rebuilt,
            "partition_id": self.partition.partition_id,
        }


@checked_methods
class Planner:
    """Makes plans on one lake."""

    def __init__(self, catalog: Catalog, guard: Guard) -> None:
        self._catalog = catalog
        self._guard = guard

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with self._catalog.read() as connection:
            yield connection

    def plan_by_metadata(
        self,
        view_set: str,
        instance: str,
        begin: Instant,
        end: Instant,
        schema_hash: bytes | None = None,
        *,
        hold: bool = False,
    ) -> RetirementPlan:
        """Plan for the one live partition with this identity. Without the schema hash, or with only
        its first bytes, the match must be unique: while a schema evolves, a twin may cover the same
        range."""
        begin, end = resolve(self._catalog, begin), resolve(self._catalog, end)
        try:
            insert_range = TimeRange.of(begin, end)
        except TooPrecise as error:
            raise UnknownPartition(
                f"no live partition of {view_set}/{instance} covers exactly [{begin}, {end})",
                hint="partitions begin and end at whole microseconds",
            ) from error
        with self._reading() as connection:
            partition = selection.get_by_identity(
                connection, view_set, instance, insert_range, schema_hash
            )
            return self._plan(connection, [partition], selection.BY_IDENTITY, hold=hold)

    def plan_by_file(self, file_path: str, *, hold: bool = False) -> RetirementPlan:
        """Plan for the live partition of a file. Deprecated: empty partitions have none."""
        with self._reading() as connection:
            partition = selection.get_by_file(connection, file_path)
            plan = self._plan(connection, [partition], selection.BY_FILE, hold=hold)
        return replace(plan, warnings=(selection.BY_FILE_IS_DEPRECATED, *plan.warnings))

    def plan_healing(self, file_path: str) -> RetirementPlan:
        """Plan for the live partition of a missing file, which will be built again."""
        with self._reading() as connection:
            partition = selection.get_by_file(connection, file_path)
            return self._plan(connection, [partition], "retired because its file is missing")

    def plan_by_range(
        self,
        view_set: str,
        begin: Instant,
        end: Instant,
        *,
        instance: str | None = None,
        hold: bool = False,
    ) -> RetirementPlan:
        """Plan for every live partition that lies inside an insert-time range; those that straddle
        its ends are listed and left alone."""
        begin, end = resolve(self._catalog, begin), resolve(self._catalog, end)
        within = TimeRange.within(begin, end)
        with self._reading() as connection:
            in_range = selection.list_in_range(connection, view_set, instance, within)
            plan = self._plan(connection, in_range.inside, selection.by_range(within), hold=hold)
        return replace(plan, straddling=tuple(in_range.straddling))

    def plan_by_table_retention(
        self, database: str, name: str, keep: str | None = None
    ) -> RetirementPlan:
        """Plan for every live partition of a table in buckets that are older than its retention,
        or than ``keep``. Partitions stay that hide replaced or deleted rows of other partitions."""
        with self._reading() as connection:
            table = tables.get(connection, database, name)
            if keep is not None:
                table = replace(table, retention_us=parse_retention(keep))
            if table.retention_us is None:
                raise BadInput(
                    f"table {table.full_name} keeps its rows for ever",
                    hint=f"say how long with: lakebed tables alter {table.full_name} --keep 90d",
                )
            floor = clock.upcoming(connection) - table.retention_us
            live = tables.list_partitions(connection, table.stored_as)
            old = [
                partition
                for partition in live
                if table.bucket.range_of(partition.instance).end <= floor
            ]
            hiding = selection.find_hiding(table, old, live)
            plan = self._plan_retention(
                connection, [partition for partition in old if partition not in hiding], floor
            )
        if not hiding:
            return plan
        subject = "1 old partition" if len(hiding) == 1 else f"{len(hiding)} old partitions"
        warning = (
            f"{subject} of {table.full_name} stay{'s' if len(hiding) == 1 else ''}: what was "
            "replaced or deleted by them is in buckets that are kept, and would be seen again"
        )
        return replace(plan, warnings=(warning,))

    def plan_by_retention(self, view_set: str, keep: str | None = None) -> RetirementPlan:
        """Plan for every live partition older than its view set's retention, or than ``keep``,
        such as ``30d``. The floor rises with it, so that no older range is built again."""
        with self._reading() as connection:
            retention = get_view_set(connection, view_set).view_set.retention_us
            if keep is not None:
                retention = parse_duration(keep)
            if retention is None:
                raise BadInput(
                    f"view set {view_set} has no retention",
                    hint=f"say how long it keeps rows with: lakebed views keep {view_set} 90d",
                )
            floor = clock.upcoming(connection) - retention
            live = partition_search.search(
                connection, PartitionFilter(view_sets=[(view_set, None)])
            )
            old = [partition for partition in live if partition.insert_range.end <= floor]
            plan = self._plan_retention(connection, old, floor)
        return replace(plan, retained_from=((view_set, floor),) if old else ())

    def list_incompatible_partitions(
        self, view_set: str | None = None
    ) -> list[IncompatiblePartition]:
        """Return the live partitions that queries cannot see, because their schema is not the
        active one; also those of view sets that are not registered any more."""
        with self._reading() as connection:
            if view_set is not None:
                selection.require_known(connection, view_set)
            active = {
                registered.view_set.name: registered
                for registered in view_sets.list_active(connection)
            }
            requested = None if view_set is None else [(view_set, None)]
            incompatible = [
                partition
                for partition in partition_search.search(
                    connection, PartitionFilter(view_sets=requested)
                )
                if not is_table(partition.view_set)  # tables read every version of their schema
                and (
                    partition.view_set not in active
                    or active[partition.view_set].schema_hash != partition.schema_hash
                )
            ]
            lost = self._guard.find_lost(connection, incompatible)
        return [
            IncompatiblePartition(
                partition,
                active[partition.view_set].schema_hash if partition.view_set in active else None,
                partition.view_set in active and partition.partition_id not in lost,
            )
            for partition in incompatible
        ]

    def plan_incompatible(self, view_set: str | None = None) -> RetirementPlan:
        """Plan for every incompatible partition; a warning counts those that cannot be rebuilt."""
        return self.plan_found(self.list_incompatible_partitions(view_set))

    def plan_found(self, incompatible: Sequence[IncompatiblePartition]) -> RetirementPlan:
        """Return the same plan for partitions that were listed before."""
        with self._reading() as connection:
            rows = [listed.partition for listed in incompatible]
            plan = self._plan(connection, rows, "retired as schema-incompatible")
        return replace(plan, only_incompatible=True)

    def _plan(
        self,
        connection: Connection,
        doomed: Sequence[Partition],
        reason: str,
        *,
        hold: bool = False,
    ) -> RetirementPlan:
        # What is held is never swept.
        lost = frozenset[str]() if hold else self._guard.find_lost(connection, doomed)
        demands = self._guard.list_demands(connection, doomed, lost)
        remarks = []
        if lost:
            remarks.append(
                f"{len(lost)} of them cannot be rebuilt: their blocks are gone or never were"
            )
        return RetirementPlan(
            tuple(doomed),
            reason,
            hold,
            warnings=tuple(remarks),
            demands=tuple(demands),
            lost=lost,
        )

    def _plan_retention(
        self, connection: Connection, doomed: Sequence[Partition], floor: int
    ) -> RetirementPlan:
        demands = self._guard.list_demands(connection, doomed, by_retention=True)
        reason = f"retired by retention, older than {format_instant(floor)}"
        return RetirementPlan(tuple(doomed), reason, demands=tuple(demands), by_retention=True)
