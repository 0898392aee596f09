"""Write a DataFrame into a view set: executors write the file under one of several reserved
names, the driver publishes it. Rows never pass through the driver.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from lakebed.catalog.times import resolve
from lakebed.errors import BadInput, LeaseLost, Unavailable
from lakebed.lake import Lake
from lakebed.logs import Operation
from lakebed.model.arguments import checked
from lakebed.model.partition import NO_SOURCE, Partition
from lakebed.model.time import Instant, TimeRange
from lakebed.model.view_set import GLOBAL, ViewSet
from lakebed.pipeline.frames.types import spark_schema
from lakebed.pipeline.sessions.executors import StoreAddress, require_executors
from lakebed.pipeline.writing import (
    RESULT,
    TaskResult,
    by_position,
    read_results,
    write_task,
)
from lakebed.storage.parquet import WrittenFile
from lakebed.writing.name_reservations import NamePool
from lakebed.writing.publish import (
    NewPartition,
    Publisher,
    WrittenPartition,
    check_publication,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)
_NAMES = 8
"""The number of names: for each attempt that Spark makes by default (4), and as many again for
speculative ones and for attempts of a repeated stage.
"""


@checked
def write(
    frame: DataFrame,
    lake: Lake,
    view_set: ViewSet | str,
    begin: Instant,
    end: Instant,
    *,
    instance: str = GLOBAL,
    source_hash: bytes = NO_SOURCE,
    replaces: Sequence[Partition] = (),
    read_at: int | None = None,
    reason: str | None = None,
    completed_empty: bool = False,
    pass_credentials: bool = False,
) -> Partition:
    """Write a DataFrame as one partition over an insert-time range and publish it.

    All rows go to one task, are sorted there and must fit its memory. No rows are an error unless
    ``completed_empty`` states that the range was processed to its end. View sets that builds make,
    of blocks or by SQL, take no rows: `BadInput`. On `Conflict` nothing happened; see
    `Partitions.publish` for the other arguments.
    """
    definition = lake.partitions.definition(view_set)
    definition.require_no_source()
    begin, end = resolve(lake.catalog, begin), resolve(lake.catalog, end)
    new = NewPartition(definition, TimeRange.of(begin, end), None, instance, source_hash)
    within = str(new.insert_range)
    with Operation(_log, "write DataFrame", view_set=definition.name, range=within) as operation:
        partition = _write(
            frame, lake, new, replaces, read_at, reason, completed_empty, pass_credentials
        )
        operation.add(rows=partition.num_rows, bytes=partition.file_size)
    return partition


def _write(
    frame: DataFrame,
    lake: Lake,
    new: NewPartition,
    replaces: Sequence[Partition],
    read_at: int | None,
    reason: str | None,
    completed_empty: bool,
    pass_credentials: bool,
) -> Partition:
    definition, instance, source_hash = new.view_set, new.instance, new.source_hash
    check_publication([new], replaces)
    _check_columns(frame, definition)
    names = NamePool(lake.catalog, lake.leases)
    publisher = Publisher(lake.catalog, lake.store, names)
    publisher.refuse_early([new], read_at, replaces)
    address = StoreAddress.of(lake.store, pass_credentials=pass_credentials)
    require_executors(frame.sparkSession, address)

    def attempt() -> Partition:
        lease, paths = names.take(definition.name, instance, _NAMES)
        with names.using(lease, paths, written_elsewhere=True):
            file = _run(frame, address, definition, paths)
            if file is None and not completed_empty:
                raise BadInput(
                    f"the DataFrame has no rows for {definition.name} {new.insert_range}",
                    hint="if the range is complete and truly empty, say so: completed_empty=True",
                )
            written = WrittenPartition(definition, new.insert_range, instance, source_hash, file)
            published = publisher.publish_written(
                [written], lease=lease, replaces=replaces, read_at=read_at, reason=reason
            )[0]
        names.give_up([path for path in paths if path != published.file_path])
        return published

    try:
        return attempt()
    except LeaseLost:
        return attempt()
    finally:
        names.close()


def _run(
    frame: DataFrame, address: StoreAddress, definition: ViewSet, names: Sequence[str]
) -> WrittenFile | None:
    """Have one task write all rows. Return its file, or None if there were no rows."""
    task = write_task(address, definition.definition(), names)
    frame = by_position(frame, definition.schema.names)
    results = collect_results(frame, task, definition.name)
    return results[0].file if results else None


def collect_results(
    frame: DataFrame,
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    name: str,
) -> list[TaskResult]:
    """Have one task take all rows. Return its results; `BadInput` if it refused the rows."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        rows = frame.repartition(1).mapInArrow(task, RESULT).collect()
    except (PySparkException, Py4JJavaError) as error:
        raise Unavailable(
            f"spark could not write the rows of {name}: {_reason(error)}",
            hint="nothing was published",
        ) from error
    return [result.require_rows() for result in read_results(rows).values()]


def _reason(error: Exception) -> str:
    """Return the line of Spark's error that says what went wrong in the task."""
    lines = [line.strip() for line in str(error).splitlines()]
    reasons = [
        line for line in lines if re.match(r"[\w.]+(Error|Exception|Unavailable|There): ", line)
    ]
    aborted = [line for line in lines if "Job aborted" in line]
    return (reasons or aborted or lines or ["it does not say why"])[0]


def _check_columns(frame: DataFrame, definition: ViewSet) -> None:
    """Raise `BadInput` before a job runs if the task would refuse the columns."""
    declared = {field.name: field.dataType.simpleString() for field in spark_schema(definition)}
    actual = {field.name: field.dataType.simpleString() for field in frame.schema}
    missing = [name for name in declared if name not in actual]
    extra = [name for name in actual if name not in declared]
    if missing or extra or len(frame.columns) != len(actual):
        what = [f"missing {', '.join(missing)}"] if missing else []
        what += [f"unexpected {', '.join(extra)}"] if extra else []
        raise BadInput(
            f"the DataFrame does not fit view set {definition.name}: "
            + ("; ".join(what) or "a column occurs twice"),
            hint=f"select exactly {', '.join(declared)}",
        )
    for name, kind in declared.items():
        if actual[name] != kind:
            raise BadInput(
                f"column {name} of view set {definition.name} is {kind}, not {actual[name]}",
                hint=f'cast it: df.withColumn("{name}", col("{name}").cast("{kind}"))',
            )
