"""Running steps on Spark: those over blocks and files go out in waves, one task each; steps in SQL
run one after the other. The driver publishes as answers come in.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from lakebed.catalog import blocks
from lakebed.catalog.catalog import Catalog
from lakebed.model.source import BlockSource, SqlSource
from lakebed.model.view_set import ViewSet
from lakebed.pipeline.frames.sql import SqlSteps
from lakebed.pipeline.publishing import Outcome, StepPublisher, TaskNames
from lakebed.pipeline.sessions.executors import StoreAddress
from lakebed.pipeline.sessions.jvm import logging_no_errors
from lakebed.pipeline.sessions.session import is_remote
from lakebed.pipeline.step_log import end_step, start_step
from lakebed.pipeline.steps import Build, Fold, Merge, Query, Step
from lakebed.pipeline.tasks import BuildOrder, FoldOrder, Order, build_task
from lakebed.pipeline.writing import DESCRIPTOR, read_descriptor
from lakebed.views.dependencies import find_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONDITION = re.compile(r"\[[A-Z0-9_.]+\] ")
_LEAST_WAVE, _STEPS_PER_CORE, _UNKNOWN_CORES = 8, 4, 16
"""Steps that are sent out together: enough to keep executors busy, few enough to see progress."""


class Runner:
    """Runs steps of one plan."""

    def __init__(
        self,
        catalog: Catalog,
        session: SparkSession,
        address: StoreAddress,
        names: TaskNames,
        publisher: StepPublisher,
        active: Mapping[str, ViewSet],
        sql: SqlSteps,
        require_wanted: Callable[[], None] = lambda: None,
    ) -> None:
        """``require_wanted`` raises if the steps are not wanted any more."""
        self._catalog = catalog
        self._session = session
        self._address = address
        self._names = names
        self._publisher = publisher
        self._active = active
        self._sql = sql
        self._require_wanted = require_wanted
        self.given_out: list[str] = []
        self.retried = str(session.conf.get("spark.speculation", "false")) == "true"
        """Whether a task may have been attempted more than once."""
        self._local = str(session.conf.get("spark.master", "")).startswith(("local[", "local,"))

    def run(self, steps: Sequence[Step], report: Callable[[Outcome], None]) -> list[Outcome]:
        """Carry out every step; what fails is said in its outcome and stops no other."""
        outcomes: list[Outcome] = []

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            report(outcome)

        by_path = [step for step in steps if not _is_sql(step)]
        size = self._wave_size()
        with logging_no_errors():
            for begin in range(0, len(by_path), size):
                wave = by_path[begin : begin + size]
                operations = {id(step): start_step(step) for step in wave}
                for outcome in self._run_wave(wave):
                    end_step(operations[id(outcome.step)], outcome)
                    done(outcome)
            for step in steps:
                if _is_sql(step):
                    operation = start_step(step)
                    outcome = self._run_sql(step)
                    end_step(operation, outcome)
                    done(outcome)
        return outcomes

    def _run_wave(self, wave: Sequence[Step]) -> Iterator[Outcome]:
        from pyspark.errors import PySparkException

        self._require_wanted()
        for name in {step.view_set.name for step in wave}:
            count = sum(1 for step in wave if step.view_set.name == name)
            self._names.prepare(name, count)
        orders = [self._order(step) for step in wave]
        lease = self._names.lease
        try:
            answers = self._ask(orders)
        except PySparkException as error:
            self.retried = True
            self._require_wanted()
            if len(wave) == 1:
                yield Outcome(wave[0], problem=explain(error))
                return
            # One step may have taken the others down with it: each gets a chance of its own.
            for step in wave:
                yield from self._run_wave([step])
            return
        if any(answer["attempt"] for answer in answers.values()):
            self._names.renew()
        for place, step in enumerate(wave):
            answer = answers.get(place)
            if answer is None:
                yield Outcome(step, problem="its task gave no answer")
            else:
                yield self._finish(step, answer, lease)

    def _ask(self, orders: Sequence[Order]) -> dict[int, Any]:
        """One job, one task for each order; the answers by the order's place."""
        import pyarrow as pa

        work = pa.table(
            {
                "step": pa.array(range(len(orders)), pa.int64()),
                "work": pa.array([msgspec.msgpack.encode(each) for each in orders], pa.binary()),
            }
        )
        with one_task_each(self._session, len(orders)):
            frame = self._session.createDataFrame(work)
            rows = frame.mapInArrow(build_task(self._address), DESCRIPTOR).collect()
        return {row["step"]: row for row in rows}

    def _wave_size(self) -> int:
        cores = _UNKNOWN_CORES
        if not is_remote(self._session):
            cores = self._session.sparkContext.defaultParallelism
        return max(_LEAST_WAVE, _STEPS_PER_CORE * cores)

    def _order(self, step: Step) -> Order:
        names = self._names.take(step.view_set.name)
        self.given_out.append(names[0])
        definition = step.view_set.definition()
        match step:
            case Fold():
                return FoldOrder(step.table, step.replaces, step.marks_from, names)
            case Merge():
                files = tuple((p.file_path, p.num_rows) for p in step.replaces if p.file_path)
                return BuildOrder(definition, names, files=files, is_merge=True)
            case Build():
                source = step.view_set.source
                if isinstance(source, BlockSource) and source.decoder == "blocks":
                    with self._catalog.read() as connection:
                        who = blocks.list_senders(connection, step.insert_range)
                    return BuildOrder(
                        definition, names, step.blocks, processes=who[0], streams=who[1]
                    )
                return BuildOrder(definition, names, step.blocks)
        raise AssertionError(step)

    def _finish(self, step: Step, answer: Any, lease: str) -> Outcome:
        self.retried |= bool(answer["attempt"])
        if answer["error"] is not None:
            return Outcome(step, problem=answer["error"])
        if answer["failures"] is not None:
            assert isinstance(step, Build)  # noqa: S101
            failed = [(each[0], each[1]) for each in msgspec.json.decode(answer["failures"])]
            self._publisher.record_failures(step, failed)
            return Outcome(step, failed_blocks=len(failed), problem=_say_failures(failed))
        file = None if answer["path"] is None else read_descriptor(answer)
        sources = find_sources(step.view_set, self._active)
        outcome = self._publisher.publish(step, file, lease, sources)
        if outcome.partition is not None and file is not None:
            self.given_out = [name for name in self.given_out if name != file.path]
            self._names.forget(file.path)
        return replace(outcome, fallbacks=answer["fallbacks"] or 0)

    def _run_sql(self, step: Step) -> Outcome:
        from pyspark.errors import PySparkException

        assert isinstance(step, Query | Merge)  # noqa: S101
        self._require_wanted()
        names = self._names.take(step.view_set.name)
        self.given_out.append(names[0])
        lease = self._names.lease
        self.retried |= not self._local  # a lost shuffle repeats a stage without telling its tasks
        try:
            answer = self._sql.run(step, names)
        except PySparkException as error:
            self.retried = True
            self._require_wanted()
            return Outcome(step, problem=explain(error))
        return self._finish(step, answer, lease)


def _is_sql(step: Step) -> bool:
    return isinstance(step.view_set.source, SqlSource)


@contextmanager
def one_task_each(session: SparkSession, count: int) -> Iterator[None]:
    """Rows from memory become as many tasks as there are cores, or one if they are large, unless
    Spark is told otherwise: with a lost task, all steps in it would be lost."""
    settings = {
        "spark.sql.leafNodeDefaultParallelism": str(count),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
    }
    for name, value in settings.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            session.conf.unset(name)


def _say_failures(failed: Sequence[tuple[str, str]]) -> str:
    block_id, reason = failed[0]
    more = f" and {len(failed) - 1} more" if len(failed) > 1 else ""
    return f"block {block_id}{more} could not be decoded: {reason}"


def explain(error: Exception) -> str:
    """The line of a Spark error that says what happened."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and _CONDITION.match(lines[0]) and type(error).__name__ != "PythonException":
        return lines[0][:500]  # of the data; what follows is where in the statement
    telling = [line for line in lines if "Error" in line or "Exception" in line]
    return (telling or lines or [type(error).__name__])[-1][:500]
