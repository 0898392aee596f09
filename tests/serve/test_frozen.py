"""A catalog or a store that hangs: requests fail in time, nothing is done twice, and the server
works again once the catalog responds. A real PostgreSQL and a real S3 server run behind a proxy
that can stop forwarding. Limits are short only while it does: a busy machine fails no request.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pyarrow.flight as flight
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub

from lakebed.access.keys import Keys, Role
from lakebed.catalog.connections import silence
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.samples.generator import Generator
from lakebed.serve import health
from lakebed.views.builtin import built_in
from lakebed.wire import protocol
from tests.parts.freezing import Freezer, freezing_http
from tests.serve.parts import PROTOBUF, Served, serving
from tests.serve.test_starving import wait_until

COUNT = "SELECT count(*) AS n FROM log_entries"
ALL_ROLES = ("ingest", "query", "web")


@contextmanager
def frozen(freezer: Freezer) -> Iterator[None]:
    """Stop the server behind the proxy, and shorten the limits after which requests fail."""
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr(health, "_UNASKED_SECONDS", 0.2)
        limits.setattr(health, "_PATIENCE_SECONDS", 0.5)
        limits.setattr(silence, "SILENT_SECONDS", 1.0)
        freezer.freeze()
        yield
    freezer.thaw()


@pytest.fixture
def lake(freezer: Freezer, tmp_path: Path) -> Iterator[Lake]:
    with init_lake(catalog=freezer.url, store=f"file://{tmp_path}/store") as lake:
        lake.views.ensure(built_in())
        lake.tables.create_database("home")
        lake.tables.create_table("home", "rings", {"time": "datetime", "bpm": "int"})
        yield lake
        freezer.thaw()


def logs(seed: int) -> bytes:
    return bytes(Generator(seed).logs(2).SerializeToString())


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def insert(served: Served, key: str | None = None) -> tuple[int, str]:
    headers = {} if key is None else {"Idempotency-Key": key}
    body = b'[{"time": "2026-11-16T05:00:00Z", "bpm": 61}]'
    answer = served.post("/v1/tables/home/rings", body, headers)
    return answer.status, answer.json().get("error", {}).get("message", "")


def export(served: Served, **options: Any) -> grpc.StatusCode:
    with grpc.insecure_channel(served.otlp) as channel:
        try:
            LogsServiceStub(channel).Export(Generator(9).logs(2), timeout=300, **options)
        except grpc.RpcError as refused:
            return refused.code()
    return grpc.StatusCode.OK


def read(served: Served, sql: str = COUNT) -> None:
    handle = protocol.new("TicketStatementQuery", statement_handle=sql.encode())
    with flight.FlightClient(served.flight) as client:
        client.do_get(flight.Ticket(protocol.wrap(handle))).read_all()


def prepare(served: Served, sql: str = COUNT) -> None:
    command = protocol.wrap(protocol.new("CommandStatementQuery", query=sql))
    with flight.FlightClient(served.flight) as client:
        client.get_flight_info(flight.FlightDescriptor.for_command(command))


def test_callers_are_told_in_time_and_all_goes_on_afterwards(lake: Lake, freezer: Freezer) -> None:
    lake.keys = Keys(lake.catalog, now=lambda: 0.0)  # the server never looks for a first key again
    with serving(lake, roles=ALL_ROLES) as served, ThreadPoolExecutor() as pool:
        assert served.post("/v1/logs", logs(1), PROTOBUF).status == 200
        with frozen(freezer):
            landed = pool.submit(served.post, "/v1/logs", logs(2), PROTOBUF)
            inserted = pool.submit(insert, served)
            keyed = pool.submit(insert, served, "a key")
            exported = pool.submit(export, served)
            queried = pool.submit(served.post, "/v1/query", COUNT.encode())
            page = pool.submit(served.ask, "GET", "/lake")
            refusals = [pool.submit(read, served), pool.submit(prepare, served)]
            meters = pool.submit(served.ask, "GET", "/metrics")
            for answer in (landed, queried, page):
                assert answer.result().status == 503
            assert landed.result().headers["retry-after"] == "2"
            assert landed.result().headers["content-type"] == PROTOBUF["Content-Type"]
            assert inserted.result() == (503, "the catalog went away, and it may have happened")
            assert keyed.result() == (503, "the catalog or the store does not answer")
            assert exported.result() == grpc.StatusCode.UNAVAILABLE
            for refused in refusals:
                with pytest.raises(flight.FlightUnavailableError, match="does not answer"):
                    refused.result()
            assert meters.result().status == 200
            assert b"lakebed_catalog_up 0.0" in meters.result().body
            assert b"lakebed_records_total" in meters.result().body
            assert served.ask("GET", "/livez").status == 200
            assert served.ask("GET", "/readyz").status == 503

        wait_until(lambda: served.ask("GET", "/readyz").status == 200)
        assert served.post("/v1/logs", logs(2), PROTOBUF).status == 200  # as its sender does
        assert export(served) == grpc.StatusCode.OK
        assert served.query(COUNT) == [{"n": 6}]
        assert insert(served, "a key")[0] == 200
        assert b"lakebed_catalog_up 1.0" in served.ask("GET", "/metrics").body


def test_keys_that_cannot_be_looked_up_are_not_refused(
    lake: Lake, freezer: Freezer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakebed.access.keys._CACHE_SECONDS", 0.0)
    key = lake.keys.create("sender", [Role.INGEST]).secret
    reader, unseen = (lake.keys.create(name, [Role.READ]).secret for name in ("seen", "unseen"))
    with serving(lake) as served:
        assert served.ask("GET", "/metrics", headers=bearer(reader)).status == 200
        with frozen(freezer):
            meters = served.ask("GET", "/metrics", headers=bearer(reader))
            assert meters.status == 200
            assert b"lakebed_catalog_up 0.0" in meters.body
            assert served.ask("GET", "/metrics", headers=bearer(unseen)).status == 503
            assert served.ask("GET", "/metrics", headers=bearer(f"{reader}x")).status == 503
            assert served.post("/v1/logs", logs(1), PROTOBUF | bearer(key)).status == 503
            metadata = [("authorization", f"Bearer {key}")]
            assert export(served, metadata=metadata) == grpc.StatusCode.UNAVAILABLE


def test_dead_connections_are_replaced_while_the_catalog_responds(
    lake: Lake, freezer: Freezer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(silence, "SILENT_SECONDS", 1.0)
    with serving(lake) as served:
        assert served.post("/v1/logs", logs(1), PROTOBUF).status == 200
        freezer.forget()
        assert served.ask("GET", "/readyz").status == 200
        wait_until(lambda: served.post("/v1/logs", logs(2), PROTOBUF).status == 200)
        wait_until(lambda: served.query(COUNT) == [{"n": 4}])


def test_a_store_that_says_nothing_is_told_of_too(
    s3_bucket: str, s3_endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with freezing_http(s3_endpoint) as freezer:
        monkeypatch.setenv("AWS_ENDPOINT_URL", freezer.url)
        with init_lake(tmp_path / "lake", store=f"s3://{s3_bucket}/lake") as lake:
            lake.views.ensure(built_in())
            with serving(lake) as served, ThreadPoolExecutor() as pool:
                assert served.post("/v1/logs", logs(1), PROTOBUF).status == 200
                with frozen(freezer):
                    landed = pool.submit(served.post, "/v1/logs", logs(2), PROTOBUF)
                    exported = pool.submit(export, served)
                    assert landed.result().status == 503
                    assert exported.result() == grpc.StatusCode.UNAVAILABLE
                wait_until(lambda: served.ask("GET", "/readyz").status == 200)
                assert served.post("/v1/logs", logs(2), PROTOBUF).status == 200
                assert export(served) == grpc.StatusCode.OK
                assert served.query(COUNT) == [{"n": 6}]


def test_long_statement_is_not_an_outage(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The probes of catalog and store succeed while the statement runs, however frequent."""
    monkeypatch.setattr(health, "_UNASKED_SECONDS", 0.01)
    monkeypatch.setattr(health, "_PATIENCE_SECONDS", 300)
    long = (
        "SELECT count(*) AS n FROM range(30000) a, range(30000) b WHERE a.value % 7 = b.value % 5"
    )
    with serving(lake) as served:
        assert served.post("/v1/query", long.encode()).status == 200
