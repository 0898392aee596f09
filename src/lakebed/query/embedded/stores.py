"""The engine's access to a lake's files: paths on disk, or objects in a bucket."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, unquote, urlsplit

from datafusion import SessionContext

from lakebed.settings import s3_endpoint
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import Store


class Locator:
    """Spells stored paths as the engine opens them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def register(self, context: SessionContext) -> None:
        """Give the engine access to the store, unless it is a folder."""
        if isinstance(self._store, LocalStore):
            return
        from datafusion.object_store import AmazonS3

        bucket = urlsplit(self._store.url).netloc
        endpoint = s3_endpoint()
        options: dict[str, Any] = {"endpoint": endpoint} if endpoint else {}
        if endpoint and endpoint.startswith("http://"):
            options["allow_http"] = True
        context.register_object_store("s3://", AmazonS3(bucket_name=bucket, **options), bucket)

    def locate(self, path: str) -> str:
        """Return the location of a stored file."""
        if isinstance(self._store, LocalStore):
            return self._store.locate(
                path
            ).as_uri()  # the engine would read a plain path as a pattern
        return f"{self._store.url}/{path}"

    def list_secrets(self) -> set[str]:
        """Return the words that tell where the lake is. Plans name files as the catalog does."""
        root = unquote(urlsplit(self._store.url).path).strip("/") + "/"
        return {root, quote(root)} - {"/"}
