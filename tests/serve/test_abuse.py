"""Hostile callers: they are refused in clear words, they leave nothing and learn nothing, and the
server goes on serving. A failing case prints its seed; ``LAKEBED_FUZZ_SEED=…`` repeats it.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from urllib.parse import quote

import grpc
import msgspec
import pyarrow as pa
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from lakebed.access.keys import Role
from lakebed.errors import Unavailable
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.operations.actions import find_remote
from lakebed.operations.operation import PREFIX
from lakebed.samples.generator import Generator
from lakebed.serve.flight._encoding import encode_data
from lakebed.serve.flight.service import NAME
from lakebed.serve.limits import MOST_BYTES
from lakebed.views.builtin import built_in
from lakebed.wire import protocol
from tests.conftest import CAMPAIGN
from tests.decode.hostile import damage_bytes, damage_fields, field, nested_value
from tests.serve.abuse import HOSTILE_NAMES, Judge, call, make_rng, say, status_of
from tests.serve.load import make_request
from tests.serve.parts import JSON, PROTOBUF, Served, serving

CASES = 2000 if CAMPAIGN else 60
IDLE = 1000 if CAMPAIGN else 100
COUNT = "SELECT count(*) AS n FROM log_entries"
POST = b"POST /v1/logs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
OTLP = "/opentelemetry.proto.collector.{0}.v1.{1}Service/Export"
EXPORTS = [OTLP.format(*each) for each in (("logs", "Logs"), ("metrics", "Metrics"))]
EXPORTS.append(OTLP.format("trace", "Trace"))
FLIGHT = [
    f"/{NAME}/{each}"
    for each in (
        "Handshake",
        "ListFlights",
        "GetFlightInfo",
        "GetSchema",
        "DoGet",
        "DoPut",
        "DoAction",
        "ListActions",
    )
]
OWN_ACTIONS = (
    "CreatePreparedStatement",
    "ClosePreparedStatement",
    "CancelFlightInfo",
    "CancelQuery",
)
CLEAR = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
}


def make_lake(factory: pytest.TempPathFactory) -> Lake:
    lake = init_lake(factory.mktemp("abused") / "lake")
    lake.views.ensure(built_in())
    lake.tables.create_database("home")
    lake.tables.create_table("home", "rings", {"time": "datetime", "name": "string"})
    return lake


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with make_lake(tmp_path_factory) as lake:
        yield lake


@pytest.fixture(scope="module")
def served(lake: Lake) -> Iterator[Served]:
    with serving(lake) as served:
        yield served


@pytest.fixture
def judge(lake: Lake, served: Served) -> Iterator[Judge]:
    """What was answered is counted and shown, and afterwards the server still serves."""
    judge = Judge(lake)
    yield judge
    print(dict(judge.counts.most_common()))  # noqa: T201
    body = make_request("logs", "after", str(uuid.uuid4()), 1).SerializeToString()
    assert served.post("/v1/logs", body, PROTOBUF).status == 200
    assert served.query("SELECT 1 AS one") == [{"one": 1}]
    with grpc.insecure_channel(served.otlp) as channel:
        assert call(channel, EXPORTS[0], body)[0] == grpc.StatusCode.OK


def bomb(size: int) -> bytes:
    """A gzip of so many MiB of zeros, in members of 16 each."""
    return gzip.compress(bytes(16 << 20)) * (size // 16)


def test_bombs(served: Served, judge: Judge) -> None:
    one_gib = bomb(1024)
    packed = {"Content-Encoding": "gzip"}
    with judge.unchanged():
        for path in ("/v1/logs", "/v1/metrics", "/v1/traces", "/v1/tables/home/rings", "/v1/query"):
            kind = PROTOBUF if path in ("/v1/logs", "/v1/metrics") else JSON
            judge.judge(served.post(path, one_gib, kind | packed), path, 413)
        members = gzip.compress(b"") * 20_000
        for body in (
            b"",
            b"\x1f\x8b",
            members,
            one_gib[:5000],
            gzip.compress(b"x")[:-1],
            b"no gzip",
        ):
            judge.judge(served.post("/v1/logs", body, PROTOBUF | packed), body, 400)
        with grpc.insecure_channel(
            served.otlp, options=[("grpc.max_send_message_length", -1)]
        ) as channel:
            for packing in (grpc.Compression.Gzip, grpc.Compression.NoCompression):
                code, said, _ = call(
                    channel, EXPORTS[0], bytes(MOST_BYTES + 1), compression=packing
                )
                assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
                judge.look(said, "a large message")


def test_lengths_that_lie(served: Served, judge: Judge) -> None:
    body = Generator(1).serialized("logs", 5)
    ended = b"Connection: close\r\n\r\n"
    length = b"Content-Length: %d\r\n"
    lies = {
        "too long": (POST, length % (len(body) + 10), ended, body),
        "huge": (POST, length % (1 << 62), ended, body),
        "larger than numbers": (POST, length % (1 << 80), ended, body),
        "negative": (POST, b"Content-Length: -5\r\n", ended, body),
        "no number": (POST, b"Content-Length: many\r\n", ended, body),
        "two": (POST, length % 3, length % len(body), ended, body),
        "chunks that are none": (POST, b"Transfer-Encoding: chunked\r\n", ended, b"zz\r\n", body),
        "a chunk too short": (POST, b"Transfer-Encoding: chunked\r\n", ended, b"ffff\r\n", body),
        "both": (POST, length % 3, b"Transfer-Encoding: chunked\r\n", ended, b"0\r\n\r\n"),
        "no HTTP": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),),
        "no end of a header": (b"GET /livez HTTP/1.1\r\nX: ", b"y" * 10_000),
    }
    with judge.unchanged():
        for what, pieces in lies.items():
            said = say(served, *pieces, then_close=True)
            judge.counts[f"{what}: {status_of(said) or 'hung up'}"] += 1
            assert status_of(said) in (0, 400, 413), (what, said)
            judge.look(said, what)
        endless = POST + b"Transfer-Encoding: chunked\r\n\r\n"
        chunk = b"100000\r\n" + bytes(1 << 20) + b"\r\n"
        assert status_of(say(served, endless, *[chunk] * 65)) == 413
    # What is shorter than the body ends there: the rest is another request, and no good one.
    said = say(served, POST, length % 0, b"\r\n", body, then_close=True)
    assert said.count(b"HTTP/1.1 ") <= 2
    judge.look(said, "too short")


def test_headers_without_end(served: Served, judge: Judge) -> None:
    piece = b"y" * (1 << 20)
    with judge.unchanged():
        for begin in (b"GET /livez HTTP/1.1\r\nX: ", b"GET /", b"GET /livez HTTP/1.1\r\n"):
            many = [piece] * 16 if begin[-1:] != b"\n" else [b"a: b\r\n" * 50_000] * 4
            said = say(served, begin, *many, b"\r\n\r\n", then_close=True)
            judge.counts[f"{status_of(said) or 'hung up'}"] += 1
            assert status_of(said) in (0, 400, 414, 431), said[:200]


def test_damaged_requests(lake: Lake, served: Served, judge: Judge) -> None:
    """What still can be read is taken, everything else is refused and leaves nothing."""
    rng = make_rng()
    generator = Generator(5)
    bodies = {each: generator.serialized(each, 3, services=1) for each in ("logs", "metrics")}
    bodies["traces"] = generator.serialized("traces", 3, services=1)
    texts = {
        "/v1/logs": b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"timeUnixNano":"17"}]}]}]}',
        "/v1/traces": b'{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"0a"}]}]}]}',
        "/v1/tables/home/rings": b'[{"time":"2026-01-01T00:00:00Z","name":"a"}]',
        "/v1/query": b'{"sql":"SELECT 1 AS a","limit":3,"parameters":[1,"x"],"begin":"1h"}',
    }
    state = judge.state(files=False)
    for _ in range(CASES):
        for signal, body in bodies.items():
            damaged = damage_bytes(body, rng)
            if signal == "logs" and rng.random() < 0.5:
                damaged = damage_fields(body, ExportLogsServiceRequest.DESCRIPTOR, rng)
            state = send(judge, served, f"/v1/{signal}", damaged, PROTOBUF, state)
        for path, text in texts.items():
            state = send(judge, served, path, damage_bytes(text, rng), JSON, state)


def send(
    judge: Judge,
    served: Served,
    path: str,
    body: bytes,
    headers: dict[str, str],
    state: tuple[object, ...],
) -> tuple[object, ...]:
    answer = served.post(path, body, headers)
    judge.judge(answer, (path, body), 200, 400, 404, 413)
    now = judge.state(files=False)
    assert answer.status == 200 or now == state, (path, body)
    return now


def test_damaged_calls(served: Served, judge: Judge) -> None:
    rng = make_rng()
    rows = pa.table({"time": ["2026-01-01T00:00:00Z"], "name": ["x"]})
    ingest = protocol.wrap(protocol.new("CommandStatementIngest", table="rings", schema="home"))
    query = protocol.wrap(protocol.new("CommandStatementQuery", query="SELECT 1 AS a"))
    prepare = protocol.new("ActionCreatePreparedStatementRequest", query="SELECT ? AS a")
    descriptor = protocol.new("FlightDescriptor", type=2, cmd=query)
    put = protocol.new("FlightData", data_header=b"")
    put.flight_descriptor.cmd = ingest
    schema = bytes(pa.ipc.read_message(rows.schema.serialize()).metadata)
    batch = pa.ipc.read_message(rows.to_batches()[0].serialize())
    puts = [
        put.SerializeToString() + encode_data(schema),
        encode_data(bytes(batch.metadata), bytes(batch.body)),
    ]
    messages: dict[str, list[list[bytes]]] = {
        "GetFlightInfo": [[descriptor.SerializeToString()]],
        "GetSchema": [[descriptor.SerializeToString()]],
        "DoGet": [[protocol.new("Ticket", ticket=query).SerializeToString()]],
        "DoPut": [puts],
        "DoAction": [
            [
                protocol.new(
                    "Action", type="CreatePreparedStatement", body=protocol.wrap(prepare)
                ).SerializeToString()
            ],
            *([make_action(name)] for name in find_remote()),
        ],
    }
    with grpc.insecure_channel(served.flight.removeprefix("grpc://")) as channel:
        whole = call(channel, f"/{NAME}/DoPut", puts)
        assert whole[0] == grpc.StatusCode.OK, whole
        state = judge.state(files=False)
        for _ in range(CASES // 2):
            for method, samples in messages.items():
                sample = list(rng.choice(samples))
                place = rng.randrange(len(sample))
                sample[place] = damage_bytes(sample[place], rng)
                code, said, _ = call(channel, f"/{NAME}/{method}", sample)
                judge.counts[code.name] += 1
                judge.look(said, (method, sample))
                assert code in CLEAR | {grpc.StatusCode.OK}, (code, said, method, sample)
                now = judge.state(files=False)
                assert code == grpc.StatusCode.OK or now == state, (method, sample)
                state = now


def test_rows_that_grow(served: Served, judge: Judge) -> None:
    """Little that would be much in memory: packed rows, rows of nothing, and runs without end."""
    many = (1 << 31) - 1
    nothing = pa.Array.from_buffers(pa.null(), many, [None])
    runs = pa.RunEndEncodedArray.from_arrays(
        pa.array([many], pa.int32()), pa.array(["2026-01-01T00:00:00Z"])
    )
    packed = pa.ipc.IpcWriteOptions(compression="zstd")
    plain = pa.ipc.IpcWriteOptions()
    texts = pa.array(["2026-01-01T00:00:00Z"] * 100_000)
    cases = {
        "packed": (pa.record_batch({"time": texts}), packed),
        "packed dictionary": (pa.record_batch({"time": texts.dictionary_encode()}), packed),
        "nothing": (pa.record_batch({"time": nothing}), plain),
        "runs": (pa.record_batch({"time": runs}), plain),
    }
    with (
        judge.unchanged(),
        grpc.insecure_channel(served.flight.removeprefix("grpc://")) as channel,
    ):
        for name, (batch, options) in cases.items():
            code, said, _ = call(channel, f"/{NAME}/DoPut", put_batch(batch, options))
            judge.counts[code.name] += 1
            judge.look(said, name)
            assert code == grpc.StatusCode.INVALID_ARGUMENT, (name, code, said)


def put_batch(batch: pa.RecordBatch, options: pa.ipc.IpcWriteOptions) -> list[bytes]:
    """A batch for home.rings as the messages of a DoPut."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    first = protocol.new("FlightData")
    command = protocol.new("CommandStatementIngest", table="rings", schema="home")
    first.flight_descriptor.cmd = protocol.wrap(command)
    messages = [
        encode_data(bytes(each.metadata), b"" if each.body is None else bytes(each.body))
        for each in pa.ipc.MessageReader.open_stream(sink.getvalue())
    ]
    return [first.SerializeToString() + messages[0], *messages[1:]]


