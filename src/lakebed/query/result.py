"""What a statement gives: record batches as they are computed, or all of them as what Python's
libraries like best.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from lakebed.errors import BadInput
from lakebed.query.explanation import Explanation

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
    end should be closed, or used as a context manager: until then it holds its snapshot.
    """

    def __init__(
        self, stream: Stream, explanation: Explanation, on_close: Callable[[], None]
    ) -> None:
        self.schema = stream.schema
        self.explanation = explanation
        """Where the rows come from: partitions considered, pruned and read, and the fresh tail."""
        self._stream: Stream | None = stream
        self._on_close = on_close
        self._table: pa.Table | None = None
        self._started = False

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the rows leave out, and what to do about it."""
        return self.explanation.warnings

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        if self._table is not None:
            yield from self._table.to_batches()
            return
        if self._started or self._stream is None:
            raise BadInput("this result was read already", hint="run the statement again")
        self._started = True
        try:
            for batch in self._stream:
                self.explanation.rows += batch.num_rows
                yield batch
        finally:
            self.close()

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table."""
        import pyarrow as pa

        if self._table is None:
            self._table = pa.Table.from_batches(list(self), self.schema)
        return self._table

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas DataFrame; times are aware of their zone."""
        try:
            import pandas  # noqa: F401
        except ImportError:
            raise BadInput("pandas is not installed", hint="pip install pandas") from None
        return self.to_arrow().to_pandas()

    def to_polars(self) -> pl.DataFrame:
        """All rows as a polars DataFrame."""
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
        if self._stream is not None:
            self._stream.cancel()

    def close(self) -> None:
        """Stop the statement if it still runs, and let go of its snapshot."""
        stream, self._stream = self._stream, None
        if stream is not None:
            try:
                stream.close()
            finally:
                self._on_close()

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
        return f"<Result, {'being read' if self._started else 'not read yet'} ({columns})>"

    def _repr_html_(self) -> str:
        """A table for notebooks: the first rows, and how many there are."""
        table = self.to_arrow()
        head = "".join(f"<th>{html.escape(name)}</th>" for name in table.column_names)
        shown = table.slice(0, _SHOWN_ROWS)
        columns = [column.to_pylist() for column in shown.columns]
        body = "".join(
            "<tr>" + "".join(f"<td>{_cell(value)}</td>" for value in row) + "</tr>"
            for row in zip(*columns, strict=True)
        )
        more = f"the first {_SHOWN_ROWS} of " if table.num_rows > _SHOWN_ROWS else ""
        notes = "".join(f"<p>{html.escape(each)}</p>" for each in self.warnings)
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
            f"<p>{more}{table.num_rows} rows</p>{notes}"
        )


def _cell(value: object) -> str:
    return "" if value is None else html.escape(str(value))
