"""The reserved names of one wave of tasks: one for the first attempt of each step, and spare ones
that later attempts share, because creating a file is exclusive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import Self

from lakebed.model.tables.table import is_table
from lakebed.model.view_set import GLOBAL
from lakebed.tables.rows.table_publisher import FOLDER
from lakebed.writing.name_reservations import NamePool

_SPARE = 7
"""Names for the attempts after the first, also speculative ones and those of repeated stages."""


class TaskNames:
    """Names of one lease, by view set."""

    def __init__(self, pool: NamePool, lease: str, names: dict[str, list[str]]) -> None:
        self._pool = pool
        self.lease = lease
        self._spare = {view_set: names[:_SPARE] for view_set, names in names.items()}
        self._first = {view_set: names[_SPARE:] for view_set, names in names.items()}
        self._used: list[str] = []

    @classmethod
    def reserve(cls, pool: NamePool, view_sets: Sequence[str]) -> Self:
        """Reserve names for a step of each of these view sets."""
        while True:
            leases, names = set(), {}
            for view_set, count in Counter(view_sets).items():
                reservation = pool.take(view_set, _instance(view_set), count + _SPARE)
                lease, names[view_set] = reservation
                leases.add(lease)
            if len(leases) == 1:  # else a lease was lost meanwhile, and its names with it
                return cls(pool, leases.pop(), names)

    def take(self, view_set: str) -> tuple[str, ...]:
        """Return the name for a step's first attempt, and those for later attempts."""
        first = self._first[view_set].pop()
        self._used.append(first)
        return (first, *self._spare[view_set])

    def close(self, published: Collection[str], *, repeated: bool) -> None:
        """Return the names under which no task has written. The others stay claimed, because an
        attempt may still write; ``repeated`` if there were attempts after the first."""
        unsure = [path for path in self._used if path not in published]
        for view_set, spare in self._spare.items():
            spare = [path for path in spare if path not in published]
            if repeated:
                unsure += spare
                spare = []
            unused = [*self._first[view_set], *spare]
            self._pool.put_back(self.lease, view_set, _instance(view_set), unused)
        if unsure:
            self._pool.give_up(unsure)


def _instance(view_set: str) -> str:
    return FOLDER if is_table(view_set) else GLOBAL
