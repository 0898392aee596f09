"""The pipeline of one lake: blocks become partitions, small partitions become larger ones, and
those of users' tables are folded.

`plan` shows what is due; `build` does it, round after round, until nothing is due any more. Each
step is published by itself: a build that is killed leaves what it published, and names that a
sweep takes; the next one goes on from there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec

from lakebed.catalog import blocks, clock, failures, tables, view_sets
from lakebed.catalog.catalog import Catalog
from lakebed.catalog.failures import BuildFailure
from lakebed.catalog.leases import Lease
from lakebed.catalog.times import resolve
from lakebed.errors import Cancelled
from lakebed.logs import Operation
from lakebed.model.arguments import checked_methods, list_names
from lakebed.model.time import Instant, TimeRange, to_instant
from lakebed.pipeline.plan import Limits
from lakebed.pipeline.publishing import Outcome, StepPublisher, TaskNames, fold_here
from lakebed.pipeline.sessions import jvm
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
"""In a row, with steps overtaken and none published: whoever overtakes them will go on."""


@dataclass(slots=True)
class BuildReport:
    """What a build did."""

    rounds: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    skipped: tuple[Skip, ...] = ()

    @property
    def published(self) -> list[Outcome]:
        return [each for each in self.outcomes if each.partition is not None]

    @property
    def problems(self) -> list[Outcome]:
        return [each for each in self.outcomes if each.problem is not None]

    @property
    def overtaken(self) -> list[Outcome]:
        """Steps that came too late; later rounds did what was left of them, or are problems."""
        return [each for each in self.outcomes if each.overtaken is not None]

    def give_up(self, count: int) -> None:
        """The last outcomes are final: who was overtaken among them will not be planned again."""
        for place in range(len(self.outcomes) - count, len(self.outcomes)):
            outcome = self.outcomes[place]
            if outcome.overtaken is not None:
                said = f"overtaken in round {self.rounds}, and given up: {outcome.overtaken}"
                self.outcomes[place] = replace(outcome, problem=said)

    @property
    def rows(self) -> int:
        return sum(each.partition.num_rows for each in self.published if each.partition)

    @property
    def bytes(self) -> int:
        return sum(each.partition.file_size for each in self.published if each.partition)

    @property
    def fallbacks(self) -> int:
        return sum(each.fallbacks for each in self.outcomes)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a build is: steps done of those planned in this round."""

    round: int
    done: int
    planned: int
    rows: int
    bytes: int


