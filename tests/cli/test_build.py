"""`lakebed build` as a command: what it says, how it ends, and what a terminal sees of it."""

from __future__ import annotations

import io
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lakebed.catalog import leases
from lakebed.catalog.records import blocks
from lakebed.cli.data.build import show_progress
from lakebed.model.time import TimeRange
from lakebed.opening import init_lake, open_lake
from lakebed.pipeline.pipeline import Progress
from lakebed.samples.generator import Generator
from tests.cli.parts import Cli
from tests.pipeline.test_build import change_a_byte

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def damaged(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A lake with two requests; the block of the second cannot be decoded."""
    folder = tmp_path / "shop"
    with init_lake(folder) as lake:
        for seed in (1, 2):
            request = Generator(seed).logs(20)
            del request.resource_logs[1:]
            lake.telemetry.land("logs", request.SerializeToString())
        with lake.catalog.read() as connection:
            _, bad = blocks.list_blocks(connection, TimeRange(0, 1 << 60), None)
        change_a_byte(lake, bad)
    monkeypatch.setenv("LAKEBED_LAKE", str(folder))
    return str(bad.block_id)


def test_what_failed_is_said_and_decides_the_exit_code(
    cli: Cli, damaged: str, spark: SparkSession
) -> None:
    partly = cli("build", "log_entries")
    assert partly.code == 5
    assert f"block {damaged} could not be decoded" in partly.err
    assert re.fullmatch(r"\d partitions? published, .*; 1 step failed\n", partly.out)
    nothing = cli("build", "log_entries")
    assert nothing.code == 0
    assert nothing.out == "nothing is due\n"
    assert f"left out, block {damaged} could not be decoded" in nothing.err
    again = cli("build", "log_entries", "--retry-failed", "--json")
    assert again.code == 1
    assert again.err == "1 failed block will be tried again\n"
    assert [damaged in each["problem"] for each in again.json["problems"]] == [True]
    assert again.json["partitions"] == []


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("told", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["INT", "TERM"]
)
def test_a_build_that_is_told_to_end_leaves_no_lease_behind(
    tmp_path: Path, told: signal.Signals, code: int
) -> None:
    init_lake(tmp_path / "shop").close()
    with open_lake(tmp_path / "shop") as lake:
        lake.telemetry.land("logs", Generator(1).serialized("logs", 20))

        def builders() -> list[str]:
            with lake.catalog.read() as connection:
                return [each.view_set for each in leases.list_leases(connection) if each.view_set]

        command = [sys.executable, "-m", "lakebed", "build", "--lake", str(tmp_path / "shop")]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            while not builders():
                assert process.poll() is None
                time.sleep(0.02)
            process.send_signal(told)
            out, err = process.communicate(timeout=600)
        assert (process.returncode, out) == (code, "")
        assert err.split("\n")[1:] == ["interrupted", ""], err
        assert builders() == []


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Progress(round=1, planned=4, done=1, rows=12_000, bytes=3 << 20)
    monkeypatch.setenv("TERM", "xterm")
    for stream, sees in ((io.StringIO(), False), (_Terminal(), True)):
        monkeypatch.setattr(sys, "stderr", stream)
        with show_progress() as notify:
            notify(at)
        text = stream.getvalue()
        assert ("building" in text and "1/4" in text and "12,000 rows, 3.0 MiB" in text) == sees
        assert bool(text) == sees
