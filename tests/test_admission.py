"""Admission: never more units are held than there are, requests that wait are admitted in order,
and every end of a request gives its units back.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from lakebed.admission import Admission
from lakebed.errors import Busy
from tests.ingest.parts import until


@pytest.fixture
def admission() -> Admission:
    return Admission(100, hint="try again")


def test_threads_never_hold_more_units_than_there_are(admission: Admission) -> None:
    lock = threading.Lock()
    held = most = 0

    def hold(units: int) -> None:
        nonlocal held, most
        for _ in range(50):
            with admission.hold(units):
                with lock:
                    held += units
                    most = max(most, held)
                with lock:
                    held -= units

    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(hold, units) for units in (10, 30, 60, 90) * 2]:
            done.result(300)
    assert 0 < most <= 100
    assert admission.held == 0


def test_request_that_needs_more_than_all_units_is_admitted_alone(admission: Admission) -> None:
    entered = threading.Event()

    def hold_many() -> None:
        with admission.hold(10_000):
            entered.set()

    with admission.hold(1):
        thread = threading.Thread(target=hold_many)
        thread.start()
        until(lambda: admission.waiting == 1)
        assert not entered.is_set()
    thread.join(300)
    assert entered.is_set()
    assert admission.held == 0


def test_requests_are_admitted_in_order(admission: Admission) -> None:
    order: list[int] = []

    def hold(units: int) -> None:
        with admission.hold(units):
            order.append(units)

    with ThreadPoolExecutor(3) as threads, admission.hold(20):
        for waiting, units in enumerate((90, 80, 70), start=1):  # 80 would have room, but 90 waits
            threads.submit(hold, units)
            until(lambda waiting=waiting: admission.waiting == waiting)  # type: ignore[misc]
    assert order == [90, 80, 70]


def test_error_in_the_block_gives_units_back(admission: Admission) -> None:
    with pytest.raises(RuntimeError), admission.hold(100):
        raise RuntimeError
    with pytest.raises(RuntimeError), admission.share() as share:
        share.add(100)
        raise RuntimeError
    assert admission.held == 0


def test_share_that_grows_too_large_is_refused_at_once(admission: Admission) -> None:
    with admission.share() as first, admission.share() as second:
        first.add(60)
        first.add(30)
        with pytest.raises(Busy, match="the server has too much to do") as refused:
            second.add(11)
        assert refused.value.hint == "try again"
        second.add(10)
        assert (first.units, second.units, admission.held) == (90, 10, 100)
    assert admission.held == 0


def test_task_that_waits_too_long_is_refused(admission: Admission) -> None:
    async def wait() -> None:
        with pytest.raises(Busy):
            await admission.wait_async(1, seconds=0.01)

    with admission.hold(100):
        asyncio.run(wait())
    assert (admission.held, admission.waiting) == (0, 0)


def test_cancelled_task_does_not_keep_others_waiting(admission: Admission) -> None:
    async def wait() -> None:
        admission.take(50)
        first = asyncio.ensure_future(admission.wait_async(60))
        second = asyncio.ensure_future(admission.wait_async(50))
        while admission.waiting < 2:
            await asyncio.sleep(0)
        first.cancel()
        await second

    asyncio.run(wait())
    assert (admission.held, admission.waiting) == (100, 0)


def test_task_that_is_cancelled_after_its_admission_gives_units_back(admission: Admission) -> None:
    async def wait() -> None:
        admission.take(100)
        task = asyncio.ensure_future(admission.wait_async(60))
        while not admission.waiting:
            await asyncio.sleep(0)
        admission.release(100)  # admits the task, which has not run yet
        assert admission.held == 60
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(wait())
    assert admission.held == 0


def test_threads_and_tasks_share_units(admission: Admission) -> None:
    async def count(times: int) -> None:
        for _ in range(times):
            await admission.wait_async(70)
            await asyncio.sleep(0)
            admission.release(70)

    def hold(times: int) -> None:
        for _ in range(times):
            with admission.hold(70):
                pass

    with ThreadPoolExecutor(3) as threads:
        loops = [threads.submit(asyncio.run, count(100)) for _ in range(2)]
        for done in [*loops, threads.submit(hold, 100)]:
            done.result(300)
    assert admission.held == 0


def test_close_ends_every_wait_and_releases_nothing(admission: Admission) -> None:
    with ThreadPoolExecutor(2) as threads, admission.hold(100):
        waiting = [threads.submit(admission.wait, 1) for _ in range(2)]
        until(lambda: admission.waiting == 2)
        admission.close()
        assert [each.result(300) for each in waiting] == [False, False]
        assert admission.held == 100
        assert not admission.wait(1)
    assert admission.held == 0
