"""Two operations on one table, of which the second happens in the midst of the first: at each
moment at which the first one looks at the catalog or does something on disk, and holds no lock.

What comes of it must be what comes of one after the other, in one of the two orders, or of one
alone if the other says that it did not happen. What can be seen is compared, also after everything
that is retired came back, after folding, and after sweeping.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from lakebed.catalog.connections.dialects import WRITE
from lakebed.errors import BadSchema, BadSql, Conflict, LakebedError, NotFound
from lakebed.lake import Lake
from lakebed.storage.local import LocalStore
from lakebed.tables.table import Table
from tests.proof.killing import Place, Places
from tests.proof.seams import HookedDisk
from tests.tables.parts import BY_ID, BY_TIME, LOOSE, damage, partitions_of, retire, rows_of, sweep

KINDS: Mapping[str, Any] = {"by id": BY_ID, "by time": BY_TIME, "loose": LOOSE}
DAYS = ("2026-03-01T12:00:00Z", "2026-03-02T12:00:00Z")

Operation = Callable[[Lake, Table], object]


class Moments:
    """Counts the moments of a lake at which others may act, and lets them act at one."""

    def __init__(self, lake: Lake, at: int = 0, act: Callable[[], object] = lambda: None) -> None:
        self.count = 0
        self._at = at
        self._act = act
        self._writing = 0
        self._thread = threading.get_ident()
        engine = lake.catalog.engine
        sa.event.listen(engine, "before_cursor_execute", self._before)
        sa.event.listen(engine, "commit", self._after)
        sa.event.listen(engine, "rollback", self._after)
        assert isinstance(lake.store, LocalStore)
        lake.store.disk = HookedDisk(lambda _event: self.pass_by())

    def _before(self, connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if threading.get_ident() != self._thread:
            return  # a heartbeat
        if not connection.get_execution_options().get(WRITE):
            self.pass_by()
        elif statement.startswith("BEGIN"):
            self.pass_by()
            self._writing += 1

    def _after(self, connection: Any) -> None:
        if (
            threading.get_ident() == self._thread
            and connection.get_execution_options().get(WRITE)
            and self._writing
        ):
            self._writing -= 1

    def pass_by(self) -> None:
        if self._writing:
            return
        self.count += 1
        if self.count == self._at:
            self._act()


# ---- the table and what is done to it ------------------------------------------------------------


def row(table: Table, name: int, value: int, day: str = DAYS[0]) -> dict[str, Any]:
    whole = {"id": name, "device": f"d{name}", "time": day, "value": value}
    return {key: field_value for key, field_value in whole.items() if key in table.schema.names}


def prepare(lake: Lake, kind: str) -> None:
    """A table with versions above versions, folded and not, marks, and something retired."""
    lake.tables.create_database("d")
    table = lake.tables.create_table("d", "t", KINDS[kind])
    for number in range(3):
        table.insert([row(table, number, number), row(table, 10 + number, number, DAYS[1])])
    table.fold()
    table.insert([row(table, 1, 21), row(table, 3, 23)])
    table.delete_rows("value IN (0, 23)")
    table.insert([row(table, 4, 24), row(table, 12, 32, DAYS[1])])
    retire(lake, oldest(table, DAYS[0][:10]))
    table.insert([row(table, 5, 25)])


def oldest(table: Table, instance: str) -> Any:
    return next(partition for partition in table.partitions() if partition.instance == instance)


def _restore(lake: Lake, table: Table) -> None:
    gone = [
        partition
        for partition in partitions_of(lake, table)
        if not partition.is_live and not partition.replaced
    ]
    if not gone:
        raise NotFound("nothing is retired")
    lake.retirement.restore(max(gone, key=lambda partition: partition.published_at).partition_id)


def _retire(_lake: Lake, table: Table) -> None:
    live = [partition for partition in table.partitions() if partition.instance == DAYS[0][:10]]
    if not live:
        raise NotFound("nothing is live")
    retire(_lake, live[-1])


def _add_column(table: Table) -> None:
    """The second of two such operations gets the error that the column exists."""
    with contextlib.suppress(BadSchema):
        table.alter(add={"more": "int"})


OPERATIONS: Mapping[str, Operation] = {
    "insert": lambda _lake, table: table.insert(
        [row(table, 1, 41), row(table, 6, 46), row(table, 4, 44, DAYS[1])]
    ),
    "fold": lambda _lake, table: table.fold(),
    "delete": lambda _lake, table: table.delete_rows("value IN (1, 21, 24, 41, 2)"),
    "retire": _retire,
    "restore": _restore,
    "sweep": lambda lake, _table: sweep(lake),
    "ignore": lambda _lake, table: table.insert(
        [row(table, 1, 51), row(table, 3, 53), row(table, 7, 57), row(table, 0, 50, DAYS[1])],
        if_exists="ignore",
    ),
    "once": lambda _lake, table: table.insert([row(table, 8, 58), row(table, 1, 61)], key="once"),
    "forget": lambda _lake, table: table.forget(value=21),
    "alter": lambda _lake, table: _add_column(table),
    "delete table": lambda lake, _table: lake.tables.delete_table("d", "t"),
}


@dataclass(frozen=True)
class Ending:
    """The final state, and the outcome of both operations."""

    state: Any
    first: str
    second: str
    damage: Any = ()


def _do(operation: Operation, lake: Lake) -> str:
    try:
        operation(lake, Table(lake.tables, "d", "t"))
    except (Conflict, NotFound) as error:
        return type(error).__name__
    except BadSql as error:
        assert "there is no table" in str(error)
        return "BadSql"
    return ""


def _look(lake_copy: Place) -> tuple[Any, Any]:
    """Return the rows seen now, after all restores, after a fold, and after a sweep."""
    with lake_copy.open() as lake:
        observations: list[Any] = []

        def see() -> None:
            try:
                result = rows_of(lake.tables.get("d", "t"))
            except NotFound:
                observations.append("no table")
            else:
                observations.append(sorted(tuple(sorted(row.items(), key=str)) for row in result))

        see()
        if observations == ["no table"]:
            try:
                lake.tables.restore_table("d", "t")
            except LakebedError as error:
                return (type(error).__name__,), ()
            see()
        table = lake.tables.get("d", "t")
        for partition in partitions_of(lake, table):
            if not partition.is_live and not partition.replaced:
                try:
                    lake.retirement.restore(partition.partition_id)
                except Conflict:
                    continue
        see()
        table.fold()
        see()
        sweep(lake)
        see()
        return _freeze(observations), tuple(str(problem) for problem in damage(lake))


def _freeze(value: Any) -> Any:
    return tuple(_freeze(item) for item in value) if isinstance(value, list) else value


class Stage:
    """A lake of one kind that is copied for every trial."""

    def __init__(self, places: Places, kind: str) -> None:
        self._places = places
        self._base = places.make(lambda lake: prepare(lake, kind))
        self._serial: dict[tuple[str, ...], Any] = {}

    def one_after_the_other(self, *names: str) -> Any:
        """Return the state after some operations in their order."""
        if names not in self._serial:
            lake_copy = self._places.copy(self._base)
            for name in names:
                with lake_copy.open() as lake:
                    _do(OPERATIONS[name], lake)
            self._serial[names], harm = _look(lake_copy)
            assert harm == (), (names, harm)
            self._places.remove(lake_copy)
        return self._serial[names]

    def count_moments(self, name: str) -> int:
        lake_copy = self._places.copy(self._base)
        with lake_copy.open() as lake:
            moments = Moments(lake)
            _do(OPERATIONS[name], lake)
        self._places.remove(lake_copy)
        return moments.count

    def at_once(self, first: str, second: str, at: int) -> Ending:
        """Run the second operation at a moment of the first and return the outcome."""
        lake_copy = self._places.copy(self._base)
        ended = "it did not begin"

        def act() -> None:
            nonlocal ended
            ended = _do(OPERATIONS[second], other)

        with lake_copy.open() as lake, lake_copy.open() as other:
            other.tables.list_databases()
            Moments(lake, at, act)
            done = _do(OPERATIONS[first], lake)
        if ended == "it did not begin":
            with lake_copy.open() as other:
                act()
        state, harm = _look(lake_copy)
        self._places.remove(lake_copy)
        return Ending(state, done, ended, harm)

    def judge(self, first: str, second: str, at: int) -> str | None:
        """Return a description of a wrong outcome, or None."""
        ending = self.at_once(first, second, at)
        allowed = {
            self.one_after_the_other(first, second),
            self.one_after_the_other(second, first),
        }
        if ending.first:
            allowed.add(self.one_after_the_other(second))
        if ending.second:
            allowed.add(self.one_after_the_other(first))
        if ending.damage:
            return f"damage: {ending.damage}"
        if ending.state in allowed:
            return None
        return f"{ending.first or 'ok'}, {ending.second or 'ok'}: {ending.state} not of {allowed}"
