"""Check partitions against the blocks that they are made of: each carries the sum of the SHA-256
of their ids, also if SQL or merges are between.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lakebed.catalog import clock
from lakebed.catalog.catalog import Connection
from lakebed.catalog.records import blocks, view_sets
from lakebed.lifecycle.checks.findings import Finding, damage
from lakebed.model.partition import NO_SOURCE, SOURCE_HASH_BYTES, Partition
from lakebed.model.time import TimeRange
from lakebed.views.dependencies import Sources, find_sources

_MODULUS = 1 << 8 * SOURCE_HASH_BYTES


@dataclass(frozen=True, slots=True)
class _Claim:
    """The blocks that a partition claims to be made of."""

    name: str
    insert_range: TimeRange
    source_hash: bytes
    sources: Sources


class SourceCheck:
    """Collects the claims of partitions, then reads all blocks once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        active = {
            entry.view_set.name: entry.view_set for entry in view_sets.list_active(connection)
        }
        self._sources = {
            (name, view_set.schema_hash): find_sources(view_set, active)
            for name, view_set in active.items()
            if view_set.source is not None
        }
        self._frozen_before = clock.blocks_from(connection)
        self._claims: list[_Claim] = []

    def add(self, partition: Partition) -> None:
        """Add a partition for `run`, unless its blocks cannot be determined: a program published
        it, its schema is not active any more, or some of its blocks are gone."""
        if partition.insert_range.begin < self._frozen_before:
            return
        sources = self._sources.get((partition.view_set, partition.schema_hash))
        if sources is not None and partition.source_hash != NO_SOURCE:
            self._claims.append(
                _Claim(
                    str(partition.identity), partition.insert_range, partition.source_hash, sources
                )
            )

    def run(self) -> Iterator[Finding]:
        """Yield a finding for every partition that is not made of the blocks in its range.
        Blocks that could not be decoded need no exception: plans leave them out, so that they
        are in no range."""
        ends = {end for claim in self._claims for end in _ends(claim)}
        sums = _sum_up(self._connection, sorted(ends))
        for claim in self._claims:
            before, after = (sums[end] for end in _ends(claim))
            encodings = after.keys() if claim.sources.every else claim.sources.encodings
            total = sum(after[encoding] - before[encoding] for encoding in encodings) % _MODULUS
            if total.to_bytes(SOURCE_HASH_BYTES, "big") != claim.source_hash:
                yield damage(
                    "source hash", claim.name, "is not made of the blocks that landed in its range"
                )


def _ends(claim: _Claim) -> tuple[int, int]:
    return claim.insert_range.begin, claim.insert_range.end


def _sum_up(connection: Connection, instants: Sequence[int]) -> dict[int, Counter[str]]:
    """Return, by instant, the sum over all blocks that landed before it, for each encoding."""
    sums: dict[int, Counter[str]] = {}
    running: Counter[str] = Counter()
    remaining = list(reversed(instants))
    for page in blocks.list_ids(connection) if remaining else ():
        for insert_time, encoding, block_id in page:
            while remaining and remaining[-1] <= insert_time:
                sums[remaining.pop()] = Counter(running)
            digest = hashlib.sha256(block_id.encode()).digest()
            running[encoding] += int.from_bytes(digest, "big")
    for instant in remaining:
        sums[instant] = running
    return sums