def test_where_the_catalog_is_stays_inside(
    lake: Lake, served: Served, judge: Judge, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_args: object, **_options: object) -> None:
        raise Unavailable("cannot reach postgresql://someone@inner-host/lake", hint="ask someone")

    body = make_request("logs", "x", "x", 1).SerializeToString()
    with judge.unchanged(), monkeypatch.context() as patched:
        patched.setattr(lake.telemetry, "land", fail)
        patched.setattr(lake.tables, "insert", fail)
        said = [
            served.post("/v1/logs", body, PROTOBUF),
            served.post("/v1/logs", b"{}", JSON),
            served.post("/v1/tables/home/rings", b"[]", JSON),
        ]
        assert {each.status for each in said} == {503}
        with grpc.insecure_channel(served.otlp) as channel:
            code, told, _ = call(channel, EXPORTS[0], body)
        assert code == grpc.StatusCode.UNAVAILABLE
        assert "does not answer" in told
        everything = told.encode() + b"".join(each.body for each in said)
        assert b"someone" not in everything
        assert b"inner-host" not in everything


def make_action(name: str, **given: object) -> bytes:
    body = msgspec.msgpack.encode(given)
    return bytes(protocol.new("Action", type=PREFIX + name, body=body).SerializeToString())


def test_idle_and_slow_callers(served: Served, judge: Judge) -> None:
    """Many who say nothing, or little, keep nobody else from being served."""
    body = make_request("logs", "slow", "slow", 3).SerializeToString()
    whole = POST + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body
    with ExitStack() as stack:
        idle = []
        for number in range(IDLE):
            port = served.port if number % 3 else served.server.ports["OTLP"]
            each = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=300))
            if number % 3 == 1:
                each.sendall(whole[: 1 + number % (len(whole) - 1)])  # and never the rest
            idle.append(each)
        with judge.unchanged():
            assert served.query("SELECT 1 AS one") == [{"one": 1}]
            assert served.ask("GET", "/readyz").status == 200
        slow = stack.enter_context(socket.create_connection(("127.0.0.1", served.port)))
        slow.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for place in range(len(whole)):
            slow.sendall(whole[place : place + 1])
        assert slow.recv(12) == b"HTTP/1.1 200"
        assert served.query(f"{COUNT} WHERE event_name = 'slow'") == [{"n": 3}]
        state = judge.state()
    assert served.query("SELECT 1 AS one") == [{"one": 1}]
    assert judge.state() == state  # those who went away in the middle left nothing
    judge.counts["idle"] = IDLE


