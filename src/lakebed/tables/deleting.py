"""Deleting rows. Of a table with a key, marks hide what was there when they were made, and folding
drops both; without a key, the partitions that hold the rows are written again without them.
Forgetting writes every partition again that holds a trace of what is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.catalog import journal
from lakebed.errors import BadInput, LeaseLost, StalePlan
from lakebed.model.partition import Partition
from lakebed.model.table import BUCKET_COLUMN
from lakebed.model.user_table import DELETED, VERSION, UserTable
from lakebed.partitions.rows import RowReader
from lakebed.partitions.table_snapshots import TableSnapshot, TableSnapshots
from lakebed.partitions.tables import Insertion, TablePublisher, TableRows

if TYPE_CHECKING:
    import pyarrow as pa

_ATTEMPTS = 20

Ask = Callable[[str, UserTable], "tuple[pa.Table, int]"]
"""Runs a statement about a table: its rows, and the tick of the snapshot that they come from."""
Match = Callable[["pa.Table", UserTable, str], "pa.Table"]
"""The rows for which a condition is true."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What of one partition would be forgotten."""

    partition: Partition
    rows: int


class Deleter:
    """Deletes rows of the tables of one lake."""

    def __init__(
        self,
        reader: RowReader,
        snapshots: TableSnapshots,
        publisher: TablePublisher,
        ask: Ask,
        match: Match,
    ) -> None:
        self._reader = reader
        self._snapshots = snapshots
        self._publisher = publisher
        self._ask = ask
        self._match = match

    def delete_rows(self, table: UserTable, where: str) -> int:
        """Delete the rows for which a condition is true now, in one transaction; what is inserted
        meanwhile stays. How many there were."""
        _require_condition(where)
        for attempt in range(_ATTEMPTS):
            try:
                if table.key:
                    return self._mark(table, where)
                return self._write_again(table, where)
            except (StalePlan, LeaseLost):
                if attempt == _ATTEMPTS - 1:
                    raise
                with self._snapshots.take(table.table_id) as snapshot:
                    table = snapshot.table
        raise AssertionError("every attempt returns or raises")

    def _mark(self, table: UserTable, where: str) -> int:
        names = list(dict.fromkeys([*table.key, table.time_column]))
        doomed, tick = self._ask(_select(table, names, where), table)
        if not doomed.num_rows:
            return 0
        marks = _as_marks(doomed, table, tick)
        insertion = Insertion([TableRows(table, marks)], operation=journal.DELETED, reason=where)
        self._publisher.insert(insertion)
        return int(doomed.num_rows)

    def _write_again(self, table: UserTable, where: str) -> int:
        doomed, tick = self._ask(_select(table, [BUCKET_COLUMN], where, distinct=True), table)
        buckets = set(doomed[BUCKET_COLUMN].to_pylist())
        if not buckets:
            return 0
        count = 0
        replacements = []
        with self._snapshots.take(table.table_id) as snapshot:
            for each in snapshot.partitions:
                if each.is_empty or each.insert_range.begin > tick:
                    continue
                if each.published_at > tick:  # older rows, which were somewhere else
                    raise StalePlan(f"table {table.full_name} was folded meanwhile")
                if each.instance not in buckets:
                    continue
                rows = self._reader.read(snapshot.table, each)
                left = self._match(rows, snapshot.table, f"NOT coalesce(({where}\n), false)")
                if left.num_rows < rows.num_rows:
                    count += rows.num_rows - left.num_rows
                    replacements.append(([each], left))
            self._publisher.replace_all(
                snapshot.table, replacements, operation=journal.DELETED, reason=where
            )
        return count

    def plan_forget(self, table: UserTable, where: Mapping[str, Any]) -> list[Trace]:
        """Which partitions hold a trace of what is to be forgotten, retired ones among them."""
        with self._snapshots.take(table.table_id) as snapshot:
            keys = self._find_keys(snapshot, where)
            every = [*snapshot.partitions, *snapshot.restorable]
            found = []
            for each in every:
                rows = self._reader.read(snapshot.table, each)
                doomed = rows.num_rows - _without(rows, snapshot.table, where, keys).num_rows
                if doomed:
                    found.append(Trace(each, doomed))
            return found

    def forget(self, table: UserTable, where: Mapping[str, Any]) -> list[Trace]:
        """Write every partition again without what is forgotten, in one transaction. What is
        retired and holds a trace cannot be restored any more; once the grace period of the old
        files is over, sweeping leaves nothing."""
        for attempt in range(_ATTEMPTS):
            try:
                return self._forget(table, where)
            except (StalePlan, LeaseLost):
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("every attempt returns or raises")

    def _forget(self, table: UserTable, where: Mapping[str, Any]) -> list[Trace]:
        with self._snapshots.take(table.table_id) as snapshot:
            keys = self._find_keys(snapshot, where)
            found, replacements, condemned = [], [], []
            for each in [*snapshot.partitions, *snapshot.restorable]:
                rows = self._reader.read(snapshot.table, each)
                left = _without(rows, snapshot.table, where, keys)
                if left.num_rows == rows.num_rows:
                    continue
                found.append(Trace(each, rows.num_rows - left.num_rows))
                if each.is_live:
                    replacements.append(([each], left))
                else:
                    condemned.append(each)
            if not found:
                return []
            said = ", ".join(sorted(where))
            self._publisher.replace_all(
                snapshot.table,
                replacements,
                operation="forget",
                reason=f"by {said}",
                condemned=condemned,
                unchanged_since=snapshot.tick,
            )
            return found

    def _find_keys(self, snapshot: TableSnapshot, where: Mapping[str, Any]) -> pa.Table | None:
        """The keys of which any version, live or restorable, is to be forgotten: all versions of
        them go. Without a key, None."""
        import pyarrow as pa

        table = snapshot.table
        _require_columns(table, where)
        if not table.key:
            return None
        names = list(table.key)
        found = [table.view_set.schema.empty_table().select(names)]
        for each in [*snapshot.partitions, *snapshot.restorable]:
            rows = self._reader.read(table, each, [*names, *where])
            found.append(rows.filter(_is_meant(rows, table, where)).select(names))
        return pa.concat_tables(found)


