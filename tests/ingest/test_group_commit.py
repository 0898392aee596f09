"""Many senders at once: they share commits, each gets the answer to its own request, and nobody
waits forever, whatever happens to the thread that lands.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from lakebed.errors import Conflict, LakebedError, Unavailable
from lakebed.ingest.landing import Lander
from lakebed.ingest.requests import NewBlock, read_request
from lakebed.ingest.segments import Receipt
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.opening import open_lake
from lakebed.samples.generator import Generator
from tests.ingest.parts import (
    DisturbedStore,
    count_rows,
    disturb,
    landed,
    payload_of,
    request_of,
    unaccounted_files,
    until,
)

ROOT = Path(__file__).parents[2]


def _blocks(*messages: str, request_id: str | None = None) -> list[NewBlock]:
    body = request_of(*((f"service {place}", each) for place, each in enumerate(messages)))
    return read_request("logs", body, request_id=request_id)


def _is_sound(lake: Lake) -> bool:
    return lake.checker.run(Level.PAGES).findings == [] and not unaccounted_files(lake)


def test_many_senders_share_commits(lake: Lake) -> None:
    bodies = [*Generator(seed=1).stream("logs", requests=160, size=20, services=1)]
    with ThreadPoolExecutor(16) as senders:
        receipts = [*senders.map(lambda body: lake.telemetry.land("logs", body), bodies)]
    assert {(receipt.blocks, receipt.records) for receipt in receipts} == {(1, 20)}
    assert count_rows(lake, "segments") == lake._lander.commits <= 40
    blocks = landed(lake)
    assert len(blocks) == len({block.insert_time for block in blocks}) == 160
    assert {payload_of(lake, block) for block in blocks} == {*bodies}
    assert _is_sound(lake)


def test_the_same_request_from_many_senders_lands_once(lake: Lake) -> None:
    body = request_of(("a", "one"), ("b", "two"))
    with open_lake(lake.catalog.url) as other, ThreadPoolExecutor(16) as senders:
        places = [lake, other] * 16
        receipts = [*senders.map(lambda place: place.telemetry.land("logs", body), places)]
    assert sum(receipt.blocks for receipt in receipts) == 2
    assert sum(receipt.duplicates for receipt in receipts) == 2 * 31
    assert len(landed(lake)) == 2
    assert _is_sound(lake)


@contextmanager
def _held_up(lake: Lake, **limits: int) -> Iterator[tuple[Lander, threading.Event]]:
    """A lander whose first segment does not get written before the event is set, and which is in
    the middle of that."""
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        assert go_on.wait(300)

    store = DisturbedStore(lake.store, before=wait)
    lander = Lander(lake.catalog, store, lake._names, **limits)  # type: ignore[arg-type]
    first = lander.land(_blocks("the one that holds up"))
    assert begun.wait(300)
    try:
        yield lander, go_on
    finally:
        go_on.set()
        lander.close()
    assert first.result(20).blocks == 1


def test_a_conflict_in_a_group_hits_its_own_request_only(lake: Lake) -> None:
    with _held_up(lake) as (lander, go_on):
        answers = [
            lander.land(_blocks("a", "b", request_id="r")),
            lander.land(_blocks("other", request_id="r")),
            lander.land(_blocks("c")),
            lander.land(_blocks("a", "b", request_id="r")),
        ]
        go_on.set()
        assert answers[0].result(20).blocks == 2
        with pytest.raises(Conflict, match="other bytes"):
            answers[1].result(20)
        assert answers[2].result(20).blocks == 1
        assert answers[3].result(20).duplicates == 2
        assert lander.commits == 2
    assert _is_sound(lake)


def test_what_the_catalog_cannot_hold_fails_alone(lake: Lake) -> None:
    (poison,) = _blocks("poison")
    with _held_up(lake) as (lander, go_on):
        good = [lander.land(_blocks("a")), lander.land(_blocks("b"))]
        bad = lander.land([replace(poison, begin_time=1 << 70)])
        good.append(lander.land(_blocks("c")))
        go_on.set()
        assert [each.result(20).blocks for each in good] == [1, 1, 1]
        with pytest.raises(LakebedError):
            bad.result(20)
    assert len(landed(lake)) == 4
    assert _is_sound(lake)


def test_a_large_group_is_cut_into_segments(lake: Lake) -> None:
    requests = [_blocks(f"message {number}") for number in range(9)]
    two = 2 * len(requests[0][0].payload)
    with _held_up(lake, segment_bytes=two) as (lander, go_on):
        answers = [lander.land(request) for request in requests]
        go_on.set()
        assert [each.result(20).blocks for each in answers] == [1] * 9
        assert lander.commits == 6  # the first, and two at a time
    assert _is_sound(lake)


def test_closing_lands_what_waits_and_refuses_who_still_waits_for_room(lake: Lake) -> None:
    outcome: Future[Receipt] = Future()
    with _held_up(lake, most_waiting_bytes=1) as (lander, go_on):
        queued = lander.land(_blocks("queued"))

        def wait_for_room() -> None:
            try:
                outcome.set_result(lander.land(_blocks("no room")).result(20))
            except BaseException as error:  # noqa: BLE001  (handed to the test)
                outcome.set_exception(error)

        sender = threading.Thread(target=wait_for_room)
        sender.start()
        until(lambda: lander._queue_bytes.waiting == 1)
        closer = threading.Thread(target=lander.close)
        closer.start()
        with pytest.raises(Unavailable, match="the lake is closed"):
            outcome.result(20)
        go_on.set()
        for thread in (sender, closer):
            thread.join(300)
            assert not thread.is_alive()
        assert queued.result(20).blocks == 1
    assert len(landed(lake)) == 2


class Death(BaseException):
    """Something that no handler of errors catches."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_when_the_landing_thread_dies_everybody_is_told_and_the_next_request_lands(
    lake: Lake,
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def die() -> None:
        begun.set()
        assert go_on.wait(300)
        raise Death

    disturb(lake, before=die)
    lander = lake._lander
    answers = [lander.land(_blocks("first"))]
    assert begun.wait(300)
    answers += [lander.land(_blocks("second")), lander.land(_blocks("third"))]
    go_on.set()
    errors = [answer.exception(20) for answer in answers]
    assert {type(error) for error in errors} == {Unavailable}
    assert len({id(error) for error in errors}) == 3, "an error of one's own for everybody"
    assert landed(lake) == []
    disturb(lake)
    assert lander.land(_blocks("fourth")).result(20).blocks == 1
    assert _is_sound(lake)


