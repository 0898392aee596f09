"""The folder for the files of statements that spill.

Each engine has a folder of its own below ``lakebed-spill-UID`` in the system's temporary folder
(``TMPDIR``). It holds a shared lock on that folder while it lives, so that the next engine can tell
the folders of killed processes, and removes them. DataFusion deletes a file when its statement
ends.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import stat
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_log = logging.getLogger(__name__)


class SpillFolder:
    """A folder that is removed when it is closed and no statement uses it, or the process ends."""

    def __init__(self, limit_bytes: int, parent: Path | None = None) -> None:
        """``parent`` defaults to the system's temporary folder. Without a writable folder, ``path``
        is None and nothing can spill."""
        self.limit_bytes = limit_bytes
        self.path: Path | None = None
        self._users = 0
        self._closed = False
        self._lock = threading.Lock()
        try:
            self.path, descriptor = _create(parent)
        except OSError as error:
            _log.warning("statements cannot spill, no folder can be made for that: %s", error)
            return
        self._remove = weakref.finalize(self, _remove, self.path, descriptor, os.getpid())

    def measure(self) -> int:
        """Return the bytes of all files in the folder."""
        return 0 if self.path is None else _measure(self.path)

    def enter(self) -> None:
        """Keep the folder for a statement until it calls `leave`."""
        with self._lock:
            self._users += 1

    def leave(self) -> None:
        """End the use by a statement."""
        with self._lock:
            self._users -= 1
        self._remove_if_unused()

    def close(self) -> None:
        """Remove the folder, or let the last statement that uses it do so."""
        self._closed = True
        self._remove_if_unused()

    def _remove_if_unused(self) -> None:
        if self.path is not None and self._closed and not self._users:
            self._remove()


def remove_abandoned(parent: Path | None = None) -> None:
    """Remove the folders of processes that ended without removing them."""
    try:
        common = _open_common(parent)
    except OSError as error:
        _log.warning("cannot look for abandoned spill files: %s", error)
        return
    with _locked(common):
        abandoned = _lock_abandoned(common)
    _remove_locked(abandoned)


def _create(parent: Path | None) -> tuple[Path, int]:
    """Make and lock a new folder, and remove the abandoned ones."""
    common = _open_common(parent)
    with _locked(common):
        abandoned = _lock_abandoned(common)
        path = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=common))
        own = os.open(path, os.O_RDONLY)
        with suppress(OSError):  # a file system without locks: its folders are never removed
            fcntl.flock(own, fcntl.LOCK_SH)
    _remove_locked(abandoned)
    return path, own


def _open_common(parent: Path | None) -> Path:
    """Return the folder that all engines of this user share."""
    common = (parent or Path(tempfile.gettempdir())) / f"lakebed-spill-{os.getuid()}"
    common.mkdir(mode=0o700, exist_ok=True)
    status = common.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{common} belongs to another user")
    return common


def _lock_abandoned(common: Path) -> list[tuple[Path, int]]:
    """Lock the folders that no process uses; return them with the descriptors of their locks."""
    locked = ((folder, _try_lock(folder)) for folder in common.iterdir())
    return [(folder, descriptor) for folder, descriptor in locked if descriptor is not None]


def _remove_locked(folders: list[tuple[Path, int]]) -> None:
    for folder, descriptor in folders:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Prevent other processes from making or removing folders in this one."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _try_lock(folder: Path) -> int | None:
    """Return a descriptor that has the lock of a folder; None while a process uses the folder."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _measure(folder: Path) -> int:
    total = 0
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    total += _measure(Path(entry.path))
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def _remove(folder: Path, descriptor: int, process: int) -> None:
    """Remove the folder of this process; a forked child leaves it to its parent."""
    if os.getpid() == process:
        removed = folder.with_name(f"{folder.name}-removed")
        with suppress(OSError):  # renamed, so that a running statement cannot add a file
            folder.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)
    os.close(descriptor)
