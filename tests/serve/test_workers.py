"""The worker threads of a server: requests fail at once while the catalog probe hangs, and threads
that are still busy when the event loop ends finish their work.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from lakebed.errors import NotStarted, Unavailable, Unresponsive
from lakebed.serve import health
from lakebed.serve.health import Health
from lakebed.serve.workers import Workers


@pytest.fixture
def catalog_responds() -> threading.Event:
    """The catalog probe hangs until this event is set."""
    return threading.Event()


@pytest.fixture
def probed(catalog_responds: threading.Event, monkeypatch: pytest.MonkeyPatch) -> Iterator[Health]:
    monkeypatch.setattr(health, "_UNASKED_SECONDS", 0.05)
    no_lake: Any = None
    probed = Health(no_lake)
    monkeypatch.setattr(probed, "probe", catalog_responds.wait)
    yield probed
    catalog_responds.set()
    probed.close()


def test_requests_fail_while_the_catalog_probe_hangs_and_no_work_is_started(
    probed: Health, catalog_responds: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_PATIENCE_SECONDS", 0.1)
    started: list[int] = []
    finish = threading.Event()

    def work(number: int) -> int:
        started.append(number)
        finish.wait()
        return number

    async def request() -> int:
        workers = Workers("requests", probed, 2)
        with pytest.raises(Unresponsive):
            await workers.run(lambda: work(1))
        while not (probed._looking and started):  # a busy machine starts threads late
            await asyncio.sleep(0.01)
        await asyncio.sleep(max(0, probed._looked_at + 0.1 - time.monotonic()))
        with pytest.raises(NotStarted):
            await workers.run(lambda: work(2))
        catalog_responds.set()
        while probed._looking:
            await asyncio.sleep(0.01)
        finish.set()
        monkeypatch.setattr(health, "_PATIENCE_SECONDS", 300)
        return await workers.run(lambda: work(3))

    assert asyncio.run(request()) == 3
    assert started == [1, 3]


def test_work_may_take_long_while_the_catalog_probe_succeeds(
    probed: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_PATIENCE_SECONDS", 300)
    probes = threading.Semaphore(0)
    probed.probe = probes.release  # type: ignore[method-assign]

    def work() -> bool:
        return all(probes.acquire(timeout=300) for _ in range(3))

    assert asyncio.run(_do(Workers("requests", probed, 1), work)) is True


def test_running_work_goes_on_when_the_catalog_probe_is_refused(
    probed: Health, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_PATIENCE_SECONDS", 300)
    refused = threading.Event()

    def refuse() -> None:
        refused.set()
        raise Unavailable("away")

    probed.probe = refuse  # type: ignore[method-assign]
    assert asyncio.run(_do(Workers("requests", probed, 1), lambda: refused.wait(300))) is True


async def _do(workers: Workers, work: Any) -> Any:
    return await workers.run(work)


def test_work_that_ends_after_the_event_loop_logs_nothing(
    probed: Health, caplog: pytest.LogCaptureFixture
) -> None:
    finish = threading.Event()
    workers: list[Workers] = []

    async def start() -> None:
        workers.append(Workers("late", probed, 1))
        starting = asyncio.ensure_future(workers[0].run(finish.wait))
        while not workers[0].admission.held:
            await asyncio.sleep(0)
        del starting

    asyncio.run(start())
    finish.set()
    workers[0].close()
    assert caplog.records == []
