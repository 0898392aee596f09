"""The fresh tail: rows of blocks that no partition covers yet, decoded in this process and cached
for the next statement, up to a limit.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lakebed.errors import TailTooLarge
from lakebed.model.block import Block
from lakebed.model.view_set import ViewSet
from lakebed.reading.block_reader import Senders, decode_blocks
from lakebed.storage.objects import Store

if TYPE_CHECKING:
    import pyarrow as pa

_CHUNK_BLOCKS = 256
_SMALL_ROWS = 10_000
_MANY_SMALL = 16
_MOST_TIMES_DECODED = 8
"""The largest ratio of decoded to landed bytes: the attributes of the sender are repeated in every
row."""


@dataclass(frozen=True, slots=True)
class Tail:
    """The landed blocks of one view set that are not built yet."""

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
        return sum(table.num_rows for table in self.tables)


@dataclass(slots=True, eq=False)
class _Chunk:
    """Rows of many blocks in one piece, and where each block's rows begin and end."""

    of: tuple[str, bytes]
    """The view set's name and schema hash."""
    rows: pa.Table
    places: dict[str, tuple[int, int]]


@dataclass(slots=True)
class _CachedRows:
    """The cached rows of some blocks, in as few pieces as possible, and the blocks that are not
    cached."""

    pieces: list[tuple[_Chunk, int, int]] = field(default_factory=list)
    missing: list[Block] = field(default_factory=list)

    def add(self, chunk: _Chunk, begin: int, end: int) -> None:
        if self.pieces and self.pieces[-1][0] is chunk and self.pieces[-1][2] == begin:
            begin = self.pieces.pop()[1]
        if begin < end:
            self.pieces.append((chunk, begin, end))

    def slices(self) -> list[pa.Table]:
        return [chunk.rows.slice(begin, end - begin) for chunk, begin, end in self.pieces]


class _Chunks:
    """A cache of decoded blocks: the most recently used, up to a number of bytes. Small chunks are
    joined, because an engine takes as long to take over one row as thousands."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._size = 0
        self._by_block: dict[tuple[tuple[str, bytes], str], _Chunk] = {}
        self._used: OrderedDict[_Chunk, None] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, view_set_key: tuple[str, bytes], blocks: Sequence[Block]) -> _CachedRows:
        """Return the cached rows of these blocks of a view set, and the blocks that are not
        cached."""
        cached = _CachedRows()
        with self._lock:
            for block in blocks:
                chunk = self._by_block.get((view_set_key, block.block_id))
                if chunk is None:
                    cached.missing.append(block)
                else:
                    cached.add(chunk, *chunk.places[block.block_id])
            for chunk, _, _ in cached.pieces:
                self._used.move_to_end(chunk)
        return cached

    def keep(self, chunk: _Chunk) -> None:
        """Remember a chunk."""
        with self._lock:
            self._add(chunk)
            small = [candidate for candidate in self._used if _is_small(candidate, chunk.of)]
            if len(small) > _MANY_SMALL:
                for small_chunk in small:
                    self._drop(small_chunk)
                self._add(_put_together(small))
            while self._size > self._most_bytes and self._used:
                self._drop(next(iter(self._used)))

    def _add(self, chunk: _Chunk) -> None:
        self._used[chunk] = None
        self._size += chunk.rows.nbytes
        self._by_block |= dict.fromkeys(_keys(chunk), chunk)

    def _drop(self, chunk: _Chunk) -> None:
        del self._used[chunk]
        self._size -= chunk.rows.nbytes
        for key in _keys(chunk):
            if self._by_block.get(key) is chunk:  # two threads may have decoded the same block
                del self._by_block[key]


def _keys(chunk: _Chunk) -> Iterable[tuple[tuple[str, bytes], str]]:
    return ((chunk.of, block_id) for block_id in chunk.places)


def _is_small(chunk: _Chunk, view_set_key: tuple[str, bytes]) -> bool:
    return chunk.rows.num_rows < _SMALL_ROWS and chunk.of == view_set_key


def _put_together(chunks: Sequence[_Chunk]) -> _Chunk:
    import pyarrow as pa

    places: dict[str, tuple[int, int]] = {}
    start = 0
    for chunk in chunks:
        places |= {key: (begin + start, end + start) for key, (begin, end) in chunk.places.items()}
        start += chunk.rows.num_rows
    rows = pa.concat_tables([chunk.rows for chunk in chunks]).combine_chunks()
    return _Chunk(chunks[0].of, rows, places)


class TailReader:
    """Decodes tails. Blocks never change, so decoded rows are cached for the next statement, up to
    a number of bytes. Safe to use from several threads."""

    def __init__(self, store: Store, *, most_bytes: int, cache_bytes: int) -> None:
        self._store = store
        self._most_bytes = most_bytes
        self._chunks = _Chunks(cache_bytes)

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
        """Return the rows of a tail's blocks, as tables of the view set's schema. A block that
        cannot be decoded has none, and the next statement tries it again; building it records the
        reason."""
        cached = self._chunks.find(_key(tail.view_set), tail.blocks)
        failed = 0
        room = _MOST_TIMES_DECODED * self._most_bytes - sum(
            piece.nbytes for piece in cached.slices()
        )
        for start in range(0, len(cached.missing), _CHUNK_BLOCKS):
            blocks = cached.missing[start : start + _CHUNK_BLOCKS]
            chunk = self._decode(tail, blocks, room)
            room -= chunk.rows.nbytes
            self._chunks.keep(chunk)
            cached.add(chunk, 0, chunk.rows.num_rows)
            failed += len(blocks) - len(chunk.places)
        return TailRows(cached.slices(), failed)

    def _decode(self, tail: Tail, blocks: Sequence[Block], room: int) -> _Chunk:
        """Return the decoded rows of many blocks, which is faster than one by one; blocks that
        cannot be decoded are left out. `TailTooLarge` if the rows would take more memory than
        ``room``."""
        import pyarrow.compute as pc

        view_set = tail.view_set
        decoded = decode_blocks(
            self._store, view_set, blocks, tail.processes or {}, tail.streams or {}
        )
        failed = {block_id for block_id, _ in decoded.failures}
        if _plain_bytes(decoded.rows) > room:
            name = view_set.name
            raise TailTooLarge(
                f"what has landed of {name} and is not built is more than "
                f"{_MOST_TIMES_DECODED * self._most_bytes >> 20} MiB once it is decoded",
                hint=f"build it with: lakebed build {name}; or leave it out with --stale",
            )
        rows = decoded.rows.select(view_set.schema.names).cast(view_set.schema).combine_chunks()
        places = {block.block_id: (0, 0) for block in blocks if block.block_id not in failed}
        runs = pc.run_end_encode(rows.column("block_id").combine_chunks())
        begin = 0
        for block_id, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            places[block_id] = (begin, end)
            begin = end
        return _Chunk(_key(view_set), rows, places)


def _key(view_set: ViewSet) -> tuple[str, bytes]:
    return view_set.name, view_set.schema_hash


def _plain_bytes(rows: pa.Table) -> int:
    """Return about how much memory rows take once each has its own copy of shared values."""
    import pyarrow as pa
    import pyarrow.compute as pc

    size = 0
    for column in rows.columns:
        for chunk in column.chunks:
            size += chunk.nbytes
            if pa.types.is_dictionary(chunk.type) and pa.types.is_string(chunk.type.value_type):
                lengths = pc.binary_length(chunk.dictionary).cast(pa.int64())
                size += pc.sum(lengths.take(chunk.indices)).as_py() or 0
    return size
