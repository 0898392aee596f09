"""Steps in SQL: a view set's SQL over the partitions it reads, or its merge SQL over its own. The
rows stay in Spark until one task writes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from lakebed.model.partition import Partition
from lakebed.model.source import SqlSource
from lakebed.model.time import TimeRange
from lakebed.model.view_set import ViewSet
from lakebed.pipeline.frames.reading import read_files
from lakebed.pipeline.frames.types import spark_schema
from lakebed.pipeline.plan import tells_insert_time
from lakebed.pipeline.sessions.executors import StoreAddress
from lakebed.pipeline.steps import Merge, Query
from lakebed.pipeline.writing import RESULT, TaskResult, by_position, read_results, write_task
from lakebed.storage.objects import Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class SqlSteps:
    """Runs SQL in a session of its own, so that its temporary views do not clash with others."""

    def __init__(
        self,
        session: SparkSession,
        store: Store,
        address: StoreAddress,
        active: Mapping[str, ViewSet],
    ) -> None:
        self._session = session
        self._store = store
        self._address = address
        self._active = active

    def run(self, step: Query | Merge, names: Sequence[str]) -> TaskResult:
        """Return the result of the step's SQL."""
        source = step.view_set.source
        assert isinstance(source, SqlSource)  # noqa: S101
        if isinstance(step, Merge):
            self._offer(step.view_set, step.replaces)
            result = self._session.sql(source.merge_sql)
        else:
            for name, partitions in step.inputs.items():
                self._offer(self._active[name], partitions, step.insert_range)
            result = self._session.sql(source.sql)
        task = write_task(self._address, step.view_set.definition(), names)
        columns = by_position(as_declared(result, step.view_set), step.view_set.schema.names)
        rows = columns.repartition(1).mapInArrow(task, RESULT).collect()
        return read_results(rows).get(0, TaskResult())

    def _offer(
        self,
        view_set: ViewSet,
        partitions: Sequence[Partition],
        within: TimeRange | None = None,
    ) -> None:
        """Register partitions as a temporary view with their view set's name; partial results
        are added up."""
        paths = [partition.file_path for partition in partitions if partition.file_path is not None]
        frame = read_files(self._session, self._store, self._address, paths, view_set)
        whole = within is None or all(
            within.contains(partition.insert_range) for partition in partitions
        )
        if within is not None and not whole and tells_insert_time(view_set):
            frame = frame.where(
                f"unix_micros(insert_time) >= {within.begin} "
                f"AND unix_micros(insert_time) < {within.end}"
            )
        frame.createOrReplaceTempView(view_set.name)
        if within is not None and isinstance(view_set.source, SqlSource):
            merged = self._session.sql(view_set.source.merge_sql)
            merged.createOrReplaceTempView(view_set.name)


def as_declared(frame: DataFrame, view_set: ViewSet) -> DataFrame:
    """Return the view set's columns in its types: SQL may compute wider or narrower ones."""
    from pyspark.sql import functions

    return frame.select(
        *(
            functions.col(f"`{field.name}`").cast(field.dataType).alias(field.name)
            for field in spark_schema(view_set)
        )
    )
