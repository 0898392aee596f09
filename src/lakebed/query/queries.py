"""Statements from their text to their result: analyse, take a snapshot, run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakebed.catalog.catalog import Catalog
from lakebed.catalog.times import resolve_past
from lakebed.errors import BadInput
from lakebed.lifecycle.changes import Changes
from lakebed.model.time import (
    Instant,
    TimeRange,
    parse_moment,
    to_instant,
)
from lakebed.model.view_set import ViewSet
from lakebed.query.changing import SqlOperations, act
from lakebed.query.embedded.engines import EmbeddedEngines
from lakebed.query.matching import match_rows
from lakebed.query.output.explanation import Explanation
from lakebed.query.output.result import Result
from lakebed.query.output.statement_log import StatementLog
from lakebed.query.output.statement_stream import StatementStream
from lakebed.query.planning.conditions import EVER
from lakebed.query.planning.content import Content, TableContent
from lakebed.query.request.request import EMBEDDED, SPARK, QueryRequest
from lakebed.query.request.statement_limits import check_statement
from lakebed.query.snapshot.explain import explain
from lakebed.query.snapshot.listings import CatalogAnswer, CatalogRequest
from lakebed.query.snapshot.snapshot import SnapshotTaker, StatementSnapshot
from lakebed.query.snapshot.tail import TailReader, TailRows
from lakebed.query.snapshot.user_tables import UserReader
from lakebed.query.snapshot.verification import FileRead, FileVerifier, Verification, list_reads
from lakebed.reading.leases import LeaseKeeper
from lakebed.storage.objects import Store
from lakebed.tables.rows.row_reader import RowReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebed.query.embedded.engine import Analysis, Engine
    from lakebed.query.embedded.running.turns import Deadline
    from lakebed.query.spark.engine import SparkEngine, SparkEngines
    from lakebed.query.spark.tools import SparkTools


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """Limits of the queries of this process: memory, temporary files and threads."""

    memory_bytes: int = 2 << 30
    spill_bytes: int = 16 << 30
    tail_bytes: int = 256 << 20
    tail_cache_bytes: int = 256 << 20
    timeout: float | None = None
    verify_pages: bool = True


def _now() -> int:
    return time.time_ns() // 1000


class Queries:
    """SQL over one lake."""

    match_rows = staticmethod(match_rows)

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        keeper: LeaseKeeper,
        settings: QuerySettings,
        operations: SqlOperations | None = None,
        spark: SparkTools | None = None,
        reader: RowReader | None = None,
        now: Callable[[], int] = _now,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._settings = settings
        self._now = now
        self._operations = operations
        self._taker = SnapshotTaker(catalog, keeper)
        self._tails = TailReader(
            store, most_bytes=settings.tail_bytes, cache_bytes=settings.tail_cache_bytes
        )
        self._verifier = FileVerifier(catalog, store)
        self._users = UserReader(RowReader(store) if reader is None else reader)
        self._engines = EmbeddedEngines(
            store, settings.memory_bytes, settings.spill_bytes, operations
        )
        self._spark_tools = spark
        self._spark: SparkEngines | None = None

    def query(self, sql: str, **options: Any) -> Result:
        """Run one statement with the options of `QueryRequest`."""
        return self.run(QueryRequest(sql, **options))

    def run(self, request: QueryRequest) -> Result:
        """Run one statement on one snapshot. A statement that calls a function which changes the
        lake has run and is committed when this returns its result."""
        bound = request.bind()
        with StatementLog(bound.sql, request.engine) as log, bound.placed():
            check_statement(bound.sql)
            within = self._read_range(request.begin, request.end)
            past = self._read_past(request.as_of)
            deadline = self._set_deadline(request.timeout)
            if request.engine == EMBEDDED:
                return self._run_embedded(request, bound.sql, within, past, deadline, log)
            if request.engine == SPARK:
                return self._run_on_spark(request, bound.sql, within, past, deadline, log)
            raise BadInput(
                f"there is no engine {request.engine}", hint=f"use {EMBEDDED} or {SPARK}"
            )

    def _run_embedded(
        self,
        request: QueryRequest,
        sql: str,
        within: TimeRange | None,
        past: int | None,
        deadline: Deadline | None,
        log: StatementLog,
    ) -> Result:
        with self._taker.begin(past, request.database) as beginning:
            view_sets = beginning.list_tables(sql)
            analysis = self._engines.analyse(
                sql, view_sets, within, admin=request.admin, deadline=deadline
            )
            changes = self._begin_changes(analysis, past) if request.admin else None
            snapshot = beginning.take(
                analysis.scans,
                with_tail=not request.stale,
                explained=request.explained,
                request=analysis.catalog_request,
            )
        verification = self._make_verification(
            list_reads(analysis.scans, snapshot), snapshot, deadline
        )

        def start() -> StatementStream:
            stream = self._engines.run(
                sql,
                content,
                within,
                analysis=analysis,
                listed=snapshot.listed,
                admin=request.admin,
                changes=changes,
                limit=None if changes else request.limit,
                deadline=deadline,
            )
            return StatementStream(
                stream, verification, *(() if changes is not None else (log, snapshot))
            )

        with _released_on_error(snapshot, verification):
            content, explanation = self._read_content(EMBEDDED, view_sets, snapshot)
            verification.run_footers()
            if analysis.is_explain and not analysis.is_analyze:
                verification.skip_pages()
            log.add_snapshot(snapshot)
            if changes is None:
                return Result(start(), explanation)
            rows = act(changes, start, request.limit)
        explanation.warnings += tuple(changes.warnings)
        snapshot.close()
        return Result(StatementStream(rows, None, log), explanation)

    def _run_on_spark(
        self,
        request: QueryRequest,
        sql: str,
        within: TimeRange | None,
        past: int | None,
        deadline: Deadline | None,
        log: StatementLog,
    ) -> Result:
        from lakebed.query.spark.pruning import find_scans, plan_text
        from lakebed.query.spark.statement import read

        engine = self._on_spark(request.spark, request.master, request.remote)
        with self._taker.begin(past, request.database) as beginning:
            view_sets = beginning.list_tables(sql)
            statement = read(sql, view_sets)
            analysis = None
            text = plan_text(statement)
            if text is not None:
                with suppress(BadInput):  # the embedded engine cannot read it
                    analysis = self._engines.analyse(text, view_sets, within, deadline=deadline)
            planned = () if analysis is None else analysis.scans
            scans = find_scans(statement, view_sets, within, planned)
            snapshot = beginning.take(
                scans, with_tail=not request.stale, explained=request.explained
            )
        # Spark verifies the pages itself, but not the footers.
        footers = [FileRead(partition, frozenset()) for partition in snapshot.files]
        verification = self._make_verification(footers, snapshot, deadline)
        with _released_on_error(snapshot, verification):
            content, explanation = self._read_content(SPARK, view_sets, snapshot)
            verification.run_footers()
            log.add_snapshot(snapshot)
            stream = engine.run(
                statement,
                content,
                within,
                like=None if analysis is None else analysis.schema,
                limit=request.limit,
                deadline=deadline,
            )
            return Result(StatementStream(stream, verification, log, snapshot), explanation)

    def _make_verification(
        self, reads: Sequence[FileRead], snapshot: StatementSnapshot, deadline: Deadline | None
    ) -> Verification:
        reads = reads if self._settings.verify_pages else ()
        return Verification(self._verifier, reads, deadline, snapshot)

    def close(self) -> None:
        """Stop the Spark sessions that statements opened, and let go of the embedded engine."""
        if self._spark is not None:
            self._spark.close()
        self._engines.close()

    def describe(self, sql: str, *, admin: bool = True, timeout: float | None = None) -> pa.Schema:
        """Return the columns that a statement would give; nothing is run."""
        check_statement(sql)
        deadline = self._set_deadline(timeout)
        view_sets = self._taker.list_tables(sql)
        return self._engines.analyse(sql, view_sets, None, admin=admin, deadline=deadline).schema

    def list_tables(self) -> dict[str, ViewSet]:
        """Everything that a statement can read, by name."""
        return self._taker.list_tables()

    def look_up(
        self, request: CatalogRequest, *, as_of: Instant | None = None, stale: bool = False
    ) -> CatalogAnswer:
        """Return listings and explanations of the catalog, without SQL."""
        with self._taker.begin(self._read_past(as_of)) as beginning:
            snapshot = beginning.take([], with_tail=not stale, request=request)
        snapshot.close()
        return snapshot.listed

    def explain_empty(
        self, view_set: str, begin: Instant, end: Instant, *, stale: bool = False
    ) -> pa.Table:
        """Return the reasons why some insert times between two instants have no rows, without
        SQL."""
        now = self._now()
        within = TimeRange(parse_moment(begin, now), parse_moment(end, now))
        return self.look_up(CatalogRequest(empty=[(view_set, within)]), stale=stale).empty[0]

    def _begin_changes(self, analysis: Analysis, past: int | None) -> Changes | None:
        """Return the changes of a statement that calls functions which change the lake."""
        if not analysis.may_change or self._operations is None:
            return None
        if analysis.is_analyze:
            raise BadInput("EXPLAIN ANALYZE would run a function that changes the lake")
        if analysis.is_explain:
            return None
        if past is not None:
            raise BadInput("a statement about the past cannot change the lake")
        return self._operations.begin()

    def _embedded(self) -> Engine:
        """Return the engine that plans now."""
        return self._engines.get()

    def _set_deadline(self, timeout: float | None) -> Deadline | None:
        """Return when a statement that begins now must be at its end."""
        from lakebed.query.embedded.running.turns import Deadline

        seconds = self._settings.timeout if timeout is None else timeout
        return None if seconds is None else Deadline.after(seconds)

    def _on_spark(
        self, spark: SparkSession | None, master: str | None, remote: str | None
    ) -> SparkEngine:
        if self._spark is None:
            from lakebed.query.spark.engine import SparkEngines

            if self._spark_tools is None:
                raise BadInput("these queries have no spark", hint="ask the lake itself")
            self._spark = SparkEngines(self._spark_tools)
        return self._spark.get(spark, master, remote)

    def _read_past(self, as_of: Instant | None) -> int | None:
        as_of = resolve_past(self._catalog, as_of)
        return None if as_of is None else to_instant(as_of, "down")

    def _read_range(self, begin: Instant | None, end: Instant | None) -> TimeRange | None:
        if begin is None and end is None:
            return None
        now = self._now()
        return TimeRange(
            EVER.begin if begin is None else parse_moment(begin, now),
            EVER.end if end is None else parse_moment(end, now),
        )

    def _read_content(
        self, engine: str, view_sets: Mapping[str, ViewSet], snapshot: StatementSnapshot
    ) -> tuple[dict[str, Content], Explanation]:
        """Return the content of each table and its explanation. Tables that the statement does not
        need are empty."""
        tails = self._read_tails(snapshot)
        content: dict[str, Content] = {
            name: TableContent(view_set) for name, view_set in view_sets.items()
        }
        for name, table in snapshot.tables.items():
            paths = [file.file_path for file in table.files if file.file_path is not None]
            rows = sum(file.num_rows for file in table.files) + tails[name].num_rows
            content[name] = TableContent(table.view_set, paths, tails[name].tables, rows)
        for name, user in snapshot.user_tables.items():
            content[name] = self._users.read(user)
        return content, explain(engine, snapshot, tails)

    def _read_tails(self, snapshot: StatementSnapshot) -> dict[str, TailRows]:
        tails = [table.tail for table in snapshot.tables.values() if table.tail is not None]
        self._tails.require_bounded(tails)
        return {
            name: TailRows() if table.tail is None else self._tails.read(table.tail)
            for name, table in snapshot.tables.items()
        }


@contextmanager
def _released_on_error(snapshot: StatementSnapshot, verification: Verification) -> Iterator[None]:
    """Release the snapshot after an error, and name the damaged file that explains it."""
    try:
        yield
    except BaseException as error:
        try:
            verification.raise_named(error)
        finally:
            snapshot.close()
        raise
