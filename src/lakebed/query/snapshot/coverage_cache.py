"""The partitions of view sets and the landed blocks in the catalog, cached for the next statement
until a partition is published, retired or restored.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field

from lakebed.catalog.catalog import Connection
from lakebed.catalog.lookups import coverage, listing, partition_search
from lakebed.catalog.lookups.coverage import Look, Run
from lakebed.catalog.lookups.partition_search import FileScan, Spans
from lakebed.catalog.records import blocks
from lakebed.model.block import Block
from lakebed.model.time import TimeRange, find_gaps

_FEW_RANGES = 16
_MOST_BLOCKS = 200_000


class CoverageCache:
    """The coverage of the newest snapshot. Safe to use from several threads."""

    def __init__(self) -> None:
        self._coverage = Coverage()
        self._lock = threading.Lock()

    @property
    def entry(self) -> int:
        """The journal entry up to which the coverage is known."""
        return self._coverage.entry

    def read(
        self, connection: Connection, file_scans: Sequence[FileScan], look: Look, as_of: int | None
    ) -> Coverage:
        """Return the coverage of some view sets at a look, or in the past."""
        if as_of is not None:
            return Coverage().complete(connection, file_scans, as_of)
        with self._lock:
            if look.since != self._coverage.entry:  # another statement has looked meanwhile
                look = coverage.look(connection, self._coverage.entry)
            if look.last < self._coverage.entry:  # this snapshot is older than the cache
                return Coverage().complete(connection, file_scans)
            if look.changed:
                self._coverage = Coverage()
            self._coverage.entry = look.last
            return self._coverage.complete(connection, file_scans)


@dataclass(slots=True)
class Coverage:
    """The partitions of some view sets at one length of the journal, and the blocks that no
    partition covers, to which blocks are only added until something is built."""

    entry: int = 0
    runs: dict[str, list[Run]] = field(default_factory=dict)
    spans: Spans = field(default_factory=dict)
    frozen: dict[str, list[TimeRange]] = field(default_factory=dict)
    landed: list[Block] = field(default_factory=list)
    landed_in: list[TimeRange] = field(default_factory=list)
    """The insert times of which all blocks are known, in order."""
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def complete(
        self, connection: Connection, file_scans: Sequence[FileScan], as_of: int | None = None
    ) -> Coverage:
        """Add what is not known yet of some view sets."""
        names = [view_set.view_set for view_set in file_scans if view_set.view_set not in self.runs]
        if names:
            runs: dict[str, list[Run]] = {name: [] for name in names}
            for run in coverage.list_runs(connection, names, as_of):
                runs[run.view_set].append(run)
            self.runs |= runs
        unknown = [
            view_set
            for view_set in file_scans
            if view_set.events is not None
            and (view_set.view_set, view_set.schema_hash) not in self.spans
        ]
        if unknown and as_of is None:
            self.spans |= partition_search.list_spans(connection, unknown)
        return self

    def list_frozen(
        self, connection: Connection, name: str, schema_hash: bytes, as_of: int | None
    ) -> Sequence[TimeRange]:
        """Return the insert ranges of other schemas of a view set that cannot be built again."""
        with self.lock:
            if name not in self.frozen:
                self.frozen[name] = listing.list_frozen(connection, name, schema_hash, as_of)
            return self.frozen[name]

    def list_blocks(self, connection: Connection, needed: Sequence[TimeRange]) -> Sequence[Block]:
        """Return all blocks that landed in some ranges, and perhaps others, by insert time."""
        with self.lock:
            unknown = [
                gap for within in join(sorted(needed)) for gap in find_gaps(within, self.landed_in)
            ]
            if not unknown:
                return self.landed
            missing = at_most(_FEW_RANGES, unknown)
            landed = blocks.list_blocks_in(connection, missing)
            if self.landed and landed and landed[0].insert_time <= self.landed[-1].insert_time:
                by_time = {block.insert_time: block for block in [*self.landed, *landed]}
                landed = [by_time[time] for time in sorted(by_time)]
            else:
                landed = [*self.landed, *landed]
            if len(landed) <= _MOST_BLOCKS:
                self.landed, self.landed_in = landed, join(sorted([*self.landed_in, *missing]))
            return landed


def join(ranges: Sequence[TimeRange]) -> list[TimeRange]:
    """Return the same instants in fewer ranges."""
    merged: list[TimeRange] = []
    for within in ranges:
        if merged and within.begin <= merged[-1].end:
            merged[-1] = TimeRange(merged[-1].begin, max(merged[-1].end, within.end))
        else:
            merged.append(within)
    return merged


def at_most(few: int, ranges: Sequence[TimeRange]) -> Sequence[TimeRange]:
    """Return these ranges, or one range around all if there are too many."""
    return ranges if len(ranges) <= few else [TimeRange(ranges[0].begin, ranges[-1].end)]
