"""Pages in a real browser: they load under their policy without a complaint, and the live tail has
what lands. Skipped where no Chromium is installed, and run with the campaigns.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lakebed.lake import Lake, init_lake
from lakebed.samples.generator import Generator
from tests.parts.building import build
from tests.serve.parts import Served
from tests.web.parts import showing

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
pytestmark = [
    pytest.mark.campaign,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium"
    ),
]
MARKUP = "<img src=x onerror=document.title='broken'>"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with init_lake(tmp_path_factory.mktemp("web") / "lake") as lake:
        generator = Generator(3, begin_ns=time.time_ns() - 60 * 10**9)
        for signal, view_set in (("logs", "log_entries"), ("traces", "spans")):
            request = generator.make(signal, 200)  # type: ignore[arg-type]
            if signal == "logs":
                for scope in request.resource_logs[0].scope_logs:
                    for record in scope.log_records:
                        record.body.string_value = MARKUP
            lake.telemetry.land(signal, request.SerializeToString())
            build(lake, view_set)
        lake.telemetry.land("metrics", generator.serialized("metrics", 100))
        yield lake


@pytest.fixture(scope="module")
def served(lake: Lake) -> Iterator[Served]:
    with showing(lake) as served:
        yield served


def load(address: str, folder: Path, *, width: int = 412, wait_ms: int = 1500) -> tuple[str, str]:
    """The page as the browser has it in the end, and what its console said."""
    assert CHROMIUM is not None
    done = subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--enable-logging=stderr",
            f"--user-data-dir={folder}",
            f"--window-size={width},900",
            f"--virtual-time-budget={wait_ms}",
            "--dump-dom",
            address,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    said = [line for line in done.stderr.splitlines() if ":CONSOLE" in line]
    return done.stdout, "\n".join(said)


def test_every_page_loads_without_a_complaint(served: Served, tmp_path: Path) -> None:
    trace = served.ask("GET", "/traces.json").json()["traces"][0]["trace_id"]
    layers = {each["name"]: each for each in served.ask("GET", "/lake.json").json()["layers"]}
    partition = layers["spans"]["cells"][0]["partition_id"]
    sql = "/sql?sql=SELECT+level,+count(*)+AS+n+FROM+log_entries+GROUP+BY+1"
    pages = [
        "/lake",
        f"/lake/partitions/{partition}",
        "/logs",
        "/traces",
        f"/traces/{trace}",
        "/measures",
        "/measures?name=process.cpu.utilization",
        "/tables",
        sql,
        "/sign-in",
    ]
    for page in pages:
        html, said = load(served.url + page, tmp_path)
        assert said == "", (page, said)
        title = re.search(r"<title>(.*?)</title>", html)
        assert title is not None
        assert "Lakebed" in title[1], page


def test_the_live_tail_shows_what_lands(served: Served, lake: Lake, tmp_path: Path) -> None:
    """Lines land once the page was sent; the browser's clock runs ahead while it waits."""
    counter = served.server.http._meters.requests.labels("web/logs", "200")
    asked = counter._value.get()
    sent = threading.Event()

    def land_later() -> None:
        while counter._value.get() == asked:
            if sent.wait(0.01):
                return
        lake.telemetry.land(
            "logs", Generator(4, begin_ns=time.time_ns() - 10**9).serialized("logs", 7)
        )

    lander = threading.Thread(target=land_later)
    lander.start()
    try:
        html, said = load(f"{served.url}/logs?begin=1h&live=1", tmp_path, wait_ms=60_000)
    finally:
        sent.set()
        lander.join()
    assert said == ""
    assert "<strong>207</strong>" in html
