"""A store in a folder. It does not use obstore, whose local backend stages every put as ``name#1``,
links and unlinks it, and never syncs: a crash would leave files without a reservation.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import stat
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast
from urllib.parse import quote, unquote, urlsplit

from lakebed.errors import (
    AlreadyThere,
    BadInput,
    LakebedError,
    ReadOnly,
    Unavailable,
    UnknownObject,
)
from lakebed.storage import layout
from lakebed.storage.disk import Disk
from lakebed.storage.objects import Listed

_BUFFER_BYTES = 1 << 20
_CLOCK_TICK_NS = 50_000_000
"""Longer than the time resolution of any file system."""
_log = logging.getLogger(__name__)


class LocalStore:
    """Objects are files below one folder; every create and delete is synced."""

    def __init__(self, root: Path, disk: Disk | None = None, *, of_lake: bool = False) -> None:
        """With ``of_lake`` the store must have a mark: else its disk is missing or another one."""
        self.root = root
        self.disk = disk or Disk()
        self.of_lake = of_lake
        self._synced_folders: set[Path] = set()

    @classmethod
    def from_url(cls, url: str, *, of_lake: bool = False) -> LocalStore:
        """Return the store at a ``file://`` URL with an absolute path."""
        parts = urlsplit(url)
        if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
            raise BadInput(f"{url!r} is not a folder", hint="use file:///absolute/folder")
        return cls(Path(unquote(parts.path)), of_lake=of_lake)

    @property
    def url(self) -> str:
        return f"file://{quote(str(self.root))}"

    def locate(self, path: str) -> Path:
        """Return the file of a store path."""
        return self.root / layout.check_path(path)

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        target = self.locate(path)
        with _translated(f"write {path}"):
            self._ensure_folder(target.parent)
            try:
                descriptor = self.disk.create(target)
            except FileExistsError:
                raise AlreadyThere(f"{path} exists already in {self.url}") from None
            except FileNotFoundError as error:
                self._synced_folders.clear()
                raise self._away(f"cannot write {path}: its folder is gone") from error
            try:
                sink = _Sink(self.disk, descriptor)
                yield cast(BinaryIO, sink)
                sink.finish()
                self.disk.sync(descriptor)
            finally:
                self.disk.close(descriptor)
            self._sync_name(target)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("object created", extra={"path": path, "bytes": sink.tell()})

    @contextmanager
    def together(self) -> Iterator[LocalStore]:
        gathered = _Together(self)
        yield gathered
        with _translated("sync a folder"):
            for folder in sorted(gathered.folders):
                self.disk.sync_directory(folder)

    def _sync_name(self, target: Path) -> None:
        self.disk.sync_directory(target.parent)

    def _ensure_folder(self, folder: Path) -> None:
        """Make a folder and its parents durable; once per process and folder."""
        if folder in self._synced_folders:
            return
        if folder != self.root:
            self._ensure_folder(folder.parent)
        elif not folder.is_dir():
            raise self._away(f"the store's folder {folder} does not exist")
        if not folder.is_dir():
            self._require_marked()
            self.disk.make_directory(folder)
        if folder != self.root:
            self.disk.sync_directory(folder.parent)
        self._synced_folders.add(folder)

    def _require_marked(self) -> None:
        if self.of_lake and not (self.root / layout.MARK).is_file():
            raise self._away(f"the store's folder {self.root} is not marked as any lake's")

    def _away(self, message: str) -> Unavailable:
        return Unavailable(message, hint="was the store moved, emptied or not mounted?")

    @contextmanager
    def _reading(self, action: str) -> Iterator[None]:
        """Translate errors of a read; raise `Unavailable` if the lake's mark is missing too."""
        try:
            with _translated(action):
                yield
        except UnknownObject:
            self._require_marked()
            raise

    def size(self, path: str) -> int:
        return self._look(path).st_size

    def version(self, path: str) -> tuple[int, str]:
        status = self._look(path)
        changed = status.st_ctime_ns
        version = f"{status.st_ino}:{changed}"
        if time.time_ns() - changed < _CLOCK_TICK_NS:  # another change may have the same time
            version = f"{version}:{uuid.uuid4()}"
        return status.st_size, version

    def _look(self, path: str) -> os.stat_result:
        with self._reading(f"look at {path}"):
            status = self.locate(path).stat()
            if not stat.S_ISREG(status.st_mode):
                raise FileNotFoundError(path)
            return status

    def read(self, path: str, start: int, length: int) -> bytes:
        with self._reading(f"read {path}"), self.locate(path).open("rb") as file:
            file.seek(start)
            return file.read(length)

    def open(self, path: str) -> Any:
        import pyarrow as pa

        with self._reading(f"read {path}"):
            return pa.OSFile(str(self.locate(path)), "rb")

    def delete(self, paths: Iterable[str]) -> None:
        targets = [self.locate(path) for path in paths]
        for target in targets:
            with _translated(f"delete {target.relative_to(self.root)}"):
                self.disk.unlink(target)
            _log.debug("object deleted", extra={"path": str(target)})
        folders = {target.parent for target in targets}
        for folder in sorted(folders):
            if folder.is_dir():
                with _translated(f"sync {folder}"):
                    self.disk.sync_directory(folder)

    def list(self) -> Iterator[Listed]:
        for folder, folders, files in os.walk(self.root):
            directory = Path(folder)
            for name in files:
                path = directory / name
                try:
                    status = path.lstat()
                except FileNotFoundError:
                    continue  # removed since the folder was read
                modified = status.st_mtime_ns // 1000
                yield Listed(path.relative_to(self.root).as_posix(), status.st_size, modified)
            if not files and not folders and directory != self.root:
                modified = directory.stat().st_mtime_ns // 1000
                yield Listed(directory.relative_to(self.root).as_posix(), 0, modified, True)


class _Together(LocalStore):
    """The same store for files that are created at once, whose folders are synced at the end."""

    def __init__(self, store: LocalStore) -> None:
        super().__init__(store.root, store.disk, of_lake=store.of_lake)
        self._synced_folders = store._synced_folders
        self.folders: set[Path] = set()

    def _sync_name(self, target: Path) -> None:
        self.folders.add(target.parent)


class _Sink(io.RawIOBase):
    """A descriptor as a buffered Python file whose writes go through the disk seam.

    Python's own buffer flushes when it is collected: after a failure that would write into the
    file that has the descriptor's number by then.
    """

    def __init__(self, disk: Disk, descriptor: int) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._length = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._buffer += data
        length = memoryview(data).nbytes
        self._length += length
        if len(self._buffer) >= _BUFFER_BYTES:
            self.finish()
        return length

    def finish(self) -> None:
        """Write the buffered bytes."""
        data, self._buffer = bytes(self._buffer), bytearray()
        with memoryview(data) as rest:
            done = 0
            while done < len(rest):
                done += self._disk.write(self._descriptor, rest[done:])

    def tell(self) -> int:
        return self._length


@contextmanager
def _translated(action: str) -> Iterator[None]:
    """Convert system errors to Lakebed's errors, with hints."""
    try:
        yield
    except LakebedError:
        raise
    except FileNotFoundError as error:
        raise UnknownObject(f"cannot {action}: no such file in the store") from error
    except OSError as error:
        why = error.strerror or str(error)
        if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            raise ReadOnly(
                f"cannot {action}: {why.lower()}", hint="check the store's permissions and mount"
            ) from error
        hint = "free some space and repeat" if error.errno in (errno.ENOSPC, errno.EDQUOT) else None
        raise Unavailable(f"cannot {action}: {why.lower()}", hint=hint) from error
