"""Spill files: they end with their statement, have a limit, and do not outlive their process."""

from __future__ import annotations

import http.client
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lakebed.errors import Cancelled, DamagedFile, OutOfMemory, TimedOut
from lakebed.lake import Lake
from lakebed.opening import init_lake
from lakebed.query.embedded.running.spilling import SpillFolder, remove_abandoned
from lakebed.query.queries import Queries, QuerySettings
from tests.parts.data import publish_hour, readings
from tests.serve.parts import serving

ENDLESS_SORT = "SELECT value FROM generate_series(1, 1000000000000) ORDER BY -value"
JOIN = (
    "SELECT count(*) AS n FROM readings a CROSS JOIN readings b CROSS JOIN readings c "
    "WHERE a.number * b.number * c.number = -1"
)
"""A nested loop join whose left side, a times b, does not fit into memory."""
MEMORY = 16 << 20

SPILL_UNTIL_KILLED = f"""
import sys
import lakebed
lake = lakebed.open(sys.argv[1])
lake.query({ENDLESS_SORT!r}).to_arrow()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder, for this test."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def lake(tmp_path: Path, temporary: Path) -> Iterator[Lake]:
    with init_lake(tmp_path / "lake") as lake:
        lake.views.register(readings())
        yield lake


def query_with(lake: Lake, **settings: Any) -> Queries:
    limits = QuerySettings(**{"memory_bytes": MEMORY, **settings})
    return Queries(lake.catalog, lake.store, lake.leases, limits)


def wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def spill_files(temporary: Path) -> list[Path]:
    return [path for path in temporary.rglob("*") if path.is_file()]


def open_spill_files() -> list[str]:
    """The files that this process still holds open, deleted ones included."""
    names = []
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            names.append(os.readlink(descriptor))
        except FileNotFoundError:
            continue
    return [name for name in names if "/datafusion-" in name]


def has_spilled(temporary: Path) -> bool:
    try:
        return any(path.stat().st_size for path in spill_files(temporary))
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("end", ["cancelled", "closed", "timed out", "abandoned", "failed"])
def test_spill_files_are_removed_when_their_statement_ends(
    lake: Lake, temporary: Path, end: str
) -> None:
    queries = query_with(lake)
    sql = ENDLESS_SORT
    if end == "failed":
        sql = "SELECT 1 / (value - 1) FROM (SELECT value FROM range(3000000) ORDER BY -value)"
    elif end == "timed out":
        sql = f"SELECT count(*) FROM ({sql} OFFSET 1)"
    result = queries.query(sql, timeout=3 if end == "timed out" else None)
    errors: list[BaseException] = []

    def read() -> None:
        try:
            result.to_arrow()
        except BaseException as error:  # noqa: BLE001
            errors.append(error)  # kept with its frames

    reader = threading.Thread(target=read)
    reader.start()
    if end in ("cancelled", "closed", "abandoned"):
        wait_until(lambda: has_spilled(temporary))
    if end == "cancelled":
        result.cancel()
    elif end in ("closed", "abandoned"):
        result.close()
    reader.join()
    wait_until(lambda: not spill_files(temporary) and not open_spill_files())
    assert len(errors) == 1
    if end == "timed out":
        assert isinstance(errors[0], TimedOut)
    queries.close()
    wait_until(lambda: not list((temporary / f"lakebed-spill-{os.getuid()}").iterdir()))


def test_spill_files_of_a_join_are_removed_when_its_error_is_kept(
    lake: Lake, temporary: Path
) -> None:
    """The plan of such a join holds its file, and the frames of the error could hold the plan."""
    for hour in range(2 * (os.cpu_count() or 1)):  # files enough that none is repartitioned
        publish_hour(lake, hour, count=2000)
    queries = query_with(lake)
    result = queries.query(JOIN)
    errors: list[BaseException] = []

    def read() -> None:
        try:
            result.to_arrow()
        except Cancelled as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    wait_until(lambda: has_spilled(temporary))
    result.cancel()
    reader.join()
    wait_until(lambda: not spill_files(temporary) and not open_spill_files())
    assert errors
    queries.close()


def test_spilling_returns_error_when_the_limit_is_exceeded(lake: Lake) -> None:
    queries = query_with(lake, spill_bytes=1 << 20)
    with pytest.raises(OutOfMemory, match="spill files may have 1 MiB together") as error:
        queries.query(ENDLESS_SORT).to_arrow()
    assert error.value.hint == "ask for less, or raise LAKEBED_QUERY_SPILL_MIB"
    assert queries.query("SELECT 1 AS n").to_arrow()["n"].to_pylist() == [1]
    queries.close()


def test_the_spill_limit_ends_only_the_statement_that_spilled(lake: Lake) -> None:
    queries = query_with(lake, spill_bytes=1 << 20)
    waiting = queries.query("SELECT sum(a.value) AS n FROM range(1000) a, range(1000000000000) b")
    errors: list[BaseException] = []

    def read() -> None:
        try:
            waiting.to_arrow()
        except Cancelled as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    with pytest.raises(OutOfMemory, match="spill"):
        queries.query(ENDLESS_SORT).to_arrow()
    assert reader.is_alive()
    waiting.cancel()
    reader.join()
    assert errors
    queries.close()


def test_a_join_that_cannot_spill_is_out_of_memory(lake: Lake) -> None:
    """DataFusion 55 panics, because it runs a repartitioned input twice."""
    publish_hour(lake, 0, count=3000)
    queries = query_with(lake)
    repeated = JOIN.replace("readings a", "(SELECT number FROM readings GROUP BY number) a")
    with pytest.raises(OutOfMemory, match="needs more memory than it may have: a join did not fit"):
        queries.query(repeated).to_arrow()
    queries.close()


def test_a_damaged_file_is_still_named_when_such_a_join_fails(lake: Lake) -> None:
    partition = publish_hour(lake, 0, count=3000)
    path = lake.store.locate(partition.file_path)  # type: ignore[attr-defined, arg-type]
    damaged = bytearray(path.read_bytes())
    damaged[4:2000] = b"\xff" * 1996
    path.chmod(0o600)
    path.write_bytes(damaged)
    queries = query_with(lake)
    with pytest.raises(DamagedFile):
        queries.query(JOIN).to_arrow()
    queries.close()


def test_leftovers_of_killed_processes_are_removed_and_those_of_live_ones_kept(
    lake: Lake, temporary: Path
) -> None:
    folder = lake.catalog.url.removeprefix("sqlite:///").rpartition("/")[0]
    environment = {**os.environ, "TMPDIR": str(temporary), "LAKEBED_QUERY_MEMORY_MIB": "16"}

    common = temporary / f"lakebed-spill-{os.getuid()}"

    def spill() -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", SPILL_UNTIL_KILLED, str(folder)]
        process = subprocess.Popen(command, env=environment)
        wait_until(lambda: any(map(has_spilled, common.glob(f"{process.pid}-*"))))
        return process

    def owners() -> set[str]:
        return {path.name.split("-")[0] for path in common.glob("*-*")}

    killed = spill()
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert owners() == {str(killed.pid)}
    live = spill()
    try:
        assert owners() == {str(live.pid)}
        remove_abandoned()
        own = SpillFolder(1 << 20)
        assert owners() == {str(live.pid), str(os.getpid())}
        own.close()
        assert owners() == {str(live.pid)}
    finally:
        live.kill()
        live.wait()
    remove_abandoned()
    assert not owners()


def test_spill_files_are_removed_when_the_process_is_terminated(
    lake: Lake, temporary: Path
) -> None:
    environment = {
        **os.environ,
        "TMPDIR": str(temporary),
        "LAKEBED_QUERY_MEMORY_MIB": "16",
        "LAKEBED_LAKE": lake.catalog.url.removeprefix("sqlite:///").rpartition("/")[0],
    }
    sql = f"SELECT count(*) FROM ({ENDLESS_SORT} OFFSET 1)"
    command = [sys.executable, "-m", "lakebed", "query", sql]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: has_spilled(temporary))
        process.terminate()
        assert process.wait() == 143
    finally:
        process.kill()
        process.wait()
    assert not list((temporary / f"lakebed-spill-{os.getuid()}").iterdir())


def test_a_folder_of_another_user_is_not_used(temporary: Path) -> None:
    (temporary / "elsewhere").mkdir()
    (temporary / f"lakebed-spill-{os.getuid()}").symlink_to(temporary / "elsewhere")
    folder = SpillFolder(1 << 20)
    assert folder.path is None
    assert folder.measure() == 0
    folder.close()
    remove_abandoned()
    assert not list((temporary / "elsewhere").iterdir())


def test_without_a_spill_folder_statements_are_answered_from_memory(
    lake: Lake, temporary: Path
) -> None:
    (temporary / f"lakebed-spill-{os.getuid()}").write_text("not a folder")
    queries = query_with(lake)
    assert queries.query("SELECT 1 AS n").to_arrow()["n"].to_pylist() == [1]
    with pytest.raises(OutOfMemory):
        queries.query(ENDLESS_SORT).to_arrow()
    queries.close()


def test_spill_files_are_removed_when_an_http_caller_leaves(lake: Lake, temporary: Path) -> None:
    lake.queries = query_with(lake)
    with serving(lake) as served:
        caller = http.client.HTTPConnection("127.0.0.1", served.port)
        caller.request("POST", "/v1/query", ENDLESS_SORT)
        wait_until(lambda: has_spilled(temporary))
        caller.close()
        wait_until(lambda: not spill_files(temporary) and not open_spill_files())


def test_a_spill_limit_is_an_error_over_http(lake: Lake) -> None:
    lake.queries = query_with(lake, spill_bytes=1 << 20)
    with serving(lake) as served:
        caller = http.client.HTTPConnection("127.0.0.1", served.port)
        caller.request("POST", "/v1/query", f"SELECT count(*) FROM ({ENDLESS_SORT} OFFSET 1)")
        response = caller.getresponse()
        body = response.read()
        caller.close()
    assert response.status == 413 or b"]" not in body
