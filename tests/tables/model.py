"""A table as plain Python, and questions that SQL and Python answer alike.

A table is made of units, which are what its partitions hold. A unit has versions: of a key, at a
tick, a row or the mark that it was deleted. What readers see is, of each key, the newest version in
any unit that is live, unless it is a mark; a mark is newer than a row of its own tick. So:

- an insert adds a unit for each bucket, all at one tick;
- deleting adds marks at the tick of the snapshot in which the rows were found; without a key, the
  rows are taken out of the units that hold them;
- folding puts units together; nothing that it leaves out may ever be missed;
- retiring takes a unit and all its versions away, so that older ones may show through, and
  restoring brings them back at their old ticks.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from lakebed.model.partition import Partition
from lakebed.model.tables.schema import Bucket

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Version:
    """One thing that was said of a key; of a table without one, a row."""

    tick: int
    row: Row
    deleted: bool = False


@dataclass
class Unit:
    """The versions of rows in one partition."""

    instance: str
    begin: int
    end: int
    versions: list[Version]
    retired: bool = False
    restorable: bool = False


@dataclass
class Model:
    """A table with these key columns, or without any."""

    key: Sequence[str]
    time: str
    bucket: Bucket
    units: list[Unit] = field(default_factory=list)

    @property
    def live(self) -> list[Unit]:
        return [unit for unit in self.units if not unit.retired]

    @property
    def gone(self) -> list[Unit]:
        """Retired, and able to come back."""
        return [unit for unit in self.units if unit.retired and unit.restorable]

    def key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)

    def visible(self) -> list[Row]:
        """The rows that readers see."""
        versions = [version for unit in self.live for version in unit.versions]
        if not self.key:
            return [version.row for version in versions]
        newest: dict[tuple[Any, ...], Version] = {}
        for version in sorted(versions, key=lambda version: (version.tick, version.deleted)):
            newest[self.key_of(version.row)] = version
        return [version.row for version in newest.values() if not version.deleted]

    def insert(self, tick: int, rows: Iterable[Row], at: int | None = None) -> None:
        """Rows, of which the last of each key counts; ``at`` is when they became live."""
        self._add(tick if at is None else at, [Version(tick, row) for row in self._last(rows)])

    def ignore(self, tick: int, rows: Iterable[Row]) -> int:
        """Those of the rows whose key is not there; how many."""
        existing_keys = {self.key_of(row) for row in self.visible()} if self.key else set()
        new = [
            row for row in self._last(rows) if self.key_of(row) not in existing_keys or not self.key
        ]
        self.insert(tick, new)
        return len(new)

    def _last(self, rows: Iterable[Row]) -> list[Row]:
        if not self.key:
            return list(rows)
        return list({self.key_of(row): row for row in rows}.values())

    def _add(self, at: int, versions: Sequence[Version]) -> None:
        buckets: dict[str, list[Version]] = {}
        for version in versions:
            buckets.setdefault(self.bucket_of(version.row), []).append(version)
        self.units += [Unit(name, at, at + 1, versions) for name, versions in buckets.items()]

    def bucket_of(self, row: Row) -> str:
        micro = timedelta(microseconds=1)
        return self.bucket.name_of((row[self.time] - datetime(1970, 1, 1, tzinfo=UTC)) // micro)

    def delete(self, seen_tick: int, at: int, is_meant: Callable[[Row], bool | None]) -> int:
        """Delete what a snapshot saw; how many rows that were."""
        doomed = [row for row in self.visible() if is_meant(row)]
        if self.key:
            self._add(at, [Version(seen_tick, row, deleted=True) for row in doomed])
        for unit in [] if self.key else self.live:
            unit.versions = [version for version in unit.versions if not is_meant(version.row)]
        return len(doomed)

    def forget(self, is_meant: Callable[[Row], bool]) -> None:
        """No version stays of a key of which one is meant; what is retired and had one is lost."""
        every = [*self.live, *self.gone]
        keys = {
            self.key_of(version.row)
            for unit in every
            for version in unit.versions
            if is_meant(version.row)
        }
        for unit in every:
            remaining = [
                version
                for version in unit.versions
                if (self.key_of(version.row) not in keys if self.key else not is_meant(version.row))
            ]
            if unit.retired and len(remaining) < len(unit.versions):
                unit.restorable = False
            unit.versions = remaining

    def find(self, partition: Partition) -> Unit:
        """The live unit of a live partition, or the retired one of a retired one."""
        within = partition.insert_range
        return next(
            unit
            for unit in self.units
            if (unit.instance, unit.begin, unit.end)
            == (partition.instance, within.begin, within.end)
            and unit.retired == (not partition.is_live)
        )

    def fold(self, partitions: Iterable[Partition]) -> int:
        """Put together what lies in one of these live partitions; how many units that took."""
        folded = 0
        for partition in partitions:
            within = partition.insert_range
            inside = [
                unit
                for unit in self.live
                if unit.instance == partition.instance
                and within.begin <= unit.begin
                and unit.end <= within.end
            ]
            if len(inside) > 1:
                versions = [version for unit in inside for version in unit.versions]
                self.units = [unit for unit in self.units if unit not in inside]
                self.units.append(Unit(partition.instance, within.begin, within.end, versions))
                folded += len(inside)
        return folded


def count_rows(rows: Iterable[Row], names: Sequence[str]) -> Counter[tuple[Any, ...]]:
    """Return rows in a form that can be compared independent of their order."""
    return Counter(tuple(row.get(name) for name in names) for row in rows)


# ---- questions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """A condition in SQL, and the same for a row: true, false, or None for unknown."""

    sql: str
    ask: Callable[[Row], bool | None]


_COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, other: one == other,
    "<>": lambda one, other: one != other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


def make_question(
    rng: random.Random, columns: Mapping[str, Sequence[Any]], depth: int = 2
) -> Question:
    """A condition on some columns; for each, values that occur in it."""
    kind = rng.random()
    if depth and kind < 0.55:
        one = make_question(rng, columns, depth - 1)
        if kind < 0.1:
            return Question(f"NOT ({one.sql})", lambda row: _not(one.ask(row)))
        other = make_question(rng, columns, depth - 1)
        if kind < 0.35:
            return Question(
                f"({one.sql}) AND ({other.sql})", lambda row: _and(one.ask(row), other.ask(row))
            )
        return Question(
            f"({one.sql}) OR ({other.sql})",
            lambda row: _not(_and(_not(one.ask(row)), _not(other.ask(row)))),
        )
    name = rng.choice(list(columns))
    if rng.random() < 0.1:
        return Question(f"{name} IS NULL", lambda row: row[name] is None)
    if rng.random() < 0.2:
        values = rng.sample(list(columns[name]), min(2, len(columns[name])))
        return Question(
            f"{name} IN ({', '.join(map(spell, values))})",
            lambda row: None if row[name] is None else row[name] in values,
        )
    sign = rng.choice([*_COMPARE, "=", "="])
    value = rng.choice(list(columns[name]))
    return Question(
        f"{name} {sign} {spell(value)}",
        lambda row: None if row[name] is None else _COMPARE[sign](row[name], value),
    )


def _not(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _and(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def spell(value: Any) -> str:
    """A value in SQL."""
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat().replace('+00:00', 'Z')}'"
    return f"'{value}'" if isinstance(value, str) else str(value)
