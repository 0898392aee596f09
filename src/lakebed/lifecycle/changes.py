"""The retirements and restorations of one SQL statement: planned call by call while the statement
runs, and committed in one transaction when it has run to its end. A statement that fails changes
nothing, and the lake's clock is not held while rows are computed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from lakebed.catalog import clock
from lakebed.catalog.acting import keep_askers
from lakebed.catalog.catalog import Catalog, Connection
from lakebed.errors import LakebedError, Overlap, Unavailable
from lakebed.lifecycle import selection
from lakebed.lifecycle.commit import commit
from lakebed.lifecycle.guard import Guard
from lakebed.lifecycle.outcomes import Outcome, describe_restored, describe_success
from lakebed.lifecycle.planning import Planner, RetirementPlan
from lakebed.logs import Operation
from lakebed.model.partition import Partition

_log = logging.getLogger(__name__)

Line = tuple[int, str]
"""A time and a message of a log."""


@dataclass(slots=True)
class _Planned:
    retired: dict[str, tuple[Partition, str]] = field(default_factory=dict)
    restored: dict[str, Partition] = field(default_factory=dict)
    answers: dict[Hashable, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    confirmed: set[str] = field(default_factory=set)


class Changes(Planner):
    """The verbs of `Retirement` for one statement: they plan, and `carry_out` commits everything.

    Each call returns the message that is true once `carry_out` has returned; until then nothing
    changes. A repeated call returns the same message and acts once. A statement is all or nothing:
    after a failed call, `withdraw` turns every answer into an error. Safe to use from several
    threads.
    """

    def __init__(self, catalog: Catalog, guard: Guard, new_id: Callable[[], str]) -> None:
        super().__init__(catalog, guard)
        self._new_id = new_id
        self._planned = _Planned()
        self._is_withdrawn = False
        self._warnings: list[str] = []
        self._results: dict[Hashable, Any] = {}
        self._as_caller = keep_askers(lambda work: work())
        self._connection: Connection | None = None
        self._lock = threading.RLock()
        self.error: LakebedError | None = None
        """The error of one of the calls: engines keep only the text."""

    # -- verbs of operations ------------------------------------------------------------------

    def retire(
        self, plan: Callable[[], RetirementPlan], confirmed: Collection[str] = ()
    ) -> list[Outcome]:
        """Retire the partitions of a plan with the statement."""
        retirement = plan()
        with self._lock:
            self._planned.confirmed.update(confirmed)
            for partition in retirement.partitions:
                self._planned.retired.setdefault(
                    partition.partition_id, (partition, retirement.reason)
                )
        return [
            Outcome(partition, True, describe_success(partition))
            for partition in retirement.partitions
        ]

    def restore(self, partition_id: str) -> Partition:
        """Restore a partition with the statement; return it as it will be."""
        with self.reading() as connection:
            old = selection.get_restorable(connection, partition_id)
            in_the_way = [
                partition
                for partition in selection.list_in_the_way(connection, old)
                if partition.partition_id not in self._planned.retired
            ]
        in_the_way += [
            partition
            for partition in self._planned.restored.values()
            if _same_series(partition, old) and partition.insert_range.overlaps(old.insert_range)
        ]
        if in_the_way:
            raise Overlap(f"{in_the_way[0].describe()} is in the way")
        restored = replace(old, partition_id=self._new_id())
        self._planned.restored[partition_id] = restored
        return restored

    # -- calls of SQL -------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Use one connection for all calls inside the block, from one thread at a time."""
        with self._lock:
            if self._connection is not None:
                yield self._connection
                return
            with self._catalog.read() as self._connection:
                try:
                    yield self._connection
                finally:
                    self._connection = None

    _reading = reading

    def answer(self, call: Hashable, work: Callable[[], Outcome | Partition]) -> str:
        """Return ``SUCCESS: …`` or ``ERROR: …`` for one call."""
        with self.reading():
            answer = self._planned.answers.get(call)
            if answer is not None and (answer.startswith("ERROR") or not self._is_withdrawn):
                return answer
            if self._is_withdrawn:
                return self._describe_rollback()
            try:
                result = work()
                answer = (
                    result.message if isinstance(result, Outcome) else describe_restored(result)
                )
            except Unavailable:
                raise
            except LakebedError as error:
                answer = self.reject(str(error))
            self._planned.answers[call] = answer
            return answer

    def log(self, work: Callable[[], Sequence[str]]) -> list[Line]:
        """Return the lines of one call, with the time."""
        with self.reading() as connection:
            now = clock.upcoming(connection)
            lines = [self._describe_rollback()] if self._is_withdrawn else work()
        return [(now, line) for line in lines]

    def do_once(self, call: Hashable, work: Callable[[], Any]) -> Any:
        """Return the result of work that has transactions of its own. It runs on behalf of the
        statement's caller, and not again if the statement runs again."""
        with self._lock:
            if call not in self._results:
                self._results[call] = self._as_caller(work)
            return self._results[call]

    def reject(self, message: str) -> str:
        """Record a call that failed; return its answer."""
        with self._lock:
            self._planned.failures.append(message)
        return f"ERROR: {message}"

    @property
    def warnings(self) -> Sequence[str]:
        """Remarks on the calls, for the result of the statement."""
        return tuple(self._warnings)

    def warn(self, message: str) -> None:
        """Add a remark, if it is not there yet."""
        with self._lock:
            if message not in self._warnings:
                self._warnings.append(message)

    # -- the statement ------------------------------------------------------------------------

    def withdraw(self) -> bool:
        """Roll the statement back if one of its calls failed and another did not. Return True if
        so: every call then answers with an error, and the statement's rows must be computed again.
        """
        planned = self._planned
        if not planned.failures or not (planned.retired or planned.restored):
            return False
        planned.retired.clear()
        planned.restored.clear()
        self._is_withdrawn = True
        return True

    def begin_again(self) -> None:
        """Forget every call: the statement will run again on the lake as it is now."""
        self._planned = _Planned()

    def carry_out(self) -> None:
        """Commit all of it in one transaction, or nothing. `Refused` if the guard asks for a name
        that no call confirmed."""
        planned = self._planned
        doomed = [partition for partition, _ in planned.retired.values()]
        if not doomed and not planned.restored:
            return
        operation = Operation(
            _log,
            "retire" if doomed else "restore",
            view_sets=sorted({partition.view_set for partition in doomed}),
            partitions=len(doomed),
            restored=len(planned.restored),
        )
        with operation:
            with self._catalog.read() as connection:
                lost = self._guard.find_lost(connection, doomed)
            reasons: dict[str, list[Partition]] = {}
            for partition, reason in planned.retired.values():
                reasons.setdefault(reason, []).append(partition)
            commit(
                self._catalog,
                self._guard,
                [
                    RetirementPlan(tuple(partitions), reason, lost=lost)
                    for reason, partitions in reasons.items()
                ],
                planned.confirmed,
                restored=[(old, new.partition_id) for old, new in planned.restored.items()],
                hint="nothing changed; run the statement again",
            )

    def _plan(
        self,
        connection: Connection,
        doomed: Sequence[Partition],
        reason: str,
        *,
        hold: bool = False,
    ) -> RetirementPlan:
        """Return a plan without demands: the guard sees all calls together, at the end."""
        del connection
        return RetirementPlan(tuple(doomed), reason, hold)

    def _describe_rollback(self) -> str:
        reason = self._planned.failures[0]
        return f"ERROR: rolled back, because another call of the statement failed: {reason}"


def _same_series(one: Partition, other: Partition) -> bool:
    return (one.view_set, one.instance, one.schema_hash) == (
        other.view_set,
        other.instance,
        other.schema_hash,
    )
