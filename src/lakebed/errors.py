"""Every error that Lakebed raises on purpose, grouped by what a caller does about it.

    LakebedError
    ├── BadInput            fix the call                                       exit 2
    │   ├── BadPayload      the bytes are not what they should be
    │   ├── BadDefinition   a view set cannot be defined like this; every problem is named
    │   ├── BadSchema       a table cannot have these columns; every problem is named
    │   ├── BadRecords      records do not fit their table; every bad record is named
    │   ├── BadSql          with the line and column, where they are known
    │   ├── PayloadTooLarge
    │   ├── TooPrecise      a time has parts of a microsecond
    │   ├── Unsupported     there is no such thing here
    │   └── UnsupportedContent
    │       ├── UnsupportedEncoding  the Content-Encoding is not supported
    │       └── NotAcceptable        no format of the Accept header is supported
    ├── NotFound            name something that exists                         exit 3
    │   ├── LakeNotFound
    │   ├── UnknownViewSet
    │   ├── UnknownDatabase
    │   ├── UnknownTable
    │   ├── UnknownPartition
    │   ├── UnknownFooter
    │   └── UnknownObject
    ├── Conflict            nothing happened; look again, plan again, repeat   exit 4
    │   ├── Overlap         a live or held partition already covers the range
    │   ├── StalePlan       what the step read has changed since
    │   ├── Ambiguous       several partitions match; the candidates are named
    │   ├── LeaseLost       somebody took this process for dead
    │   ├── AlreadyThere    an object of this name exists in the store
    │   ├── ForeignCatalog  the database belongs to another program
    │   ├── MigrationRefused  rows of the older catalog break the rules of a newer one
    │   └── Outdated        a newer program owns this view set or catalog
    ├── Refused             allowed only when asked for by name                exit 4
    │   ├── Denied          allowed only to those who have the right
    │   └── Unauthenticated nobody knows who is asking
    ├── QueryLimit          the statement needs more than it may have          exit 1
    │   ├── TailTooLarge    too much has landed that is not built
    │   ├── OutOfMemory
    │   └── TimedOut
    ├── Cancelled           somebody stopped the statement                     exit 130
    ├── SnapshotExpired     take a new snapshot and read again                 exit 4
    ├── Damage              stored bytes are not what the catalog says         exit 1
    │   ├── DamagedFile
    │   └── DamagedFooter
    └── Unavailable         nothing is wrong with the call; try again          exit 69
        ├── Busy            the process serves as many requests as it can
        ├── Unresponsive    the catalog or the store does not respond
        │   └── NotStarted  nothing was started, because it did not respond before
        ├── ReadOnly        the catalog or the store cannot be written
        └── OutcomeUnknown  the commit may or may not have happened

An error is one lowercase sentence that says what was expected; ``hint`` says what to do next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class LakebedError(Exception):
    """Something Lakebed refuses or fails to do."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint
        self.hint_note = f"hint: {hint}"
        if hint:  # for those who see a traceback
            self.add_note(self.hint_note)


class BadInput(LakebedError):
    """The caller's values make no sense; nothing was attempted."""

    exit_code = 2


class MissingExtra(BadInput):
    """An optional part of the installation is missing; the hint says how to install it."""


class BadPayload(BadInput):
    """The bytes are not a request of the expected kind; sending them again cannot help."""


class BadDefinition(BadInput):
    """View sets cannot be defined like this; ``problems`` has a line for everything wrong."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class BadSchema(BadInput):
    """A table cannot have these columns; ``problems`` has a line for everything wrong."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class BadRecords(BadInput):
    """Records do not fit their table and nothing was written; ``bad`` has every one of them."""

    shown = 5
    repeated = 3
    """A problem that more records have is reported once, with their number."""

    def __init__(self, bad: Sequence[Any], total: int) -> None:
        self.bad = tuple(bad)
        self.total = total
        lines, more = self.summarize(self.shown)
        lines.insert(0, f"{len(bad)} of {total} records are bad")
        if more:
            lines.append(f"and {more} more")
        super().__init__("\n".join(lines))

    def summarize(self, limit: int) -> tuple[list[str], int]:
        """Return a line for each problem that many records share, then one for each of at most
        ``limit`` records with other problems; and the number of further such records."""
        records: dict[tuple[str, str], list[int]] = {}
        examples: dict[tuple[str, str], str] = {}
        for record in self.bad:
            for problem in getattr(record, "problems", ()):
                key = (problem.column, problem.expected)
                records.setdefault(key, []).append(record.index)
                examples.setdefault(key, str(problem))
        shared = {key for key, indexes in records.items() if len(indexes) > self.repeated}
        lines = [
            f"{examples[key]} ({len(records[key]):,} records: "
            f"{', '.join(map(str, records[key][: self.repeated]))}, …)"
            for key in records
            if key in shared
        ]
        singles = []
        for record in self.bad:
            problems = getattr(record, "problems", None)
            if problems is None:
                singles.append(str(record))
                continue
            rest = [item for item in problems if (item.column, item.expected) not in shared]
            if rest:
                singles.append(f"record {record.index}: {'; '.join(map(str, rest))}")
        return lines + singles[:limit], max(0, len(singles) - limit)


