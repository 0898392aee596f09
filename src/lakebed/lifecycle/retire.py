"""Retire and restore. Every operation makes a plan that can be shown; one code path carries it
out. Retiring deletes nothing: files keep a grace period, in which they can be restored.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from lakebed.catalog.catalog import Catalog
from lakebed.errors import LakebedError, StalePlan
from lakebed.lifecycle import selection
from lakebed.lifecycle.changes import Changes
from lakebed.lifecycle.commit import commit
from lakebed.lifecycle.guard import Breaker, Guard, require_confirmed
from lakebed.lifecycle.outcomes import (
    IncompatibleSummary,
    Outcome,
    describe_success,
    summarize,
)
from lakebed.lifecycle.planning import Planner, RetirementPlan
from lakebed.logs import Operation
from lakebed.model.arguments import checked_methods
from lakebed.model.partition import Partition
from lakebed.model.time import Instant
from lakebed.model.view_set import GLOBAL

_log = logging.getLogger(__name__)
_ATTEMPTS = 5


@checked_methods
class Retirement(Planner):
    """The operations that retire and restore partitions."""

    def __init__(
        self, catalog: Catalog, new_id: Callable[[], str], breaker: Breaker | None = None
    ) -> None:
        super().__init__(catalog, Guard(breaker or Breaker(), catalog.actor))
        self._new_id = new_id

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
            commit(self._catalog, self._guard, [plan], confirmed)
        return [
            Outcome(partition, True, describe_success(partition)) for partition in plan.partitions
        ]

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
        return self.retire(
            lambda: self.plan_by_metadata(view_set, instance, begin, end, schema_hash, hold=hold),
            confirmed,
        )[0]

    def retire_partition_by_file(
        self, file_path: str, *, hold: bool = False, confirmed: Collection[str] = ()
    ) -> Outcome:
        """Retire one partition by its file. Deprecated: use `retire_partition_by_metadata`."""
        # One frame more: `checked_methods` wraps this one.
        warnings.warn(selection.BY_FILE_IS_DEPRECATED, DeprecationWarning, stacklevel=3)
        return self.retire(lambda: self.plan_by_file(file_path, hold=hold), confirmed)[0]

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
        return self.retire(
            lambda: self.plan_by_range(view_set, begin, end, instance=instance, hold=hold),
            confirmed,
        )

    def retire(
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
        return Changes(self._catalog, self._guard, self._new_id)

    def restore(self, partition_id: str) -> Partition:
        """Bring a retired partition back as a new row with the same file."""
        return self.restore_many([partition_id])[0]

    def restore_many(self, partition_ids: Sequence[str]) -> list[Partition]:
        """Bring retired partitions back in one transaction: all of them or none."""
        restored_as = [(partition_id, self._new_id()) for partition_id in partition_ids]
        with Operation(_log, "restore", partitions=len(partition_ids)) as operation:
            restored = commit(self._catalog, self._guard, [], restored=restored_as)
            operation.add(
                partition_ids=[partition.partition_id for partition in restored],
                rows=sum(partition.num_rows for partition in restored),
            )
        return restored
