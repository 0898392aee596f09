"""A group of requests becomes one segment and one transaction: what of it is new is decided by the
catalog, written under a reserved name, and recorded with one tick per block.

A crash before the commit leaves a reserved file that a sweep takes; after it, the blocks are there
and a request that is sent again counts as a duplicate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakebed.catalog import blocks, files, journal
from lakebed.catalog.blocks import Segment
from lakebed.catalog.catalog import Catalog, Connection, Transaction
from lakebed.errors import AlreadyThere, Conflict, LeaseLost, Unavailable
from lakebed.ingest.requests import NewBlock
from lakebed.model.block import Block
from lakebed.storage.objects import Store
from lakebed.writing.name_reservations import NamePool, take_reserved

_ATTEMPTS = 3
_MOST_REMEMBERED = 100_000


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a request."""

    blocks: int = 0
    records: int = 0
    bytes: int = 0
    duplicates: int = 0
    """Blocks that had landed before."""
    rejected: int = 0
    """Records that were left out because they do not fit, and why the first of them."""
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class LandingPlan:
    """What of a group is new, and which of its requests cannot land."""

    fresh: tuple[NewBlock, ...]
    conflicts: Mapping[int, str]
    """By the request's place in the group: the block whose id has other bytes."""


def plan_landing(requests: Sequence[Sequence[NewBlock]], known: Mapping[str, bytes]) -> LandingPlan:
    """Each block once. The same id with other bytes refuses its own request and no other."""
    seen = dict(known)
    fresh: list[NewBlock] = []
    conflicts: dict[int, str] = {}
    for place, request in enumerate(requests):
        mine: dict[str, NewBlock] = {}
        for block in request:
            there = mine[block.block_id].payload_digest if block.block_id in mine else None
            there = there or seen.get(block.block_id)
            if there is None:
                mine[block.block_id] = block
            elif there != block.payload_digest:
                conflicts[place] = block.block_id
        if place not in conflicts:
            seen |= {block.block_id: block.payload_digest for block in mine.values()}
            fresh += mine.values()
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
        """For each request its receipt, or the conflict that refused it. When this returns, every
        receipt is durable; when it raises, nothing of the group landed, unless the error is
        `OutcomeUnknown`."""
        for attempt in range(_ATTEMPTS):
            with self._catalog.read() as connection:
                known = _find_known(connection, requests)
            plan = plan_landing(requests, known)
            if not plan.fresh:
                return _outcomes(requests, plan)
            try:
                done = self._store_blocks(requests, known, plan)
            except (LeaseLost, AlreadyThere):
                # Taken for dead, or a put whose answer was lost: the name is lost, not the bytes.
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
        known: Mapping[str, bytes],
        plan: LandingPlan,
    ) -> LandingPlan | None:
        """Write and record the fresh blocks; what of them really was fresh, or None if others
        were faster with something that changes what is to be written."""
        lease, path = self._names.take_segment()
        with self._names.using(lease, [path]):
            with self._store.create(path) as sink:
                for block in plan.fresh:
                    sink.write(block.payload)
            done = self._record(requests, known, plan, path, lease)
        if done is not None:
            if len(self._known_streams) > _MOST_REMEMBERED:
                self._known_streams.clear()
            self._known_streams |= {block.stream.stream_id for block in done.fresh}
        return done

    def _record(
        self,
        requests: Sequence[Sequence[NewBlock]],
        known: Mapping[str, bytes],
        plan: LandingPlan,
        path: str,
        lease: str,
    ) -> LandingPlan | None:
        written = _places(plan.fresh)
        size = sum(len(block.payload) for block in plan.fresh)

        def work(transaction: Transaction) -> LandingPlan | None:
            connection, tick = transaction.connection, transaction.tick
            newly = _find_known(connection, [plan.fresh])
            really = plan_landing(requests, {**known, **newly}) if newly else plan
            # A request that was refused may have become the one that lands: its bytes are not here.
            is_whole = all(_content(block) in written for block in really.fresh)
            if not is_whole or not really.fresh:
                files.discard(connection, [path], lease, tick)
                return really if is_whole else None
            take_reserved(connection, [path], lease)
            first = tick - len(plan.fresh) + 1
            landed = [
                _landed(block, first + place, path, written[_content(block)])
                for place, block in enumerate(really.fresh)
            ]
            self._insert_senders(connection, really.fresh, tick)
            blocks.insert_segment(connection, Segment(path, size, tick), landed)
            records = sum(block.nb_objects for block in landed)
            detail = {"blocks": len(landed)}
            entry = journal.Entry(
                journal.LANDED, file_path=path, rows=records, bytes=size, detail=detail
            )
            journal.append(transaction, [entry])
            return really

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


def _find_known(connection: Connection, requests: Sequence[Sequence[NewBlock]]) -> dict[str, bytes]:
    return blocks.find_digests(connection, [each.block_id for one in requests for each in one])


def _content(block: NewBlock) -> tuple[str, bytes]:
    """Which bytes a block is: two requests may give the same id to different ones."""
    return block.block_id, block.payload_digest


def _places(fresh: Sequence[NewBlock]) -> dict[tuple[str, bytes], int]:
    places, at = {}, 0
    for block in fresh:
        places[_content(block)] = at
        at += len(block.payload)
    return places


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
    for place, asked in enumerate(requests):
        if place in plan.conflicts:
            message = f"block {plan.conflicts[place]} has landed before with other bytes"
            outcomes.append(Conflict(message, hint="give each request an id of its own, or none"))
            continue
        # Of several requests with the same block, the first one landed it.
        mine = [landed.pop(block.block_id) for block in asked if block.block_id in landed]
        outcomes.append(
            Receipt(
                blocks=len(mine),
                records=sum(block.nb_objects for block in mine),
                bytes=sum(len(block.payload) for block in mine),
                duplicates=len(asked) - len(mine),
            )
        )
    return outcomes
