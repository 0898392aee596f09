"""Land a group of requests as one segment in one transaction: the catalog decides which blocks are
new; they are written under a reserved name and recorded with one tick per block.

A crash before the commit leaves a reserved file for sweeps; after it, a request that is sent again
counts as a duplicate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakebed.catalog import journal
from lakebed.catalog.catalog import Catalog, Connection, Transaction
from lakebed.catalog.records import blocks, files
from lakebed.catalog.records.blocks import Segment
from lakebed.errors import AlreadyThere, Conflict, LeaseLost, Unavailable
from lakebed.ingest.requests import NewBlock
from lakebed.model.block import Block
from lakebed.storage.objects import Store
from lakebed.writing.name_reservations import NamePool, take_reserved

_ATTEMPTS = 3
_MOST_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class Receipt:
    """The result of landing a request."""

    blocks: int = 0
    records: int = 0
    bytes: int = 0
    duplicates: int = 0
    """Blocks that had landed before."""
    rejected: int = 0
    """The number of records that were left out because they do not fit, and the first reason."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LandingPlan:
    """The new blocks of a group, and the requests that cannot land."""

    fresh: tuple[NewBlock, ...]
    conflicts: Mapping[int, str]
    """By position of the request in the group: the block whose id has other bytes."""


def plan_landing(
    requests: Sequence[Sequence[NewBlock]], digests: Mapping[str, bytes]
) -> LandingPlan:
    """Plan each block once. A known id with other bytes refuses only its own request."""
    digests_by_id = dict(digests)
    fresh: list[NewBlock] = []
    conflicts: dict[int, str] = {}
    for position, request in enumerate(requests):
        new: dict[str, NewBlock] = {}
        for block in request:
            earlier = new[block.block_id].payload_digest if block.block_id in new else None
            earlier = earlier or digests_by_id.get(block.block_id)
            if earlier is None:
                new[block.block_id] = block
            elif earlier != block.payload_digest:
                conflicts[position] = block.block_id
        if position not in conflicts:
            digests_by_id |= {block.block_id: block.payload_digest for block in new.values()}
            fresh += new.values()
    return LandingPlan(tuple(fresh), conflicts)


