"""FlightSQL as clients speak it: Arrow's own Flight client with FlightSQL's messages, as those of
micromegas send them, and OTLP over gRPC from the real exporter's stub.
"""

from __future__ import annotations

import base64
import time
from typing import Any

import grpc
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub

from lakebed.access.keys import Role
from lakebed.errors import BadSql
from lakebed.lake import Lake
from lakebed.query.request import parameters
from lakebed.samples.generator import Generator
from lakebed.wire import protocol
from tests.parts.building import build, land
from tests.query.test_engine import ENDLESS
from tests.serve.parts import Served, serving


def get(
    client: flight.FlightClient,
    sql: str,
    headers: dict[str, str] | None = None,
    *,
    wrapped: bool = True,
) -> pa.Table:
    """As micromegas asks: the ticket is the statement."""
    message = protocol.new("TicketStatementQuery", statement_handle=sql.encode())
    ticket = protocol.wrap(message) if wrapped else message.SerializeToString()
    options = flight.FlightCallOptions(
        headers=[(k.encode(), v.encode()) for k, v in (headers or {}).items()]
    )
    return client.do_get(flight.Ticket(ticket), options).read_all()


def ask(client: flight.FlightClient, name: str, **fields: Any) -> pa.Table:
    """A command by way of its description, as drivers do."""
    descriptor = flight.FlightDescriptor.for_command(protocol.wrap(protocol.new(name, **fields)))
    info = client.get_flight_info(descriptor)
    rows = client.do_get(info.endpoints[0].ticket).read_all()
    assert rows.schema.names == info.schema.names
    return rows


def connect(served: Served) -> flight.FlightClient:
    return flight.FlightClient(served.flight)


def test_a_ticket_may_be_the_statement(lake: Lake) -> None:
    land(lake)
    build(lake)
    land(lake, seed=2)
    with serving(lake) as served, connect(served) as client:
        for wrapped in (True, False):
            rows = get(client, "SELECT count(*) AS n FROM log_entries", wrapped=wrapped)
            assert rows.to_pydict() == {"n": [40]}
        empty = get(client, "SELECT msg FROM log_entries WHERE false")
        assert (empty.num_rows, empty.schema.names) == (0, ["msg"])
        assert empty.schema.field("msg").type == pa.string()


def test_headers_give_range_limit_and_dictionaries(lake: Lake) -> None:
    land(lake, requests=2)
    with serving(lake) as served, connect(served) as client:
        sql = "SELECT arrow_cast(msg, 'Dictionary(Int32, Utf8)') AS m FROM log_entries"
        assert get(client, sql, {"limit": "3"}).num_rows == 3
        never = {"query_range_begin": "2000-01-01T00:00:00+00:00"}
        assert get(client, sql, never).num_rows == 40
        assert get(client, sql, {"query_range_begin": "2200-01-01T00:00:00Z"}).num_rows == 0
        assert get(client, sql, {"query_range_end": "2000-01-01T00:00:00Z"}).num_rows == 0
        for wrong in ({"query_range_end": "soon"}, {"stale": "yes"}, {"admin": "1"}):
            with pytest.raises(pa.ArrowInvalid, match=next(iter(wrong.values()))):
                get(client, sql, wrong)
        never["query_range_end"] = "2000-01-02T00:00:00Z"
        assert get(client, sql, never).num_rows == 0
        assert get(client, sql).schema.field("m").type == pa.string()
        kept = get(client, sql, {"preserve_dictionary": "true"})
        assert pa.types.is_dictionary(kept.schema.field("m").type)
        with pytest.raises(pa.ArrowInvalid, match="limit"):
            get(client, sql, {"limit": "many"})


def test_errors_have_codes_and_no_traceback(lake: Lake) -> None:
    with serving(lake) as served, connect(served) as client:
        with pytest.raises(pa.ArrowInvalid, match="line 1, column") as refused:
            get(client, "SELECT nothing FROM log_entries")
        assert "Traceback" not in str(refused.value)
        with pytest.raises(NotImplementedError):
            list(client.do_action(flight.Action("Nonsense", b"")))
        other = protocol.wrap(protocol.new("CommandGetCatalogs"))
        for name in ("CreatePreparedStatement", "ClosePreparedStatement", "CancelQuery"):
            with pytest.raises(pa.ArrowInvalid, match="got CommandGetCatalogs"):
                list(client.do_action(flight.Action(name, other)))
        with pytest.raises(pa.ArrowInvalid):
            client.do_get(flight.Ticket(b"\xff\xff\xff")).read_all()
        assert get(client, "SELECT 1 AS one").to_pydict() == {"one": [1]}


