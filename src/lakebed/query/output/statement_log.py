"""Log records of statements: one when a statement starts, one when it ends."""

from __future__ import annotations

import logging
import time
from types import TracebackType
from typing import Any, Self

from lakebed.query.snapshot.snapshot import StatementSnapshot

_LONGEST = 500
_log = logging.getLogger(__name__)


class StatementLog:
    """The log records of one statement. A failure inside the context is logged. Of several ends
    only the first is logged."""

    def __init__(self, sql: str, engine: str) -> None:
        text = " ".join(str(sql).split())
        self._fields: dict[str, Any] = {"statement": text[:_LONGEST], "engine": engine}
        self._begun = time.perf_counter()
        self._is_ended = False

    def __enter__(self) -> Self:
        _log.info("query started", extra=self._fields)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.fail(error)

    def add_snapshot(self, snapshot: StatementSnapshot) -> None:
        """Add what the statement reads to the record of its end."""
        if _log.isEnabledFor(logging.INFO):
            self._fields["tables"] = [*snapshot.tables, *snapshot.user_tables]
            self._fields["bytes"] = sum(partition.file_size for partition in snapshot.files)
            self._fields["tick"] = snapshot.tick

    def end(self, message: str, rows: int) -> None:
        """Log the end, with the number of rows."""
        if not self._is_ended:
            self._is_ended = True
            _log.info(message, extra=self._fields | {"rows": rows} | self._measure())

    def fail(self, error: BaseException) -> None:
        """Log the error that ended the statement."""
        if not self._is_ended:
            self._is_ended = True
            _log.warning("query failed: %s", error, extra=self._fields | self._measure())

    def _measure(self) -> dict[str, Any]:
        return {"seconds": round(time.perf_counter() - self._begun, 6)}
