"""What one SQL statement changes: planned call by call while the statement runs, and done in one
transaction when it has run to its end. So a statement that fails leaves nothing, the lake's clock
is not held while rows are computed, and nobody is told of a success that did not come about.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from lakebed.catalog import clock, files, journal, lakes, partitions, tables
from lakebed.catalog.catalog import Catalog, Connection, Transaction
from lakebed.errors import Conflict, LakebedError, Overlap, Refused, Unavailable
from lakebed.lifecycle import selection
from lakebed.logs import Operation
from lakebed.model.partition import FileState, Partition
from lakebed.model.time import TimeRange
from lakebed.model.user_table import is_table, table_id_of
from lakebed.partitions.publish import retire_rows

_log = logging.getLogger(__name__)
Asked = TypeVar("Asked")
Named = tuple[str, str, int, int, bytes | None]
"""View set, instance, begin, end and, if it is known, the schema hash of one partition."""


@dataclass(slots=True)
class _Planned:
    retired: dict[str, tuple[Partition, str]] = field(default_factory=dict)
    restored: dict[str, tuple[Partition, str]] = field(default_factory=dict)


class Changes:
    """Retirements and restorations of one statement. Each call says what will have happened once
    `carry_out` returned; until then nothing has. The same call gives the same answer again and is
    done once. Safe to use from several threads."""

    def __init__(
        self,
        catalog: Catalog,
        new_id: Callable[[], str],
        find_unconfirmed: Callable[[Sequence[Partition]], tuple[str, ...]],
    ) -> None:
        self._catalog = catalog
        self._new_id = new_id
        self._find_unconfirmed = find_unconfirmed
        self._planned = _Planned()
        self._said: dict[object, str] = {}
        self._lock = threading.Lock()

    def retire_partitions_by_metadata(self, named: Sequence[Named]) -> list[str]:
        """Retire single partitions by identity; for each ``SUCCESS: …`` or ``ERROR: …``."""

        def plan(connection: Connection, each: Named) -> str:
            view_set, instance, begin, end, schema_hash = each
            wanted = TimeRange(begin, end)
            found = selection.get_by_identity(connection, view_set, instance, wanted, schema_hash)
            return self._retire(found, selection.BY_IDENTITY)

        return self._answer("metadata", named, plan)

    def retire_partitions_by_file(self, paths: Sequence[str]) -> list[str]:
        """Retire single partitions by their files; for each ``SUCCESS: …`` or ``ERROR: …``."""

        def plan(connection: Connection, path: str) -> str:
            return self._retire(selection.get_by_file(connection, path), selection.BY_FILE)

        return self._answer("file", paths, plan)

    def restore_partitions(self, partition_ids: Sequence[str]) -> list[str]:
        """Bring retired partitions back; for each ``SUCCESS: …`` or ``ERROR: …``."""
        return self._answer("restore", partition_ids, self._restore)

    def retire_partitions(
        self, view_set: str, instance: str, begin: int, end: int
    ) -> list[tuple[int, str]]:
        """Retire what lies inside an insert-time range: a line for each partition, and one for all
        of them, with the time. Raises if there is no such view set."""
        wanted = TimeRange(begin, end)
        with self._lock, self._catalog.read() as connection:
            now = clock.upcoming(connection)
            found = selection.list_in_range(connection, view_set, instance, wanted)
            said = [self._retire(each, selection.by_range(wanted)) for each in found.inside]
        said += [f"SKIPPED: reaches over the range: {each.describe()}" for each in found.straddling]
        size = sum(each.file_size for each in found.inside)
        said.append(f"retired {len(found.inside)} partitions of {size} bytes in {wanted}")
        return [(now, line) for line in said]

    def carry_out(self) -> None:
        """Do all of it in one transaction, or nothing."""
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
            self._require_plausible(doomed)
            self._commit(planned)

    def _require_plausible(self, doomed: Sequence[Partition]) -> None:
        """Raise `Refused` if the statement retires implausibly much."""
        unconfirmed = self._find_unconfirmed(doomed)
        if unconfirmed:
            raise Refused(
                f"this would retire most of {', '.join(unconfirmed)} ({len(doomed)} partitions in "
                "all)",
                hint="SQL cannot confirm that; use: lakebed partitions retire … "
                + " ".join(f"--confirm {name}" for name in unconfirmed),
            )

    def _commit(self, planned: _Planned) -> None:
        reasons: dict[str, list[Partition]] = {}
        for partition, reason in planned.retired.values():
            reasons.setdefault(reason, []).append(partition)

        def work(transaction: Transaction) -> None:
            for reason, chosen in reasons.items():
                hint = "nothing happened; run the statement again"
                retire_rows(transaction, chosen, operation="retire", reason=reason, hint=hint)
            for old, new_id in planned.restored.values():
                restore_row(transaction, old.partition_id, new_id)

        def happened(connection: Connection, _result: None) -> bool:
            new = [new_id for _, new_id in planned.restored.values()]
            gone = partitions.list_by_id(connection, list(planned.retired))
            return len(partitions.list_by_id(connection, new)) == len(new) and not any(
                each.is_live for each in gone
            )

        self._catalog.commit(work, happened)

    def _answer(
        self, verb: str, asked: Sequence[Asked], plan: Callable[[Connection, Asked], str]
    ) -> list[str]:
        answers = []
        with self._lock, self._catalog.read() as connection:
            for each in asked:
                known = self._said.get((verb, each))
                if known is None:
                    try:
                        known = plan(connection, each)
                    except Unavailable:
                        raise
                    except LakebedError as error:
                        known = f"ERROR: {error}"
                    self._said[verb, each] = known
                answers.append(known)
        return answers

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