class BadSql(BadInput):
    """The statement cannot be run; ``line`` and ``column`` count from 1, where they are known."""

    def __init__(
        self,
        message: str,
        *,
        line: int | None = None,
        column: int | None = None,
        hint: str | None = None,
    ) -> None:
        where = f" (line {line}, column {column})" if line is not None else ""
        super().__init__(message + where, hint=hint)
        self.line, self.column = line, column


class PayloadTooLarge(BadInput):
    """The request has more bytes than are taken in one piece; it can be sent in several."""


class TooPrecise(BadInput):
    """The time has parts of a microsecond; the lake counts in whole microseconds."""


class Unsupported(BadInput):
    """What was asked for exists, but not here."""


class UnsupportedContent(BadInput):
    """The request is in an encoding or of a type that is not taken."""


class UnsupportedEncoding(UnsupportedContent):
    """The body has a content encoding that the server does not support."""

    def __init__(self, message: str, encodings: Sequence[str]) -> None:
        super().__init__(
            message, hint=f"send one of {', '.join(encodings)}, or no Content-Encoding"
        )
        self.encodings = tuple(encodings)


class NotAcceptable(UnsupportedContent):
    """No format that the caller accepts is supported."""


class NotFound(LakebedError):
    """The named thing does not exist."""

    exit_code = 3


class LakeNotFound(NotFound):
    """There is no lake at this place."""


class UnknownViewSet(NotFound):
    """No view set of this name is registered."""


class UnknownDatabase(NotFound):
    """No database of this name exists."""


class UnknownTable(NotFound):
    """The database has no table of this name."""


class UnknownPartition(NotFound):
    """No partition matches."""


class UnknownFooter(NotFound):
    """No footer is stored for this path."""


class UnknownObject(NotFound):
    """The store has nothing at this path."""


class Conflict(LakebedError):
    """The lake changed under the caller; nothing happened and the step can be planned again."""

    exit_code = 4


class Overlap(Conflict):
    """A live or held partition already covers part of the range."""


class StalePlan(Conflict):
    """What the step read has changed since."""


class Ambiguous(Conflict):
    """Several partitions match where exactly one was expected."""


class LeaseLost(Conflict):
    """The lease was taken away because its holder seemed dead."""


class AlreadyThere(Conflict):
    """An object of this name exists in the store; names are unique, so it was written before."""


class ForeignCatalog(Conflict):
    """The database has tables of another program; nothing in it was changed."""


class MigrationRefused(Conflict):
    """Rows of the older catalog break the rules of a newer revision; nothing was changed.
    ``problems`` has a line for each of them."""

    def __init__(self, problems: Sequence[str]) -> None:
        counted = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        super().__init__(
            f"the older catalog cannot be migrated and was not changed: {counted} in its rows",
            hint="mend each row with the program that wrote it, and repeat",
        )
        self.problems = tuple(problems)
        for problem in problems:
            self.add_note(problem)


class Outdated(Conflict):
    """This program is older than what it wants to change."""


class Refused(LakebedError):
    """Too dangerous to do without being told so by name."""

    exit_code = 4


class Denied(Refused):
    """The caller does not have the right to do this."""


class Unauthenticated(Refused):
    """There is no key, or it is not known."""


class QueryLimit(LakebedError):
    """The statement needs more than it may have; nothing of its result is to be trusted."""


class TailTooLarge(QueryLimit):
    """More has landed without being built than a query decodes by itself."""


class OutOfMemory(QueryLimit):
    """The statement needs more memory than it may have, also after spilling."""


class TimedOut(QueryLimit):
    """The statement took longer than it may."""


class Cancelled(LakebedError):
    """The statement was stopped on request."""

    exit_code = 130


class SnapshotExpired(LakebedError):
    """The snapshot's files may be gone; never answered with fewer rows."""

    exit_code = 4


class Damage(LakebedError):
    """Stored bytes are not what the catalog says they are."""

    unless_damaged: LakebedError | None = None
    """The error to raise instead if every file turns out to be intact."""


class DamagedFile(Damage):
    """A Parquet file is missing, has the wrong size, or does not read as recorded."""


class DamagedFooter(Damage):
    """Footer bytes do not match their digest or cannot be parsed."""


class Unavailable(LakebedError):
    """The catalog or the store cannot do it now."""

    exit_code = 69


class Busy(Unavailable):
    """The process serves as many requests as it can; nothing was started."""


class Unresponsive(Unavailable):
    """The catalog or the store does not respond; what was requested may still happen."""


class NotStarted(Unresponsive):
    """The catalog or the store did not respond before, so nothing was started."""


class ReadOnly(Unavailable):
    """The catalog or the store cannot be written."""


class OutcomeUnknown(Unavailable):
    """The connection broke during commit and the catalog could not be asked again."""
