"""OTLP and records in, SQL out, over real connections: what is acknowledged is there, and what is
refused is refused in the words and the encoding of the sender.
"""

from __future__ import annotations

import base64
import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pyarrow as pa
import pytest
from google.rpc import status_pb2
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from lakebed.access.keys import Role
from lakebed.catalog.records import blocks
from lakebed.errors import BadInput, Refused, Unavailable
from lakebed.lake import Lake
from lakebed.samples.generator import Generator
from lakebed.serve.limits import ServerSettings
from lakebed.serve.server import Listening, Server, require_guarded
from tests.parts.building import build
from tests.query.test_engine import ENDLESS
from tests.serve.parts import JSON, PROTOBUF, Answer, serving
from tests.serve.test_bodies import CODECS

ARROW = "application/vnd.apache.arrow.stream"

COUNT = "SELECT count(*) AS n FROM log_entries"


SIGNALS = pytest.mark.parametrize(
    ("held", "signal", "name"),
    [("logs", "traces", "resourceLogs"), ("metrics", "logs", "resourceMetrics")],
)


def test_what_is_acknowledged_is_there(lake: Lake) -> None:
    generator = Generator(1)
    with serving(lake) as served:
        plain = served.post("/v1/logs", generator.logs(30).SerializeToString(), PROTOBUF)
        assert (plain.status, plain.body) == (200, b"")
        assert plain.headers["content-type"] == "application/x-protobuf"
        body = generator.logs(20).SerializeToString()
        assert served.post("/v1/logs", body, PROTOBUF, zipped=True).status == 200
        assert served.post("/v1/logs", body, PROTOBUF).status == 200  # a retry counts once
        assert served.query(COUNT) == [{"n": 50}]
        for signal, table in (("metrics", "measures"), ("traces", "spans")):
            sent = generator.make(signal, 10).SerializeToString()  # type: ignore[arg-type]
            assert served.post(f"/v1/{signal}", sent, PROTOBUF).status == 200
            assert served.query(f"SELECT count(*) AS n FROM {table}") == [{"n": 10}]
        empty = served.post("/v1/logs", b"", PROTOBUF)
        assert empty.status == 200


@SIGNALS
def test_a_json_request_of_another_signal_is_refused(
    lake: Lake, held: str, signal: str, name: str
) -> None:
    """It would be acknowledged, and nothing of it stored."""
    with serving(lake) as served:
        body = json.dumps({name: [{}]}).encode()
        refused = served.post(f"/v1/{signal}", body, JSON)
        assert refused.status == 400
        assert refused.json()["message"] == f"the request holds {held}, not {signal}"
        for nothing in (b"{}", b'{"another": 1}'):
            assert served.post(f"/v1/{signal}", nothing, JSON).status == 200


def test_json_is_answered_in_json(lake: Lake) -> None:
    record = {"timeUnixNano": "1700000000000000000", "body": {"stringValue": "hello"}}
    request = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
    with serving(lake) as served:
        answer = served.post("/v1/logs", json.dumps(request).encode(), JSON)
        assert (answer.status, answer.json()) == (200, {})
        assert served.query("SELECT msg FROM log_entries") == [{"msg": "hello"}]
        broken = served.post("/v1/logs", b'{"resourceLogs": [', JSON)
        assert broken.status == 400
        assert broken.json()["code"] == 3
        assert "no JSON" in broken.json()["message"]


