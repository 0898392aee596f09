"""Retiring and restoring. Every verb selects partitions into a plan that can be shown; one code
path carries a plan out. Retiring deletes nothing: files keep a grace period, in which they can be
restored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from lakebed.catalog import blocks, clock, finding, partitions, tables, view_sets
from lakebed.catalog.catalog import Catalog, Connection, Transaction
from lakebed.catalog.finding import Search
from lakebed.errors import BadInput, LakebedError, Refused, StalePlan
from lakebed.lifecycle import selection
from lakebed.lifecycle.changes import Changes, describe_success, restore_row
from lakebed.lifecycle.outcomes import IncompatibleSummary, Outcome, summarize
from lakebed.logs import Operation
from lakebed.model.arguments import checked_methods
from lakebed.model.partition import Partition
from lakebed.model.time import Instant, TimeRange, format_instant, parse_duration
from lakebed.model.user_table import is_table, parse_retention
from lakebed.model.view_set import GLOBAL
from lakebed.partitions.publish import retire_rows

_log = logging.getLogger(__name__)
WHOLE_LAKE = "whole-lake"
"""What to confirm when several view sets together are most of the lake; no view set's name."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """How much may be retired at once without being confirmed by name."""

    share: float = 0.5
    partitions: int = 10

    def tripped(self, doomed: int, live: int) -> bool:
        """Whether retiring so many of so many is implausible."""
        return doomed >= self.partitions and doomed > self.share * live


