"""Telemetry from senders as people run them: OpenTelemetry's SDKs for Python and Node, told where
to send by environment variables and by nothing else.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lakebed.access.keys import Role
from lakebed.lake import Lake
from lakebed.opening import init_lake
from tests.parts.servers import unavailable
from tests.serve.parts import Served, serving

PYTHON = """
import logging
from opentelemetry.sdk._configuration import _OTelSDKConfigurator

_OTelSDKConfigurator().configure()  # as opentelemetry-instrument does

from opentelemetry import metrics, trace

with trace.get_tracer("shop").start_as_current_span("checkout"):
    logging.getLogger("shop").warning("paid %d", 7)
metrics.get_meter("shop").create_counter("sales").add(3)
"""
NODE = """
const { NodeSDK } = require("@opentelemetry/sdk-node");
const { metrics, trace } = require("@opentelemetry/api");
const { logs } = require("@opentelemetry/api-logs");

const sdk = new NodeSDK();
sdk.start();
trace.getTracer("shop").startSpan("checkout").end();
logs.getLogger("shop").emit({ severityNumber: 13, severityText: "WARN", body: "paid 7" });
metrics.getMeter("shop").createCounter("sales").add(3);
sdk.shutdown().catch((error) => { console.error(error); process.exit(1); });
"""
PLAIN = """
import logging
import sys
import urllib.request

with urllib.request.urlopen(sys.argv[1]) as answer:
    logging.getLogger("shop").warning("the shop answered %d", answer.status)
"""
ZERO_CODE = (
    "opentelemetry-distro",
    "opentelemetry-exporter-otlp-proto-http",
    "opentelemetry-instrumentation-logging",
    "opentelemetry-instrumentation-urllib",
)
NODE_PACKAGES = (
    "@opentelemetry/api@1.9.1",
    "@opentelemetry/api-logs@0.223.0",
    "@opentelemetry/sdk-node@0.223.0",
)
SENDS_JSON = {
    f"OTEL_{signal}_EXPORTER": "otlp_json_http" for signal in ("TRACES", "METRICS", "LOGS")
}
"""Python's SDK does not choose it by OTEL_EXPORTER_OTLP_PROTOCOL yet."""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with init_lake(tmp_path_factory.mktemp("senders") / "lake") as lake:
        yield lake


@pytest.fixture(scope="module")
def key(lake: Lake) -> str:
    return lake.keys.create("shop", [Role.INGEST]).secret


@pytest.fixture(scope="module")
def served(lake: Lake, key: str) -> Iterator[Served]:
    with serving(lake) as served:
        yield served


def environment(served: Served, key: str, protocol: str, service: str) -> dict[str, str]:
    """What docs/serving.md says, and how much is sent."""
    address = served.otlp if protocol == "grpc" else f"127.0.0.1:{served.port}"
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    exporters = {f"OTEL_{signal}_EXPORTER": "otlp" for signal in ("TRACES", "METRICS", "LOGS")}
    return (
        kept
        | exporters
        | {
            "OTEL_SERVICE_NAME": service,
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://{address}",
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{key}",
            "OTEL_PYTHON_LOGGING_AUTO_INSTRUMENTATION_ENABLED": "true",
        }
    )


