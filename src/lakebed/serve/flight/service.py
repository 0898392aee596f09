"""The Flight service: statements, prepared statements, what the lake has, records into tables, and
cancelling. A ticket may be the SQL itself, as micromegas' clients send it.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import grpc
import msgspec
import pyarrow as pa
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from lakebed.access.keys import Caller, Role
from lakebed.catalog.acting import on_behalf_of
from lakebed.client import protocol
from lakebed.errors import BadInput, BadPayload, PayloadTooLarge, Unsupported
from lakebed.query import parameters
from lakebed.query.parameters import Bound
from lakebed.query.result import Result
from lakebed.serve.calls import Gatekeeper
from lakebed.serve.flight import administration, metadata
from lakebed.serve.flight.encoding import (
    decode_stream,
    encode_schema,
    encode_stream,
    encode_stream_schema,
    show,
)
from lakebed.serve.flight.wishes import Wishes, read_wishes

if TYPE_CHECKING:
    from lakebed.lake import Lake

NAME = "arrow.flight.protocol.FlightService"
_MOST_PREPARED = 1000
_MOST_PUT_BYTES = 256 << 20
_ROUTE = "flight"
_CANCELLED = 1
_ACTIONS = {
    "CreatePreparedStatement": "plan a statement that may have parameters",
    "ClosePreparedStatement": "forget a prepared statement",
    "CancelFlightInfo": "stop a statement",
    "CancelQuery": "stop a statement",
}


class FlightService:
    """FlightSQL over one lake."""

    def __init__(self, lake: Lake, gate: Gatekeeper, query_seconds: float | None) -> None:
        self._lake = lake
        self._gate = gate
        self._query_seconds = query_seconds
        self._prepared: OrderedDict[bytes, tuple[parameters.Prepared, list[Any]]] = OrderedDict()
        self._running: dict[bytes, Result] = {}
        self._lock = threading.Lock()

    def handler(self) -> grpc.GenericRpcHandler:
        """What a gRPC server is given. Messages go in and out as bytes."""
        return grpc.method_handlers_generic_handler(
            NAME,
            {
                "Handshake": grpc.stream_stream_rpc_method_handler(self._stream(self._handshake)),
                "ListFlights": grpc.unary_stream_rpc_method_handler(
                    self._stream(self._list_flights)
                ),
                "GetFlightInfo": grpc.unary_unary_rpc_method_handler(self._unary(self._get_info)),
                "GetSchema": grpc.unary_unary_rpc_method_handler(self._unary(self._get_schema)),
                "DoGet": grpc.unary_stream_rpc_method_handler(self._stream(self._do_get)),
                "DoPut": grpc.stream_stream_rpc_method_handler(
                    self._stream(self._do_put, role=None)
                ),
                "DoAction": grpc.unary_stream_rpc_method_handler(self._stream(self._do_action)),
                "ListActions": grpc.unary_stream_rpc_method_handler(
                    self._stream(self._list_actions)
                ),
            },
        )

    # -- what every call shares -----------------------------------------------------------------

    def _unary(self, answer: Callable[[bytes, Caller], bytes]) -> Any:
        def call(request: bytes, context: grpc.ServicerContext) -> bytes:
            begun = time.perf_counter()
            caller = None
            try:
                caller = self._gate.identify(context)
                caller.require(Role.READ)
                answered = answer(request, caller)
            except Exception as error:  # noqa: BLE001  (told, logged and counted)
                self._gate.refuse(context, _as_ours(error), _ROUTE, caller)
                return b""
            self._note(begun)
            return answered

        return call

    def _stream(
        self,
        answer: Callable[[Any, Caller, grpc.ServicerContext], Iterator[bytes]],
        role: Role | None = Role.READ,
    ) -> Any:
        """Without a role, the request itself says which one it needs."""

        def call(request: Any, context: grpc.ServicerContext) -> Iterator[bytes]:
            begun = time.perf_counter()
            caller = None
            try:
                caller = self._gate.identify(context)
                if role is not None:
                    caller.require(role)
                yield from answer(request, caller, context)
            except GeneratorExit:
                raise
            except Exception as error:  # noqa: BLE001  (told, logged and counted)
                self._gate.refuse(context, _as_ours(error), _ROUTE, caller)
                return
            self._note(begun)

        return call

    def _note(self, begun: float) -> None:
        self._gate.meters.requests.labels(_ROUTE, "0").inc()
        self._gate.meters.seconds.labels(_ROUTE).observe(time.perf_counter() - begun)

    # -- calls ----------------------------------------------------------------------------------

    def _handshake(
        self, _requests: Iterator[bytes], _caller: Caller, _context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        """Nothing is agreed on: keys come with every call."""
        yield protocol.new("HandshakeResponse").SerializeToString()

    def _list_flights(
        self, _request: bytes, _caller: Caller, _context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        yield from ()

    def _list_actions(
        self, _request: bytes, caller: Caller, _context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        for name, description in (_ACTIONS | administration.list_actions(caller)).items():
            yield protocol.new("ActionType", type=name, description=description).SerializeToString()

    def _get_info(self, request: bytes, caller: Caller) -> bytes:
        descriptor = protocol.parse("FlightDescriptor", request)
        command = _read_command(descriptor.cmd)
        schema = self._describe(command, caller)
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

    def _get_schema(self, request: bytes, caller: Caller) -> bytes:
        command = _read_command(protocol.parse("FlightDescriptor", request).cmd)
        schema = encode_schema(self._describe(command, caller))
        return bytes(protocol.new("SchemaResult", schema=schema).SerializeToString())

    def _describe(self, command: Any, caller: Caller) -> pa.Schema:
        """The columns that a command gives."""
        match command.DESCRIPTOR.name:
            case "CommandStatementQuery":
                return self._describe_sql(Bound(command.query, command.query), caller)
            case "CommandPreparedStatementQuery":
                prepared, values = self._get_prepared(command.prepared_statement_handle)
                bound = prepared.bind(values) if values else prepared.bind_nothing()
                return self._describe_sql(bound, caller)
        return self._look_up(command).schema

    def _describe_sql(self, bound: Bound, caller: Caller) -> pa.Schema:
        with bound.placed():
            return show(self._lake.queries.describe(bound.sql, admin=caller.may(Role.ADMIN)))

    def _look_up(self, command: Any) -> pa.Table:
        """What a command that asks about the lake itself gives."""
        name = command.DESCRIPTOR.name
        if name in ("CommandGetTables", "CommandGetDbSchemas"):
            tables = self._lake.queries.list_tables()
            make = metadata.list_tables if name == "CommandGetTables" else metadata.schemas
            return make(tables, command)
        match name:
            case "CommandGetCatalogs":
                return metadata.catalogs()
            case "CommandGetTableTypes":
                return metadata.table_types()
            case "CommandGetPrimaryKeys":
                return metadata.primary_keys()
            case "CommandGetSqlInfo":
                return metadata.sql_info(command.info)
        raise Unsupported(f"{name} is not served")

    def _do_get(
        self, request: bytes, caller: Caller, context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        ticket = protocol.parse("Ticket", request).ticket
        command = _read_ticket(ticket)
        wishes = read_wishes(context.invocation_metadata(), self._query_seconds)
        name = command.DESCRIPTOR.name
        if name == "TicketStatementQuery":
            sql, handle = _read_handle(command.statement_handle), command.statement_handle
        elif name == "CommandPreparedStatementQuery":
            prepared, values = self._get_prepared(command.prepared_statement_handle)
            wishes.options["parameters"] = values
            sql, handle = prepared.sql, command.prepared_statement_handle
        elif name == "CommandStatementQuery":
            sql, handle = command.query, b""
        else:
            found = self._look_up(command)
            yield from encode_stream(found.schema, found.to_batches(), keep_dictionaries=True)
            return
        yield from self._run(sql, handle, caller, context, wishes)

    def _run(
        self,
        sql: str,
        handle: bytes,
        caller: Caller,
        context: grpc.ServicerContext,
        wishes: Wishes,
    ) -> Iterator[bytes]:
        admin = wishes.admin and caller.may(Role.ADMIN)
        with on_behalf_of(caller.asker):
            result = self._lake.queries.query(sql, admin=admin, **wishes.options)
        if not context.add_callback(result.cancel):  # the caller is gone already
            result.cancel()
        if handle:
            with self._lock:
                self._running[handle] = result
        try:
            with result:
                note = msgspec.json.encode(result.explanation) if wishes.with_explanation else b""
                yield from encode_stream(
                    result.schema, result, keep_dictionaries=wishes.keep_dictionaries, note=note
                )
        finally:
            with self._lock:
                if self._running.get(handle) is result:  # and not the same statement, once more
                    del self._running[handle]

    def _do_action(
        self, request: bytes, caller: Caller, _context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        action = protocol.parse("Action", request)
        match action.type:
            case "CreatePreparedStatement":
                answer = self._prepare(_unwrap(action.body).query, caller)
            case "ClosePreparedStatement":
                with self._lock:
                    self._prepared.pop(_unwrap(action.body).prepared_statement_handle, None)
                return
            case "CancelFlightInfo":
                info = protocol.parse("CancelFlightInfoRequest", action.body).info
                self._cancel(info)
                answer = protocol.new("CancelFlightInfoResult", status=_CANCELLED)
                yield protocol.new("Result", body=answer.SerializeToString()).SerializeToString()
                return
            case "CancelQuery":
                self._cancel(protocol.parse("FlightInfo", _unwrap(action.body).info))
                answer = protocol.new("ActionCancelQueryResult", result=_CANCELLED)
            case _:
                for piece in administration.act(self._lake, caller, action.type, action.body):
                    yield protocol.new("Result", body=piece).SerializeToString()
                return
        yield protocol.new("Result", body=protocol.wrap(answer)).SerializeToString()

    def _prepare(self, sql: str, caller: Caller) -> Any:
        prepared = parameters.prepare(sql)
        schema = self._describe_sql(prepared.bind_nothing(), caller)
        handle = _make_handle(sql)
        with self._lock:
            self._prepared[handle] = (prepared, [])
            while len(self._prepared) > _MOST_PREPARED:
                self._prepared.popitem(last=False)
        return protocol.new(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=handle,
            dataset_schema=encode_stream_schema(schema),
            parameter_schema=encode_stream_schema(prepared.parameter_schema)
            if prepared.count
            else b"",
        )

    def _get_prepared(self, handle: bytes) -> tuple[parameters.Prepared, list[Any]]:
        """A prepared statement; what a server has forgotten, its handle still says."""
        with self._lock:
            known = self._prepared.get(handle)
        return (parameters.prepare(_read_handle(handle)), []) if known is None else known

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

    def _do_put(
        self, requests: Iterator[bytes], caller: Caller, _context: grpc.ServicerContext
    ) -> Iterator[bytes]:
        first = protocol.parse("FlightData", next(requests, b""))
        command = _read_command(first.flight_descriptor.cmd)
        name = command.DESCRIPTOR.name
        if name == "CommandStatementIngest":
            caller.require(Role.INGEST)
            rows = decode_stream(_read_put(first, requests))
            with on_behalf_of(caller.asker):
                done = self._lake.tables.insert(command.schema or "public", command.table, rows)
            self._gate.meters.records.labels("records").inc(done.rows)
            answer = protocol.new("DoPutUpdateResult", record_count=done.rows)
        elif name == "CommandPreparedStatementQuery":
            caller.require(Role.READ)
            rows = decode_stream(_read_put(first, requests))
            if rows.num_rows > 1:
                raise BadInput("parameters are bound once at a time", hint="send one row")
            handle = command.prepared_statement_handle
            prepared, _ = self._get_prepared(handle)
            values = [column[0].as_py() for column in rows.columns] if rows.num_rows else []
            with self._lock:
                self._prepared[handle] = (prepared, values)
            answer = protocol.new("DoPutPreparedStatementResult", prepared_statement_handle=handle)
        else:
            raise Unsupported(
                "statements cannot change anything here",
                hint="insert records by ingestion; administrators call functions in SELECT",
            )
        yield protocol.new("PutResult", app_metadata=answer.SerializeToString()).SerializeToString()


def _as_ours(error: Exception) -> Exception:
    return BadPayload("the message is not understood") if isinstance(error, DecodeError) else error


def _unwrap(data: bytes) -> Any:
    message = protocol.unwrap(data)
    if message is None:
        raise Unsupported("the command is not served")
    return message


_read_command = _unwrap


def _read_ticket(ticket: bytes) -> Any:
    """A ticket: a command, or as older clients send it a bare statement handle."""
    try:
        message = protocol.unwrap(ticket)
    except DecodeError:
        message = None
    return message if message is not None else protocol.parse("TicketStatementQuery", ticket)


def _make_handle(sql: str) -> bytes:
    """A handle of its own for a statement: its text with a mark behind it. Some clients take a
    handle for the text itself, and run it."""
    return f"{sql}\n-- {uuid.uuid4()}".encode()


def _read_handle(handle: bytes) -> str:
    """The statement of a handle, ours or one that a client made itself."""
    try:
        return handle.decode()
    except UnicodeDecodeError:
        raise BadPayload("the statement is no UTF-8 text") from None


def _read_put(first: Any, rest: Iterator[bytes]) -> Iterator[tuple[bytes, bytes]]:
    """The headers and bodies that a client puts, up to a limit."""
    size = len(first.data_body)
    yield first.data_header, first.data_body
    for each in rest:
        data = protocol.parse("FlightData", each)
        size += len(data.data_body)
        if size > _MOST_PUT_BYTES:
            raise PayloadTooLarge(
                f"more than {_MOST_PUT_BYTES >> 20} MiB in one go", hint="put it in several"
            )
        yield data.data_header, data.data_body