@dataclass(frozen=True, slots=True)
class RetirementPlan:
    """What would be retired, and what was found beside it."""

    partitions: tuple[Partition, ...]
    reason: str
    hold: bool = False
    straddling: tuple[Partition, ...] = ()  # in the range only in part, left alone
    warnings: tuple[str, ...] = ()
    confirm: tuple[str, ...] = ()  # view sets of which implausibly many would go
    only_incompatible: bool = False  # and refuse what became compatible again
    retained_from: tuple[tuple[str, int], ...] = ()  # floors that retention raises with it

    @property
    def bytes(self) -> int:
        return sum(partition.file_size for partition in self.partitions)

    def first(self, most: int) -> RetirementPlan:
        """Only the oldest of it."""
        oldest = sorted(self.partitions, key=lambda each: each.insert_range)
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
        self._breaker = breaker or Breaker()

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
        """The one live partition with this identity. Without the schema hash, or with only its
        first bytes, the match must be unique: while a schema evolves, a twin may cover the same
        range."""
        wanted = TimeRange.of(begin, end)
        with self._catalog.read() as connection:
            match = selection.get_by_identity(connection, view_set, instance, wanted, schema_hash)
            return self._plan(connection, [match], selection.BY_IDENTITY, hold=hold)

    def plan_by_file(self, file_path: str, *, hold: bool = False) -> RetirementPlan:
        """The live partition of a file. Deprecated: empty partitions have none."""
        with self._catalog.read() as connection:
            match = selection.get_by_file(connection, file_path)
            plan = self._plan(connection, [match], selection.BY_FILE, hold=hold)
        warning = "retiring by file is deprecated: it cannot name an empty partition; use metadata"
        return replace(plan, warnings=(warning,))

    def plan_by_range(
        self,
        view_set: str,
        begin: Instant,
        end: Instant,
        *,
        instance: str | None = None,
        hold: bool = False,
    ) -> RetirementPlan:
        """Every live partition that lies inside an insert-time range; those that straddle its
        ends are listed and left alone."""
        wanted = TimeRange.of(begin, end)
        with self._catalog.read() as connection:
            found = selection.list_in_range(connection, view_set, instance, wanted)
            plan = self._plan(connection, found.inside, selection.by_range(wanted), hold=hold)
        return replace(plan, straddling=tuple(found.straddling))

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
            reason = f"retired by retention, older than {format_instant(floor)}"
            plan = self._plan(connection, [each for each in old if each not in hiding], reason)
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
            retention = view_sets.get(connection, view_set).view_set.retention_us
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
            reason = f"retired by retention, older than {format_instant(floor)}"
            plan = self._plan(connection, old, reason)
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
            rebuildable = blocks.list_rebuildable(connection, found)
        return [
            IncompatiblePartition(
                each,
                active[each.view_set].schema_hash if each.view_set in active else None,
                each.partition_id in rebuildable and each.view_set in active,
            )
            for each in found
        ]

    def plan_incompatible(self, view_set: str | None = None) -> RetirementPlan:
        """Every incompatible partition, with a warning for those that cannot be built again."""
        return self.plan_found(self.list_incompatible_partitions(view_set))

    def plan_found(self, found: Sequence[IncompatiblePartition]) -> RetirementPlan:
        """The same for those that were listed before."""
        lost = sum(not each.can_be_rebuilt and not each.partition.is_empty for each in found)
        with self._catalog.read() as connection:
            chosen = [each.partition for each in found]
            plan = self._plan(connection, chosen, "retired as schema-incompatible")
        plan = replace(plan, only_incompatible=True)
        if not lost:
            return plan
        warning = f"{lost} of them cannot be rebuilt: their blocks are gone or never were"
        return replace(plan, warnings=(warning,))

    def _plan(
        self,
        connection: Connection,
        chosen: Sequence[Partition],
        reason: str,
        *,
        hold: bool = False,
    ) -> RetirementPlan:
        live = partitions.count_live(connection)
        names = sorted({each.view_set for each in chosen})
        confirm = [
            name
            for name in names
            if self._breaker.tripped(sum(e.view_set == name for e in chosen), live[name])
        ]
        if len(names) > 1 and self._breaker.tripped(len(chosen), sum(live.values())):
            confirm.append(WHOLE_LAKE)
        return RetirementPlan(tuple(chosen), reason, hold, confirm=tuple(confirm))

    def find_unconfirmed(self, chosen: Sequence[Partition]) -> tuple[str, ...]:
        """The view sets of which retiring all these would take implausibly much."""
        with self._catalog.read() as connection:
            return self._plan(connection, chosen, "").confirm

    # -- doing --------------------------------------------------------------------------------

    def carry_out(self, plan: RetirementPlan, *, confirmed: Collection[str] = ()) -> list[Outcome]:
        """Retire all of a plan in one transaction, or nothing."""
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
            _require_confirmed(plan, confirmed)
            self._commit(plan)
        return [
            Outcome(partition, True, describe_success(partition)) for partition in plan.partitions
        ]

    def _commit(self, plan: RetirementPlan) -> None:
        """Retire all of a plan in one transaction."""

        def work(transaction: Transaction) -> None:
            if plan.only_incompatible:
                _require_incompatible(transaction.connection, plan.partitions)
            retire_rows(
                transaction,
                plan.partitions,
                operation="hold" if plan.hold else "retire",
                reason=plan.reason,
                hint="make the plan again",
                hold=plan.hold,
            )
            for name, floor in plan.retained_from:
                view_sets.raise_floor(transaction.connection, name, floor)

        def happened(connection: Connection, _result: None) -> bool:
            ids = [each.partition_id for each in plan.partitions]
            return not any(each.is_live for each in partitions.list_by_id(connection, ids))

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
    ) -> Outcome:
        """Retire one partition by its identity, empty or not."""
        plan = self.plan_by_metadata(view_set, instance, begin, end, schema_hash, hold=hold)
        return self.carry_out(plan)[0]

    def retire_partition_by_file(self, file_path: str, *, hold: bool = False) -> Outcome:
        """Retire one partition by its file. Deprecated: use `retire_partition_by_metadata`."""
        import warnings

        plan = self.plan_by_file(file_path, hold=hold)
        warnings.warn(plan.warnings[0], DeprecationWarning, stacklevel=2)
        return self.carry_out(plan)[0]

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
        """Retire every partition inside an insert-time range."""
        plan = self.plan_by_range(view_set, begin, end, instance=instance, hold=hold)
        return self.carry_out(plan, confirmed=confirmed)

    def retire_incompatible_partitions(
        self,
        view_set: str | None = None,
        *,
        allow_loss: bool = False,
        confirmed: Collection[str] = (),
    ) -> list[IncompatibleSummary]:
        """Retire what queries cannot see, one transaction per partition, and say what was done to
        each. What cannot be rebuilt is left alone unless ``allow_loss``."""
        found = self.list_incompatible_partitions(view_set)
        plan = self.plan_found(found)
        _require_confirmed(plan, confirmed)
        rebuildable = {each.partition.partition_id: each.can_be_rebuilt for each in found}
        outcomes = []
        for partition in plan.partitions:
            lost = not partition.is_empty and not rebuildable.get(partition.partition_id, False)
            if lost and not allow_loss:
                message = f"ERROR: cannot be rebuilt, left alone: {partition.describe()}"
                outcomes.append(Outcome(partition, False, message))
                continue
            try:
                outcomes += self.carry_out(replace(plan, partitions=(partition,), confirm=()))
            except LakebedError as error:
                outcomes.append(Outcome(partition, False, f"ERROR: {error}"))
        return summarize(outcomes)

    def begin_changes(self) -> Changes:
        """Changes that are asked for one by one and done together; see `Changes`."""
        return Changes(self._catalog, self._new_id, self.find_unconfirmed)

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


def _require_confirmed(plan: RetirementPlan, confirmed: Collection[str]) -> None:
    missing = [name for name in plan.confirm if name not in confirmed]
    if missing:
        raise Refused(
            f"this would retire most of {', '.join(missing)} "
            f"({len(plan.partitions)} partitions in all)",
            hint="if that is meant, confirm it by name: "
            + " ".join(f"--confirm {name}" for name in missing),
        )


def _require_incompatible(connection: Connection, chosen: Sequence[Partition]) -> None:
    active = {each.view_set.name: each.schema_hash for each in view_sets.list_active(connection)}
    for partition in chosen:
        if active.get(partition.view_set) == partition.schema_hash:
            raise StalePlan(f"{partition.describe()} is compatible again", hint="plan again")