def test_depth_and_size(served: Served, judge: Judge) -> None:
    deep = 100_000
    record = field(1, field(2, field(2, field(6, field(1, b"k") + field(2, nested_value(2000))))))
    inner = '{"arrayValue":{"values":[' * 2000 + "]}}" * 2000
    begin = '{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":'
    attribute = f"{begin}{inner}" + "}]" * 3 + "}"
    with judge.unchanged():
        for path in ("/v1/logs", "/v1/tables/home/rings", "/v1/query"):
            for text in ("[" * deep, "[" * deep + "]" * deep, '{"a":' * deep + "1" + "}" * deep):
                judge.judge(served.post(path, text.encode(), JSON), path, 400)
        judge.judge(served.post("/v1/logs", record, PROTOBUF), "deep", 400)
        judge.judge(served.post("/v1/logs", attribute.encode(), JSON), "deep", 400)
        for sql in (
            "SELECT " + "(" * 5000 + "1" + ")" * 5000,
            "SELECT " + "-" * 5000 + "1",
            "SELECT " + "NOT " * 5000 + "true",
            "SELECT 1" + " UNION SELECT 1" * 5000,
            "x" * (2 << 20),
        ):
            judge.judge(served.post("/v1/query", sql.encode()), sql[:50], 400, 413)
        with grpc.insecure_channel(served.flight.removeprefix("grpc://")) as channel:
            nested = b"\x81\xa1a" * deep + b"\x01"
            for name in find_remote():
                body = protocol.new("Action", type=PREFIX + name, body=nested).SerializeToString()
                code, said, _ = call(channel, f"/{NAME}/DoAction", body)
                assert code == grpc.StatusCode.INVALID_ARGUMENT, (name, code)
                judge.look(said, name)
    huge = make_request("logs", "huge", "huge", 1)
    attributes = huge.resource_logs[0].scope_logs[0].log_records[0].attributes
    attributes.add(key="x" * 100_000).value.string_value = "y" * (8 << 20)
    for number in range(20_000):
        attributes.add(key=f"k{number}").value.int_value = number
    judge.judge(served.post("/v1/logs", huge.SerializeToString(), PROTOBUF, zipped=True), "", 200)
    assert served.query(f"{COUNT} WHERE event_name = 'huge'") == [{"n": 1}]


