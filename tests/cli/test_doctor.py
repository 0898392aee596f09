"""`lakebed doctor` as its users see it: whatever is broken, it says so and nothing else breaks."""

from __future__ import annotations

import io
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakebed import __version__
from lakebed.cli.main import run
from lakebed.extras import EXTRAS
from lakebed.opening import init_lake, open_lake
from tests.conftest import NewLake
from tests.serve.parts import serving

CHECKS = ["settings", *(f"extra {name}" for name in EXTRAS), "java", "spark workers"]
CHECKS += ["catalog", "sqlite", "clock", "store"]
CHECKS_AFTER_DISKS = ["port of HTTP", "port of OTLP", "port of FlightSQL", "tls", "keys"]
HERE = "127.0.0.1"
Examine = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake, of which tests make copies."""
    place = tmp_path_factory.mktemp("template") / "shop"
    init_lake(place).close()
    return place


@pytest.fixture
def shop(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "shop"))


@pytest.fixture
def examine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Examine:
    """Runs `lakebed doctor`; what it found by check, of which none may be missing."""
    for name in os.environ:
        if name.startswith("LAKEBED_"):
            monkeypatch.delenv(name)
    for name in ("PORT", "OTLP_PORT", "FLIGHT_PORT"):
        monkeypatch.setenv(f"LAKEBED_SERVE_{name}", "0")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object, code: int = 0) -> dict[str, dict[str, Any]]:
        capsys.readouterr()
        assert run(["doctor", "--json", *map(str, arguments)]) == code
        printed = capsys.readouterr()
        assert printed.err == ""
        report = json.loads(printed.out)
        assert report["well"] is (code == 0)
        names = [each["check"] for each in report["checks"]]
        found = {each["check"]: each for each in report["checks"]}
        disks = [name for name in names if name.startswith("disk of ")]
        assert disks
        assert [*dict.fromkeys(names)] == [*CHECKS, *disks, *CHECKS_AFTER_DISKS]
        for each in report["checks"]:
            assert (each["advice"] is not None) == (each["status"] == "bad")
        return found

    return call


def files_below(folder: Path) -> set[Path]:
    return {each for each in folder.rglob("*") if not each.name.endswith(("-wal", "-shm"))}


def test_a_lake_that_is_well_is_left_as_it_was(
    examine: Examine, shop: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files_below(shop)
    found = examine("--lake", shop)
    assert files_below(shop) == before
    assert {each["status"] for each in found.values()} == {"ok", "skipped"}
    skipped = {name for name, each in found.items() if each["status"] == "skipped"}
    assert skipped == {"spark workers", "tls"}
    assert run(["doctor", "--lake", str(shop)]) == 0
    printed = capsys.readouterr()
    assert printed.err == "all is well\n"
    assert "✓ store: file://" in printed.out
    assert "– tls: no certificate is configured" in printed.out


def test_a_shared_lake_is_looked_at_as_well(examine: Examine, new_lake: NewLake) -> None:
    found = examine("--lake", new_lake().catalog.url)
    assert found["catalog"]["status"] == "ok"
    assert found["clock"]["status"] == "ok"
    assert found["store"]["status"] == "ok"


def test_a_store_in_a_bucket_is_tried(
    examine: Examine, tmp_path: Path, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with init_lake(tmp_path / "far", store=f"s3://{s3_bucket}/lake") as lake:
        assert examine("--lake", tmp_path / "far")["store"]["status"] == "ok"
        assert [each.path for each in lake.store.list()] == ["lake.json"]
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    found = examine("--lake", tmp_path / "far", code=1)
    assert "AWS_ENDPOINT_URL" in found["store"]["advice"]


def test_a_server_that_runs_is_recognised(
    examine: Examine,
    shop: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with open_lake(shop) as lake, serving(lake) as served:
        ports = {"PORT": served.port, "OTLP_PORT": served.server.ports["OTLP"]}
        ports["FLIGHT_PORT"] = served.server.ports["FlightSQL"]
        for name, port in ports.items():
            monkeypatch.setenv(f"LAKEBED_SERVE_{name}", str(port))
        found = examine("--lake", shop)
        assert (
            found["port of HTTP"]["found"]
            == f"lakebed {__version__} answers on {HERE}:{served.port}"
        )
        for name in ("OTLP", "FlightSQL"):
            assert found[f"port of {name}"]["found"].startswith("a healthy gRPC server answers")
        capsys.readouterr()
        assert run(["doctor", "--lake", served.flight]) == 0
        assert f"✓ server: {served.flight} answers" in capsys.readouterr().out
    assert run(["doctor", "--lake", served.flight]) == 1
    assert "✗ server: no server answers" in capsys.readouterr().out


def test_taken_ports_are_no_problem_where_no_server_is_installed(
    shop: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A server of another installation runs on this machine."""
    with socket.create_server((HERE, 0)) as listener:
        for name in ("PORT", "OTLP_PORT", "FLIGHT_PORT"):
            monkeypatch.setenv(f"LAKEBED_SERVE_{name}", str(listener.getsockname()[1]))
        monkeypatch.setitem(sys.modules, "grpc", None)
        assert run(["doctor", "--lake", str(shop)]) == 0
    printed = capsys.readouterr()
    assert "– port: the extra serve is not installed" in printed.out
    assert printed.err.startswith("no problems, but this installation cannot serve")


