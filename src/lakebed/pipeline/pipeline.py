"""The pipeline of one lake: blocks become partitions, small partitions become larger ones, and
those of users' tables are folded.

`plan` returns the steps that are due; `build` runs them, round after round, until nothing is due.
Each step is published in its own transaction: a build that is killed leaves what it published, and
names that a sweep takes. The next build continues from there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from lakebed.catalog import clock
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.leases import Lease
from lakebed.catalog.records import blocks, failures, tables
from lakebed.catalog.records.failures import BuildFailure
from lakebed.catalog.times import resolve
from lakebed.errors import Cancelled
from lakebed.logs import Operation
from lakebed.model.arguments import checked_methods, list_names
from lakebed.model.time import Instant, TimeRange, to_instant
from lakebed.pipeline.plan import Limits
from lakebed.pipeline.publishing import Outcome, StepPublisher
from lakebed.pipeline.sessions import jvm
from lakebed.pipeline.sessions.build_sessions import BuildSessions, SessionRequest
from lakebed.pipeline.sessions.executors import StoreAddress
from lakebed.pipeline.sessions.session import require_spark
from lakebed.pipeline.state import choose, make_plan
from lakebed.pipeline.step_log import end_step, start_step
from lakebed.pipeline.steps import Fold, Plan, Skip, Step
from lakebed.reading.leases import LeaseKeeper
from lakebed.storage.objects import Store
from lakebed.tables.rows.row_reader import RowReader
from lakebed.tables.rows.table_publisher import TablePublisher
from lakebed.views.active import list_view_sets
from lakebed.views.registry import Registry
from lakebed.writing.name_reservations import NamePool
from lakebed.writing.publish import Publisher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = ParamSpec("P")
_log = logging.getLogger(__name__)
_MOST_ROUNDS = 50
_MOST_VAIN_ROUNDS = 3
"""Rounds in a row in which other builds overtook steps and none was published."""


@dataclass(slots=True)
class BuildReport:
    """The outcomes of a build."""

    rounds: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    skipped: tuple[Skip, ...] = ()

    @property
    def published(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.partition is not None]

    @property
    def problems(self) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.problem is not None]

    @property
    def overtaken(self) -> list[Outcome]:
        """The steps that other builds overtook; later rounds plan their remaining parts again."""
        return [outcome for outcome in self.outcomes if outcome.overtaken is not None]

    def give_up(self, count: int) -> None:
        """Make overtaken steps among the last outcomes problems: they are not planned again."""
        for index in range(len(self.outcomes) - count, len(self.outcomes)):
            outcome = self.outcomes[index]
            if outcome.overtaken is not None:
                problem = f"overtaken in round {self.rounds}, and given up: {outcome.overtaken}"
                self.outcomes[index] = replace(outcome, problem=problem)

    @property
    def rows(self) -> int:
        return sum(outcome.partition.num_rows for outcome in self.published if outcome.partition)

    @property
    def bytes(self) -> int:
        return sum(outcome.partition.file_size for outcome in self.published if outcome.partition)

    @property
    def fallbacks(self) -> int:
        return sum(outcome.fallbacks for outcome in self.outcomes)


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a build: steps done of those planned in this round."""

    round: int
    done: int
    planned: int
    rows: int
    bytes: int


@dataclass(slots=True)
class _Request:
    """One call of `build`."""

    names: Sequence[str]
    begin: Instant | None
    end: Instant | None
    session: SessionRequest
    address: StoreAddress
    progress: Callable[[Progress], None]
    notice: Callable[[Lease], None]
    report: BuildReport = field(default_factory=BuildReport)

    def show_progress(self, plan: Plan, done: int) -> None:
        report = self.report
        self.progress(Progress(report.rounds, done, len(plan.steps), report.rows, report.bytes))


def _logged(build: Callable[P, BuildReport]) -> Callable[P, BuildReport]:
    """Log the start and the end of each build."""

    @wraps(build)
    def run(*args: P.args, **options: P.kwargs) -> BuildReport:
        names = list(list_names(args[1:]))  # type: ignore[arg-type]
        with Operation(_log, "build", view_sets=names) as operation:
            report = build(*args, **options)
            operation.add(
                rounds=report.rounds,
                steps=len(report.outcomes),
                partitions=len(report.published),
                rows=report.rows,
                bytes=report.bytes,
                problems=len(report.problems),
                overtaken=len(report.overtaken),
                skipped=len(report.skipped),
            )
        return report

    return run