@pytest.mark.parametrize(
    ("path", "resources", "scopes", "records", "bad", "rejected"),
    [
        ("logs", "resourceLogs", "scopeLogs", "logRecords", {"timeUnixNano": "soon"}, "LogRecords"),
        ("traces", "resourceSpans", "scopeSpans", "spans", {"traceId": "zz"}, "Spans"),
        (
            "metrics",
            "resourceMetrics",
            "scopeMetrics",
            "metrics",
            {"name": "x", "gauge": {"dataPoints": [{"asDouble": "many"}, {"asDouble": 1}]}},
            "DataPoints",
        ),
    ],
)
def test_single_records_that_do_not_fit_are_left_out_and_counted(
    lake: Lake, path: str, resources: str, scopes: str, records: str, bad: object, rejected: str
) -> None:
    kept: dict[str, object] = {
        "logs": {"timeUnixNano": "1700000000000000000", "body": {"stringValue": "kept"}},
        "traces": {"traceId": "0" * 31 + "1", "spanId": "0" * 15 + "1", "name": "kept"},
        "metrics": {"name": "kept", "gauge": {"dataPoints": [{"asDouble": 1}]}},
    }[path]  # type: ignore[assignment]
    deep: object = {"stringValue": "x"}
    for _ in range(200):
        deep = {"arrayValue": {"values": [deep]}}
    too_deep = kept | {"attributes": [{"key": "k", "value": deep}], "description": 7}

    def ask(*given: object) -> tuple[int, Any]:
        sent = {resources: [{scopes: [{records: list(given)}]}, {scopes: [{records: [kept]}]}]}
        answer = served.post(f"/v1/{path}", json.dumps(sent).encode(), JSON)
        return answer.status, answer.json()

    table = {"logs": "log_entries", "traces": "spans", "metrics": "measures"}[path]
    count = 3 if path == "metrics" else 2
    with serving(lake) as served:
        status, told = ask(kept, bad, too_deep)
        assert status == 200
        assert told["partialSuccess"][f"rejected{rejected}"] == str(count)
        assert told["partialSuccess"]["errorMessage"]
        assert served.query(f"SELECT count(*) AS n FROM {table}") == [{"n": 2}]
        assert ask(kept, bad, too_deep) == (status, told)  # sent again, it lands once
        assert served.query(f"SELECT count(*) AS n FROM {table}") == [{"n": 2}]
        nothing = {resources: [{scopes: [{records: [bad]}]}]}
        assert served.post(f"/v1/{path}", json.dumps(nothing).encode(), JSON).status == 400
        assert served.query(f"SELECT count(*) AS n FROM {table}") == [{"n": 2}]


def test_the_sdk_needs_nothing_but_the_address(lake: Lake) -> None:
    with serving(lake) as served:
        provider = TracerProvider(resource=Resource.create({"service.name": "shop"}))
        exporter = OTLPSpanExporter(endpoint=f"{served.url}/v1/traces")
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        with provider.get_tracer("test").start_as_current_span("checkout"):
            pass
        provider.shutdown()
        found = served.query("SELECT name, service_name FROM spans")
        assert found == [{"name": "checkout", "service_name": "shop"}]


@pytest.mark.parametrize("codec", CODECS)
def test_compressed_bodies_are_accepted_at_every_address_that_takes_one(
    lake: Lake, codec: str
) -> None:
    encoded = {"Content-Encoding": codec}
    compress = CODECS[codec]
    lake.tables.create_database("home")
    lake.tables.create_table("home", "rings", {"time": "datetime"})
    with serving(lake) as served:
        body = Generator(1).logs(30).SerializeToString()
        assert served.post("/v1/logs", compress(body), PROTOBUF | encoded).status == 200
        record = b'[{"time": "2026-01-01T00:00:00Z"}]'
        done = served.post("/v1/tables/home/rings", compress(record), JSON | encoded)
        assert done.json()["inserted"] == 1
        assert served.post("/v1/query", compress(COUNT.encode()), encoded).json() == [{"n": 30}]


def test_otlp_is_accepted_at_the_addresses_of_micromegas_too(lake: Lake) -> None:
    generator = Generator(1)
    with serving(lake) as served:
        for signal, table in (
            ("logs", "log_entries"),
            ("metrics", "measures"),
            ("traces", "spans"),
        ):
            sent = generator.make(signal, 10).SerializeToString()  # type: ignore[arg-type]
            assert served.post(f"/ingestion/otlp/v1/{signal}", sent, PROTOBUF).status == 200
            assert served.query(f"SELECT count(*) AS n FROM {table}") == [{"n": 10}]
        bad = served.post("/ingestion/otlp/v1/logs", b"\xff", PROTOBUF)
        assert status_pb2.Status.FromString(bad.body).code == 3


