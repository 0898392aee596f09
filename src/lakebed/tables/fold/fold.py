"""Fold in this process: merge partitions of one bucket into one that has each key once. Inserts
fold small partitions; builds fold all.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakebed.errors import Conflict, Damage, LeaseLost, StalePlan, Unavailable
from lakebed.model.tables.table import UserTable
from lakebed.tables.fold import fold_rows
from lakebed.tables.fold.fold_rows import Run, fold_partitions
from lakebed.tables.rows.row_reader import RowReader
from lakebed.tables.rows.table_publisher import TablePublisher
from lakebed.tables.rows.table_snapshot import TableSnapshot, TableSnapshots

_ATTEMPTS = 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Folded:
    """The result of folding one run of partitions."""

    instance: str
    partitions: int
    rows_before: int
    rows: int
    bytes: int


class Folder:
    """Folds the tables of one lake."""

    def __init__(
        self, reader: RowReader, snapshots: TableSnapshots, publisher: TablePublisher
    ) -> None:
        self._reader = reader
        self._snapshots = snapshots
        self._publisher = publisher

    def fold_small(self, table: UserTable, instances: Sequence[str]) -> None:
        """Fold the small partitions of buckets in which an insert found many partitions.

        The insert is committed by now: an error here is logged and never raised, because the
        caller would insert again."""
        if not instances:
            return
        try:
            with self._snapshots.take(table.table_id) as snapshot:
                self._fold(snapshot, _plan_small(snapshot, instances))
        except (Conflict, Damage, Unavailable) as error:
            _log.info("did not fold %s: %s", table.full_name, error)
        except Exception:  # noqa: BLE001  (see above; the log has all of it)
            _log.exception("could not fold %s", table.full_name)

    def plan(self, table: UserTable) -> list[Run]:
        """Return the runs that folding a whole table would merge."""
        with self._snapshots.take(table.table_id) as snapshot:
            return plan_runs(snapshot)

    def fold(
        self, table: UserTable, progress: Callable[[Folded], None] = lambda _done: None
    ) -> list[Folded]:
        """Fold every bucket of a table; plan again if partitions change meanwhile."""
        done: list[Folded] = []
        for attempt in range(_ATTEMPTS):
            try:
                with self._snapshots.take(table.table_id) as snapshot:
                    for run in plan_runs(snapshot):
                        done += self._fold(snapshot, [run])
                        progress(done[-1])
            except (StalePlan, LeaseLost):
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                break
        return done

    def _fold(self, snapshot: TableSnapshot, runs: Sequence[Run]) -> list[Folded]:
        """Fold runs of partitions of a snapshot, each into one, in one transaction."""
        if not runs:
            return []
        every = [*snapshot.partitions, *snapshot.restorable]
        replacements = []
        for run in runs:
            marks_from = fold_rows.find_marks_from(snapshot.table, run.partitions, every)
            rows = fold_partitions(self._reader, snapshot.table, run.partitions, marks_from)
            replacements.append((run.partitions, rows))
        new = self._publisher.replace_all(snapshot.table, replacements)
        new_by_bucket = {partition.instance: partition for partition in new}
        return [
            Folded(
                run.instance,
                len(run.partitions),
                sum(partition.num_rows for partition in run.partitions),
                new_by_bucket[run.instance].num_rows,
                new_by_bucket[run.instance].file_size,
            )
            for run in runs
        ]


def _plan_small(snapshot: TableSnapshot, instances: Sequence[str]) -> list[Run]:
    """Return the runs that inserts fold in some buckets, at most one per bucket."""
    buckets = snapshot.buckets
    runs = []
    for instance in instances:
        barriers = [
            partition for partition in snapshot.restorable if partition.instance == instance
        ]
        run = fold_rows.plan_small_fold(buckets.get(instance, []), barriers)
        if run is not None:
            runs.append(run)
    return runs


def plan_runs(snapshot: TableSnapshot) -> list[Run]:
    """Return the runs to fold in a table, bucket by bucket."""
    return fold_rows.plan_folds(snapshot.partitions, snapshot.restorable, is_requested=True)
