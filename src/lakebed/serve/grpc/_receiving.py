"""Messages that are received over gRPC, which shows nothing of a message until it is whole: any may
become as large as the limit. So only a few are received at once. A slow one is cancelled when
others wait, and the last to come first, because callers that send nothing came before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from lakebed.errors import Busy, TimedOut

_GIVE_WAY_SECONDS = 1.0
_WAIT_SECONDS = 10.0


class Receiver:
    """Receives a number of messages at once, on one event loop."""

    def __init__(self, most_calls: int, message_seconds: float) -> None:
        self._most_calls = most_calls
        self._message_seconds = message_seconds
        self._receiving: dict[asyncio.Task[Any], asyncio.TimerHandle] = {}
        self._slow: dict[asyncio.Task[Any], None] = {}
        self._waiting: list[asyncio.Future[None]] = []

    async def receive(self, read: Callable[[], Awaitable[Any]]) -> Any:
        """Return what a call reads next. Raise `TimedOut` if no whole message comes in time, and
        `Busy` if others needed the room."""
        await self._find_room()
        loop = asyncio.get_running_loop()
        task = asyncio.ensure_future(read())
        timer = loop.call_later(_GIVE_WAY_SECONDS, self._note_slow, task)
        self._receiving[task] = timer
        try:
            done, _ = await asyncio.wait({task}, timeout=self._message_seconds)
        finally:
            self._leave(task)
        if not done:
            raise TimedOut(
                f"no message came for {self._message_seconds:g} s", hint="send one with each call"
            )
        if task.cancelled():
            raise Busy("others need the room of a message that takes long", hint="send it again")
        return task.result()

    async def _find_room(self) -> None:
        if len(self._receiving) < self._most_calls:
            return
        if self._slow:
            self._leave(next(iter(self._slow)))
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            async with asyncio.timeout(min(_WAIT_SECONDS, self._message_seconds)):
                await turn
        except TimeoutError:
            raise Busy("too much comes in at once", hint="send it again a little later") from None
        finally:
            if turn in self._waiting:
                self._waiting.remove(turn)

    def _note_slow(self, task: asyncio.Task[Any]) -> None:
        self._slow[task] = None
        if self._waiting:
            self._leave(task)

    def _leave(self, task: asyncio.Task[Any]) -> None:
        """Make room; cancel a read that is not done, and its call with it."""
        timer = self._receiving.pop(task, None)
        if timer is None:
            return
        timer.cancel()
        self._slow.pop(task, None)
        task.cancel()
        while self._waiting:
            turn = self._waiting.pop()
            if not turn.done():
                turn.set_result(None)
                return
