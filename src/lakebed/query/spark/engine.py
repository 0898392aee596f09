"""Statements on Spark: a session of its own for each, in which the tables that it names are
temporary views over exactly the files and rows of its snapshot. Only features that classic Spark
and Spark Connect share are used.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING

from lakebed.model.time import TimeRange
from lakebed.query.planning.content import Content, UserContent
from lakebed.query.spark.failing import AFTER, BEFORE, translate
from lakebed.query.spark.frames import keep_range, make_frame, merge_parts
from lakebed.query.spark.statement import SETTINGS, Statement
from lakebed.query.spark.streams import SparkStream
from lakebed.query.spark.tools import SparkTools
from lakebed.query.spark.user_tables import UserTables

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from lakebed.query.embedded.running.turns import Deadline

_FEW_ROWS = 10_000
"""Results with at most so many rows are fetched at once."""


class SparkEngines:
    """The sessions that statements of this process run on: the caller's, or those of a master or a
    Connect server, which are opened when first needed and kept until they are closed here."""

    def __init__(self, tools: SparkTools) -> None:
        self._tools = tools
        self._kept: dict[tuple[str | None, str | None], SparkSession] = {}
        self._stack = ExitStack()
        self._lock = threading.Lock()

    def get(
        self, spark: SparkSession | None, master: str | None, remote: str | None
    ) -> SparkEngine:
        """Return the engine of a session."""
        if spark is None:
            with self._lock:
                spark = self._kept.get((master, remote))
                if spark is None or _is_stopped(spark):
                    spark = self._stack.enter_context(self._tools.use(None, master, remote))
                    self._kept[master, remote] = spark
        return SparkEngine(self._tools, spark)

    def close(self) -> None:
        """Stop the sessions that were opened here."""
        with self._lock:
            self._kept.clear()
            self._stack.close()


def _is_stopped(session: SparkSession) -> bool:
    """Return True if a session was stopped; classic sessions show it only by what they hold."""
    stopped = getattr(session, "is_stopped", None)
    return bool(stopped) if stopped is not None else session.sparkContext._jsc is None


class SparkEngine:
    """Statements on one Spark session."""

    def __init__(self, tools: SparkTools, session: SparkSession) -> None:
        self._tools = tools
        self._session = session

    def run(
        self,
        statement: Statement,
        tables: Mapping[str, Content],
        within: TimeRange | None = None,
        *,
        like: pa.Schema | None = None,
        limit: int | None = None,
        deadline: Deadline | None = None,
    ) -> SparkStream:
        """Start a statement over exactly this content; of rows that have a time, over those in a
        range. ``like`` has the types that the embedded engine would return, if it can plan the
        statement."""
        with ExitStack() as stack, translate(statement.spelling):
            session = stack.enter_context(self._tools.beside(self._session))
            for name, value in SETTINGS.items():
                session.conf.set(name, value)
            for name in statement.tables:
                frame = self._make(session, tables[name], within)
                for view in [alias for alias, table in statement.views.items() if table == name]:
                    frame.createOrReplaceTempView(view)
            frame = session.sql(BEFORE + statement.spelling.given + AFTER)
            if limit is not None:
                frame = frame.limit(limit)
            return SparkStream(
                session,
                frame,
                statement.spelling,
                like=like,
                at_once=_is_small(statement, tables, limit),
                deadline=deadline,
                resources=stack.pop_all(),
            )

    def _make(self, session: SparkSession, content: Content, within: TimeRange | None) -> DataFrame:
        """Return the rows of a table; those of a range, if they have a time."""
        view_set = content.view_set
        frame = self._read(session, content)
        if content.merge_sql is not None:
            schema = self._tools.schema(view_set)
            frame = merge_parts(session, frame, view_set, schema, content.merge_sql)
        return keep_range(frame, view_set, within)

    def _read(self, session: SparkSession, content: Content) -> DataFrame:
        if isinstance(content, UserContent):
            return UserTables(self._tools, session).make(content)
        schema = self._tools.schema(content.view_set)
        parts = []
        if content.paths:
            parts.append(self._tools.read(session, content.view_set, content.paths))
        if content.tail or not content.paths:
            parts.append(make_frame(session, schema, content.tail))
        return parts[0] if len(parts) == 1 else parts[0].union(parts[1])


def _is_small(statement: Statement, tables: Mapping[str, Content], limit: int | None) -> bool:
    bounds = [limit, statement.most_rows]
    if statement.keeps_count:
        bounds.append(sum(tables[name].num_rows for name in statement.tables))
    return any(bound is not None and bound <= _FEW_ROWS for bound in bounds)
