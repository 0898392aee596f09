"""Rows as the answer to a request. They are computed on threads, as fast as they are read, and no
longer than somebody reads them.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.responses import StreamingResponse

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from lakebed.query.result import Result


class RowsResponse(StreamingResponse):
    """What pieces of a result's rows a caller gets. A caller that goes stops the statement, and so
    does the end of the server."""

    def __init__(
        self, result: Result, pieces: Iterator[bytes], threads: Executor, media_type: str
    ) -> None:
        super().__init__(self._compute(pieces), media_type=media_type)
        self._result = result
        self._threads = threads

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        async with stopped_with_its_caller(self._result, receive):
            await self.stream_response(send)

    async def _compute(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        loop = asyncio.get_running_loop()
        while (piece := await loop.run_in_executor(self._threads, next, pieces, None)) is not None:
            yield piece


@asynccontextmanager
async def stopped_with_its_caller(result: Result, receive: Receive) -> AsyncIterator[None]:
    """Cancel a result when the block is left before its end, or nobody is there any more."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        result.cancel()

    watching = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        watching.cancel()
        result.cancel()