class _Teller:
    """Notes what became of each step of a round, and tells how far it is."""

    def __init__(
        self, plan: Plan, report: BuildReport, progress: Callable[[Progress], None]
    ) -> None:
        self.outcomes: list[Outcome] = []
        self._planned = len(plan.steps)
        self._report = report
        self._progress = progress
        self._tell()

    def __call__(self, outcome: Outcome) -> None:
        self.outcomes.append(outcome)
        self._report.outcomes.append(outcome)
        self._tell()

    def _tell(self) -> None:
        at = self._report
        done = len(self.outcomes)
        self._progress(Progress(at.rounds, done, self._planned, at.rows, at.bytes))


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
        self._names = names
        self._publisher = publisher
        self._tables = table_publisher
        self._keeper = keeper
        self._registry = registry
        self.limits = limits or Limits()
        self._kept: tuple[SparkSession, ExitStack] | None = None
        self._is_ours = False
        self._at_work: SparkSession | None = None
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
        """Build, merge and fold until nothing is due of what was there when it began; what lands
        meanwhile is for the next build, or this one would never end. Without a step for it no Spark
        is started: small partitions of tables are folded in this process.

        The caller's session is used as it is; otherwise one is started (local, or at a master or a
        Spark Connect server) and stopped at the end; ``quick``, by default if there is little to
        do, is for a JVM that compiles less and starts sooner. ``keep_session`` leaves it to the
        next build, unless something failed, until `close`. Where somebody else builds, ``notice``
        is told; `Conflict` if they are alive. A step that is overtaken is planned again; it is a
        problem only if that happens again and again.
        """
        self._cancelled.clear()
        report = BuildReport()
        plan = self._plan_build(list_names(names), begin, end)
        report.skipped = plan.skipped
        begun = plan.tick
        if not plan.steps:
            return report
        with ExitStack() as stack:
            if keep_session:
                stack.push(lambda _kind, error, _trace: self.close() if error else None)

            def open_session() -> SparkSession:
                quickly = plan.is_small if quick is None else quick
                if not keep_session:
                    using = _use_session(spark, master, remote, address, quick=quickly)
                    return stack.enter_context(using)
                if self._kept is not None and jvm.is_dead():
                    self.close()
                if self._kept is None:
                    kept = ExitStack()
                    using = _use_session(spark, master, remote, address, quick=bool(quick))
                    self._kept = (kept.enter_context(using), kept)
                    self._is_ours = spark is None
                return self._kept[0]

            address = StoreAddress.of(self._store, pass_credentials=pass_credentials)
            session: SparkSession | None = None
            pin = self._keeper.pin()
            stack.callback(self._keeper.unpin, pin)
            vain = 0
            while plan.steps:
                self._require_wanted()
                report.rounds += 1
                tell = _Teller(plan, report, progress)
                self._fold_here(plan, tell)
                others = [step for step in plan.steps if not plan.is_done_here(step)]
                if others:
                    if spark is None:
                        require_spark(remote=remote is not None)
                    try:
                        with jvm.naming_its_end():
                            session = session or open_session()
                            self._run_on_spark(session, address, plan.tick, others, tell, notice)
                    except Exception:
                        self._require_wanted()  # so it looks from here if a job is cancelled
                        raise
                    finally:
                        self._at_work = None
                outcomes = tell.outcomes
                has_changed = any(each.partition or each.failed_blocks for each in outcomes)
                if not has_changed and not any(each.overtaken for each in outcomes):
                    break
                vain = 0 if has_changed else vain + 1
                remaining = self._without_deleted(list_names(names))
                if names and not remaining:
                    break
                plan = self._plan_build(remaining, begin, end).as_of(begun)
                report.skipped = plan.skipped
                if vain == _MOST_VAIN_ROUNDS or report.rounds == _MOST_ROUNDS:
                    if plan.steps:
                        report.give_up(len(outcomes))
                    break
        if report.problems:
            self.close()
        return report

    def cancel(self) -> None:
        """Let a build that goes on in another thread end as soon as it can, with `Cancelled`. What
        it has published stays."""
        self._cancelled.set()
        session = self._at_work
        if session is not None:
            self._silence()
            _cancel_jobs(session)

    def _silence(self) -> None:
        """Let the kept session, if nobody else has it, say nothing of tasks that are cut off."""
        from lakebed.pipeline.sessions.session import is_remote

        if self._kept is not None and self._is_ours and not is_remote(self._kept[0]):
            jvm.silence(self._kept[0])

    def _require_wanted(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled("the build was cancelled", hint="the next one goes on where it ended")

    def close(self) -> None:
        """Stop the session that was kept, if there is one."""
        self._silence()
        kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].close()

    def _fold_here(self, plan: Plan, tell: Callable[[Outcome], None]) -> None:
        """Fold what is small, one bucket after the other."""
        reader = RowReader(self._store)
        for step in plan.steps:
            if isinstance(step, Fold) and plan.is_done_here(step):
                operation = start_step(step)
                outcome = fold_here(step, reader, self._tables)
                end_step(operation, outcome)
                tell(outcome)

    def _run_on_spark(
        self,
        session: SparkSession,
        address: StoreAddress,
        tick: int,
        steps: Sequence[Step],
        tell: Callable[[Outcome], None],
        notice: Callable[[Lease], None],
    ) -> None:
        """Run steps of one plan; what became of each is told."""
        from lakebed.pipeline.frames.reading import read_files
        from lakebed.pipeline.frames.sql import SqlSteps
        from lakebed.pipeline.runner import Runner

        with self._catalog.read() as connection:
            active = {
                each.view_set.name: each.view_set for each in view_sets.list_active(connection)
            }
        with ExitStack() as stack:
            wanted = sorted({step.name for step in steps})
            self._keeper.end_dead_builders(
                wanted, notice=notice, require_wanted=self._require_wanted
            )
            for name in wanted:
                stack.enter_context(self._keeper.building(name))
            names = TaskNames(self._names)
            self._at_work = own = stack.enter_context(own_session(session))
            sql = SqlSteps(
                own,
                address,
                active,
                lambda own, view_set, paths: read_files(own, self._store, address, paths, view_set),
            )
            publisher = StepPublisher(
                self._catalog, self._publisher, self._tables, self._names, tick
            )
            runner = Runner(
                self._catalog,
                own,
                address,
                names,
                publisher,
                active,
                sql,
                self._require_wanted,
            )
            stack.callback(lambda: names.close(runner.given_out, retried=runner.retried))
            runner.run(steps, tell)

    def _without_deleted(self, names: Sequence[str]) -> tuple[str, ...]:
        """The names but for those of tables that somebody deleted meanwhile."""
        with self._catalog.read() as connection:
            return tuple(
                name
                for name in names
                if "." not in name or tables.find(connection, *name.split(".", 1)) is not None
            )

    def list_failures(self, view_set: str | None = None) -> list[BuildFailure]:
        """Blocks that could not be decoded, with the reason."""
        with self._catalog.read() as connection:
            return failures.list_failures(connection, view_set)

    def retry_failures(self, *names: str | Collection[str]) -> int:
        """Let the next build try blocks again that could not be decoded, for these view sets and
        what they read, or for all; how many. What SQL made of their neighbours stays: the ranges
        of such blocks are in no partition, so they are built and queried like new ones."""
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
        """A range is built up to the lake's last tick, exclusive: move on if a block is on it."""
        with self._catalog.read() as connection:
            last = blocks.last_insert_time(connection)
            due = last is not None and last >= clock.now(connection)
        if due and not self._catalog.read_only:
            with self._catalog.write():
                pass


