"""Copy a whole lake while it is used: catalog rows from one snapshot, and exactly the files that
those rows name, which a lease protects from sweeps meanwhile. A backup is a lake like any other;
restoring one is the same copy in the other direction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lakebed.catalog import clock, transfer
from lakebed.catalog.catalog import Catalog, Transaction
from lakebed.errors import Conflict, DamagedFile, SnapshotExpired, UnknownObject
from lakebed.reading.leases import LeaseKeeper
from lakebed.storage.objects import Store

_CHUNK_BYTES = 8 << 20


@dataclass(slots=True)
class CopyProgress:
    """The progress of a copy."""

    tick: int = 0
    files: int = 0
    files_total: int = 0
    bytes: int = 0


def copy_lake(
    source: Catalog,
    source_store: Store,
    keeper: LeaseKeeper,
    target: Catalog,
    target_store: Store,
    begin: Callable[[Transaction], None],
    progress: Callable[[CopyProgress], None] = lambda _progress: None,
) -> CopyProgress:
    """Copy rows, then files, into a migrated catalog and a store that are blank. ``begin``
    records in the rows' transaction that a copy is under way. The caller marks it as complete
    after the return, so that a killed copy is never taken for a complete one."""
    with target.read() as connection:
        if not transfer.is_blank(connection):
            raise Conflict("the target's catalog is not empty", hint="choose an empty place")
    pin = keeper.pin_all()
    done = CopyProgress()
    try:
        with source.read() as reading, target.write() as writing:
            listed_files = transfer.copy_rows(reading, writing.connection, pin.tick)
            begin(writing)
            done.tick = clock.now(reading)
        done.files_total = len(listed_files)
        for path, size in listed_files:
            try:
                copied = _copy_object(source_store, target_store, path)
            except UnknownObject as missing:
                if keeper.is_lost(pin):
                    raise SnapshotExpired(
                        "the backup took longer than a snapshot may be read",
                        hint="make the lake's longest read longer, or copy to a faster place",
                    ) from missing
                raise DamagedFile(
                    f"{path} is missing in the store", hint="see the damage with: lakebed check"
                ) from missing
            if copied != size:
                raise DamagedFile(f"{path} has {copied} bytes, the catalog says {size}")
            done.files += 1
            done.bytes += copied
            progress(done)
    finally:
        keeper.unpin(pin)
    return done


def _copy_object(source: Store, target: Store, path: str) -> int:
    size = source.size(path)
    with target.create(path) as sink:
        for start in range(0, size, _CHUNK_BYTES):
            sink.write(source.read(path, start, min(_CHUNK_BYTES, size - start)))
    return size
