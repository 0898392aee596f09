"""Logs what becomes of statements: that one started, and how it ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lakebed.query.result import Stream
from lakebed.query.snapshot import StatementSnapshot

if TYPE_CHECKING:
    import pyarrow as pa

_LONGEST = 500
_log = logging.getLogger(__name__)


class Watch:
    """Watches one statement: what fails while it is entered is logged, and so is the end of the
    stream that it is given to follow; whichever comes first."""

    def __init__(self, sql: str, engine: str) -> None:
        text = " ".join(str(sql).split())
        self._said: dict[str, Any] = {"statement": text[:_LONGEST], "engine": engine}
        self._begun = time.perf_counter()
        self._over = False

    def __enter__(self) -> Self:
        _log.info("query started", extra=self._said)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.fail(error)

    def follow(self, stream: Stream, snapshot: StatementSnapshot) -> Stream:
        """The same stream, whose end is logged with what is read for it."""
        if _log.isEnabledFor(logging.INFO):
            self._said["tables"] = [*snapshot.tables, *snapshot.user_tables]
            self._said["bytes"] = sum(each.file_size for each in snapshot.files)
            self._said["tick"] = snapshot.tick
        return WatchedStream(stream, self)

    def end(self, message: str, rows: int) -> None:
        """Say that it is over, and how many rows came out."""
        if not self._over:
            self._over = True
            _log.info(message, extra=self._said | {"rows": rows} | self._lasted())

    def fail(self, error: BaseException) -> None:
        """Say why it gives no rows, or no more."""
        if not self._over:
            self._over = True
            _log.warning("query failed: %s", error, extra=self._said | self._lasted())

    def _lasted(self) -> dict[str, Any]:
        return {"seconds": round(time.perf_counter() - self._begun, 6)}


class WatchedStream:
    """Another stream, whose end is told to a watch."""

    def __init__(self, stream: Stream, watch: Watch) -> None:
        self.schema = stream.schema
        self._stream = stream
        self._watch = watch
        self._rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._stream:
                self._rows += batch.num_rows
                yield batch
        except Exception as error:
            self._watch.fail(error)
            raise
        self._watch.end("query ended", self._rows)

    def cancel(self) -> None:
        self._stream.cancel()

    def close(self) -> None:
        self._stream.close()
        self._watch.end("query closed", self._rows)
