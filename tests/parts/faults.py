"""Faults on purpose: disks that fail, and connections that break during commit."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import sqlalchemy as sa

from lakebed.lake import Lake
from lakebed.storage.disk import Disk


class FailingDisk(Disk):
    """Fails one kind of operation with one errno."""

    def __init__(self, operation: str, code: int) -> None:
        self._operation = operation
        self._code = code

    def _fail(self, operation: str) -> None:
        if operation == self._operation:
            raise OSError(self._code, os.strerror(self._code))

    def create(self, path: Path) -> int:
        self._fail("create")
        return super().create(path)

    def write(self, descriptor: int, data: memoryview) -> int:
        self._fail("write")
        return super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._fail("sync")
        super().sync(descriptor)

    def sync_directory(self, path: Path) -> None:
        self._fail("sync_directory")
        super().sync_directory(path)


class Broken(sa.exc.OperationalError):
    """What a driver raises when its connection breaks."""

    def __init__(self) -> None:
        super().__init__("COMMIT", {}, Exception("server closed the connection"))


def break_commit(lake: Lake, *, after: bool) -> Callable[[], int]:
    """Let the next commit of something journaled raise, before or after it really happened; how
    often it did."""
    dialect = lake.catalog.engine.dialect
    original = dialect.do_commit
    broken, armed = 0, False

    def watch(_conn: object, _cursor: object, statement: str, *_rest: object) -> None:
        nonlocal armed
        armed = armed or statement.startswith("INSERT INTO journal")

    sa.event.listen(lake.catalog.engine, "before_cursor_execute", watch)

    def do_commit(connection: object) -> None:
        nonlocal broken
        if armed and not broken:
            broken += 1
            if after:
                original(connection)
            else:
                dialect.do_rollback(connection)
            raise Broken
        original(connection)

    dialect.do_commit = do_commit  # type: ignore[method-assign]
    return lambda: broken


class FlippingDisk(Disk):
    """Flips one bit of what is written; at a ``share`` of each write."""

    def __init__(self, share: float, bit: int = 3) -> None:
        self._share = share
        self._bit = bit

    def write(self, descriptor: int, data: memoryview) -> int:
        changed = bytearray(data)
        changed[int(len(changed) * self._share)] ^= 1 << self._bit
        return super().write(descriptor, memoryview(changed))
