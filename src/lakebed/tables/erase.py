"""Erase rows in every version (`Table.forget`): partitions that hold them are written again without
them, and retired partitions become unrestorable. After the grace period a sweep deletes the files.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.catalog import journal
from lakebed.errors import BadInput, DamagedFile, LeaseLost, StalePlan
from lakebed.model.partition import Partition
from lakebed.model.tables.schema import Column
from lakebed.model.tables.table import UserTable
from lakebed.tables.insert.convert_columns import convert
from lakebed.tables.insert.insert_values import Premise
from lakebed.tables.rows.row_reader import RowReader
from lakebed.tables.rows.table_publisher import TablePublisher
from lakebed.tables.rows.table_snapshot import TableSnapshot, TableSnapshots

if TYPE_CHECKING:
    import pyarrow as pa

_ATTEMPTS = 20
_POSITION = "_place"

Filter = Callable[["pa.Table"], "pa.Table"]
"""Returns the rows that are not erased."""
MakeFilter = Callable[[TableSnapshot], Filter]


@dataclass(frozen=True, slots=True)
class Trace:
    """The rows of one partition that an erasure removes."""

    partition: Partition
    rows: int
    readable: bool = True
    """False for an unreadable retired partition: all its rows are erased, because their keys are
    unknown."""


class Eraser:
    """Erases rows of the tables of one lake, and their rejects. With a key, all versions of a row
    go if one of them, live or retired, has the values."""

    def __init__(
        self, reader: RowReader, snapshots: TableSnapshots, publisher: TablePublisher
    ) -> None:
        self._reader = reader
        self._snapshots = snapshots
        self._publisher = publisher

    def plan(self, table: UserTable, where: Mapping[str, Any]) -> list[Trace]:
        """Return the affected partitions, including retired ones and those of rejects."""
        tables = self._tables(table, where)
        return [
            trace
            for searched_table, make_filter in tables
            for trace in _repeat(self._plan, searched_table, make_filter)
        ]

    def forget(self, table: UserTable, where: Mapping[str, Any]) -> list[Trace]:
        """Rewrite every affected partition without the erased rows, in one transaction per table.
        Affected retired partitions become unrestorable."""
        tables, reason = self._tables(table, where), f"by {', '.join(sorted(where))}"
        return [
            trace
            for searched_table, make_filter in tables
            for trace in _repeat(self._forget, searched_table, make_filter, reason)
        ]

    def _tables(
        self, table: UserTable, where: Mapping[str, Any]
    ) -> list[tuple[UserTable, MakeFilter]]:
        """Return the table and its rejects table, each with a function that makes its filter."""
        identity = _read_values(table, where)
        searches = [(table, lambda snapshot: self._exclude_subject(snapshot, identity))]
        rejects = self._snapshots.find_rejects(table)
        if rejects is not None:
            searches.append(
                (rejects, lambda _snapshot: lambda rows: _filter_rejects(rows, table, identity))
            )
        return searches

    def _plan(self, table: UserTable, make_filter: MakeFilter) -> list[Trace]:
        with self._snapshots.take(table.table_id) as snapshot:
            return [trace for trace, _ in self._find_traces(snapshot, make_filter(snapshot))]

    def _forget(self, table: UserTable, make_filter: MakeFilter, reason: str) -> list[Trace]:
        with self._snapshots.take(table.table_id) as snapshot:
            matches = self._find_traces(snapshot, make_filter(snapshot))
            if matches:
                self._publisher.replace_all(
                    snapshot.table,
                    [
                        ([trace.partition], remaining)
                        for trace, remaining in matches
                        if trace.partition.is_live
                    ],
                    operation=journal.FORGOTTEN,
                    reason=reason,
                    condemned=[
                        trace.partition for trace, _ in matches if not trace.partition.is_live
                    ],
                    # Rows inserted meanwhile are new; these two operations bring old rows back.
                    premise=Premise(snapshot.tick, (journal.DELETED, journal.RESTORED)),
                )
            return [trace for trace, _ in matches]

    def _find_traces(
        self, snapshot: TableSnapshot, filter_rows: Filter
    ) -> list[tuple[Trace, pa.Table]]:
        """Return the affected partitions, each with its remaining rows."""
        traces = []
        for partition in [*snapshot.partitions, *snapshot.restorable]:
            rows = self._read(snapshot.table, partition)
            if rows is None:
                nothing = snapshot.table.view_set.schema.empty_table()
                traces.append((Trace(partition, partition.num_rows, readable=False), nothing))
                continue
            remaining = filter_rows(rows)
            if remaining.num_rows < rows.num_rows:
                traces.append((Trace(partition, rows.num_rows - remaining.num_rows), remaining))
        return traces

    def _read(
        self, table: UserTable, partition: Partition, columns: Sequence[str] | None = None
    ) -> pa.Table | None:
        """Return the rows of a partition, or None if it is retired and unreadable.

        No lease protects retired partitions from the sweep: if one was swept meanwhile, raise
        `StalePlan` so that the erasure is planned again."""
        try:
            return self._reader.read(table, partition, columns)
        except DamagedFile:
            if partition.is_live:
                raise
            with self._snapshots.take(table.table_id) as now:
                restorable_ids = [retired.partition_id for retired in now.restorable]
            if partition.partition_id in restorable_ids:
                return None
            raise StalePlan(f"{partition.describe()} was swept meanwhile") from None

    def _exclude_subject(
        self, snapshot: TableSnapshot, identity: Mapping[str, pa.Scalar]
    ) -> Filter:
        import pyarrow as pa
        import pyarrow.compute as pc

        table = snapshot.table
        if not table.key:
            return lambda rows: rows.filter(pc.invert(_match_identity(rows, identity)))
        names = list(table.key)
        key_batches = [table.view_set.schema.empty_table().select(names)]
        for partition in [*snapshot.partitions, *snapshot.restorable]:
            rows = self._read(table, partition, [*names, *identity])
            if rows is not None:
                key_batches.append(rows.filter(_match_identity(rows, identity)).select(names))
        keys = pa.concat_tables(key_batches)
        return lambda rows: _exclude_keys(rows, keys)


def _repeat(work: Callable[..., list[Trace]], *arguments: Any) -> list[Trace]:
    """Repeat an operation while concurrent changes make its plan stale."""
    for attempt in range(_ATTEMPTS):
        try:
            return work(*arguments)
        except (StalePlan, LeaseLost):
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("every attempt returns or raises")


def _read_values(table: UserTable, where: Mapping[str, Any]) -> dict[str, pa.Scalar]:
    """Return the values that identify the subject to erase, as the table stores them."""
    if not where:
        raise BadInput("forget needs to know whom", hint="e.g. device='ring-7'")
    column_names = [column.name for column in table.schema.columns]
    unknown = [name for name in where if name not in column_names]
    if unknown:
        raise BadInput(
            f"table {table.full_name} has no column {', '.join(unknown)}",
            hint=f"one of {', '.join(column_names)}",
        )
    identity = {}
    for name, value in where.items():
        column = table.schema.column(name)
        if column.is_array:
            raise BadInput(f"{name} holds lists, by which nothing can be forgotten")
        converted = convert([value], column)
        if converted.bad or value is None:
            expected = converted.bad[0][0] if converted.bad else "a value"
            raise BadInput(f"{name}: expected {expected}, got {value!r}")
        identity[name] = converted.values[0]
    return identity


def _match_identity(rows: pa.Table, identity: Mapping[str, pa.Scalar]) -> pa.ChunkedArray:
    """Return a mask of the rows that have all values of the identity."""
    import pyarrow as pa
    import pyarrow.compute as pc

    matches = pa.chunked_array([pa.array([True] * rows.num_rows, pa.bool_())])
    for name, value in identity.items():
        matches = pc.and_(matches, pc.fill_null(pc.equal(rows[name], value), False))
    return matches


def _exclude_keys(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """Return the rows whose key is not one of ``keys``, in their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = keys.column_names
    positions = pa.array(range(rows.num_rows), pa.int64())
    remaining = (
        rows.select(names)
        .append_column(_POSITION, positions)
        .join(keys, names, join_type="left anti")
    )
    return rows.take(remaining[_POSITION].take(pc.sort_indices(remaining[_POSITION])))


