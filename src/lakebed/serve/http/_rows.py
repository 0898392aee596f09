"""Rows as the answer to a request. They are computed on threads, as fast as they are read, and only
while the caller reads them. An error before the first row is answered like any other; a later one
breaks the connection off.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from lakebed.errors import LakebedError
from lakebed.serve.http._answers import answer_refusal
from lakebed.serve.refusals import Refusal, find_status, refuse, stopping
from lakebed.serve.workers import Workers

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from lakebed.query.output.result import Result

_log = logging.getLogger(__name__)


class RowsResponse(Response):
    """A response that streams a result's rows. A caller that disconnects stops the statement, and
    so does the end of the server."""

    def __init__(
        self,
        result: Result,
        pieces: Iterator[bytes],
        workers: Workers,
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(None, media_type=media_type, headers=headers)
        del self.headers["content-length"]
        for warning in result.warnings:  # headers are one line of ASCII characters
            header = " ".join(warning.split()).encode("ascii", "backslashreplace").decode()
            self.headers.append("lakebed-warning", header)
        self._result = result
        self._pieces = pieces
        self._workers = workers
        self.when_done: Callable[[int], None] = lambda _status: None
        """Called with the status once all of it was sent, or broke off."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = self.status_code
        try:
            async with stopped_with_its_caller(self._result, receive):
                try:
                    piece = await self._workers.run(self._next)
                except asyncio.CancelledError:  # by the end of the server
                    status = await _answer(refuse(stopping()), scope, receive, send)
                    return
                except Exception as error:  # noqa: BLE001  (answered and logged)
                    status = await _answer(refuse(error), scope, receive, send)
                    return
                begin = {"type": "http.response.start", "status": status}
                await send({**begin, "headers": self.raw_headers})
                while piece is not None:
                    body = {"type": "http.response.body", "body": piece}
                    await send({**body, "more_body": True})
                    piece = await self._workers.run(self._next, patient=True)
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except Exception as error:
            status, _ = find_status(error)
            is_ours = isinstance(error, LakebedError)
            _log.error("an answer broke off: %s", error, exc_info=not is_ours)
            raise
        finally:
            self.when_done(status)

    def _next(self) -> bytes | None:
        return next(self._pieces, None)


async def _answer(refusal: Refusal, scope: Scope, receive: Receive, send: Send) -> int:
    await answer_refusal(Request(scope), refusal)(scope, receive, send)
    return refusal.status


@asynccontextmanager
async def stopped_with_its_caller(result: Result, receive: Receive) -> AsyncIterator[None]:
    """Cancel a result when the block is left before its end, or the caller has gone."""

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