def _require_condition(where: str) -> None:
    if not isinstance(where, str) or not where.strip():
        raise BadInput(
            "delete_rows needs a condition", hint='e.g. "device = \'ring-7\'", or "true" for all'
        )


def _select(table: UserTable, names: Sequence[str], where: str, *, distinct: bool = False) -> str:
    columns = ", ".join(f'"{name}"' for name in names)
    return (
        f"SELECT {'DISTINCT ' if distinct else ''}{columns} "
        f"FROM {table.full_name} WHERE ({where}\n)"
    )


def _as_marks(doomed: pa.Table, table: UserTable, tick: int) -> pa.Table:
    """Delete marks for keys as they were at a tick."""
    import pyarrow as pa

    count = doomed.num_rows
    columns = []
    for field in table.view_set.schema:
        if field.name == VERSION:
            columns.append(pa.array([tick] * count, pa.int64()))
        elif field.name == DELETED:
            columns.append(pa.array([True] * count))
        elif field.name in doomed.column_names:
            columns.append(doomed[field.name].cast(field.type))
        else:
            columns.append(pa.nulls(count, field.type))
    return pa.table(columns, schema=table.view_set.schema)


def _require_columns(table: UserTable, where: Mapping[str, Any]) -> None:
    if not where:
        raise BadInput("forget needs to know whom", hint="e.g. device='ring-7'")
    known = [each.name for each in table.schema.columns]
    unknown = [name for name in where if name not in known]
    if unknown:
        raise BadInput(
            f"table {table.full_name} has no column {', '.join(unknown)}",
            hint=f"one of {', '.join(known)}",
        )


def _is_meant(rows: pa.Table, table: UserTable, where: Mapping[str, Any]) -> pa.ChunkedArray:
    """Which rows have all the values by which somebody is to be forgotten."""
    import pyarrow as pa
    import pyarrow.compute as pc

    meant = pa.chunked_array([pa.array([True] * rows.num_rows, pa.bool_())])
    for name, value in where.items():
        column = table.schema.column(name)
        if column.is_array:
            raise BadInput(f"{name} holds lists, by which nothing can be forgotten")
        try:
            scalar = pa.scalar(value, column.arrow)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise BadInput(f"{value!r} is no {column.type}, as column {name} is") from error
        same = pc.fill_null(pc.equal(rows[name], scalar), False)
        meant = pc.and_(meant, same)
    return meant


def _without(
    rows: pa.Table, table: UserTable, where: Mapping[str, Any], keys: pa.Table | None
) -> pa.Table:
    """The rows that are not forgotten."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if keys is None:
        return rows.filter(pc.invert(_is_meant(rows, table, where)))
    names = list(table.key)
    numbered = rows.select(names).append_column(VERSION, pa.array(range(rows.num_rows), pa.int64()))
    left = numbered.join(keys, names, join_type="left anti")[VERSION]
    return rows.take(left.take(pc.sort_indices(left)))
