"""A client of one server: it is used like an open lake, and returns the same results and the same
errors.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lakebed.client.address import Address, parse_address
from lakebed.client.streams import RemoteStream
from lakebed.client.transport import Transport
from lakebed.errors import BadInput, BadSql, Unsupported
from lakebed.model.arguments import checked, checked_methods, checks_itself
from lakebed.model.time import (
    Instant,
    format_duration,
    is_duration,
    is_relative,
    parse_duration,
    parse_moment,
    to_instant,
)
from lakebed.query.output.result import Result
from lakebed.query.request.request import QueryRequest
from lakebed.wire import protocol

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME_OF_SERVER = 0
_VENDOR = "Lakebed"


@checked_methods
class Client:
    """A connection to a server of a lake. Close it, or use it as a context manager. Safe to use
    from several threads."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._closed = False

    @property
    def address(self) -> Address:
        """The address of the server."""
        return self._transport.address

    @checks_itself("sql", "parameters", "limit", "timeout")
    def query(
        self,
        sql: str,
        begin: Instant | None = None,
        end: Instant | None = None,
        *,
        parameters: Sequence[Any] | None = None,
        as_of: Instant | None = None,
        stale: bool = False,
        limit: int | None = None,
        timeout: float | None = None,
        explained: bool = False,
        admin: bool = True,
        engine: str = "embedded",
        spark: SparkSession | None = None,
        master: str | None = None,
        remote: str | None = None,
    ) -> Result:
        """Return the rows of a statement, as `lakebed.lake.Lake.query` returns them. What a key's
        role does not allow is `Denied`; the server may allow less time than is asked for."""
        self._require_open()
        if engine != "embedded" or any(option is not None for option in (spark, master, remote)):
            raise Unsupported(
                "a server computes the rows itself", hint="Spark needs the lake: lakebed.open(…)"
            )
        request = QueryRequest(
            sql, begin, end, parameters, as_of, stale, limit, timeout, explained, admin
        )
        bound = request.bind()
        headers = _make_headers(request)
        with bound.placed():
            stream = self._get(_ticket(bound.sql), headers, timeout)
            return Result(stream, stream.read_explanation())

    def _get(
        self, ticket: bytes, headers: dict[str, str], timeout: float | None = None
    ) -> RemoteStream:
        return RemoteStream(*self._transport.get(ticket, headers, timeout))

    def act(self, action: str, body: bytes) -> bytes:
        """Let the server do an action that is not a statement; for `lakebed.admin`."""
        self._require_open()
        return self._transport.act(action, body)

    def require_lakebed(self) -> None:
        """Raise unless a server of ours is there and lets us in."""
        command = protocol.new("CommandGetSqlInfo", info=[_NAME_OF_SERVER])
        try:
            stream = self._get(protocol.wrap(command), {})
            rows = [row for batch in stream for row in batch.to_pylist()]
        except Unsupported as error:
            raise BadInput(
                f"{self.address} does not speak FlightSQL", hint="servers do on port 50051"
            ) from error
        if [row.get("value") for row in rows] != [_VENDOR]:
            raise BadInput(f"the server at {self.address} is no lake", hint="see: lakebed serve")

    def _require_open(self) -> None:
        if self._closed:
            raise BadInput("the connection was closed", hint="connect again")

    def close(self) -> None:
        """End the connection."""
        self._closed = True
        self._transport.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Client of {self.address}>"


@checked
def connect(uri: str, *, key: str | None = None, certificate: str | Path | None = None) -> Client:
    """Connect to a server of a lake at ``grpc://host:port``, or ``grpc+tls://host:port``.

    ``key`` is LAKEBED_KEY if it is not given. ``certificate`` (LAKEBED_CERTIFICATE) is the file of
    the authorities to trust, in PEM, instead of the system's. Fails if no server answers there, or
    the key may not query.
    """
    from lakebed.settings import read_settings

    address = parse_address(uri)
    settings = read_settings()
    if key is None and settings.key is not None:
        key = settings.key.get_secret_value()
    authorities = _read_authorities(certificate or settings.certificate, address)
    client = Client(Transport(address, _check_key(key), authorities))
    try:
        client.require_lakebed()
    except BaseException:
        client.close()
        raise
    return client


def _check_key(key: str | None) -> str | None:
    """Return the key, or None; a key that cannot be sent is not shown."""
    if not key:
        return None
    if not isinstance(key, str) or not key.isascii() or not key.isprintable() or " " in key:
        raise BadInput(
            "this is no key", hint="give it as lakebed keys create showed it: lakebed_…_…"
        )
    return key


def _read_authorities(file: str | Path | None, address: Address) -> bytes | None:
    if file is None or not address.secure:
        return None
    try:
        data = Path(file).expanduser().read_bytes()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=data.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise BadInput(f"{file} holds no certificate", hint="it must be in PEM") from error
    except OSError as error:
        reason = (error.strerror or "").lower()
        raise BadInput(f"cannot read the certificate {file}: {reason}") from error
    return data


def _make_headers(request: QueryRequest) -> dict[str, str]:
    """Return the options of a statement as headers of its call."""
    headers = {
        "begin": _spell(request.begin),
        "end": _spell(request.end),
        "as_of": _spell_past(request.as_of),
        "limit": None if request.limit is None else str(request.limit),
        "timeout": None if request.timeout is None else repr(float(request.timeout)),
        "stale": "true" if request.stale else None,
        "explained": "true" if request.explained else None,
        "admin": None if request.admin else "false",
        "explanation": "true",
        "preserve_dictionary": "true",
    }
    return {name: value for name, value in headers.items() if value is not None}


def _ticket(sql: str) -> bytes:
    try:
        handle = sql.encode()
    except UnicodeEncodeError:
        raise BadSql("the statement holds characters that are no text") from None
    return protocol.wrap(protocol.new("TicketStatementQuery", statement_handle=handle))


def _spell(moment: Instant | None) -> str | None:
    """Return a time as the server reads it, which counts relative times from its own clock."""
    if moment is None:
        return None
    if isinstance(moment, str) and is_relative(moment):
        text = moment.strip()
        return format_duration(parse_duration(text)) if is_duration(text) else text
    return str(parse_moment(moment, 0))


def _spell_past(as_of: Instant | None) -> str | None:
    if as_of is None or is_relative(as_of):
        return _spell(as_of)
    if isinstance(as_of, str):
        parse_moment(as_of, 0)  # raises with a hint that knows relative times
    return str(to_instant(as_of, "down"))
