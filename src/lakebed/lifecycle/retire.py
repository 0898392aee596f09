"""Retiring and restoring. Every verb selects partitions into a plan that can be shown; one code
path carries a plan out. Retiring deletes nothing: files keep a grace period, in which they can be
restored.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from lakebed.catalog import clock, finding, partitions, tables, view_sets
from lakebed.catalog.catalog import Catalog, Connection, Transaction
from lakebed.catalog.finding import Search
from lakebed.catalog.times import resolve
from lakebed.errors import BadInput, LakebedError, StalePlan, TooPrecise, UnknownPartition
from lakebed.lifecycle import selection
from lakebed.lifecycle.changes import Changes, describe_success, restore_row
from lakebed.lifecycle.guard import Breaker, Demand, Guard, require_confirmed
from lakebed.lifecycle.outcomes import IncompatibleSummary, Outcome, summarize
from lakebed.logs import Operation
from lakebed.model.arguments import checked_methods
from lakebed.model.partition import Partition
from lakebed.model.time import Instant, TimeRange, format_instant, parse_duration
from lakebed.model.user_table import is_table, parse_retention
from lakebed.model.view_set import GLOBAL
from lakebed.views.active import get_view_set
from lakebed.writing.publish import retire_rows

_log = logging.getLogger(__name__)
_ATTEMPTS = 5


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

    def first(self, most: int) -> RetirementPlan:
        """Return the plan of its oldest partitions, at most so many."""
        oldest = sorted(self.partitions, key=lambda partition: partition.insert_range)
        return replace(self, partitions=tuple(oldest[: max(most, 0)]))


@dataclass(frozen=True, slots=True)
class IncompatiblePartition:
    """A live partition whose schema is not its view set's active one (None: not registered)."""

    partition: Partition
    current_hash: bytes | None
    can_be_rebuilt: bool


