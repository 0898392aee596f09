"""Landing: the payloads of concurrent requests become one segment and one transaction, and each
request is acknowledged when both are durable.

Requests queue; one thread takes all that wait and lands them together, so that while one group is
being synced the next one gathers. A crash before the commit leaves a reserved file that a sweep
takes; after it, the blocks are there and a request that is sent again counts as a duplicate.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from lakebed.catalog import blocks, files, journal
from lakebed.catalog.blocks import Segment
from lakebed.catalog.catalog import Catalog, Connection, Transaction
from lakebed.errors import AlreadyThere, Conflict, LakebedError, LeaseLost, Unavailable
from lakebed.ingest.requests import NewBlock
from lakebed.model.block import Block
from lakebed.partitions.names import NamePool
from lakebed.storage.objects import Store

_SEGMENT_BYTES = 32 << 20
_MOST_WAITING_BYTES = 256 << 20
_GATHER_SECONDS = 0.003
_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of a request."""

    blocks: int = 0
    records: int = 0
    bytes: int = 0
    duplicates: int = 0
    """Blocks that had landed before."""


@dataclass(slots=True)
class _Waiting:
    blocks: Sequence[NewBlock]
    done: Future[Receipt] = field(default_factory=Future)

    @property
    def bytes(self) -> int:
        return sum(len(block.payload) for block in self.blocks)


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


