"""Telemetry from a real OpenTelemetry Collector, built by its builder from Go modules, with the
configuration that docs/serving.md gives.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakebed.access.keys import Role
from lakebed.lake import Lake
from lakebed.opening import init_lake
from tests.parts.servers import unavailable
from tests.query.test_result import wait_until
from tests.serve.parts import Served, serving
from tests.serve.test_senders import PYTHON, check, environment, send

VERSION = "v0.161.0"
CORE = "go.opentelemetry.io/collector"
CONTRIB = "github.com/open-telemetry/opentelemetry-collector-contrib"
MODULES = {
    "receivers": [f"{CORE}/receiver/otlpreceiver"],
    "processors": [f"{CORE}/processor/batchprocessor"],
    "exporters": [f"{CORE}/exporter/otlpexporter", f"{CORE}/exporter/otlphttpexporter"],
    "extensions": [f"{CONTRIB}/extension/storage/filestorage"],
}
HTTP_COMPRESSIONS = ["gzip", "zstd", "snappy", "x-snappy-framed", "deflate", "zlib", "lz4", "none"]
PAGE = Path(__file__).parents[2] / "docs" / "serving.md"

pytestmark = pytest.mark.campaign


@pytest.fixture(scope="module")
def collector(pytestconfig: pytest.Config) -> Path:
    """The Collector's program. It takes minutes to build, so that pytest's cache keeps it."""
    assert pytestconfig.cache is not None
    folder = pytestconfig.cache.mkdir(f"collector-{VERSION}")
    program = folder / "built" / "collector"
    if program.exists():
        return program
    go = shutil.which("go")
    if go is None:
        unavailable("the Collector", "there is no go")
    manifest: dict[str, Any] = {"dist": {"name": "collector", "output_path": "./built"}}
    for kind, modules in MODULES.items():
        manifest[kind] = [{"gomod": f"{module} {VERSION}"} for module in modules]
    (folder / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    builder = f"{CORE}/cmd/builder@{VERSION}"
    done = subprocess.run(
        [str(go), "run", builder, "--config", "manifest.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        unavailable("the Collector", done.stderr.strip()[-500:])
    return program


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with init_lake(tmp_path_factory.mktemp("collector") / "lake") as lake:
        yield lake


@pytest.fixture(scope="module")
def key(lake: Lake) -> str:
    return lake.keys.create("collector", [Role.INGEST]).secret


@pytest.fixture(scope="module")
def served(lake: Lake, key: str) -> Iterator[Served]:
    with serving(lake) as served:
        yield served


class Running:
    """A Collector that runs: where it listens, and what it has logged."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        self._stderr = process.stderr
        self.log: list[str] = []
        self.endpoint = ""
        for line in self._stderr:
            self.log.append(line)
            if "Starting HTTP server" in line:
                self.endpoint = line.partition('"endpoint": "')[2].partition('"')[0]
            if "Everything is ready" in line:
                break
        assert self.endpoint, "".join(self.log)
        self._reader = threading.Thread(target=lambda: self.log.extend(self._stderr))
        self._reader.start()

    def close(self) -> None:
        """Wait until its log has ended."""
        self._reader.join(60)
        self._stderr.close()


@contextmanager
def running(program: Path, folder: Path, exporter: dict[str, Any]) -> Iterator[Running]:
    """Run a Collector with the documented configuration, but for its exporter's address."""
    configuration = yaml.safe_load(PAGE.read_text().partition("```yaml\n")[2].partition("```")[0])
    (documented,) = configuration["exporters"].values()
    kind, settings = next(iter(exporter.items()))
    name = f"{kind}/lakebed"
    configuration["exporters"] = {name: documented | settings}
    for pipeline in configuration["service"]["pipelines"].values():
        pipeline["exporters"] = [name]
    configuration["service"]["telemetry"] = {"metrics": {"level": "none"}}
    configuration["extensions"]["file_storage"]["directory"] = str(folder)
    for protocol in configuration["receivers"]["otlp"]["protocols"].values():
        protocol["endpoint"] = "127.0.0.1:0"
    (folder / "collector.yaml").write_text(yaml.safe_dump(configuration))
    process = subprocess.Popen(
        [str(program), "--config", str(folder / "collector.yaml")],
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        collector = Running(process)
        yield collector
    finally:
        process.terminate()
        process.wait(60)
    collector.close()


def send_through(collector: Running, served: Served, key: str, service: str) -> None:
    variables = environment(served, key, "http/protobuf", service)
    variables["OTEL_EXPORTER_OTLP_ENDPOINT"] = f"http://{collector.endpoint}"
    send([sys.executable, "-c", PYTHON], variables)


def has_landed(lake: Lake, service: str) -> bool:
    sql = "SELECT count(*) FROM {} WHERE service_name = '{}'"
    return all(
        lake.query(sql.format(table, service)).to_arrow()[0][0].as_py()
        for table in ("log_entries", "measures", "spans")
    )


@pytest.mark.parametrize("encoding", ["proto", "json"])
@pytest.mark.parametrize("compression", HTTP_COMPRESSIONS)
def test_collector_delivers_everything_over_http(
    collector: Path,
    lake: Lake,
    served: Served,
    key: str,
    tmp_path: Path,
    compression: str,
    encoding: str,
) -> None:
    exporter = {
        "endpoint": served.url,
        "headers": {"authorization": f"Bearer {key}"},
        "compression": compression,
        "encoding": encoding,
    }
    service = f"collector-{compression}-{encoding}"
    with running(collector, tmp_path, {"otlphttp": exporter}) as running_collector:
        send_through(running_collector, served, key, service)
        wait_until(lambda: has_landed(lake, service))
    check(lake, service)


@pytest.mark.parametrize("compression", ["gzip", "zstd", "snappy"])
def test_collector_delivers_over_grpc_with_gzip_only(
    collector: Path, lake: Lake, served: Served, key: str, tmp_path: Path, compression: str
) -> None:
    """docs/serving.md quotes the error of the gRPC library, which knows gzip and deflate."""
    exporter = {
        "endpoint": served.otlp,
        "headers": {"authorization": f"Bearer {key}"},
        "tls": {"insecure": True},
        "compression": compression,
    }
    service = f"collector-grpc-{compression}"
    with running(collector, tmp_path, {"otlp": exporter}) as running_collector:
        send_through(running_collector, served, key, service)
        if compression == "gzip":
            wait_until(lambda: has_landed(lake, service))
        else:
            refusal = "Error parsing 'grpc-encoding' metadata"
            wait_until(lambda: any(refusal in line for line in list(running_collector.log)))
            assert refusal in PAGE.read_text()
    if compression == "gzip":
        check(lake, service)
