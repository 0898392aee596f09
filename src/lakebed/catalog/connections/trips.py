"""Statements to PostgreSQL in as few round trips as their results allow. A statement whose result
is not read is sent with the next one. On SQLite there is nothing to save.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

import sqlalchemy as sa

LATER = "lakebed_later"
"""Execution option: the result is not read, so an error of the statement may be raised by a later
statement, or by `settle`.
"""

_PIPELINE = "lakebed_pipeline"


def save_round_trips(engine: sa.Engine) -> None:
    """Send statements of a PostgreSQL engine together where their results are not read."""
    sa.event.listen(engine, "before_cursor_execute", _before)
    sa.event.listen(engine, "after_cursor_execute", _after)
    sa.event.listen(engine, "rollback", _abandon)
    sa.event.listen(engine, "handle_error", lambda error: _abandon(error.connection))


def settle(connection: sa.Connection) -> None:
    """Raise the error of a statement that was sent and not yet checked. Call it before a commit,
    whose errors mean something else."""
    if _PIPELINE in connection.info:
        connection.exec_driver_sql("SELECT 1")  # a statement, so that SQLAlchemy sees the error


def _before(
    connection: sa.Connection, cursor: Any, _sql: str, _values: Any, context: Any, _many: bool
) -> None:
    options, is_open = context.execution_options, _PIPELINE in connection.info
    if options.get(LATER) and not is_open:
        pipeline = ExitStack()
        pipeline.enter_context(cursor.connection.pipeline())
        connection.info[_PIPELINE] = pipeline
    elif options.get("stream_results") and is_open:  # psycopg refuses cursors on the server in one
        connection.info.pop(_PIPELINE).close()


def _after(
    connection: sa.Connection, _cursor: Any, _sql: str, _values: Any, context: Any, _many: bool
) -> None:
    if not context.execution_options.get(LATER) and _PIPELINE in connection.info:
        connection.info.pop(_PIPELINE).close()  # waits for everything, in one round trip


def _abandon(connection: sa.Connection | None) -> None:
    """Drop the pending statements of a transaction that has failed."""
    if connection is None or connection.closed or connection.invalidated:
        return
    try:
        info = connection.info
    except NotImplementedError:  # of a connection that is not finished
        return
    pipeline = info.pop(_PIPELINE, None)
    if pipeline is not None:
        with suppress(Exception):
            pipeline.close()
