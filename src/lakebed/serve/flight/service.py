"""The Flight service: statements, prepared statements, metadata, records into tables, and
cancelling. A ticket may be the SQL itself, as micromegas' clients send it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import msgspec
import pyarrow as pa
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from lakebed.access.credentials import parse_authorization
from lakebed.access.keys import Role
from lakebed.errors import (
    BadInput,
    BadPayload,
    Conflict,
    NotFound,
    PayloadTooLarge,
    Unsupported,
)
from lakebed.operations import actions
from lakebed.query.embedded.tables import CATALOG
from lakebed.query.output.result import Result
from lakebed.query.request import parameters
from lakebed.query.request.parameters import Bound
from lakebed.serve.flight import _metadata
from lakebed.serve.flight._call_options import CallOptions, read_call_options
from lakebed.serve.flight._encoding import (
    decode_stream,
    encode_schema,
    encode_stream,
    encode_stream_schema,
    show,
)
from lakebed.serve.flight._prepared import MOST_BOUND_BYTES, PreparedStatements
from lakebed.serve.grpc.calls import Call, Calls, Handlers, Headers
from lakebed.wire import protocol

if TYPE_CHECKING:
    from lakebed.lake import Lake
    from lakebed.serve.meters import Meters

NAME = "arrow.flight.protocol.FlightService"
_MOST_PUT_BYTES = 256 << 20
_ROUTE = "flight"
_CANCELLED = 1
_FAIL, _REPLACE = 1, 3
"""Values of ``if_exists``, for a client that ingests into a table that exists."""
_ACTIONS = {
    "CreatePreparedStatement": "plan a statement that may have parameters",
    "ClosePreparedStatement": "forget a prepared statement",
    "CancelFlightInfo": "stop a statement",
    "CancelQuery": "stop a statement",
}


class FlightService:
    """FlightSQL over one lake."""

    def __init__(self, lake: Lake, meters: Meters, query_seconds: float | None) -> None:
        self._lake = lake
        self._meters = meters
        self._query_seconds = query_seconds
        self._prepared = PreparedStatements()
        self._running: dict[bytes, Result] = {}
        self._lock = threading.Lock()

    def make_services(self, calls: Calls) -> Handlers:
        """Return the gRPC service. Messages go in and out as bytes."""
        unary = partial(calls.unary, _ROUTE, Role.READ)
        stream = partial(calls.stream, _ROUTE, Role.READ)
        methods = {
            "Handshake": calls.stream(
                _ROUTE, None, self._handshake, may_say_nothing=True, headers=_make_authorization
            ),
            "ListFlights": stream(self._list_flights),
            "GetFlightInfo": unary(self._get_info),
            "GetSchema": unary(self._get_schema),
            "DoGet": stream(self._do_get),
            "DoPut": calls.collect(_ROUTE, self._begin_put, _MOST_PUT_BYTES),
            "DoAction": stream(self._do_action),
            "ListActions": stream(self._list_actions),
        }
        return {NAME: grpc.method_handlers_generic_handler(NAME, methods)}

    # -- calls ----------------------------------------------------------------------------------

    def _handshake(self, _request: bytes, _call: Call) -> Iterator[bytes]:
        """Answer a client that has a user name and a password: the headers carry its key."""
        yield protocol.new("HandshakeResponse").SerializeToString()

    def _list_flights(self, _request: bytes, _call: Call) -> Iterator[bytes]:
        yield from ()

    def _list_actions(self, _request: bytes, call: Call) -> Iterator[bytes]:
        for name, description in (_ACTIONS | actions.list_actions(call.caller)).items():
            yield protocol.new("ActionType", type=name, description=description).SerializeToString()

    def _get_info(self, request: bytes, call: Call) -> bytes:
        descriptor = protocol.parse("FlightDescriptor", request)
        command = _read_command(descriptor.cmd)
        schema = self._describe(command, call)
        if command.DESCRIPTOR.name == "CommandStatementQuery":
            handle = _make_handle(command.query)
            ticket = protocol.wrap(protocol.new("TicketStatementQuery", statement_handle=handle))
        else:
            ticket = descriptor.cmd
        info = protocol.new(
            "FlightInfo",
            schema=encode_schema(schema),
            flight_descriptor=descriptor,
            total_records=-1,
            total_bytes=-1,
        )
        info.endpoint.add().ticket.ticket = ticket
        return bytes(info.SerializeToString())

    def _get_schema(self, request: bytes, call: Call) -> bytes:
        command = _read_command(protocol.parse("FlightDescriptor", request).cmd)
        schema = encode_schema(self._describe(command, call))
        return bytes(protocol.new("SchemaResult", schema=schema).SerializeToString())

    def _describe(self, command: Any, call: Call) -> pa.Schema:
        """Return the columns of a command's rows."""
        match command.DESCRIPTOR.name:
            case "CommandStatementQuery":
                return self._describe_sql(Bound(command.query, command.query), call)
            case "CommandPreparedStatementQuery":
                prepared, values = self._get_prepared(command.prepared_statement_handle)
                bound = prepared.bind(values) if values else prepared.bind_nothing()
                return self._describe_sql(bound, call)
        return self._look_up(command).schema

    def _describe_sql(self, bound: Bound, call: Call) -> pa.Schema:
        """Return the columns as the same call would get them with rows: clients compare both."""
        options = read_call_options(call.metadata, self._query_seconds)
        admin = options.admin and call.caller.may(Role.ADMIN)
        with bound.placed():
            schema = self._lake.queries.describe(
                bound.sql, admin=admin, timeout=options.query.get("timeout")
            )
        return show(schema, keep_dictionaries=options.keep_dictionaries)

    def _look_up(self, command: Any) -> pa.Table:
        """Return the rows of a command about the lake itself."""
        name = command.DESCRIPTOR.name
        if name in ("CommandGetTables", "CommandGetDbSchemas"):
            tables = self._lake.queries.list_tables()
            make = _metadata.list_tables if name == "CommandGetTables" else _metadata.schemas
            return make(tables, command)
        match name:
            case "CommandGetCatalogs":
                return _metadata.catalogs()
            case "CommandGetTableTypes":
                return _metadata.table_types()
            case "CommandGetPrimaryKeys":
                return _metadata.primary_keys()
            case "CommandGetSqlInfo":
                return _metadata.sql_info(command.info)
        raise Unsupported(f"{name} is not served")

    def _do_get(self, request: bytes, call: Call) -> Iterator[bytes]:
        ticket = protocol.parse("Ticket", request).ticket
        command = _read_ticket(ticket)
        options = read_call_options(call.metadata, self._query_seconds)
        name = command.DESCRIPTOR.name
        if name == "TicketStatementQuery":
            sql, handle = _read_handle(command.statement_handle), command.statement_handle
        elif name == "CommandPreparedStatementQuery":
            prepared, values = self._get_prepared(command.prepared_statement_handle)
            options.query["parameters"] = values
            sql, handle = prepared.sql, command.prepared_statement_handle
        elif name == "CommandStatementQuery":
            sql, handle = command.query, b""
        else:
            table = self._look_up(command)
            yield from encode_stream(table.schema, table.to_batches(), keep_dictionaries=True)
            return
        yield from self._run(sql, handle, call, options)

    def _run(self, sql: str, handle: bytes, call: Call, options: CallOptions) -> Iterator[bytes]:
        admin = options.admin and call.caller.may(Role.ADMIN)
        result = self._lake.queries.query(sql, admin=admin, **options.query)
        call.stop_with(result.cancel)
        if handle:
            with self._lock:
                self._running[handle] = result
        try:
            with result:
                note = msgspec.json.encode(result.explanation) if options.with_explanation else b""
                yield from encode_stream(
                    result.schema, result, keep_dictionaries=options.keep_dictionaries, note=note
                )
        finally:
            with self._lock:
                if self._running.get(handle) is result:  # not the same statement once more
                    del self._running[handle]

    def _do_action(self, request: bytes, call: Call) -> Iterator[bytes]:
        action = protocol.parse("Action", request)
        match action.type:
            case "CreatePreparedStatement":
                request_message = _unwrap(action.body, "ActionCreatePreparedStatementRequest")
                answer = self._prepare(request_message.query, call)
            case "ClosePreparedStatement":
                request_message = _unwrap(action.body, "ActionClosePreparedStatementRequest")
                with self._lock:
                    self._prepared.pop(request_message.prepared_statement_handle)
                return
            case "CancelFlightInfo":
                info = protocol.parse("CancelFlightInfoRequest", action.body).info
                self._cancel(info)
                answer = protocol.new("CancelFlightInfoResult", status=_CANCELLED)
                yield protocol.new("Result", body=answer.SerializeToString()).SerializeToString()
                return
            case "CancelQuery":
                request_message = _unwrap(action.body, "ActionCancelQueryRequest")
                self._cancel(protocol.parse("FlightInfo", request_message.info))
                answer = protocol.new("ActionCancelQueryResult", result=_CANCELLED)
            case _:
                for piece in actions.act(self._lake, call.caller, action.type, action.body):
                    yield protocol.new("Result", body=piece).SerializeToString()
                return
        yield protocol.new("Result", body=protocol.wrap(answer)).SerializeToString()

    def _prepare(self, sql: str, call: Call) -> Any:
        prepared = parameters.prepare(sql)
        schema = self._describe_sql(prepared.bind_nothing(), call)
        handle = _make_handle(sql)
        with self._lock:
            self._prepared.keep(handle, prepared, [], 0)
        return protocol.new(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=handle,
            dataset_schema=encode_stream_schema(schema),
            parameter_schema=encode_stream_schema(prepared.parameter_schema)
            if prepared.count
            else b"",
        )

    def _get_prepared(self, handle: bytes) -> tuple[parameters.Prepared, list[Any]]:
        """Return a prepared statement; its handle has the text if the server forgot it."""
        with self._lock:
            remembered = self._prepared.find(handle)
        return (parameters.prepare(_read_handle(handle)), []) if remembered is None else remembered

    def _cancel(self, info: Any) -> None:
        for endpoint in info.endpoint:
            command = protocol.unwrap(endpoint.ticket.ticket)
            handle: bytes = getattr(command, "statement_handle", b"") or getattr(
                command, "prepared_statement_handle", b""
            )
            with self._lock:
                running = self._running.get(handle)
            if running is not None:
                running.cancel()

    def _begin_put(self, request: bytes, call: Call) -> Callable[[list[bytes]], bytes]:
        """Return what takes the messages of a client, if it may send them."""
        command = _read_command(protocol.parse("FlightData", request).flight_descriptor.cmd)
        name = command.DESCRIPTOR.name
        if name == "CommandStatementIngest":
            call.caller.require(Role.INGEST)
            return lambda messages: self._ingest(command, messages)
        if name == "CommandPreparedStatementQuery":
            call.caller.require(Role.READ)
            return lambda messages: self._bind(command, messages)
        raise Unsupported(
            "statements cannot change anything here",
            hint="insert records by ingestion; administrators call functions in SELECT",
        )

    def _ingest(self, command: Any, messages: list[bytes]) -> bytes:
        database = command.schema or "public"
        self._require_append(command, database)
        rows = decode_stream(_read_put(messages))
        result = self._lake.tables.insert(database, command.table, rows)
        self._meters.records.labels("records").inc(result.rows)
        return _put_result(protocol.new("DoPutUpdateResult", record_count=result.rows))

    def _require_append(self, command: Any, database: str) -> None:
        """Raise unless the command adds rows to a table that exists."""
        if command.temporary:
            raise Unsupported("there are no temporary tables")
        if command.catalog not in ("", CATALOG):
            raise NotFound(f"there is no catalog {command.catalog}", hint=f"it is called {CATALOG}")
        if_exists = command.table_definition_options.if_exists
        if if_exists == _REPLACE:
            raise Unsupported(
                "a table is not replaced by ingestion", hint="delete and create it, then append"
            )
        if if_exists == _FAIL:
            self._lake.tables.get(database, command.table)
            raise Conflict(
                f"there is a table {database}.{command.table} already",
                hint='to add rows to it, ingest with mode="append"',
            )

    def _bind(self, command: Any, messages: list[bytes]) -> bytes:
        rows = decode_stream(_read_put(messages))
        if rows.num_rows > 1:
            raise BadInput("parameters are bound once at a time", hint="send one row")
        if rows.nbytes > MOST_BOUND_BYTES:
            raise PayloadTooLarge(f"parameters have more than {MOST_BOUND_BYTES >> 20} MiB")
        handle = command.prepared_statement_handle
        prepared, _ = self._get_prepared(handle)
        values = [_read_parameter(column[0]) for column in rows.columns] if rows.num_rows else []
        with self._lock:
            self._prepared.keep(handle, prepared, values, rows.nbytes)
        return _put_result(
            protocol.new("DoPutPreparedStatementResult", prepared_statement_handle=handle)
        )


