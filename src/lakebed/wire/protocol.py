"""The messages of Arrow Flight, FlightSQL and google.rpc that server and client need: names,
numbers and types of their fields, which are the protocol. Their classes are made on import: no
package brings generated ones for Python, and to generate them takes protoc and more lines than
this table has.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import (  # type: ignore[import-untyped]
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    message_factory,
)

_FLIGHT, _SQL = "arrow.flight.protocol", "arrow.flight.protocol.sql"
_RPC = "google.rpc"
_TYPES = {
    "bytes": descriptor_pb2.FieldDescriptorProto.TYPE_BYTES,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "int64": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "uint64": descriptor_pb2.FieldDescriptorProto.TYPE_UINT64,
    "int32": descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    "uint32": descriptor_pb2.FieldDescriptorProto.TYPE_UINT32,
}
_Fields = dict[str, tuple[int, str]]
"""By name: number and type. A type may be ``repeated``, ``optional`` or another message's name."""

_FLIGHT_MESSAGES: dict[str, _Fields] = {
    "HandshakeResponse": {"protocol_version": (1, "uint64"), "payload": (2, "bytes")},
    "ActionType": {"type": (1, "string"), "description": (2, "string")},
    "Action": {"type": (1, "string"), "body": (2, "bytes")},
    "Result": {"body": (1, "bytes")},
    "SchemaResult": {"schema": (1, "bytes")},
    "FlightDescriptor": {
        "type": (1, "int32"),
        "cmd": (2, "bytes"),
        "path": (3, "repeated string"),
    },
    "Ticket": {"ticket": (1, "bytes")},
    "Location": {"uri": (1, "string")},
    "FlightEndpoint": {"ticket": (1, "Ticket"), "location": (2, "repeated Location")},
    "FlightInfo": {
        "schema": (1, "bytes"),
        "flight_descriptor": (2, "FlightDescriptor"),
        "endpoint": (3, "repeated FlightEndpoint"),
        "total_records": (4, "int64"),
        "total_bytes": (5, "int64"),
        "ordered": (6, "bool"),
    },
    "FlightData": {
        "flight_descriptor": (1, "FlightDescriptor"),
        "data_header": (2, "bytes"),
        "app_metadata": (3, "bytes"),
        "data_body": (1000, "bytes"),
    },
    "PutResult": {"app_metadata": (1, "bytes")},
    "CancelFlightInfoRequest": {"info": (1, "FlightInfo")},
    "CancelFlightInfoResult": {"status": (1, "int32")},
}
_SQL_MESSAGES: dict[str, _Fields] = {
    "CommandGetSqlInfo": {"info": (1, "repeated uint32")},
    "CommandGetCatalogs": {},
    "CommandGetDbSchemas": {
        "catalog": (1, "optional string"),
        "db_schema_filter_pattern": (2, "optional string"),
    },
    "CommandGetTables": {
        "catalog": (1, "optional string"),
        "db_schema_filter_pattern": (2, "optional string"),
        "table_name_filter_pattern": (3, "optional string"),
        "table_types": (4, "repeated string"),
        "include_schema": (5, "bool"),
    },
    "CommandGetTableTypes": {},
    "CommandGetPrimaryKeys": {
        "catalog": (1, "optional string"),
        "db_schema": (2, "optional string"),
        "table": (3, "string"),
    },
    "CommandStatementQuery": {"query": (1, "string"), "transaction_id": (2, "optional bytes")},
    "TicketStatementQuery": {"statement_handle": (1, "bytes")},
    "CommandPreparedStatementQuery": {"prepared_statement_handle": (1, "bytes")},
    "CommandPreparedStatementUpdate": {"prepared_statement_handle": (1, "bytes")},
    "CommandStatementUpdate": {"query": (1, "string"), "transaction_id": (2, "optional bytes")},
    "TableDefinitionOptions": {"if_not_exist": (1, "int32"), "if_exists": (2, "int32")},
    "CommandStatementIngest": {
        "table_definition_options": (1, "TableDefinitionOptions"),
        "table": (2, "string"),
        "schema": (3, "optional string"),
        "catalog": (4, "optional string"),
        "temporary": (5, "bool"),
    },
    "DoPutUpdateResult": {"record_count": (1, "int64")},
    "DoPutPreparedStatementResult": {"prepared_statement_handle": (1, "optional bytes")},
    "ActionCreatePreparedStatementRequest": {
        "query": (1, "string"),
        "transaction_id": (2, "optional bytes"),
    },
    "ActionCreatePreparedStatementResult": {
        "prepared_statement_handle": (1, "bytes"),
        "dataset_schema": (2, "bytes"),
        "parameter_schema": (3, "bytes"),
    },
    "ActionClosePreparedStatementRequest": {"prepared_statement_handle": (1, "bytes")},
    "ActionCancelQueryRequest": {"info": (1, "bytes")},
    "ActionCancelQueryResult": {"result": (1, "int32")},
}
_RPC_MESSAGES: dict[str, _Fields] = {
    "Detail": {"type_url": (1, "string"), "value": (2, "bytes")},  # an Any
    "Status": {"code": (1, "int32"), "message": (2, "string"), "details": (3, "repeated Detail")},
    "Entry": {"key": (1, "string"), "value": (2, "string")},  # of a map
    "ErrorInfo": {
        "reason": (1, "string"),
        "domain": (2, "string"),
        "metadata": (3, "repeated Entry"),
    },
    "Duration": {"seconds": (1, "int64"), "nanos": (2, "int32")},
    "RetryInfo": {"retry_delay": (1, "Duration")},
}
"""Details of errors."""


def _describe(package: str, messages: dict[str, _Fields]) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name=f"lakebed/{package}.proto", package=package, syntax="proto3"
    )
    for name, fields in messages.items():
        message = file.message_type.add(name=name)
        for field_name, (number, kind) in fields.items():
            label, _, kind = kind.rpartition(" ")
            field = message.field.add(name=field_name, number=number)
            field.label = (
                descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
                if label == "repeated"
                else descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
            )
            if kind in _TYPES:
                field.type = _TYPES[kind]
            else:
                field.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
                field.type_name = f".{package}.{kind}"
            if label == "optional":
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field_name}")
    return file


def _make() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    classes = {}
    for package, messages in (
        (_FLIGHT, _FLIGHT_MESSAGES),
        (_SQL, _SQL_MESSAGES),
        (_RPC, _RPC_MESSAGES),
    ):
        pool.Add(_describe(package, messages))
        for name in messages:
            descriptor = pool.FindMessageTypeByName(f"{package}.{name}")
            classes[name] = message_factory.GetMessageClass(descriptor)
    return classes


_CLASSES = _make()


def new(name: str, **fields: Any) -> Any:
    """Return a message of this name."""
    return _CLASSES[name](**fields)


def parse(name: str, data: bytes) -> Any:
    """Return the message that some bytes encode; raise `DecodeError` if they do not."""
    return _CLASSES[name].FromString(data)


def wrap(message: Any) -> bytes:
    """Return a message as FlightSQL sends it: with its type."""
    name = message.DESCRIPTOR.full_name
    packed = any_pb2.Any(type_url=f"type.googleapis.com/{name}", value=message.SerializeToString())
    return bytes(packed.SerializeToString())


def unwrap(data: bytes) -> Any:
    """Return a FlightSQL message, or None if its type is not in the table."""
    packed = any_pb2.Any.FromString(data)
    package, _, name = packed.type_url.rpartition("/")[2].rpartition(".")
    if package != _SQL or name not in _SQL_MESSAGES:
        return None
    return parse(name, packed.value)
