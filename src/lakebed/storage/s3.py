"""A store in a bucket, through obstore. A put is one request with ``If-None-Match: *``, so it is
atomic and exclusive; the server acknowledges what is durable.

Credentials, region and endpoint come from the environment in the spelling of AWS
(``AWS_ACCESS_KEY_ID``, ``AWS_REGION``, ``AWS_ENDPOINT_URL`` …).
"""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, BinaryIO
from urllib.parse import urlsplit

from lakebed.errors import AlreadyThere, BadInput, ReadOnly, Unavailable, UnknownObject
from lakebed.settings import s3_endpoint
from lakebed.storage import layout
from lakebed.storage.objects import Listed

_DELETE_BATCH = 1000
_log = logging.getLogger(__name__)
_METADATA = re.compile(r"/latest/(?:api/token|meta-data)")
"""The address that obstore asks for credentials when the environment has none."""


class S3Store:
    """Objects are keys below one prefix of one bucket."""

    def __init__(self, url: str, *, retry_seconds: float | None = None) -> None:
        """Name a bucket; ``retry_seconds`` limits how long a failed request is repeated."""
        import obstore.store

        parts = urlsplit(url)
        if not parts.netloc or parts.query or parts.fragment:
            raise BadInput(f"{url!r} is not a bucket", hint="use s3://bucket/prefix")
        self.url = url.rstrip("/")
        endpoint = s3_endpoint()
        options: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
        if retry_seconds is not None:
            limit = timedelta(seconds=retry_seconds)
            options["retry_config"] = {"max_retries": 2, "retry_timeout": limit}
        insecure = bool(endpoint and endpoint.startswith("http://"))
        self._store = obstore.store.S3Store(
            parts.netloc,
            prefix=parts.path.strip("/") or None,
            client_options={"allow_http": insecure},
            **options,
        )

    @contextmanager
    def create(self, path: str) -> Iterator[BinaryIO]:
        import obstore

        layout.check_path(path)
        sink = io.BytesIO()
        yield sink
        with self._translated(f"write {path}"):
            obstore.put(self._store, path, sink.getvalue(), mode="create", use_multipart=False)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("object created", extra={"path": path, "bytes": sink.tell()})

    @contextmanager
    def together(self) -> Iterator[S3Store]:
        yield self  # a put is durable when it is answered

    def size(self, path: str) -> int:
        import obstore

        with self._translated(f"look at {path}"):
            return int(obstore.head(self._store, layout.check_path(path))["size"])

    def version(self, path: str) -> tuple[int, str]:
        import obstore

        with self._translated(f"look at {path}"):
            head = obstore.head(self._store, layout.check_path(path))
        return int(head["size"]), str(head["e_tag"] or head["last_modified"])

    def read(self, path: str, start: int, length: int) -> bytes:
        import obstore

        layout.check_path(path)
        if length <= 0:
            return b""
        try:
            with self._translated(f"read {path}"):
                return bytes(obstore.get_range(self._store, path, start=start, length=length))
        except Unavailable:
            if start >= self.size(path):  # servers answer a range behind the end with an error
                return b""
            raise

    def open(self, path: str) -> Any:
        import pyarrow as pa

        return pa.PythonFile(_Reader(self, path), "r")

    def delete(self, paths: Iterable[str]) -> None:
        import obstore

        keys = [layout.check_path(path) for path in paths]
        for start in range(0, len(keys), _DELETE_BATCH):
            with self._translated("delete objects"):
                batch = keys[start : start + _DELETE_BATCH]
                obstore.delete(self._store, batch)
            for key in batch:
                _log.debug("object deleted", extra={"path": key})

    def list(self) -> Iterator[Listed]:
        import obstore

        with self._translated("list objects"):
            for batch in obstore.list(self._store):
                for item in batch:
                    modified = int(item["last_modified"].timestamp() * 1_000_000)
                    yield Listed(item["path"], item["size"], modified)

    @contextmanager
    def _translated(self, action: str) -> Iterator[None]:
        """Convert the store's errors to Lakebed's; obstore's messages have many lines."""
        from obstore import exceptions

        try:
            yield
        except FileNotFoundError as error:
            raise UnknownObject(f"cannot {action}: not in {self.url}") from error
        except exceptions.AlreadyExistsError as error:
            raise AlreadyThere(f"cannot {action}: it exists already in {self.url}") from error
        except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
            raise ReadOnly(
                f"cannot {action}: {self.url} denies it", hint="check the AWS_… credentials"
            ) from error
        except (exceptions.BaseError, OSError) as error:
            reason = str(error).splitlines()[0]
            if _METADATA.search(str(error)):
                raise Unavailable(
                    f"cannot {action} in {self.url}: no AWS credentials found",
                    hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use an instance role",
                ) from error
            raise Unavailable(
                f"cannot {action} in {self.url}: {reason}",
                hint="check the bucket, AWS_ENDPOINT_URL and the network",
            ) from error


class _Reader(io.RawIOBase):
    """An object as a random-access Python file; each read is one request."""

    def __init__(self, store: S3Store, path: str) -> None:
        self._store = store
        self._path = path
        self._size = store.size(path)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        self._position = max(0, base + offset)
        return self._position

    def tell(self) -> int:
        return self._position

    def read(self, size: int | None = -1) -> bytes:
        remaining = max(0, self._size - self._position)
        length = remaining if size is None or size < 0 else min(size, remaining)
        data = self._store.read(self._path, self._position, length)
        self._position += len(data)
        return data