def test_hostile_names(served: Served, judge: Judge) -> None:
    record = b'[{"time": "2026-01-01T00:00:00Z"}]'
    with judge.unchanged(), ExitStack() as stack:
        channel = stack.enter_context(grpc.insecure_channel(served.flight.removeprefix("grpc://")))
        for name in HOSTILE_NAMES:
            spelled = quote(name, safe="")
            for path in (f"/v1/tables/home/{spelled}", f"/v1/tables/{spelled}/rings"):
                judge.judge(served.post(path, record, JSON), path, 400, 404, 405)
            for option in ("on_error", "if_exists"):
                path = f"/v1/tables/home/rings?{option}={spelled or 'x'}"
                judge.judge(served.post(path, record, JSON), path, 400)
            for asked in (
                {"sql": f'SELECT * FROM "{name}"'},
                {"sql": "SELECT 1", "begin": name or "x"},
                {"sql": "SELECT 1", "as_of": name or "x"},
                {"sql": COUNT, "database": name or "x"},
            ):
                answer = served.post("/v1/query", json.dumps(asked).encode(), JSON)
                judge.judge(answer, asked, 200 if "database" in asked else 400, 400, 404)
            for method, message in name_in_calls(name):
                code, said, _ = call(channel, f"/{NAME}/{method}", message)
                judge.counts[code.name] += 1
                judge.look(said, (method, name))
                assert code in CLEAR, (code, said, method, name)
        for pattern in ("%" * 60 + "x", "%a" * 40 + "x", "_%" * 40):
            command = protocol.wrap(
                protocol.new("CommandGetTables", table_name_filter_pattern=pattern)
            )
            ticket = protocol.new("Ticket", ticket=command).SerializeToString()
            assert call(channel, f"/{NAME}/DoGet", ticket)[0] == grpc.StatusCode.OK