@checked_methods
class Retirement:
    """The verbs that take partitions out of sight and bring them back."""

    def __init__(
        self, catalog: Catalog, new_id: Callable[[], str], breaker: Breaker | None = None
    ) -> None:
        self._catalog = catalog
        self._new_id = new_id
        self._guard = Guard(breaker or Breaker(), catalog.actor)

    # -- planning -----------------------------------------------------------------------------

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
        with self._catalog.read() as connection:
            partition = selection.get_by_identity(
                connection, view_set, instance, insert_range, schema_hash
            )
            return self._plan(connection, [partition], selection.BY_IDENTITY, hold=hold)

    def plan_by_file(self, file_path: str, *, hold: bool = False) -> RetirementPlan:
        """Plan for the live partition of a file. Deprecated: empty partitions have none."""
        with self._catalog.read() as connection:
            partition = selection.get_by_file(connection, file_path)
            plan = self._plan(connection, [partition], selection.BY_FILE, hold=hold)
        return replace(plan, warnings=(selection.BY_FILE_IS_DEPRECATED, *plan.warnings))

    def plan_healing(self, file_path: str) -> RetirementPlan:
        """Plan for the live partition of a missing file, which will be built again."""
        with self._catalog.read() as connection:
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
        with self._catalog.read() as connection:
            in_range = selection.list_in_range(connection, view_set, instance, within)
            plan = self._plan(connection, in_range.inside, selection.by_range(within), hold=hold)
        return replace(plan, straddling=tuple(in_range.straddling))

    def plan_by_table_retention(
        self, database: str, name: str, keep: str | None = None
    ) -> RetirementPlan:
        """Every live partition of a table in buckets that are older than its retention, or than
        they would be kept if that were ``keep``, but for those without which rows that they
        replaced or deleted would be seen again."""
        with self._catalog.read() as connection:
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
            old = [each for each in live if table.bucket.range_of(each.instance).end <= floor]
            hiding = selection.find_hiding(table, old, live)
            plan = self._plan_retention(connection, [e for e in old if e not in hiding], floor)
        if not hiding:
            return plan
        some = "1 old partition" if len(hiding) == 1 else f"{len(hiding)} old partitions"
        warning = (
            f"{some} of {table.full_name} stay{'s' if len(hiding) == 1 else ''}: what was replaced "
            "or deleted by them is in buckets that are kept, and would be seen again"
        )
        return replace(plan, warnings=(warning,))

    def plan_by_retention(self, view_set: str, keep: str | None = None) -> RetirementPlan:
        """Every live partition older than its view set's retention, or than it would be kept if
        that were ``keep``, as ``30d``; the floor rises with it, so that nothing below comes back.
        """
        with self._catalog.read() as connection:
            retention = get_view_set(connection, view_set).view_set.retention_us
            if keep is not None:
                retention = parse_duration(keep)
            if retention is None:
                raise BadInput(
                    f"view set {view_set} has no retention",
                    hint=f"say how long it keeps rows with: lakebed views keep {view_set} 90d",
                )
            floor = clock.upcoming(connection) - retention
            found = finding.search(connection, Search(view_sets=[(view_set, None)]))
            old = [each for each in found if each.insert_range.end <= floor]
            plan = self._plan_retention(connection, old, floor)
        return replace(plan, retained_from=((view_set, floor),) if old else ())

    def list_incompatible_partitions(
        self, view_set: str | None = None
    ) -> list[IncompatiblePartition]:
        """Live partitions that queries cannot see, because their schema is not the active one; of
        view sets that are no longer registered, too."""
        with self._catalog.read() as connection:
            if view_set is not None:
                selection.require_known(connection, view_set)
            active = {each.view_set.name: each for each in view_sets.list_active(connection)}
            wanted = None if view_set is None else [(view_set, None)]
            found = [
                each
                for each in finding.search(connection, Search(view_sets=wanted))
                if not is_table(each.view_set)  # tables read every version of their schema
                and (
                    each.view_set not in active
                    or active[each.view_set].schema_hash != each.schema_hash
                )
            ]
            lost = self._guard.find_lost(connection, found)
        return [
            IncompatiblePartition(
                each,
                active[each.view_set].schema_hash if each.view_set in active else None,
                each.view_set in active and each.partition_id not in lost,
            )
            for each in found
        ]

    def plan_incompatible(self, view_set: str | None = None) -> RetirementPlan:
        """Plan for every incompatible partition; a warning counts those that cannot be rebuilt."""
        return self.plan_found(self.list_incompatible_partitions(view_set))

    def plan_found(self, incompatible: Sequence[IncompatiblePartition]) -> RetirementPlan:
        """Return the same plan for partitions that were listed before."""
        with self._catalog.read() as connection:
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

    # -- doing --------------------------------------------------------------------------------

    def carry_out(self, plan: RetirementPlan, *, confirmed: Collection[str] = ()) -> list[Outcome]:
        """Retire all of a plan in one transaction, or nothing. `Refused` unless the guard's names
        are confirmed, `StalePlan` if the lake has changed since the plan was made."""
        if not plan.partitions:
            return []
        operation = Operation(
            _log,
            "hold" if plan.hold else "retire",
            view_sets=sorted({partition.view_set for partition in plan.partitions}),
            reason=plan.reason,
            partitions=len(plan.partitions),
            bytes=plan.bytes,
        )
        with operation:
            require_confirmed(plan.demands, confirmed)
            self._commit(plan, confirmed)
        return [
            Outcome(partition, True, describe_success(partition)) for partition in plan.partitions
        ]

    def _commit(self, plan: RetirementPlan, confirmed: Collection[str]) -> None:
        """Retire all of a plan in one transaction, if the guard allows it."""

        def work(transaction: Transaction) -> None:
            if plan.only_incompatible:
                _require_incompatible(transaction.connection, plan.partitions)
            unconfirmed = self._guard.require(
                transaction,
                plan.partitions,
                plan.lost,
                confirmed,
                by_retention=plan.by_retention,
            )
            retire_rows(
                transaction,
                plan.partitions,
                operation="hold" if plan.hold else "retire",
                reason=plan.reason,
                hint="make the plan again",
                hold=plan.hold,
                unconfirmed=unconfirmed,
            )
            for name, floor in plan.retained_from:
                view_sets.raise_floor(transaction.connection, name, floor)

        def happened(connection: Connection, _result: None) -> bool:
            ids = [partition.partition_id for partition in plan.partitions]
            return not any(row.is_live for row in partitions.list_by_id(connection, ids))

        self._catalog.commit(work, happened)

    def retire_partition_by_metadata(
        self,
        view_set: str,
        instance: str,
        begin: Instant,
        end: Instant,
        schema_hash: bytes | None = None,
        *,
        hold: bool = False,
        confirmed: Collection[str] = (),
    ) -> Outcome:
        """Retire one partition by its identity, empty or not. If it cannot be rebuilt, or if the
        caller has retired most of its view set, ``confirmed`` must name the view set."""
        return self._retire(
            lambda: self.plan_by_metadata(view_set, instance, begin, end, schema_hash, hold=hold),
            confirmed,
        )[0]

    def retire_partition_by_file(
        self, file_path: str, *, hold: bool = False, confirmed: Collection[str] = ()
    ) -> Outcome:
        """Retire one partition by its file. Deprecated: use `retire_partition_by_metadata`."""
        # One frame more: `checked_methods` wraps this one.
        warnings.warn(selection.BY_FILE_IS_DEPRECATED, DeprecationWarning, stacklevel=3)
        return self._retire(lambda: self.plan_by_file(file_path, hold=hold), confirmed)[0]

    def retire_partitions(
        self,
        view_set: str,
        begin: Instant,
        end: Instant,
        *,
        instance: str | None = GLOBAL,
        hold: bool = False,
        confirmed: Collection[str] = (),
    ) -> list[Outcome]:
        """Retire every partition inside an insert-time range; ``confirmed`` as for a single one."""
        return self._retire(
            lambda: self.plan_by_range(view_set, begin, end, instance=instance, hold=hold),
            confirmed,
        )

    def _retire(
        self, plan: Callable[[], RetirementPlan], confirmed: Collection[str]
    ) -> list[Outcome]:
        """Carry a plan out; make it again if another writer changed the lake first."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self.carry_out(plan(), confirmed=confirmed)
            except StalePlan:
                continue
        return self.carry_out(plan(), confirmed=confirmed)

    def retire_incompatible_partitions(
        self,
        view_set: str | None = None,
        *,
        allow_loss: bool = False,
        confirmed: Collection[str] = (),
    ) -> list[IncompatibleSummary]:
        """Retire partitions that queries cannot see, one transaction per partition, and report on
        each.

        Partitions that cannot be rebuilt are left alone, unless ``allow_loss`` accepts the loss for
        a named view set: the argument ``view_set``, or those in ``confirmed``.
        """
        plan = self.plan_incompatible(view_set)
        accepted = set(confirmed) if view_set is None else {*confirmed, view_set}
        if allow_loss:
            require_confirmed(plan.demands, accepted)
        outcomes = []
        for partition in plan.partitions:
            if partition.partition_id in plan.lost and not allow_loss:
                message = f"ERROR: cannot be rebuilt, left alone: {partition.describe()}"
                outcomes.append(Outcome(partition, False, message))
                continue
            try:
                outcomes += self.carry_out(
                    replace(plan, partitions=(partition,), demands=()), confirmed=accepted
                )
            except LakebedError as error:
                outcomes.append(Outcome(partition, False, f"ERROR: {error}"))
        return summarize(outcomes)

    def begin_changes(self) -> Changes:
        """Return the changes of one statement, which are committed together; see `Changes`."""
        return Changes(self._catalog, self._new_id, self._guard)

    def restore(self, partition_id: str) -> Partition:
        """Bring a retired partition back as a new row with the same file."""
        return self.restore_many([partition_id])[0]

    def restore_many(self, partition_ids: Sequence[str]) -> list[Partition]:
        """Bring retired partitions back in one transaction: all of them or none."""

        def work(transaction: Transaction) -> list[Partition]:
            return [restore_row(transaction, each, self._new_id()) for each in partition_ids]

        def happened(connection: Connection, restored: list[Partition]) -> bool:
            ids = [each.partition_id for each in restored]
            return len(partitions.list_by_id(connection, ids)) == len(ids)

        with Operation(_log, "restore", partitions=len(partition_ids)) as operation:
            restored = self._catalog.commit(work, happened)
            operation.add(
                partition_ids=[partition.partition_id for partition in restored],
                rows=sum(partition.num_rows for partition in restored),
            )
        return restored


def _require_incompatible(connection: Connection, chosen: Sequence[Partition]) -> None:
    active = {each.view_set.name: each.schema_hash for each in view_sets.list_active(connection)}
    for partition in chosen:
        if active.get(partition.view_set) == partition.schema_hash:
            raise StalePlan(f"{partition.describe()} is compatible again", hint="plan again")
