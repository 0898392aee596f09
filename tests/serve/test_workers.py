"""The threads of a server: nobody waits for them while catalog and store say nothing, and they
outlive its event loop when they are still busy at its end.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from lakebed.errors import Unavailable
from lakebed.serve import health
from lakebed.serve.answers import NotAsked, Silent
from lakebed.serve.health import Health
from lakebed.serve.workers import Workers


@pytest.fixture
def answers() -> threading.Event:
    """Whether catalog and store do."""
    return threading.Event()


@pytest.fixture
def asked(answers: threading.Event, monkeypatch: pytest.MonkeyPatch) -> Iterator[Health]:
    monkeypatch.setattr(health, "_UNASKED_SECONDS", 0.05)
    monkeypatch.setattr(health, "_PATIENCE_SECONDS", 0.1)
    nothing: Any = None
    asked = Health(nothing)
    monkeypatch.setattr(asked, "probe", lambda: answers.wait(60))
    yield asked
    answers.set()
    asked.close()


def test_nobody_waits_for_work_that_waits_for_what_says_nothing(
    asked: Health, answers: threading.Event
) -> None:
    begun: list[int] = []
    end = threading.Event()

    def work(number: int) -> int:
        begun.append(number)
        end.wait(60)
        return number

    async def ask() -> int:
        workers = Workers("asked", asked, 2)
        with pytest.raises(Silent):
            await workers.do(lambda: work(1))
        with pytest.raises(NotAsked):
            await workers.do(lambda: work(2))
        answers.set()
        while asked._looking:
            await asyncio.sleep(0.01)
        end.set()
        return await workers.do(lambda: work(3))

    assert asyncio.run(ask()) == 3
    assert begun == [1, 3]


def test_work_may_take_long_while_they_answer(asked: Health, answers: threading.Event) -> None:
    answers.set()
    looked = threading.Semaphore(0)
    asked.probe = looked.release  # type: ignore[method-assign]

    def work() -> bool:
        return all(looked.acquire(timeout=60) for _ in range(3))

    assert asyncio.run(_do(Workers("asked", asked, 1), work)) is True


def test_what_they_answer_is_for_those_who_need_them(asked: Health) -> None:
    """A statement that runs does without a catalog that refuses."""
    looked = threading.Event()

    def refuse() -> None:
        looked.set()
        raise Unavailable("away")

    asked.probe = refuse  # type: ignore[method-assign]
    assert asyncio.run(_do(Workers("asked", asked, 1), lambda: looked.wait(60))) is True


async def _do(workers: Workers, work: Any) -> Any:
    return await workers.do(work)


def test_work_that_ends_after_the_loop_says_nothing(
    asked: Health, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()
    workers: list[Workers] = []

    async def begin() -> None:
        workers.append(Workers("late", asked, 1))
        await workers[0].start(lambda: go_on.wait(60))

    asyncio.run(begin())
    go_on.set()
    workers[0].close()
    assert caplog.records == []