def test_a_sender_that_has_given_up_is_not_landed_and_hurts_nobody(lake: Lake) -> None:
    with _held_up(lake) as (lander, go_on):
        given_up, other = lander.land(_blocks("given up")), lander.land(_blocks("other"))
        assert given_up.cancel()
        go_on.set()
        assert other.result(20).blocks == 1
    assert len(landed(lake)) == 2


def _meanwhile(lake: Lake, act: Callable[[Lake], None]) -> None:
    """Let another process act once, just after this one has written its next segment."""
    left = [act]

    def once() -> None:
        if left:
            with open_lake(lake.catalog.url) as other:
                left.pop()(other)

    disturb(lake, after=once)


def test_another_process_that_was_faster_makes_it_a_duplicate(lake: Lake) -> None:
    body = request_of(("a", "one"))
    _meanwhile(lake, lambda other: _land(other, body))
    assert lake.telemetry.land("logs", body) == Receipt(duplicates=1)
    assert len(landed(lake)) == 1
    assert _is_sound(lake)


def _land(lake: Lake, body: bytes, request_id: str | None = None) -> None:
    lake.telemetry.land("logs", body, request_id=request_id)


def test_another_process_that_took_the_id_makes_it_a_conflict(lake: Lake) -> None:
    theirs = request_of(("theirs", "one"))
    _meanwhile(lake, lambda other: _land(other, theirs, "r"))
    with pytest.raises(Conflict):
        lake.telemetry.land("logs", request_of(("mine", "two")), request_id="r")
    # Nothing of the refused request was taken for recorded.
    lake.telemetry.land("logs", request_of(("mine", "three")))
    assert count_rows(lake, "streams") == 2
    assert _is_sound(lake)


def test_a_request_that_lands_because_another_lost_has_its_own_bytes(lake: Lake) -> None:
    """Two requests of a group claim an id; the first would land, until another process takes a
    second id of it. Then the second one lands, although the first one's bytes were written."""
    first = read_request("logs", request_of(("a", "AAAA"), ("a", "more")), request_id="r")
    second = read_request("logs", request_of(("b", "second's own")), request_id="r")
    theirs = request_of(("idle", ""), ("c", "theirs"))  # has only the id of the second resource
    _meanwhile(lake, lambda other: _land(other, theirs, "r"))
    outcomes = lake._lander._writer.land([first, second])
    assert isinstance(outcomes[0], Conflict)
    assert outcomes[1] == Receipt(1, 1, len(second[0].payload), 0)
    (mine,) = [block for block in landed(lake) if block.block_id == second[0].block_id]
    assert payload_of(lake, mine) == second[0].payload
    assert _is_sound(lake)


def test_everything_acknowledged_is_there_after_kill_9(lake: Lake) -> None:
    """A process with eight senders is killed while they send."""
    command = [sys.executable, "-m", "tests.ingest.sender", lake.catalog.url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as sender:
        assert sender.stdout is not None
        acknowledged = {int(next(sender.stdout)) for _ in range(60)}
        os.kill(sender.pid, signal.SIGKILL)
        acknowledged |= {int(line) for line in sender.stdout if line.endswith("\n")}
    assert sender.returncode == -signal.SIGKILL
    stored = {payload_of(lake, block) for block in landed(lake)}
    expected = {number: request_of(("sender", f"message {number}")) for number in acknowledged}
    assert [number for number, body in expected.items() if body not in stored] == []
    receipts = [lake.telemetry.land("logs", body) for body in expected.values()]
    assert {(receipt.blocks, receipt.duplicates) for receipt in receipts} == {(0, 1)}
    assert _is_sound(lake)