def send(command: list[str], variables: dict[str, str], cwd: Path | None = None) -> None:
    done = subprocess.run(
        command, env=variables, cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Failed to export" not in done.stderr, done.stderr
    assert "Error" not in done.stderr, done.stderr


def check(lake: Lake, service: str) -> None:
    """One record of each kind, with what it said."""

    def rows(columns: str, table: str) -> list[tuple[object, ...]]:
        sql = f"SELECT {columns} FROM {table} WHERE service_name = '{service}'"
        return [tuple(each.values()) for each in lake.query(sql).to_arrow().to_pylist()]

    assert rows("name, scope_name", "spans") == [("checkout", "shop")]
    assert rows("msg, severity_text", "log_entries") in (
        [("paid 7", "WARN")],
        [("paid 7", "WARNING")],
    )
    assert ("sales", 3.0) in rows("name, value", "measures")


@pytest.mark.parametrize(
    ("name", "protocol", "more"),
    [
        ("protobuf", "http/protobuf", {"OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}),
        ("deflate", "http/protobuf", {"OTEL_EXPORTER_OTLP_COMPRESSION": "deflate"}),
        ("grpc", "grpc", {"OTEL_EXPORTER_OTLP_INSECURE": "true"}),
        ("json", "http/protobuf", SENDS_JSON),
    ],
)
def test_python(
    lake: Lake, served: Served, key: str, name: str, protocol: str, more: dict[str, str]
) -> None:
    service = f"python-{name}"
    send([sys.executable, "-c", PYTHON], environment(served, key, protocol, service) | more)
    check(lake, service)


@pytest.mark.campaign
def test_a_program_that_knows_nothing_of_opentelemetry(
    lake: Lake, served: Served, key: str, tmp_path: Path
) -> None:
    """Zero-code instrumentation, installed beside the program: its calls and logs arrive."""
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    programs = tmp_path / "venv" / "bin"
    install = [programs / "python", "-m", "pip", "install", "--quiet"]
    done = subprocess.run([*install, *ZERO_CODE], capture_output=True, text=True, check=False)
    if done.returncode:
        unavailable("the registry of Python's packages", done.stderr.strip()[-300:])
    (tmp_path / "shop.py").write_text(PLAIN)
    variables = environment(served, key, "http/protobuf", "plain")
    command = [programs / "opentelemetry-instrument", programs / "python", "shop.py"]
    send([*map(str, command), f"http://127.0.0.1:{served.port}/livez"], variables, tmp_path)

    def rows(sql: str) -> list[dict[str, object]]:
        found = lake.query(f"{sql} WHERE service_name = 'plain'").to_arrow()
        return list(found.to_pylist())

    (span,) = rows("SELECT name, kind, trace_id FROM spans")
    assert (span["name"], span["kind"]) == ("GET", "client")
    assert {"msg": "the shop answered 200", "level": 3} in rows(
        "SELECT msg, level FROM log_entries"
    )


def test_the_collectors_configuration_is_whole() -> None:
    """What docs/serving.md gives to copy: every pipeline's parts are there, and none is idle."""
    page = (Path(__file__).parents[2] / "docs" / "serving.md").read_text()
    given = yaml.safe_load(page.partition("```yaml\n")[2].partition("```")[0])
    pipelines = given["service"]["pipelines"]
    assert set(pipelines) == {"logs", "metrics", "traces"}
    for part in ("receivers", "processors", "exporters"):
        used = {each for pipeline in pipelines.values() for each in pipeline[part]}
        assert used == set(given[part])
    (exporter,) = given["exporters"].values()
    assert {exporter["sending_queue"]["storage"]} == set(given["extensions"])
    assert exporter["headers"]["authorization"].startswith("Bearer ")


@pytest.fixture(scope="module")
def node_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with OpenTelemetry's packages for Node in it."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        unavailable("Node", "there is no node, or no npm")
    folder = tmp_path_factory.mktemp("node")
    (folder / "send.js").write_text(NODE)
    options = ["--no-save", "--no-audit", "--no-fund", "--ignore-scripts"]
    done = subprocess.run(
        [str(npm), "install", *options, *NODE_PACKAGES],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "ETARGET" not in done.stderr, done.stderr
    if done.returncode:
        unavailable("the registry of Node's packages", done.stderr.strip()[-300:])
    return folder


@pytest.mark.campaign
@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json", "grpc"])
def test_node(lake: Lake, served: Served, key: str, node_folder: Path, protocol: str) -> None:
    service = f"node-{protocol.replace('/', '-')}"
    send(["node", "send.js"], environment(served, key, protocol, service), node_folder)
    check(lake, service)
