"""The changes of one SQL statement: planned call by call while the statement runs, and committed in
one transaction when it has run to its end. A statement that fails changes nothing, and the lake's
clock is not held while rows are computed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lakebed.catalog import clock, files, journal, lakes, partitions, tables
from lakebed.catalog.catalog import Catalog, Connection, Transaction
from lakebed.errors import Conflict, LakebedError, Overlap, Unavailable
from lakebed.lifecycle import selection
from lakebed.lifecycle.guard import Guard
from lakebed.logs import Operation
from lakebed.model.partition import FileState, Partition
from lakebed.model.time import TimeRange
from lakebed.model.user_table import is_table, table_id_of
from lakebed.writing.publish import retire_rows

_log = logging.getLogger(__name__)
Call = TypeVar("Call")
Identity = tuple[str, str, int, int, bytes | None]
"""View set, instance, begin, end and, optionally, the schema hash of one partition."""


@dataclass(slots=True)
class _Planned:
    retired: dict[str, tuple[Partition, str]] = field(default_factory=dict)
    restored: dict[str, tuple[Partition, str]] = field(default_factory=dict)
    answers: dict[object, str] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    confirmed: set[str] = field(default_factory=set)


class Changes:
    """Retirements and restorations of one statement. Each call returns the message that is true
    once `carry_out` has returned; until then nothing changes. A repeated call returns the same
    message and acts once. Safe to use from several threads.

    A statement is all or nothing: after a failed call, `withdraw` turns every answer into an
    error.
    """

    def __init__(self, catalog: Catalog, new_id: Callable[[], str], guard: Guard) -> None:
        self._catalog = catalog
        self._new_id = new_id
        self._guard = guard
        self._planned = _Planned()
        self._is_withdrawn = False
        self._warnings: list[str] = []
        self._lock = threading.Lock()

    @property
    def warnings(self) -> Sequence[str]:
        """Remarks on the calls, for the result of the statement."""
        return tuple(self._warnings)

    def retire_partitions_by_metadata(self, identities: Sequence[Identity]) -> list[str]:
        """Retire single partitions by identity; for each ``SUCCESS: …`` or ``ERROR: …``."""

        def plan(connection: Connection, identity: Identity) -> str:
            view_set, instance, begin, end, schema_hash = identity
            partition = selection.get_by_identity(
                connection, view_set, instance, TimeRange(begin, end), schema_hash
            )
            return self._retire(partition, selection.BY_IDENTITY)

        return self._answer("metadata", identities, plan)

    def retire_partitions_by_file(self, paths: Sequence[str]) -> list[str]:
        """Retire single partitions by their files; for each ``SUCCESS: …`` or ``ERROR: …``.
        Deprecated, which `warnings` says."""

        def plan(connection: Connection, path: str) -> str:
            return self._retire(selection.get_by_file(connection, path), selection.BY_FILE)

        if selection.BY_FILE_IS_DEPRECATED not in self._warnings:
            self._warnings.append(selection.BY_FILE_IS_DEPRECATED)
        return self._answer("file", paths, plan)

    def restore_partitions(self, partition_ids: Sequence[str]) -> list[str]:
        """Bring retired partitions back; for each ``SUCCESS: …`` or ``ERROR: …``."""
        return self._answer("restore", partition_ids, self._restore)

    def retire_partitions(
        self, view_set: str, instance: str, begin: int, end: int
    ) -> list[tuple[int, str]]:
        """Retire every partition inside an insert-time range. Return a line for each partition and
        one for all of them, with the time. `UnknownViewSet` if the name is unknown."""
        within = TimeRange(begin, end)
        with self._lock, self._catalog.read() as connection:
            now = clock.upcoming(connection)
            in_range = selection.list_in_range(connection, view_set, instance, within)
            if self._is_withdrawn:
                return [(now, self._describe_rollback())]
            reason = selection.by_range(within)
            lines = [self._retire(partition, reason) for partition in in_range.inside]
        lines += [
            f"SKIPPED: reaches over the range: {partition.describe()}"
            for partition in in_range.straddling
        ]
        size = sum(partition.file_size for partition in in_range.inside)
        lines.append(f"retired {len(in_range.inside)} partitions of {size} bytes in {within}")
        return [(now, line) for line in lines]

    def confirm(self, names: Collection[str]) -> None:
        """Accept by name that most of a view set, or rows that cannot be rebuilt, are retired."""
        with self._lock:
            self._planned.confirmed.update(names)

    def reject(self, message: str) -> str:
        """Record a call whose arguments are wrong; return its answer."""
        with self._lock:
            self._planned.failures.append(message)
        return f"ERROR: {message}"

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
            self._commit(planned, doomed)

    def _commit(self, planned: _Planned, doomed: Sequence[Partition]) -> None:
        """Commit all of it, if the guard allows it."""
        with self._catalog.read() as connection:
            lost = self._guard.find_lost(connection, doomed)
        reasons: dict[str, list[Partition]] = {}
        for partition, reason in planned.retired.values():
            reasons.setdefault(reason, []).append(partition)

        def work(transaction: Transaction) -> None:
            unconfirmed = self._guard.require(transaction, doomed, lost, planned.confirmed)
            for reason, chosen in reasons.items():
                retire_rows(
                    transaction,
                    chosen,
                    operation="retire",
                    reason=reason,
                    hint="nothing changed; run the statement again",
                    unconfirmed=unconfirmed,
                )
            for old, new_id in planned.restored.values():
                restore_row(transaction, old.partition_id, new_id)

        def happened(connection: Connection, _result: None) -> bool:
            new = [new_id for _, new_id in planned.restored.values()]
            gone = partitions.list_by_id(connection, list(planned.retired))
            return len(partitions.list_by_id(connection, new)) == len(new) and not any(
                partition.is_live for partition in gone
            )

        self._catalog.commit(work, happened)

    def _answer(
        self, verb: str, calls: Sequence[Call], plan: Callable[[Connection, Call], str]
    ) -> list[str]:
        with self._lock, self._catalog.read() as connection:
            return [self._answer_once(connection, verb, call, plan) for call in calls]

    def _answer_once(
        self, connection: Connection, verb: str, call: Call, plan: Callable[[Connection, Call], str]
    ) -> str:
        answer = self._planned.answers.get((verb, call))
        if answer is not None and (answer.startswith("ERROR") or not self._is_withdrawn):
            return answer
        if self._is_withdrawn:
            return self._describe_rollback()
        try:
            answer = plan(connection, call)
        except Unavailable:
            raise
        except LakebedError as error:
            self._planned.failures.append(str(error))
            answer = f"ERROR: {error}"
        self._planned.answers[verb, call] = answer
        return answer

    def _describe_rollback(self) -> str:
        reason = self._planned.failures[0]
        return f"ERROR: rolled back, because another call of the statement failed: {reason}"

    def _retire(self, partition: Partition, reason: str) -> str:
        self._planned.retired.setdefault(partition.partition_id, (partition, reason))
        return describe_success(partition)

    def _restore(self, connection: Connection, partition_id: str) -> str:
        old = selection.get_restorable(connection, partition_id)
        others = [
            each
            for each in selection.list_in_the_way(connection, old)
            if each.partition_id not in self._planned.retired
        ]
        others += [
            each
            for each, _ in self._planned.restored.values()
            if _same_series(each, old) and each.insert_range.overlaps(old.insert_range)
        ]
        if others:
            raise Overlap(f"{others[0].describe()} is in the way")
        new_id = self._new_id()
        self._planned.restored[partition_id] = (old, new_id)
        name = f"{old.view_set}/{old.instance} {old.insert_range}"
        return f"SUCCESS: Restored {_kind(old)} {name} as {new_id}"


def _same_series(one: Partition, other: Partition) -> bool:
    return (one.view_set, one.instance, one.schema_hash) == (
        other.view_set,
        other.instance,
        other.schema_hash,
    )


def restore_row(transaction: Transaction, partition_id: str, new_id: str) -> Partition:
    """Bring one retired partition back as part of a transaction."""
    connection, tick = transaction.connection, transaction.tick
    old = selection.get_restorable(connection, partition_id)
    if old.file_path is not None and not files.take(
        connection, [old.file_path], [FileState.RETIRED, FileState.QUARANTINED]
    ):
        raise Conflict(f"{old.describe()} is being swept")
    restored = replace(
        old,
        partition_id=new_id,
        published_at=tick,
        retired_at=None,
        expiration=None,
        held=False,
        replaced=False,
    )
    partitions.release(connection, partition_id, tick + lakes.get(connection).grace_us)
    partitions.insert_many(connection, [restored])
    if is_table(restored.view_set):
        tables.touch(connection, table_id_of(restored.view_set), tick)
    journal.append(
        transaction, [journal.Entry.about(journal.RESTORED, restored, f"of {partition_id}")]
    )
    return restored


def describe_success(partition: Partition) -> str:
    """What is said of a partition that was retired; programs read how it begins."""
    name = f"{partition.view_set}/{partition.instance} {partition.insert_range}"
    return f"SUCCESS: Retired {_kind(partition)} {name}"


def _kind(partition: Partition) -> str:
    return "empty partition" if partition.is_empty else "partition"
