"""Quarantine: exact copies of foreign files that cannot be imported, in the store and recorded in
the catalog, so that they are neither lost nor swept. Equal bytes are stored once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from lakebed.catalog import journal
from lakebed.catalog.catalog import Catalog, Transaction
from lakebed.catalog.records import files
from lakebed.catalog.records.files import TemporaryFile
from lakebed.errors import AlreadyThere, LakebedError, StalePlan
from lakebed.model.partition import FileState
from lakebed.storage import layout
from lakebed.storage.objects import Store
from lakebed.writing.name_reservations import NamePool, take_reserved

_ATTEMPTS = 2
_CHUNK_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class QuarantinedFile:
    """The path of a quarantined copy; ``repeated`` if it existed before."""

    path: str
    repeated: bool = False


class Quarantine:
    """Keeps copies of foreign files in one lake."""

    def __init__(self, catalog: Catalog, store: Store, names: NamePool) -> None:
        self._catalog = catalog
        self.store = store
        self._names = names

    def find(self, digest: str) -> str | None:
        """Return the path of the copy with this SHA-256, or None."""
        with self._catalog.glance() as connection:
            return files.find_quarantined(connection, layout.quarantine_path(digest, ""))

    def list_files(self, reason: str) -> list[TemporaryFile]:
        """Return the quarantined files whose reason begins with ``reason``."""
        with self._catalog.read() as connection:
            set_aside = files.list_aside(connection, reason)
        return [file for file in set_aside if file.state is FileState.QUARANTINED]

    def keep(
        self, open_source: Callable[[], BinaryIO], digest: str, reason: str
    ) -> QuarantinedFile:
        """Copy bytes with this SHA-256 durably. Raise `StalePlan` if the bytes have changed,
        OSError if they cannot be read."""
        earlier = self.find(digest)
        if earlier is not None:
            return QuarantinedFile(earlier, repeated=True)
        for attempt in range(_ATTEMPTS):
            lease, path = self._names.take_quarantine(digest)
            try:
                with self._names.using(lease, [path]):
                    size = self._copy(open_source, path, digest)
                    aside = TemporaryFile(path, size, FileState.QUARANTINED, reason=reason)
                    return self._record(aside, digest, lease)
            except AlreadyThere:  # the answer to a write was lost: the name is lost, not the bytes
                if attempt == _ATTEMPTS - 1:
                    raise
            except _BadSource as error:
                raise error.error from None
        raise AssertionError("every attempt returns or raises")

    def _copy(self, open_source: Callable[[], BinaryIO], path: str, digest: str) -> int:
        sha256, size = hashlib.sha256(), 0
        with open_source() as source, self.store.create(path) as sink:
            while chunk := _read(source):
                sha256.update(chunk)
                size += len(chunk)
                sink.write(chunk)
        if sha256.hexdigest() != digest:
            raise StalePlan("the file changed while it was copied", hint="try again")
        return size

    def _record(self, aside: TemporaryFile, digest: str, lease: str) -> QuarantinedFile:
        path = aside.file_path

        def work(transaction: Transaction) -> QuarantinedFile:
            connection = transaction.connection
            existing_path = files.find_quarantined(connection, layout.quarantine_path(digest, ""))
            if existing_path is not None:  # another process was quicker
                files.discard(connection, [path], lease, transaction.tick)
                return QuarantinedFile(existing_path, repeated=True)
            take_reserved(connection, [path], lease)
            files.insert_many(connection, [aside])
            entry = journal.Entry("quarantine", aside.reason, file_path=path, bytes=aside.file_size)
            journal.append(transaction, [entry])
            return QuarantinedFile(path)

        return self._catalog.commit(
            work,
            lambda connection, done: files.find_quarantined(connection, done.path) is not None,
        )


class _BadSource(LakebedError):
    """The source, not the store, cannot be read."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


def _read(source: BinaryIO) -> bytes:
    try:
        return source.read(_CHUNK_BYTES)
    except OSError as error:
        raise _BadSource(error) from error
