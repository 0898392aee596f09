"""Hold the files of one tick: pin it, look up the files, release the pin when the reader closes.
Each snapshot of a lake begins here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from lakebed.catalog import clock
from lakebed.catalog.catalog import Catalog, Connection
from lakebed.errors import SnapshotExpired
from lakebed.model.time import format_instant
from lakebed.reading.leases import LeaseKeeper, Pin


class Hold:
    """Files that are live at ``tick`` stay until this is closed or its lease is lost."""

    def __init__(self, tick: int, pin: Pin, keeper: LeaseKeeper) -> None:
        self.tick = tick
        self._pin = pin
        self._keeper = keeper
        self._closed = False

    @property
    def is_leased(self) -> bool:
        """False on read-only media, where only the grace period protects the files."""
        return self._pin.leased

    def require_held(self) -> None:
        """Raise `SnapshotExpired` after a close or a loss of the lease that was noticed."""
        if self._closed or self._pin.lost:
            raise self._expired()

    def require_leased(self) -> None:
        """Raise `SnapshotExpired` if the catalog has no lease any more: files may be swept."""
        if self._keeper.is_lost(self._pin):
            raise self._expired()

    def _expired(self) -> SnapshotExpired:
        reason = "was closed" if self._closed else "outlived its lease, its files may be gone"
        return SnapshotExpired(
            f"the snapshot of {format_instant(self.tick)} {reason}", hint="take a new snapshot"
        )

    def close(self) -> None:
        """Release the files."""
        if not self._closed:
            self._closed = True
            self._keeper.unpin(self._pin)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@contextmanager
def hold_tick(
    catalog: Catalog, keeper: LeaseKeeper, as_of: int | None = None
) -> Iterator[tuple[Connection, Hold]]:
    """Pin the present tick or a past one and yield a read transaction at it. The hold outlives the
    block, unless this raises."""
    pin = keeper.pin(as_of)
    try:
        with catalog.read() as connection:
            if as_of is not None:  # a sweep may have run between the pin and this transaction
                clock.require_readable(connection, as_of)
            hold = Hold(clock.now(connection) if as_of is None else as_of, pin, keeper)
            yield connection, hold
        if as_of is None:
            keeper.raise_pin(pin, hold.tick)
    except BaseException:
        keeper.unpin(pin)
        raise
