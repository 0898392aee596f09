"""The commands of the pages are run, in the order in which a reader meets them. Those with a
placeholder, and those that go on for ever, are at least accepted.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import lakebed
from lakebed.demo.shop import Shop
from lakebed.samples.generator import Generator
from tests.serve.parts import serving
from tests.test_docs import ROOT, run_examples, run_line
from tests.test_operating import require_accepted

_PLACEHOLDERS = re.compile(r"…|\bID\b|\bPATH\b|\bKEY\b|spark://|grpc://|3f9a0c12be77|/backups/")
_FOR_EVER = ("serve", "upkeep")
WHAT_CURL_SAYS = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "*/*"}


def commands_of(page: str) -> list[str]:
    """The lines of a page that a shell takes, without their comments."""
    found = re.findall(r"^    ((?:lakebed|python|curl) .*)$", (ROOT / page).read_text(), re.M)
    assert found
    return [re.split(r"\s{2,}# ", line)[0] for line in found]


def shell(line: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """One line in a shell that finds this installation."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = os.environ | {"PATH": path} | more
    return subprocess.run(
        line, shell=True, cwd=folder, env=environment, capture_output=True, text=True
    )


def must_wait(line: str) -> bool:
    """Whether a command cannot be run here: it names what is not there, or goes on for ever."""
    _, *arguments = shlex.split(line)
    goes_on = arguments[0] in _FOR_EVER and "--once" not in arguments
    if not goes_on and not _PLACEHOLDERS.search(line):
        return False
    require_accepted(arguments)
    return True


def run_in_shell(page: str, folder: Path, **environment: str) -> list[str]:
    """Run the commands of a page; which of them were only accepted."""
    waiting = [line for line in commands_of(page) if must_wait(line)]
    for line in commands_of(page):
        if line not in waiting:
            done = shell(line, folder, **environment)
            assert done.returncode == 0, (line, done.stderr)
    return waiting


@pytest.fixture
def run_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[str, str], list[str]]:
    """The same in this process, with a lake that need not be named: much quicker."""
    monkeypatch.chdir(tmp_path)

    def run_page(page: str, lake: str) -> list[str]:
        monkeypatch.setenv("LAKEBED_LAKE", lake)
        waiting = [line for line in commands_of(page) if must_wait(line)]
        for line in commands_of(page):
            if line not in waiting:
                run_line(line, monkeypatch, capsys)
        return waiting

    return run_page


def test_the_readme_is_right_word_for_word(tmp_path: Path) -> None:
    """Its two minutes, with Spark; `make` and `pip` brought us here."""
    assert run_in_shell("README.md", tmp_path) == ["lakebed serve --lake shop"]
    with lakebed.open(tmp_path / "shop") as lake:
        assert lake.query("SELECT count(*) AS n FROM log_entries").to_arrow()["n"][0].as_py() == 100
        assert lake.partitions.list_partitions("log_entries")


def test_the_guide_is_right(tmp_path: Path, run_here: Callable[[str, str], list[str]]) -> None:
    run_examples("docs/guide.md", tmp_path)
    assert len(run_here("docs/guide.md", "weather")) == 8


def test_the_page_about_operating_is_right(run_here: Callable[[str, str], list[str]]) -> None:
    lakebed.init("shop").close()
    assert run_here("docs/operating.md", "shop") == []


def test_the_page_about_serving_is_right(run_here: Callable[[str, str], list[str]]) -> None:
    lakebed.init("shop").close()
    assert len(run_here("docs/serving.md", "shop")) == 4


def test_what_the_page_about_serving_sends_is_taken(tmp_path: Path) -> None:
    """Its calls of curl, and what makes the table that one of them needs; on a new lake."""
    page = (ROOT / "docs/serving.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    lines = [line for block in blocks if "curl " in block for line in block.splitlines()]
    assert len(lines) == 3
    with lakebed.init(tmp_path / "shop") as lake:
        lake.telemetry.land("logs", Generator(1).serialized("logs", 20))
        with serving(lake, flight_port=None, otlp_port=None) as served:
            for line in lines:
                if not line.startswith("curl "):
                    done = shell(line, tmp_path)
                    assert done.returncode == 0, (line, done.stderr)
                    continue
                _, _, body, address = shlex.split(line)
                path = address.removeprefix("http://localhost:4318")
                answer = served.ask("POST", path, body.encode(), WHAT_CURL_SAYS)
                assert answer.status == 200, (line, answer.body)
        assert [each.full_name for each in lake.tables.list_tables()] == ["home.pulse"]
        assert lake.tables.get("home", "pulse").count() == 1
    assert sum(row["n"] for row in answer.json()) == 20


def test_the_page_about_landing_is_right(
    tmp_path: Path, run_here: Callable[[str, str], list[str]]
) -> None:
    run_examples("docs/landing.md", tmp_path)
    Path("logs.pb").write_bytes(Generator(1).serialized("logs", 20))
    Path("good.jsonl").write_bytes(Path("telemetry.jsonl").read_bytes())
    assert run_here("docs/landing.md", "telemetry") == []


def test_the_page_about_pages_is_right(tmp_path: Path) -> None:
    with lakebed.init(tmp_path / "lake") as lake:
        lake.tables.create_database("home")
        columns = {"time": "datetime", "bpm": "int", "device": "string"}
        lake.tables.create_table("home", "heart_rate", columns)
        with serving(lake, flight_port=None, otlp_port=None, roles=("ingest", "web")) as served:
            shop = Shop(served.url, 1)
            shop.visit(time.time_ns())
            shop.close()
            for line in commands_of("docs/web.md"):
                _, address = shlex.split(line)
                answer = served.ask("GET", address.removeprefix("http://localhost:4318"))
                assert answer.status == 200, (line, answer.body)


@pytest.mark.campaign
def test_the_pages_about_building_are_right(tmp_path: Path) -> None:
    """Each build of them starts Spark."""
    text = (ROOT / "docs/views.md").read_text()
    (tmp_path / "errors_per_minute.toml").write_text(
        re.findall(r"```toml\n(.*?)```", text, re.S)[0]
    )
    with lakebed.init(tmp_path / "shop") as lake:
        lake.telemetry.land("logs", Generator(1).serialized("logs", 200))
        lake.tables.create_database("home")
        lake.tables.create_table("home", "heart_rate", {"time": "datetime", "bpm": "int"})
    for page in ("docs/pipeline.md", "docs/views.md"):
        run_in_shell(page, tmp_path, LAKEBED_LAKE="shop")
