"""DataFusion over a lake's files: plans a statement over empty tables to learn what it needs, and
keeps that analysis; then over exactly the files and rows of its snapshot, if there are any.

One context serves all statements of a lake, because it caches the footers of files. It plans one
statement at a time, a few milliseconds each, and runs many at once.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from datafusion import (
    DataFrame,
    RuntimeEnvBuilder,
    ScalarUDF,
    SessionConfig,
    SessionContext,
    col,
    lit,
)
from datafusion import expr as expressions

from lakebed.lifecycle.changes import Changes
from lakebed.model.time import TimeRange
from lakebed.model.view_set import ViewSet
from lakebed.query.embedded.content_tables import ContentTables, as_declared
from lakebed.query.embedded.failing import translate
from lakebed.query.embedded.functions import histograms, lake_functions, properties
from lakebed.query.embedded.functions.calls import ONLY_READ, LakeFunction, LakeFunctions, Planning
from lakebed.query.embedded.mistakes import require_sound
from lakebed.query.embedded.running.spilling import SpillFolder
from lakebed.query.embedded.running.streams import BatchStream, SpillWatch
from lakebed.query.embedded.running.turns import Deadline, EngineReplaced, Turns
from lakebed.query.embedded.scans import find_scans
from lakebed.query.embedded.stores import Locator
from lakebed.query.embedded.tables import CATALOG, SCHEMA, LakeCatalog
from lakebed.query.embedded.types import without_views
from lakebed.query.planning.conditions import Scan
from lakebed.query.planning.content import Content, TableContent, choose_bounds
from lakebed.query.snapshot import listings
from lakebed.query.snapshot.listings import CatalogAnswer, CatalogRequest
from lakebed.storage.objects import Store

_KEPT_ANALYSES = 64
_MOST_KEPT_CHARACTERS = 10_000
_CLOCK = re.compile(r"\b(?:now|today|current_\w+|local\w+)\b", re.IGNORECASE)
"""Functions that the planner replaces by the time. SQL view sets cannot call them."""
_BATCH_ROWS = 16_384
"""Batch size: twice the engine's default, because Python hands over each batch of a result. Larger
batches are faster still, but sorts that spill and slow readers need more memory."""
_ABSENT = (
    *(
        "repeat",
        "lpad",
        "rpad",
        "range",
        "generate_series",
    ),  # in FROM the last two are table functions
    *("array_repeat", "list_repeat", "array_resize", "list_resize"),
    "input_file_name",
)
"""Functions that make a value as large as their argument, outside the memory limit, and one that
reveals the address of the lake."""

_SHOW_PLANS = (expressions.Explain, expressions.Analyze)
_INSTANCE = re.compile("view_instance", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Analysis:
    """The result of planning a statement once: its scans, columns and needs."""

    scans: Sequence[Scan]
    schema: pa.Schema
    is_explain: bool
    """The statement shows a plan; only EXPLAIN ANALYZE runs it."""
    is_analyze: bool
    catalog_request: CatalogRequest
    """The listings and explanations of the catalog that it needs."""
    may_change: bool
    """The statement names a function that changes the lake."""
    frame: DataFrame
    """The statement over empty tables; it is run as it is if they are empty."""
    is_idle: bool
    """The statement reads view sets only: if they are empty, there is nothing to do."""


class Engine:
    """The embedded engine of one lake. Safe to use from several threads."""

    def __init__(
        self, store: Store, resources: Resources, operations: Sequence[LakeFunction] = ()
    ) -> None:
        self._catalog = LakeCatalog()
        self._locator = Locator(store)
        self._spills = resources.spills
        self._context = _make_context(resources.runtime, self._catalog)
        self._locator.register(self._context)
        self._tables = ContentTables(self._context, self._catalog, self._locator)
        for function in [*histograms.functions(), *properties.functions()]:
            if isinstance(function, ScalarUDF):
                self._context.register_udf(function)
            else:
                self._context.register_udaf(function)
        self._functions = LakeFunctions(self._context, [*lake_functions.TABLES, *operations])
        one = self._tables.make_of_batches([pa.RecordBatch.from_pydict({"one": [1]})])
        self._one = self._context.read_table(one)
        self._turns = Turns(self._release)
        self._analyses: OrderedDict[Any, Analysis] = OrderedDict()

    def close(self) -> None:
        """Release all tables: they hold the context, which holds them, and Python cannot see the
        cycle. Results that are still being read are not affected."""
        with suppress(EngineReplaced):  # its planner releases it
            self._turns.take(self._release)

    def _release(self) -> None:
        self._catalog.show({})
        self._tables.clear()
        self._analyses.clear()
        self._functions.close()

    @property
    def is_abandoned(self) -> bool:
        """Return True if a planner that passed its deadline has this engine."""
        return self._turns.is_abandoned

    def analyse(
        self,
        sql: str,
        view_sets: Mapping[str, ViewSet],
        within: TimeRange | None = None,
        *,
        admin: bool = True,
        deadline: Deadline | None = None,
    ) -> Analysis:
        """Return what a statement over these view sets needs, without running it. The analysis of a
        statement that was described or run before is reused, unless it reads the clock."""
        key = None
        if len(sql) <= _MOST_KEPT_CHARACTERS and not _CLOCK.search(sql):
            tables = tuple(
                (name, view_set.schema_hash, TableContent(view_set).merge_sql)
                for name, view_set in view_sets.items()
            )
            key = (sql, within, admin, tables)

        def analyse() -> Analysis:
            if key in self._analyses:
                self._analyses.move_to_end(key)
                return self._analyses[key]
            analysis = self._analyse(sql, view_sets, within, admin=admin)
            # The engine's own tables describe the tables that are visible at that moment.
            if key is not None and analysis.is_idle and not analysis.is_explain:
                self._analyses[key] = analysis
                if len(self._analyses) > _KEPT_ANALYSES:
                    self._analyses.popitem(last=False)
            return analysis

        return self._turns.take(analyse, deadline)

    def _analyse(
        self, sql: str, view_sets: Mapping[str, ViewSet], within: TimeRange | None, *, admin: bool
    ) -> Analysis:
        with translate(sql, view_sets):
            nothing = {name: TableContent(view_set) for name, view_set in view_sets.items()}
            self._show(sql, nothing, within)
            planning = Planning(view_sets, self._one, admin=admin)
            planning.tables = {
                name: self._tables.make_of_listing(name) for name in listings.SCHEMAS
            }
            planning.no_empty = self._tables.make_of_listing(listings.EMPTY)
            frame = self._plan(sql, planning)
            plan = frame.optimized_logical_plan()
            require_sound(sql, plan)
            scans = find_scans(plan)
            top = plan.to_variant()
            is_analyze = isinstance(top, expressions.Analyze)
            return Analysis(
                [scan for scan in scans if scan.table in view_sets],
                frame.schema(),
                is_explain=isinstance(top, _SHOW_PLANS),
                is_analyze=is_analyze,
                catalog_request=CatalogRequest(
                    frozenset(planning.listings),
                    _find_listed(scans),
                    tuple(planning.empty),
                ),
                may_change=self._functions.may_change(sql),
                frame=frame,
                is_idle=bool(scans) and all(scan.table in view_sets for scan in scans),
            )

    def run(
        self,
        sql: str,
        tables: Mapping[str, Content],
        within: TimeRange | None = None,
        *,
        analysis: Analysis | None = None,
        listed: CatalogAnswer | None = None,
        admin: bool = True,
        changes: Changes | None = None,
        limit: int | None = None,
        deadline: Deadline | None = None,
    ) -> BatchStream:
        """Start a statement over exactly this content; of rows that have a time, over those in a
        range. Functions that change the lake add to ``changes``. If there is nothing to read, the
        plan of the analysis is run."""
        is_empty = all(content.is_empty for content in tables.values())
        if (
            analysis is not None
            and changes is None
            and is_empty
            and (listed is None or listed.is_empty)
        ):
            return self._start(analysis.frame, sql, limit, deadline, at_once=analysis.is_idle)

        def plan() -> BatchStream:
            frame = self._plan_over_content(sql, tables, within, listed, changes, admin=admin)
            return self._start(frame, sql, limit, deadline)

        return self._turns.take(plan, deadline)

    def _plan_over_content(
        self,
        sql: str,
        tables: Mapping[str, Content],
        within: TimeRange | None,
        listed: CatalogAnswer | None,
        changes: Changes | None,
        *,
        admin: bool,
    ) -> DataFrame:
        with translate(sql):
            self._show(sql, tables, within)
            view_sets = {name: content.view_set for name, content in tables.items()}
            planning = Planning(view_sets, self._one, admin=admin, changes=changes)
            if listed is not None:
                planning.tables = {
                    name: self._tables.make_of_rows(rows) for name, rows in listed.tables.items()
                }
                planning.empty_tables = [self._tables.make_of_rows(rows) for rows in listed.empty]
            return self._plan(sql, planning)

    def _start(
        self,
        frame: DataFrame,
        sql: str,
        limit: int | None,
        deadline: Deadline | None,
        *,
        at_once: bool = False,
    ) -> BatchStream:
        """Run a frame up to a limit. EXPLAIN has to be the root of its plan, so that its rows are
        only counted as they come; its texts do not reveal the address of the lake."""
        if isinstance(frame.logical_plan().to_variant(), _SHOW_PLANS):
            secrets = self._locator.list_secrets()
        else:
            secrets = set()
            if limit is not None:
                frame = frame.limit(limit)
            frame = frame if at_once else _in_plain_types(frame)
        return BatchStream(
            frame,
            sql,
            deadline,
            spills=self._spills,
            at_once=at_once,
            most_rows=limit,
            secrets=secrets,
        )

    def _plan(self, sql: str, planning: Planning) -> DataFrame:
        """Plan a statement. The tables that its table functions may return are registered before,
        because a table function cannot ask the context for a table."""
        if _INSTANCE.search(sql):
            names = [name for name in planning.view_sets if name in sql]
            planning.frames = {name: self._context.table(name) for name in names}
        return self._functions.plan(lake_functions.spell(sql), planning)

    def _show(self, sql: str, tables: Mapping[str, Content], within: TimeRange | None) -> None:
        """Make these the tables that SQL can name. For tables whose name is not in the text only
        the columns matter."""
        visible = {name: self._tables.make(content) for name, content in tables.items()}
        self._catalog.show(visible)
        text = sql.lower()
        for name, content in tables.items():
            bounds = choose_bounds(content.view_set, within)
            if name.rpartition(".")[2] not in text or (
                content.merge_sql is None and bounds == (None, None)
            ):
                continue
            if content.merge_sql is None:
                frame = self._context.table(name)
            else:
                merged = self._context.sql_with_options(content.merge_sql, ONLY_READ)
                frame = as_declared(merged, content.view_set)
            visible[name] = _between(frame, content.view_set, *bounds).into_view()
        self._catalog.show(visible)


class Resources:
    """Memory and disk that the engines of one lake share."""

    def __init__(self, memory_bytes: int, spill_bytes: int) -> None:
        """``memory_bytes`` limits the memory of all statements before they spill, ``spill_bytes``
        the size of all spill files."""
        self.folder = SpillFolder(spill_bytes)
        self.spills = SpillWatch(self.folder)
        runtime = RuntimeEnvBuilder().with_fair_spill_pool(memory_bytes)
        if self.folder.path is None:
            self.runtime = runtime.with_disk_manager_disabled()
        else:
            self.runtime = runtime.with_temp_file_path(self.folder.path)

    def close(self) -> None:
        """Remove the spill files."""
        self.folder.close()


def _make_context(runtime: RuntimeEnvBuilder, catalog: LakeCatalog) -> SessionContext:
    config = (
        SessionConfig()
        .with_batch_size(_BATCH_ROWS)
        .with_default_catalog_and_schema(CATALOG, SCHEMA)
        .with_create_default_catalog_and_schema(False)
        .with_information_schema(True)
        .set("datafusion.execution.time_zone", "UTC")
        .set("datafusion.sql_parser.map_string_types_to_utf8view", "true")
        # Of a row group, other columns are decoded only for the rows that a condition leaves.
        .set("datafusion.execution.parquet.pushdown_filters", "true")
        # Page indexes have no checksums. Without them the benchmarks take no longer.
        .set("datafusion.execution.parquet.enable_page_index", "false")
        # It uses statistics of whole files wrongly: see mistakes.py.
        .set("datafusion.execution.collect_statistics", "false")
        # The build side of a join is not partitioned up to this size: that would partition the
        # probe side, too.
        .set("datafusion.optimizer.hash_join_single_partition_threshold", str(32 << 20))
        .set("datafusion.optimizer.hash_join_single_partition_threshold_rows", "1000000")
    )
    context = SessionContext(config, runtime)
    for name in _ABSENT:
        context.deregister_udf(name)
    context.register_catalog_provider(CATALOG, catalog)
    return context


def _find_listed(scans: Sequence[Scan]) -> frozenset[str] | None:
    """Return the view sets whose partitions a statement lists, or None unless it names them
    everywhere."""
    table = f"{listings.PARTITIONS}()"
    name_intervals = [scan.columns.get("view_set_name") for scan in scans if scan.table == table]
    names: set[str] = set()
    for intervals in name_intervals:
        if intervals is None or any(low != high or low is None for low, high in intervals):
            return None
        names.update(str(low) for low, _ in intervals)
    return frozenset(names)


def _in_plain_types(frame: DataFrame) -> DataFrame:
    """Return the frame with the types that callers get. The engine converts with all its threads,
    and loses the order of rows: sorted frames, and those with two columns of one name, are
    converted where batches are handed over."""
    schema = frame.schema()
    if len(set(schema.names)) < len(schema) or _has_order(frame.logical_plan()):
        return frame
    columns, plain = [], True
    for field, target in zip(schema, without_views(schema), strict=True):
        column = col(_quote_name(field.name))
        if field.type != target.type:
            column = column.cast(target.type).alias(field.name)
            plain = False
        columns.append(column)
    return frame if plain else frame.select(*columns)


def _has_order(plan: Any) -> bool:
    return isinstance(plan.to_variant(), expressions.Sort) or any(map(_has_order, plan.inputs()))


def _between(frame: DataFrame, view_set: ViewSet, begin: int | None, end: int | None) -> DataFrame:
    """Return the rows whose time is in a range that may be open."""
    kind = view_set.schema.field(view_set.time_column).type
    time = col(f'"{view_set.time_column}"')
    if begin is not None:
        frame = frame.filter(time >= lit(pa.scalar(begin, pa.timestamp("us", "UTC")).cast(kind)))
    if end is not None:
        frame = frame.filter(time < lit(pa.scalar(end, pa.timestamp("us", "UTC")).cast(kind)))
    return frame


def _quote_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