def _make_authorization(call: Call) -> Headers:
    """Return the header that a client repeats with later calls: its key as a bearer token, or a
    placeholder if the server needs no keys."""
    secret = None
    if call.caller.has_key:
        metadata = {name.lower(): value for name, value in call.metadata}
        secret = parse_authorization(str(metadata.get("authorization", "")))
    return (("authorization", f"Bearer {secret or 'no-key'}"),)


def _read_parameter(value: pa.Scalar) -> Any:
    """Return a parameter as a Python value; nanoseconds stay Arrow's, because no datetime has
    them."""
    has_nanoseconds = pa.types.is_timestamp(value.type) and value.type.unit == "ns"
    return value if has_nanoseconds and value.is_valid else value.as_py()


def _put_result(answer: Any) -> bytes:
    put = protocol.new("PutResult", app_metadata=answer.SerializeToString())
    return bytes(put.SerializeToString())


def _unwrap(data: bytes, expected: str | None = None) -> Any:
    message = protocol.unwrap(data)
    if message is None:
        raise Unsupported("the command is not served")
    if expected is not None and message.DESCRIPTOR.name != expected:
        raise BadPayload(f"expected {expected}, got {message.DESCRIPTOR.name}")
    return message


_read_command = _unwrap


def _read_ticket(ticket: bytes) -> Any:
    """Return the command of a ticket, or the bare statement handle that older clients send."""
    try:
        message = protocol.unwrap(ticket)
    except DecodeError:
        message = None
    return message if message is not None else protocol.parse("TicketStatementQuery", ticket)


def _make_handle(sql: str) -> bytes:
    """Return a unique handle for a statement: its text with a comment, because some clients take a
    handle for the text and run it."""
    return f"{sql}\n-- {uuid.uuid4()}".encode()


def _read_handle(handle: bytes) -> str:
    """Return the statement of a handle, ours or one that a client made."""
    try:
        return handle.decode()
    except UnicodeDecodeError:
        raise BadPayload("the statement is no UTF-8 text") from None


def _read_put(messages: list[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the headers and bodies that a client put, and free each message once it is read."""
    messages.reverse()
    while messages:
        data = protocol.parse("FlightData", messages.pop())
        yield data.data_header, data.data_body
