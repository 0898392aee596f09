"""Reserved file names: a path is in the catalog before a byte is written under it, so that the
catalog lists every file and a sweep never lists the store. Names are reserved ahead of need.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from lakebed.catalog.catalog import Catalog, Connection
from lakebed.catalog.records import files, lakes
from lakebed.catalog.records.files import TemporaryFile
from lakebed.errors import AlreadyThere, LakebedError, LeaseLost, OutcomeUnknown, Unavailable
from lakebed.model.ids import new_id
from lakebed.model.partition import FileState
from lakebed.reading.leases import LeaseKeeper
from lakebed.storage import layout

_MOST_AHEAD = 64
_SEGMENTS = ("", "")


class NamePool:
    """Unused names that this process has reserved, by view set and instance, and for segments."""

    def __init__(self, catalog: Catalog, keeper: LeaseKeeper) -> None:
        self._catalog = catalog
        self._keeper = keeper
        self._lock = threading.Lock()
        self._lease = ""
        self._unused: dict[tuple[str, str], list[str]] = defaultdict(list)
        self._ahead: dict[tuple[str, str], int] = defaultdict(int)

    def take(self, view_set: str, instance: str, count: int) -> tuple[str, list[str]]:
        """Return the lease that owns the reservations, and ``count`` names that nothing used."""
        return self._take((view_set, instance), count)

    def take_segment(self) -> tuple[str, str]:
        """Return the lease that owns the reservation, and a segment's name that nothing used."""
        lease, (name,) = self._take(_SEGMENTS, 1)
        return lease, name

    def take_quarantine(self, digest: str) -> tuple[str, str]:
        """Return the lease that owns the reservation, and a name for foreign bytes with this
        SHA-256."""
        with self._lock:
            lease = self._current_lease()
            path = layout.quarantine_path(digest, new_id())
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
            assigned_names, self._unused[key] = names[:count], names[count:]
            return lease, assigned_names

    def _reserve(self, key: tuple[str, str], count: int) -> None:
        with self._catalog.write() as transaction:
            paths = [_spell(key, transaction.tick) for _ in range(count)]
            reserved = [
                TemporaryFile(path, 0, FileState.STAGED, lease_id=self._lease) for path in paths
            ]
            files.insert_many(transaction.connection, reserved)
        self._unused[key].extend(paths)

    @contextmanager
    def using(
        self, lease: str, paths: Sequence[str], *, written_elsewhere: bool = False
    ) -> Iterator[None]:
        """Write and publish files under these names within the block; if it fails, the names are
        left to sweeps. With ``written_elsewhere``, other processes may still write under them.

        A write that seems to have failed may still arrive, so its name stays claimed for the lake's
        longest read. After an unknown outcome of the commit, or an interrupt, the end of the lease
        decides: an interrupt may have left a connection inside its transaction.
        """
        try:
            yield
        except LeaseLost:
            self.forget(lease)
            raise
        except OutcomeUnknown:
            raise
        except Exception as error:
            may_arrive = not isinstance(error, LakebedError) or isinstance(
                error, AlreadyThere | Unavailable
            )
            # If the catalog cannot be reached, the names end with the lease of this process.
            with suppress(LakebedError):
                if paths and (may_arrive or written_elsewhere):
                    self.give_up(paths)
                elif paths:
                    self.discard(paths)
            raise

    def discard(self, paths: Sequence[str]) -> None:
        """Let the next sweep delete the files under these names, which are not published."""
        with self._catalog.write() as transaction:
            files.discard(transaction.connection, paths, self._lease, transaction.tick)

    def give_up(self, paths: Sequence[str]) -> None:
        """Keep these names claimed for the lake's longest read, because writes under them may still
        arrive; afterwards sweeps delete their files."""
        with self._catalog.write() as transaction:
            until = transaction.tick + lakes.get(transaction.connection).longest_read_us
            files.discard(transaction.connection, paths, self._lease, until)

    def put_back(self, lease: str, view_set: str, instance: str, names: Sequence[str]) -> None:
        """Return names under which nothing was written, for the next to take."""
        with self._lock:
            if lease == self._lease:
                self._unused[view_set, instance] += names

    def forget(self, lease: str) -> None:
        """Drop this lost lease and its reservations. Names that another thread has reserved under
        a newer lease stay."""
        with self._lock:
            if lease == self._lease:
                self._unused.clear()
            self._keeper.forget_writer(lease)

    def close(self) -> None:
        """Return the names that were not used."""
        with self._lock:
            unused = [path for names in self._unused.values() for path in names]
            self._unused.clear()
            if unused:
                with self._catalog.write() as transaction:
                    files.take_staged(transaction.connection, unused, self._lease)


def take_reserved(connection: Connection, paths: Sequence[str], lease: str) -> None:
    """Take files over from their reservations, or raise `LeaseLost`. Call it at the end of a
    transaction: the statements before it can then share one round trip."""
    if paths and files.take_staged(connection, paths, lease) != len(paths):
        raise LeaseLost(
            "a reservation was lost, because this process seemed dead", hint="do it again"
        )


def _spell(key: tuple[str, str], tick: int) -> str:
    if key == _SEGMENTS:
        return layout.segment_path(tick, new_id())
    return layout.partition_path(*key, tick, new_id())
