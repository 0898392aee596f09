"""The demo, as people start it: through to the end, and ended halfway; nothing is left."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest

import lakebed
from lakebed.demo.living import describe
from lakebed.demo.rings import DATABASE, TABLE, make_table
from lakebed.demo.visits import SERVICES
from lakebed.model.time import SECOND, format_instant
from lakebed.samples.generator import Generator
from tests.parts import servers

COMMAND = [sys.executable, "-m", "lakebed", "demo", "--any-ports"]


def start(
    folder: Path,
    *options: str,
    in_terminal_of_its_own: bool = False,
    command: Sequence[str] = COMMAND,
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*command, *options],
        start_new_session=in_terminal_of_its_own,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
    )


def fill_before(folder: Path) -> None:
    """What an earlier demo may have left: rows of the same services, and of the same rings."""
    with lakebed.init(folder) as lake:
        make_table(lake)
        now = time.time_ns() // 1000
        minute = format_instant(now - now % (300 * SECOND))
        readings = [
            {"time": moment, "ring": "ring-01", "bpm": 60}
            for moment in (minute, "2026-01-01T00:00:00Z")
        ]
        lake.tables.get(DATABASE, TABLE).insert(readings)
        generator = Generator(1)
        traces, logs = generator.traces(10), generator.logs(10)
        for sender in (*traces.resource_spans, *logs.resource_logs):
            for each in sender.resource.attributes:
                if each.key == "service.name":
                    each.value.string_value = SERVICES[0]
        lake.telemetry.land("traces", traces.SerializeToString())
        lake.telemetry.land("logs", logs.SerializeToString())


def test_all_that_was_sent_is_there(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    fill_before(kept)
    demo = start(tmp_path, "--once", "--keep", str(kept))
    told, talk = demo.communicate(timeout=600)
    assert (demo.returncode, talk) == (0, "")
    counts = re.findall(r"^(.+): ([\d,]+) sent, ([\d,]+) in the lake$", told, re.MULTILINE)
    assert [what for what, _, _ in counts] == ["spans", "log lines", "heart rates"]
    assert all(sent == there != "0" for _, sent, there in counts)
    assert "Spark built" in told
    asked = re.findall(r"^which|^what goes|^whose", told, re.MULTILINE)
    assert len(asked) == 3
    assert told.count("export OTEL_") == 3
    with lakebed.open(kept) as lake:
        services = lake.query("SELECT DISTINCT service_name FROM spans").to_arrow()
        assert set(services["service_name"].to_pylist()) == set(SERVICES)
        metrics = lake.query("SELECT DISTINCT name FROM measures").to_arrow()["name"].to_pylist()
        assert {"http.server.request.duration", "shop.payments", "shop.stock"} <= set(metrics)
        linked = lake.query(
            "SELECT count(*) AS n FROM spans WHERE cardinality(links) > 0"
        ).to_arrow()
        assert linked["n"][0].as_py() > 0
        built = {each.view_set for each in lake.partitions.list_partitions()}
        assert {"log_entries", "measures", "spans"} <= built
        assert lake.checker.run().is_clean


def read_address(demo: subprocess.Popen[str]) -> tuple[str, float]:
    """Where the first page is, once it is there, and how long it is said to have taken."""
    assert demo.stdout is not None
    said = r"its first page was there ([\d.]+) s after the start: (http://\S+)$"
    while True:
        found = re.search(said, demo.stdout.readline())
        if found:
            return found[2], float(found[1])


def test_start_of_the_demo_is_the_start_of_its_process() -> None:
    """The process runs for a second before Python starts in it."""
    code = "import time; from lakebed.cli.lake.demo import _find_start as find_start; "
    code += "print(time.monotonic() - find_start())"
    command = ["sh", "-c", 'sleep 1; exec "$@"', "sh", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(done.stdout) > 0.9


def test_it_ends_when_it_is_told_to_and_leaves_nothing() -> None:
    """Once while it is being made ready, by whoever looked at its first page."""
    with tempfile.TemporaryDirectory(dir=servers.quick_folder()) as folder:
        before = time.monotonic()
        demo = start(Path(folder))
        address, took = read_address(demo)
        lasted = time.monotonic() - before
        assert 0 < took < lasted + 0.1
        with urllib.request.urlopen(f"{address}/lake", timeout=300) as page:
            assert b"Lakebed" in page.read()
        demo.send_signal(signal.SIGINT)
        told, talk = demo.communicate(timeout=600)
        assert (demo.returncode, talk) == (0, "")
        assert told.endswith("The lake is gone again.\n")
        assert list(Path(folder).glob("lakebed-demo-*")) == []


def test_it_ends_with_its_terminal_and_leaves_nothing() -> None:
    with tempfile.TemporaryDirectory(dir=servers.quick_folder()) as folder:
        window, terminal = os.openpty()
        demo = subprocess.Popen(
            ["setsid", "--ctty", *COMMAND],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            env=os.environ | {"TMPDIR": folder},
            # Whoever runs the tests may have been told to outlive a terminal.
            preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
        )
        os.close(terminal)
        shown = b""
        while b"its first page was there" not in shown:
            shown += os.read(window, 1000)
        assert list(Path(folder).glob("lakebed-demo-*"))
        os.close(window)
        assert demo.wait(timeout=600) == 0
        assert list(Path(folder).glob("lakebed-demo-*")) == []


def test_after_nohup_it_outlives_its_terminal() -> None:
    with tempfile.TemporaryDirectory(dir=servers.quick_folder()) as folder:
        demo = start(Path(folder), command=["nohup", *COMMAND])
        read_address(demo)
        demo.send_signal(signal.SIGHUP)
        demo.send_signal(signal.SIGINT)
        told, _ = demo.communicate(timeout=600)
        assert demo.returncode == 0
        assert told.endswith("The lake is gone again.\n"), "it was Ctrl-C that ended it"


@pytest.mark.parametrize("is_built", [False, True])
def test_how_it_goes_fits_into_a_narrow_terminal(is_built: bool) -> None:
    shown = describe({"spans": 9_999, "log lines": 9_999, "heart rates": 99_999}, is_built=is_built)
    assert len(shown) + len("⠋ ") <= 80
    assert shown.startswith("Ctrl-C ends it"), "which no width cuts off"


def test_a_folder_that_cannot_hold_its_lake(tmp_path: Path) -> None:
    (tmp_path / "shop").write_text("a file of somebody")
    demo = start(tmp_path, "--keep", str(tmp_path / "shop"))
    told, talk = demo.communicate(timeout=300)
    assert demo.returncode == 69
    assert "The lake is" not in told
    assert talk == (
        f"error: cannot make {tmp_path}/shop: file exists; choose a folder that you may write\n"
    )


def list_commands(session: int) -> list[str]:
    """What the processes of a session run."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            told = (each / "stat").read_text().rpartition(")")[2].split()
            if int(told[3]) == session and told[0] != "Z":
                found.append((each / "cmdline").read_text())
    return found


@pytest.mark.campaign
def test_a_terminal_ends_it_with_all_that_it_started() -> None:
    """Ctrl-C in a terminal reaches every process, Spark's JVM too, here while that starts."""
    with tempfile.TemporaryDirectory(dir=servers.quick_folder()) as folder:
        demo = start(Path(folder), in_terminal_of_its_own=True)
        while not any("java" in each for each in list_commands(demo.pid)):
            assert demo.poll() is None
            time.sleep(0.05)
        os.killpg(demo.pid, signal.SIGINT)
        told, talk = demo.communicate(timeout=600)
        assert (demo.returncode, talk) == (0, "")
        assert told.endswith("The lake is gone again.\n")
        assert list_commands(demo.pid) == []
        assert list(Path(folder).iterdir()) == []
