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
_PLACE = "_place"

Keep = Callable[["pa.Table"], "pa.Table"]
"""The rows that are not forgotten."""
Choose = Callable[[TableSnapshot], Keep]


@dataclass(frozen=True, slots=True)
class Trace:
    """What of one partition would be forgotten."""

    partition: Partition
    rows: int
    readable: bool = True
    """Else it is retired and all its rows go, because nobody can tell whose they are."""


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
        """Which partitions hold a trace, retired ones and those of rejects among them."""
        tables = self._tables(table, where)
        return [each for one, choose in tables for each in _repeat(self._plan, one, choose)]

    def forget(self, table: UserTable, where: Mapping[str, Any]) -> list[Trace]:
        """Write every partition again without what is forgotten, those of a table in one
        transaction. What is retired and holds a trace cannot be restored any more."""
        tables, reason = self._tables(table, where), f"by {', '.join(sorted(where))}"
        return [
            each for one, choose in tables for each in _repeat(self._forget, one, choose, reason)
        ]

    def _tables(self, table: UserTable, where: Mapping[str, Any]) -> list[tuple[UserTable, Choose]]:
        """The table and that of its rejects, and how to tell which of their rows stay."""
        wanted = _read_values(table, where)
        found = [(table, lambda snapshot: self._keep_others(snapshot, wanted))]
        rejects = self._snapshots.find_rejects(table)
        if rejects is not None:
            found.append((rejects, lambda _snapshot: lambda rows: _refused(rows, table, wanted)))
        return found

    def _plan(self, table: UserTable, choose: Choose) -> list[Trace]:
        with self._snapshots.take(table.table_id) as snapshot:
            return [each for each, _ in self._look(snapshot, choose(snapshot))]

    def _forget(self, table: UserTable, choose: Choose, reason: str) -> list[Trace]:
        with self._snapshots.take(table.table_id) as snapshot:
            found = self._look(snapshot, choose(snapshot))
            if found:
                self._publisher.replace_all(
                    snapshot.table,
                    [([each.partition], left) for each, left in found if each.partition.is_live],
                    operation=journal.FORGOTTEN,
                    reason=reason,
                    condemned=[each.partition for each, _ in found if not each.partition.is_live],
                    # What is inserted meanwhile is new; these two bring back what was there.
                    premise=Premise(snapshot.tick, (journal.DELETED, journal.RESTORED)),
                )
            return [each for each, _ in found]

    def _look(self, snapshot: TableSnapshot, keep: Keep) -> list[tuple[Trace, pa.Table]]:
        """The partitions that hold a trace, and what of them stays."""
        found = []
        for each in [*snapshot.partitions, *snapshot.restorable]:
            rows = self._read(snapshot.table, each)
            if rows is None:
                nothing = snapshot.table.view_set.schema.empty_table()
                found.append((Trace(each, each.num_rows, readable=False), nothing))
                continue
            left = keep(rows)
            if left.num_rows < rows.num_rows:
                found.append((Trace(each, rows.num_rows - left.num_rows), left))
        return found

    def _read(
        self, table: UserTable, partition: Partition, columns: Sequence[str] | None = None
    ) -> pa.Table | None:
        """The rows of a partition; None if it is retired and cannot be read. No lease keeps what
        is retired from being swept: then there is nothing left to forget, but it must be looked at
        again."""
        try:
            return self._reader.read(table, partition, columns)
        except DamagedFile:
            if partition.is_live:
                raise
            with self._snapshots.take(table.table_id) as now:
                left = [each.partition_id for each in now.restorable]
            if partition.partition_id in left:
                return None
            raise StalePlan(f"{partition.describe()} was swept meanwhile") from None

    def _keep_others(self, snapshot: TableSnapshot, wanted: Mapping[str, pa.Scalar]) -> Keep:
        import pyarrow as pa
        import pyarrow.compute as pc

        table = snapshot.table
        if not table.key:
            return lambda rows: rows.filter(pc.invert(_is_meant(rows, wanted)))
        names = list(table.key)
        found = [table.view_set.schema.empty_table().select(names)]
        for each in [*snapshot.partitions, *snapshot.restorable]:
            rows = self._read(table, each, [*names, *wanted])
            if rows is not None:
                found.append(rows.filter(_is_meant(rows, wanted)).select(names))
        keys = pa.concat_tables(found)
        return lambda rows: _without(rows, keys)


