"""The guard of a server for HTTP requests: they are let in, answered and counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from lakebed.access.keys import ANYBODY, Caller, Role
from lakebed.access.origins import require_own_site
from lakebed.errors import BadPayload
from lakebed.serve.guard import Guard
from lakebed.serve.http._rows import RowsResponse
from lakebed.serve.refusals import Refusal, refuse, stopping

Handler = Callable[[Request], Awaitable[Response]]
Render = Callable[[Request, Refusal], Response]
_HOW_TO_SEND_KEYS = "send: Authorization: Bearer KEY; or HTTP Basic with the key as password"


async def answer(
    guard: Guard, name: str, handle: Handler, render: Render, request: Request
) -> Response:
    """Return what a handler answers, or a rendered refusal for its error. Count the request."""
    started_at = time.perf_counter()
    guard.meters.waiting.inc()
    try:
        response = await handle(request)
    except ClientDisconnect:
        disconnect = BadPayload("the sender went away before the body was complete")
        response = render(request, refuse(disconnect))
    except asyncio.CancelledError:
        if not guard.health.draining:
            raise
        response = render(request, refuse(stopping()))  # its time to drain is over
    except Exception as error:  # noqa: BLE001  (answered, logged and counted)
        caller = getattr(request.state, "caller", None)
        response = render(request, refuse(error, name, caller))
    finally:
        guard.meters.waiting.dec()
    if isinstance(response, RowsResponse):
        response.when_done = lambda status: guard.count(name, status, started_at)
    else:
        guard.count(name, response.status_code, started_at)
    return response


async def let_in(
    guard: Guard,
    request: Request,
    role: Role,
    *,
    session_key: str | None = None,
    hint: str = _HOW_TO_SEND_KEYS,
) -> Caller:
    """Return the caller, if it has a role; before a byte of the body is read."""
    caller = await guard.identify(request.headers, hint=hint, session_key=session_key)
    if caller is ANYBODY:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        require_own_site(host, origin, any_name=guard.open_to_all)
        return caller
    request.state.caller = caller
    caller.require(role)
    return caller
