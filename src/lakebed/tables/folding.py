"""Folding in this process: partitions of one bucket become one, in which each key is once. Inserts
do it for small ones as they go; builds do it for all.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakebed.errors import Conflict, Damage, Unavailable
from lakebed.model.user_table import UserTable
from lakebed.partitions import folding
from lakebed.partitions.folding import Run
from lakebed.partitions.table_snapshots import TableSnapshot, TableSnapshots
from lakebed.partitions.tables import TablePublisher
from lakebed.storage.objects import Store

_LOOK_AFTER = folding.MANY_PARTITIONS // 4
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Folded:
    """What folding one run of partitions did."""

    instance: str
    partitions: int
    rows_before: int
    rows: int
    bytes: int


class Folder:
    """Folds the tables of one lake."""

    def __init__(self, store: Store, snapshots: TableSnapshots, publisher: TablePublisher) -> None:
        self._store = store
        self._snapshots = snapshots
        self._publisher = publisher
        self._since_look: Counter[tuple[str, str]] = Counter()

    def note_insert(self, table: UserTable, instances: Sequence[str]) -> None:
        """Fold what has become many small partitions; looks only after some inserts. That another
        process is at it, or that one of the files is damaged, is no failure of the insert."""
        due = []
        for instance in instances:
            self._since_look[table.table_id, instance] += 1
            if self._since_look[table.table_id, instance] >= _LOOK_AFTER:
                self._since_look[table.table_id, instance] = 0
                due.append(instance)
        if not due:
            return
        try:
            with self._snapshots.take(table.table_id) as snapshot:
                for instance in due:
                    self._fold_small(snapshot, instance)
        except (Conflict, Damage, Unavailable) as error:
            _log.info("did not fold %s: %s", table.full_name, error)

    def _fold_small(self, snapshot: TableSnapshot, instance: str) -> None:
        bucket = snapshot.buckets.get(instance, [])
        barriers = [each for each in snapshot.restorable if each.instance == instance]
        run = folding.plan_small_fold(bucket, barriers)
        if run is not None:
            self.fold_run(snapshot, run)

    def plan(self, table: UserTable) -> list[Run]:
        """What folding a whole table would put together."""
        with self._snapshots.take(table.table_id) as snapshot:
            return plan_runs(snapshot)

    def fold(
        self, table: UserTable, progress: Callable[[Folded], None] = lambda _done: None
    ) -> list[Folded]:
        """Fold every bucket of a table."""
        done = []
        with self._snapshots.take(table.table_id) as snapshot:
            for run in plan_runs(snapshot):
                done.append(self.fold_run(snapshot, run))
                progress(done[-1])
        return done

    def fold_run(self, snapshot: TableSnapshot, run: Run) -> Folded:
        """Fold some partitions of a snapshot into one."""
        marks_from = folding.find_marks_from(
            snapshot.table, run.partitions, [*snapshot.partitions, *snapshot.restorable]
        )
        rows = folding.fold_partitions(self._store, snapshot.table, run.partitions, marks_from)
        new = self._publisher.replace(snapshot.table, run.partitions, rows)
        before = sum(each.num_rows for each in run.partitions)
        return Folded(run.instance, len(run.partitions), before, new.num_rows, new.file_size)


def plan_runs(snapshot: TableSnapshot) -> list[Run]:
    """What of a table would be folded, bucket by bucket."""
    return [
        run
        for instance, bucket in snapshot.buckets.items()
        for run in folding.plan_whole_folds(
            bucket, [each for each in snapshot.restorable if each.instance == instance]
        )
    ]
