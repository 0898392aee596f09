"""Statements to PostgreSQL in as few round trips as their results allow. A statement whose result
is not read is sent with the next one. On SQLite there is nothing to save.
"""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

import sqlalchemy as sa

LATER = "lakebed_later"
"""Execution option: nobody reads the result, so that what is wrong with the statement may be raised
by a later one, or by `settle`."""

_PIPELINE = "lakebed_pipeline"


def save_round_trips(engine: sa.Engine) -> None:
    """Let the statements of an engine for PostgreSQL travel together."""
    sa.event.listen(engine, "before_cursor_execute", _before)
    sa.event.listen(engine, "after_cursor_execute", _after)
    sa.event.listen(engine, "rollback", _abandon)
    sa.event.listen(engine, "handle_error", lambda error: _abandon(error.connection))


def settle(connection: sa.Connection) -> None:
    """Raise what is wrong with statements that are under way; before a commit, whose errors mean
    something else."""
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
    """The transaction has failed: what is under way does not matter any more."""
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