def _filter_rejects(
    rows: pa.Table, table: UserTable, identity: Mapping[str, pa.Scalar]
) -> pa.Table:
    """Return the rejects of a table that do not match the identity."""
    import pyarrow as pa

    records = [
        json.loads(text) if text is not None else None for text in rows["record"].to_pylist()
    ]
    return rows.filter(
        pa.array([not _record_matches(record, table, identity) for record in records], pa.bool_())
    )


def _record_matches(record: Any, table: UserTable, identity: Mapping[str, pa.Scalar]) -> bool:
    """Return True if a rejected record has all values of the identity.

    A column without a valid value matches if the value occurs anywhere in the record; a record that
    is not an object matches if its text contains every value."""
    if not isinstance(record, dict):
        return all(str(value.as_py()) in str(record) for value in identity.values())
    return all(
        _column_matches(record, table.schema.column(name), value)
        for name, value in identity.items()
    )


def _column_matches(record: Mapping[str, Any], column: Column, value: pa.Scalar) -> bool:
    raw_value = record.get(column.name)
    converted = convert([raw_value], column)
    if raw_value is not None and not converted.bad:
        return bool(converted.values[0] == value)
    return any(
        str(scalar) == str(value.as_py()) or convert([scalar], column).values[0] == value
        for scalar in _list_scalars(record)
    )


def _list_scalars(value: Any) -> Iterator[Any]:
    """Yield every scalar in a JSON value except null."""
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _list_scalars(item)
    elif value is not None:
        yield value
