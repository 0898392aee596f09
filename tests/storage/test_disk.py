"""A store on local disk: what is durable when, and what is said if the disk refuses."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from lakebed.errors import (
    LakebedError,
    ReadOnly,
    Unavailable,
)
from lakebed.lake import Lake
from lakebed.lifecycle.check import Level
from lakebed.storage.disk import Disk, sync_file
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import put, read_all
from tests.parts.data import publish_hour, readings
from tests.storage.parts import one_line

NewLake = Callable[..., Lake]


@pytest.fixture
def local(tmp_path: Path) -> LocalStore:
    """An empty store on local disk."""
    return LocalStore(tmp_path)


class RecordingDisk(Disk):
    """Writes down what is done to which file or folder, in order."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.events: list[str] = []
        self._names: dict[int, Path] = {}

    def _note(self, event: str, path: Path) -> None:
        self.events.append(f"{event} {path.relative_to(self.root).as_posix()}")

    def make_directory(self, path: Path) -> None:
        super().make_directory(path)
        self._note("make", path)

    def create(self, path: Path) -> int:
        descriptor = super().create(path)
        self._names[descriptor] = path
        self._note("create", path)
        return descriptor

    def write(self, descriptor: int, data: memoryview) -> int:
        self._note("write", self._names[descriptor])
        return super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        super().sync(descriptor)
        self._note("sync file", self._names[descriptor])

    def close(self, descriptor: int) -> None:
        self._note("close", self._names.pop(descriptor))
        super().close(descriptor)

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self._note("sync folder", path)

    def unlink(self, path: Path) -> None:
        super().unlink(path)
        self._note("unlink", path)

    def take(self) -> list[str]:
        taken, self.events = self.events, []
        return taken


