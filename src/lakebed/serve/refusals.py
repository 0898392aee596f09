"""Errors as callers see them: a status for HTTP and one for gRPC, a message and a hint. Senders of
OTLP drop a batch on anything but 429, 502, 503 and 504, so an error that may pass is 503 with a
delay after which to retry; one that cannot pass is 4xx.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from lakebed.access.keys import Caller
from lakebed.errors import (
    BadInput,
    Busy,
    Cancelled,
    Conflict,
    Denied,
    LakebedError,
    NotAcceptable,
    NotFound,
    OutcomeUnknown,
    PayloadTooLarge,
    QueryLimit,
    ReadOnly,
    Refused,
    SnapshotExpired,
    TimedOut,
    Unauthenticated,
    Unavailable,
    Unsupported,
    UnsupportedContent,
)

RETRY_SECONDS = 2
_LOGGED = (500, 503, 504)
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
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error as a caller sees it."""

    error: Exception
    status: int
    code: int
    """A code of google.rpc."""
    message: str
    hint: str | None = None

    @property
    def text(self) -> str:
        """Return the message with its hint."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    @property
    def parts(self) -> dict[str, str]:
        """Return the message, and the hint if there is one, by name."""
        return {"message": self.message} | ({"hint": self.hint} if self.hint else {})

    @property
    def retry_seconds(self) -> int | None:
        """Return the delay after which to send the request again, if that may help."""
        return RETRY_SECONDS if self.status == 503 else None


def refuse(error: Exception, route: str | None = None, caller: Caller | None = None) -> Refusal:
    """Return an error as a caller sees it. Log what an operator must know of it."""
    status, code = find_status(error)
    if isinstance(error, Unauthenticated | Denied):
        if route is not None:
            asker = None if caller is None else caller.asker
            _log.warning("denied: %s", error, extra={"route": route, "caller": asker})
    elif status in _LOGGED:
        is_surprise = not isinstance(error, LakebedError)
        _log.error("request failed: %s", error, exc_info=error if is_surprise else None)
    if not isinstance(error, LakebedError):
        message = "something went wrong inside the server; its log says what"
        return Refusal(error, status, code, message)
    concealed = _conceal(error)
    return Refusal(concealed, status, code, str(concealed), concealed.hint)


def find_status(error: Exception) -> tuple[int, int]:
    """Return the HTTP status and the google.rpc code of an error; for surprises those of a bug."""
    for kind, status, code in _STATUS:
        if isinstance(error, kind):
            return status, code
    return 500, 13


def stopping() -> Busy:
    """Return the error for callers of a server that ends."""
    return Busy("the server is stopping", hint="send it again, to another")


def _conceal(error: LakebedError) -> LakebedError:
    """Return an error without the addresses of catalog and store, which only the log may show."""
    if isinstance(error, Busy) or not isinstance(error, Unavailable):
        return error
    hint = "try again a little later; the server's log says why"
    if isinstance(error, OutcomeUnknown):
        return OutcomeUnknown("the catalog went away, and it may have happened", hint=hint)
    if isinstance(error, ReadOnly):
        return ReadOnly("the lake cannot be written", hint=hint)
    return Unavailable("the catalog or the store does not answer", hint=hint)
