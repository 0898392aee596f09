"""Operations that change which partitions queries see: retire, restore and build."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from lakebed.lifecycle.outcomes import Outcome
from lakebed.lifecycle.selection import BY_FILE_IS_DEPRECATED
from lakebed.model.partition import Partition
from lakebed.model.time import Instant
from lakebed.operations.operation import OperableLake, operation
from lakebed.query.snapshot import listings

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from lakebed.pipeline.pipeline import BuildReport

__all__ = [
    "materialize_partitions",
    "restore_partition",
    "retire_incompatible_partitions",
    "retire_partition_by_file",
    "retire_partition_by_metadata",
    "retire_partitions",
]


@operation(Outcome, changes=True, in_sql=True)
def retire_partition_by_metadata(
    lake: OperableLake,
    view_set_name: str,
    view_instance_id: str,
    begin_insert_time: Instant,
    end_insert_time: Instant,
    file_schema_hash: bytes | None = None,
    *,
    confirmed: Collection[str] = (),
) -> Outcome:
    """Retire one partition, empty or not. `Ambiguous` if it has a twin and no hash is given,
    `Refused` if it cannot be rebuilt, unless ``confirmed`` names its view set."""
    return lake.retirement.retire(
        lambda: lake.retirement.plan_by_metadata(
            view_set_name,
            view_instance_id,
            begin_insert_time,
            end_insert_time,
            file_schema_hash,
        ),
        confirmed,
    )[0]


@operation(Outcome, changes=True, in_sql=True, deprecated=BY_FILE_IS_DEPRECATED)
def retire_partition_by_file(
    lake: OperableLake, file_path: str, *, confirmed: Collection[str] = ()
) -> Outcome:
    """Retire one partition by its file. Deprecated: use `retire_partition_by_metadata`, which can
    name an empty partition, too."""
    return lake.retirement.retire(lambda: lake.retirement.plan_by_file(file_path), confirmed)[0]


@operation(list[Outcome], changes=True)
def retire_partitions(
    lake: OperableLake,
    view_set_name: str,
    view_instance_id: str | None,
    begin_insert_time: Instant,
    end_insert_time: Instant,
    *,
    confirmed: Collection[str] = (),
) -> list[Outcome]:
    """Retire every partition inside an insert-time range, of one instance or (None) of all."""
    return lake.retirement.retire(
        lambda: lake.retirement.plan_by_range(
            view_set_name, begin_insert_time, end_insert_time, instance=view_instance_id
        ),
        confirmed,
    )


@operation(changes=True)
def retire_incompatible_partitions(
    lake: OperableLake,
    view_set_name: str | None = None,
    *,
    allow_loss: bool = False,
    confirmed: Collection[str] = (),
) -> pa.Table:
    """Retire them, each in a transaction of its own; return a row for each view set and instance.

    Partitions that cannot be rebuilt are left alone, unless ``allow_loss`` accepts the loss for a
    named view set: ``view_set_name``, or those in ``confirmed``.
    """
    summaries = lake.retirement.retire_incompatible_partitions(
        view_set_name, allow_loss=allow_loss, confirmed=confirmed
    )
    return listings.make_retired(summary.as_row() for summary in summaries)


@operation(Partition, changes=True, in_sql=True)
def restore_partition(lake: OperableLake, partition_id: str) -> Partition:
    """Bring a retired partition back; the new one."""
    return lake.retirement.restore(partition_id)


@operation(
    changes=True,
    instead="over a connection: SELECT * FROM materialize_partitions(view_set, begin, end, 60)",
)
def materialize_partitions(
    lake: OperableLake,
    view_set_name: str,
    begin_insert_time: Instant,
    end_insert_time: Instant,
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    remote: str | None = None,
) -> BuildReport:
    """Build a view set and what it reads in an insert-time range; the size of partitions is the
    plan's affair. Each step is published by itself."""
    return lake.pipeline.build(
        view_set_name,
        begin=begin_insert_time,
        end=end_insert_time,
        spark=spark,
        master=master,
        remote=remote,
    )
