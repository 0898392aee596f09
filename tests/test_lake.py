"""Making and opening lakes: a lake is whole or it is not one, and a store belongs to one lake."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lakebed.errors import BadInput, Conflict, LakebedError, LakeNotFound, ReadOnly, Refused
from lakebed.lifecycle.check import Level
from lakebed.opening import init_lake, open_lake
from lakebed.storage import marks
from lakebed.storage.local import LocalStore
from tests.conftest import NewLake

ROOT = Path(__file__).parent.parent


def test_a_lake_is_made_once(tmp_path: Path) -> None:
    init_lake(tmp_path / "lake").close()
    with pytest.raises(Conflict, match="there is a lake already"):
        init_lake(tmp_path / "lake")


def test_a_store_belongs_to_one_lake(tmp_path: Path) -> None:
    store = f"file://{tmp_path / 'store'}"
    init_lake(tmp_path / "one", store=store).close()
    with pytest.raises(Refused, match="belongs to lake"):
        init_lake(tmp_path / "two", store=store)


def test_an_init_that_was_killed_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException):
        pass

    def die(*_args: object) -> None:
        raise Killed

    for attempt, point in enumerate(("write_mark",)):
        with monkeypatch.context() as patch:
            patch.setattr(marks, point, die)
            with pytest.raises(Killed):
                init_lake(tmp_path / str(attempt))
        with pytest.raises(LakeNotFound, match="no lake yet"):
            open_lake(tmp_path / str(attempt))
        init_lake(tmp_path / str(attempt)).close()
        open_lake(tmp_path / str(attempt)).close()


def test_init_syncs_the_parent_of_every_folder_that_it_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, new_catalog: Callable[..., str]
) -> None:
    """The acknowledgement of a row rests on the names of all folders above its file."""
    synced: list[Path] = []
    sync = os.fsync

    def record(descriptor: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", record)
    url = new_catalog(blank=True)
    store = tmp_path / "shared" / "disk" / "store"
    init_lake(catalog=url, store=f"file://{store}").close()
    assert {tmp_path, tmp_path / "shared", tmp_path / "shared" / "disk"} <= set(synced)
    if not url.startswith("sqlite"):
        return
    synced.clear()
    folder = tmp_path / "own" / "disk" / "lake"
    init_lake(folder).close()
    assert {tmp_path, tmp_path / "own", tmp_path / "own" / "disk", folder} <= set(synced)


def test_of_two_inits_at_once_one_wins(tmp_path: Path) -> None:
    results: list[object] = []

    def make() -> None:
        try:
            with init_lake(tmp_path / "lake") as lake:
                results.append(lake.lake_id)
        except LakebedError as error:
            results.append(error)

    threads = [threading.Thread(target=make) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = {each for each in results if isinstance(each, str)}
    assert len(made) == 1
    with open_lake(tmp_path / "lake") as lake:
        assert {lake.lake_id} == made
        assert marks.find_mark(lake.store) == lake.lake_id


def test_places_that_cannot_be_a_lake_are_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ReadOnly, match="cannot make"):
        init_lake(tmp_path / "file" / "lake")
    with pytest.raises(LakeNotFound, match="there is no lake in"):
        open_lake(tmp_path)
    for bad in ({"longest_read": "0s"}, {"grace": "soon"}, {"catalog": "mysql://x"}):
        with pytest.raises(BadInput):
            init_lake(tmp_path / "bad", **bad)
    with pytest.raises(BadInput, match="needs a store"):
        init_lake(catalog="postgresql://nowhere/x")


def test_a_catalog_on_a_network_file_system_is_refused(tmp_path: Path) -> None:
    from lakebed.catalog.connections.dialects import refuse_network_file_system

    here = tmp_path.resolve()
    refuse_network_file_system(here, f"/dev/sda / ext4 rw 0 0\nserver:/x {here}/other nfs4 rw 0 0")
    for kind in ("nfs4", "cifs", "fuse.sshfs", "9p"):
        with pytest.raises(BadInput, match="network file system"):
            refuse_network_file_system(here / "lake", f"/dev/sda / ext4 rw 0 0\nx {here} {kind} rw")


def test_a_lake_whose_store_is_gone_says_so(tmp_path: Path) -> None:
    with init_lake(tmp_path / "lake") as lake:
        assert isinstance(lake.store, LocalStore)
        (lake.store.root / "lake.json").unlink()
        lake.store.root.rmdir()
        report = lake.checker.run(Level.FILES)
        assert [finding.kind for finding in report.findings] == ["store mark"]


def test_a_closed_lake_has_no_connections(new_lake: NewLake) -> None:
    """Not even one that a thread gives back later, or that somebody opens who is late."""
    lake = new_lake()
    with lake.catalog.read() as connection:
        in_use = connection.connection.dbapi_connection
        lake.close()
    with pytest.raises(Exception, match="closed"):
        in_use.execute("SELECT 1")
    with lake.catalog.read() as connection:
        late = connection.connection.dbapi_connection
    with pytest.raises(Exception, match="closed"):
        late.execute("SELECT 1")


def test_dir_of_a_lake_lists_the_parts_that_the_documentation_uses(tmp_path: Path) -> None:
    texts = [path.read_text() for path in (ROOT / "docs").glob("*.md")]
    names = {name for text in texts for name in re.findall(r"\blake\.([a-z_]+)", text)}
    with init_lake(tmp_path / "lake") as lake:
        listed = set(dir(lake))
        assert {name for name in names if hasattr(lake, name)} <= listed
        assert all(hasattr(lake, name) for name in listed)
        assert not listed & {"catalog", "store", "leases", "queries", "before_close", "row"}
