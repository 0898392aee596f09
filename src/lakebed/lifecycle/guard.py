"""The guard of every retirement: retiring rows that cannot be rebuilt, or most of what queries see,
must be confirmed by the name of the view set.

All doors share it, because it runs in the transaction that retires: SQL functions, Python, Flight
actions, the command line and the pages. Retention is exempt from the first rule and from the
window: its owner has set it, and it deletes what is old on purpose.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from lakebed.catalog import clock, journal
from lakebed.catalog.acting import name_actor
from lakebed.catalog.catalog import Connection, Transaction
from lakebed.catalog.lookups import partition_search
from lakebed.catalog.lookups.partition_search import PartitionFilter
from lakebed.catalog.records import blocks, partitions, view_sets
from lakebed.errors import Refused, StalePlan
from lakebed.model.partition import Partition
from lakebed.model.tables.table import is_table
from lakebed.model.time import SECOND, TimeRange, format_duration

WHOLE_LAKE = "whole-lake"
"""The name to confirm when several view sets together are most of the lake."""

_PROCESS = re.compile(r"(@.*):\d+$")


@dataclass(frozen=True, slots=True)
class Breaker:
    """The largest retirement that needs no name."""

    share: float = 0.5
    partitions: int = 10
    window_us: int = 3600 * SECOND
    """What one actor retires within this time counts together."""

    def tripped(self, doomed: int, live: int) -> bool:
        """Return True if so many of so many partitions must be confirmed."""
        return doomed >= self.partitions and doomed > self.share * live


@dataclass(frozen=True, slots=True)
class Demand:
    """A name that must be confirmed before a retirement, and the reason."""

    name: str
    partitions: int
    before: int = 0
    """Partitions that the same actor retired within the window."""
    lost_rows: int | None = None
    """Rows that cannot be rebuilt; None if the share of partitions is the reason."""
    window_us: int = 0

    @property
    def is_loss(self) -> bool:
        return self.lost_rows is not None

    def __str__(self) -> str:
        noun = "partition" if self.partitions == 1 else "partitions"
        if self.is_loss:
            return (
                f"lose {self.partitions} {noun} of {self.name} with {self.lost_rows} rows, which "
                "cannot be rebuilt"
            )
        if not self.before:
            return f"retire most of {self.name} ({self.partitions} {noun} in all)"
        within = format_duration(self.window_us)
        return (
            f"retire most of {self.name} ({self.partitions} {noun} after {self.before} "
            f"within {within})"
        )


class Guard:
    """The rules of one lake, for the process that opened it."""

    def __init__(self, breaker: Breaker, process: str) -> None:
        self._breaker = breaker
        self._process = process

    def find_lost(self, connection: Connection, doomed: Sequence[Partition]) -> frozenset[str]:
        """Return the ids of the partitions whose rows could not be built again."""
        filled = [partition for partition in doomed if not partition.is_empty]
        rebuildable = blocks.list_rebuildable(connection, filled) if filled else set()
        registered = _list_hashes(connection) if rebuildable else {}
        return frozenset(
            partition.partition_id
            for partition in filled
            if partition.partition_id not in rebuildable or partition.view_set not in registered
        )

    def list_demands(
        self,
        connection: Connection,
        doomed: Sequence[Partition],
        lost: Collection[str] = (),
        *,
        by_retention: bool = False,
    ) -> list[Demand]:
        """Return what must be confirmed before these partitions are retired now."""
        now = clock.upcoming(connection)
        return self._list_demands(
            connection, doomed, lost, now, name_actor(self._process), by_retention=by_retention
        )

    def require(
        self,
        transaction: Transaction,
        doomed: Sequence[Partition],
        lost: Collection[str],
        confirmed: Collection[str],
        *,
        by_retention: bool = False,
    ) -> frozenset[str]:
        """Raise `Refused` unless everything that must be confirmed is. Return the ids of the
        partitions that count for the actor's next retirements."""
        connection = transaction.connection
        if not by_retention:
            _require_blocks(connection, doomed, lost)
        demands = self._list_demands(
            connection,
            doomed,
            lost,
            transaction.tick,
            transaction.actor,
            by_retention=by_retention,
        )
        if any(demand.name not in confirmed for demand in demands):
            _require_live(connection, doomed)
        require_confirmed(demands, confirmed)
        if by_retention or WHOLE_LAKE in confirmed:
            return frozenset()
        return frozenset(
            partition.partition_id
            for partition in _list_visible(doomed, _list_hashes(connection))
            if partition.view_set not in confirmed
        )

    def _list_demands(
        self,
        connection: Connection,
        planned: Sequence[Partition],
        lost: Collection[str],
        now: int,
        actor: str,
        *,
        by_retention: bool,
    ) -> list[Demand]:
        losses = _list_losses(planned, lost)
        demands: list[Demand] = []
        hashes = _list_hashes(connection)
        doomed = Counter(partition.view_set for partition in _list_visible(planned, hashes))
        earlier = [] if by_retention else self._list_earlier(connection, now, actor)
        if not doomed or doomed.total() + len(earlier) < self._breaker.partitions:
            return losses
        before = Counter(_list_gone(connection, earlier, hashes))
        live = _count_visible(connection, hashes)
        for name in sorted(doomed):
            if self._breaker.tripped(doomed[name] + before[name], live[name] + before[name]):
                demands.append(self._demand(name, doomed[name], before[name]))
        if len(doomed | before) > 1 and self._breaker.tripped(
            doomed.total() + before.total(), live.total() + before.total()
        ):
            demands.append(self._demand(WHOLE_LAKE, doomed.total(), before.total()))
        return [*demands, *losses]

    def _demand(self, name: str, doomed: int, before: int) -> Demand:
        return Demand(name, doomed, before, window_us=self._breaker.window_us)

    def _list_earlier(self, connection: Connection, now: int, actor: str) -> list[journal.Entry]:
        """Return what the same actor retired within the window without confirming it."""
        owner = _name_owner(actor)
        return [
            entry
            for entry in journal.list_unconfirmed(connection, now - self._breaker.window_us)
            if _name_owner(entry.actor) == owner
        ]


