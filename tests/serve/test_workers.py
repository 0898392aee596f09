"""The threads of a server outlive its event loop when they are still busy at its end."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lakebed.serve.workers import Workers


def test_work_that_ends_after_the_loop_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    go_on = threading.Event()
    workers: list[Workers] = []

    async def begin() -> None:
        workers.append(Workers("late", 1))
        await workers[0].start(lambda: go_on.wait(60))

    asyncio.run(begin())
    go_on.set()
    workers[0].close()
    assert caplog.records == []
