"""The leases of one process: taken at the first use, renewed by one background thread, released at
close. A reader pins a tick before it takes a snapshot; while the process lives, sweeps keep all
files that were retired after the oldest pinned tick.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from lakebed.catalog import clock, leases
from lakebed.catalog.catalog import Catalog, Connection, Transaction
from lakebed.catalog.leases import Lease, LeaseKind
from lakebed.errors import Conflict, LeaseLost
from lakebed.model.ids import new_id
from lakebed.model.time import format_instant

_LOOK_SECONDS = 0.5
_log = logging.getLogger(__name__)


class Pin:
    """Protects files that are retired after ``tick`` until it is released or its lease is lost."""

    def __init__(self, tick: int, since: int, lease_id: str | None = None) -> None:
        self.tick = tick
        self.since = since  # when it was taken: reads that last too long are ended
        self.lease_id = lease_id
        self.lost = False

    @property
    def leased(self) -> bool:
        """False on read-only media, where only the grace period protects a reader."""
        return self.lease_id is not None


@dataclass(slots=True)
class _Reader:
    """The reader's lease as stored in the catalog."""

    lease_id: str
    oldest_tick: int
    pinned_at: int


class LeaseKeeper:
    """Holds this process's leases. Safe to use from several threads; not across a fork."""

    def __init__(self, catalog: Catalog, *, holder: str, ttl_us: int) -> None:
        self._catalog = catalog
        self._holder = holder
        self._ttl_us = ttl_us
        self._lock = threading.RLock()
        self._pins_lock = threading.Lock()
        """Protects the pins only. It is never held while waiting for a connection to the catalog:
        a thread that changes a pin holds a connection, so both would wait for each other."""
        self._reader: _Reader | None = None
        self._writer: str | None = None
        self._builders: set[str] = set()
        self._begun: set[str] = set()
        """Leases that may be in the catalog although this process does not hold them: an interrupt
        or a lost connection at their commit."""
        self._pins: set[Pin] = set()
        self._closed = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def writer(self) -> str:
        """Return the lease that owns this process's reservations."""
        with self._lock:
            self._require_open()
            if self._writer is None:
                with self._catalog.write() as transaction:
                    lease_id = self._take(
                        transaction.connection, LeaseKind.WRITER, transaction.tick
                    )
                self._writer = lease_id
            return self._writer

    def forget_writer(self, lease_id: str) -> None:
        """Drop this lease, which a sweep has ended; the next writer takes a new one."""
        with self._lock:
            if self._writer == lease_id:
                self._writer = None

    def _take(
        self,
        connection: Connection,
        kind: LeaseKind,
        tick: int,
        *,
        view_set: str | None = None,
        oldest_tick: int | None = None,
    ) -> str:
        pinned_at = None if oldest_tick is None else tick
        lease = Lease(
            new_id(),
            kind,
            self._holder,
            0,
            self._ttl_us,
            tick,
            view_set,
            oldest_tick,
            pinned_at,
        )
        self._begun.add(lease.lease_id)
        self._start()
        leases.insert(connection, lease)
        return lease.lease_id

    def pin(self, as_of: int | None = None, *, trusting: bool = False) -> Pin:
        """Protect files that are live now, or were at a past tick, before the catalog is read. With
        ``trusting``, the caller checks the lease in its own transaction and calls `lose`."""
        if self._catalog.read_only:
            return self._pin_without_lease(as_of)
        if as_of is not None:
            return self._pin_past(as_of)
        with self._lock:
            self._require_open()
            if not trusting:
                self._notice_loss()
            if self._reader is None:
                with self._catalog.write() as transaction:
                    reader = self._hold(transaction, transaction.tick)
                self._reader = reader
            reader = self._reader
            return self._add(Pin(reader.oldest_tick, reader.pinned_at, reader.lease_id))

    def pin_all(self) -> Pin:
        """Protect all files that are not swept yet; the pin has the oldest such tick."""
        if self._catalog.read_only:
            with self._catalog.read() as connection:
                return Pin(clock.sweep_horizon(connection), clock.now(connection))
        return self._pin_past(None)

    def _pin_past(self, as_of: int | None) -> Pin:
        """Pin a past tick (or the horizon) inside a transaction on the clock, so that a sweep
        either sees the pin or has already moved the horizon past it."""
        with self._lock:
            self._require_open()
            self._notice_loss()
            with self._catalog.write() as transaction:
                if as_of is None:
                    tick = clock.sweep_horizon(transaction.connection)
                else:
                    tick = as_of
                    clock.require_readable(transaction.connection, as_of)
                reader = self._hold(transaction, tick)
            self._reader = reader
            return self._add(Pin(tick, transaction.tick, reader.lease_id))

    def _add(self, pin: Pin) -> Pin:
        with self._pins_lock:
            self._pins.add(pin)
        return pin

    def _hold(self, transaction: Transaction, oldest: int) -> _Reader:
        """Extend the reader's lease back to a tick."""
        connection, now = transaction.connection, self._reader
        if now is not None:
            reach = min(oldest, now.oldest_tick)
            if leases.renew(connection, now.lease_id, (reach, now.pinned_at)):
                return _Reader(now.lease_id, reach, now.pinned_at)
            self._lose_reader()
        lease_id = self._take(connection, LeaseKind.READER, transaction.tick, oldest_tick=oldest)
        return _Reader(lease_id, oldest, transaction.tick)

    def _pin_without_lease(self, as_of: int | None) -> Pin:
        """On read-only media only the grace period protects a reader."""
        with self._catalog.read() as connection:
            now = clock.now(connection)
            if as_of is not None:
                clock.require_readable(connection, as_of)
        return Pin(now if as_of is None else as_of, now)

    def raise_pin(self, pin: Pin, tick: int) -> None:
        """Move a pin forward to the tick of its snapshot."""
        with self._pins_lock:
            pin.tick = pin.since = tick

    def unpin(self, pin: Pin) -> None:
        """Release a pin."""
        with self._pins_lock:
            self._pins.discard(pin)

    def is_lost(self, pin: Pin) -> bool:
        """Return whether a sweep may have deleted what this pin protects. Reads the catalog."""
        if not pin.leased:
            return True
        with self._lock:
            self._notice_loss()
            return pin.lost

    def _notice_loss(self) -> None:
        """Drop the reader's lease if a sweep has ended it: it protects nothing."""
        if self._reader is not None:
            with self._catalog.glance() as connection:
                if leases.find(connection, self._reader.lease_id) is None:
                    self._lose_reader()

    def lose(self, pin: Pin) -> None:
        """Drop the lease of a pin that is missing from the catalog."""
        with self._lock:
            if self._reader is not None and self._reader.lease_id == pin.lease_id:
                self._lose_reader()

    def _lose_reader(self) -> None:
        self._reader = None
        with self._pins_lock:
            for pin in self._pins:
                pin.lost = True
            self._pins.clear()

    @contextmanager
    def building(self, view_set: str) -> Iterator[str]:
        """Hold the right to build one view set within the block; `Conflict` if another has it."""
        lease_id = ""
        try:
            with self._lock:
                self._require_open()
                with self._catalog.write() as transaction:
                    other = leases.find_builder(transaction.connection, view_set)
                    if other is not None:
                        raise Conflict(
                            f"{other.holder} builds {view_set} since "
                            f"{format_instant(other.acquired_at)}",
                            hint="wait for it; if it is dead, a sweep ends its lease",
                        )
                    lease_id = self._take(
                        transaction.connection,
                        LeaseKind.BUILDER,
                        transaction.tick,
                        view_set=view_set,
                    )
                self._builders.add(lease_id)
            yield lease_id
        finally:
            with self._lock:
                if lease_id in self._builders or lease_id in self._begun:
                    self._builders.discard(lease_id)
                    with self._catalog.beat() as connection:
                        leases.remove(connection, lease_id)
                    self._begun.discard(lease_id)

    def end_dead_builders(
        self,
        view_sets: Collection[str],
        *,
        notice: Callable[[Lease], None] = lambda _lease: None,
        require_wanted: Callable[[], None] = lambda: None,
    ) -> set[str]:
        """Watch the builders of these view sets until they renew their leases or their time-to-live
        is over, end the leases of the dead, and return the view sets whose builders are alive.
        ``require_wanted`` raises if the build was cancelled."""
        watched = self._find_builders(view_sets)
        for lease in watched.values():
            notice(lease)
        started_at = time.monotonic()
        live_view_sets: set[str] = set()
        while watched:
            require_wanted()
            shortest = min(lease.ttl_us for lease in watched.values())
            time.sleep(min(_LOOK_SECONDS, shortest / 4_000_000))
            waited = time.monotonic() - started_at
            builders = self._find_builders(watched)
            for name, first in list(watched.items()):
                now = builders.get(name)
                if now is not None and (now.lease_id, now.beats) != (first.lease_id, first.beats):
                    live_view_sets.add(name)
                elif now is not None and waited < first.ttl_us / 1_000_000:
                    continue
                elif now is not None and not self._end(first):
                    live_view_sets.add(name)
                del watched[name]
        return live_view_sets

    def _find_builders(self, view_sets: Collection[str]) -> dict[str, Lease]:
        with self._catalog.read() as connection:
            builders = {name: leases.find_builder(connection, name) for name in view_sets}
        return {name: lease for name, lease in builders.items() if lease is not None}

    def _end(self, dead: Lease) -> bool:
        with self._catalog.write() as transaction:
            return leases.remove(transaction.connection, dead.lease_id, dead.beats)

    def require_builder(self, lease_id: str) -> None:
        """Raise `LeaseLost` if the right to build was taken away."""
        with self._catalog.read() as connection:
            if leases.find(connection, lease_id) is None:
                raise LeaseLost("the lease to build was taken away", hint="start the build again")

    def beat(self) -> None:
        """Renew every lease once and release the ticks that no reader needs."""
        with self._lock:
            held = self._held_leases()
            lease_ids = held | self._begun
            if not lease_ids:
                return
            with self._catalog.beat() as connection:
                for lease_id in sorted(lease_ids):  # the order of sweeps: no deadlock
                    if lease_id not in held:
                        leases.remove(connection, lease_id)
                    elif self._reader is not None and lease_id == self._reader.lease_id:
                        self._beat_reader(connection, lease_id)
                    elif not leases.renew(connection, lease_id):
                        self._builders.discard(lease_id)
                        self.forget_writer(lease_id)
            self._begun.clear()

    def _held_leases(self) -> set[str]:
        held = set(self._builders)
        if self._writer is not None:
            held.add(self._writer)
        if self._reader is not None:
            held.add(self._reader.lease_id)
        return held

    def _beat_reader(self, connection: Connection, lease_id: str) -> None:
        with self._pins_lock:
            held = [(pin.tick, pin.since) for pin in self._pins]
        if not held:
            leases.remove(connection, lease_id)
            self._reader = None
            return
        oldest, since = (min(values) for values in zip(*held, strict=True))
        if leases.renew(connection, lease_id, (oldest, since)):
            self._reader = _Reader(lease_id, oldest, since)
        else:
            self._lose_reader()

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="lakebed-leases", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._ttl_us / 3_000_000):
            try:
                self.beat()
            except Exception as error:  # noqa: BLE001  (a thread that died would lose every lease)
                # The catalog may come back before the lease runs out; if not, the next beat that
                # reaches it finds the lease gone.
                _log.warning("cannot renew the leases of this process: %s", error)

    def close(self) -> None:
        """Release everything and stop the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._closed = True
            held = sorted(self._held_leases() | self._begun)
            self._lose_reader()
            self._writer = None
            self._builders.clear()
            self._begun.clear()
            if held:
                with self._catalog.beat() as connection:
                    for lease_id in held:
                        leases.remove(connection, lease_id)

    def _require_open(self) -> None:
        if self._closed:
            raise LeaseLost("this lake was closed", hint="open it again")