@checked_methods
class Pipeline:
    """Plans and builds one lake's view sets, and folds its tables."""

    def __init__(
        self,
        catalog: Catalog,
        store: Store,
        names: NamePool,
        publisher: Publisher,
        table_publisher: TablePublisher,
        keeper: LeaseKeeper,
        registry: Registry,
        limits: Limits | None = None,
    ) -> None:
        self._catalog = catalog
        self._store = store
        self._publisher = StepPublisher(catalog, publisher, table_publisher, names)
        self._keeper = keeper
        self._registry = registry
        self.limits = limits or Limits()
        self._sessions = BuildSessions()
        self._cancelled = threading.Event()

    def plan(
        self,
        *names: str | Collection[str],
        begin: Instant | None = None,
        end: Instant | None = None,
    ) -> Plan:
        """Return the steps that are due for these view sets and tables (``database.table``), or
        all: what `build` would do first. Writes nothing. A range that is empty or runs backwards is
        `BadInput`."""
        within = self._read_range(begin, end)
        return make_plan(self._catalog, list_names(names), *within, self.limits, is_preview=True)

    def _plan_build(self, names: Sequence[str], begin: Instant | None, end: Instant | None) -> Plan:
        """Return the steps to carry out, after what they need is written to the catalog."""
        within = self._read_range(begin, end)
        self._register_built_in()
        self._close_last_tick()
        return make_plan(self._catalog, names, *within, self.limits)

    def _read_range(
        self, begin: Instant | None, end: Instant | None
    ) -> tuple[int | None, int | None]:
        begin = None if begin is None else resolve(self._catalog, begin)
        end = None if end is None else resolve(self._catalog, end)
        first = None if begin is None else to_instant(begin, "up")
        behind = None if end is None else to_instant(end, "up")
        if first is not None and behind is not None:
            TimeRange(first, behind)  # raises, else nothing would be due and all look well
        return first, behind

    @_logged
    def build(
        self,
        *names: str | Collection[str],
        begin: Instant | None = None,
        end: Instant | None = None,
        spark: SparkSession | None = None,
        master: str | None = None,
        remote: str | None = None,
        quick: bool | None = None,
        keep_session: bool = False,
        pass_credentials: bool = False,
        progress: Callable[[Progress], None] = lambda _progress: None,
        notice: Callable[[Lease], None] = lambda _lease: None,
    ) -> BuildReport:
        """Build, merge and fold until nothing is due that was due at the start. What lands during a
        build is left to the next one. Without a step that needs Spark, none is started: small
        partitions of tables are folded in this process.

        The caller's session is used as it is. Otherwise one is started (local, or at a master or a
        Spark Connect server) and stopped at the end. ``quick`` is for a JVM that compiles less and
        starts sooner, by default if there is little to do. ``keep_session`` leaves the session to
        the next build, until `close`, unless something fails. If another process builds the same,
        ``notice`` is called with its lease; `Conflict` if that process is alive. A step that
        another build overtakes is planned again; it is a problem only if that happens repeatedly.
        """
        self._cancelled.clear()
        request = _Request(
            list_names(names),
            begin,
            end,
            SessionRequest(spark, master, remote, quick, keep_session),
            StoreAddress.of(self._store, pass_credentials=pass_credentials),
            progress,
            notice,
        )
        plan = self._plan_build(request.names, begin, end)
        request.report.skipped = plan.skipped
        if plan.steps:
            with ExitStack() as stack:
                stack.callback(self._keeper.unpin, self._keeper.pin())
                self._run_rounds(plan, request, stack)
        if request.report.problems:
            self.close()
        return request.report

    def _run_rounds(self, plan: Plan, request: _Request, stack: ExitStack) -> None:
        """Run a plan, and plans for what is left, until nothing is due or nothing gets done."""
        report, first_tick = request.report, plan.tick
        session: SparkSession | None = None
        rounds_in_vain = 0
        while plan.steps:
            self._require_wanted()
            report.rounds += 1
            before = len(report.outcomes)
            request.show_progress(plan, 0)

            def add(outcome: Outcome, plan: Plan = plan, before: int = before) -> None:
                report.outcomes.append(outcome)
                request.show_progress(plan, len(report.outcomes) - before)

            self._fold_here(plan, add)
            steps = [step for step in plan.steps if not plan.is_done_here(step)]
            if steps:
                if request.session.spark is None:
                    require_spark(remote=request.session.remote is not None)
                with self._naming_failures():
                    session = session or stack.enter_context(
                        self._sessions.use(request.session, request.address, is_small=plan.is_small)
                    )
                    self._run_on_spark(session, request, plan.tick, steps, add)
            outcomes = report.outcomes[before:]
            has_changed = any(outcome.partition or outcome.failed_blocks for outcome in outcomes)
            if not has_changed and not any(outcome.overtaken for outcome in outcomes):
                return
            rounds_in_vain = 0 if has_changed else rounds_in_vain + 1
            names = self._without_deleted(request.names)
            if request.names and not names:
                return
            plan = self._plan_build(names, request.begin, request.end).as_of(first_tick)
            report.skipped = plan.skipped
            if rounds_in_vain == _MOST_VAIN_ROUNDS or report.rounds == _MOST_ROUNDS:
                if plan.steps:
                    report.give_up(len(outcomes))
                return

    @contextmanager
    def _naming_failures(self) -> Iterator[None]:
        """Raise `Cancelled` for the failure of a cancelled build, `Unavailable` for a lost JVM."""
        try:
            with jvm.naming_its_end():
                yield
        except Exception:
            self._require_wanted()
            raise

    def _run_on_spark(
        self,
        session: SparkSession,
        request: _Request,
        tick: int,
        steps: Sequence[Step],
        report: Callable[[Outcome], None],
    ) -> None:
        """Run steps of one plan, with a lease on each view set that they build."""
        from lakebed.pipeline.runner import Runner

        names = sorted({step.name for step in steps})
        with ExitStack() as stack:
            self._keeper.end_dead_builders(
                names, notice=request.notice, require_wanted=self._require_wanted
            )
            for name in names:
                stack.enter_context(self._keeper.building(name))
            own = stack.enter_context(self._sessions.work_beside(session))
            runner = Runner(
                self._publisher, own, self._store, request.address, tick, self._require_wanted
            )
            runner.run(steps, report)

    def cancel(self) -> None:
        """Let a build in another thread end as soon as it can, with `Cancelled`. What it has
        published stays."""
        self._cancelled.set()
        self._sessions.cancel()

    def _require_wanted(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled("the build was cancelled", hint="the next one goes on where it ended")

    def close(self) -> None:
        """Stop the session that was kept, if there is one."""
        self._sessions.close()

    def _fold_here(self, plan: Plan, report: Callable[[Outcome], None]) -> None:
        """Fold small partitions of tables, one bucket after the other."""
        reader = RowReader(self._store)
        for step in plan.steps:
            if isinstance(step, Fold) and plan.is_done_here(step):
                operation = start_step(step)
                outcome = self._publisher.fold(step, reader)
                end_step(operation, outcome)
                report(outcome)

    def _without_deleted(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the names without those of tables that no longer exist."""
        with self._catalog.read() as connection:
            return tuple(
                name
                for name in names
                if "." not in name or tables.find(connection, *name.split(".", 1)) is not None
            )

    def list_failures(self, view_set: str | None = None) -> list[BuildFailure]:
        """Return the blocks that could not be decoded, with the reason."""
        with self._catalog.read() as connection:
            return failures.list_failures(connection, view_set)

    def retry_failures(self, *names: str | Collection[str]) -> int:
        """Let the next build try blocks again that could not be decoded, for these view sets and
        what they read, or for all. Return their number. Partitions that SQL made of neighbouring
        blocks stay: the ranges of such blocks are in no partition, so they are built and queried
        like new ones."""
        with self._catalog.write() as transaction:
            connection = transaction.connection
            failed = failures.list_failures(connection)
            if names:
                active = {entry.view_set.name: entry for entry in list_view_sets(connection)}
                chosen_names = {step.name for step in choose(list_names(names), active)}
                failed = [failure for failure in failed if failure.view_set in chosen_names]
            return sum(
                failures.forget(connection, failure.view_set, [failure.block_id])
                for failure in failed
            )

    def _register_built_in(self) -> None:
        from lakebed.views.builtin import built_in

        if not self._catalog.read_only:
            self._registry.ensure(built_in())

    def _close_last_tick(self) -> None:
        """Advance the clock if a block is on the lake's last tick, because a range is built up
        to that tick, exclusive."""
        with self._catalog.read() as connection:
            last = blocks.last_insert_time(connection)
            due = last is not None and last >= clock.now(connection)
        if due and not self._catalog.read_only:
            with self._catalog.write():
                pass
