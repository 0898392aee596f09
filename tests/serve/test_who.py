"""Who did it: what is changed over a server is journaled with the key's name, and whoever is turned
away is logged with it. Secrets are in neither.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import grpc
import pyarrow as pa
import pyarrow.flight as flight
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub

import lakebed
from lakebed import admin
from lakebed.access.keys import Role
from lakebed.catalog import journal
from lakebed.catalog.acting import find_askers, on_behalf_of
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.operations.actions import find_remote
from lakebed.operations.operation import PREFIX
from lakebed.samples.generator import Generator
from lakebed.wire import protocol
from tests.parts.data import HOUR, T0, publish_hour, readings
from tests.serve.parts import JSON, PROTOBUF, Served, serving
from tests.serve.test_flight import connect, get

RETIRE = (
    "SELECT retire_partition_by_metadata('readings', 'global', "
    "'2026-01-01T0{0}:00:00Z', '2026-01-01T0{1}:00:00Z', NULL, 'readings')"
)
RECORD = b'[{"time": "2026-01-01T00:00:00Z"}]'


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with init_lake(tmp_path_factory.mktemp("who") / "lake") as lake:
        lake.views.register(readings())
        for hour in range(2):
            publish_hour(lake, hour)
        lake.tables.create_database("home")
        lake.tables.create_table("home", "rings", {"time": "datetime"})
        yield lake


@pytest.fixture(scope="module")
def bearers(lake: Lake) -> dict[Role, dict[str, str]]:
    """Headers with a key of each role, whose name is that of the role."""
    made = {role: lake.keys.create(role.value, [role]).secret for role in Role}
    return {role: {"authorization": f"Bearer {secret}"} for role, secret in made.items()}


@pytest.fixture(scope="module")
def served(lake: Lake, bearers: object) -> Iterator[Served]:
    with serving(lake) as served:
        yield served


def last(lake: Lake, operation: str) -> str:
    with lake.catalog.read() as connection:
        return journal.list_entries(connection, limit=1, operations=[operation])[0].actor


def put(served: Served, headers: dict[str, str]) -> None:
    command = protocol.new("CommandStatementIngest", table="rings", schema="home")
    descriptor = flight.FlightDescriptor.for_command(protocol.wrap(command))
    options = flight.FlightCallOptions(
        headers=[(k.encode(), v.encode()) for k, v in headers.items()]
    )
    rows = pa.table({"time": ["2026-01-01T00:00:00Z"]})
    with connect(served) as client:
        writer, reader = client.do_put(descriptor, rows.schema, options)
        writer.write_table(rows)
        writer.done_writing()
        reader.read()
        writer.close()


def test_the_journal_names_the_key(
    lake: Lake, served: Served, bearers: dict[Role, dict[str, str]]
) -> None:
    own = lake.catalog.actor
    sender, boss = bearers[Role.INGEST], bearers[Role.ADMIN]
    assert last(lake, "create table") == own
    served.post("/v1/tables/home/rings", RECORD, JSON | sender)
    assert last(lake, journal.INSERTED) == f"key:ingest via {own}"
    put(served, boss)
    assert last(lake, journal.INSERTED) == f"key:admin via {own}"
    served.post("/v1/logs", Generator(1).logs(3).SerializeToString(), PROTOBUF | sender)
    assert last(lake, journal.LANDED) == f"key:ingest via {own}"
    with grpc.insecure_channel(served.otlp) as channel:
        LogsServiceStub(channel).Export(Generator(2).logs(3), metadata=tuple(boss.items()))
    assert last(lake, journal.LANDED) == f"key:admin via {own}"
    with connect(served) as client:
        get(client, RETIRE.format(0, 1), boss)
        assert last(lake, "retire") == f"key:admin via {own}"
        publish_hour(lake, 0)
        assert last(lake, "publish") == own
        built = "materialize_partitions('spans', '2026-01-01', '2026-01-02', 60)"
        get(client, f"SELECT * FROM {built}", boss)  # registers what a lake is born with
    assert last(lake, "view set created") == f"key:admin via {own}"
    publish_hour(lake, 3)
    with lakebed.connect(served.flight, key=boss["authorization"].split()[1]) as client:
        admin.retire_partitions(
            client, "readings", None, T0 + 3 * HOUR, T0 + 4 * HOUR, confirmed=["readings"]
        )
    assert last(lake, "retire") == f"key:admin via {own}"
    publish_hour(lake, 3)
    assert last(lake, "publish") == own
    served.post("/v1/query", RETIRE.format(1, 2).encode(), boss)
    assert last(lake, "retire") == f"key:admin via {own}"


def test_several_askers_are_named_but_not_without_end(lake: Lake) -> None:
    with on_behalf_of(*(f"key:{name}" for name in "abcd")):
        assert len(find_askers()) == 4
        lake.tables.insert("home", "rings", RECORD)
    assert last(lake, journal.INSERTED) == (
        f"key:a, key:b, key:c and 1 more via {lake.catalog.actor}"
    )
    assert find_askers() == ()


def test_flight_refuses_administration_with_keys_of_other_roles(
    lake: Lake, served: Served, bearers: dict[Role, dict[str, str]]
) -> None:
    """Each function that changes the lake, as an action and in a statement."""
    changing = [PREFIX + name for name, function in find_remote().items() if function.changes]
    partitions = lake.partitions.list_partitions("readings")
    assert len(changing) >= 5
    assert partitions
    retire_file = f"SELECT retire_partition_by_file('{partitions[0].file_path}')"
    with lake.catalog.read() as connection:
        before = journal.list_entries(connection, limit=1)
    with connect(served) as client:
        for role in (Role.READ, Role.INGEST):
            headers = [(k.encode(), v.encode()) for k, v in bearers[role].items()]
            options = flight.FlightCallOptions(headers=headers)
            for action in changing:
                with pytest.raises(flight.FlightUnauthorizedError):
                    list(client.do_action(flight.Action(action, b"{}"), options))
            for sql in (RETIRE.format(0, 1), retire_file):
                for wish in ({}, {"admin": "true"}):
                    with pytest.raises(flight.FlightUnauthorizedError):
                        get(client, sql, bearers[role] | wish)
        reader = [(k.encode(), v.encode()) for k, v in bearers[Role.READ].items()]
        listed = client.list_actions(flight.FlightCallOptions(headers=reader))
        assert not {action.type for action in listed} & set(changing)
        boss = [(k.encode(), v.encode()) for k, v in bearers[Role.ADMIN].items()]
        listed = client.list_actions(flight.FlightCallOptions(headers=boss))
        assert {action.type for action in listed} >= set(changing)
    with lake.catalog.read() as connection:
        assert journal.list_entries(connection, limit=1) == before
    assert lake.partitions.list_partitions("readings") == partitions


def test_who_is_turned_away_is_logged(
    served: Served,
    bearers: dict[Role, dict[str, str]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    reader, sender = bearers[Role.READ], bearers[Role.INGEST]
    caplog.set_level(logging.WARNING, "lakebed")
    assert served.post("/v1/tables/home/rings", RECORD, JSON | reader).status == 403
    assert served.post("/v1/query", RETIRE.format(0, 1).encode(), reader).status == 403
    with connect(served) as client:
        for sql, headers in ((RETIRE.format(0, 1), reader), ("SELECT 1", sender)):
            with pytest.raises(flight.FlightUnauthorizedError):
                get(client, sql, headers)
    with pytest.raises(flight.FlightUnauthorizedError):
        put(served, reader)
    wrong = {"authorization": "Bearer lakebed_000000000000_" + "x" * 43}
    assert served.post("/v1/query", b"SELECT 1", wrong).status == 401
    said = [
        (each.route, each.caller, each.getMessage())  # type: ignore[attr-defined]
        for each in caplog.records
        if each.getMessage().startswith("denied")
    ]
    of_function = "denied: function retire_partition_by_metadata needs the admin role"
    assert said == [
        ("tables", "key:read", "denied: the key of read is not for this"),
        ("query", "key:read", of_function),
        ("flight", "key:read", of_function),
        ("flight", "key:ingest", "denied: the key of ingest is not for this"),
        ("flight", "key:read", "denied: the key of read is not for this"),
        ("query", None, "denied: the key is not known, or was revoked"),
    ]
    everything = " ".join(str(vars(each)) for each in caplog.records)
    secrets = [each["authorization"].split()[1] for each in (reader, sender, wrong)]
    assert not any(secret in everything for secret in secrets)
