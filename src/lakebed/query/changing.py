"""Statements that change the lake: the verbs that SQL functions call, and the order in which a
statement runs and commits. The verbs belong to other stages; the lake's wiring passes them in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakebed.errors import Conflict, LakebedError, NotFound
from lakebed.query.result import Stream

if TYPE_CHECKING:
    import pyarrow as pa

_ATTEMPTS = 5

Line = tuple[int, str]
"""A time and a message of a log."""

Identity = tuple[str, str, int, int, bytes | None]
"""View set, instance, begin, end and, optionally, the schema hash of one partition."""


class Changes(Protocol):
    """The changes of one statement. Each call returns the message that will be true once
    `carry_out` has committed all of them in one transaction. Until then nothing changes."""

    def retire_partitions_by_metadata(self, identities: Sequence[Identity]) -> list[str]: ...

    def retire_partitions_by_file(self, paths: Sequence[str]) -> list[str]: ...

    def restore_partitions(self, partition_ids: Sequence[str]) -> list[str]: ...

    def retire_partitions(
        self, view_set: str, instance: str, begin: int, end: int
    ) -> list[Line]: ...

    def confirm(self, names: Collection[str]) -> None: ...

    def reject(self, message: str) -> str: ...

    def withdraw(self) -> bool: ...

    def begin_again(self) -> None: ...

    def carry_out(self) -> None: ...

    @property
    def warnings(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class Administration:
    """The verbs that SQL functions call."""

    begin_changes: Callable[[], Changes]
    build: Callable[[str, int, int], list[Line]]
    """Build one view set in an insert-time range; many transactions, each by itself."""


@dataclass(slots=True)
class Acting:
    """One statement that may change the lake, while it runs."""

    administration: Administration
    changes: Changes
    error: LakebedError | None = None
    """The error of one of its functions: engines keep only the text."""


class KeptRows:
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


def act(acting: Acting, start: Callable[[], Stream], limit: int | None) -> KeptRows:
    """Run a statement to its end, commit the changes of its functions, then return its rows.

    If one of its calls fails, the statement is rolled back: it runs again with every call answering
    ``ERROR: …``, so that no row reports a success. If another writer was first, the statement runs
    again on the lake as it is now.
    """
    rows = _run(acting, start)
    for attempt in range(_ATTEMPTS):
        if acting.changes.withdraw():
            rows = _run(acting, start)
            break
        try:
            acting.changes.carry_out()
            break
        except (Conflict, NotFound):
            if attempt == _ATTEMPTS - 1:
                raise
        acting.changes.begin_again()
        rows = _run(acting, start)
    return KeptRows(rows.schema, _take(rows.batches, limit))


@dataclass(frozen=True, slots=True)
class _Rows:
    schema: pa.Schema
    batches: Sequence[pa.RecordBatch]


def _run(acting: Acting, start: Callable[[], Stream]) -> _Rows:
    stream = start()
    try:
        return _Rows(stream.schema, list(stream))
    except LakebedError as error:
        raise acting.error or error from error


def _take(batches: Sequence[pa.RecordBatch], limit: int | None) -> list[pa.RecordBatch]:
    """Return the first rows; a limit does not stop a statement that changes the lake."""
    if limit is None:
        return list(batches)
    first_rows = []
    for batch in batches:
        first_rows.append(batch.slice(0, limit))
        limit -= first_rows[-1].num_rows
    return [batch for batch in first_rows if batch.num_rows]
