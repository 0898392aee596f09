"""A store: bytes under relative paths, on local disk or behind an S3-compatible API.

Objects are created exclusively, are durable when `create` returns, and are never changed or
renamed. Only `check` and `backup` list objects; everything else finds them by the catalog.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from lakebed.errors import AlreadyThere, BadInput, Unavailable
from lakebed.storage import layout


@dataclass(frozen=True, slots=True)
class Listed:
    """An item of a listing: an object, or (local disk only) an empty folder."""

    path: str
    size: int
    modified: int
    empty_folder: bool = False


class Store(Protocol):
    """The interface of all stores."""

    @property
    def url(self) -> str:
        """The URL of this store, as `open_store` accepts it."""
        ...

    def create(self, path: str) -> AbstractContextManager[BinaryIO]:
        """Write a new object; durable once the block is left without an error. Raise `AlreadyThere`
        if the path exists; after any error the object may exist half-written."""
        ...

    def together(self) -> AbstractContextManager[Store]:
        """Return the store for creating several objects at once: they are durable when the block
        is left."""
        ...

    def size(self, path: str) -> int:
        """Return the number of bytes stored at the path; raise `UnknownObject` if missing."""
        ...

    def version(self, path: str) -> tuple[int, str]:
        """Return the bytes stored at the path, and a text that is another one once they have
        changed; `UnknownObject` if there are none."""
        ...

    def read(self, path: str, start: int, length: int) -> bytes:
        """Return a range of an object's bytes, shorter where the object ends."""
        ...

    def open(self, path: str) -> Any:
        """Return a random-access file for pyarrow; the caller must close it."""
        ...

    def delete(self, paths: Iterable[str]) -> None:
        """Remove objects durably; one that is missing counts as removed."""
        ...

    def list(self) -> Iterator[Listed]:
        """Yield everything below the store's root, in no particular order."""
        ...


def open_store(url: str, *, of_lake: bool = False, retry_seconds: float | None = None) -> Store:
    """Return the store at a ``file://`` or ``s3://`` URL; nothing is touched yet.

    The folder ``of_lake`` must have that lake's mark to be used: it may be on a disk that is not
    mounted. ``retry_seconds`` limits how long a failed request to a bucket is repeated.
    """
    if url.startswith("file://"):
        from lakebed.storage.local import LocalStore

        return LocalStore.from_url(url, of_lake=of_lake)
    if url.startswith("s3://"):
        from lakebed.storage.s3 import S3Store

        return S3Store(url, retry_seconds=retry_seconds)
    raise BadInput(
        f"cannot tell what kind of store {url!r} is",
        hint="use file:///folder or s3://bucket/prefix",
    )


def read_all(store: Store, path: str) -> bytes:
    """Return the bytes of a small object."""
    return store.read(path, 0, store.size(path))


def put(store: Store, path: str, data: bytes) -> None:
    """Create an object with these bytes."""
    with store.create(path) as sink:
        sink.write(data)


def probe_create_only(store: Store, probe_id: str) -> None:
    """Raise unless the store refuses to overwrite: some servers accept the condition and ignore
    it, and then two writers could silently share one name."""
    path = layout.probe_path(probe_id)
    try:
        with contextlib.suppress(AlreadyThere):  # its answer was lost, and it was sent again
            put(store, path, b"first")
        try:
            put(store, path, b"second")
        except AlreadyThere:
            return
    finally:
        store.delete([path])
    raise Unavailable(
        f"the store {store.url} overwrites objects although asked to create only",
        hint="use a store that honours If-None-Match: * on PUT",
    )