def test_basic_handshake_without_keys_answers_with_an_authorization_header(lake: Lake) -> None:
    with serving(lake) as served, connect(served) as client:
        header = client.authenticate_basic_token("anybody", "secret")
        assert header == (b"authorization", b"Bearer no-key")
        assert get(client, "SELECT 1 AS one", {"authorization": "Bearer no-key"}).num_rows == 1


@pytest.mark.parametrize("role", [Role.INGEST, Role.READ])
def test_basic_handshake_takes_the_key_as_password(lake: Lake, role: Role) -> None:
    secret = lake.keys.create("dashboard", [role]).secret
    with serving(lake) as served, connect(served) as client:
        header = client.authenticate_basic_token("anybody", secret)
        assert header == (b"authorization", f"Bearer {secret}".encode())
        with pytest.raises(flight.FlightUnauthenticatedError, match="not known"):
            client.authenticate_basic_token("anybody", "wrong")


def test_basic_credentials_are_accepted_on_any_flight_call(lake: Lake) -> None:
    secret = lake.keys.create("dashboard", [Role.READ]).secret
    with serving(lake) as served, connect(served) as client:
        for password in (secret, "wrong", ""):
            basic = base64.b64encode(f"anybody:{password}".encode()).decode()
            headers = {"authorization": f"Basic {basic}"}
            if password == secret:
                assert get(client, "SELECT 1 AS one", headers).num_rows == 1
            else:
                with pytest.raises(flight.FlightUnauthenticatedError, match="key"):
                    get(client, "SELECT 1 AS one", headers)
        with pytest.raises(flight.FlightUnauthenticatedError, match="base64"):
            get(client, "SELECT 1 AS one", {"authorization": "Basic ???"})


def test_statements_by_way_of_their_description(lake: Lake) -> None:
    land(lake)
    with serving(lake) as served, connect(served) as client:
        rows = ask(client, "CommandStatementQuery", query="SELECT count(*) AS n FROM log_entries")
        assert rows.to_pydict() == {"n": [20]}


def test_prepared_statements_with_parameters(lake: Lake) -> None:
    with serving(lake) as served, connect(served) as client:
        request = protocol.new(
            "ActionCreatePreparedStatementRequest", query="SELECT ? AS a, 'a?b' AS b, ? AS c"
        )
        (answer,) = client.do_action(
            flight.Action("CreatePreparedStatement", protocol.wrap(request))
        )
        made = protocol.unwrap(answer.body.to_pybytes())
        assert len(pa.ipc.open_stream(made.parameter_schema).schema) == 2
        assert pa.ipc.open_stream(made.dataset_schema).schema.names == ["a", "b", "c"]
        command = protocol.wrap(
            protocol.new(
                "CommandPreparedStatementQuery",
                prepared_statement_handle=made.prepared_statement_handle,
            )
        )
        descriptor = flight.FlightDescriptor.for_command(command)
        values = pa.table({"1": ["it's"], "2": [7]})
        writer, reader = client.do_put(descriptor, values.schema)
        writer.write_table(values)
        writer.done_writing()
        assert reader.read() is not None
        writer.close()
        info = client.get_flight_info(descriptor)
        rows = client.do_get(info.endpoints[0].ticket).read_all()
        assert rows.to_pylist() == [{"a": "it's", "b": "a?b", "c": 7}]
        close = protocol.new(
            "ActionClosePreparedStatementRequest",
            prepared_statement_handle=made.prepared_statement_handle,
        )
        assert (
            list(client.do_action(flight.Action("ClosePreparedStatement", protocol.wrap(close))))
            == []
        )


def test_values_of_parameters_are_never_sql() -> None:
    prepared = parameters.prepare("SELECT $1, '$1', \"$2\", $2 -- $3\n, $1 /* ? */")
    assert prepared.count == 2
    assert prepared.bind(["'; DROP", None]).sql == (
        "SELECT '''; DROP', '$1', \"$2\", NULL -- $3\n, '''; DROP' /* ? */"
    )
    with pytest.raises(BadSql, match="2 parameters"):
        prepared.bind([1])
    with pytest.raises(BadSql, match="mixes"):
        parameters.prepare("SELECT ?, $1")


