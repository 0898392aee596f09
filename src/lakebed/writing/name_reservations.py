"""Reserved file names: a path is in the catalog before a byte of it is written, so that no file is
ever unknown and sweeping never lists. Names are reserved ahead of need, more each time.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

from lakebed.catalog import files, lakes
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.files import TemporaryFile
from lakebed.model.partition import FileState
from lakebed.reading.leases import LeaseKeeper
from lakebed.storage import layout

_MOST_AHEAD = 64
_SEGMENTS = ("", "")


class NamePool:
    """Unused names that this process has reserved, by view set and instance, and for segments."""

    def __init__(self, catalog: Catalog, keeper: LeaseKeeper, new_id: Callable[[], str]) -> None:
        self._catalog = catalog
        self._keeper = keeper
        self._new_id = new_id
        self._lock = threading.Lock()
        self._lease = ""
        self._unused: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._ahead: dict[tuple[str, str], int] = defaultdict(int)

    def take(self, view_set: str, instance: str, count: int) -> tuple[str, list[str]]:
        """``count`` names that were never used, and the lease that owns their reservation."""
        return self._take((view_set, instance), count)

    def take_segment(self) -> tuple[str, str]:
        """A segment's name that was never used, and the lease that owns its reservation."""
        lease, (name,) = self._take(_SEGMENTS, 1)
        return lease, name

    def take_quarantine(self, digest: str) -> tuple[str, str]:
        """A name for foreign bytes with this SHA-256, and the lease that owns its reservation."""
        with self._lock:
            lease = self._current_lease()
            path = layout.quarantine_path(digest, self._new_id())
            with self._catalog.write() as transaction:
                reserved = TemporaryFile(path, 0, FileState.STAGED, lease_id=lease)
                files.insert_many(transaction.connection, [reserved])
            return lease, path

    def _current_lease(self) -> str:
        lease = self._keeper.writer()
        if lease != self._lease:  # the old lease was lost, and its reservations with it
            self._lease = lease
            self._unused.clear()
        return lease

    def _take(self, key: tuple[str, str], count: int) -> tuple[str, list[str]]:
        with self._lock:
            lease = self._current_lease()
            names = self._unused[key]
            if len(names) < count:
                self._reserve(key, count - len(names) + self._ahead[key])
                self._ahead[key] = min(_MOST_AHEAD, 2 * self._ahead[key] + 1)
            taken, self._unused[key] = names[:count], names[count:]
            return lease, taken

    def _reserve(self, key: tuple[str, str], count: int) -> None:
        with self._catalog.write() as transaction:
            paths = [_spell(key, transaction.tick, self._new_id()) for _ in range(count)]
            reserved = [
                TemporaryFile(path, 0, FileState.STAGED, lease_id=self._lease) for path in paths
            ]
            files.insert_many(transaction.connection, reserved)
        self._unused[key].extend(paths)

    def discard(self, paths: list[str]) -> None:
        """What was written under these names will not be published: let a sweep have it."""
        with self._catalog.write() as transaction:
            files.discard(transaction.connection, paths, self._lease, transaction.tick)

    def give_up(self, paths: list[str]) -> None:
        """These names were told to attempts elsewhere that may still be running: they stay claimed
        for the lake's longest read, and sweeps delete what appears under them."""
        with self._catalog.write() as transaction:
            until = transaction.tick + lakes.get(transaction.connection).longest_read_us
            files.discard(transaction.connection, paths, self._lease, until)

    def release(self, paths: list[str]) -> None:
        """Give back names under which nobody has written or will write."""
        with self._catalog.write() as transaction:
            files.take_staged(transaction.connection, paths, self._lease)

    def forget(self, lease: str) -> None:
        """This lease was lost, and every reservation with it. What another thread reserved
        meanwhile under a newer lease stays."""
        with self._lock:
            if lease == self._lease:
                self._unused.clear()
            self._keeper.forget_writer(lease)

    def close(self) -> None:
        """Give back the names that were never used."""
        with self._lock:
            unused = [path for names in self._unused.values() for path in names]
            self._unused.clear()
            if unused:
                with self._catalog.write() as transaction:
                    files.take_staged(transaction.connection, unused, self._lease)


def _spell(key: tuple[str, str], tick: int, file_id: str) -> str:
    if key == _SEGMENTS:
        return layout.segment_path(tick, file_id)
    return layout.partition_path(*key, tick, file_id)