def require_confirmed(
    demands: Iterable[Demand], confirmed: Collection[str], *, by_form: bool = False
) -> None:
    """Raise `Refused` if a demand's name is not confirmed; the hint is for users of a form, or of
    SQL, Python and the shell."""
    missing = [demand for demand in demands if demand.name not in confirmed]
    if not missing:
        return
    names = list(dict.fromkeys(demand.name for demand in missing))
    how = f"typing {', '.join(names)}"
    if not by_form:
        how = (
            f"name: in SQL with {', '.join(names)!r} as last argument, in Python with "
            f"confirmed={names}, in the shell with "
        ) + " ".join(f"--confirm {name}" for name in names)
    raise Refused(
        f"this would {' and '.join(map(str, missing))}",
        hint=f"if that is meant, confirm it by {how}",
    )


def _list_losses(doomed: Iterable[Partition], lost: Collection[str]) -> list[Demand]:
    by_name: dict[str, list[Partition]] = {}
    for partition in doomed:
        if partition.partition_id in lost:
            by_name.setdefault(partition.view_set, []).append(partition)
    return [
        Demand(name, len(group), lost_rows=sum(partition.num_rows for partition in group))
        for name, group in sorted(by_name.items())
    ]


def _require_live(connection: Connection, doomed: Sequence[Partition]) -> None:
    """Raise if a partition was retired since the plan was made: then the demands are wrong."""
    rows = partitions.list_by_id(connection, [partition.partition_id for partition in doomed])
    live = {row.partition_id for row in rows if row.is_live}
    for partition in doomed:
        if partition.partition_id not in live:
            raise StalePlan(f"{partition.describe()} is not live any more", hint="plan again")


def _require_blocks(
    connection: Connection, doomed: Iterable[Partition], lost: Collection[str]
) -> None:
    """Raise if blocks that a plan counts on were retired since it was made."""
    blocks_from = clock.blocks_from(connection)
    for partition in doomed:
        is_safe = partition.is_empty or partition.partition_id in lost
        if not is_safe and partition.insert_range.begin < blocks_from:
            raise StalePlan(
                f"the blocks of {partition.describe()} were retired meanwhile",
                hint="make the plan again",
            )


def _list_hashes(connection: Connection) -> dict[str, bytes]:
    return {entry.view_set.name: entry.schema_hash for entry in view_sets.list_active(connection)}


def _list_visible(candidates: Iterable[Partition], hashes: Mapping[str, bytes]) -> list[Partition]:
    """Return those that queries see: of the active schema, or of a table, which reads every one."""
    return [
        partition
        for partition in candidates
        if is_table(partition.view_set) or hashes.get(partition.view_set) == partition.schema_hash
    ]


def _count_visible(connection: Connection, hashes: Mapping[str, bytes]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for (name, schema_hash), count in partitions.count_live_by_schema(connection).items():
        if is_table(name) or hashes.get(name) == schema_hash:
            counts[name] += count
    return counts


def _list_gone(
    connection: Connection, entries: Sequence[journal.Entry], hashes: Mapping[str, bytes]
) -> list[str]:
    """Return the view set of each retired range, one time each, that nothing covers again: neither
    a restored partition nor one that was built anew."""
    by_name: dict[str, list[journal.Entry]] = {}
    for entry in entries:
        by_name.setdefault(entry.view_set or "", []).append(entry)
    gone: list[str] = []
    for name, group in by_name.items():
        retired = {(entry.instance, TimeRange(*entry.detail["insert_range"])) for entry in group}
        around = TimeRange(
            min(within.begin for _, within in retired), max(within.end for _, within in retired)
        )
        schema = None if is_table(name) else [hashes[name]] if name in hashes else []
        live = partition_search.search(
            connection, PartitionFilter(view_sets=[(name, schema)], inserted=around)
        )
        gone += [
            name
            for instance, within in retired
            if not any(
                partition.instance == instance and partition.insert_range.overlaps(within)
                for partition in live
            )
        ]
    return gone


def _name_owner(actor: str) -> str:
    """Return the person or key behind an actor: without the process that acts for a key, and
    without the number of a process, which is another for every command."""
    owner, via, _process = actor.partition(" via ")
    return owner if via else _PROCESS.sub(r"\1", actor)
