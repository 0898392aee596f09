"""Statements from their text to their result: what does it need, what of that is there, run it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from lakebed.catalog.acting import keep_askers
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.times import resolve_past
from lakebed.errors import BadInput, BadSql, Damage
from lakebed.model.time import (
    Instant,
    TimeRange,
    find_gaps,
    format_instant,
    parse_moment,
    to_instant,
)
from lakebed.model.view_set import ViewSet
from lakebed.query.arguments import MOST_ROWS as MOST_ROWS
from lakebed.query.arguments import check_arguments
from lakebed.query.changing import Acting, Administration, act
from lakebed.query.conditions import EVER
from lakebed.query.content import Content, TableContent
from lakebed.query.explanation import Explanation, TableExplanation
from lakebed.query.holding import HeldStream, name_damage
from lakebed.query.listings import Asked, Listed
from lakebed.query.matching import match_rows
from lakebed.query.parameters import Bound, prepare
from lakebed.query.result import Result, Stream
from lakebed.query.snapshot import SnapshotTaker, StatementSnapshot
from lakebed.query.statement import check_statement
from lakebed.query.table_views import TableView
from lakebed.query.tail import TailReader, TailRows
from lakebed.query.user_tables import UserReader, UserView
from lakebed.query.verifying import FileRead, FileVerifier, Verification, list_reads
from lakebed.query.watching import Watch
from lakebed.reading.leases import LeaseKeeper
from lakebed.storage.objects import Store
from lakebed.tables.rows.row_reader import RowReader

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebed.query.embedded.engine import Analysis, Engine, Resources
    from lakebed.query.embedded.planning import Deadline
    from lakebed.query.spark.engine import SparkEngine, SparkEngines
    from lakebed.query.spark.tools import SparkTools

EMBEDDED, SPARK = "embedded", "spark"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """What queries of this process may use."""

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
        administration: Administration | None = None,
        spark: SparkTools | None = None,
        reader: RowReader | None = None,
        now: Callable[[], int] = _now,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._settings = settings
        self._now = now
        self._administration = administration
        self._taker = SnapshotTaker(catalog, keeper)
        self._tails = TailReader(
            store, most_bytes=settings.tail_bytes, cache_bytes=settings.tail_cache_bytes
        )
        self._verifier = FileVerifier(catalog, store)
        self._users = UserReader(RowReader(store) if reader is None else reader)
        self._engine: Engine | None = None
        self._resources: Resources | None = None
        self._engine_lock = threading.Lock()
        self._spark_tools = spark
        self._spark: SparkEngines | None = None

    def query(
        self,
        sql: str,
        *,
        parameters: Sequence[Any] | None = None,
        begin: Instant | None = None,
        end: Instant | None = None,
        as_of: Instant | None = None,
        stale: bool = False,
        limit: int | None = None,
        timeout: float | None = None,
        explained: bool = False,
        admin: bool = True,
        engine: str = EMBEDDED,
        spark: SparkSession | None = None,
        master: str | None = None,
        remote: str | None = None,
        database: str | None = None,
    ) -> Result:
        """Run one statement on one snapshot. Only administrators see the functions that change the
        lake; a statement that calls one has run and is committed when its result is there. The
        Spark engine uses a session that is given, or opens one and keeps it. Tables of
        ``database`` can be named without it."""
        check_arguments(sql, parameters, limit, timeout)
        bound = Bound(sql, sql)
        if parameters is not None:
            if engine == SPARK:
                raise BadInput(
                    "parameters are for the embedded engine",
                    hint="Spark's own are: spark.sql(args=…)",
                )
            bound = prepare(sql).bind(parameters)
        with Watch(sql, engine) as watch, bound.placed():
            sql = bound.sql
            check_statement(sql)
            within = self._read_range(begin, end)
            as_of = resolve_past(self._catalog, as_of)
            past = None if as_of is None else to_instant(as_of, "down")
            if engine == SPARK:
                return self._query_on_spark(
                    self._on_spark(spark, master, remote),
                    sql,
                    within,
                    limit=limit,
                    timeout=timeout,
                    past=past,
                    stale=stale,
                    explained=explained,
                    database=database,
                    watch=watch,
                )
            if engine != EMBEDDED:
                raise BadInput(f"there is no engine {engine}", hint=f"use {EMBEDDED} or {SPARK}")
            return self._query_embedded(
                sql,
                within,
                past,
                stale=stale,
                limit=limit,
                timeout=timeout,
                explained=explained,
                admin=admin,
                database=database,
                watch=watch,
            )

    def _query_embedded(
        self,
        sql: str,
        within: TimeRange | None,
        past: int | None,
        *,
        stale: bool,
        limit: int | None,
        timeout: float | None,
        explained: bool,
        admin: bool,
        database: str | None,
        watch: Watch,
    ) -> Result:
        deadline = self._set_deadline(timeout)
        with self._taker.begin(past, database) as beginning:
            view_sets = beginning.list_tables(sql)
            analysis = self._analyse(sql, view_sets, within, admin=admin, deadline=deadline)
            acting = self._begin_changes(analysis, past) if admin else None
            snapshot = beginning.take(
                analysis.scans, with_tail=not stale, explained=explained, asked=analysis.asked
            )
        verification = None
        try:
            tails = self._read_tails(snapshot)
            content = self._collect(view_sets, snapshot, tails)
            reads = list_reads(analysis.scans, snapshot)
            verification = self._begin_verification(reads, deadline)
            nothing = snapshot.listed.is_empty and all(each.is_empty for each in content.values())

            def start() -> Stream:
                stream: Stream
                if acting is None and nothing:
                    stream = self._embedded().run_over_nothing(
                        sql, analysis, limit=limit, deadline=deadline
                    )
                else:
                    stream = self._on_engine(
                        lambda engine: engine.run(
                            sql,
                            content,
                            within,
                            listed=snapshot.listed,
                            admin=admin,
                            acting=acting,
                            limit=None if acting else limit,
                            deadline=deadline,
                        )
                    )
                is_read = analysis.is_analyze or not analysis.is_explain
                return HeldStream(stream, snapshot, self._store, verification if is_read else None)

            stream = start() if acting is None else act(acting, start, limit)
            stream = watch.follow(stream, snapshot)
        except BaseException as error:
            snapshot.close()
            if isinstance(error, Damage | BadSql):
                named = name_damage(error, snapshot.files, self._store, verification)
                if named is not error:
                    raise named from error
            raise
        explanation = _explain(EMBEDDED, snapshot, tails)
        if acting is None:
            return Result(stream, explanation, snapshot.close)
        explanation.warnings += tuple(acting.changes.warnings)
        snapshot.close()
        return Result(stream, explanation, lambda: None)

    def _query_on_spark(
        self,
        engine: SparkEngine,
        sql: str,
        within: TimeRange | None,
        *,
        limit: int | None,
        timeout: float | None,
        past: int | None,
        stale: bool,
        explained: bool,
        database: str | None,
        watch: Watch,
    ) -> Result:
        from lakebed.query.spark.pruning import find_scans, plan_text
        from lakebed.query.spark.statement import read

        deadline = self._set_deadline(timeout)
        with self._taker.begin(past, database) as beginning:
            view_sets = beginning.list_tables(sql)
            statement = read(sql, view_sets)
            analysis = None
            text = plan_text(statement)
            if text is not None:
                with suppress(BadInput):  # the embedded engine cannot read it
                    analysis = self._analyse(text, view_sets, within, deadline)
            planned = () if analysis is None else analysis.scans
            scans = find_scans(statement, view_sets, within, planned)
            snapshot = beginning.take(scans, with_tail=not stale, explained=explained)
        try:
            tails = self._read_tails(snapshot)
            content = self._collect(view_sets, snapshot, tails)
            # Spark verifies the pages itself, but not the footers.
            footers = [FileRead(partition, frozenset()) for partition in snapshot.files]
            verification = self._begin_verification(footers, deadline)
            like = None if analysis is None else analysis.schema
            stream = engine.run(
                statement, content, within, like=like, limit=limit, deadline=deadline
            )
        except BaseException:
            snapshot.close()
            raise
        explanation = _explain(SPARK, snapshot, tails)
        held = HeldStream(stream, snapshot, self._store, verification)
        return Result(watch.follow(held, snapshot), explanation, snapshot.close)

    def _begin_verification(
        self, reads: Sequence[FileRead], deadline: Deadline | None
    ) -> Verification | None:
        """Verify the footers, from which the engine learns the columns; the pages when the rows
        are fetched."""
        if not self._settings.verify_pages:
            return None
        verification = Verification(self._verifier, reads, deadline)
        verification.run_footers()
        return verification

    def close(self) -> None:
        """Stop the Spark sessions that statements opened, and let go of the embedded engine."""
        if self._spark is not None:
            self._spark.close()
        with self._engine_lock:
            engine, self._engine = self._engine, None
            resources, self._resources = self._resources, None
        if engine is not None:
            engine.close()
        if resources is not None:
            resources.close()

    def describe(self, sql: str, *, admin: bool = True, timeout: float | None = None) -> pa.Schema:
        """Return the columns that a statement would give; nothing is run."""
        check_statement(sql)
        deadline = self._set_deadline(timeout)
        view_sets = self._taker.list_tables(sql)
        return self._analyse(sql, view_sets, None, admin=admin, deadline=deadline).schema

    def list_tables(self) -> dict[str, ViewSet]:
        """Everything that a statement can read, by name."""
        return self._taker.list_tables()

    def look_up(self, asked: Asked, *, as_of: Instant | None = None, stale: bool = False) -> Listed:
        """What the catalog knows, without SQL."""
        as_of = resolve_past(self._catalog, as_of)
        past = None if as_of is None else to_instant(as_of, "down")
        with self._taker.begin(past) as beginning:
            snapshot = beginning.take([], with_tail=not stale, asked=asked)
        snapshot.close()
        return snapshot.listed

    def explain_empty(
        self, view_set: str, begin: Instant, end: Instant, *, stale: bool = False
    ) -> pa.Table:
        """Why there are no rows of some insert times between two instants, without SQL."""
        now = self._now()
        within = TimeRange(parse_moment(begin, now), parse_moment(end, now))
        return self.look_up(Asked(empty=[(view_set, within)]), stale=stale).empty[0]

    def _begin_changes(self, analysis: Analysis, past: int | None) -> Acting | None:
        """Return the changes of a statement that calls functions which change the lake."""
        if not analysis.may_change or self._administration is None:
            return None
        if analysis.is_analyze:
            raise BadInput("EXPLAIN ANALYZE would run a function that changes the lake")
        if analysis.is_explain:
            return None
        if past is not None:
            raise BadInput("a statement about the past cannot change the lake")
        verbs = self._administration
        # A thread of the engine calls it; a statement that runs again does not build again.
        build = cache(keep_askers(verbs.build))
        return Acting(replace(verbs, build=build), verbs.begin_changes())

    def _embedded(self) -> Engine:
        """Return the engine, a new one if a planner that cannot be stopped has the last one."""
        from lakebed.query.embedded.engine import Engine, Resources

        with self._engine_lock:
            if self._resources is None:
                settings = self._settings
                self._resources = Resources(settings.memory_bytes, settings.spill_bytes)
            if self._engine is None or self._engine.is_abandoned:
                self._engine = Engine(self._store, self._resources)
            return self._engine

    def _on_engine(self, plan: Callable[[Engine], T]) -> T:
        """Plan on the engine, and on the next one if it is replaced meanwhile."""
        from lakebed.query.embedded.planning import EngineReplaced

        while True:
            try:
                return plan(self._embedded())
            except EngineReplaced:
                continue

    def _analyse(
        self,
        sql: str,
        view_sets: Mapping[str, ViewSet],
        within: TimeRange | None = None,
        deadline: Deadline | None = None,
        *,
        admin: bool = True,
    ) -> Analysis:
        return self._on_engine(
            lambda engine: engine.analyse(sql, view_sets, within, admin=admin, deadline=deadline)
        )

    def _set_deadline(self, timeout: float | None) -> Deadline | None:
        """Return when a statement that begins now must be at its end."""
        from lakebed.query.embedded.planning import Deadline

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

    def _read_range(self, begin: Instant | None, end: Instant | None) -> TimeRange | None:
        if begin is None and end is None:
            return None
        now = self._now()
        return TimeRange(
            EVER.begin if begin is None else parse_moment(begin, now),
            EVER.end if end is None else parse_moment(end, now),
        )

    def _collect(
        self,
        view_sets: Mapping[str, ViewSet],
        snapshot: StatementSnapshot,
        tails: Mapping[str, TailRows],
    ) -> dict[str, Content]:
        """What each table holds; those that a statement does not need hold nothing."""
        content: dict[str, Content] = {name: TableContent(each) for name, each in view_sets.items()}
        for name, table in snapshot.tables.items():
            paths = [each.file_path for each in table.files if each.file_path is not None]
            rows = sum(each.num_rows for each in table.files) + tails[name].num_rows
            content[name] = TableContent(table.view_set, paths, tails[name].tables, rows)
        for name, user in snapshot.user_tables.items():
            content[name] = self._users.read(user)
        return content

    def _read_tails(self, snapshot: StatementSnapshot) -> dict[str, TailRows]:
        tails = [each.tail for each in snapshot.tables.values() if each.tail is not None]
        self._tails.require_bounded(tails)
        return {
            name: TailRows() if each.tail is None else self._tails.read(each.tail)
            for name, each in snapshot.tables.items()
        }


def _explain(
    engine: str, snapshot: StatementSnapshot, tails: Mapping[str, TailRows]
) -> Explanation:
    explained = [_explain_table(name, each, tails[name]) for name, each in snapshot.tables.items()]
    explained += [_explain_user(name, each) for name, each in snapshot.user_tables.items()]
    return Explanation(
        engine,
        snapshot.tick,
        explained,
        tuple(_find_warnings(snapshot.tables, tails)),
    )


def _explain_table(name: str, table: TableView, tail: TailRows) -> TableExplanation:
    return TableExplanation(
        name,
        table.considered,
        table.pruned,
        len(table.files),
        sum(each.num_rows for each in table.files),
        sum(each.file_size for each in table.files),
        len(table.tail.blocks) if table.tail else 0,
        tail.num_rows,
        table.failed_blocks + tail.failed_blocks,
        None if table.built_until is None else format_instant(table.built_until),
    )


def _explain_user(name: str, user: UserView) -> TableExplanation:
    return TableExplanation(
        name,
        user.considered,
        user.pruned,
        len(user.read),
        sum(each.num_rows for each in user.read),
        sum(each.file_size for each in user.read),
        keys_read=len(user.opened) - len(user.read),
    )


def _advise(name: str, table: TableView) -> str:
    """Return what can be done about rows that exist only in another schema."""
    if table.view_set.source is None:
        return "publish them again"
    frozen = "because their blocks are gone or never were"
    if not any(find_gaps(hidden, table.frozen) for hidden in table.hidden):
        return f"they cannot be rebuilt, {frozen}"
    if not table.frozen:
        return f"rebuild them with: lakebed build {name}"
    more = f" and {len(table.frozen) - 1} more ranges" if len(table.frozen) > 1 else ""
    return (
        f"rebuild them with: lakebed build {name}; what landed in {table.frozen[0]}{more} cannot "
        f"be rebuilt, {frozen}"
    )


def _find_warnings(tables: Mapping[str, TableView], tails: Mapping[str, TailRows]) -> list[str]:
    """What the rows leave out, and what to do about it."""
    said = []
    for name, table in tables.items():
        failed = table.failed_blocks + tails[name].failed_blocks
        if failed:
            said.append(
                f"{name}: {failed} blocks cannot be decoded and their records are not seen; "
                f"build, then see why with: lakebed build {name} --plan"
            )
        if table.unbuilt is not None:
            said.append(
                f"{name}: what landed in {table.unbuilt} is not built, and {name} shows only what "
                f"is; build it with: lakebed build {name}"
            )
        if table.hidden:
            more = f" and {len(table.hidden) - 1} more ranges" if len(table.hidden) > 1 else ""
            said.append(
                f"{name}: what landed in {table.hidden[0]}{more} exists only in another schema "
                f"and is not seen; {_advise(name, table)}"
            )
    return said
