"""The fresh tail: rows of blocks that no partition covers yet, decoded in this process and kept for
the next statement, up to a limit.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakebed.errors import TailTooLarge
from lakebed.model.block import Block
from lakebed.model.view_set import ViewSet
from lakebed.partitions.decoding import Senders, decode_blocks
from lakebed.storage.objects import Store

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK_BLOCKS = 256


@dataclass(frozen=True, slots=True)
class Tail:
    """What is not built yet of one view set."""

    view_set: ViewSet
    blocks: Sequence[Block] = ()
    processes: Senders | None = None
    streams: Senders | None = None


@dataclass(frozen=True, slots=True)
class TailRows:
    """The rows of a tail, and how many of its blocks could not be decoded."""

    tables: Sequence[pa.Table] = ()
    failed_blocks: int = 0

    @property
    def num_rows(self) -> int:
        return sum(each.num_rows for each in self.tables)


class TailReader:
    """Decodes tails. Blocks never change, so what was decoded is kept: the most recently used, up
    to a number of bytes. Safe to use from several threads."""

    def __init__(self, store: Store, *, most_bytes: int, cache_bytes: int) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self._cache_bytes = cache_bytes
        self._kept: OrderedDict[tuple[str, bytes, str], pa.Table] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def require_bounded(self, tails: Sequence[Tail]) -> None:
        """Raise if a statement would have to decode more than is sensible."""
        size = sum(block.payload_size for tail in tails for block in tail.blocks)
        if size > self._most_bytes:
            names = " ".join(tail.view_set.name for tail in tails if tail.blocks)
            raise TailTooLarge(
                f"{size >> 20} MiB of {names} have landed and are not built; "
                f"a query decodes at most {self._most_bytes >> 20} MiB itself",
                hint=f"build them with: lakebed build {names}; or leave them out with --stale",
            )

    def read(self, tail: Tail) -> TailRows:
        """The rows of a tail's blocks, as tables of the view set's schema. A block that cannot be
        decoded gives none, and is tried again by the next statement; building it records why."""
        tables: dict[str, pa.Table] = {}
        missing = []
        for block in tail.blocks:
            known = self._find(tail.view_set, block)
            if known is None:
                missing.append(block)
            else:
                tables[block.block_id] = known
        for start in range(0, len(missing), _CHUNK_BLOCKS):
            tables |= self._decode(tail, missing[start : start + _CHUNK_BLOCKS])
        decoded = [tables[block.block_id] for block in tail.blocks if block.block_id in tables]
        return TailRows(
            [each for each in decoded if each.num_rows], len(tail.blocks) - len(decoded)
        )

    def _decode(self, tail: Tail, blocks: Sequence[Block]) -> dict[str, pa.Table]:
        """Many blocks at once, because that is much quicker; then each by itself, without those
        that cannot be decoded."""
        import pyarrow.compute as pc

        view_set = tail.view_set
        made = decode_blocks(
            self._store, view_set, blocks, tail.processes or {}, tail.streams or {}
        )
        failed = {block_id for block_id, _ in made.failures}
        rows = made.rows.select(view_set.schema.names).cast(view_set.schema).combine_chunks()
        runs = pc.run_end_encode(rows.column("block_id").combine_chunks())
        decoded = {
            block.block_id: rows.slice(0, 0) for block in blocks if block.block_id not in failed
        }
        begin = 0
        for block_id, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            decoded[block_id] = rows.slice(begin, end - begin)
            begin = end
        self._keep(view_set, decoded)
        return decoded

    def _find(self, view_set: ViewSet, block: Block) -> pa.Table | None:
        key = (view_set.name, view_set.schema_hash, block.block_id)
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def _keep(self, view_set: ViewSet, decoded: dict[str, pa.Table]) -> None:
        with self._lock:
            for block_id, table in decoded.items():
                key = (view_set.name, view_set.schema_hash, block_id)
                if key not in self._kept:
                    self._kept[key] = table
                    self._size += table.nbytes
            while self._size > self._cache_bytes and self._kept:
                _, dropped = self._kept.popitem(last=False)
                self._size -= dropped.nbytes