def test_http_basic_takes_the_key_as_password_at_every_address(lake: Lake) -> None:
    secret = lake.keys.create("shop", [Role.ADMIN]).secret

    def basic(password: str) -> dict[str, str]:
        encoded = base64.b64encode(f"anybody:{password}".encode()).decode()
        return {"Authorization": f"Basic {encoded}"}

    with serving(lake, roles=("ingest", "query", "web")) as served:
        for method, path, body in (
            ("POST", "/v1/logs", Generator(1).logs(3).SerializeToString()),
            ("POST", "/v1/query", COUNT.encode()),
            ("GET", "/metrics", b""),
            ("GET", "/lake", b""),
            ("GET", "/lake.json", b""),
        ):
            sent = PROTOBUF if path == "/v1/logs" else {}
            assert served.ask(method, path, body, sent | basic(secret)).status == 200
            refused = served.ask(method, path, body, sent | basic("wrong"))
            assert refused.status == 401
            # Browsers that are challenged with Basic would send the key with every request.
            assert "Basic" not in refused.headers.get("www-authenticate", "")
            foreign = sent | basic(secret) | {"Origin": "https://evil.example"}
            assert served.ask(method, path, body, foreign).status == 403


def test_errors_are_in_the_senders_encoding(lake: Lake) -> None:
    with serving(lake, settings=ServerSettings(most_body_bytes=1000)) as served:
        bad = served.post("/v1/traces", b"\xff\xff\xff", PROTOBUF)
        assert bad.status == 400
        assert status_pb2.Status.FromString(bad.body).code == 3
        large = served.post("/v1/logs", bytes(2000), PROTOBUF)
        assert large.status == 413
        bomb = served.post("/v1/logs", bytes(100_000), PROTOBUF, zipped=True)
        assert bomb.status == 413
        other = served.post("/v1/logs", b"x", {"Content-Type": "text/plain"})
        assert other.status == 415
        packed = served.post("/v1/logs", b"x", PROTOBUF | {"Content-Encoding": "br"})
        assert packed.status == 415
        assert "zstd" in status_pb2.Status.FromString(packed.body).message
        assert "snappy" in packed.headers["accept-encoding"]
        assert "accept-encoding" not in other.headers
        wrong = served.ask("GET", "/v1/logs")
        assert wrong.status == 405
        assert wrong.headers["allow"] == "POST"
        assert wrong.json()["error"]["hint"] == "use POST"
        nowhere = served.ask("POST", "/v1development/profiles")
        assert nowhere.status == 404
        assert "/v1/logs" in nowhere.json()["error"]["hint"]
        assert served.query(COUNT) == [{"n": 0}]