class Lander:
    """Lands requests for one lake. Safe to call from many threads: that is what it is for."""

    def __init__(self, catalog: Catalog, store: Store, names: NamePool) -> None:
        self._catalog = catalog
        self._store = store
        self._names = names
        self._changed = threading.Condition()
        self._queue: list[_Waiting] = []
        self._queued_bytes = 0
        self._arriving = 0
        self._closed = False
        self._thread: threading.Thread | None = None
        self._known_senders: set[str] = set()
        self.commits = 0

    def announce(self) -> None:
        """A request is being read and will `land` or `withdraw`: worth a moment."""
        with self._changed:
            self._arriving += 1

    def withdraw(self) -> None:
        """The announced request will not land."""
        with self._changed:
            self._arriving -= 1
            self._changed.notify_all()

    def land(self, new: Sequence[NewBlock]) -> Future[Receipt]:
        """Land one announced request, all or nothing; the receipt comes when it is durable."""
        waiting = _Waiting(new)
        size = waiting.bytes
        with self._changed:
            self._arriving -= 1
            if self._closed:
                raise Unavailable("the lake is closed", hint="open it again")
            if not new:
                waiting.done.set_result(Receipt())
                return waiting.done
            while self._queued_bytes and self._queued_bytes + size > _MOST_WAITING_BYTES:
                self._changed.wait()
            self._queue.append(waiting)
            self._queued_bytes += size
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lander", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return waiting.done

    def close(self) -> None:
        """Land what waits, and stop."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._queue or self._closed)
                if not self._queue:
                    return
                # Others are being read at this moment: a moment's patience saves them a commit.
                self._changed.wait_for(lambda: self._arriving <= 0, timeout=_GATHER_SECONDS)
                group = self._take_group()
                self._changed.notify_all()
            try:
                self._land_group(group)
            except LakebedError as error:
                _fail(group, error)
            except BaseException as error:
                _fail(group, error)
                raise

    def _take_group(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        size = 0
        while self._queue and (not group or size + self._queue[0].bytes <= _SEGMENT_BYTES):
            group.append(self._queue.pop(0))
            size += group[-1].bytes
        self._queued_bytes -= size
        return group

    def _land_group(self, group: list[_Waiting]) -> None:
        requests = [waiting.blocks for waiting in group]
        with self._catalog.read() as connection:
            known = _find_known(connection, requests)
        plan = plan_landing(requests, known)
        if plan.fresh:
            plan = self._store_blocks(requests, known, plan)
        landed = {block.block_id: block for block in plan.fresh}
        for place, waiting in enumerate(group):
            if place in plan.conflicts:
                message = f"block {plan.conflicts[place]} has landed before with other bytes"
                hint = "give each request an id of its own, or none"
                waiting.done.set_exception(Conflict(message, hint=hint))
            else:
                waiting.done.set_result(_receipt(waiting.blocks, landed))

    def _store_blocks(
        self,
        requests: Sequence[Sequence[NewBlock]],
        known: Mapping[str, bytes],
        plan: LandingPlan,
    ) -> LandingPlan:
        """Write and record the fresh blocks; what of them really was fresh."""
        for attempt in range(_ATTEMPTS):
            lease, path = self._names.take_segment()
            try:
                with self._store.create(path) as sink:
                    for block in plan.fresh:
                        sink.write(block.payload)
                return self._record(requests, known, plan, path, lease)
            except (LeaseLost, AlreadyThere) as error:
                # Taken for dead, or a put whose answer was lost: the name is lost, not the bytes.
                if isinstance(error, LeaseLost):
                    self._names.forget()
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError("every attempt returns or raises")

    def _record(
        self,
        requests: Sequence[Sequence[NewBlock]],
        known: Mapping[str, bytes],
        plan: LandingPlan,
        path: str,
        lease: str,
    ) -> LandingPlan:
        offsets = _offsets(plan.fresh)
        size = sum(len(block.payload) for block in plan.fresh)

        def work(transaction: Transaction) -> LandingPlan:
            connection, tick = transaction.connection, transaction.tick
            newly = _find_known(connection, [plan.fresh])
            really = plan_landing(requests, {**known, **newly}) if newly else plan
            if not really.fresh:  # somebody else landed all of it in between
                files.discard(connection, [path], lease, tick)
                return really
            if files.take_staged(connection, [path], lease) != 1:
                raise LeaseLost("a reservation was lost, because this process seemed dead")
            first = tick - len(plan.fresh) + 1
            landed = [
                _landed(block, first + place, path, offsets[block.block_id])
                for place, block in enumerate(really.fresh)
            ]
            self._insert_senders(connection, really.fresh, tick)
            blocks.insert_segment(connection, Segment(path, size, tick), landed)
            journal.append(
                transaction,
                [
                    journal.Entry(
                        "land",
                        file_path=path,
                        rows=sum(block.nb_objects for block in landed),
                        bytes=size,
                        detail={"blocks": len(landed)},
                    )
                ],
            )
            return really

        def happened(connection: Connection, _plan: LandingPlan) -> bool:
            return blocks.has_segment(connection, path)

        done = self._catalog.commit(work, happened, ticks=len(plan.fresh))
        self._known_senders |= {block.stream.stream_id for block in plan.fresh}
        self.commits += 1
        return done

    def _insert_senders(self, connection: Connection, fresh: Sequence[NewBlock], tick: int) -> None:
        unseen = [block for block in fresh if block.stream.stream_id not in self._known_senders]
        if unseen:
            blocks.insert_senders(
                connection,
                list({block.process.process_id: block.process for block in unseen}.values()),
                list({block.stream.stream_id: block.stream for block in unseen}.values()),
                tick,
            )


def _find_known(connection: Connection, requests: Sequence[Sequence[NewBlock]]) -> dict[str, bytes]:
    return blocks.find_digests(connection, [each.block_id for one in requests for each in one])


def _offsets(fresh: Sequence[NewBlock]) -> dict[str, int]:
    offsets, at = {}, 0
    for block in fresh:
        offsets[block.block_id] = at
        at += len(block.payload)
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


def _receipt(asked: Sequence[NewBlock], landed: dict[str, NewBlock]) -> Receipt:
    mine = [landed.pop(block.block_id) for block in asked if block.block_id in landed]
    return Receipt(
        blocks=len(mine),
        records=sum(block.nb_objects for block in mine),
        bytes=sum(len(block.payload) for block in mine),
        duplicates=len(asked) - len(mine),
    )


def _fail(group: Sequence[_Waiting], error: BaseException) -> None:
    for waiting in group:
        if not waiting.done.done():
            waiting.done.set_exception(error)