def _repeat(work: Callable[..., list[Trace]], *arguments: Any) -> list[Trace]:
    """Do something again for as long as others are in between."""
    for attempt in range(_ATTEMPTS):
        try:
            return work(*arguments)
        except (StalePlan, LeaseLost):
            if attempt == _ATTEMPTS - 1:
                raise
    raise AssertionError("every attempt returns or raises")


def _read_values(table: UserTable, where: Mapping[str, Any]) -> dict[str, pa.Scalar]:
    """The values by which somebody is to be forgotten, as the table stores them."""
    if not where:
        raise BadInput("forget needs to know whom", hint="e.g. device='ring-7'")
    known = [each.name for each in table.schema.columns]
    unknown = [name for name in where if name not in known]
    if unknown:
        raise BadInput(
            f"table {table.full_name} has no column {', '.join(unknown)}",
            hint=f"one of {', '.join(known)}",
        )
    wanted = {}
    for name, value in where.items():
        column = table.schema.column(name)
        if column.is_array:
            raise BadInput(f"{name} holds lists, by which nothing can be forgotten")
        converted = convert([value], column)
        if converted.bad or value is None:
            expected = converted.bad[0][0] if converted.bad else "a value"
            raise BadInput(f"{name}: expected {expected}, got {value!r}")
        wanted[name] = converted.values[0]
    return wanted


def _is_meant(rows: pa.Table, wanted: Mapping[str, pa.Scalar]) -> pa.ChunkedArray:
    """Which rows have all the values by which somebody is to be forgotten."""
    import pyarrow as pa
    import pyarrow.compute as pc

    meant = pa.chunked_array([pa.array([True] * rows.num_rows, pa.bool_())])
    for name, value in wanted.items():
        meant = pc.and_(meant, pc.fill_null(pc.equal(rows[name], value), False))
    return meant


def _without(rows: pa.Table, keys: pa.Table) -> pa.Table:
    """The rows with other keys than these, in their order."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = keys.column_names
    places = pa.array(range(rows.num_rows), pa.int64())
    left = rows.select(names).append_column(_PLACE, places).join(keys, names, join_type="left anti")
    return rows.take(left[_PLACE].take(pc.sort_indices(left[_PLACE])))


def _refused(rows: pa.Table, table: UserTable, wanted: Mapping[str, pa.Scalar]) -> pa.Table:
    """Of the rejects of a table, those that do not tell of whoever is meant."""
    import pyarrow as pa

    records = [
        json.loads(text) if text is not None else None for text in rows["record"].to_pylist()
    ]
    return rows.filter(pa.array([not _tells_of(e, table, wanted) for e in records], pa.bool_()))


def _tells_of(record: Any, table: UserTable, wanted: Mapping[str, pa.Scalar]) -> bool:
    """Whether a record that was refused has these values: each in its column or, if there is
    nothing sound, anywhere; one that is no object, if it has them anywhere in its text."""
    if not isinstance(record, dict):
        return all(str(value.as_py()) in str(record) for value in wanted.values())
    return all(_has(record, table.schema.column(name), value) for name, value in wanted.items())


def _has(record: Mapping[str, Any], column: Column, value: pa.Scalar) -> bool:
    said = record.get(column.name)
    sound = convert([said], column)
    if said is not None and not sound.bad:
        return bool(sound.values[0] == value)
    return any(
        str(each) == str(value.as_py()) or convert([each], column).values[0] == value
        for each in _list_scalars(record)
    )


def _list_scalars(value: Any) -> Iterator[Any]:
    """Everything in a value of JSON that has no parts, but for null."""
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _list_scalars(each)
    elif value is not None:
        yield value
