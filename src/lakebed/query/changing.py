"""What SQL functions may do to the lake. The verbs belong to other stages; whoever wires the lake
passes them in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from lakebed.errors import LakebedError
from lakebed.query.result import Stream

if TYPE_CHECKING:
    import pyarrow as pa

Line = tuple[int, str]
"""When something was done, and what."""

Named = tuple[str, str, int, int, bytes | None]
"""View set, instance, begin, end and, if it is known, the schema hash of one partition."""


class Changes(Protocol):
    """What one statement changes: each call says what will have happened when `carry_out`, at the
    statement's end, has done all of it in one transaction. Until then nothing has."""

    def retire_partitions_by_metadata(self, named: Sequence[Named]) -> list[str]: ...

    def retire_partitions_by_file(self, paths: Sequence[str]) -> list[str]: ...

    def restore_partitions(self, partition_ids: Sequence[str]) -> list[str]: ...

    def retire_partitions(
        self, view_set: str, instance: str, begin: int, end: int
    ) -> list[Line]: ...

    def carry_out(self) -> None: ...


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
    """Why one of its functions failed: engines keep no more than the text."""


class KeptRows:
    """The rows of a statement that has run, as a stream that is read like any other."""

    def __init__(self, schema: pa.Schema, batches: Sequence[pa.RecordBatch]) -> None:
        self.schema = schema
        self._batches = batches

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return iter(self._batches)

    def cancel(self) -> None:
        """There is nothing to stop."""

    def close(self) -> None:
        """There is nothing to let go of."""


def act(acting: Acting, stream: Stream, limit: int | None) -> Stream:
    """Run a statement to its end, then do what its functions planned, then let its rows be seen:
    nobody reads of a success that did not come about."""
    try:
        batches = list(stream)
    except LakebedError as error:
        raise acting.error or error from error
    acting.changes.carry_out()
    return KeptRows(stream.schema, _take(batches, limit))


def _take(batches: Sequence[pa.RecordBatch], limit: int | None) -> list[pa.RecordBatch]:
    """The first rows of a result; a limit does not stop a statement that changes the lake."""
    if limit is None:
        return list(batches)
    taken = []
    for batch in batches:
        taken.append(batch.slice(0, limit))
        limit -= taken[-1].num_rows
    return [each for each in taken if each.num_rows]