def _cancel_jobs(session: SparkSession) -> None:
    from lakebed.pipeline.sessions.session import is_remote

    if is_remote(session):
        session.interruptAll()
    else:
        jvm.cancel_jobs(session)


@contextmanager
def _use_session(
    spark: SparkSession | None,
    master: str | None,
    remote: str | None,
    address: StoreAddress,
    *,
    quick: bool,
) -> Iterator[SparkSession]:
    """Yield a session whose executors have this package, its dependencies and the store."""
    from lakebed.pipeline.sessions.executors import require_executors, ship
    from lakebed.pipeline.sessions.session import use_session

    with use_session(spark, master=master, remote=remote, quick=quick) as session:
        ship(session)
        require_executors(session, address)
        yield session


@contextmanager
def own_session(session: SparkSession) -> Iterator[SparkSession]:
    """A session beside the caller's, in which names in double quotes are columns. The connection to
    a Connect server is closed: pyspark asks open ones at exit, for minutes if the server is gone.
    A classic session must not be stopped: that stops them all."""
    from lakebed.pipeline.sessions import jvm
    from lakebed.pipeline.sessions.executors import ship_beside
    from lakebed.pipeline.sessions.session import is_remote

    own = session.newSession()
    ship_beside(session, own)
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.ansi.enabled", "true")
    own.conf.set("spark.sql.ansi.doubleQuotedIdentifiers", "true")
    try:
        yield own
    finally:
        if is_remote(own):
            own.client.close()
        else:
            jvm.forget_jobs(own)
