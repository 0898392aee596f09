"""`lakebed serve` as a process: it says where it is, and ends in order when told."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lakebed.catalog import leases
from lakebed.cli.lake.serve import leave_if_stuck
from lakebed.opening import init_lake, open_lake
from lakebed.samples.generator import Generator

ANY_PORTS = ["--otlp-port", "0", "--flight-port", "0"]


def test_it_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    init_lake(tmp_path / "shop").close()
    command = [sys.executable, "-m", "lakebed", "serve", "--roles", "ingest,query"]
    with subprocess.Popen(
        [*command, "--lake", str(tmp_path / "shop"), "--port", "0", *ANY_PORTS],
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("serving http://127.0.0.1:")
        port = int(said.partition(";")[0].rpartition(":")[2])
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        body = Generator(1).logs(10).SerializeToString()
        connection.request("POST", "/v1/logs", body, {"Content-Type": "application/x-protobuf"})
        assert connection.getresponse().status == 200
        connection.close()
        connection.request("POST", "/v1/query", "SELECT nothing")
        assert connection.getresponse().status == 400
        connection.close()
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        assert process.wait(300) == 0
        assert rest.splitlines()[-1] == "stopped"
        logged = [json.loads(line) for line in rest.splitlines() if line.startswith("{")]
        assert {each["level"] for each in logged} == {"warning"}
        assert "query failed" in logged[0]["message"]
        assert "Traceback" not in rest
    with open_lake(tmp_path / "shop") as lake:
        sent = "SELECT count(*) AS n FROM log_entries WHERE service_name <> 'lakebed'"
        found = lake.query(sent).to_arrow()
        assert found["n"].to_pylist() == [10]
        with lake.catalog.read() as connection_of_lake:
            held = leases.list_leases(connection_of_lake)
        assert {each.holder for each in held} <= {lake.catalog.actor}


def test_it_does_not_open_a_lake_without_keys_to_everybody(tmp_path: Path) -> None:
    init_lake(tmp_path / "shop").close()
    done = subprocess.run(
        [sys.executable, "-m", "lakebed", "serve", "--host", "0.0.0.0", "--port", "0"],
        cwd=tmp_path / "shop",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 4
    assert "no keys" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("option", "what"), [("--port", "HTTP"), ("--otlp-port", "OTLP")])
def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path, option: str, what: str) -> None:
    init_lake(tmp_path / "lake").close()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ports = {"--port": "0", "--otlp-port": "0", "--flight-port": "0"} | {option: str(port)}
        command = [sys.executable, "-m", "lakebed", "serve", "--lake", str(tmp_path / "lake")]
        command += [word for each in ports.items() for word in each]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    said = (
        f"error: cannot listen on 127.0.0.1:{port} for {what}, which another program may do; "
        f"choose another port with {option}\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (69, "", said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--host", "192.0.2.1", "--without-keys"], "cannot listen on 192.0.2.1: "),
        (["--host", "nowhere.invalid", "--without-keys"], "cannot listen on nowhere.invalid: "),
        (["--port", "24999", "--otlp-port", "24999"], "--port and --otlp-port are both 24999; "),
    ],
)
def test_a_place_that_cannot_be_is_a_wrong_call(
    tmp_path: Path, options: list[str], said: str
) -> None:
    init_lake(tmp_path / "lake").close()
    command = [sys.executable, "-m", "lakebed", "serve", "--lake", str(tmp_path / "lake"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {said}")
    assert done.stderr.count("\n") == 1


def test_a_server_that_does_not_end_is_left(capsys: pytest.CaptureFixture[str]) -> None:
    stopping, left = threading.Event(), []
    watch = threading.Thread(target=leave_if_stuck, args=(stopping, 0, left.append))
    watch.start()
    assert left == []
    stopping.set()
    watch.join(300)
    assert left == [69]
    assert "do not answer" in capsys.readouterr().err