def test_a_file_is_synced_before_its_folder_and_new_folders_before_both(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    store = LocalStore(tmp_path, disk)
    put(store, "a/b/1", b"x")
    assert disk.take() == [
        "make a",
        "sync folder .",
        "make a/b",
        "sync folder a",
        "create a/b/1",
        "write a/b/1",
        "sync file a/b/1",
        "close a/b/1",
        "sync folder a/b",
    ]


def test_folders_are_synced_on_first_use_only(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    store = LocalStore(tmp_path, disk)
    put(store, "a/b/1", b"x")
    disk.take()
    put(store, "a/b/2", b"x")
    assert [event for event in disk.take() if "folder" in event] == ["sync folder a/b"]


def test_files_that_are_created_together_share_the_sync_of_their_folder(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    store = LocalStore(tmp_path, disk)
    put(store, "a/b/1", b"x")
    disk.take()
    with store.together() as gathered:
        put(gathered, "a/b/2", b"x")
        put(gathered, "a/b/3", b"x")
        assert "sync file a/b/3" in disk.events
        assert not any("folder" in event for event in disk.events)
    assert disk.take()[-1] == "sync folder a/b"
    put(store, "a/b/4", b"x")
    assert disk.take()[-1] == "sync folder a/b"


def test_folders_that_another_process_made_are_synced_before_they_are_used(tmp_path: Path) -> None:
    put(LocalStore(tmp_path), "a/b/1", b"x")
    disk = RecordingDisk(tmp_path)
    put(LocalStore(tmp_path, disk), "a/b/2", b"x")
    events = disk.take()
    assert events[:3] == ["sync folder .", "sync folder a", "create a/b/2"]
    assert events[-1] == "sync folder a/b"


def test_a_delete_is_synced_once_per_folder_after_the_files_are_gone(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    store = LocalStore(tmp_path, disk)
    for name in ("a/1", "a/2", "b/1"):
        put(store, name, b"x")
    disk.take()
    store.delete(["a/1", "b/1", "a/2", "never/was"])
    unlinked = ["unlink a/1", "unlink b/1", "unlink a/2", "unlink never/was"]
    assert disk.take() == [*unlinked, "sync folder a", "sync folder b"]


def test_make_directories_syncs_the_parent_of_each_folder_it_makes(tmp_path: Path) -> None:
    disk = RecordingDisk(tmp_path)
    (tmp_path / "a").mkdir()
    disk.make_directories(tmp_path / "a" / "b" / "c")
    assert disk.take() == [
        "sync folder .",
        "make a/b",
        "sync folder a",
        "make a/b/c",
        "sync folder a/b",
    ]


def test_make_directories_syncs_the_name_of_a_folder_that_a_killed_attempt_made(
    tmp_path: Path,
) -> None:
    disk = RecordingDisk(tmp_path)
    (tmp_path / "a").mkdir()
    disk.make_directories(tmp_path / "a")
    assert disk.take() == ["sync folder ."]


class ShortDisk(Disk):
    """Never writes more than seven bytes at once, as a disk under pressure may."""

    def write(self, descriptor: int, data: memoryview) -> int:
        return super().write(descriptor, data[:7])


def test_short_writes_still_make_the_whole_file(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, ShortDisk())
    put(store, "object", bytes(range(100)))
    assert read_all(store, "object") == bytes(range(100))


def test_a_failed_writer_never_writes_into_a_file_that_was_opened_later(local: LocalStore) -> None:
    """Descriptors are reused: what the failed writer had buffered must not go to the next owner."""

    def fail() -> BaseException:
        try:
            with local.create("object") as sink:
                sink.write(b"rows of a partition")
                raise ZeroDivisionError
        except ZeroDivisionError as error:
            return error

    kept: BaseException | None = fail()
    with (local.root / "catalog").open("wb", buffering=0) as other:
        other.write(b"precious")
        assert kept is not None
        kept = None  # and with it the traceback, its frames and the writer's buffer
        gc.collect()
    assert (local.root / "catalog").read_bytes() == b"precious"


class FailingDisk(Disk):
    """Fails one operation with an error of the system, for as long as it is broken."""

    def __init__(self, operation: str, code: int) -> None:
        self.broken = True
        plain = getattr(self, operation)

        def fail(*arguments: Any) -> Any:
            if self.broken:
                raise OSError(code, os.strerror(code))
            return plain(*arguments)

        setattr(self, operation, fail)


@pytest.mark.parametrize(
    ("operation", "code", "kind", "says"),
    [
        ("write", errno.ENOSPC, Unavailable, "write a/b: no space left on device; free some space"),
        ("write", errno.EDQUOT, Unavailable, "write a/b: disk quota exceeded; free some space"),
        ("write", errno.EIO, Unavailable, "write a/b: input/output error"),
        ("sync", errno.EIO, Unavailable, "write a/b: input/output error"),
        ("sync_directory", errno.EIO, Unavailable, "write a/b: input/output error"),
        ("create", errno.EROFS, ReadOnly, "write a/b: read-only file system; check the store's"),
        ("create", errno.EMFILE, Unavailable, "write a/b: too many open files"),
        ("make_directory", errno.EACCES, ReadOnly, "write a/b: permission denied; check the"),
        ("unlink", errno.EROFS, ReadOnly, "delete a/b: read-only file system; check the store's"),
        ("unlink", errno.EIO, Unavailable, "delete a/b: input/output error"),
    ],
)
def test_what_the_disk_refuses_is_said_in_one_line(
    tmp_path: Path, operation: str, code: int, kind: type[LakebedError], says: str
) -> None:
    store = LocalStore(tmp_path, FailingDisk(operation, code))
    with pytest.raises(LakebedError) as raised:
        if operation == "unlink":
            store.delete(["a/b"])
        else:
            put(store, "a/b", b"x")
    assert type(raised.value) is kind
    assert one_line(raised.value).startswith(f"cannot {says}")


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ("write", errno.ENOSPC),
        ("sync", errno.EIO),
        ("sync_directory", errno.EIO),
        ("create", errno.EROFS),
    ],
)
def test_a_publication_that_the_disk_refuses_never_happened(
    new_lake: NewLake, operation: str, code: int
) -> None:
    lake = new_lake()
    lake.views.register(readings())
    before = publish_hour(lake, 0)
    assert isinstance(lake.store, LocalStore)
    disk = FailingDisk(operation, code)
    lake.store.disk = disk
    with pytest.raises(Unavailable) as raised:
        publish_hour(lake, 1)
    one_line(raised.value)
    assert lake.partitions.list_partitions() == [before]
    disk.broken = False
    after = publish_hour(lake, 1)
    assert lake.partitions.list_partitions() == [before, after]
    assert lake.checker.run(Level.PAGES).is_clean


def test_a_store_whose_folder_is_gone_says_so(local: LocalStore) -> None:
    local.root.rmdir()
    with pytest.raises(Unavailable, match="does not exist") as raised:
        put(local, "object", b"x")
    assert "not mounted" in one_line(raised.value)
    assert not local.root.exists()


class MacControl(ModuleType):
    """The part of macOS's fcntl module that syncs a file; a file system may refuse it."""

    F_FULLFSYNC = 51

    def __init__(self, refusal: int | None = None) -> None:
        super().__init__("fcntl")
        self.refusal = refusal
        self.calls: list[tuple[int, int]] = []

    def fcntl(self, descriptor: int, command: int) -> int:
        self.calls.append((descriptor, command))
        if self.refusal is not None:
            raise OSError(self.refusal, os.strerror(self.refusal))
        return 0


def test_sync_uses_the_full_sync_of_macos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", None)
    control = MacControl()
    with (tmp_path / "file").open("wb") as file:
        sync_file(file.fileno(), control)
        assert control.calls == [(file.fileno(), 51)]


def test_sync_falls_back_to_fsync_when_the_file_system_has_no_full_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    with (tmp_path / "file").open("wb") as file:
        sync_file(file.fileno(), MacControl(errno.ENOTSUP))
        sync_file(file.fileno(), ModuleType("fcntl"))
        assert synced == [file.fileno()] * 2


def test_sync_raises_the_error_of_a_full_sync_that_failed(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file, pytest.raises(OSError, match=os.strerror(5)):
        sync_file(file.fileno(), MacControl(errno.EIO))