def _garble(shop: Path) -> None:
    (shop / "catalog.sqlite3").write_bytes(os.urandom(4096))


def _sql(statement: str) -> Callable[[Path], None]:
    def change(shop: Path) -> None:
        with sqlite3.connect(shop / "catalog.sqlite3") as connection:
            connection.execute(statement)
        connection.close()

    return change


def _claim(shop: Path) -> None:
    (shop / "store" / "lake.json").write_text('{"lake_id": "somebody else"}')


@pytest.mark.parametrize(
    ("damage", "check", "says"),
    [
        (shutil.rmtree, "catalog", "there is no lake in"),
        (_garble, "catalog", "not a readable SQLite database"),
        (_sql("UPDATE alembic_version SET version_num = '0002'"), "catalog", "needs 0003"),
        (_sql("UPDATE alembic_version SET version_num = 'x'"), "catalog", "does not know"),
        (_sql("DELETE FROM lake"), "catalog", "has no lake yet"),
        (_sql("DROP TABLE lake_clock"), "catalog", "lake_clock"),
        (_sql("UPDATE lake_clock SET now = now + 7200000000"), "clock", "ahead of the catalog's"),
        (lambda shop: shutil.rmtree(shop / "store"), "store", "not marked as any lake's"),
        (_claim, "store", "belongs to lake somebody else"),
    ],
)
def test_whatever_is_broken_is_told_and_hides_nothing(
    examine: Examine, shop: Path, damage: Callable[[Path], None], check: str, says: str
) -> None:
    damage(shop)
    found = examine("--lake", shop, code=1)
    assert found[check]["status"] == "bad"
    assert says in found[check]["found"]
    assert found["java"]["status"] == "ok"
    assert [name for name, each in found.items() if each["status"] == "bad"] == [check]


def test_a_catalog_without_a_lake_still_tells_the_time(examine: Examine, shop: Path) -> None:
    _sql("DELETE FROM lake")(shop)
    found = examine("--lake", shop, code=1)
    assert found["clock"]["status"] == found["sqlite"]["status"] == "ok"
    assert found["store"]["status"] == found["keys"]["status"] == "skipped"


@pytest.mark.parametrize(
    "place",
    ["mysql://db/lake", "postgresql://me:hush@127.0.0.1:1/lake", "postgresql://[", "a\nb", "\0"],
)
def test_a_lake_that_cannot_be_is_told(
    examine: Examine, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = examine("--lake", place, code=1)
    assert found["catalog"]["status"] == "bad"
    assert "hush" not in json.dumps(found)


def test_wrong_settings_are_told_and_the_right_ones_hold(
    examine: Examine, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("lakebed.toml").write_text('lake = "shop"\ntail_mib = "much"')
    monkeypatch.setenv("LAKEBED_SERVE_HOST", "0.0.0.0")
    monkeypatch.setenv("LAKEBED_SERVE_CERTIFICATE", "nowhere.pem")
    monkeypatch.setenv("LAKEBED_SERVE_PRIVATE_KEY", "nowhere.key")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    found = examine(code=1)
    bad = {name for name, each in found.items() if each["status"] == "bad"}
    assert bad == {"settings", "java", "tls", "keys"}
    assert "tail_mib = 'much' in lakebed.toml" in found["settings"]["found"]
    assert "lakebed keys create" in found["keys"]["advice"]
    assert found["store"]["status"] == "ok"


def test_a_lake_on_a_read_only_mount_is_told_and_can_be_read(shop: Path) -> None:
    """A file system of its own is needed: root writes what it may not."""
    apart = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-ec"]
    mount = f"mount --bind {shop} {shop}; mount -o remount,ro,bind {shop}"
    if shutil.which("unshare") is None or subprocess.run([*apart, mount]).returncode:
        pytest.skip("file systems cannot be mounted here")
    program = f"{sys.executable} -m lakebed"
    commands = f"{program} leases --lake {shop}; {program} doctor --json --lake {shop} || exit 7"
    done = subprocess.run([*apart, f"{mount}; {commands}"], capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    assert "note: the catalog cannot be written" in done.stderr
    assert "Traceback" not in done.stderr
    found = {each["check"]: each for each in json.loads(done.stdout)["checks"]}
    assert "it can be read" in found["catalog"]["found"]
    assert "read-only file system" in found["store"]["found"]
    assert {name for name, each in found.items() if each["status"] == "bad"} >= {"catalog", "store"}
    assert found["sqlite"]["status"] == found["clock"]["status"] == "ok"


def test_signs_are_words_where_there_are_no_signs(
    examine: Examine, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", plain)
    assert run(["doctor", "--lake", str(shop / "nowhere")]) == 1
    plain.seek(0)
    lines = plain.read().splitlines()
    assert any(line.startswith("BAD catalog: there is no lake in") for line in lines)
