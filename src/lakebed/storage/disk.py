"""The file operations on local disk that durability depends on, one method each, so that tests can
count them, fail them and kill the process between any two.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from contextlib import suppress
from pathlib import Path
from types import ModuleType

_log = logging.getLogger(__name__)
_NOT_SUPPORTED = (errno.EINVAL, errno.ENOTSUP, errno.ENOTTY)


def sync_file(descriptor: int, system: ModuleType = fcntl) -> None:
    """Make the bytes of a file, or the names in a folder, survive a crash of the machine.

    On macOS that takes ``F_FULLFSYNC``: ``fsync`` leaves the bytes in the cache of the disk. File
    systems that do not support it get ``fsync``.
    """
    command = getattr(system, "F_FULLFSYNC", None)
    if command is not None:
        try:
            system.fcntl(descriptor, command)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        else:
            return
    os.fsync(descriptor)


class Disk:
    """Plain POSIX calls; every error is the system's own OSError."""

    def make_directory(self, path: Path) -> None:
        path.mkdir(exist_ok=True)
        _log.debug("folder created", extra={"path": str(path)})

    def make_directories(self, path: Path) -> None:
        """Create a folder and its missing parents; their names survive a crash."""
        existing, missing = path.absolute(), list[Path]()
        while not existing.is_dir():
            missing.append(existing)
            existing = existing.parent
        with suppress(PermissionError):  # the folder of another user, as /home
            self.sync_directory(existing.parent)  # a killed attempt may have made the folder
        for folder in reversed(missing):
            self.make_directory(folder)
            self.sync_directory(folder.parent)

    def create(self, path: Path) -> int:
        """Open a new file for writing; FileExistsError if anything is there already."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def write(self, descriptor: int, data: memoryview) -> int:
        return os.write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def sync_directory(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)