def test_what_the_lake_has_is_told(lake: Lake) -> None:
    lake.tables.create_database("home")
    lake.tables.create_table("home", "rings", {"time": "datetime", "bpm": "int"})
    with serving(lake) as served, connect(served) as client:
        assert ask(client, "CommandGetCatalogs").to_pydict() == {"catalog_name": ["lake"]}
        schemas = ask(client, "CommandGetDbSchemas")["db_schema_name"].to_pylist()
        assert schemas == ["home", "public"]
        assert ask(client, "CommandGetTableTypes")["table_type"].to_pylist() == ["TABLE"]
        tables = ask(client, "CommandGetTables", include_schema=True)
        names = tables["table_name"].to_pylist()
        assert {"log_entries", "spans", "rings"} <= set(names)
        place = names.index("rings")
        columns = pa.ipc.read_schema(pa.py_buffer(tables["table_schema"][place].as_py()))
        assert columns.names == ["time", "bpm", "partition_date"]
        some = ask(
            client, "CommandGetTables", table_name_filter_pattern="log\\_%".replace("\\", "")
        )
        assert set(some["table_name"].to_pylist()) == {"log_entries", "log_stats"}
        none = ask(client, "CommandGetTables", catalog="other")
        assert none.num_rows == 0
        info = ask(client, "CommandGetSqlInfo", info=[0, 3]).to_pylist()
        assert [each["value"] for each in info] == ["Lakebed", True]
        assert ask(client, "CommandGetPrimaryKeys", table="rings").num_rows == 0


def test_records_are_put_into_tables(lake: Lake) -> None:
    lake.tables.create_database("home")
    lake.tables.create_table("home", "rings", {"time": "datetime", "bpm": "int"})
    rows = pa.table({"time": ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"], "bpm": [60, None]})
    with serving(lake) as served, connect(served) as client:
        command = protocol.new("CommandStatementIngest", table="rings", schema="home")
        descriptor = flight.FlightDescriptor.for_command(protocol.wrap(command))
        writer, reader = client.do_put(descriptor, rows.schema)
        writer.write_table(rows)
        writer.done_writing()
        done = protocol.parse("DoPutUpdateResult", reader.read().to_pybytes())
        writer.close()
        assert done.record_count == 2
        assert get(client, "SELECT count(*) AS n FROM home.rings").to_pydict() == {"n": [2]}


def test_a_client_that_goes_away_stops_its_statement(lake: Lake) -> None:
    ticket = protocol.wrap(protocol.new("TicketStatementQuery", statement_handle=ENDLESS.encode()))
    with serving(lake) as served, connect(served) as client:
        reader = client.do_get(flight.Ticket(ticket))
        reader.cancel()
        with pytest.raises((KeyboardInterrupt, flight.FlightCancelledError)):  # as pyarrow has it
            reader.read_all()
        assert get(client, "SELECT 1 AS one").num_rows == 1
        deadline = time.monotonic() + 300
        while lake.leases._pins and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not lake.leases._pins


def test_keys_are_needed_for_each_call(lake: Lake) -> None:
    secrets = {role: lake.keys.create(role.value, [role]).secret for role in Role}
    body = Generator(1).logs(5)
    with serving(lake) as served, connect(served) as client:

        def bearer(role: Role) -> dict[str, str]:
            return {"authorization": f"Bearer {secrets[role]}"}

        for headers in ({}, {"authorization": "Bearer no"}):
            with pytest.raises(flight.FlightUnauthenticatedError):
                get(client, "SELECT 1", headers)
        with pytest.raises(flight.FlightUnauthorizedError):
            get(client, "SELECT 1", bearer(Role.INGEST))
        assert get(client, "SELECT 1 AS one", bearer(Role.READ)).num_rows == 1
        assert get(client, "SELECT 1 AS one", bearer(Role.ADMIN)).num_rows == 1
        with grpc.insecure_channel(served.otlp) as channel:
            stub = LogsServiceStub(channel)
            for headers, code in (
                ({}, grpc.StatusCode.UNAUTHENTICATED),
                (bearer(Role.READ), grpc.StatusCode.PERMISSION_DENIED),
            ):
                with pytest.raises(grpc.RpcError) as refused:
                    stub.Export(body, metadata=tuple(headers.items()))
                assert refused.value.code() == code
            stub.Export(body, metadata=tuple(bearer(Role.INGEST).items()))
    assert lake.query("SELECT count(*) AS n FROM log_entries").to_arrow()["n"].to_pylist() == [5]


def test_otlp_over_grpc(lake: Lake) -> None:
    with serving(lake) as served, grpc.insecure_channel(served.otlp) as channel:
        answer = LogsServiceStub(channel).Export(Generator(1).logs(30))
        assert not answer.HasField("partial_success")
        raw = channel.unary_unary(
            "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
            request_serializer=lambda data: data,
            response_deserializer=lambda data: data,
        )
        with pytest.raises(grpc.RpcError) as refused:
            raw(b"\xff\xff\xff")
        assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT
        health = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=lambda data: data,
            response_deserializer=lambda data: data,
        )
        assert health(b"") == b"\x08\x01"
    assert lake.query("SELECT count(*) AS n FROM log_entries").to_arrow()["n"].to_pylist() == [30]
