"""Insert a DataFrame into a user's table: an executor validates the rows and writes a file for
each bucket under reserved names, the driver publishes all of them in one transaction. Rows never
pass through the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lakebed.catalog import clock
from lakebed.catalog.records import tables
from lakebed.errors import BadInput, LeaseLost, StalePlan
from lakebed.lake import Lake
from lakebed.logs import Operation
from lakebed.model.arguments import checked
from lakebed.model.tables.table import REJECTS, UserTable
from lakebed.pipeline.sessions.executors import StoreAddress, require_executors
from lakebed.spark.insert_task import NAMES, InsertOrder, insert_task
from lakebed.spark.writing import collect_results
from lakebed.tables.insert.insert_values import Inserted, Insertion
from lakebed.tables.rows.stored_rows import TableRows
from lakebed.tables.rows.table_publisher import FOLDER, TablePublisher, WrittenRows
from lakebed.writing.name_reservations import NamePool

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ATTEMPTS = 3
_log = logging.getLogger(__name__)
_FEW_BUCKETS = 8
"""The expected number of buckets; a task with more buckets reports their number before it
writes.
"""


class _MoreNames(Exception):
    """Raised if the rows are of more buckets than there are names for."""

    def __init__(self, files: int) -> None:
        super().__init__(f"{files} files")
        self.files = files


@checked
def insert(
    frame: DataFrame,
    lake: Lake,
    table: str,
    *,
    on_error: str = "refuse",
    pass_credentials: bool = False,
) -> Inserted:
    """Insert the rows of a DataFrame into ``database.table``, in one transaction.

    They are validated as `Tables.insert` does: a bad row refuses all of them or, with
    ``on_error="keep"``, goes into the table's rejects; rows take the place of older ones with the
    same key. A DataFrame has no order, so of two rows with the same key none is the last, and they
    are refused. All rows go to one task and must fit its memory.
    """
    with Operation(_log, "insert", failure_level=logging.WARNING, table=table) as operation:
        inserted = _insert(frame, lake, table, on_error, pass_credentials)
        operation.add(rows=inserted.rows, rejected=inserted.rejected, tick=inserted.tick)
    return inserted


def _insert(
    frame: DataFrame, lake: Lake, table: str, on_error: str, pass_credentials: bool
) -> Inserted:
    from lakebed.tables.insert.insert import KEEP, InsertOptions

    keeps_bad = InsertOptions(on_error).on_error == KEEP
    database, dot, name = table.partition(".")
    if not dot:
        raise BadInput(f"{table!r} is not the name of a table", hint="write it as database.table")
    if len(set(frame.columns)) != len(frame.columns):
        raise BadInput(f"a column of the DataFrame for {table} occurs twice")
    names = NamePool(lake.catalog, lake.leases)
    publisher = TablePublisher(lake.catalog, lake.store, names)
    address = StoreAddress.of(lake.store, pass_credentials=pass_credentials)
    require_executors(frame.sparkSession, address)
    files = _FEW_BUCKETS
    attempts = 0
    try:
        while True:
            work = _Work(lake, names, publisher, address, keeps_bad, files)
            try:
                done = work.insert(frame, database, name)
            except _MoreNames as more:
                files = more.files
            except (StalePlan, LeaseLost):  # altered meanwhile, or taken for dead
                attempts += 1
                if attempts == _ATTEMPTS:
                    raise
            else:
                lake.tables.folder.fold_small(work.table, done.crowded)
                return done
    finally:
        names.close()


class _Work:
    """One attempt to insert a DataFrame."""

    def __init__(
        self,
        lake: Lake,
        names: NamePool,
        publisher: TablePublisher,
        address: StoreAddress,
        keeps_bad: bool,
        files: int,
    ) -> None:
        self._lake = lake
        self._names = names
        self._publisher = publisher
        self._address = address
        self._keeps_bad = keeps_bad
        self._files = files
        self.table: UserTable

    def insert(self, frame: DataFrame, database: str, name: str) -> Inserted:
        with self._lake.catalog.read() as connection:
            self.table = tables.get(connection, database, name)
            rejects = tables.get(connection, database, _rejects_of(self.table))
            now = clock.upcoming(connection)
        lease, paths = self._names.take(self.table.stored_as, FOLDER, NAMES * self._files)
        also, reject_paths = self._names.take(rejects.stored_as, FOLDER, NAMES)
        every_path = [*paths, *reject_paths]
        with self._names.using(lease, every_path, written_elsewhere=True):
            if also != lease:
                raise LeaseLost("the lease was lost before anything was written")
            order = InsertOrder(
                self.table,
                rejects,
                tuple(frame.columns),
                self._keeps_bad,
                now,
                tuple(paths),
                tuple(reject_paths),
            )
            written = _run(frame, self._address, order)
            done = self._publish(written, rejects, lease) if written else Inserted(now, 0)
        used = {rows.file.path for rows in written}
        self._names.give_up([path for path in every_path if path not in used])
        return done

    def _publish(self, written: Sequence[WrittenRows], rejects: UserTable, lease: str) -> Inserted:
        parts = [TableRows(self.table, self.table.view_set.schema.empty_table())]
        if any(rows.table is rejects for rows in written):
            parts.append(TableRows(rejects, rejects.view_set.schema.empty_table()))
        return self._publisher.insert_written(Insertion(parts), written, lease=lease)


def _rejects_of(table: UserTable) -> str:
    if table.rejects_of is not None:
        raise BadInput(f"{table.full_name} has what another table refused; nobody inserts there")
    return f"{table.name}{REJECTS}"


def _run(frame: DataFrame, address: StoreAddress, order: InsertOrder) -> list[WrittenRows]:
    """Have one task write all rows. Return its files."""
    by_position = frame.toDF(*(f"c{index}" for index in range(len(order.columns))))
    task = insert_task(address, order)
    results = collect_results(by_position, task, order.table.full_name)
    written = []
    for result in results:
        if result.missing_files:
            raise _MoreNames(result.missing_files)
        table = order.rejects if result.is_rejected else order.table
        if result.file is not None:
            written.append(WrittenRows(table, result.bucket, result.file))
    return written
