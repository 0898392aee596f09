"""The executor's task that inserts a DataFrame into a user's table: it validates the rows and
writes a file for each bucket. It knows the store and no catalog.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.errors import BadInput, BadRecords
from lakebed.logs import Operation
from lakebed.model.tables.table import UserTable
from lakebed.pipeline.sessions.executors import StoreAddress
from lakebed.pipeline.writing import TaskResult, write_once
from lakebed.storage.objects import Store
from lakebed.tables.fold.fold_rows import keep_last
from lakebed.tables.insert.rejects import describe_bad
from lakebed.tables.insert.validation import validate
from lakebed.tables.rows.stored_rows import Part, TableRows, as_stored, split_rows

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger(__name__)
NAMES = 8
"""The names for each file: one for every attempt that Spark makes by default (4), and as many
again for speculative ones and for attempts of a repeated stage.
"""


@dataclass(frozen=True, slots=True)
class InsertOrder:
    """The input of the task."""

    table: UserTable
    rejects: UserTable
    columns: tuple[str, ...]
    keeps_bad: bool
    now: int
    names: tuple[str, ...]
    reject_names: tuple[str, ...]


def insert_task(
    address: StoreAddress, order: InsertOrder
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for `mapInArrow` over one partition with all rows, columns by
    position. Bad rows are returned as an error; any other error fails the attempt, and Spark
    repeats it."""

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        held = [batch for batch in batches if batch.num_rows]
        if not held:
            return
        context = TaskContext.get()
        attempt = context.attemptNumber() if context is not None else 0
        try:
            store = address.open()
            table = order.table.full_name
            with Operation(_log, "insert task", table=table, attempt=attempt) as operation:
                rows = pa.Table.from_batches(held).rename_columns(list(order.columns))
                operation.add(rows=rows.num_rows)
                held.clear()
                results = _write_parts(store, order, _make_parts(rows, order), attempt)
                for number, result in enumerate(results):
                    yield result.to_batch(number)
        except BadInput as error:
            yield TaskResult(error=str(error), hint=error.hint, attempt=attempt).to_batch()

    return run


def _make_parts(rows: pa.Table, order: InsertOrder) -> list[Part]:
    """Return the rows of each bucket, and the rejected rows."""
    table = order.table
    checked = validate(rows, table.schema)
    if checked.bad and not order.keeps_bad:
        raise BadRecords(checked.bad, rows.num_rows)
    stored = as_stored(checked.rows, table)
    if table.key and (last := keep_last(stored, table.key).num_rows) < stored.num_rows:
        names = ", ".join(f'"{name}"' for name in table.key)
        raise BadInput(
            f"{stored.num_rows - last} rows for {table.full_name} have the key of another one, and "
            "a DataFrame has no order that says which is the last",
            hint=f"keep one of each: df.dropDuplicates([{names}])",
        )
    parts = list(split_rows(TableRows(table, stored)))
    if checked.bad:
        bad = [describe_bad(record, order.now) for record in checked.bad]
        refused = validate(bad, order.rejects.schema).rows
        parts += split_rows(TableRows(order.rejects, as_stored(refused, order.rejects)))
    return parts


def _write_parts(
    store: Store, order: InsertOrder, parts: Sequence[Part], attempt: int
) -> Iterator[TaskResult]:
    """Write a file for each part, each under the first name that no other attempt has used."""
    own = [part for part in parts if part.table is order.table]
    if len(own) * NAMES > len(order.names):
        yield TaskResult(missing_files=len(own), attempt=attempt)
        return
    free_names = {
        order.table.stored_as: _rotate(order.names, attempt * len(own)),
        order.rejects.stored_as: _rotate(order.reject_names, attempt),
    }
    for part in parts:
        names = free_names[part.table.stored_as]
        file = write_once(store, names, part.rows, part.table.view_set)
        names.remove(file.path)
        rejected = part.table is order.rejects
        yield TaskResult(file, attempt=attempt, bucket=part.instance, is_rejected=rejected)


def _rotate(names: Sequence[str], by: int) -> list[str]:
    at = by % len(names)
    return [*names[at:], *names[:at]]