class SegmentWriter:
    """Lands groups of requests, one after another: one thread at a time uses it."""

    def __init__(self, catalog: Catalog, store: Store, names: NamePool) -> None:
        self._catalog = catalog
        self._store = store
        self._names = names
        self._known_streams: set[str] = set()
        self.commits = 0

    def land(self, requests: Sequence[Sequence[NewBlock]]) -> list[Receipt | Conflict]:
        """Return for each request its receipt, or the conflict that refused it. All receipts are
        durable then. If this raises, nothing landed, unless the error is `OutcomeUnknown`."""
        for attempt in range(_ATTEMPTS):
            with self._catalog.read() as connection:
                digests = _find_digests(connection, requests)
            plan = plan_landing(requests, digests)
            if not plan.fresh:
                return _outcomes(requests, plan)
            try:
                done = self._store_blocks(requests, digests, plan)
            except (LeaseLost, AlreadyThere):
                # The process seemed dead, or the answer to a put was lost: the bytes are here.
                if attempt == _ATTEMPTS - 1:
                    raise
                continue
            if done is not None:
                return _outcomes(requests, done)
        raise Unavailable(
            "others landed the same blocks with other bytes at the same time", hint="send it again"
        )

    def _store_blocks(
        self,
        requests: Sequence[Sequence[NewBlock]],
        digests: Mapping[str, bytes],
        plan: LandingPlan,
    ) -> LandingPlan | None:
        """Write and record the fresh blocks. Return the plan that was carried out, or None if
        another process landed something that changes the bytes to write."""
        lease, path = self._names.take_segment()
        with self._names.using(lease, [path]):
            with self._store.create(path) as sink:
                for block in plan.fresh:
                    sink.write(block.payload)
            done = self._record(requests, digests, plan, path, lease)
        if done is not None:
            if len(self._known_streams) > _MOST_REMEMBERED:
                self._known_streams.clear()
            self._known_streams |= {block.stream.stream_id for block in done.fresh}
        return done

    def _record(
        self,
        requests: Sequence[Sequence[NewBlock]],
        digests: Mapping[str, bytes],
        plan: LandingPlan,
        path: str,
        lease: str,
    ) -> LandingPlan | None:
        written = _offsets(plan.fresh)
        size = sum(len(block.payload) for block in plan.fresh)

        def work(transaction: Transaction) -> LandingPlan | None:
            connection, tick = transaction.connection, transaction.tick
            newer = _find_digests(connection, [plan.fresh])
            final = plan_landing(requests, {**digests, **newer}) if newer else plan
            # A request that was refused may land now: the segment does not have its bytes.
            is_whole = all(_content(block) in written for block in final.fresh)
            if not is_whole or not final.fresh:
                files.discard(connection, [path], lease, tick)
                return final if is_whole else None
            take_reserved(connection, [path], lease)
            first = tick - len(plan.fresh) + 1
            landed = [
                _landed(block, first + position, path, written[_content(block)])
                for position, block in enumerate(final.fresh)
            ]
            self._insert_senders(connection, final.fresh, tick)
            blocks.insert_segment(connection, Segment(path, size, tick), landed)
            records = sum(block.nb_objects for block in landed)
            detail = {"blocks": len(landed)}
            entry = journal.Entry(
                journal.LANDED, file_path=path, rows=records, bytes=size, detail=detail
            )
            journal.append(transaction, [entry])
            return final

        def happened(connection: Connection, _done: LandingPlan | None) -> bool:
            return blocks.has_segment(connection, path)

        done = self._catalog.commit(work, happened, ticks=len(plan.fresh))
        self.commits += 1
        return done

    def _insert_senders(self, connection: Connection, fresh: Sequence[NewBlock], tick: int) -> None:
        unseen = [block for block in fresh if block.stream.stream_id not in self._known_streams]
        if unseen:
            blocks.insert_senders(
                connection,
                list({block.process.process_id: block.process for block in unseen}.values()),
                list({block.stream.stream_id: block.stream for block in unseen}.values()),
                tick,
            )


def _find_digests(
    connection: Connection, requests: Sequence[Sequence[NewBlock]]
) -> dict[str, bytes]:
    return blocks.find_digests(
        connection, [block.block_id for request in requests for block in request]
    )


def _content(block: NewBlock) -> tuple[str, bytes]:
    """Return the key of a block's bytes: two requests may give the same id to different ones."""
    return block.block_id, block.payload_digest


def _offsets(fresh: Sequence[NewBlock]) -> dict[tuple[str, bytes], int]:
    offsets, end = {}, 0
    for block in fresh:
        offsets[_content(block)] = end
        end += len(block.payload)
    return offsets


def _landed(block: NewBlock, insert_time: int, path: str, offset: int) -> Block:
    return Block(
        block_id=block.block_id,
        stream_id=block.stream.stream_id,
        process_id=block.process.process_id,
        insert_time=insert_time,
        begin_time=block.begin_time,
        end_time=block.end_time,
        nb_objects=block.nb_objects,
        encoding=block.encoding,
        payload_digest=block.payload_digest,
        segment_path=path,
        segment_offset=offset,
        payload_size=len(block.payload),
    )


def _outcomes(
    requests: Sequence[Sequence[NewBlock]], plan: LandingPlan
) -> list[Receipt | Conflict]:
    landed = {block.block_id: block for block in plan.fresh}
    outcomes: list[Receipt | Conflict] = []
    for position, request in enumerate(requests):
        if position in plan.conflicts:
            message = f"block {plan.conflicts[position]} has landed before with other bytes"
            outcomes.append(Conflict(message, hint="give each request an id of its own, or none"))
            continue
        # Of several requests with the same block, the first one landed it.
        own = [landed.pop(block.block_id) for block in request if block.block_id in landed]
        outcomes.append(
            Receipt(
                blocks=len(own),
                records=sum(block.nb_objects for block in own),
                bytes=sum(len(block.payload) for block in own),
                duplicates=len(request) - len(own),
            )
        )
    return outcomes
