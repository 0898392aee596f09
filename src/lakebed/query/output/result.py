"""The result of a statement: record batches as they are computed, or all of them in the form that a
Python library reads best.
"""

from __future__ import annotations

import html
import threading
import weakref
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from lakebed.errors import BadInput, Cancelled, LakebedError
from lakebed.query.output.explanation import Explanation

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

_SHOWN_ROWS = 50


class Stream(Protocol):
    """Batches of one running statement; iterating to the end or closing it frees what it holds."""

    schema: pa.Schema

    def __iter__(self) -> Iterator[pa.RecordBatch]: ...

    def cancel(self) -> None: ...

    def close(self) -> None: ...


class Result:
    """The rows of one statement.

    Iterate over it for record batches as they are computed, once; or ask for all rows with
    `to_arrow`, `to_pandas` or `to_polars`, as often as you like. A result that is not read to its
    end should be closed, or used as a context manager: it holds its snapshot until then, or until
    it is garbage.
    """

    def __init__(self, stream: Stream, explanation: Explanation) -> None:
        self.schema = stream.schema
        self.explanation = explanation
        """The origin of the rows: partitions considered, pruned and read, and the fresh tail."""
        self._stream = stream
        self._held = weakref.finalize(self, _close_elsewhere, stream)
        self._held.atexit = False
        self._table: pa.Table | None = None
        self._started = self._cancelled = False
        self._lock = threading.Lock()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about rows that the result lacks, with the command that helps."""
        return self.explanation.warnings

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._table is not None:
            yield from self._table.to_batches()
            return
        self._start()
        try:
            self.explanation.rows = 0
            for batch in self._stream:
                self.explanation.rows += batch.num_rows
                yield batch
        except LakebedError as error:
            self._require_open(error)
            raise
        else:
            self._require_open()
        finally:
            self.close()

    def _start(self) -> None:
        with self._lock:
            if self._cancelled:
                raise Cancelled("the statement was cancelled")
            if self._started:
                raise BadInput("this result was read already", hint="run the statement again")
            if not self._held.alive:
                raise BadInput("this result was closed", hint="run the statement again")
            self._started = True

    def _require_open(self, error: LakebedError | None = None) -> None:
        """Raise `Cancelled` if another thread closed the result meanwhile: the rows so far may not
        be all."""
        if not self._held.alive:
            raise Cancelled("the result was closed while it was read") from error

    def to_arrow(self) -> pa.Table:
        """Return all rows as an Arrow table."""
        import pyarrow as pa

        if self._table is None:
            self._table = pa.Table.from_batches(list(self), self.schema)
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """Return all rows as a pandas DataFrame; times are aware of their zone."""
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise BadInput("pandas is not installed", hint="pip install pandas") from None
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """Return all rows as a polars DataFrame."""
        try:
            import polars
        except ImportError:
            raise BadInput("polars is not installed", hint="pip install polars") from None
        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)  # noqa: S101  (a table gives one)
        return frame

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """For every library that reads Arrow's C stream: the rows as they are computed."""
        import pyarrow as pa

        reader = pa.RecordBatchReader.from_batches(self.schema, iter(self))
        return reader.__arrow_c_stream__(requested_schema)

    def cancel(self) -> None:
        """Stop the statement; who reads it gets `Cancelled`. May be called from any thread."""
        with self._lock:
            self._cancelled = True
            started = self._started
        if started:
            self._stream.cancel()
        else:
            self.close()

    def close(self) -> None:
        """Stop the statement if it still runs, and let go of its snapshot."""
        held = self._held.detach()
        if held is not None:
            self._stream.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        columns = ", ".join(f"{field.name}: {field.type}" for field in self.schema)
        if self._table is not None:
            return f"<Result of {self._table.num_rows} rows ({columns})>"
        if not self._held.alive:
            return f"<Result, closed ({columns})>"
        return f"<Result, {'being read' if self._started else 'not read yet'} ({columns})>"

    def _repr_html_(self) -> str:
        """Return a table for notebooks: the first rows, and how many there are. Reads all of them,
        so that what is shown can be used in the next cell."""
        if self._table is None and (self._started or not self._held.alive):
            return f"<p>{html.escape(repr(self))}</p>"
        from lakebed.query.output.plain import to_values

        table = self.to_arrow()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in table.column_names)
        columns = [
            [value for chunk in column.chunks for value in to_values(chunk)]
            for column in table.slice(0, _SHOWN_ROWS).columns
        ]
        body = "".join(
            "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>"
            for row in zip(*columns, strict=True)
        )
        more = f"the first {_SHOWN_ROWS} of " if table.num_rows > _SHOWN_ROWS else ""
        notes = "".join(f"<p>{html.escape(warning)}</p>" for warning in self.warnings)
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<p>{more}{table.num_rows:,} {'row' if table.num_rows == 1 else 'rows'}</p>{notes}"
        )


def _close_elsewhere(stream: Stream) -> None:
    """Close the stream of a result that was not closed. Garbage collection runs at any moment, also
    in a thread with a lock that the next holder waits for: so another thread closes it."""
    with suppress(RuntimeError):  # the process ends and releases everything
        threading.Thread(target=stream.close, name="lakebed-abandoned", daemon=True).start()


def _cell(value: object) -> str:
    return "" if value is None else html.escape(str(value))