def name_in_calls(name: str) -> Iterator[tuple[str, bytes]]:
    """Calls in which a name stands wherever one can."""
    for database, table in (("home", name), (name, "rings")):
        put = protocol.new("FlightData")
        command = protocol.new("CommandStatementIngest", table=table, schema=database or "none")
        put.flight_descriptor.cmd = protocol.wrap(command)
        schema = pa.schema([("time", pa.string())])
        header = bytes(pa.ipc.read_message(schema.serialize()).metadata)
        yield "DoPut", put.SerializeToString() + encode_data(header)
    yield "DoAction", protocol.new("Action", type=name).SerializeToString()
    yield "DoAction", make_action("retire_partition_by_file", file_path=name)
    yield "DoAction", make_action("restore_partition", partition_id=name)
    yield (
        "DoAction",
        make_action(
            "retire_partition_by_metadata",
            view_set_name=name,
            view_instance_id=name,
            begin_insert_time=0,
            end_insert_time=1,
        ),
    )
    sql = f'SELECT "{name}" FROM log_entries'
    yield (
        "DoGet",
        protocol.new(
            "Ticket", ticket=protocol.wrap(protocol.new("CommandStatementQuery", query=sql))
        ).SerializeToString(),
    )


def test_keys_on_every_route(tmp_path_factory: pytest.TempPathFactory) -> None:
    """No key, a wrong or revoked one, or one for something else opens nothing anywhere."""
    with make_lake(tmp_path_factory) as lake:
        revoked = lake.keys.create("revoked", list(Role))
        others = {role: lake.keys.create(role.value, [role]).secret for role in Role}
        lake.keys.revoke(revoked.key.key_id)
        secret = revoked.secret
        wrong = [
            "",
            "Basic eDp5",
            f"Basic {base64.b64encode(f'x:{secret}'.encode()).decode()}",
            f"Basic {base64.b64encode(others[Role.ADMIN].encode()).decode()}",
            "Bearer",
            f"Bearer {secret}",
            f"Bearer {secret[:-1]}",
            f"Bearer {others[Role.ADMIN]}x",
            f"Bearer {others[Role.ADMIN][:20]}{'A' * 43}",
            f"Token {others[Role.ADMIN]}",
            "Bearer ' OR 1=1 --",
            "Bearer " + "x" * 5000,
        ]
        judge = Judge(lake, (secret, *others.values()))
        with serving(lake) as served:
            admin = {"Authorization": f"Bearer {others[Role.ADMIN]}"}
            served.query(COUNT, admin)
            for role in Role:  # that a key was used is noted once
                served.query(COUNT, {"Authorization": f"Bearer {others[role]}"})
            with judge.unchanged():
                knock_on_http(judge, served, wrong, others)
                knock_on_grpc(judge, served, wrong, others)
            assert served.query(COUNT, admin) == [{"n": 0}]
        with serving(lake, roles=("web",)) as served, judge.unchanged():
            knock_on_pages(judge, served, wrong, others)
    print(dict(judge.counts.most_common()))  # noqa: T201


