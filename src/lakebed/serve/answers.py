"""Answers to what cannot be done: which status an error has, and its body in the encoding of the
request. Senders of OTLP drop a batch on anything but 429, 502, 503 and 504, so whatever may pass
later is 503 with a Retry-After; what never can is 4xx.
"""

from __future__ import annotations

import logging
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lakebed.access.keys import Caller
from lakebed.errors import (
    BadInput,
    BadRecords,
    Busy,
    Cancelled,
    Conflict,
    Denied,
    LakebedError,
    NotAcceptable,
    NotFound,
    NotStarted,
    OutcomeUnknown,
    PayloadTooLarge,
    QueryLimit,
    ReadOnly,
    Refused,
    SnapshotExpired,
    TimedOut,
    Unauthenticated,
    Unavailable,
    Unresponsive,
    Unsupported,
    UnsupportedContent,
    UnsupportedEncoding,
)
from lakebed.model.signal import Signal

PROTOBUF, JSON = "application/x-protobuf", "application/json"
RETRY_SECONDS = 2
_log = logging.getLogger(__name__)


def stopping() -> Busy:
    """What callers are told for whom there is no time any more."""
    return Busy("the server is stopping", hint="send it again, to another")


def doubt(error: Unresponsive) -> Unavailable:
    """Return the error for a request that must not be repeated without a look at its outcome."""
    if isinstance(error, NotStarted):
        return error
    return OutcomeUnknown(f"{error}, and it may have happened")


_STATUS: tuple[tuple[type[LakebedError], int, int], ...] = (
    # error, HTTP status, google.rpc code
    (NotAcceptable, 406, 3),
    (UnsupportedContent, 415, 3),
    (Unsupported, 501, 12),
    (PayloadTooLarge, 413, 8),
    (BadInput, 400, 3),
    (NotFound, 404, 5),
    (Unauthenticated, 401, 16),
    (Denied, 403, 7),
    (Refused, 409, 9),
    (Conflict, 409, 10),
    (Cancelled, 499, 1),
    (TimedOut, 504, 4),
    (SnapshotExpired, 410, 11),
    (QueryLimit, 413, 8),
    (Unavailable, 503, 14),
)


def conceal(error: Exception) -> Exception:
    """An error as callers are told of it: where catalog and store are, and why they do not answer,
    is for the log."""
    if isinstance(error, Busy) or not isinstance(error, Unavailable):
        return error
    hint = "try again a little later; the server's log says why"
    if isinstance(error, OutcomeUnknown):
        return OutcomeUnknown("the catalog went away, and it may have happened", hint=hint)
    if isinstance(error, ReadOnly):
        return ReadOnly("the lake cannot be written", hint=hint)
    return Unavailable("the catalog or the store does not answer", hint=hint)


def find_status(error: Exception) -> tuple[int, int]:
    """The HTTP status and the google.rpc code of an error; 500 and INTERNAL for surprises."""
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return status, code
    return 500, 13


def describe(error: Exception) -> str:
    """What a caller is told: our own words, or nothing about the inside."""
    if not isinstance(error, LakebedError):
        return "something went wrong inside the server; its log says what"
    return f"{error} ({error.hint})" if error.hint else str(error)


def refuse(error: Exception) -> Response:
    """An error as JSON, for records and queries."""
    status, _ = find_status(error)
    _note(error, status)
    error = conceal(error)
    body: dict[str, Any] = {
        "message": str(error) if isinstance(error, LakebedError) else describe(error)
    }
    if isinstance(error, LakebedError) and error.hint:
        body["hint"] = error.hint
    if isinstance(error, BadRecords):
        body["hint"] = "nothing was inserted; to insert the others and keep these: ?on_error=keep"
        body["records"] = [
            {
                "index": each.index,
                "problems": [
                    {"column": p.column, "expected": p.expected, "got": p.got}
                    for p in each.problems
                ],
            }
            for each in error.bad
        ]
    return JSONResponse({"error": body}, status, headers=_make_headers(error, status))


async def answer_nowhere(_request: Request, _error: Exception) -> Response:
    """For addresses of nothing."""
    return refuse(
        NotFound(
            "there is nothing at this address",
            hint="telemetry goes to /v1/logs, /v1/metrics and /v1/traces; what else is here "
            "depends on the server's roles",
        )
    )


async def answer_wrong_method(request: Request, error: Exception) -> Response:
    """For addresses of something, to which it is said in another way."""
    assert isinstance(error, HTTPException)  # noqa: S101  (registered for one)
    allowed = (error.headers or {}).get("Allow", "")
    body = {"message": f"this address does not take {request.method}", "hint": f"use {allowed}"}
    return JSONResponse({"error": body}, 405, headers=error.headers)


def refuse_otlp(error: Exception, content: str) -> Response:
    """An error as a google.rpc.Status in the request's own encoding."""
    from google.rpc import status_pb2  # type: ignore[import-untyped]

    status, code = find_status(error)
    _note(error, status)
    error = conceal(error)
    if content == JSON:
        return JSONResponse(
            {"code": code, "message": describe(error)}, status, headers=_make_headers(error, status)
        )
    body = status_pb2.Status(code=code, message=describe(error)).SerializeToString()
    return Response(body, status, headers=_make_headers(error, status), media_type=PROTOBUF)


def tell_partial_success(signal: Signal, rejected: int, reason: str | None) -> dict[str, Any]:
    """The answer to a JSON request that landed, but for so many of its records."""
    if not rejected:
        return {}
    name = f"rejected{signal.spec.counted}"
    return {"partialSuccess": {name: str(rejected), "errorMessage": reason}}


def _make_headers(error: Exception, status: int) -> dict[str, str]:
    """Return the headers that tell a client what to do next."""
    if status == 503:
        return {"Retry-After": str(RETRY_SECONDS)}
    if isinstance(error, UnsupportedEncoding):
        return {"Accept-Encoding": ", ".join(error.encodings)}  # RFC 7694
    return {"WWW-Authenticate": "Bearer"} if status == 401 else {}


def _note(error: Exception, status: int) -> None:
    if status >= 500:
        _log.error("request failed: %s", error, exc_info=not isinstance(error, LakebedError))


def note_denial(error: Exception, route: str, caller: Caller | None) -> None:
    """Log that somebody was turned away, and from what; whoever has no key has no name."""
    said = {"route": route, "caller": None if caller is None else caller.asker}
    _log.warning("denied: %s", error, extra=said)
