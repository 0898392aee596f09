"""Statements that change the lake: the order in which a statement runs and commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakebed.errors import Conflict, LakebedError, NotFound
from lakebed.lifecycle.changes import Changes
from lakebed.query.output.result import Stream

if TYPE_CHECKING:
    import pyarrow as pa

    from lakebed.query.embedded.functions.calls import LakeFunction

_ATTEMPTS = 5


class SqlOperations(Protocol):
    """The administrative operations that SQL can call; `lakebed.operations.sql` has them."""

    def list_functions(self) -> Sequence[LakeFunction]:
        """Return the functions that change the lake."""

    def begin(self) -> Changes:
        """Return the changes of a new statement."""


class BufferedRows:
    """The rows of a statement that has run, as a stream that is read like any other."""

    is_complete = True

    def __init__(self, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> None:
        self.schema = schema
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._batches)

    def cancel(self) -> None:
        """Do nothing: the statement has ended."""

    def close(self) -> None:
        """Do nothing: no resource is held."""


def act(changes: Changes, start: Callable[[], Stream], limit: int | None) -> BufferedRows:
    """Run a statement to its end, commit the changes of its functions, then return its rows.

    If one of its calls fails, the statement is rolled back: it runs again with every call answering
    ``ERROR: …``, so that no row reports a success. If another writer was first, the statement runs
    again on the lake as it is now.
    """
    rows = _run(changes, start)
    for attempt in range(_ATTEMPTS):
        if changes.withdraw():
            rows = _run(changes, start)
            break
        try:
            changes.carry_out()
            break
        except (Conflict, NotFound):
            if attempt == _ATTEMPTS - 1:
                raise
        changes.begin_again()
        rows = _run(changes, start)
    return BufferedRows(rows.schema, _take(rows.batches, limit))


@dataclass(frozen=True, slots=True)
class _Rows:
    schema: pa.Schema
    batches: Sequence[pa.RecordBatch]


def _run(changes: Changes, start: Callable[[], Stream]) -> _Rows:
    stream = start()
    try:
        return _Rows(stream.schema, list(stream))
    except LakebedError as error:
        raise changes.error or error from error


def _take(batches: Sequence[pa.RecordBatch], limit: int | None) -> list[pa.RecordBatch]:
    """Return the first rows; a limit does not stop a statement that changes the lake."""
    if limit is None:
        return list(batches)
    first_rows = []
    for batch in batches:
        first_rows.append(batch.slice(0, limit))
        limit -= first_rows[-1].num_rows
    return [batch for batch in first_rows if batch.num_rows]
