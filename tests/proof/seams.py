"""The seams through which everything durable happens: every catalog statement and every operation
on disk. A hook that is told of each can record them, kill the process, or fail one.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from lakebed.lake import Lake
from lakebed.storage.disk import Disk
from lakebed.storage.local import LocalStore

Hook = Callable[[str], None]
_TABLE = re.compile(r"\b(?:FROM|INTO|UPDATE|TABLE|INDEX|TRIGGER)\s+(?:IF \w+ )?\"?(\w+)", re.I)


class HookedDisk(Disk):
    """Tells a hook before each operation; a write is told of again when half of it is done."""

    def __init__(self, hook: Hook) -> None:
        self._hook = hook

    def make_directory(self, path: Path) -> None:
        self._hook("disk make_directory")
        super().make_directory(path)

    def create(self, path: Path) -> int:
        self._hook("disk create")
        return super().create(path)

    def write(self, descriptor: int, data: memoryview) -> int:
        self._hook("disk write")
        half = len(data) // 2
        written = super().write(descriptor, data[:half]) if half else 0
        if half:
            self._hook("disk write, half done")
        return written + super().write(descriptor, data[written:])

    def sync(self, descriptor: int) -> None:
        self._hook("disk sync")
        super().sync(descriptor)

    def close(self, descriptor: int) -> None:
        self._hook("disk close")
        super().close(descriptor)

    def sync_directory(self, path: Path) -> None:
        self._hook("disk sync_directory")
        super().sync_directory(path)

    def unlink(self, path: Path) -> None:
        self._hook("disk unlink")
        super().unlink(path)


def name_statement(statement: str) -> str:
    """``INSERT INTO journal …`` as ``sql INSERT journal``."""
    words = statement.split(None, 1)
    table = _TABLE.search(statement)
    return f"sql {words[0].upper()} {table[1].lower() if table else ''}".strip()


def hook_engine(engine: sa.Engine, hook: Hook) -> None:
    """Tell the hook before each statement and each commit."""

    def before(_conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        hook(name_statement(statement))

    sa.event.listen(engine, "before_cursor_execute", before)
    sa.event.listen(engine, "commit", lambda _connection: hook("sql COMMIT"))


def hook_lake(lake: Lake, hook: Hook) -> None:
    """Tell the hook of everything that an open lake does from now on."""
    hook_engine(lake.catalog.engine, hook)
    assert isinstance(lake.store, LocalStore)
    lake.store.disk = HookedDisk(hook)


class Recorder:
    """Writes down every event."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def __call__(self, event: str) -> None:
        self.events.append(event)


class Killer:
    """Kills this process before its n-th event, counted from one."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self, _event: str) -> None:
        self._left -= 1
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
