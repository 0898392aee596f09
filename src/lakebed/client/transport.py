"""Calls to a server over Arrow Flight. pyarrow waits for answers where no signal reaches it, and
reports errors in gRPC's words: here calls can be interrupted, and errors are ours.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.flight as flight

from lakebed.client.address import Address
from lakebed.errors import (
    BadInput,
    Cancelled,
    Denied,
    LakebedError,
    OutcomeUnknown,
    Refused,
    TimedOut,
    Unauthenticated,
    Unavailable,
    Unsupported,
)
from lakebed.wire.error_codec import TRAILER, decode_error

_PATIENCE_SECONDS = 10.0
"""The client waits so much longer than the server, because the server has the better error."""

_OPTIONS = [
    ("grpc.keepalive_time_ms", 30_000),  # so that a server that vanished is noticed
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 0),
]
_NEVER_ASKED = re.compile("failed to connect|errors resolving|DNS resolution", re.IGNORECASE)
_SAID = re.compile(r"with message: (.*?)\. gRPC client debug context", re.DOTALL)
_PLAIN_ERRORS: tuple[tuple[type[Exception], type[LakebedError]], ...] = (
    (flight.FlightCancelledError, Cancelled),
    (flight.FlightTimedOutError, TimedOut),
    (flight.FlightUnauthenticatedError, Unauthenticated),
    (flight.FlightUnauthorizedError, Denied),
    (NotImplementedError, Unsupported),
    (ValueError, BadInput),
)
T = TypeVar("T")
_starting = threading.local()


class Call:
    """One call while it is open."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._reader: flight.FlightStreamReader | None = None
        self._cancelled = False
        self.trailers: dict[str, bytes] = {}

    def run(self, work: Callable[[], T]) -> T:
        """Do a part of the call; an interrupt ends it. Raises our errors."""
        with self._translated():
            return _interruptible(lambda: self._do(work), self.cancel)

    def _do(self, work: Callable[[], T]) -> T:
        _starting.call = self
        try:
            return work()
        finally:
            _starting.call = None

    def hold(self, reader: flight.FlightStreamReader) -> flight.FlightStreamReader:
        """Return the rows of the call, which are stopped when it is cancelled."""
        self._reader = reader
        if self._cancelled:
            reader.cancel()
        return reader

    def cancel(self) -> None:
        """End the call, from any thread."""
        self._cancelled = True
        if self._reader is not None:
            self._reader.cancel()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except LakebedError:
            raise
        except Exception as error:
            if self._cancelled:
                raise Cancelled("the statement was cancelled") from error
            has_begun = self._reader is not None
            raise explain(error, self.trailers, self._address, has_begun=has_begun) from error


class Transport:
    """A connection to one server, which is made when it is needed and again when it is lost. Safe
    to use from several threads."""

    def __init__(self, address: Address, key: str | None, authorities: bytes | None) -> None:
        self.address = address
        self._headers = [] if key is None else [(b"authorization", f"Bearer {key}".encode())]
        options: dict[str, Any] = {"middleware": [_Listeners()], "generic_options": _OPTIONS}
        if authorities is not None:
            options["tls_root_certs"] = authorities
        try:
            self._client = flight.FlightClient(address.uri, **options)
        except pa.ArrowInvalid as error:
            raise BadInput(f"{address} is no address of a server") from error

    def get(
        self, ticket: bytes, headers: Mapping[str, str], timeout: float | None
    ) -> tuple[Call, flight.FlightStreamReader]:
        """Begin to read rows; the schema is there when this returns."""
        call = Call(self.address)
        deadline = None if timeout is None else timeout + _PATIENCE_SECONDS
        options = self._options(headers, deadline)

        def begin() -> flight.FlightStreamReader:
            return call.hold(self._client.do_get(flight.Ticket(ticket), options))

        return call, call.run(begin)

    def act(self, action: str, body: bytes) -> bytes:
        """Let the server do an action, and return its whole answer."""
        call = Call(self.address)
        options = self._options({}, None)

        def work() -> bytes:
            results = self._client.do_action(flight.Action(action, body), options)
            return b"".join(result.body.to_pybytes() for result in results)

        return call.run(work)

    def _options(
        self, headers: Mapping[str, str], timeout: float | None
    ) -> flight.FlightCallOptions:
        sent = [(name.encode(), value.encode()) for name, value in headers.items()]
        return flight.FlightCallOptions(timeout=timeout, headers=[*self._headers, *sent])

    def close(self) -> None:
        """End the connection."""
        self._client.close()


class _Listeners(flight.ClientMiddlewareFactory):  # type: ignore[misc]
    """Makes for each call a listener that stores its trailers: calls begin in the thread that runs
    them."""

    def start_call(self, info: object) -> _Listener | None:
        del info
        call = getattr(_starting, "call", None)
        return None if call is None else _Listener(call)


class _Listener(flight.ClientMiddleware):  # type: ignore[misc]
    def __init__(self, call: Call) -> None:
        self._call = call

    def received_headers(self, headers: Mapping[str, list[Any]]) -> None:
        for name, values in headers.items():
            if name == TRAILER and values:
                self._call.trailers[name] = bytes(values[0])


def explain(
    error: Exception, trailers: Mapping[str, bytes], address: Address, *, has_begun: bool = False
) -> LakebedError:
    """Return our error for one of pyarrow's: the server's own, or else one about the call."""
    server_error = decode_error(trailers[TRAILER]) if TRAILER in trailers else None
    if server_error is not None:
        return server_error
    text = str(error)
    match = _SAID.search(text)
    message = " ".join((match[1] if match else text).split()) or type(error).__name__
    if isinstance(error, flight.FlightUnavailableError):
        if has_begun:
            return Unavailable(
                f"the server at {address} went away before all rows were there",
                hint="run the statement again",
            )
        return _explain_absence(text, address)
    for kind, error_class in _PLAIN_ERRORS:
        if isinstance(error, kind):
            return error_class(f"{address} answers: {message}")
    return LakebedError(f"{address} answers: {message}")


def _explain_absence(text: str, address: Address) -> LakebedError:
    if "CERTIFICATE_VERIFY_FAILED" in text or "certificate verify failed" in text:
        return Refused(
            f"the certificate of {address} is not trusted",
            hint="name the file of its authority: certificate=, or LAKEBED_CERTIFICATE",
        )
    if "Hostname Verification" in text or "is not in peer certificate" in text:
        return Refused(
            f"the certificate of {address} is for another name", hint="use the name that it is for"
        )
    if address.secure and ("WRONG_VERSION_NUMBER" in text or "SSL_ERROR" in text):
        return Unavailable(f"{address} does not speak TLS", hint="connect to grpc://…")
    if not _NEVER_ASKED.search(text):
        return OutcomeUnknown(
            f"the connection to {address} broke before it had answered",
            hint="if it was to change the lake, see with `lakebed journal` whether it did",
        )
    return Unavailable(
        f"no server answers at {address}",
        hint="is lakebed serve running there, with its FlightSQL port open? With TLS it is "
        "grpc+tls://…",
    )


def _interruptible(work: Callable[[], T], cancel: Callable[[], None]) -> T:
    """Wait where signals arrive, which is the main thread only; other threads just do it."""
    if threading.current_thread() is not threading.main_thread():
        return work()
    result: Future[T] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:  # noqa: BLE001  (raised where it is waited for)
            result.set_exception(error)

    threading.Thread(target=run, name="lakebed-client", daemon=True).start()
    try:
        return result.result()
    except BaseException:
        if not result.done():
            cancel()
        raise