def knock_on_pages(judge: Judge, served: Served, wrong: list[str], others: dict[Role, str]) -> None:
    """Every page, its data, and every form: a browser without a key is led to sign in."""
    open_to_all = {"/", "/sign-in", "/sign-out", "/static/{name}"}
    open_to_all |= {"/livez", "/readyz", "/health", "/version", "/metrics"}
    routes = [
        (each.path, method)  # type: ignore[attr-defined]
        for each in served.server.http.make_app().routes
        for method in sorted(each.methods - {"HEAD"})  # type: ignore[attr-defined]
        if each.path not in open_to_all  # type: ignore[attr-defined]
    ]
    assert len(routes) > 30
    for route, method in routes:
        path = re.sub(r"{\w+}", "x", route)
        body = b"token=x&name=x" if method == "POST" else b""
        form = {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
        is_page = method == "GET" and "." not in route
        for header in wrong:
            headers = form | ({"Authorization": header} if header else {})
            answer = served.ask(method, path, body, headers)
            is_led = is_page and not header.startswith(("Bearer ", "Basic "))
            if is_led:
                assert answer.headers["location"].startswith("/sign-in?next=")
            judge.judge(answer, (route, header), 303 if is_led else 401)
        unfit = Role.READ if method == "POST" or "/admin" in route else Role.INGEST
        headers = form | {"Authorization": f"Bearer {others[unfit]}"}
        judge.judge(served.ask(method, path, body, headers), (route, unfit), 403)


def knock_on_http(judge: Judge, served: Served, wrong: list[str], others: dict[Role, str]) -> None:
    signals = ("logs", "metrics", "traces")
    writing = [f"{prefix}/v1/{signal}" for prefix in ("", "/ingestion/otlp") for signal in signals]
    writing.append("/v1/tables/home/rings")
    asked = [("POST", path) for path in [*writing, "/v1/query"]] + [("GET", "/metrics")]
    routes = {
        each.path  # type: ignore[attr-defined]
        for each in served.server.http.make_app().routes
    }
    open_to_all = {"/livez", "/readyz", "/health", "/version"}
    known = {path for _, path in asked} - {"/v1/tables/home/rings"}
    known.add("/v1/tables/{database}/{table}")
    assert routes - open_to_all == known  # a new route must be knocked on as well
    for method, path in asked:
        kind = JSON if "tables" in path else PROTOBUF
        for header in wrong:
            headers = kind | ({"Authorization": header} if header else {})
            judge.judge(served.ask(method, path, b"SELECT 1", headers), (path, header), 401)
        unfit = Role.READ if path in writing else Role.INGEST
        headers = kind | {"Authorization": f"Bearer {others[unfit]}"}
        judge.judge(served.ask(method, path, b"SELECT 1", headers), (path, unfit), 403)


def knock_on_grpc(judge: Judge, served: Served, wrong: list[str], others: dict[Role, str]) -> None:
    actions = [
        *(protocol.new("Action", type=each).SerializeToString() for each in OWN_ACTIONS),
        *(make_action(each) for each in find_remote()),
    ]
    doors = [(served.otlp, method, [b""]) for method in EXPORTS]
    at = served.flight.removeprefix("grpc://")
    doors += [(at, m, actions if m.endswith("DoAction") else [b""]) for m in FLIGHT]
    for target, method, messages in doors:
        with grpc.insecure_channel(target) as channel:
            for message in messages:
                for header in wrong:
                    headers = [("authorization", header)] if header else []
                    code, said, answers = call(channel, method, message, headers)
                    judge.counts[code.name] += 1
                    judge.look(said, (method, header))
                    assert code == grpc.StatusCode.UNAUTHENTICATED, (method, message, header)
                    assert answers == []
                unfit = Role.READ if method in EXPORTS else Role.INGEST
                headers = [("authorization", f"Bearer {others[unfit]}")]
                code, said, answers = call(channel, method, message, headers)
                judge.counts[code.name] += 1
                judge.look(said, (method, unfit))
                if method.endswith("Handshake"):  # any key that is in force will do
                    assert code == grpc.StatusCode.OK
                    continue
                if not method.endswith("DoPut"):  # the command says whom it is for
                    assert code == grpc.StatusCode.PERMISSION_DENIED, (method, message)
                assert answers == []
            changing = [make_action(n) for n, each in find_remote().items() if each.changes]
            for message in changing if method.endswith("DoAction") else []:
                headers = [("authorization", f"Bearer {others[Role.READ]}")]
                code, said, _ = call(channel, method, message, headers)
                assert code == grpc.StatusCode.PERMISSION_DENIED
                judge.look(said, message)
