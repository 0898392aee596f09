"""A disk that is away for a while, as when it is not mounted: nothing is written elsewhere, nothing
counts as lost, and all goes on when it is back.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import LogsServiceStub

from lakebed.errors import Unavailable
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.opening import init_lake, open_lake
from lakebed.samples.generator import Generator
from lakebed.storage.local import LocalStore
from lakebed.upkeep.duties import DUTIES
from lakebed.upkeep.upkeep import Upkeep
from tests.parts.building import build, land
from tests.serve.parts import PROTOBUF, serving

COUNT = "SELECT count(*) AS n FROM log_entries"


@pytest.fixture(params=["gone", "an empty folder"])
def away(request: pytest.FixtureRequest) -> Callable[[Lake], object]:
    """Takes a lake's store away while a block runs, and leaves nothing or an empty folder there."""

    @contextmanager
    def take(lake: Lake) -> Iterator[None]:
        assert isinstance(lake.store, LocalStore)
        root = lake.store.root
        aside = root.with_name("aside")
        root.rename(aside)
        if request.param != "gone":
            root.mkdir()
        try:
            yield
        finally:
            if request.param != "gone":
                assert list(root.iterdir()) == [], "something was written to another disk"
                root.rmdir()
            aside.rename(root)

    return take


@pytest.mark.parametrize("duty", ["check", "read"])
def test_nothing_is_healed_while_the_store_is_away(
    lake: Lake, away: Callable[[Lake], Iterator[None]], duty: str
) -> None:
    land(lake)
    build(lake)
    before = lake.partitions.list_partitions()
    upkeep = Upkeep(lake, [each for each in DUTIES if each.name == duty])
    with away(lake):  # type: ignore[attr-defined]
        (done,) = upkeep.run_due(everything=True)
        assert done.error is not None
        assert "not mounted" in done.error or "not marked" in done.error, done.error
    assert lake.partitions.list_partitions() == before
    (done,) = upkeep.run_due(everything=True)
    assert done.error is None
    assert lake.checker.run(Level.PAGES).is_clean


@pytest.mark.parametrize("warm", [False, True])
def test_senders_are_told_to_wait_while_the_store_is_away(
    lake: Lake, away: Callable[[Lake], Iterator[None]], warm: bool
) -> None:
    generator = Generator(1)
    with serving(lake) as served, grpc.insecure_channel(served.otlp) as channel:
        if warm:  # its folders are known to be there
            sent = generator.logs(5).SerializeToString()
            assert served.post("/v1/logs", sent, PROTOBUF).status == 200
        body = generator.logs(7).SerializeToString()
        with away(lake):  # type: ignore[attr-defined]
            answer = served.post("/v1/logs", body, PROTOBUF)
            assert (answer.status, answer.headers["retry-after"]) == (503, "2")
            with pytest.raises(grpc.RpcError) as refused:
                LogsServiceStub(channel).Export(generator.logs(3))
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
            ready = served.ask("GET", "/readyz")
            assert ready.status == 503
            told = answer.body + ready.body + str(refused.value.details()).encode()
            assert str(lake.store.url.removeprefix("file://")).encode() not in told
        assert served.post("/v1/logs", body, PROTOBUF).status == 200
        assert served.ask("GET", "/readyz").status == 200
        assert served.query(COUNT) == [{"n": 12 if warm else 7}]
    assert lake.checker.run(Level.PAGES).is_clean


def test_a_query_says_that_the_store_is_away(
    lake: Lake, away: Callable[[Lake], Iterator[None]]
) -> None:
    land(lake)
    build(lake)
    count = lake.query(COUNT).to_arrow()
    with away(lake), pytest.raises(Unavailable):  # type: ignore[attr-defined]
        lake.query("SELECT msg FROM log_entries").to_arrow()
    assert lake.query(COUNT).to_arrow() == count


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Lake]:
    with init_lake(tmp_path / "lake") as lake:
        yield lake


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("catalog.sqlite3*"))


def test_nothing_is_acknowledged_into_a_catalog_that_was_deleted(
    embedded: Lake, tmp_path: Path
) -> None:
    land(embedded)
    with serving(embedded) as served:
        before = served.query(COUNT)
        for each in _files(tmp_path / "lake"):
            shutil.move(each, tmp_path)
        body = Generator(2).logs(7).SerializeToString()
        assert served.post("/v1/logs", body, PROTOBUF).status == 503
        assert served.ask("GET", "/readyz").status == 503
        for each in _files(tmp_path):
            shutil.move(each, tmp_path / "lake")
        assert served.post("/v1/logs", body, PROTOBUF).status == 200
        assert served.query(COUNT) == [{"n": before[0]["n"] + 7}]


def test_a_catalog_that_was_put_back_from_a_copy_is_the_one_that_counts(
    embedded: Lake, tmp_path: Path
) -> None:
    def count() -> int:
        found = embedded.query(COUNT).to_arrow()["n"].to_pylist()
        return int(found[0])

    land(embedded)
    landed = count()
    with closing(embedded.catalog.dialect._connect()) as connection:  # type: ignore[attr-defined]
        connection.execute("VACUUM INTO ?", [str(tmp_path / "copy.sqlite3")])
    embedded.telemetry.land("logs", Generator(3).logs(9).SerializeToString())
    assert count() == landed + 9
    for each in _files(tmp_path / "lake"):
        each.unlink()
    shutil.move(tmp_path / "copy.sqlite3", tmp_path / "lake" / "catalog.sqlite3")
    assert count() == landed
    embedded.telemetry.land("logs", Generator(4).logs(2).SerializeToString())
    with open_lake(tmp_path / "lake") as other:
        assert other.query(COUNT).to_arrow()["n"].to_pylist() == [landed + 2]