def test_a_catalog_that_does_not_answer_is_503(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise Unavailable("the catalog is away")

    body = Generator(1).logs(5).SerializeToString()
    with serving(lake) as served:
        monkeypatch.setattr(lake.telemetry, "land", fail)
        answer = served.post("/v1/logs", body, PROTOBUF)
        assert answer.status == 503
        assert int(answer.headers["retry-after"]) > 0
        assert status_pb2.Status.FromString(answer.body).code == 14


def test_surprises_tell_nothing_of_the_inside(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise RuntimeError("secret inside")

    with serving(lake) as served:
        monkeypatch.setattr(lake.telemetry, "land", fail)
        answer = served.post("/v1/logs", b"", PROTOBUF)
        assert answer.status == 500
        assert b"secret" not in answer.body
        assert b"Traceback" not in answer.body


def test_many_senders_at_once(lake: Lake) -> None:
    bodies = [Generator(seed).logs(10).SerializeToString() for seed in range(64)]
    with serving(lake) as served, ThreadPoolExecutor(16) as senders:
        answers = list(senders.map(lambda b: served.post("/v1/logs", b, PROTOBUF), bodies))
        assert {each.status for each in answers} == {200}
        assert served.query(COUNT) == [{"n": 640}]


def make_table(lake: Lake) -> None:
    lake.tables.create_database("home")
    schema = {"time": {"type": "datetime", "unit": "s"}, "bpm": {"type": "int", "max": 300}}
    lake.tables.create_table("home", "rings", schema)


def test_records_go_into_tables(lake: Lake) -> None:
    make_table(lake)
    with serving(lake) as served:
        array = json.dumps([{"time": 1, "bpm": 60}, {"time": 2, "bpm": None}]).encode()
        answer = served.post("/v1/tables/home/rings", array, JSON)
        assert (answer.status, answer.json()["inserted"]) == (200, 2)
        lines = b'{"time": 3, "bpm": 70}\n{"time": 4}\n'
        key = {"Idempotency-Key": "one"}
        for repeated in (False, True):
            answer = served.post("/v1/tables/home/rings", lines, key, zipped=True)
            assert answer.json() == {"inserted": 2, "rejected": 0, "repeated": repeated}
        assert served.query("SELECT count(*) AS n FROM home.rings") == [{"n": 4}]
        other = served.post("/v1/tables/home/rings", array, key)
        assert other.status == 409


def test_options_that_mean_nothing_are_refused(lake: Lake) -> None:
    """Whoever mistypes one would get something else than was meant."""
    lake.tables.create_database("home")
    lake.tables.create_table("home", "rings", {"time": "datetime", "bpm": "int"})
    record = b'{"time": "2026-11-16T05:00:00Z", "bpm": 61}'
    with serving(lake) as served:
        refused = served.post("/v1/tables/home/rings?if_exist=ignore", record)
        assert refused.status == 400
        assert refused.json()["error"] == {
            "message": "'if_exist' means nothing in this address",
            "hint": "it may have on_error and if_exists",
        }
        assert served.post("/v1/query?limit=1", b"SELECT 1").status == 400
        assert served.query("SELECT count(*) AS n FROM home.rings") == [{"n": 0}]


def test_bad_records_are_named_one_by_one(lake: Lake) -> None:
    make_table(lake)
    records = json.dumps([{"time": 1, "bpm": 60}, {"time": "?", "bpm": 999}]).encode()
    with serving(lake) as served:
        refused = served.post("/v1/tables/home/rings", records, JSON)
        assert refused.status == 400
        assert "?on_error=keep" in refused.json()["error"]["hint"]
        (bad,) = refused.json()["error"]["records"]
        assert bad["index"] == 1
        assert {each["column"] for each in bad["problems"]} == {"time", "bpm"}
        infinite = b'{"time": "2026-11-16T05:00:00Z", "device": "a", "bpm": Infinity}'
        refused_line = served.post("/v1/tables/home/rings", infinite, JSON)
        assert refused_line.status == 400
        assert "record 0: bpm: expected " in refused_line.json()["error"]["message"]
        kept = served.post("/v1/tables/home/rings?on_error=keep", records, JSON)
        assert kept.json() == {"inserted": 1, "rejected": 1, "repeated": False}
        assert len(served.query("SELECT * FROM home.rings_rejects")) == 1
        assert served.post("/v1/tables/home/none", b"[]", JSON).status == 404
        assert served.post("/v1/tables/home/rings", b"[{", JSON).status == 400
        assert served.post("/v1/tables/..%2f..%2fetc/passwd", b"[]", JSON).status == 404


def test_rows_come_in_the_format_that_is_asked_for(lake: Lake) -> None:
    sql = b"SELECT 1 AS a, 'x' AS b"
    with serving(lake) as served:
        lines = served.post("/v1/query", sql, {"Accept": "application/x-ndjson"})
        assert json.loads(lines.body) == {"a": 1, "b": "x"}
        assert served.post("/v1/query", sql, {"Accept": "text/csv"}).body == b'"a","b"\n1,"x"\n'
        arrow = served.post("/v1/query", sql, {"Accept": "application/vnd.apache.arrow.stream"})
        assert pa.ipc.open_stream(arrow.body).read_all().to_pylist() == [{"a": 1, "b": "x"}]
        empty = served.post(
            "/v1/query",
            b"SELECT 1 AS a WHERE false",
            {"Accept": "application/vnd.apache.arrow.stream"},
        )
        assert pa.ipc.open_stream(empty.body).read_all().schema.names == ["a"]
        for accepted in ("application/json, text/plain, */*", "text/html, */*;q=0.8", "*/*"):
            assert served.post("/v1/query", sql, {"Accept": accepted}).json() == [
                {"a": 1, "b": "x"}
            ]
        assert served.post("/v1/query", sql, {"Accept": "text/*"}).body == b'"a","b"\n1,"x"\n'
        for accepted in (
            "application/json;q=0, text/csv",
            "*/*, application/json; q=0.0, text/csv",
        ):
            assert served.post("/v1/query", sql, {"Accept": accepted}).body[:1] != b"["
        for accepted in ("image/png", "text/html, image/*", "text/csv;q=0", "*/*;q=0"):
            assert served.post("/v1/query", sql, {"Accept": accepted}).status == 406


def test_what_a_result_lacks_is_told(lake: Lake) -> None:
    with serving(lake) as served:
        served.post("/v1/logs", Generator(1).logs(3).SerializeToString(), PROTOBUF)
        with lake.catalog.read() as connection:
            (segment,) = blocks.list_segments(connection)
        lake.store.delete([segment.segment_path])
        answer = served.post("/v1/query", COUNT.encode())
        assert answer.json() == [{"n": 0}]
        assert "cannot be decoded" in answer.headers["lakebed-warning"]
        assert "lakebed-warning" not in served.post("/v1/query", b"SELECT 1 AS n").headers


def test_queries_take_options_and_refuse_nonsense(lake: Lake) -> None:
    with serving(lake) as served:

        def ask(**asked: object) -> int:
            return served.post("/v1/query", json.dumps(asked).encode(), JSON).status

        assert ask(sql="SELECT 1", limit=0, timeout=5, begin="1h") == 200
        assert ask(sql="SELECT ? AS a", parameters=["it's"]) == 200
        assert ask(sql="SELECT ? AS a", parameters=[]) == 400
        assert ask(sql="SELEC 1") == 400
        assert ask(sql="SELECT * FROM nothing") == 400
        assert ask(sql="SELECT 1", what=2) == 400
        assert ask(sql="SELECT 1", limit="many") == 400
        assert ask(sql="SELECT 1", limit=-1) == 400
        assert ask(sql="SELECT 1", limit=10**20) == 400
        assert ask(sql="SELECT 1", timeout=-5) == 400
        assert ask(sql="SELECT 1", as_of="2200-01-01T00:00:00Z") == 410
        assert ask() == 400
        assert served.post("/v1/query", b"\xff", {}).status == 400


@pytest.mark.parametrize("accept", ["application/json", "text/csv", ARROW])
def test_what_fails_before_the_first_row_has_a_status(lake: Lake, accept: str) -> None:
    with serving(lake) as served:
        headers = {"Accept": accept, **JSON}

        def ask(**asked: object) -> Answer:
            return served.post("/v1/query", json.dumps(asked).encode(), headers)

        refused = ask(sql="SELECT 1 / 0")
        assert refused.status == 400
        assert "divide by zero" in json.loads(refused.body)["error"]["message"].lower()
        assert ask(sql=ENDLESS, timeout=0.2).status == 504
        assert ask(sql="SELECT ? AS a").status == 400
        nothing = ask(sql="SELECT 1 AS one WHERE false")
        assert nothing.status == 200
        assert (accept != "text/csv") or nothing.body == b'"one"\n'
        shown = served.ask("GET", "/metrics").body.decode()
        for status in ("200", "400", "504"):
            assert f'route="query",status="{status}"' in shown


def test_each_key_is_for_what_it_is_for(lake: Lake) -> None:
    make_table(lake)
    secrets = {role: lake.keys.create(role.value, [role]).secret for role in Role}
    body = Generator(1).logs(5).SerializeToString()
    change = "SELECT * FROM retire_partitions('log_entries', 'global', now(), now())"

    def bearer(secret: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {secret}"}

    with serving(lake) as served:

        def land(headers: dict[str, str]) -> int:
            return served.post("/v1/logs", body, PROTOBUF | headers).status

        def insert(headers: dict[str, str]) -> int:
            return served.post("/v1/tables/home/rings", b"[]", headers).status

        def query(headers: dict[str, str], sql: str = COUNT) -> int:
            return served.post("/v1/query", sql.encode(), headers).status

        asked = [land, insert, query]
        for headers in ({}, bearer("no"), {"Authorization": "Basic eDp5"}, bearer("")):
            assert [each(headers) for each in asked] == [401, 401, 401]
        assert [each(bearer(secrets[Role.INGEST])) for each in asked] == [200, 200, 403]
        assert [each(bearer(secrets[Role.READ])) for each in asked] == [403, 403, 200]
        assert [each(bearer(secrets[Role.ADMIN])) for each in asked] == [200, 200, 200]
        assert query(bearer(secrets[Role.READ]), change) in (400, 403)
        assert query(bearer(secrets[Role.INGEST]), change) == 403
        assert served.ask("GET", "/metrics").status == 401
        assert served.ask("GET", "/livez").status == 200
        lake.keys.revoke(lake.keys.list_keys()[0].key_id)
        assert land(bearer(secrets[Role.INGEST])) == 401


def test_health_version_and_metrics(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lake) as served:
        assert served.ask("GET", "/livez").status == 200
        assert served.ask("GET", "/readyz").status == 200
        assert "lakebed" in served.ask("GET", "/version").json()
        served.post("/v1/logs", Generator(1).logs(7).SerializeToString(), PROTOBUF)
        shown = served.ask("GET", "/metrics").body.decode()
        assert 'lakebed_records_total{kind="logs"} 7.0' in shown
        assert 'lakebed_requests_total{route="logs",status="200"} 1.0' in shown
        assert "lakebed_catalog_up 1.0" in shown
        assert shown.endswith("# EOF\n")
        build(lake, "blocks")
        shown = served.ask("GET", "/metrics").body.decode()
        values = dict(line.rsplit(" ", 1) for line in shown.splitlines() if line[0] != "#")
        assert float(values['lakebed_pipeline_lag_seconds{view_set="blocks"}']) == 0
        assert float(values['lakebed_pipeline_lag_seconds{view_set="log_entries"}']) > 0
        assert float(values['lakebed_duty_overdue_seconds{duty="sweep"}']) > 0
        assert float(values["lakebed_landing_requests"]) == 0
        assert float(values["lakebed_landing_bytes"]) == 0
        assert float(values["lakebed_overdue_files"]) == 0
        assert float(values["lakebed_overdue_seconds"]) == 0
        assert float(values['lakebed_lease_age_seconds{kind="writer"}']) > 0
        assert 'lakebed_request_seconds_bucket{le="0.005",route="logs"}' in values

        def fail() -> None:
            raise Unavailable("away")

        monkeypatch.setattr(served.server.health, "probe", fail)
        assert served.ask("GET", "/readyz").status == 503
        served.server.health.draining = True
        assert served.post("/v1/logs", b"", PROTOBUF).status == 503


@pytest.mark.parametrize(
    ("host", "guarded"),
    [
        ("127.0.0.1", True),
        ("localhost", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("a.b", False),
    ],
)
def test_without_keys_only_this_machine_is_listened_to(host: str, guarded: bool) -> None:
    require_guarded(Listening(host), has_keys=True)
    require_guarded(Listening(host, open_to_all=True), has_keys=False)
    if guarded:
        require_guarded(Listening(host), has_keys=False)
    else:
        with pytest.raises(Refused, match="no keys"):
            require_guarded(Listening(host), has_keys=False)


def test_unknown_roles_are_refused() -> None:
    with pytest.raises(BadInput, match="no role"):
        require_guarded(Listening(roles=("desk",)), has_keys=True)


@pytest.mark.parametrize("host", ["::1", "[::1]"])
def test_ipv6_has_brackets_where_it_needs_them(lake: Lake, host: str) -> None:
    with serving(lake, host=host) as served:
        connection = http.client.HTTPConnection("::1", served.port, timeout=300)
        connection.request("GET", "/livez")
        assert connection.getresponse().read() == b"alive\n"
        connection.close()
        with grpc.insecure_channel(f"[::1]:{served.server.ports['OTLP']}") as channel:
            LogsServiceStub(channel).Export(Generator(1).logs(1))


def test_tls_files_that_are_none_are_named(lake: Lake, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    with pytest.raises(BadInput, match="no certificate and its key"):
        Server(lake, Listening(port=0, certificate=wrong, private_key=wrong))
