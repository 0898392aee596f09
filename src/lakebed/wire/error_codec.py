"""Errors on their way from a server to a client: a ``google.rpc.Status`` in the trailers of a call,
as in gRPC's richer error model, whose detail names the class, the hint and the position. So a
client raises the error of the lake; other clients show the same text.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from lakebed import errors
from lakebed.errors import BadDefinition, BadSchema, BadSql, LakebedError
from lakebed.wire import protocol

TRAILER = "grpc-status-details-bin"
_DOMAIN = "lakebed"
_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
_RETRY = "type.googleapis.com/google.rpc.RetryInfo"
_RAISED_AS_BASE = (
    errors.BadRecords,  # without the records
    errors.Busy,
    errors.NotAcceptable,
    errors.NotStarted,
    errors.Unresponsive,
    errors.UnsupportedEncoding,
)
_MOST_BYTES = 1000
"""Trailers have little room: 8 KiB in most clients, for all of them together, and some of them are
spelled with three characters for a byte."""


def shorten(text: str) -> str:
    """Return a text cut so that it fits among the trailers of a call."""
    data = text.encode(errors="replace")
    if len(data) <= _MOST_BYTES:
        return text
    return data[:_MOST_BYTES].decode(errors="ignore") + "…"


def encode_error(error: LakebedError, code: int, *, retry_seconds: int | None = None) -> bytes:
    """Return the details of an error beside its text, and when to retry if that may help."""
    error_class = next(c for c in type(error).__mro__ if _find_class(c.__name__) is c)
    info = protocol.new("ErrorInfo", reason=error_class.__name__, domain=_DOMAIN)
    details: dict[str, object] = {"hint": error.hint}
    if isinstance(error, BadSql):
        details |= {"line": error.line, "column": error.column}
    for name, value in details.items():
        if value is not None:
            info.metadata.add(key=name, value=shorten(str(value)))
    text = str(error) + (
        _spell_hint(error.hint) if error.hint else ""
    )  # other clients show the whole text
    status = protocol.new("Status", code=code, message=shorten(text))
    status.details.add(type_url=_INFO, value=info.SerializeToString())
    if retry_seconds is not None:
        retry = protocol.new("RetryInfo")
        retry.retry_delay.seconds = retry_seconds
        status.details.add(type_url=_RETRY, value=retry.SerializeToString())
    return bytes(status.SerializeToString())


def decode_error(data: bytes) -> LakebedError | None:
    """Return the error in a server's details, or None if they are not of Lakebed."""
    try:
        status = protocol.parse("Status", data)
        details = [
            protocol.parse("ErrorInfo", detail.value)
            for detail in status.details
            if detail.type_url == _INFO
        ]
    except DecodeError:
        return None
    info = next((detail for detail in details if detail.domain == _DOMAIN), None)
    if info is None:
        return None
    metadata = {entry.key: entry.value for entry in info.metadata}
    kind = _find_class(info.reason) or LakebedError
    error = kind.__new__(kind)
    # Not by its own constructor: some build the message from arguments, and here it is complete.
    hint = metadata.get("hint")
    message = status.message.removesuffix(_spell_hint(hint)) if hint else status.message
    LakebedError.__init__(error, message, hint=hint)
    if isinstance(error, BadSql):
        error.line, error.column = _number(metadata.get("line")), _number(metadata.get("column"))
    elif isinstance(error, BadDefinition | BadSchema):
        error.problems = tuple(message.splitlines())
    return error


def _spell_hint(hint: str) -> str:
    return f" ({hint})"


def _find_class(name: str) -> type[LakebedError] | None:
    """Return the error class of a name, or None if clients raise a base class of it."""
    error_class = getattr(errors, name, None)
    if not isinstance(error_class, type) or not issubclass(error_class, LakebedError):
        return None
    return None if error_class in _RAISED_AS_BASE else error_class


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
