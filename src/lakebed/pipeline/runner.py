"""Run steps on Spark: those over blocks and files go out in waves, one task each; steps in SQL
run one after the other. The driver publishes as results arrive.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from lakebed.catalog.records import blocks, view_sets
from lakebed.logs import Operation
from lakebed.model.source import BlockSource, SqlSource
from lakebed.pipeline.frames.sql import SqlSteps
from lakebed.pipeline.publishing import Outcome, StepPublisher
from lakebed.pipeline.sessions.executors import StoreAddress
from lakebed.pipeline.sessions.jvm import logging_no_errors
from lakebed.pipeline.sessions.session import is_remote
from lakebed.pipeline.step_log import end_step, start_step
from lakebed.pipeline.steps import Build, Fold, Merge, Query, Step
from lakebed.pipeline.task_names import TaskNames
from lakebed.pipeline.tasks import BuildOrder, FoldOrder, Order, build_task
from lakebed.pipeline.writing import RESULT, TaskResult, read_results
from lakebed.storage.objects import Store
from lakebed.views.dependencies import find_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONDITION = re.compile(r"\[[A-Z0-9_.]+\] ")
_LEAST_WAVE, _STEPS_PER_CORE, _UNKNOWN_CORES = 8, 4, 16
"""The number of steps that are sent out together: enough to keep executors busy, few enough to
see progress.
"""


class Runner:
    """Runs steps of one plan."""

    def __init__(
        self,
        publisher: StepPublisher,
        session: SparkSession,
        store: Store,
        address: StoreAddress,
        tick: int,
        require_wanted: Callable[[], None],
    ) -> None:
        """``tick`` is that of the plan; ``require_wanted`` raises once the build is cancelled."""
        self._publisher = publisher
        self._session = session
        self._address = address
        self._tick = tick
        self._require_wanted = require_wanted
        with publisher.catalog.read() as connection:
            entries = view_sets.list_active(connection)
        self._active = {entry.view_set.name: entry.view_set for entry in entries}
        self._sql = SqlSteps(session, store, address, self._active)
        self._speculates = str(session.conf.get("spark.speculation", "false")) == "true"
        self._local = str(session.conf.get("spark.master", "")).startswith(("local[", "local,"))

    def run(self, steps: Sequence[Step], report: Callable[[Outcome], None]) -> None:
        """Carry out every step and report its outcome. A failed step does not stop the others."""
        by_path = [step for step in steps if not _is_sql(step)]
        size = self._wave_size()
        waves = [by_path[begin : begin + size] for begin in range(0, len(by_path), size)]
        waves += [[step] for step in steps if _is_sql(step)]
        with logging_no_errors():
            for wave in waves:
                operations = {id(step): start_step(step) for step in wave}

                def end(outcome: Outcome, started: dict[int, Operation] = operations) -> None:
                    end_step(started[id(outcome.step)], outcome)
                    report(outcome)

                self._run_wave(wave, end)

    def _run_wave(self, wave: Sequence[Step], report: Callable[[Outcome], None]) -> None:
        """Run steps in one job and publish their results. If the job fails, its steps run again one
        by one, because one of them may have made the others fail."""
        from pyspark.errors import PySparkException

        self._require_wanted()
        names = TaskNames.reserve(self._publisher.names, [step.view_set.name for step in wave])
        published: set[str] = set()
        repeated = True  # unless the job ends and reports first attempts only
        try:
            results = self._collect(wave, names)
            repeated = self._speculates or any(result.attempt for result in results.values())
            repeated |= _is_sql(wave[0]) and not self._local  # lost shuffles repeat stages silently
            for index, step in enumerate(wave):
                result = results.get(index, TaskResult(error="its task gave no answer"))
                sources = find_sources(step.view_set, self._active)
                outcome = self._publisher.publish(step, result, names.lease, self._tick, sources)
                if outcome.partition is not None and outcome.partition.file_path is not None:
                    published.add(outcome.partition.file_path)
                report(outcome)
        except PySparkException as error:
            self._require_wanted()
            if len(wave) == 1:
                report(Outcome(wave[0], problem=explain(error)))
                return
        else:
            return
        finally:
            names.close(published, repeated=repeated)
        for step in wave:
            self._run_wave([step], report)

    def _collect(self, wave: Sequence[Step], names: TaskNames) -> dict[int, TaskResult]:
        """Return the results of a wave's tasks by the places of their steps."""
        if isinstance(wave[0], Query | Merge) and _is_sql(wave[0]):
            return {0: self._sql.run(wave[0], names.take(wave[0].view_set.name))}
        return self._ask([self._order(step, names.take(step.view_set.name)) for step in wave])

    def _ask(self, orders: Sequence[Order]) -> dict[int, TaskResult]:
        """Run one job with a task for each order."""
        import pyarrow as pa

        work = pa.table(
            {
                "step": pa.array(range(len(orders)), pa.int64()),
                "work": pa.array([msgspec.msgpack.encode(order) for order in orders], pa.binary()),
            }
        )
        with one_task_each(self._session, len(orders)):
            frame = self._session.createDataFrame(work)
            return read_results(frame.mapInArrow(build_task(self._address), RESULT).collect())

    def _wave_size(self) -> int:
        cores = _UNKNOWN_CORES
        if not is_remote(self._session):
            cores = self._session.sparkContext.defaultParallelism
        return max(_LEAST_WAVE, _STEPS_PER_CORE * cores)

    def _order(self, step: Step, names: tuple[str, ...]) -> Order:
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
                    with self._publisher.catalog.read() as connection:
                        senders = blocks.list_senders(connection, step.insert_range)
                    return BuildOrder(
                        definition, names, step.blocks, processes=senders[0], streams=senders[1]
                    )
                return BuildOrder(definition, names, step.blocks)
        raise AssertionError(step)


def _is_sql(step: Step) -> bool:
    return isinstance(step.view_set.source, SqlSource)


@contextmanager
def one_task_each(session: SparkSession, count: int) -> Iterator[None]:
    """Give each row from memory a task of its own, so that a lost task loses one step. By default
    Spark makes as many tasks as there are cores, or one if the rows are large."""
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


def explain(error: Exception) -> str:
    """Return the line of a Spark error that gives the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and _CONDITION.match(lines[0]) and type(error).__name__ != "PythonException":
        return lines[0][:500]  # of the data; what follows is where in the statement
    telling = [line for line in lines if "Error" in line or "Exception" in line]
    return (telling or lines or [type(error).__name__])[-1][:500]
