"""Refusals as HTTP responses, in the encoding of the request, and other small answers."""

from __future__ import annotations

from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lakebed.errors import BadRecords, NotFound, UnsupportedEncoding
from lakebed.model.signal import Signal
from lakebed.serve.refusals import Refusal

PROTOBUF, JSON = "application/x-protobuf", "application/json"


def read_content_type(request: Request) -> str:
    """Return the media type of a request's body without parameters."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def answer_refusal(_request: Request, refusal: Refusal) -> Response:
    """Return a refusal as JSON, for records and queries."""
    body: dict[str, Any] = refusal.parts
    if isinstance(refusal.error, BadRecords):
        body["hint"] = "nothing was inserted; to insert the others and keep these: ?on_error=keep"
        body["records"] = [
            {
                "index": record.index,
                "problems": [
                    {"column": p.column, "expected": p.expected, "got": p.got}
                    for p in record.problems
                ],
            }
            for record in refusal.error.bad
        ]
    return JSONResponse({"error": body}, refusal.status, headers=_make_headers(refusal))


def answer_otlp_refusal(request: Request, refusal: Refusal) -> Response:
    """Return a refusal as a google.rpc.Status in the request's own encoding."""
    from google.rpc import status_pb2  # type: ignore[import-untyped]

    headers = _make_headers(refusal)
    if read_content_type(request) == JSON:
        body = {"code": refusal.code, "message": refusal.text}
        return JSONResponse(body, refusal.status, headers=headers)
    message = status_pb2.Status(code=refusal.code, message=refusal.text).SerializeToString()
    return Response(message, refusal.status, headers=headers, media_type=PROTOBUF)


async def answer_wrong_method(request: Request, error: Exception) -> Response:
    """Return the answer for an address that exists for other methods."""
    assert isinstance(error, HTTPException)  # noqa: S101  (registered for one)
    allowed = (error.headers or {}).get("Allow", "")
    body = {"message": f"this address does not take {request.method}", "hint": f"use {allowed}"}
    return JSONResponse({"error": body}, 405, headers=error.headers)


def no_address(pages: str) -> NotFound:
    """Return the error for an address that does not exist."""
    return NotFound(
        "there is nothing at this address",
        hint=f"telemetry goes to /v1/logs, /v1/metrics and /v1/traces; {pages}",
    )


def describe_partial_success(signal: Signal, rejected: int, reason: str | None) -> dict[str, Any]:
    """Return the answer to a JSON request that landed without some of its records."""
    if not rejected:
        return {}
    name = f"rejected{signal.spec.counted}"
    return {"partialSuccess": {name: str(rejected), "errorMessage": reason}}


def _make_headers(refusal: Refusal) -> dict[str, str]:
    """Return the headers that tell a client what to do next."""
    if refusal.retry_seconds is not None:
        return {"Retry-After": str(refusal.retry_seconds)}
    if isinstance(refusal.error, UnsupportedEncoding):
        return {"Accept-Encoding": ", ".join(refusal.error.encodings)}  # RFC 7694
    return {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
