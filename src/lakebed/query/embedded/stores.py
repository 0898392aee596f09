"""Where the engine finds a lake's files: paths on disk, or objects in a bucket."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import SessionContext

from lakebed.query.result import Stream
from lakebed.settings import s3_endpoint
from lakebed.storage.local import LocalStore
from lakebed.storage.objects import Store


class Locator:
    """Spells stored paths as the engine opens them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def register(self, context: SessionContext) -> None:
        """Let the engine reach the store, if it is no folder."""
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
        """The place of a stored file."""
        if isinstance(self._store, LocalStore):
            return self._store.locate(path).as_uri()  # a plain path would be taken for a pattern
        return f"{self._store.url}/{path}"

    def conceal(self, plan: Stream) -> Stream:
        """The text of a plan with files as the catalog names them: whoever may ask the lake is not
        told where it is."""
        root = unquote(urlsplit(self._store.url).path).strip("/") + "/"
        return _Concealing(plan, {root, quote(root)} - {"/"})


class _Concealing:
    """A stream without some words in its texts."""

    def __init__(self, stream: Stream, words: set[str]) -> None:
        self.schema = stream.schema
        self._stream = stream
        self._words = words

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._stream:
            columns = [
                self._clean(each) if pa.types.is_string(each.type) else each
                for each in batch.columns
            ]
            yield pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def _clean(self, texts: pa.Array) -> pa.Array:
        for word in self._words:
            texts = pc.replace_substring(texts, word, "")
        return texts

    def cancel(self) -> None:
        self._stream.cancel()

    def close(self) -> None:
        self._stream.close()
