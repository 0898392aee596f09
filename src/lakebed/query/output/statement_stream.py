"""The rows of one running statement, between its engine and its result."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from lakebed.query.output.result import Stream
from lakebed.query.output.statement_log import StatementLog
from lakebed.query.snapshot.snapshot import StatementSnapshot
from lakebed.query.snapshot.verification import Verification

if TYPE_CHECKING:
    import pyarrow as pa


class EngineStream(Stream, Protocol):
    """Batches as an engine computes them."""

    @property
    def is_complete(self) -> bool:
        """Return True once the engine has read all its input, as far as it can tell."""
        ...


class StatementStream:
    """The batches of an engine, in three stages. The files are verified before the first batch. All
    of them must be there and unchanged when the first batch is handed out, and at the end unless
    the engine had read all of them then. The end is logged.

    A deleted file never returns: one that exists at the end existed all the time. Sums and sorted
    rows depend on all files, so the first rows need all of them, too. Closing releases the
    snapshot.
    """

    def __init__(
        self,
        source: EngineStream,
        verification: Verification | None,
        log: StatementLog | None = None,
        snapshot: StatementSnapshot | None = None,
    ) -> None:
        self.schema = source.schema
        self._source = source
        self._verification = verification
        self._log = log
        self._snapshot = snapshot
        self._rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            batches = self._source if self._verification is None else self._verified()
            for batch in batches:
                self._rows += batch.num_rows
                yield batch
        except Exception as error:
            if self._log is not None:
                self._log.fail(error)
            raise
        if self._log is not None:
            self._log.end("query ended", self._rows)

    def _verified(self) -> Iterator[pa.RecordBatch]:
        verification = self._verification
        assert verification is not None  # noqa: S101
        try:
            verification.run()
            is_first, is_checked = True, False
            for batch in self._source:
                if is_first:
                    is_checked = self._source.is_complete
                    verification.require_unchanged()
                is_first = False
                yield batch
            if not is_checked:
                verification.require_unchanged()
        except Exception as error:
            verification.raise_named(error)
            raise

    def cancel(self) -> None:
        """Stop the statement; its reader gets `Cancelled`."""
        if self._verification is not None:
            self._verification.cancel()
        self._source.cancel()

    def close(self) -> None:
        """Stop the statement if it still runs, and release its snapshot."""
        try:
            self._source.close()
            if self._log is not None:
                self._log.end("query closed", self._rows)
        finally:
            if self._snapshot is not None:
                self._snapshot.close()
